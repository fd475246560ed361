"""One case of a benchmark: every contender prepares and is checked, then they take turns; the row of what was found."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luminal.bench.case import BenchmarkError, Case, LeftOutError
from luminal.bench.check import compare
from luminal.bench.process import Message, Process

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """`limit`: seconds that a contender may take to prepare a case; `tiny`: at sizes where times mean nothing."""

    rounds: int
    slice_seconds: float
    limit: float
    tiny: bool = False


@dataclass(frozen=True)
class Machine:
    """The most that so many threads of this machine do, measured before the cases."""

    threads: int
    peak_gflops: float
    read_gbytes: float


@dataclass
class Contender:
    """A peer, or Luminal, at one number of threads; its process is started anew after one that ended."""

    name: str
    file: Path
    threads: int
    folder: Path
    process: Process | None = None

    def ask(self, request: Message, limit: float | None = None) -> Message:
        if self.process is None or not self.process.is_alive:
            arguments = [str(self.file), str(self.threads)]
            log = self.folder / f"{self.name}-{self.threads}.log"
            self.process = Process("luminal.bench.worker", arguments, self.threads, log)
            # what importing takes is no part of any limit
            self.process.ask({"do": "start"})
        return self.process.ask(request, limit)

    @property
    def results(self) -> Path:
        return self.folder / f"{self.name}.npz"

    def close(self) -> None:
        if self.process is not None:
            self.process.close()


@dataclass
class Found:
    """What is known of a case so far, by contender."""

    first_call: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    rms: dict[str, float] = field(default_factory=dict[str, float])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    cpu: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def attempt(self, contender: Contender, request: Message, limit: float | None = None) -> Message | None:
        """The reply, or None where the contender fails, which is noted."""
        try:
            return contender.ask(request, limit)
        except LeftOutError as error:
            self.left_out[contender.name] = str(error)
        except BenchmarkError as error:
            self.failed[contender.name] = str(error)
        return None


def run_case(
    suite: Path,
    case: Case,
    contenders: Sequence[Contender],
    machine: Machine,
    settings: Settings,
    tell: Callable[[str], None],
) -> Row:
    """The row of a case. `contenders`: eager first, whose results and f64 decide what is right; `tell` hears who
    works."""
    found, load = Found(), os.getloadavg()[0]
    prepare = {"do": "prepare", "suite": str(suite), "case": case.name, "tiny": settings.tiny}
    for contender in contenders:
        tell(f"{contender.name} prepares")
        reply = found.attempt(contender, {**prepare, "result_file": str(contender.results)}, settings.limit)
        if reply is not None:
            found.first_call[contender.name] = round(reply["first_call_seconds"], 3)
            found.notes[contender.name] = reply["note"]
    eager = contenders[0]
    exact = eager.folder / "f64.npz"
    work = None
    if eager.name in found.first_call:
        tell("in f64")
        work = found.attempt(eager, {"do": "reference", "result_file": str(exact)})
    right: list[Contender] = []
    for contender in contenders:
        if work is None or contender.name not in found.first_call:
            continue
        comparison = compare(contender.results, eager.results, exact, case.dtype)
        found.errors[contender.name], found.rms[contender.name] = comparison.error, comparison.rms
        if comparison.wrong:
            found.failed[contender.name] = comparison.wrong
        else:
            right.append(contender)
    _take_turns(right, found, settings, tell)
    times = {name: round(statistics.median(values), 5) for name, values in found.times.items()}
    return {
        "suite": suite.stem,
        "case": case.name,
        "dtype": case.dtype,
        "dynamic": case.dynamic,
        "threads": machine.threads,
        "luminal_ms": times.pop("luminal", None),
        "peers": times,
        "failed": found.failed,
        "left_out": found.left_out,
        "notes": {name: note for name, note in found.notes.items() if note},
        "first_call_seconds": found.first_call,
        "error_f64": found.errors,
        "rms_f64": found.rms,
        "spread": {name: spread(values) for name, values in found.times.items()},
        "cpu_ms": {name: round(statistics.median(values), 5) for name, values in found.cpu.items()},
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "gflop": work["gflop"] if work else 0.0,
        "mbytes": work["mbytes"] if work else 0.0,
        "peak_gflops": machine.peak_gflops,
        "read_gbytes": machine.read_gbytes,
    }


def _take_turns(
    contenders: Sequence[Contender], found: Found, settings: Settings, tell: Callable[[str], None]
) -> None:
    """Slices in an order that rotates from round to round; who fails in one is out."""
    request = {"do": "slice", "seconds": settings.slice_seconds}
    for turn in range(settings.rounds):
        tell(f"round {turn + 1} of {settings.rounds}")
        for index in range(len(contenders)):
            contender = contenders[(turn + index) % len(contenders)]
            if contender.name in found.failed:
                continue
            reply = found.attempt(contender, request, settings.limit)
            if reply is None:
                found.times.pop(contender.name, None)
                continue
            found.times.setdefault(contender.name, []).append(1e3 * reply["median_seconds"])
            found.cpu.setdefault(contender.name, []).append(1e3 * reply["cpu_seconds"])


def spread(values: Sequence[float]) -> float:
    """Interquartile range over median: how noisy the machine was."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return round((high - low) / middle, 3)


def failures(row: Mapping[str, Any]) -> str:
    """Who failed on a case and why, a line each, or ""."""
    return "\n".join(f"{name}: {reason}" for name, reason in row["failed"].items())
