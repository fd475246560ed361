"""Choosing among equal hlo graphs: each is lowered and priced by the model, and the cheapest is kept.

The rules are tried where they match, at all equal places at once, so that the layers of a model are one decision.  A
graph in which none matches is lowered once, as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.passes.cuts import Partition
from luminal.passes.fold_constants import Fold, fold_constants
from luminal.passes.hlo_graph import merge_equal
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.rank_sorts import rank_sorts
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of
from luminal.search.cut_search import CutSearch
from luminal.search.hlo_rules import HLO_RULES
from luminal.search.hlo_rules.apply import apply_sites
from luminal.search.hlo_rules.rule import HloRule, Site, View
from luminal.search.samples import Samples, sample_sizes

GAIN = 0.05
"""A rewrite is made where the regions that it changes cost that much less, as a part of what they did."""
MOST = {"default": 3, "max-autotune": 12}
"""How many rewrites are priced, by mode: each costs about as much as lowering the graph."""


Pricer = Callable[[Partition, Samples, dict[str, list[float]]], CutSearch]
"""The search of a graph's cuts for some machine, at some sizes; what regions cost, by key, is added to the mapping."""


@dataclass
class Lowered:
    """An hlo graph, `rewrites` applied, and what it is lowered to: primitives, and what was folded out of it."""

    hlo: ModuleOp
    rewrites: tuple[str, ...]
    module: ModuleOp
    folds: tuple[Fold, ...]
    partition: Partition

    @staticmethod
    def of(hlo: ModuleOp, rewrites: tuple[str, ...] = (), ranks: bool = False) -> Lowered:
        """Lower a copy of a module whose graph's attributes describe its border; `ranks`: short rows are sorted by
        kernels, not by a library."""
        module = hlo.clone()
        folds = fold_constants(graph_of(module))
        lower_hlo(module)
        if ranks:
            rank_sorts(graph_of(module))
        simplify(module)
        return Lowered(hlo, rewrites, module, tuple(folds), Partition.of(graph_of(module)))

    @property
    def graph(self) -> GraphOp:
        return graph_of(self.module)


@dataclass
class HloSearch:
    """The search of one graph; `pricer` is that of its machine, `hint` are expected sizes of its symbols, `ranks` as
    for `Lowered.of`.

    `verdicts` say, for each rewrite that was priced, what became of it; `estimates` are what regions cost, by key.
    """

    hlo: ModuleOp
    pricer: Pricer
    hint: Mapping[str, int]
    mode: str = "default"
    ranks: bool = False
    rules: tuple[HloRule, ...] = field(default_factory=lambda: HLO_RULES)
    verdicts: dict[str, str] = field(default_factory=dict[str, str])
    estimates: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def run(self) -> Lowered:
        """The cheapest graph by the model, lowered."""
        merge_equal(graph_of(self.hlo))
        found = _places(self.hlo, self.rules)
        best = Lowered.of(self.hlo, ranks=self.ranks)
        if not found:
            return best
        pricing = _Pricing(best, self.pricer, self.hint, self.estimates)
        tried: set[object] = set()
        while found and len(tried) < MOST[self.mode]:
            key, (rule, sites) = next(iter(found.items()))
            tried.add(key)
            changed = _rewritten(best, rule, sites, self.ranks)
            saved = pricing.saved(best, changed)
            self.verdicts[changed.rewrites[-1]] = f"{saved:+.0%} by the model"
            if saved > GAIN:
                best = changed
                found = _places(best.hlo, self.rules)
            found = {k: v for k, v in found.items() if k not in tried}
        return best


Places = dict[object, tuple[HloRule, list[Site]]]


def _places(hlo: ModuleOp, rules: tuple[HloRule, ...]) -> Places:
    """Where each rule matches: equal places together, in the order of the rules and of the graph."""
    view = View(graph_of(hlo))
    found: Places = {}
    for rule in rules:
        for site in rule.sites(view):
            found.setdefault((rule.name, site.key(view)), (rule, []))[1].append(site)
    return found


def _rewritten(before: Lowered, rule: HloRule, sites: Sequence[Site], ranks: bool) -> Lowered:
    """The graph with a rule applied at these places of it, lowered."""
    values: dict[SSAValue, SSAValue] = {}
    hlo = before.hlo.clone(values)
    types = dict.fromkeys(str(value.type) for value in sites[0].replaced)
    made = f"{rule.name}: {len(sites)} x {' '.join(types)}"
    apply_sites(graph_of(hlo), [site.moved(values) for site in sites], rule.build)
    return Lowered.of(hlo, (*before.rewrites, made), ranks)


class _Pricing:
    """Prices graphs under their first cuts, all at the sizes of one graph, where each size weighs the same."""

    def __init__(
        self,
        first: Lowered,
        pricer: Pricer,
        hint: Mapping[str, int],
        estimates: dict[str, list[float]],
    ) -> None:
        self.pricer, self.estimates = pricer, estimates
        self.samples = sample_sizes(first.graph.symbols, hint, first.partition.requirements)
        self._regions: dict[tuple[str, ...], Counter[str]] = {}
        totals = [
            sum(column) for column in zip(*map(self.estimates.__getitem__, self.regions(first).elements()))
        ]
        self.weights = [totals[0] / total / len(totals) if total else 1.0 for total in totals]

    def regions(self, lowered: Lowered) -> Counter[str]:
        """How often a graph has each region, by key."""
        if lowered.rewrites not in self._regions:
            search = self.pricer(lowered.partition, self.samples, self.estimates)
            keys = (key for key, _ in search.estimates(search.first_cuts()))
            self._regions[lowered.rewrites] = Counter(keys)
        return self._regions[lowered.rewrites]

    def saved(self, before: Lowered, after: Lowered) -> float:
        """What a rewrite saves, as a part of the regions that it changes."""
        old, new = self.regions(before), self.regions(after)
        gone, come = self._seconds(old - new), self._seconds(new - old)
        return (gone - come) / gone if gone else 0.0

    def _seconds(self, regions: Counter[str]) -> float:
        return sum(
            count * sum(w * s for w, s in zip(self.weights, self.estimates[key], strict=True))
            for key, count in regions.items()
        )
