"""Products of signed bytes as those of unsigned and signed ones, which is what some processors multiply:

sum_k a b   ->   sum_k (a + 128) b - 128 sum_k b        exact, since integers wrap
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.dialects.kernel.terms import (
    Region,
    Term,
    TermTable,
    is_narrow_product,
    postorder,
    rewritten,
)
from luminal.dtype import i8, i32, u8

SIGN = 0x80


def region_with_offsets(region: Region) -> Region | None:
    """The region with each sum of products of i8 spelled so; None where there is none."""
    if not any(map(_is_signed_product, region.terms())):
        return None

    def change(table: TermTable, term: Term, new: Mapping[Term, Term]) -> Term | None:
        return _with_offset(table, region, term, new) if _is_signed_product(term) else None

    return rewritten(region, change)


def _is_signed_product(term: Term) -> bool:
    if not is_narrow_product(term):
        return False
    return all(factor.operands[0].dtype is i8 for factor in term.operands[0].operands)


def _with_offset(table: TermTable, region: Region, term: Term, new: Mapping[Term, Term]) -> Term:
    """The offset goes to a factor of constants alone where there is one: rows are few, and their sums cheap."""
    left, right = term.operands[0].operands
    moved, other = (left, right) if _is_constant(region, left) else (right, left)
    narrow = new[moved.operands[0]]
    flipped = table.apply("bits", (narrow, table.constant(SIGN, i8)), "xor", i8)
    unsigned = table.apply("cast", (flipped,), "none", u8)
    wide = table.apply("cast", (unsigned,), "none", i32)
    indices = term.reduce.indices
    total = table.reduce("sum", indices, (table.apply("mul", (wide, new[other]), None, i32),))
    sums = table.reduce("sum", indices, (new[other],))
    correction = table.apply("mul", (sums, table.constant(-SIGN & 0xFFFFFFFF, i32)), None, i32)
    return table.apply("add", (total, correction), None, i32)


def _is_constant(region: Region, term: Term) -> bool:
    loads = [each for each in postorder([term]) if each.op == "load"]
    return all(region.arguments[load.load.argument].constant for load in loads)
