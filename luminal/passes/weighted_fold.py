"""One step of a weighted fold, as terms: spelled for the forms of a region, and found again in a loop.

A weighted fold carries the maximum m of some scores c and sums of x(c - m) * a, where x is a power:

    m' = max(m, max c)
    s' = s * x(m - m') + sum x(c - m') * a

Where m' is -inf, 0 is subtracted instead.  A block whose scores are all -inf leaves every carry as it is, where its
factors a are finite: x(-inf - m') is 0, x(m - m) is 1, and as long as m is -inf all sums are 0.  Where m is NaN or
infinite, the sums are NaN already.  Only a sum of -0.0 might become 0.0.

Folds of parts of an index combine in the same way: sum_p x(m_p - max_p m_p) * s_p.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from luminal.dialects.kernel.terms import Term, TermTable, postorder, predicate
from luminal.dtype import to_bits


class Powers(NamedTuple):
    """Of one block: the maximum so far, what is subtracted, what earlier sums are scaled by, and its own powers."""

    highest: Term
    base: Term
    scale: Term
    weight: Term


class WeightedParts(NamedTuple):
    """The score of a weighted fold, the factors that its weights have, and the index of the places of a block."""

    score: Term
    factors: tuple[Term, ...]
    place: str


def powers(table: TermTable, power: str, maximum: Term, score: Term, inner: str) -> Powers:
    """Those of a block whose places are `inner`; `power`: an operation and its variant, as exp2.e."""
    highest = table.apply("max", (maximum, table.reduce("max", [inner], (score,))), None, score.dtype)
    base = base_of(table, highest)
    return Powers(highest, base, power_of(table, power, maximum, base), power_of(table, power, score, base))


def base_of(table: TermTable, highest: Term) -> Term:
    """What is subtracted of scores of which this is the maximum."""
    dtype = highest.dtype
    low, zero = (table.constant(to_bits(value, dtype), dtype) for value in (float("-inf"), 0.0))
    return table.apply("select", (predicate(table, highest, low, "eq"), zero, highest), None, dtype)


def power_of(table: TermTable, power: str, score: Term, base: Term) -> Term:
    """x(c - base), where `power` is x."""
    dtype = score.dtype
    below = table.apply("mul", (base, table.constant(to_bits(-1.0, dtype), dtype)), None, dtype)
    op, _, variant = power.partition(".")
    return table.apply(op, (table.apply("add", (score, below), None, dtype),), variant or None, dtype)


def next_sum(table: TermTable, carry: Term, scale: Term, addend: Term, inner: str) -> Term:
    """A sum after a block of which it takes in one addend for each place."""
    part = table.reduce("sum", [inner], (addend,))
    return table.apply(
        "add", (table.apply("mul", (carry, scale), None, carry.dtype), part), None, carry.dtype
    )


def weighted_parts(table: TermTable, loop: Term) -> WeightedParts | None:
    """What a loop folds, where it is a weighted fold; None of any other."""
    first, *nexts = loop.nexts
    own = {
        cast("tuple[int, int]", term.attribute)[1]: term
        for term in postorder(loop.nexts)
        if term.op == "carry" and cast("tuple[int, int]", term.attribute)[0] == loop.loop.identifier
    }
    if first.op != "max" or first.operands[1].op != "reduce" or len(own) != len(loop.loop.carries):
        return None
    score, inner = first.operands[1].operands[0], first.operands[1].reduce.indices
    starts = [to_bits(value, score.dtype) for value in (float("-inf"), *[0.0] * len(nexts))]
    addends = [following.operands[1].operands[0] for following in nexts if _adds_reduction(following)]
    weights = [term for term in postorder(addends) if term.op == "exp2"]
    if len(inner) != 1 or len(addends) != len(nexts) or [init.attribute for init in loop.inits] != starts:
        return None
    for weight in weights:
        power = f"exp2.{weight.attribute}"
        found = powers(table, power, own[0], score, inner[0])
        following = [
            next_sum(table, own[position], found.scale, addend, inner[0])
            for position, addend in enumerate(addends, 1)
        ]
        if found.weight is weight and [found.highest, *following] == [first, *nexts]:
            factors = [_factor(addend, weight) for addend in addends]
            if None in factors:
                return None
            weighed = tuple(factor for factor in factors if factor is not None and factor is not weight)
            return WeightedParts(score, weighed, inner[0])
    return None


def _adds_reduction(term: Term) -> bool:
    return term.op == "add" and term.operands[1].op == "reduce"


def _factor(addend: Term, weight: Term) -> Term | None:
    """What a weight, rounded or not, is multiplied by in an addend; the weight itself where it stands alone, None where
    the addend is anything else."""
    if addend is weight:
        return weight
    if addend.op != "mul" or unrounded(addend.operands[0]) is not weight:
        return None
    return addend.operands[1]


def unrounded(term: Term) -> Term:
    """What a term is the rounding of, to a narrower float and back; itself where it is none."""
    narrow = term.operands[0] if term.op == "cast" else term
    if term.op != "cast" or narrow.op != "cast":
        return term
    inside = narrow.operands[0]
    rounds = inside.dtype is term.dtype and narrow.dtype.is_float and term.dtype.is_float
    return inside if rounds else term
