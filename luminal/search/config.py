"""A config: what a search found, as text that gives the same cuts and schedules again without searching.

    {"luminal": 1, "graphs": {DIGEST: CUTS}, "regions": {KEY: {"form": "", "schedule": "out0: ...", "cost": 120}}}

Cuts are numbers of values, so they hold for one graph alone, which its digest names.  A region's key is its text, so
its schedule holds wherever the region occurs.  What a config does not know is searched as ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from luminal.dialects.graph_op import GraphOp
from luminal.errors import ConfigError, OptionError, ScheduleError

if TYPE_CHECKING:
    from luminal.dialects.kernel.terms import Region
    from luminal.passes.cuts import Cuts, Partition
    from luminal.search.chooser import Choice
    from luminal.search.forms import Forms

VERSION = 1


class UnknownGraphWarning(UserWarning):
    """A config has cuts, but none for the graph that is compiled, which is cut by a search therefore."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The form of a region, its schedule as text, and the nanoseconds of one iteration of its parallel loops."""

    form: str
    schedule: str
    cost: int


@dataclass(frozen=True)
class SearchConfig:
    """Cuts by the digest of their graph, and what was chosen for regions by their key."""

    graphs: Mapping[str, str] = field(default_factory=dict[str, str])
    regions: Mapping[str, Chosen] = field(default_factory=dict[str, Chosen])

    def text(self) -> str:
        """JSON, a line for each graph and region, which `parse` reads back."""
        content = {
            "luminal": VERSION,
            "graphs": dict(self.graphs),
            "regions": {key: asdict(chosen) for key, chosen in self.regions.items()},
        }
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @staticmethod
    def parse(text: str) -> SearchConfig:
        """ConfigError for a text that is no config."""
        try:
            content: Any = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the config is no JSON: {error}") from None
        if not isinstance(content, dict) or cast("dict[str, Any]", content).get("luminal") != VERSION:
            raise ConfigError(f'the config has no "luminal": {VERSION}; it is none, or of another version')
        graphs, regions = (_mapping(content, name) for name in ("graphs", "regions"))
        for digest, cuts in graphs.items():
            if not isinstance(cuts, str):
                raise ConfigError(f"the config's cuts of graph {digest} must be text, not {cuts!r}")
        return SearchConfig(graphs, {key: _chosen(key, entry) for key, entry in regions.items()})

    @staticmethod
    def merged(configs: Iterable[SearchConfig]) -> SearchConfig:
        """All that some configs know; of two that know the same, the later one."""
        graphs, regions = dict[str, str](), dict[str, Chosen]()
        for config in configs:
            graphs |= config.graphs
            regions |= config.regions
        return SearchConfig(graphs, regions)

    def cuts(self, graph: str, partition: Partition) -> Cuts | None:
        """The cuts of a graph, None where only others have some, which is warned of.  ConfigError for what are none."""
        from luminal.passes.cuts import parse_cuts

        if graph not in self.graphs:
            if self.graphs:
                known = ", ".join(self.graphs)
                warnings.warn(
                    f"the config has cuts for the graphs {known}, none for {graph}",
                    UnknownGraphWarning,
                    stacklevel=2,
                )
            return None
        try:
            cuts = parse_cuts(self.graphs[graph])
        except ValueError as error:
            raise ConfigError(f"the config's cuts of graph {graph}: {error}") from None
        count = len(partition.graph.values)
        for number in (*cuts.kept, *cuts.merged, *(number for group in cuts.joined for number in group)):
            if number >= count:
                raise ConfigError(
                    f"the config's cuts of graph {graph}: {number} is none of its {count} values"
                )
        return cuts

    def choice(self, region: Region, key: str, forms: Forms) -> Choice | None:
        """What the config says of a region, None for nothing; ConfigError where it is not legal for it."""
        from luminal.dialects.kernel.schedule import parse_schedule
        from luminal.passes.packed_loads import packed_loads
        from luminal.passes.place import place
        from luminal.search.chooser import Choice

        chosen = self.regions.get(key)
        if chosen is None:
            return None
        form = forms.find(region, key, chosen.form)
        if form is None:
            raise ConfigError(
                f"the config gives region {key} the form {chosen.form!r}, which it does not have"
            )
        try:
            schedule = parse_schedule(chosen.schedule)
            place(form, schedule, "probe")
            packed_loads(form, schedule)
        except ScheduleError as error:
            raise ConfigError(
                f"the config gives region {key} a schedule that is not legal for it: {chosen.schedule!r}: {error}"
            ) from None
        return Choice(schedule, chosen.cost, chosen.form)


def _mapping(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise ConfigError(f"the config's {name} must be an object, not {found!r}")
    return cast("dict[str, Any]", found)


def _chosen(key: str, entry: Any) -> Chosen:
    kinds = {"form": str, "schedule": str, "cost": int}
    given = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if given.keys() != kinds.keys() or not all(isinstance(given[n], kind) for n, kind in kinds.items()):
        raise ConfigError(f"the config gives region {key} {entry!r}; expected a form, a schedule and a cost")
    return Chosen(**given)


def config_text(given: str | os.PathLike[str]) -> str:
    """The text of a config that is given as such or as the path of a file; "" for "".

    OptionError for a file that cannot be read, ConfigError for one that is no config.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise OptionError(f"config must be a text or a path, not {given!r}")
    text = os.fspath(given)
    if text and not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"config {text}: {getattr(error, 'strerror', None) or error}") from None
    if text:
        SearchConfig.parse(text)
    return text


def graph_digest(graph: GraphOp) -> str:
    """What a primitive graph is known by in a config: a hash of its text without the user's source lines."""
    copy = graph.clone()
    for op in copy.walk():
        op.properties.pop("source", None)
    return hashlib.sha256(str(copy).encode()).hexdigest()[:24]
