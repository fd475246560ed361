"""Timing candidates of a region: each is compiled, compared with the reference, and timed in turn with the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.search.generate import Candidate
from luminal.search.soundness import Reporter
from luminal.search.timing import is_faster
from luminal.search.trial import Runnable, Trials

Array = NDArray[Any]
Trial = tuple[Candidate, Region]
"""A candidate, and the form of the region that it is for."""
WORTHWHILE = 0.98
"""What part of the incumbent's time a challenger takes at most: less is not worth what chance may have made of it."""
CALL_NOISE = 1.5e-6
"""Seconds by which calls of one kernel differ from process to process: of the smallest, the model knows more."""
TOO_FAST = 4.0
"""How many times faster than all others, or than the model expects with all threads at their peak, is suspicious."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a region may cost: candidates timed, seconds in all, seconds of timing for each candidate, and the least
    number of candidates, whatever they take."""

    candidates: int = 2
    seconds: float = 0.3
    timing: float = 0.015
    least: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate: the median of its seconds, None where it was the only one and was not timed, or has
    failed; why it has failed ("crashed", "hung"), or ""; and the seconds of each run, in order."""

    candidate: Candidate
    seconds: float | None
    reason: str = ""
    times: tuple[float, ...] = ()

    @staticmethod
    def of(candidate: Candidate, times: Sequence[float]) -> Outcome:
        return Outcome(candidate, statistics.median(times), "", tuple(times))


def winner(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first that has not failed, or the fastest of those that are faster than it for certain and worth it; None
    where all have failed."""
    incumbent = next((outcome for outcome in outcomes if not outcome.reason), None)
    if incumbent is None or incumbent.seconds is None:
        return incumbent
    timed = [(outcome.seconds, outcome) for outcome in outcomes if outcome.seconds is not None]
    for seconds, outcome in sorted(timed, key=lambda pair: pair[0]):
        if seconds > WORTHWHILE * incumbent.seconds - CALL_NOISE:
            return incumbent
        if not (outcome.times and incumbent.times) or is_faster(outcome.times, incumbent.times):
            return outcome
    return incumbent


class Measurer(Protocol):
    """What the search needs of a backend."""

    def compile(self, region: Region, schedule: Schedule, cost: int) -> Runnable:
        """Machine code of a region under a schedule; ScheduleError where the schedule is not legal."""
        ...

    def place(self, array: Array) -> Array:
        """A copy in memory like that of an executable's arena, so that what is timed is what will run."""
        ...


class Profiler(Protocol):
    """Times candidates; where it does so is its own affair."""

    def prepare(self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int) -> None:
        """These will be profiled soon, as `profile` has them: they may be built and compared with the reference beside
        what the caller does meanwhile.  They need not be legal."""
        ...

    def has_built(self, trial: Trial) -> bool:
        """Whether a candidate has been built ahead, and so is legal."""
        ...

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        """What became of the first trials, as many as the budget allows, in their order; the first one is the
        incumbent, which `winner` gives up only for what is faster for certain.

        `dims`: sizes of the region's symbols.  None where the region cannot be run on data that is made up.  Raises
        SoundnessError for a candidate that disagrees with the reference.
        """
        ...


class LocalProfiler:
    """Compiles and times in this process: a candidate that crashes takes it along.  `verify` as `Trials` has it."""

    def __init__(self, measurer: Measurer, reporter: Reporter | None = None, verify: str = "full") -> None:
        self.measurer, self.reporter, self.verify = measurer, reporter or Reporter(), verify

    def prepare(self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int) -> None:
        """Nothing: there is nobody to build them meanwhile."""

    def has_built(self, trial: Trial) -> bool:
        del trial
        return False

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        started = time.perf_counter()
        session = Trials(region, dims, threads, self.measurer.place, verify=self.verify)
        if not session.is_valid:
            return None
        tried: list[Trial] = []
        runs: dict[int, Runnable] = {}

        def check(number: int) -> None:
            candidate, form = tried[number]
            wrong = session.check(number, form, candidate.schedule, bool(candidate.form), runs[number])
            if wrong is not None:
                raise self.reporter.soundness(region, candidate, form, wrong, dims, threads)

        def timed(seed: int) -> list[tuple[float, ...]]:
            if seed:
                session.renew(seed)
            return session.time(runs, budget.timing * len(runs))

        def is_spent() -> bool:
            is_late = len(runs) >= budget.least and time.perf_counter() - started > budget.seconds
            return len(runs) >= budget.candidates or is_late

        given = iter(trials)  # asking for one more than is taken would place it
        while not is_spent() and (trial := next(given, None)) is not None:
            candidate, form = trial
            number = len(runs)
            tried.append((candidate, form))
            runs[number] = self.measurer.compile(form, candidate.schedule, candidate.cost)
            check(number)
        return timed_outcomes([candidate for candidate, _ in tried], timed, check, threads)


def timed_outcomes(
    candidates: Sequence[Candidate],
    timed: Callable[[int], list[tuple[float, ...]]],
    check: Callable[[int], None],
    threads: int,
) -> list[Outcome]:
    """Times candidates that have been checked, if there are several; where a result is suspicious, all are timed again
    on fresh data, with which that one is checked again.

    `timed` takes the seed of the data, 0 for what is there; `check` the position of a candidate.
    """
    if len(candidates) <= 1:
        return [Outcome(candidate, None) for candidate in candidates]
    outcomes = [Outcome.of(candidate, times) for candidate, times in zip(candidates, timed(0), strict=True)]
    doubted = suspicious(outcomes, threads)
    if not doubted:
        return outcomes
    again = timed(1)
    for number in doubted:
        check(number)
    return [Outcome.of(candidate, times) for candidate, times in zip(candidates, again, strict=True)]


def suspicious(outcomes: Sequence[Outcome], threads: int) -> list[int]:
    """The positions of those that are far faster than the model's estimate allows, or than all others."""
    timed = sorted(outcome.seconds for outcome in outcomes if outcome.seconds is not None)
    found: list[int] = []
    for number, outcome in enumerate(outcomes):
        if outcome.seconds is None:
            continue
        estimate = outcome.candidate.estimate
        least = estimate.core_seconds / max(1, min(threads, estimate.grid)) / TOO_FAST
        is_alone = len(timed) > 1 and outcome.seconds == timed[0] and timed[1] > TOO_FAST * timed[0]
        if is_alone or outcome.seconds < least:
            found.append(number)
    return found
