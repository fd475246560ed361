"""Equal forms of a region: what the e-graph finds of it, spelled as terms again.

A weighted sum (rules/folds.py) becomes a carried loop over blocks of its index.  All of one score share the loop:

    sum_j x(c - max_j c) * a   ->   loop over blocks of j, carrying m = -inf and s = 0:
                                        m' = max(m, max c)
                                        s' = s * x(m - m') + sum x(c - m') * a

Where m' is -inf, 0 is subtracted instead, so that x(-inf - 0) = 0 meets what later blocks bring; where all of c is
-inf, the result is made NaN again, as x(-inf - -inf) is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from luminal.dialects.kernel.terms import (
    Affine,
    LoadAttribute,
    Region,
    Term,
    TermTable,
    postorder,
    predicate,
)
from luminal.dim import Dim, as_dim, known_less, product
from luminal.dtype import DType, to_bits
from luminal.search.extract import Picks, extract, reachable

if TYPE_CHECKING:
    from luminal.search.egraph import Classes, Node
    from luminal.search.rules.rule import Rule

BLOCKS = (64, 128)
"""Sizes of the blocks of an index that a loop carries a fold over."""


@dataclass(frozen=True)
class Form:
    """An equal form of a region, with the same arguments and outputs; `name` says how to find it again."""

    name: str
    region: Region


def forms(region: Region, licences: frozenset[str], rules: Sequence[Rule] | None = None) -> Iterator[Form]:
    """The forms of a region beside its own that fold over an index in one pass, one for each size of block.

    `rules`: those of the e-graph, None for all of TERM_RULES.

    A region that updates an argument has none: its loops would read what they have overwritten.  Nor has one whose
    e-graph does not come to an end within its budget: what was found by then could be another thing the next time.
    """
    if not may_fold(region) or any(output.alias >= 0 for output in region.outputs):
        return
    # most programs have nothing to fold, and egglog takes a while to import
    from luminal.search import rules as tables
    from luminal.search.egraph import Budget, EGraph, EGraphLimitError

    try:
        classes = EGraph(region, tables.TERM_RULES if rules is None else rules, licences).saturate(Budget())
    except EGraphLimitError:
        return
    picks = _fold_picks(classes) if classes.is_saturated else None
    if picks is None or not any(node.op == "weighted" for node in picks.values()):
        return
    for block in BLOCKS:
        yield Form(f"folds of {block}", _Speller(region, classes, picks, block).region())


GroupKey = tuple[int, str | None, int]
"""Folds that share a loop: bits of their index, their exponential and the class of their score."""


def _fold_picks(classes: Classes) -> Picks | None:
    """A program whose folds can be loops; those that cannot are the reductions that they were."""
    refused: set[int] = set()
    while True:
        picks = extract(classes, refused)
        found = set() if picks is None else _not_loops(classes, picks)
        if not found:
            return picks
        refused |= found


def _not_loops(classes: Classes, picks: Picks) -> set[int]:
    """Folds over several indices; those whose loop would need what it, or a loop that needs it, computes; and those
    that another loop would have to compute anew in each of its blocks."""
    groups = {number: _group_key(node) for number, node in picks.items() if node.op == "weighted"}
    needed = {number: _needed_groups(picks, number, set(groups.values())) for number in groups}
    below: dict[GroupKey, set[GroupKey]] = {group: set() for group in groups.values()}
    for number, group in groups.items():
        below[group] |= needed[number]
    for _ in below:  # as often as a chain of groups may be long
        for reached in below.values():
            reached |= {further for group in reached for further in below[group]}
    found: set[int] = set()
    for number, group in groups.items():
        reached = {further for other in needed[number] for further in (other, *below[other])}
        inside = any(classes.free[number] & other[0] for other in below if group in below[other])
        if group[0].bit_count() != 1 or group in reached or inside:
            found.add(number)
    return found


def _group_key(node: Node) -> GroupKey:
    return node.bits, node.variant, node.operands[0]


def _needed_groups(picks: Picks, number: int, groups: set[GroupKey]) -> set[GroupKey]:
    """The groups of which the score and the factor of a fold need a result, or the maximum."""
    found: set[GroupKey] = set()
    for inner in reachable(picks, picks[number].operands):
        node = picks[inner]
        if node.op == "weighted":
            found.add(_group_key(node))
        elif node.op == "reduce" and node.variant == "max":
            found |= {group for group in groups if (group[0], group[2]) == (node.bits, node.operands[0])}
    return found


def may_fold(region: Region) -> bool:
    """Whether a region has what every fold begins with: a maximum over an index, and a sum over the same."""
    found: dict[str, set[tuple[str, ...]]] = {"max": set(), "sum": set()}
    for term in region.terms():
        if term.op == "reduce" and term.reduce.monoid in found:
            found[term.reduce.monoid].add(term.reduce.indices)
        if term.op in ("loop", "scan"):
            return False
    return bool(found["max"] & found["sum"]) and not region.parents


class Forms:
    """The forms of the regions of one compilation under its licences, each found once."""

    def __init__(self, licences: Iterable[str] = ()) -> None:
        self.licences = frozenset(licences)
        self._known: dict[str, tuple[Form, ...]] = {}

    def of(self, region: Region, key: str) -> tuple[Form, ...]:
        """The forms of a region beside its own; `key` says which region it is."""
        if key not in self._known:
            self._known[key] = tuple(forms(region, self.licences))
        return self._known[key]

    def find(self, region: Region, key: str, name: str) -> Region | None:
        """The form of a region with this name, "" being its own; None where there is none."""
        if not name:
            return region
        return next((form.region for form in self.of(region, key) if form.name == name), None)


@dataclass
class _Group:
    """The folds that share a loop: those of one score over one index, which becomes block number and place in it.

    `results`: the value of each fold, and `maximum` that of the score; `kept`: what one iteration needs more than once.
    """

    index: str
    block: int
    variant: str
    score: int
    numbers: list[int] = field(default_factory=list[int])
    results: dict[int, Term] = field(default_factory=dict[int, Term])
    maximum: Term | None = None
    kept: tuple[Term, ...] = ()

    @property
    def outer(self) -> str:
        return f"{self.index}o"

    @property
    def inner(self) -> str:
        return f"{self.index}i"


class _Speller:
    """Spells picked e-nodes as terms of a new region."""

    def __init__(self, source: Region, classes: Classes, picks: Picks, block: int) -> None:
        self.source, self.classes, self.picks = source, classes, picks
        self.table = TermTable()
        self.groups: dict[GroupKey, _Group] = {}
        for number, node in picks.items():
            if node.op != "weighted":
                continue
            (index,) = classes.names(node.bits)
            made = _Group(index, block, node.variant or "", node.operands[0])
            group = self.groups.setdefault(_group_key(node), made)
            group.numbers.append(number)
        self.memo: dict[tuple[int, str | None], Term] = {}
        self.copies: dict[tuple[Term, str | None], Term] = {}

    def region(self) -> Region:
        """The region with a loop for each group of folds."""
        terms = iter([self._term(number, None) for number in self.classes.roots])
        outputs = [
            replace(
                output,
                term=next(terms),
                dynamic=next(terms) if output.dynamic is not None else None,
                guard=next(terms) if output.guard is not None else None,
            )
            for output in self.source.outputs
        ]
        extents, parents = dict(self.source.extents), dict(self.source.parents)
        for group in self.groups.values():
            size = extents[group.index]
            extents[group.outer] = (size + (group.block - 1)) // group.block
            extents[group.inner] = as_dim(group.block)
            parents[group.outer] = (group.index, group.block)
            parents[group.inner] = (group.index, 1)
        inner = [term for group in self.groups.values() for term in group.kept]
        return Region(self.table, extents, self.source.arguments, outputs, inner, parents)

    def _term(self, number: int, within: _Group | None) -> Term:
        """The value of a class; inside the loop of a group, the index is a block and a place in it."""
        if within is not None and within.index not in self.classes.names(self.classes.free[number]):
            within = None
        key = (number, within.index if within else None)
        if key not in self.memo:
            self.memo[key] = self._spell(number, self.picks[number], within)
        return self.memo[key]

    def _spell(self, number: int, node: Node, within: _Group | None) -> Term:
        if node.op == "leaf":
            return self._copy(self.classes.leaves[node.bits], within)
        assert node.dtype is not None
        if node.op == "empty":
            return self._is_empty(self.classes.names(node.bits))
        if node.op == "constant":
            return self.table.constant(node.bits, node.dtype)
        if node.op == "weighted":
            return self._fold(number, node)
        if node.op == "reduce":
            return self._reduce(node, within)
        operands = tuple(self._term(operand, within) for operand in node.operands)
        return self.table.apply(node.op, operands, node.variant, node.dtype)

    def _reduce(self, node: Node, within: _Group | None) -> Term:
        monoid, (score,) = cast(str, node.variant), node.operands
        if monoid == "max":
            for (bits, _, driver), group in self.groups.items():
                if (bits, driver) == (node.bits, score):
                    self._loop(group)
                    assert group.maximum is not None
                    return group.maximum
        return self.table.reduce(monoid, self.classes.names(node.bits), (self._term(score, within),))

    def _fold(self, number: int, node: Node) -> Term:
        group = self.groups[_group_key(node)]
        self._loop(group)
        return group.results[number]

    def _loop(self, group: _Group) -> None:
        """Spell the loop of a group, once."""
        if group.maximum is not None:
            return
        table, dtype = self.table, cast(DType, self.picks[group.numbers[0]].dtype)
        low, zero = (table.constant(to_bits(value, dtype), dtype) for value in (float("-inf"), 0.0))
        free = [self._free(group.score) - {group.index}, *(self._free(n) for n in group.numbers)]
        maximum, *sums = table.carries(group.outer, [(dtype, indices) for indices in free])
        score = self._term(group.score, group)
        highest = table.apply("max", (maximum, table.reduce("max", [group.inner], (score,))), None, dtype)
        base = table.apply("select", (self._equal(highest, low), zero, highest), None, dtype)
        scale, weight = (self._exponential(group, value, base) for value in (maximum, score))
        reduces = any(term.op == "reduce" for term in postorder([score]))
        group.kept = (*([score] if reduces else []), scale, weight)
        following = [highest]
        for number, carry in zip(group.numbers, sums, strict=True):
            factor = self.picks[number].operands[1]
            value = (
                weight
                if self._is_one(factor)
                else table.apply("mul", (weight, self._term(factor, group)), None, dtype)
            )
            part = table.reduce("sum", [group.inner], (value,))
            following.append(
                table.apply("add", (table.apply("mul", (carry, scale), None, dtype), part), None, dtype)
            )
        inits = [low, *(zero for _ in sums)]
        group.maximum, *results = table.loop(group.outer, [maximum, *sums], inits, following)
        nothing, lost = self._equal(group.maximum, low), self._of_nothing(group, dtype)
        for number, result in zip(group.numbers, results, strict=True):
            group.results[number] = table.apply("select", (nothing, lost, result), None, dtype)

    def _of_nothing(self, group: _Group, dtype: DType) -> Term:
        """What a sum is whose scores are all -inf: NaN, or 0 where there are none at all."""
        lost, zero = (self.table.constant(to_bits(value, dtype), dtype) for value in (float("nan"), 0.0))
        if known_less(as_dim(0), self.source.extents[group.index]):
            return lost
        return self.table.apply("select", (self._is_empty((group.index,)), zero, lost), None, dtype)

    def _is_empty(self, indices: tuple[str, ...]) -> Term:
        """Whether one of some indices has no value."""
        places = product(self.source.extents[index] for index in indices)
        return predicate(self.table, self.table.dimension(places), self.table.dimension(as_dim(1)))

    def _exponential(self, group: _Group, value: Term, base: Term) -> Term:
        table, dtype = self.table, value.dtype
        op, _, variant = group.variant.partition(".")
        negated = table.apply("mul", (base, table.constant(to_bits(-1.0, dtype), dtype)), None, dtype)
        difference = table.apply("add", (value, negated), None, dtype)
        return table.apply(op, (difference,), variant or None, dtype)

    def _equal(self, left: Term, right: Term) -> Term:
        return predicate(self.table, left, right, "eq")

    def _free(self, number: int) -> frozenset[str]:
        return frozenset(self.classes.names(self.classes.free[number]))

    def _is_one(self, number: int) -> bool:
        node = self.picks[number]
        return node.op == "constant" and node.dtype is not None and node.bits == to_bits(1.0, node.dtype)

    def _copy(self, term: Term, within: _Group | None) -> Term:
        """A term that rules do not see into, with what it needs."""
        for needed in postorder([term]):
            inside = within if within is not None and within.index in needed.free else None
            key = (needed, inside.index if inside else None)
            if key in self.copies:
                continue
            operands = tuple(
                self.copies[o, inside.index if inside is not None and inside.index in o.free else None]
                for o in needed.operands
            )
            attribute = _substituted(needed.attribute, inside)
            free = (
                needed.free if inside is None else needed.free - {inside.index} | {inside.outer, inside.inner}
            )
            self.copies[key] = self.table.make(needed.op, operands, attribute, needed.dtype, free)
        return self.copies[term, within.index if within else None]


def _substituted(attribute: object, within: _Group | None) -> object:
    """An attribute whose addresses speak of a block and a place in it."""
    if within is None:
        return attribute
    if isinstance(attribute, Affine):
        strides: dict[str, Dim] = dict(attribute.strides)
        stride = strides.pop(within.index, as_dim(0))
        return Affine.of(
            {**strides, within.outer: stride * within.block, within.inner: stride}, attribute.offset
        )
    if isinstance(attribute, LoadAttribute):
        return attribute._replace(address=cast(Affine, _substituted(attribute.address, within)))
    return attribute
