"""Choosing a region's schedule: the roofline orders the candidates, the machine decides among the first few.

Every candidate that is timed has first been compared with the reference; one that disagrees is an error of the compiler
and is raised as such, never skipped.  What is known of the region from elsewhere is timed first, and the first stays
unless another one is faster for certain.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import CompileError, ScheduleError
from luminal.search.candidates import every_candidate, legal_candidates, only_legal
from luminal.search.database import Database, Timing, Winner
from luminal.search.forms import Forms
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.profile import Budget, Outcome, Profiler, Trial, winner
from luminal.search.purse import Purse
from luminal.search.record import Considered, Enumeration, RegionRecord, SearchRecord
from luminal.search.samples import Samples, bucket_of
from luminal.search.seeds import UNPRICED, remembered, seed_trials
from luminal.search.shapes import Shapes

CALL_SECONDS = 8e-6
"""What calling a kernel alone takes beside the kernel: it decides whether threads are woken for it."""
SEEDS = 2
"""How many schedules from elsewhere are timed beside those that the budget allows."""


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
            return choice_of(candidate, None, self.machine)
        raise ScheduleError("the region has no legal schedule")


Wanted = tuple[Region, str, Samples]
"""A region that a schedule is wanted for, its key, and samples of its symbols' sizes."""


@dataclass(frozen=True)
class _Begun:
    """The search of a region under way: what the database remembers, which ends it; else what it has seen, seeds from
    elsewhere, and all candidates, which need not be legal."""

    remembered: Choice | None
    seen: Enumeration
    seeds: Sequence[Trial] = ()
    every: Sequence[Trial] = ()

    def others(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Those that are worth timing beside the seeds: plain loops only where there is nothing else."""
        known = {(seed.form, seed.schedule) for seed, _ in self.seeds}
        for number, trial in enumerate(trials):
            candidate, _ = trial
            if number and candidate.kind == "scalar":
                return
            if (candidate.form, candidate.schedule) not in known:
                yield trial


class TimedChooser:
    """Times the first few candidates on this machine, verified, and remembers the winner.

    `record` takes down what was considered, and what came of it.  Where the purse is empty, a region has
    no more than the least of its budget.
    """

    def __init__(
        self,
        machine: Machine,
        profiler: Profiler,
        database: Database | None = None,
        budget: Budget | None = None,
        forms: Forms | None = None,
        purse: Purse | None = None,
    ) -> None:
        self.machine, self.profiler, self.database = machine, profiler, database
        self.budget, self.forms, self.purse = budget or Budget(), forms or Forms(), purse or Purse()
        self.record = SearchRecord()
        self._begun: dict[tuple[str, str], _Begun] = {}

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """These will be chosen for: the first candidates of each are built while those of the next are enumerated; none
        where a purse limits what may be built."""
        if self.purse.total < math.inf:
            return
        for region, key, samples in wanted:
            if not samples.is_valid:
                continue
            begun = self._begun[key, str(samples)] = self._begin(region, key, samples)
            first = (*begun.seeds, *itertools.islice(begun.others(begun.every), self.budget.candidates))
            dims = Shapes(region, samples.expected).values
            self.profiler.prepare(region, first, dims, self.machine.threads)

    def _begin(self, region: Region, key: str, samples: Samples) -> _Begun:
        seen, known = Enumeration(), self._remembered(region, key, samples)
        if known is not None:
            return _Begun(known, seen)
        seeds = self._seeds(region, key, samples)
        every = every_candidate(region, self.machine, samples, self.forms.of(region, key))
        return _Begun(None, seen, seeds, every)

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The fastest of the timed candidates, or what the database remembers."""
        with self.purse.spending():
            self.budget = replace(self.budget, seconds=min(self.budget.seconds, max(0.0, self.purse.left)))
            return self._searched(region, key, samples)

    def _searched(self, region: Region, key: str, samples: Samples) -> Choice:
        started = time.perf_counter()
        begun = self._begun.pop((key, str(samples)), None)
        if begun is None and samples.is_valid:
            begun = self._begin(region, key, samples)
        seen = self.record.begin(key, None if begun is None else begun.seen)
        choice, outcomes, source = self._choose(region, key, samples, begun)
        spent = time.perf_counter() - started
        considered = self._considered(key, samples, seen, outcomes, source)
        self.record.add(
            RegionRecord(key, region, samples.expected, choice, source, tuple(outcomes), spent, considered)
        )
        return choice

    def _considered(
        self, key: str, samples: Samples, seen: Enumeration, outcomes: list[Outcome], source: str
    ) -> Considered:
        """What was looked at; it is kept beside a winner, and found again with it."""
        considered = Considered.of(seen, outcomes, self.machine)
        if self.database is None or source == "model":
            return considered
        if source == "timed":
            self.database.store_considered(key, bucket_of(samples), self.machine, considered.text())
            return considered
        found = self.database.find_considered(key, bucket_of(samples), self.machine)
        return considered if found is None else Considered.parse(found)

    def _choose(
        self, region: Region, key: str, samples: Samples, begun: _Begun | None
    ) -> tuple[Choice, list[Outcome], str]:
        if begun is None:  # the sizes cannot be run
            return self._modelled(region, key, samples), [], "model"
        if begun.remembered is not None:
            return begun.remembered, [], "database"
        dims, more = Shapes(region, samples.expected).values, len(begun.seeds)
        widened = replace(
            self.budget, candidates=self.budget.candidates + more, least=self.budget.least + more
        )
        legal = only_legal(begun.every, begun.seen, self.profiler.has_built)
        trials = itertools.chain(begun.seeds, begun.others(legal))
        outcomes = self.profiler.profile(region, trials, dims, self.machine.threads, widened)
        if outcomes is None:
            return self._modelled(region, key, samples), [], "model"
        if not outcomes:
            raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")
        choice, seconds = self._best(outcomes)
        if self.database is not None:
            winner = Winner(str(choice.schedule), choice.cost, choice.form, seconds, self.budget.candidates)
            timings = timings_of(region, samples, outcomes, self.machine, self.database.source)
            self.database.store(key, bucket_of(samples), self.machine, winner, timings)
        return choice, outcomes, "timed"

    def _remembered(self, region: Region, key: str, samples: Samples) -> Choice | None:
        """What this machine found with this source, by a search at least as wide as this one."""
        found = remembered(self.database, region, key, samples, self.machine, self.forms)
        if found is None or found[0].candidates < self.budget.candidates:
            return None
        known, candidate = found
        return Choice(candidate.schedule, known.cost, known.form)

    def _seeds(self, region: Region, key: str, samples: Samples) -> list[Trial]:
        """What is known from elsewhere; nothing where a single candidate is taken untimed."""
        if self.database is None or self.budget.candidates == 1:
            return []
        known = self.database.seeds(key, bucket_of(samples), self.machine)
        return list(seed_trials(region, key, known, samples, self.forms, SEEDS))

    def _modelled(self, region: Region, key: str, samples: Samples) -> Choice:
        return ModelChooser(self.machine, self.forms).choose(region, key, samples)

    def _best(self, outcomes: list[Outcome]) -> tuple[Choice, float]:
        best = winner(outcomes)
        if best is None:
            raise CompileError(f"{len(outcomes)} candidates of a region have failed where they were timed")
        candidate = best.candidate
        seconds = candidate.estimate.seconds(self.machine) if best.seconds is None else best.seconds
        return choice_of(candidate, best.seconds, self.machine), seconds


def choice_of(candidate: Candidate, seconds: float | None, machine: Machine) -> Choice:
    """The choice of a candidate that took so long, None where it was not timed."""
    # where the call alone takes about as long, the model knows more
    if seconds is None or seconds < 2 * CALL_SECONDS:
        return Choice(candidate.schedule, candidate.cost, candidate.form)
    grid = max(1, candidate.estimate.grid)
    cost = max(1, int((seconds - CALL_SECONDS) * 1e9 * min(machine.threads, grid) / grid))
    # it decides about threads alone: where the model is near enough, the kernel that was timed is the one that is kept
    is_near = cost <= 2 * candidate.cost and candidate.cost <= 2 * cost
    return Choice(candidate.schedule, candidate.cost if is_near else cost, candidate.form)


def timings_of(
    region: Region, samples: Samples, outcomes: Sequence[Outcome], machine: Machine, source: str
) -> list[Timing]:
    """What was timed; the model has no estimate of one that it did not suggest."""
    found: list[Timing] = []
    for outcome in outcomes:
        candidate, seconds = outcome.candidate, outcome.seconds
        if seconds is None:
            continue
        estimate = None if candidate.kind in UNPRICED else candidate.estimate.seconds(machine)
        schedule = str(candidate.schedule)
        found.append(
            Timing(region_text(region), samples.expected, source, schedule, candidate.form, estimate, seconds)
        )
    return found
