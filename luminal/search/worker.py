"""What a worker process does for `WorkerProfiler`: its jobs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.garbage import rare_collections
from luminal.search.trial import Runnable, Trials, Wrong
from luminal.search.worker_loop import serve

USUAL = "luminal.plan.measure"
"""What the usual jobs need."""

_parsed = lru_cache(maxsize=64)(parse_region)


class Desk:
    """The jobs: each method is one, by its name.  Regions and schedules come as text; `measurer` is unpickled."""

    def __init__(self, notes: int) -> None:
        self._notes, self._noted = notes, 0
        self._trials: Trials | None = None
        self._kernels: dict[int, tuple[Region, str, bool, Runnable]] = {}

    def build(self, measurer: Any, region: str, schedule: str, cost: int) -> Any:
        """What `measurer` builds of a region under a schedule."""
        return measurer.build(_parsed(region), parse_schedule(schedule), cost)

    def open(
        self, measurer: Any, region: str, dims: Mapping[str, int], threads: int, verify: str, known: bool
    ) -> bool:
        """Make the data of a region, for the jobs that follow; whether it can be run on data that is made up, which may
        be known."""
        self._kernels.clear()
        self._trials = Trials(_parsed(region), dims, threads, measurer.place, self._note, verify)
        return known or self._trials.is_valid

    def compare(
        self,
        measurer: Any,
        region: str,
        dims: Mapping[str, int],
        threads: int,
        verify: str,
        kernels: Sequence[tuple[str, str, bool, Any]],
    ) -> list[bool] | None:
        """Which kernels of a region, given as `load` is, agree with the reference; None for a region that cannot be run
        on data that is made up."""
        trials = Trials(_parsed(region), dims, threads, measurer.place, self._note, verify)
        if not trials.is_valid:
            return None
        found: list[bool] = []
        for number, (text, spelled, is_fold, built) in enumerate(kernels):
            form, schedule = _parsed(text), parse_schedule(spelled)
            kernel = measurer.load(form, schedule, built)
            found.append(trials.check(number, form, schedule, is_fold, kernel) is None)
        return found

    def load(self, measurer: Any, number: int, form: str, schedule: str, is_fold: bool, built: Any) -> None:
        """Load a kernel under a number."""
        region = _parsed(form)
        kernel = measurer.load(region, parse_schedule(schedule), built)
        self._kernels[number] = (region, schedule, is_fold, kernel)

    def check(self, number: int) -> Wrong | None:
        """Where a kernel differs from the reference."""
        assert self._trials is not None
        region, schedule, is_fold, kernel = self._kernels[number]
        return self._trials.check(number, region, parse_schedule(schedule), is_fold, kernel)

    def time(self, seed: int, numbers: list[int], seconds: float) -> list[tuple[float, ...]]:
        """The seconds of each run of some kernels, on fresh data where `seed` is not 0."""
        assert self._trials is not None
        if seed:
            self._trials.renew(seed)
        return self._trials.time({number: self._kernels[number][3] for number in numbers}, seconds)

    def _note(self, number: int) -> None:
        self._noted += 1
        os.pwrite(
            self._notes, number.to_bytes(8, "little", signed=True) + self._noted.to_bytes(8, "little"), 0
        )


def main(parent: int, jobs: int, notes: int) -> None:
    """Serve, with what the usual jobs need imported before the first one comes."""

    def make() -> Desk:
        importlib.import_module(USUAL)
        return Desk(notes)

    with rare_collections():
        serve(parent, jobs, make)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
