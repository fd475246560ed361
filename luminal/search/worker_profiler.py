"""Profiling in worker processes: candidates are compiled by all of them at once, and compared and timed by one.

A candidate that crashes or hangs costs one worker; it is reported, and the others go on.  While kernels are timed,
nothing else runs: this process waits, and so do the other workers.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import ProfilingWarning
from luminal.search.preparation import JOB_SECONDS, SLOWER, BuildKey, Job, Preparation, place_of
from luminal.search.profile import (
    Budget,
    LocalProfiler,
    Measurer,
    Outcome,
    Trial,
    timed_outcomes,
)
from luminal.search.soundness import Reporter
from luminal.search.trial import Runnable, Wrong
from luminal.search.workers import Crew, Worker, WorkerDiedError, WorkersUnavailableError

PATIENCE = 2.0
"""Seconds that one run may take beside what is expected of it."""
MOST_FAILURES = 4
"""Candidates of a region that may fail before no more are tried in their place."""


class PortableMeasurer(Measurer, Protocol):
    """A measurer that can be pickled, and whose kernels one process builds and another one runs."""

    def build(self, region: Region, schedule: Schedule, cost: int) -> Any:
        """What can be pickled of a region under a schedule; ScheduleError where the schedule is not legal."""
        ...

    def load(self, region: Region, schedule: Schedule, built: Any) -> Runnable:
        """What was built, ready to run."""
        ...

    def adopt(self, built: Any) -> None:
        """Keep what another process has built, as if it were built here."""
        ...


class WorkerProfiler:
    """Times candidates in the workers of a crew; in this process, with a warning, where none can be started.

    `patience`: seconds that a run may take beside what is expected of it, before its process is killed;
    `verify` as `Trials` has it.
    """

    def __init__(
        self,
        measurer: PortableMeasurer,
        crew: Crew,
        reporter: Reporter | None = None,
        patience: float = PATIENCE,
        verify: str = "full",
    ) -> None:
        self.measurer, self.crew, self.patience = measurer, crew, patience
        self.reporter, self.verify = reporter or Reporter(), verify
        self._local: LocalProfiler | None = None
        self.preparation = Preparation(crew, measurer, patience, verify)

    def prepare(self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int) -> None:
        with self.crew.lock, contextlib.suppress(WorkersUnavailableError):  # the session says so
            if self._local is None:
                self.preparation.add(region, trials, dims, threads)
                self.preparation.advance(0.0)

    def has_built(self, trial: Trial) -> bool:
        return self.preparation.has_built(trial)

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        given = iter(trials)
        if self._local is None:
            session: _Session | None = None
            with self.crew.lock:
                try:
                    self.preparation.finish()
                    self.crew.settle()  # what is left was asked for by a compilation that has not come to take it
                    session = _Session(self, region, given, dims, threads, budget)
                    return session.run()
                except WorkersUnavailableError as error:
                    told = f"{error}; kernels are timed in this process"
                    warnings.warn(ProfilingWarning(told), stacklevel=2)
                    self._local = LocalProfiler(self.measurer, self.reporter, self.verify)
                    tried = [entry.trial for entry in session.entries] if session is not None else []
                    given = itertools.chain(tried, given)
                finally:
                    self.crew.settle()
        return self._local.profile(region, given, dims, threads, budget)


@dataclass
class _Entry:
    """A candidate on its way: what was built of it, whether it agrees with the reference, why it has failed."""

    trial: Trial
    built: Any = None
    is_checked: bool = False
    reason: str = ""


class _FailedError(Exception):
    """A candidate has failed, and been reported, while its worker did a job."""


@dataclass
class _Session:
    """The profile of one region; candidates are numbered as they come."""

    profiler: WorkerProfiler
    region: Region
    trials: Iterator[Trial]
    dims: Mapping[str, int]
    threads: int
    budget: Budget
    entries: list[_Entry] = field(default_factory=list[_Entry])
    loaded: set[int] = field(default_factory=set[int])
    opened: Worker | None = None

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        self.text = region_text(self.region)
        self.preparation = self.profiler.preparation
        place = place_of(self.text, self.dims, self.threads)
        self.compared = self.preparation.compared.pop(place, None)
        self.crew, self.measurer = self.profiler.crew, self.profiler.measurer

    def run(self) -> list[Outcome] | None:
        """What `Profiler.profile` promises."""
        self.crew.first().send(self._opening())
        while self._build():
            self._check()
            if self._sound():
                break
        if self.opened is None:
            return None
        times = self._time()
        for number in self._sound():
            self.measurer.adopt(self.entries[number].built)
        return [
            times.get(number) or Outcome(entry.trial[0], None, entry.reason)
            for number, entry in enumerate(self.entries)
        ]

    def _sound(self) -> list[int]:
        return [number for number, entry in enumerate(self.entries) if not entry.reason]

    # ---- building

    def _build(self) -> bool:
        """Build what the budget allows on all workers, the data of the region beside it; whether anything was built
        that can be run."""
        jobs: dict[Worker, tuple[int, float]] = {w: (-1, time.monotonic()) for w in self.crew.busy()}
        before = len(self.entries)
        while True:
            for worker in self.crew.idle():
                number = self._next_unbuilt()
                if number is None:
                    break
                worker.send(self._job(number)[1])
                jobs[worker] = (number, time.monotonic())
            if not jobs:
                return len(self.entries) > before and self.opened is not None
            finished = self.crew.wait(jobs, 0.2)
            late = [w for w, (_, since) in jobs.items() if time.monotonic() - since > JOB_SECONDS]
            for worker in {*finished, *late}:
                number, _ = jobs.pop(worker)
                try:
                    result = worker.receive(JOB_SECONDS, 0.0 if worker in late else JOB_SECONDS)
                except WorkerDiedError as error:
                    self.crew.replace(worker)
                    if number < 0:
                        return False
                    self._fail(number, error)
                    continue
                if number >= 0:
                    self.entries[number].built = result
                elif result:
                    self.opened = worker
                else:
                    return False

    def _next_unbuilt(self) -> int | None:
        """The number of the next candidate that was not built ahead."""
        number = self._next()
        while number is not None and self.entries[number].built is not None:
            number = self._next()
        return number

    def _next(self) -> int | None:
        """The number of the next candidate; None where there is none, or the budget is spent."""
        sound = len(self._sound())
        is_late = sound >= self.budget.least and time.perf_counter() - self.started > self.budget.seconds
        if sound >= self.budget.candidates or is_late or len(self.entries) - sound >= MOST_FAILURES:
            return None
        trial = next(self.trials, None)
        if trial is None:
            return None
        self.entries.append(_Entry(trial))
        number = len(self.entries) - 1
        key, entry = self._job(number)[0], self.entries[number]
        entry.built = self.preparation.built.pop(key, None)
        entry.is_checked = entry.built is not None and key in (self.compared or ())
        return number

    def _job(self, number: int) -> tuple[BuildKey, Job]:
        candidate, form = self.entries[number].trial
        return self.preparation.build_job(self._text(form), candidate)

    def _text(self, form: Region) -> str:
        return self.text if form is self.region else region_text(form)

    # ---- comparing and timing

    def _opening(self) -> tuple[Any, ...]:
        known = self.compared is not None
        return "open", self.measurer, self.text, dict(self.dims), self.threads, self.profiler.verify, known

    def _check(self) -> None:
        """Compare all that is built with the reference."""
        while waiting := [number for number in self._sound() if not self.entries[number].is_checked]:
            with contextlib.suppress(_FailedError):
                self._compare(waiting[0])

    def _compare(self, number: int) -> None:
        wrong: Wrong | None = self._ask(("check", number), [number])
        candidate, form = self.entries[number].trial
        if wrong is not None:
            reporter = self.profiler.reporter
            raise reporter.soundness(self.region, candidate, form, wrong, self.dims, self.threads)
        self.entries[number].is_checked = True

    def _time(self) -> dict[int, Outcome]:
        """The outcomes of all that is sound; where one fails, the others are timed anew."""
        while numbers := self._sound():
            with contextlib.suppress(_FailedError):
                outcomes = timed_outcomes(
                    [self.entries[number].trial[0] for number in numbers],
                    lambda seed, numbers=numbers: self._ask(
                        ("time", seed, numbers, self.budget.timing * len(numbers)), numbers
                    ),
                    lambda position, numbers=numbers: self._compare(numbers[position]),
                    self.threads,
                )
                return dict(zip(numbers, outcomes, strict=True))
        return {}

    def _ask(self, job: tuple[Any, ...], numbers: list[int]) -> Any:
        """A job for the worker that times, which has all that it needs; _FailedError where it dies of a candidate."""
        timer = self.crew.first()
        if timer is not self.opened:
            self._call(timer, self._opening(), numbers)
            self.opened = timer
            self.loaded.clear()
        for number in numbers:
            if number not in self.loaded:
                entry = self.entries[number]
                candidate, form = entry.trial
                schedule, is_fold = str(candidate.schedule), bool(candidate.form)
                load = ("load", self.measurer, number, self._text(form), schedule, is_fold, entry.built)
                self._call(timer, load, [number])
                self.loaded.add(number)
        return self._call(timer, job, numbers)

    def _call(self, timer: Worker, job: tuple[Any, ...], numbers: list[int]) -> Any:
        expected = max(self.entries[number].trial[0].estimate.core_seconds for number in numbers)
        try:
            return timer.call(job, self.profiler.patience + SLOWER * expected, JOB_SECONDS)
        except WorkerDiedError as error:
            self.crew.replace(timer)
            self._fail(error.running if error.running in numbers else numbers[0], error)
            raise _FailedError from error

    def _fail(self, number: int, error: WorkerDiedError) -> None:
        self.entries[number].reason = error.reason
        candidate, form = self.entries[number].trial
        self.profiler.reporter.failure(
            error.reason, self.region, candidate, form, self.dims, self.threads, error.said
        )
