"""What was compiled and what a call costs: seconds by stage, kernels, launches and bytes of arena.

>>> luminal.stats()["compilations"]
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stats:
    """Of one compiled graph, or of all of this process together.

    `kernels`: different kernels; `launches`: kernels and library steps that one call runs; `arena_bytes`: the largest
    arena of any call so far; `seconds`: of compiling, by stage; `cached`: compilations found whole on disk;
    `rewrites` of the hlo graph and `library` kernels that match it, each with what became of it; `copied_bytes`: what
    the torch backend has copied of its callers' tensors because of their strides; `programs`: the programs of a graph
    with buckets, by the sizes that they are for.
    """

    compilations: int = 0
    cached: int = 0
    kernels: int = 0
    launches: int = 0
    arena_bytes: int = 0
    packed_bytes: int = 0
    copied_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    programs: dict[str, Stats] = field(default_factory=dict[str, "Stats"])
    rewrites: dict[str, str] = field(default_factory=dict[str, str])
    library: dict[str, str] = field(default_factory=dict[str, str])

    @contextlib.contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Adds the time of its body to the seconds of a stage, here and in the totals of the process."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_seconds(name, time.perf_counter() - start)

    def add_seconds(self, name: str, seconds: float) -> None:
        for stats in (self, TOTALS) if self is not TOTALS else (self,):
            with _lock:
                stats.seconds[name] = stats.seconds.get(name, 0.0) + seconds

    def as_dict(self) -> dict[str, Any]:
        return {
            "compilations": self.compilations,
            "cached": self.cached,
            "kernels": self.kernels,
            "launches": self.launches,
            "arena_bytes": max([self.arena_bytes, *(each.arena_bytes for each in self.programs.values())]),
            "packed_bytes": self.packed_bytes,
            "copied_bytes": self.copied_bytes,
            "rewrites": dict(self.rewrites),
            "library": dict(self.library),
            "compile_seconds": {name: self.seconds[name] for name in sorted(self.seconds)},
            "programs": {name: each.of_program() for name, each in self.programs.items()},
        }

    def of_program(self) -> dict[str, int]:
        """What is said of one of several programs."""
        return {
            "kernels": self.kernels,
            "launches": self.launches,
            "arena_bytes": self.arena_bytes,
            "packed_bytes": self.packed_bytes,
        }


TOTALS = Stats()
_lock = threading.Lock()
_last: list[Stats] = []


def record(stats: Stats) -> None:
    """Count a finished compilation into the totals; `seconds` are there already."""
    with _lock:
        TOTALS.compilations += 1
        TOTALS.cached += stats.cached
        TOTALS.kernels += stats.kernels
        TOTALS.launches += stats.launches
        _last[:] = [stats]


def note_arena(stats: Stats, arena_bytes: int) -> None:
    """A call needed an arena of this size."""
    with _lock:
        stats.arena_bytes = max(stats.arena_bytes, arena_bytes)
        TOTALS.arena_bytes = max(TOTALS.arena_bytes, arena_bytes)


def note_copy(copied_bytes: int) -> None:
    """A caller's tensor was copied on its way in or out."""
    with _lock:
        TOTALS.copied_bytes += copied_bytes


def stats() -> dict[str, Any]:
    """The totals of this process, and those of the last compilation under "last"."""
    with _lock:
        last = _last[0].as_dict() if _last else None
    return {**TOTALS.as_dict(), "last": last}


def reset() -> None:
    """Forget the totals."""
    with _lock:
        _last.clear()
        TOTALS.__init__()
