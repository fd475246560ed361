"""The outer search: a Monte-Carlo tree search over the cuts of one graph and the candidates of its regions.

A state is a way to cut the graph; its seconds are those of its regions, each as the best of its candidates was
measured, and of their launches.  A step descends to a state and measures: either the regions that a move has made, or a
portion more of one region's candidates.  Which one is decided by UCT (Kocsis and Szepesvari, 2006): the mean of what a
choice has gained, and a bonus for what was tried seldom.  A choice cannot gain more than what it changes takes, so its
bonus is scaled by that.  The more often a state is visited, the more choices it has (progressive widening).
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cut_moves import neighbours
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.region_former import Formed
from luminal.search.cut_search import LAUNCH_SECONDS, CutSearch, Priced
from luminal.search.profile import WORTHWHILE
from luminal.search.record import Move
from luminal.search.region_timer import Clock, RegionTimer, TimedRegion
from luminal.search.samples import Samples
from luminal.search.timing import HOPELESS, is_faster

EXPLORE = 0.08
"""Of the bonus, as a part of what a choice changes."""
WIDEN = 2.0
"""A state has so many choices at its first visit, and the square root of its visits times as many later."""
PORTIONS, PORTION_GAIN = 2, 0.1
"""What a portion more is expected to gain of a region, a part of it, and how many portions this weighs as."""
DOUBT = 0.25
"""The deviation of what the model says that cuts gain, as a part of what they change."""
MOVES: Mapping[str, int] = {"merge": 8, "join": 6, "part": 6, "keep": 3, "inline": 3}
"""Kinds of moves, and how many of each are priced at a state: those that could save most."""
LAST = 0.2
"""The part of the budget that is left for timing the best plan against the model's."""
ROUNDS = (3, 6, 12)
"""After so many rounds of the two plans in turn it is asked whether the best one is faster for certain."""


@dataclass(eq=False)
class State:
    """One way to cut the graph.  `counts`: how often each region occurs; `move`: what led here from `parent`."""

    priced: Priced
    formed: dict[str, Formed]
    parent: State | None = None
    move: str = ""
    visits: int = 0
    choices: list[Choice] = field(default_factory=list["Choice"])
    waiting: list[Choice] | None = None

    @property
    def counts(self) -> Counter[str]:
        return self.priced.regions


@dataclass(eq=False)
class Choice:
    """What can be done in a state: go to another one, or time a portion more of a region.

    `share`: the part of the state's seconds that it changes; `gained`: parts of the first seconds, summed over visits,
    and the `most` at one.
    """

    what: str
    share: float
    state: State | None = None
    key: str = ""
    visits: int = 0
    gained: float = 0.0
    most: float = -math.inf
    is_over: bool = False

    def bound(self, visits: int) -> float:
        """The upper bound of confidence of its gain, where its state has so many visits."""
        bonus = EXPLORE * self.share * math.sqrt(math.log(visits + 1) / self.visits)
        return (self.gained / self.visits if self.state is None else self.most) + bonus


class OuterSearch:
    """Searches one graph from `first` cuts, until `seconds` are over or nothing is left to try.

    `verdict` says what came of the best cuts.  `progress` is told states, and the best seconds so far, at the beginning
    and after each step.
    """

    def __init__(
        self,
        partition: Partition,
        samples: Samples,
        first: Cuts,
        timer: RegionTimer,
        seconds: float,
        clock: Clock = time.perf_counter,
        progress: Callable[[int, float], None] = lambda states, seconds: None,
    ) -> None:
        self.partition, self.samples, self.timer, self.clock = partition, samples, timer, clock
        self.progress = progress
        self.prices = CutSearch(partition, timer.machine, samples, timer.chooser.forms)
        self.deadline = clock() + seconds
        self.last = self.deadline - LAST * seconds
        self.prices.weigh(first)
        self.states: dict[frozenset[tuple[str, int]], State] = {}
        self._timed: dict[str, TimedRegion] = {}
        self.portions, self.portion_gain = 0, 0.0
        self.verdict = "the model's cuts are the best that are known"
        root = self._state(self.prices.price(first))
        assert root is not None
        self.root = self.best = root

    def run(self) -> State:
        """The best state: the first one, unless another is faster for certain when both are timed again in turn."""
        self._begin(self.root)
        self.base = self.seconds(self.root)
        if not math.isfinite(self.base):
            return self._confirmed()
        self.progress(len(self.states), self.base)
        while self.clock() < self.last and self._step():
            self.progress(len(self.states), self.seconds(self.best))
        return self._confirmed()

    def seconds(self, state: State) -> float:
        """Those of a call: as measured, where that was done, else by the corrected model."""
        return sum(count * self._seconds(key) for key, count in state.counts.items())

    @property
    def modelled(self) -> float:
        """Seconds of a call under the first cuts with the model's own candidates."""
        total = 0.0
        for key, count in self.root.counts.items():
            seconds = self.region(key, self.root).model_seconds
            total += count * (self.prices.seconds(key) if seconds is None else seconds + LAUNCH_SECONDS)
        return total

    def region(self, key: str, state: State) -> TimedRegion:
        if key not in self._timed:
            formed = state.formed[key]
            self._timed[key] = self.timer.open(formed, self.samples.of(formed.symbols))
        return self._timed[key]

    def moves(self, chosen: State) -> tuple[Move, ...]:
        """The moves that were measured, with the seconds before and after; those on the way to `chosen` were made."""
        made: set[State] = set()
        state: State | None = chosen
        while state is not None:
            made.add(state)
            state = state.parent
        return tuple(
            Move(s.move, self.seconds(s.parent), self.seconds(s), s in made)
            for s in self.states.values()
            if s.parent is not None and s.visits
        )

    # ---- one step

    def _step(self) -> bool:
        """Descend and measure; whether there was anything to do."""
        state, way = self.root, list[tuple[State, Choice]]()
        while True:
            choice = self._pick(state)
            if choice is None:
                if not way:
                    return False
                way[-1][1].is_over = True
                state, way = self.root, []
                continue
            way.append((state, choice))
            if choice.state is None or not choice.visits:
                break
            state = choice.state
        before = [self.seconds(each) for each, _ in way]
        if choice.state is None:
            region = self.region(choice.key, state)
            whole = self._seconds(choice.key)
            self.timer.widen(region, self.last)
            choice.is_over = region.is_spent
            self.portions += 1
            self.portion_gain += 1 - self._seconds(choice.key) / whole
            reached = self.seconds(state)
        else:
            choice.state.visits += 1
            self._begin(choice.state)
            reached = self.seconds(choice.state)
            choice.is_over = reached > HOPELESS * self.base
        for (each, taken), was in zip(way, before, strict=True):
            each.visits += 1
            taken.visits += 1
            gain = max(-1.0, (was - reached) / self.base)
            taken.gained, taken.most = taken.gained + gain, max(taken.most, gain)
        self._settle()
        return True

    def _settle(self) -> None:
        """The best of the states whose regions all were measured."""
        measured = [state for state in self.states.values() if self._is_measured(state)]
        self.best = min((self.root, *measured), key=self.seconds)

    def _is_measured(self, state: State) -> bool:
        return all(key in self._timed and self._timed[key].is_measured for key in state.counts)

    def _pick(self, state: State) -> Choice | None:
        """A new choice where the state may have one more, else the one with the highest bound."""
        if state.waiting is None:
            state.waiting = self._expanded(state)
        tried = [choice for choice in state.choices if not choice.is_over]
        wanted = max(1.0, WIDEN * math.sqrt(state.visits))
        while state.waiting and len(tried) < wanted:
            choice = max(state.waiting, key=lambda choice: self._expected(state, choice))
            state.waiting.remove(choice)
            if choice.state is not None or not self.region(choice.key, state).is_spent:
                state.choices.append(choice)
                return choice
        return max(tried, key=lambda choice: choice.bound(state.visits), default=None)

    def _begin(self, state: State) -> None:
        """Time what of a state was not timed yet, what takes longest first."""
        for key in sorted(state.counts, key=lambda key: -state.counts[key] * self._seconds(key)):
            self.timer.begin(self.region(key, state), self.last)

    # ---- what can be done

    def _expanded(self, state: State) -> list[Choice]:
        """All choices of a state."""
        whole = self.seconds(state)
        found: list[Choice] = []
        for key, count in state.counts.items():
            region = self.region(key, state)
            if region.is_timed and not region.is_spent:
                found.append(Choice(f"time {key}", count * self._seconds(key) / whole, key=key))
        for what, priced in self._moved(state):
            made = self._state(priced, state, what)
            if made is not None:
                gone = state.counts - made.counts
                share = sum(count * self._seconds(key) for key, count in gone.items()) / whole
                found.append(Choice(what, share, made))
        return found

    def _expected(self, state: State, choice: Choice) -> float:
        """What a choice of a state is expected to gain: by what is known now, as a part of the state's seconds.

        A portion gains as much of its region as portions did so far; of cuts the model is doubted.
        """
        if choice.state is None:
            return choice.share * (PORTIONS * PORTION_GAIN + self.portion_gain) / (PORTIONS + self.portions)
        gain = 1 - self.seconds(choice.state) / self.seconds(state)
        return gain + choice.share * self.timer.random.gauss(0.0, DOUBT)

    def _moved(self, state: State) -> Iterator[tuple[str, Priced]]:
        """Cuts that moves lead to, priced by the model; the first cuts of all, from where the search begins."""
        if state is self.root:
            yield "the first cuts", self.prices.price(initial_cuts(self.partition))
        cuts, kinds = state.priced.cuts, dict[str, list[tuple[str, Cuts]]]()
        for what, changed in neighbours(self.partition, cuts):
            kinds.setdefault(what.split()[0], []).append((what, changed))
        for kind, most in MOVES.items():
            found = kinds.get(kind, [])
            self.timer.random.shuffle(found)
            found.sort(key=lambda move: -self.prices.most_gained(cuts, move[1]))
            for what, changed in found[:most]:
                if self.clock() >= self.last:
                    return
                # what a merge makes possible pays together with it, or not at all
                priced = self.prices.chain(state.priced, changed) if kind == "merge" else None
                yield what, priced or self.prices.price(changed)

    def _state(self, priced: Priced, parent: State | None = None, move: str = "") -> State | None:
        """A state; None where the same regions are known, or where it cannot be."""
        if not math.isfinite(priced.seconds):
            return None
        key = frozenset(priced.regions.items())
        if key in self.states:
            return None
        formed: dict[str, Formed] = {}
        for each in self.prices.formed_regions(priced.cuts):
            formed.setdefault(each.key, each)
        made = self.states[key] = State(priced, formed, parent, move)
        return made

    # ---- the end

    def _confirmed(self) -> State:
        """The best state, if it is faster than the first one when both are timed again; its regions too."""
        best, root = self.best, self.root
        gone, new = root.counts - best.counts, best.counts - root.counts
        if new and not self._is_faster(gone, new):
            best, new = root, Counter[str]()
        for key in best.counts:
            region = self.region(key, best)
            if key not in new and region.best is not region.first:
                self.timer.confirm(region, self.deadline)
        return best

    def _is_faster(self, gone: Counter[str], new: Counter[str]) -> bool:
        """Whether new regions are faster than those that they replace, for certain and by what is worthwhile: both are
        timed in turn, in more rounds where that is not decided."""
        old_times, new_times = list[float](), list[float]()
        why = "not faster for certain"
        for rounds in ROUNDS:
            while len(new_times) < rounds and self._another_round(gone, new, old_times, new_times):
                pass
            if new_times and self._is_worthwhile(old_times, new_times):
                return self._said(old_times, new_times, "faster for certain", True)
            if new_times and is_faster(old_times, new_times):
                return self._said(old_times, new_times, "slower for certain", False)
            if len(new_times) < rounds:
                why = "there was no time for more"
                break
        return self._said(old_times, new_times, why, False)

    def _is_worthwhile(self, old_times: list[float], new_times: list[float]) -> bool:
        is_less = statistics.median(new_times) <= WORTHWHILE * statistics.median(old_times)
        return is_less and is_faster(new_times, old_times)

    def _another_round(
        self, gone: Counter[str], new: Counter[str], old_times: list[float], new_times: list[float]
    ) -> bool:
        """Whether there was time to time both plans once more."""
        old_seconds, new_seconds = self._again(gone, self.root), self._again(new, self.best)
        if old_seconds is None or new_seconds is None:
            return False
        old_times.append(old_seconds)
        new_times.append(new_seconds)
        return True

    def _again(self, counts: Counter[str], state: State) -> float | None:
        """Seconds of some regions of a state, timed again; None where there is no time for it."""
        if not all(self.timer.repeat(self.region(key, state), self.deadline) for key in counts):
            return None
        return sum(count * self._seconds(key) for key, count in counts.items())

    def _said(self, old: list[float], new: list[float], why: str, is_kept: bool) -> bool:
        ratio = f", {statistics.median(new) / statistics.median(old):.3f} times as long" if old else ""
        kept = "kept" if is_kept else "given up"
        self.verdict = f"best cuts {kept}: {len(old)} rounds in turn with the model's{ratio}, {why}"
        return is_kept

    # ---- seconds

    def _seconds(self, key: str) -> float:
        timed = self._timed.get(key)
        if timed is not None and timed.seconds is not None:
            return timed.seconds + LAUNCH_SECONDS
        formed, candidate = self.prices.leading[key]
        factor = self.timer.correct(candidate, formed, self.samples.of(formed.symbols))
        return factor * (self.prices.seconds(key) - LAUNCH_SECONDS) + LAUNCH_SECONDS
