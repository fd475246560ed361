"""A made-up machine: seconds of candidates are a function of their text, a clock moves by what timing would take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from luminal.dialects.kernel.terms import Region
from luminal.search.generate import Candidate
from luminal.search.profile import Budget, Outcome, Trial

PREPARING, EACH = 0.1, 0.1
"""Seconds that a call of the profiler takes, and each candidate of it."""
Seconds = Callable[[Region, Candidate], float]


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class PlantedProfiler:
    """`seconds` of a candidate; `profiled` has what was timed, a set of schedules for each call."""

    def __init__(self, seconds: Seconds, clock: Clock) -> None:
        self.seconds, self.clock = seconds, clock
        self.profiled: list[tuple[str, ...]] = []

    def has_built(self, trial: Trial) -> bool:
        del trial
        return False

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        del dims, threads
        self.clock.now += PREPARING
        tried: list[Candidate] = []
        begun = self.clock.now
        for candidate, _ in trials:
            if len(tried) >= budget.candidates or (
                len(tried) >= budget.least and self.clock.now - begun > budget.seconds
            ):
                break
            self.clock.now += EACH
            tried.append(candidate)
        self.profiled.append(tuple(f"{each.form}|{each.schedule}" for each in tried))
        return [Outcome(each, self.seconds(region, each)) for each in tried]


def noise(candidate: Candidate) -> float:
    """From 0 to 1, always the same for one candidate."""
    digest = hashlib.sha256(f"{candidate.form}|{candidate.schedule}".encode()).digest()
    return digest[0] / 255
