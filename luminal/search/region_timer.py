"""Regions that a long search meets: each is timed in portions, and the best of what was timed so far is known.

Every portion is timed in turn with the best one before, which stays unless another is faster for certain.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.errors import ScheduleError
from luminal.passes.region_former import Formed
from luminal.search.candidates import legal_candidates, refusal
from luminal.search.chooser import SEEDS, Choice, TimedChooser, choice_of, timings_of
from luminal.search.database import Winner
from luminal.search.generate import Candidate
from luminal.search.learned import LearnedModel
from luminal.search.ordering import ordered
from luminal.search.profile import Outcome, winner
from luminal.search.record import Considered, Enumeration, RegionRecord
from luminal.search.samples import Samples, bucket_of
from luminal.search.seeds import UNPRICED, mutants, remembered, seed_trials
from luminal.search.shapes import Shapes

Clock = Callable[[], float]
Name = tuple[str, str]
"""A candidate's form and schedule, as text."""
BEGINNING, PORTION = 2, 4
"""Candidates that are timed at once: at first, at least, beside the model's; and beside the best one before."""
WINDOW = 12
"""All but the first of a portion are drawn from so many that the model puts next, and from mutations of the best."""


@dataclass
class TimedRegion:
    """What is known of one region.

    `first`: the model's own candidate; `best`: of those that were timed, by now or by an earlier search of at most
    `wide` candidates; its `seconds`, None while none is timed, infinite where all have failed;
    `is_timed`: whether it can be run on made-up data at all.
    """

    formed: Formed
    samples: Samples
    forms: dict[str, Region]
    seen: Enumeration
    first: Candidate
    best: Candidate
    wide: int = 0
    seconds: float | None = None
    is_timed: bool = True
    is_spent: bool = False
    searching: float = 0.0
    outcomes: dict[Name, Outcome] = field(default_factory=dict[Name, Outcome])
    known: set[Name] = field(default_factory=set[Name])

    @property
    def is_measured(self) -> bool:
        return self.seconds is not None or not self.is_timed

    @property
    def is_usable(self) -> bool:
        """Whether not all that was timed has failed."""
        return self.seconds is None or math.isfinite(self.seconds)

    @property
    def model_seconds(self) -> float | None:
        """Seconds of the model's own candidate; None where it was not timed."""
        outcome = self.outcomes.get(_name(self.first))
        return None if outcome is None else outcome.seconds


class RegionTimer:
    """Times regions with the parts of a chooser.

    `candidates`: of a region that are timed at most; `seed` of what is drawn; `clock`: seconds, by which deadlines are.
    """

    def __init__(
        self, chooser: TimedChooser, candidates: int, seed: int = 0, clock: Clock = time.perf_counter
    ) -> None:
        self.chooser, self.machine = chooser, chooser.machine
        self.candidates, self.clock = candidates, clock
        self.random = random.Random(seed)
        database = chooser.database
        self.learned = LearnedModel(() if database is None else database.timings(self.machine))
        self._regions: dict[tuple[str, str], TimedRegion] = {}

    @property
    def timed(self) -> int:
        """Candidates that were timed so far."""
        return sum(len(region.outcomes) for region in self._regions.values())

    def correct(self, candidate: Candidate, formed: Formed, samples: Samples) -> float:
        """By what the model's seconds of a candidate are to be multiplied."""
        return self.learned.factor(formed.region, formed.key, samples.expected, candidate)

    def open(self, formed: Formed, samples: Samples) -> TimedRegion:
        """A region at some sizes; its candidates are enumerated the first time."""
        name = (formed.key, str(samples))
        if name not in self._regions:
            self._regions[name] = self._opened(formed, samples)
        return self._regions[name]

    def _opened(self, formed: Formed, samples: Samples) -> TimedRegion:
        region, seen = formed.region, Enumeration()
        forms = self.chooser.forms.of(region, formed.key)
        found = next(legal_candidates(region, self.machine, samples, forms, seen=seen), None)
        if found is None:
            raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")
        first = found[0]
        named = {"": region, **{form.name: form.region for form in forms}}
        opened = TimedRegion(formed, samples, named, seen, first, first, is_timed=samples.is_valid)
        opened.known.add(_name(first))
        known = remembered(
            self.chooser.database, region, formed.key, samples, self.machine, self.chooser.forms
        )
        if known is not None:
            opened.best, opened.wide = known[1], known[0].candidates
        return opened

    # ---- timing

    def begin(self, region: TimedRegion, deadline: float) -> None:
        """Time the first ones: the model's, what is known from elsewhere, and the best of each family of forms."""
        if not region.is_measured and self.clock() < deadline:
            self._profile(region, [region.first, *self._beginning(region)], deadline)

    def widen(self, region: TimedRegion, deadline: float) -> None:
        """Time a portion more, beside the best so far."""
        portion = self._portion(region)
        if portion and region.is_timed:
            self._profile(region, [region.best, *portion], deadline)
        is_full = len(region.outcomes) >= self.candidates
        region.is_spent |= not portion or not region.is_timed or is_full

    def confirm(self, region: TimedRegion, deadline: float) -> None:
        """Time the model's first and the best one again, which stays if it is faster for certain."""
        if region.is_timed and self.clock() < deadline:
            self._profile(region, [region.first, region.best], deadline)

    def repeat(self, region: TimedRegion, deadline: float) -> bool:
        """Time the best one again; whether that was possible, and there was time for it."""
        if not region.is_timed or self.clock() >= deadline:
            return False
        self._profile(region, [region.best], deadline)
        return region.is_timed and region.is_usable

    def _profile(self, region: TimedRegion, candidates: list[Candidate], deadline: float) -> None:
        """Time some, of which the first one is the incumbent."""
        started = self.clock()
        trials = [(candidate, region.forms[candidate.form]) for candidate in candidates]
        trials += trials if len(trials) == 1 else []  # a single one would not be timed
        budget = replace(
            self.chooser.budget, candidates=len(trials), seconds=max(0.0, deadline - started), least=2
        )
        formed, samples = region.formed, region.samples
        dims = Shapes(formed.region, samples.expected).values
        outcomes = self.chooser.profiler.profile(formed.region, trials, dims, self.machine.threads, budget)
        region.searching += self.clock() - started
        if outcomes is None:
            region.is_timed = False
            return
        region.outcomes.update((_name(outcome.candidate), outcome) for outcome in outcomes)
        best = winner(outcomes)
        if best is None:
            region.seconds = math.inf
            return
        region.best, region.seconds = best.candidate, best.seconds
        self._keep(region, outcomes)

    def _keep(self, region: TimedRegion, outcomes: list[Outcome]) -> None:
        """Learn from outcomes, and store them."""
        formed, samples, database = region.formed, region.samples, self.chooser.database
        for outcome in outcomes:
            if outcome.seconds is not None and outcome.candidate.kind not in UNPRICED:
                estimate = outcome.candidate.estimate.seconds(self.machine)
                self.learned.add(
                    formed.region, formed.key, samples.expected, outcome.candidate, estimate, outcome.seconds
                )
        if database is not None:
            timings = timings_of(formed.region, samples, outcomes, self.machine, database.source)
            database.store(formed.key, bucket_of(samples), self.machine, self._winner(region), timings)

    def _winner(self, region: TimedRegion) -> Winner:
        choice = self.choice(region)
        width = max(1, region.wide, len(region.outcomes))
        return Winner(str(choice.schedule), choice.cost, choice.form, region.seconds or 0.0, width)

    # ---- what is timed

    def _beginning(self, region: TimedRegion) -> list[Candidate]:
        """What is timed first beside the model's candidate; no more than may be."""
        found = list(self._seeds(region))
        families = {_family(region.first)}
        order = self._order(region)
        for candidate in order:
            if _family(candidate) not in families and self._is_new(region, candidate):
                families.add(_family(candidate))
                found.append(candidate)
        drawn = self._drawn(order)
        found += self._new(region, drawn, BEGINNING - len(found))
        return found[: self.candidates - 1]

    def _portion(self, region: TimedRegion) -> list[Candidate]:
        order = self._order(region)
        best = region.best
        drawn = self._drawn(order, mutants(best, region.forms[best.form], region.samples, self.machine))
        return self._new(region, drawn, min(PORTION, self.candidates - len(region.outcomes)))

    def _drawn(self, order: list[Candidate], near: Iterable[Candidate] = ()) -> Iterator[Candidate]:
        """The first in order, then those of a window in an order that is drawn, then the others."""
        window = [*order[1:WINDOW], *near]
        self.random.shuffle(window)
        yield from (*order[:1], *window, *order[WINDOW:])

    def _order(self, region: TimedRegion) -> list[Candidate]:
        """What was not tried yet, in the order of the corrected model; plain loops only where there is nothing else."""
        formed, samples = region.formed, region.samples
        left = [c for c in region.seen.candidates if c.kind != "scalar" and _name(c) not in region.known]
        if not left:
            return []
        return ordered(left, self.machine, lambda c: self.correct(c, formed, samples))

    def _seeds(self, region: TimedRegion) -> Iterator[Candidate]:
        database, formed = self.chooser.database, region.formed
        if database is None:
            return
        known = database.seeds(formed.key, bucket_of(region.samples), self.machine)
        trials = seed_trials(formed.region, formed.key, known, region.samples, self.chooser.forms, SEEDS)
        for candidate, _ in trials:
            if _name(candidate) not in region.known:
                region.known.add(_name(candidate))
                yield candidate

    def _new(self, region: TimedRegion, drawn: Iterable[Candidate], most: int) -> list[Candidate]:
        found: list[Candidate] = []
        for candidate in drawn:
            if len(found) >= most:
                break
            if self._is_new(region, candidate):
                found.append(candidate)
        return found

    def _is_new(self, region: TimedRegion, candidate: Candidate) -> bool:
        """Whether a candidate is legal and was not asked for before; it is known from then on."""
        if _name(candidate) in region.known:
            return False
        region.known.add(_name(candidate))
        reason = refusal(region.forms[candidate.form], candidate)
        if reason is not None:
            region.seen.refused.append((candidate, reason))
        return reason is None

    # ---- what came of it

    def choice(self, region: TimedRegion) -> Choice:
        """The best so far; the model's own where nothing was timed."""
        return choice_of(region.best, region.seconds, self.machine)

    def record(self, region: TimedRegion) -> RegionRecord:
        """What the search of a region considered and chose; it is stored beside the winner."""
        formed, samples, database = region.formed, region.samples, self.chooser.database
        outcomes = tuple(region.outcomes.values())
        considered = Considered.of(region.seen, outcomes, self.machine)
        if database is not None:
            bucket = bucket_of(samples)
            database.store(formed.key, bucket, self.machine, self._winner(region))
            database.store_considered(formed.key, bucket, self.machine, considered.text())
        source = "timed" if outcomes else "model"
        choice = self.choice(region)
        return RegionRecord(
            formed.key,
            formed.region,
            samples.expected,
            choice,
            source,
            outcomes,
            region.searching,
            considered,
        )


def _name(candidate: Candidate) -> Name:
    return candidate.form, str(candidate.schedule)


def _family(candidate: Candidate) -> str:
    """The family of a candidate's form: the first word of its name."""
    return candidate.form.partition(" ")[0]
