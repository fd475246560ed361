"""What a search considered, timed and chose: for whoever wants to see it, while it runs or afterwards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from luminal.dialects.kernel.terms import Region

if TYPE_CHECKING:
    from luminal.search.chooser import Choice
    from luminal.search.generate import Candidate
    from luminal.search.machine import Machine
    from luminal.search.profile import Outcome


@dataclass
class Enumeration:
    """The candidates of one region, filled while they are asked for.

    `candidates`: all, in the model's order; `refused`: those that the placement pass did not accept, with its reason;
    `tried`: how many legal ones have been asked for.
    """

    candidates: list[Candidate] = field(default_factory=list["Candidate"])
    refused: list[tuple[Candidate, str]] = field(default_factory=list[tuple["Candidate", str]])
    tried: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate that was run: its form, kind, family of register tiles and schedule, all as text; seconds by the
    model, and as measured, None where it was the only one."""

    form: str
    kind: str
    family: str
    schedule: str
    estimate: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Considered:
    """What a search looked at, as plain data.

    `enumerated`: candidates in all; `tried` in the model's order; `refused`: reasons of those that are not legal, and
    how many had each; `next_estimate`: seconds by the model of the best one that was not tried, None without one.
    """

    enumerated: int = 0
    tried: tuple[Tried, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    next_estimate: float | None = None

    @staticmethod
    def of(seen: Enumeration, outcomes: Iterable[Outcome], machine: Machine) -> Considered:
        tried = tuple(
            Tried(
                outcome.candidate.form,
                outcome.candidate.kind,
                " ".join(outcome.candidate.family[1:]),
                str(outcome.candidate.schedule),
                outcome.candidate.estimate.seconds(machine),
                outcome.seconds,
            )
            for outcome in outcomes
        )
        known = {(each.form, each.schedule) for each in tried}
        known |= {(each.form, str(each.schedule)) for each, _ in seen.refused}
        left = (each for each in seen.candidates if (each.form, str(each.schedule)) not in known)
        estimates = [each.estimate.seconds(machine) for each in left if each.kind != "scalar"]
        reasons = Counter(reason for _, reason in seen.refused)
        return Considered(
            len(seen.candidates), tried, tuple(reasons.most_common()), min(estimates, default=None)
        )

    @property
    def untried(self) -> int:
        return self.enumerated - len(self.tried) - sum(count for _, count in self.refused)

    def text(self) -> str:
        """One line that `parse` reads back."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> Considered:
        """What printed as `text`; nothing at all for another text, since this is for show alone."""
        try:
            data = json.loads(text)
            refused = tuple((str(reason), int(count)) for reason, count in data["refused"])
            tried = tuple(Tried(**each) for each in data["tried"])
            return Considered(data["enumerated"], tried, refused, data["next_estimate"])
        except (ValueError, KeyError, TypeError):
            return Considered()


@dataclass(frozen=True)
class RegionRecord:
    """The search of one region.

    `sizes`: of its symbols, at which it was timed; `source`: whether its schedule was "timed", comes from the
    "database", from a "config" or from the "model" alone; `outcomes`: what was timed, seeds first, then in the model's
    order; `seconds`: of searching; `considered`: all that was looked at, by an earlier search where the database knows
    of one.
    """

    key: str
    region: Region
    sizes: Mapping[str, int]
    choice: Choice
    source: str
    outcomes: tuple[Outcome, ...] = ()
    seconds: float = 0.0
    considered: Considered = field(default_factory=Considered)


@dataclass(frozen=True, slots=True)
class Move:
    """A move from cuts to other cuts that was measured: seconds of a call before and after, and whether it was made."""

    what: str
    before: float
    after: float
    is_made: bool


@dataclass(frozen=True, slots=True)
class OuterRecord:
    """The search of one graph's cuts.

    `states`: ways to cut it that were priced; `timed`: candidates; `first` and `best`: seconds of a call as the model
    alone would have it, and as it is now; `spent`: seconds of searching, of `budget`; `curve`: seconds of searching,
    and those of a call by the best plan that was known from then on; `verdict`: what came of the best cuts when they
    were timed against the model's.  Without states, an earlier search found the cuts.
    """

    states: int
    timed: int
    first: float
    best: float
    spent: float
    budget: float
    moves: tuple[Move, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    verdict: str = ""


class Listener(Protocol):
    """Is told how a search goes on."""

    def begins(self, key: str, seen: Enumeration) -> None:
        """A region is searched from now on; `seen` is filled meanwhile."""
        ...

    def ends(self, record: RegionRecord) -> None:
        """A region is done."""
        ...

    def cuts(self, states: int, timed: int, seconds: float, left: float) -> None:
        """So many ways to cut a graph are known, and candidates timed; seconds of the best, and left of the budget."""
        ...


@dataclass
class SearchRecord:
    """The search of a graph's regions, for `listeners` too.

    `graphs`: where the graphs that were cut are cut, as text, by their digests; `outer`: what a long search did there.
    """

    graphs: dict[str, str] = field(default_factory=dict[str, str])
    outer: dict[str, OuterRecord] = field(default_factory=dict[str, OuterRecord])
    regions: dict[str, RegionRecord] = field(default_factory=dict[str, RegionRecord])
    listeners: list[Listener] = field(default_factory=list[Listener])

    def begin(self, key: str, seen: Enumeration | None = None) -> Enumeration:
        """What the search of a region fills from now on, or goes on filling."""
        seen = Enumeration() if seen is None else seen
        for listener in self.listeners:
            listener.begins(key, seen)
        return seen

    def goes_on(self, states: int, timed: int, seconds: float, left: float) -> None:
        """A long search has made a step, as `Listener.cuts` says."""
        for listener in self.listeners:
            listener.cuts(states, timed, seconds, left)

    def add(self, record: RegionRecord) -> None:
        self.regions[record.key] = record
        for listener in self.listeners:
            listener.ends(record)

    def config(self) -> str:
        """A text that gives the same cuts and schedules without a search, as `CompileOptions.config`."""
        from luminal.search.config import Chosen, SearchConfig

        regions = {
            key: Chosen(found.choice.form, str(found.choice.schedule), found.choice.cost)
            for key, found in self.regions.items()
        }
        return SearchConfig(self.graphs, regions).text()
