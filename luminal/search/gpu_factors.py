"""Factors of sums of products as numbers of the narrow dtype that the program gives them, for the matrix units.

Terms compute narrow floats in f32 and leave roundings between operations out, as the licence keep-wide allows.  Matrix
units multiply narrow operands many times as fast, so here the factors are rounded again, as the program says.  In a
fold the factor is the program's times a divisor that has left the sum, which is no less than one: that rounds as far,
where nothing overflows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.dialects.kernel.terms import Region, Term, TermTable, is_narrow, rewritten
from luminal.dtype import DType, bf16, f32


def round_factors(region: Region) -> Region:
    """A region, or form of one, with the factors of its sums rounded to `region.factors`; itself where it has none."""
    dtype = region.factors
    if dtype is None:
        return region
    is_form = bool(region.parents)

    def change(table: TermTable, term: Term, new: Mapping[Term, Term]) -> Term | None:
        rounds = (is_narrow(factor) or _rounds(factor, dtype, is_form) for factor in term.factors)
        if not term.factors or not all(rounds):
            return None
        factors = tuple(_rounded(table, new[factor], dtype) for factor in term.factors)
        operands = (table.apply("mul", factors, None, f32),)
        return table.make(term.op, operands, term.attribute, term.dtype, term.free)

    return replace(rewritten(region, change), factors=None)


def _rounds(factor: Term, dtype: DType, is_form: bool) -> bool:
    """Whether a factor may be rounded: in a form one of f16 only where it is a power, which vanishes and does not
    overflow."""
    return factor.dtype is f32 and (dtype is bf16 or not is_form or factor.op == "exp2")


def _rounded(table: TermTable, factor: Term, dtype: DType) -> Term:
    if is_narrow(factor):
        return factor
    return table.apply("cast", (table.apply("cast", (factor,), "none", dtype),), "none", f32)
