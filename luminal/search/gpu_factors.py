"""Factors of sums of products as numbers of the narrow dtype that the program gives them, for the matrix units.

Terms compute narrow floats in f32 and leave roundings between operations out, as the licence keep-wide allows.  Matrix
units multiply narrow operands many times as fast, so here the factors are rounded again, as the program says.  In a
fold the factor is the program's times a divisor that has left the sum, which is no less than one: that rounds as far,
where nothing overflows.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.dialects.kernel.terms import Output, Region, Term, TermTable, is_narrow
from luminal.dtype import DType, bf16, f32


def round_factors(region: Region) -> Region:
    """A region, or form of one, with the factors of its sums rounded to `region.factors`; itself where it has none."""
    dtype = region.factors
    if dtype is None:
        return region
    is_form = bool(region.parents)
    table, copies = TermTable(), dict[Term, Term]()
    for term in region.terms():
        operands = tuple(copies[operand] for operand in term.operands)
        if term.factors and all(
            is_narrow(factor) or _rounds(factor, dtype, is_form) for factor in term.factors
        ):
            factors = (_rounded(table, copies[factor], dtype) for factor in term.factors)
            operands = (table.apply("mul", tuple(factors), None, f32),)
        copies[term] = table.make(term.op, operands, term.attribute, term.dtype, term.free)

    def output(old: Output) -> Output:
        dynamic, guard = (None if term is None else copies[term] for term in (old.dynamic, old.guard))
        return replace(old, term=copies[old.term], dynamic=dynamic, guard=guard)

    outputs = [output(each) for each in region.outputs]
    kept = [copies[term] for term in region.inner if term in copies]
    return replace(region, table=table, outputs=outputs, inner=kept, factors=None)


def _rounds(factor: Term, dtype: DType, is_form: bool) -> bool:
    """Whether a factor may be rounded: in a form one of f16 only where it is a power, which vanishes and does not
    overflow."""
    return factor.dtype is f32 and (dtype is bf16 or not is_form or factor.op == "exp2")


def _rounded(table: TermTable, factor: Term, dtype: DType) -> Term:
    if is_narrow(factor):
        return factor
    return table.apply("cast", (table.apply("cast", (factor,), "none", dtype),), "none", f32)
