"""The choosers that the compiler uses: a timed search for this machine, and plain loops for the interpreters."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from luminal.dialects.kernel.terms import Region
from luminal.emit_cpu.cache import cache_directory
from luminal.options import CompileOptions, profiles_in_workers, thread_count
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import plain_candidate
from luminal.search.chooser import Choice, TimedChooser, Wanted
from luminal.search.database import FILE_NAME, Database
from luminal.search.forms import Forms
from luminal.search.long_search import LongSearch
from luminal.search.machine import Machine
from luminal.search.profile import Budget, LocalProfiler, Profiler
from luminal.search.purse import Purse
from luminal.search.samples import Samples
from luminal.search.soundness import Reporter
from luminal.search.worker_profiler import PATIENCE, WorkerProfiler
from luminal.search.workers import WorkersUnavailableError, process_crew

BUDGETS: Mapping[str, Budget] = {
    "default": Budget(),
    "max-autotune": Budget(candidates=24, seconds=8.0, timing=0.05),
}
LONG_CANDIDATES = 96
"""Of a region that a long search times at most, where no option says how many."""
ALONE = 0.05
"""What part of that a region may take which no cut decides, and which is searched afterwards."""


class PlainChooser:
    """Every index a loop: legal for every region."""

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Nothing: a choice costs nothing."""

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        del key
        return Choice(plain_candidate(region, Machine(lanes=1, registers=16), samples.expected).schedule, 1)


@lru_cache(maxsize=4)
def _database(path: Path, process: int) -> Database:
    """One connection for each file and process: a forked child must not use its parent's."""
    del process
    return Database(path)


def start_workers() -> None:
    """Start the processes that time kernels, if there will be any: they are ready when the first region is."""
    if profiles_in_workers():
        with contextlib.suppress(WorkersUnavailableError):  # the profiler says so
            process_crew().start()


def timed_chooser(
    compiler: KernelCompiler, options: CompileOptions, forms: Forms | None = None, purse: Purse | None = None
) -> TimedChooser:
    """A short timed search, or a long one, out of a purse; what it finds is kept for the next process."""
    database = _database(cache_directory() / FILE_NAME, os.getpid()) if options.cache else None
    budget = BUDGETS[options.mode]
    if options.candidates:
        budget = replace(budget, candidates=options.candidates)
    reporter = Reporter.of(cache_directory() / "reports", compiler.licences)
    measurer = HostMeasurer(compiler)
    profiler: Profiler = LocalProfiler(measurer, reporter, options.verify)
    if profiles_in_workers():
        patience = options.timeout or PATIENCE
        profiler = WorkerProfiler(measurer, process_crew(), reporter, patience, options.verify)
    return TimedChooser(host_machine(thread_count()), profiler, database, budget, forms, purse)


def long_search(timed: TimedChooser, options: CompileOptions) -> LongSearch | None:
    """The search of whole graphs with the parts of a chooser, whose own regions then have less time; None where the
    options ask for none, or for a single candidate, untimed."""
    if timed.purse.total == math.inf or timed.budget.candidates == 1:
        return None
    timed.budget = replace(timed.budget, seconds=min(timed.budget.seconds, ALONE * timed.purse.total))
    return LongSearch(timed, options.candidates or LONG_CANDIDATES, options.seed)
