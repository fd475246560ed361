"""Which values of its index a fold needs: conditions on indices, outside of which an addend is the identity.

    max_j (s if j <= i else -inf)                     needs i - j >= 0
    sum_j (x if i - w < j and j <= i else 0)          needs i - j >= 0 and j - i + w - 1 >= 0

A comparison of affine indices is given each of its values in turn; where constants then make the addend the identity of
its monoid, only the places of the other value are needed.  A weighted fold (`weighted_fold.py`) changes nothing where
its scores are -inf and what they weigh is finite: its loop has a guard that says whether all of that is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.monoids import identity_bits
from luminal.dialects.kernel.terms import (
    ELEMENTWISE,
    PAIRED_MONOIDS,
    Affine,
    Term,
    TermTable,
    predicate,
)
from luminal.dtype import bool_, from_bits, i64, to_bits
from luminal.passes.index_algebra import affine_leaf
from luminal.passes.weighted_fold import unrounded, weighted_parts

Conditions = tuple[Affine, ...]
"""Affine expressions of indices, none of them negative at a place that is needed."""

FOLDED = frozenset({"add", "mul", "max", "min", "bits", "less_than", "cast", "select"})
LARGEST = 1 << 40
"""Constants beyond it might wrap around where they meet an index."""
SAMPLES = 16


class Needed(NamedTuple):
    """What a fold needs of its indices, and the term that must hold for the rest to be left out, if there is one."""

    conditions: Conditions
    guard: Term | None = None


NOTHING_KNOWN = Needed(())


def needed_by_reduction(reduction: Term) -> Needed:
    """The places of its indices that a reduction needs."""
    monoid, indices = reduction.reduce
    if monoid in PAIRED_MONOIDS:
        return NOTHING_KNOWN
    (addend,) = reduction.operands
    nothing = {identity_bits(monoid, addend.dtype)}
    if monoid == "sum" and addend.dtype.is_float:  # a sum starts at 0.0
        nothing.add(to_bits(-0.0, addend.dtype))
    return Needed(conditions(addend, frozenset(indices), nothing))


def needed_by_loop(table: TermTable, loop: Term) -> Needed:
    """The blocks that a carried loop needs: those of a weighted fold, with the guard of what it weighs."""
    parts = weighted_parts(table, loop)
    if parts is None:
        return NOTHING_KNOWN
    for factors in (parts.factors, [unrounded(factor) for factor in parts.factors]):
        found = needed_by_weights(
            table, parts.score, factors, loop.loop.index, parts.place, loop.loop.carries
        )
        if found.guard is loop.guard:
            return found
    return NOTHING_KNOWN


def needed_by_weights(
    table: TermTable,
    score: Term,
    factors: Sequence[Term],
    blocks: str,
    place: str,
    carries: Sequence[frozenset[str]],
) -> Needed:
    """What a weighted fold of some scores and factors needs of its blocks and of the places in them; nothing is known
    where its guard would have to be computed for each place that the conditions tell apart."""
    found = conditions(score, frozenset({blocks, place}), {identity_bits("max", score.dtype)})
    common = frozenset.intersection(*carries)
    inside = frozenset[str]().union(*(factor.free for factor in factors)) - common - {blocks}
    guard = all_finite(table, factors, common, inside) if found else None
    around = frozenset[str]().union(*(condition.indices for condition in found))
    return NOTHING_KNOWN if guard is not None and guard.free & around else Needed(found, guard)


def all_finite(
    table: TermTable, values: Iterable[Term], kept: frozenset[str], inside: frozenset[str]
) -> Term | None:
    """Whether all values are finite, for each place of the indices that are kept: first over the indices that are
    inside of a block, then over blocks; None where there are no values."""
    guard: Term | None = None
    for value in dict.fromkeys(values):
        zero = table.constant(to_bits(0.0, value.dtype), value.dtype)
        vanishes = table.apply("mul", (value, zero), None, value.dtype)
        every = predicate(table, vanishes, zero, "eq")
        for indices in (every.free & inside, every.free - inside - kept):
            every = table.reduce("min", indices, (every,)) if indices else every
        guard = every if guard is None else table.apply("bits", (guard, every), "and", bool_)
    return guard


def conditions(value: Term, indices: frozenset[str], nothing: Collection[int | None]) -> Conditions:
    """What holds at every place of some indices at which a value may have other bits than those of nothing."""
    terms = list(_elementwise(value))
    found: dict[Affine, None] = {}
    for compared in terms:
        if compared.op != "less_than" or not compared.free & indices:
            continue
        sides = [_affine(operand) for operand in compared.operands]
        for holds in (False, True):
            if None not in sides and _constants(terms, {compared: int(holds)})[value] in nothing:
                left, right = cast("list[Affine]", sides)
                found |= dict.fromkeys(_where(cast(str, compared.attribute), not holds, left, right))
    return tuple(condition for condition in found if condition.indices & indices)


def _where(comparison: str, holds: bool, left: Affine, right: Affine) -> Iterator[Affine]:
    """What is not negative where a comparison of two sides holds, or does not."""
    one = Affine.of({}, -1)
    above, below = right.plus(left.times(-1)), left.plus(right.times(-1))
    match comparison, holds:
        case "lt", True:
            yield above.plus(one)
        case "lt", False:
            yield below
        case "le", True:
            yield above
        case "le", False:
            yield below.plus(one)
        case ("eq", True) | ("ne", False):
            yield from (above, below)
        case _:
            pass


def _elementwise(value: Term) -> Iterator[Term]:
    """The terms that a value is made of by elementwise operations, operands first."""
    seen: set[Term] = set()
    stack = [(value, False)]
    while stack:
        term, expanded = stack.pop()
        if expanded:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            if term.op in ELEMENTWISE:
                stack += [(operand, False) for operand in term.operands]


def _constants(terms: Sequence[Term], known: Mapping[Term, int]) -> dict[Term, int | None]:
    """The bits of each term, operands first, as far as they are constant where some have known ones."""
    bits: dict[Term, int | None] = {}
    for term in terms:
        operands = [bits[operand] for operand in term.operands] if term.op in FOLDED else []
        if term in known:
            bits[term] = known[term]
        elif term.op == "constant":
            bits[term] = cast(int, term.attribute)
        elif term.op == "select":
            condition, chosen, other = operands
            decided = chosen if condition else other
            bits[term] = decided if condition is not None or chosen == other else None
        elif term.op == "bits" and term.dtype.is_bool and term.attribute in ("and", "or"):
            decides = int(term.attribute == "or")
            bits[term] = decides if decides in operands else None if None in operands else 1 - decides
        elif term.op == "mul" and not term.dtype.is_float and 0 in operands:
            bits[term] = 0
        elif operands and None not in operands:
            bits[term] = _evaluated(term, cast("list[int]", operands))
        else:
            bits[term] = None
    return bits


def _evaluated(term: Term, operands: Sequence[int]) -> int:
    values = [
        np.asarray(from_bits(bits, operand.dtype), operand.dtype.numpy)
        for bits, operand in zip(operands, term.operands, strict=True)
    ]
    found = evaluate_elementwise(term.op, cast("str | None", term.attribute), values, term.dtype)
    return to_bits(cast(np.generic, found.astype(term.dtype.numpy)[()]), term.dtype)


def _affine(term: Term) -> Affine | None:
    """An i64 term as an affine expression of indices; None where it is none, or has constants that might wrap."""
    leaf = affine_leaf(term)
    if leaf is not None:
        return leaf if term.op != "constant" or abs(_signed(term)) <= LARGEST else None
    if term.dtype is not i64:
        return None
    if term.op == "add":
        left, right = map(_affine, term.operands)
        return None if left is None or right is None else left.plus(right)
    if term.op == "mul":
        for factor, other in (term.operands, term.operands[::-1]):
            found = _affine(other)
            if factor.op == "constant" and abs(_signed(factor)) <= LARGEST and found is not None:
                return found.times(_signed(factor))
    return None


def _signed(term: Term) -> int:
    return int(cast(np.int64, from_bits(cast(int, term.attribute), i64)))


def part_needed(
    needed: Conditions,
    index: str,
    sizes: Mapping[str, int],
    blocks: Mapping[str, int],
    dims: Mapping[str, int],
) -> float:
    """How much of an index is needed, on the average over the others, in steps of one: those of a block are needed
    together, and `blocks` has how much of each index is one, where that is more than one place."""
    own = [(c.stride(index).evaluate(dims), c) for c in needed]
    total = 0
    for sample in range(SAMPLES):
        first, last = 0, sizes[index]
        for stride, condition in own:
            reach = condition.offset.evaluate(dims)
            for name, step in condition.strides:
                if name == index:
                    continue
                size, each = sizes[name], step.evaluate(dims)
                block = min(size, blocks.get(name, 1))
                start = min(size * (2 * sample + 1) // (2 * SAMPLES), size - 1) // block * block
                reach += each * start + max(0, each * (block - 1))
            if stride < 0:
                last = min(last, reach // -stride + 1)
            elif stride > 0:
                first = max(first, math.ceil(-reach / stride))
        total += max(0, last - first)
    return total / (SAMPLES * max(1, sizes[index]))
