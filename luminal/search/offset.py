"""Products of signed bytes as those of unsigned and signed ones, which is what some processors multiply:

sum_k a b   ->   sum_k (a + 128) b - 128 sum_k b        exact, since integers wrap
"""

from __future__ import annotations

from dataclasses import replace

from luminal.dialects.kernel.terms import Region, Term, TermTable, is_narrow_product, postorder
from luminal.dtype import i8, i32, u8

SIGN = 0x80


def region_with_offsets(region: Region) -> Region | None:
    """The region with each sum of products of i8 spelled so; None where there is none."""
    table = TermTable()
    renamed: dict[Term, Term] = {}
    found = False
    for term in region.terms():
        operands = tuple(renamed[operand] for operand in term.operands)
        if _is_signed_product(term):
            found = True
            renamed[term] = _with_offset(table, region, term, renamed)
        else:
            renamed[term] = table.make(term.op, operands, term.attribute, term.dtype, term.free)
    if not found:
        return None
    outputs = [
        replace(
            output,
            term=renamed[output.term],
            dynamic=None if output.dynamic is None else renamed[output.dynamic],
            guard=None if output.guard is None else renamed[output.guard],
        )
        for output in region.outputs
    ]
    return replace(region, table=table, outputs=outputs, inner=[renamed[term] for term in region.inner])


def _is_signed_product(term: Term) -> bool:
    if not is_narrow_product(term):
        return False
    return all(factor.operands[0].dtype is i8 for factor in term.operands[0].operands)


def _with_offset(table: TermTable, region: Region, term: Term, renamed: dict[Term, Term]) -> Term:
    """The offset goes to a factor of constants alone where there is one: rows are few, and their sums cheap."""
    left, right = term.operands[0].operands
    moved, other = (left, right) if _is_constant(region, left) else (right, left)
    narrow = renamed[moved.operands[0]]
    flipped = table.apply("bits", (narrow, table.constant(SIGN, i8)), "xor", i8)
    unsigned = table.apply("cast", (flipped,), "none", u8)
    wide = table.apply("cast", (unsigned,), "none", i32)
    indices = term.reduce.indices
    total = table.reduce("sum", indices, (table.apply("mul", (wide, renamed[other]), None, i32),))
    sums = table.reduce("sum", indices, (renamed[other],))
    correction = table.apply("mul", (sums, table.constant(-SIGN & 0xFFFFFFFF, i32)), None, i32)
    return table.apply("add", (total, correction), None, i32)


def _is_constant(region: Region, term: Term) -> bool:
    loads = [each for each in postorder([term]) if each.op == "load"]
    return all(region.arguments[load.load.argument].constant for load in loads)
