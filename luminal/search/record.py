"""What a search considered, timed and chose: for whoever wants to see it, while it runs or afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from luminal.dialects.kernel.terms import Region

if TYPE_CHECKING:
    from luminal.search.chooser import Choice
    from luminal.search.profile import Outcome


@dataclass(frozen=True)
class RegionRecord:
    """The search of one region.

    `sizes`: of its symbols, at which it was timed; `source`: whether its schedule was "timed", comes from the
    "database" or from the "model" alone; `outcomes`: what was timed, seeds first, then in the model's order;
    `seconds`: of searching.
    """

    key: str
    region: Region
    sizes: Mapping[str, int]
    choice: Choice
    source: str
    outcomes: tuple[Outcome, ...]
    seconds: float


@dataclass
class SearchRecord:
    """The search of a graph's regions; `listeners` are told of each region when it is done."""

    regions: dict[str, RegionRecord] = field(default_factory=dict[str, RegionRecord])
    listeners: list[Callable[[RegionRecord], None]] = field(
        default_factory=list[Callable[[RegionRecord], None]]
    )

    def add(self, record: RegionRecord) -> None:
        self.regions[record.key] = record
        for listener in self.listeners:
            listener(record)
