"""Folds of a region: which sums of a saturated e-graph are carried loops, and those loops spelled as terms.

A weighted sum (rules/folds.py) becomes a carried loop over blocks of its index.  All of one score share the loop:

    sum_j x(c - max_j c) * a   ->   loop over blocks of j, carrying m = -inf and s = 0:
                                        m' = max(m, max c)
                                        s' = s * x(m - m') + sum x(c - m') * a

Where m' is -inf, 0 is subtracted instead, so that x(-inf - 0) = 0 meets what later blocks bring; where all of c is
-inf, the result is made NaN again, as x(-inf - -inf) is.

    sum_j (x - mean_j x)^2      ->   loop over blocks of j, of b values after a, carrying q = 0 and s = 0:
                                        m = sum x / b
                                        q' = q + sum (x - m)^2 + (m - s / a)^2 a b / (a + b)
                                        s' = s + sum x

Or each block is a part of the index that is folded on its own, whose carries are kept, and the parts are combined:

    m[p] = max c,  s[p] = sum x(c - m[p]) * a            ->   max_p m,  sum_p x(m[p] - max_p m) * s[p]
    s[p] = sum x,  q[p] = sum (x - s[p] / b)^2           ->   sum_p s,  sum_p q[p] + (s[p] / b - sum_p s / n)^2 b
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from luminal.dialects.kernel.terms import (
    Affine,
    Region,
    Term,
    TermTable,
    postorder,
    predicate,
)
from luminal.dim import as_dim, known_less, product
from luminal.dtype import DType, to_bits
from luminal.passes.needed import needed_by_weights
from luminal.passes.weighted_fold import base_of, next_sum, power_of, powers
from luminal.search.extract import FOLDS, Picks, extract, reachable
from luminal.search.parts import in_parts, whole_of

if TYPE_CHECKING:
    from luminal.search.egraph import Classes, Node

GroupKey = tuple[int, str | None, int]
"""Folds that share a loop: bits of their index, their exponential (None: moments) and the class of their score."""
_GIVEN = {True: "sum", False: "max"}
"""The plain reduction of the score that a loop gives beside its folds, by whether those are moments."""


def fold_picks(classes: Classes) -> Picks | None:
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
    groups = {number: _group_key(node) for number, node in picks.items() if node.op in FOLDS}
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
        alike = (
            not classes.free[group[2]] & group[0]
        )  # scores that do not depend on the index have nothing to fold
        if group[0].bit_count() != 1 or group in reached or inside or alike:
            found.add(number)
    return found


def _group_key(node: Node) -> GroupKey:
    return node.bits, node.variant, node.operands[0]


def _needed_groups(picks: Picks, number: int, groups: set[GroupKey]) -> set[GroupKey]:
    """The groups of which the score and the factor of a fold need a result, or the maximum."""
    found: set[GroupKey] = set()
    for inner in reachable(picks, picks[number].operands):
        node = picks[inner]
        if node.op in FOLDS:
            found.add(_group_key(node))
        elif node.op == "reduce":
            found |= {group for group in groups if _gives(group, node)}
    return found


def _gives(group: GroupKey, node: Node) -> bool:
    """Whether the loop of a group gives a plain reduction too."""
    bits, exponential, score = group
    return (bits, score, _GIVEN[exponential is None]) == (node.bits, node.operands[0], node.variant)


@dataclass
class _Group:
    """The folds that share a loop: those of one score over one index, which becomes block number and place in it.

    `results`: the value of each fold, and `given` the maximum, or the sum, of the score; `kept`: what one iteration
    needs more than once.
    """

    index: str
    block: int
    variant: str | None
    score: int
    numbers: list[int] = field(default_factory=list[int])
    results: dict[int, Term] = field(default_factory=dict[int, Term])
    given: Term | None = None
    kept: tuple[Term, ...] = ()

    @property
    def outer(self) -> str:
        return f"{self.index}o"

    @property
    def inner(self) -> str:
        return f"{self.index}i"


class FoldSpeller:
    """Spells picked e-nodes as terms of a new region; `bounded`: with the guards without which loops run over what no
    result needs; `in_parts`: without loops, the blocks of an index being parts of it.  `leaves_out`: whether there are
    such guards, known once the region is."""

    def __init__(
        self,
        source: Region,
        classes: Classes,
        picks: Picks,
        block: int,
        bounded: bool = False,
        in_parts: bool = False,
    ) -> None:
        self.source, self.classes, self.picks = source, classes, picks
        self.bounded, self.in_parts, self.leaves_out = bounded, in_parts, False
        self.table = TermTable()
        self.groups: dict[GroupKey, _Group] = {}
        for number, node in picks.items():
            if node.op not in FOLDS:
                continue
            (index,) = classes.names(node.bits)
            made = _Group(index, block, node.variant, node.operands[0])
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
            whole = whole_of(self.source, group.index)
            extents[whole] = size
            parents[group.outer] = (whole, group.block)
            parents[group.inner] = (whole, 1)
        inner = [term for group in self.groups.values() for term in group.kept]
        source = self.source
        made = Region(
            self.table, extents, source.arguments, outputs, inner, parents, source.is_strict, source.factors
        )
        if self.in_parts:
            made.inner = [term for term in made.terms() if term in inner]
        return made

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
        if node.op in FOLDS:
            group = self.groups[_group_key(node)]
            self._loop(group)
            return group.results[number]
        if node.op == "reduce":
            return self._reduce(node, within)
        operands = tuple(self._term(operand, within) for operand in node.operands)
        return self.table.apply(node.op, operands, node.variant, node.dtype)

    def _reduce(self, node: Node, within: _Group | None) -> Term:
        monoid, (score,) = cast(str, node.variant), node.operands
        for key, group in self.groups.items():
            if _gives(key, node):
                self._loop(group)
                assert group.given is not None
                return group.given
        return self.table.reduce(monoid, self.classes.names(node.bits), (self._term(score, within),))

    def _loop(self, group: _Group) -> None:
        """Spell the loop of a group, once."""
        if group.given is not None:
            return
        if group.variant is None:
            (self._moments_of_parts if self.in_parts else self._moment_loop)(group)
            return
        results = (self._weights_of_parts if self.in_parts else self._weighted_loop)(group)
        assert group.given is not None
        low = self.table.constant(to_bits(float("-inf"), group.given.dtype), group.given.dtype)
        nothing, lost = self._equal(group.given, low), self._of_nothing(group, low.dtype)
        for number, result in zip(group.numbers, results, strict=True):
            group.results[number] = self.table.apply("select", (nothing, lost, result), None, low.dtype)

    def _moments_of_parts(self, group: _Group) -> None:
        """The squares around the mean, and the sum: of parts, each around its own mean, and combined."""
        table, dtype = self.table, cast(DType, self.picks[group.numbers[0]].dtype)
        (number,) = group.numbers
        value = self._term(group.score, group)
        part = table.reduce("sum", [group.inner], (value,))
        _, count = self._places(group, dtype)
        mean = self._apply("recip", part, count, variant="none")
        squares = table.reduce("sum", [group.inner], (self._squared(value, mean),))
        group.given = table.reduce("sum", [group.outer], (part,))
        size = table.apply("cast", (table.dimension(self.source.extents[group.index]),), "none", dtype)
        whole = self._apply("recip", group.given, size, variant="none")
        between = self._apply("mul", self._squared(mean, whole), count)
        group.results[number] = table.reduce("sum", [group.outer], (self._apply("add", squares, between),))
        group.kept = (*self._computed(value), part, squares)

    def _squared(self, value: Term, mean: Term) -> Term:
        centred = self._apply("add", value, self._negated(mean))
        return self._apply("mul", centred, centred)

    def _computed(self, value: Term) -> tuple[Term, ...]:
        """What is folded, where it is a result of reductions, which would be computed again wherever it is needed."""
        return (value,) if any(term.op == "reduce" for term in postorder([value])) else ()

    def _moment_loop(self, group: _Group) -> None:
        """The squares around the mean, and the sum."""
        table, dtype = self.table, cast(DType, self.picks[group.numbers[0]].dtype)
        (number,) = group.numbers
        free = self._free(group.score) - {group.index}
        moment, total = table.carries(group.outer, [(dtype, free), (dtype, free)])
        value = self._term(group.score, group)
        part = table.reduce("sum", [group.inner], (value,))
        before, count = self._places(group, dtype)
        mean = self._apply("recip", part, count, variant="none")
        squares = table.reduce("sum", [group.inner], (self._squared(value, mean),))
        one = table.constant(to_bits(1.0, dtype), dtype)
        earlier = self._apply("recip", total, self._apply("max", before, one), variant="none")
        both = self._apply("add", before, count)
        weight = self._apply("recip", self._apply("mul", before, count), both, variant="none")
        joined = self._apply("mul", self._squared(mean, earlier), weight)
        following = [
            self._apply("add", moment, self._apply("add", squares, joined)),
            self._apply("add", total, part),
        ]
        group.kept = (*self._computed(value), part, squares)
        zero = table.constant(to_bits(0.0, dtype), dtype)
        group.results[number], group.given = table.loop(group.outer, [moment, total], [zero, zero], following)

    def _places(self, group: _Group, dtype: DType) -> tuple[Term, Term]:
        """How many values of the index come before a block, and how many are in it."""
        table, block = self.table, group.block
        before = table.index(Affine.of({group.outer: as_dim(block)}))
        size = self.source.extents[group.index]
        if (size % block).constant == 0:
            count = table.constant(to_bits(float(block), dtype), dtype)
            return table.apply("cast", (before,), "none", dtype), count
        whole = table.constant(block, before.dtype)
        left = table.index(Affine.of({group.outer: as_dim(-block)}, size))
        count = table.apply("min", (left, whole), None, before.dtype)
        return table.apply("cast", (before,), "none", dtype), table.apply("cast", (count,), "none", dtype)

    def _apply(self, op: str, *operands: Term, variant: str | None = None) -> Term:
        return self.table.apply(op, operands, variant, operands[0].dtype)

    def _negated(self, value: Term) -> Term:
        return self._apply("mul", value, self.table.constant(to_bits(-1.0, value.dtype), value.dtype))

    def _factors(self, group: _Group) -> list[Term | None]:
        """What the weights of each sum are multiplied by; None where that is 1."""
        numbers = [self.picks[number].operands[1] for number in group.numbers]
        return [None if self._is_one(number) else self._term(number, group) for number in numbers]

    def _weighed(self, weight: Term, factor: Term | None) -> Term:
        return weight if factor is None else self._apply("mul", weight, factor)

    def _weights_of_parts(self, group: _Group) -> list[Term]:
        """The weighted sums of parts, each with its own maximum, and combined."""
        table, power = self.table, group.variant or ""
        score = self._term(group.score, group)
        highest = table.reduce("max", [group.inner], (score,))
        weight = power_of(table, power, score, base_of(table, highest))
        addends = [self._weighed(weight, factor) for factor in self._factors(group)]
        sums = [table.reduce("sum", [group.inner], (addend,)) for addend in addends]
        group.given = table.reduce("max", [group.outer], (highest,))
        scale = power_of(table, power, highest, base_of(table, group.given))
        group.kept = (*self._computed(score), highest, *([weight] if len(sums) > 1 else []), *sums)
        return [table.reduce("sum", [group.outer], (self._apply("mul", each, scale),)) for each in sums]

    def _weighted_loop(self, group: _Group) -> list[Term]:
        """The weighted sums, and the maximum."""
        table, dtype = self.table, cast(DType, self.picks[group.numbers[0]].dtype)
        low, zero = (table.constant(to_bits(value, dtype), dtype) for value in (float("-inf"), 0.0))
        free = [self._free(group.score) - {group.index}, *(self._free(n) for n in group.numbers)]
        maximum, *sums = table.carries(group.outer, [(dtype, indices) for indices in free])
        score = self._term(group.score, group)
        found = powers(table, group.variant or "", maximum, score, group.inner)
        shared = (found.base, found.weight) if len(group.numbers) > 1 else ()
        group.kept = (*self._computed(score), found.scale, *shared)
        factors = self._factors(group)
        following = [found.highest]
        for factor, carry in zip(factors, sums, strict=True):
            addend = self._weighed(found.weight, factor)
            following.append(next_sum(table, carry, found.scale, addend, group.inner))
        weighed = [factor for factor in factors if factor is not None]
        needed = needed_by_weights(table, score, weighed, group.outer, group.inner, free)
        self.leaves_out |= needed.guard is not None
        guard = needed.guard if self.bounded else None
        inits = [low, *(zero for _ in sums)]
        group.given, *results = table.loop(group.outer, [maximum, *sums], inits, following, guard)
        return results

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
            attribute, free = needed.attribute, needed.free
            if inside is not None:
                weights = {inside.outer: inside.block, inside.inner: 1}
                attribute, free = (
                    in_parts(attribute, inside.index, weights),
                    free - {inside.index} | frozenset(weights),
                )
            self.copies[key] = self.table.make(needed.op, operands, attribute, needed.dtype, free)
        return self.copies[term, within.index if within else None]
