"""Choosing a region's schedule: the roofline orders the candidates, the machine decides among the first few.

Every candidate that is timed has first been compared with the reference; one that disagrees is an error of the compiler
and is raised as such, never skipped.  The first candidate stays unless another one is faster for certain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import CompileError, ScheduleError
from luminal.search.candidates import legal_candidates
from luminal.search.database import Database, Winner
from luminal.search.forms import Forms
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.profile import Budget, Outcome, Profiler, Trial, winner
from luminal.search.record import RegionRecord, SearchRecord
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule, the nanoseconds that one iteration of its parallel loops is expected to take, and the form of the
    region that it is for, "" for the region's own."""

    schedule: Schedule
    cost: int
    form: str = ""

    def __str__(self) -> str:
        return f"[{self.form}] {self.schedule}" if self.form else str(self.schedule)


class ModelChooser:
    """The roofline alone decides: for targets that this machine does not have."""

    def __init__(self, machine: Machine, forms: Forms | None = None) -> None:
        self.machine, self.forms = machine, forms or Forms()

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The first legal candidate in the roofline's order."""
        for candidate, _ in legal_candidates(region, self.machine, samples, self.forms.of(region, key)):
            return Choice(candidate.schedule, candidate.cost, candidate.form)
        raise ScheduleError("the region has no legal schedule")


class TimedChooser:
    """Times the first few candidates on this machine, verified, and remembers the winner.

    `record` takes down what was considered, and what came of it.
    """

    def __init__(
        self,
        machine: Machine,
        profiler: Profiler,
        database: Database | None = None,
        budget: Budget | None = None,
        forms: Forms | None = None,
    ) -> None:
        self.machine, self.profiler, self.database = machine, profiler, database
        self.budget, self.forms = budget or Budget(), forms or Forms()
        self.record = SearchRecord()

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The fastest of the timed candidates, or what the database remembers."""
        begun = time.perf_counter()
        choice, outcomes, source = self._choose(region, key, samples)
        spent = time.perf_counter() - begun
        self.record.add(RegionRecord(key, region, samples.expected, choice, source, tuple(outcomes), spent))
        return choice

    def _choose(self, region: Region, key: str, samples: Samples) -> tuple[Choice, list[Outcome], str]:
        if not samples.is_valid:
            return self._modelled(region, key, samples), [], "model"
        bucket = _bucket_of(samples)
        known = None if self.database is None else self.database.find(key, bucket, self.machine)
        if known is not None and self.forms.find(region, key, known.form) is not None:
            return Choice(parse_schedule(known.schedule), known.cost, known.form), [], "database"
        dims = Shapes(region, samples.expected).values
        trials = self._trials(region, key, samples)
        outcomes = self.profiler.profile(region, trials, dims, self.machine.threads, self.budget)
        if outcomes is None:
            return self._modelled(region, key, samples), [], "model"
        if not outcomes:
            raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")
        choice, seconds = self._best(outcomes)
        if self.database is not None:
            winner = Winner(str(choice.schedule), choice.cost, choice.form)
            self.database.store(key, bucket, self.machine, winner, seconds)
        return choice, outcomes, "timed"

    def _modelled(self, region: Region, key: str, samples: Samples) -> Choice:
        return ModelChooser(self.machine, self.forms).choose(region, key, samples)

    def _trials(self, region: Region, key: str, samples: Samples) -> Iterator[Trial]:
        """What is worth timing: plain loops only where there is nothing else."""
        forms = self.forms.of(region, key)
        for number, trial in enumerate(legal_candidates(region, self.machine, samples, forms)):
            if number and trial[0].kind == "scalar":
                return
            yield trial

    def _best(self, outcomes: list[Outcome]) -> tuple[Choice, float]:
        best = winner(outcomes)
        if best is None:
            raise CompileError(f"{len(outcomes)} candidates of a region have failed where they were timed")
        candidate = best.candidate
        if best.seconds is None:
            return _choice(candidate), candidate.estimate.seconds(self.machine)
        grid = max(1, candidate.estimate.grid)
        cost = int(best.seconds * 1e9 * min(self.machine.threads, grid) / grid)
        return Choice(candidate.schedule, max(1, cost), candidate.form), best.seconds


def _choice(candidate: Candidate) -> Choice:
    return Choice(candidate.schedule, candidate.cost, candidate.form)


def _bucket_of(samples: Samples) -> str:
    """The sizes that a result is for: those of one power of two share it."""
    named = [sorted(sizes.items()) for sizes in samples.all]
    return " ".join(
        ",".join(f"{name}={max(0, size).bit_length()}" for name, size in sizes) for sizes in named
    )
