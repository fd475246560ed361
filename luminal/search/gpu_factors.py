"""Factors of sums of products as the matrix units take them: of the program's narrow dtype, and without scalars.

Terms compute narrow floats in f32 and leave roundings between operations out, as the licence keep-wide allows.  Matrix
units multiply narrow operands many times as fast, so here the factors are rounded again, as the program says.  In a
fold the factor is the program's times a divisor that has left the sum, which is no less than one: that rounds as far,
where nothing overflows.

    sum_k bf16(n[k] s[k] g) x[k]   ->   g sum_k bf16(n[k] s[k]) x[k]

A scalar g that numbers of 8 bits or less are multiplied by leaves the sum, under the licences distribute and keep-wide:
what is left may be what the matrix units decode themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from luminal.dialects.kernel.terms import Region, Term, TermTable, is_narrow, postorder, rewritten
from luminal.dtype import DType, bf16, f32


def prepared_factors(region: Region, licences: Collection[str]) -> Region:
    """A region, or form of one, with its factors as the matrix units take them best; itself where nothing changes."""
    if {"distribute", "keep-wide"} <= {*licences} and not region.is_strict:
        region = free_scalars(region)
    return round_factors(region)


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


def free_scalars(region: Region) -> Region:
    """A region with its sums multiplied by the scalars that their factors of few bits were; itself without such."""
    if not any(_parts(factor)[1] for term in region.terms() for factor in term.factors):
        return region

    def change(table: TermTable, term: Term, new: Mapping[Term, Term]) -> Term | None:
        parts = [_parts(new[factor]) for factor in term.factors]
        scalars = [scalar for _, found in parts for scalar in found]
        if not scalars:
            return None
        rests = tuple(_without(table, factor, found) for factor, found in parts)
        operands = (table.apply("mul", rests, None, f32),)
        total = table.make(term.op, operands, term.attribute, term.dtype, term.free)
        for scalar in scalars:
            total = table.apply("mul", (total, scalar), None, f32)
        return total

    freed = rewritten(region, change)
    needed = set(postorder(term for output in freed.outputs for term in output.terms))
    return replace(freed, inner=[term for term in freed.inner if term in needed])


def _parts(factor: Term) -> tuple[Term, tuple[Term, ...]]:
    """A factor and the scalars in it that may leave its sum: f32 numbers beside what is computed from bytes."""
    scalars = tuple(_scalars(factor))
    sizes = [term.dtype.bits for term in postorder([factor]) if term.op == "load" and term not in scalars]
    return factor, scalars if sizes and max(sizes) <= 8 else ()


def _scalars(factor: Term) -> list[Term]:
    if _keeps_range(factor):
        return _scalars(factor.operands[0])
    if factor.op != "mul":
        return [factor] if factor.op == "load" and factor.dtype is f32 and not factor.free else []
    return [scalar for operand in factor.operands for scalar in _scalars(operand)]


def _keeps_range(term: Term) -> bool:
    """Whether a term is a conversion between floats with f32's range."""
    return term.op == "cast" and all(t.dtype in (f32, bf16) for t in (term, term.operands[0]))


def _without(table: TermTable, factor: Term, scalars: Collection[Term]) -> Term:
    """A factor as it is without some scalars."""
    if not scalars or not (_keeps_range(factor) or factor.op == "mul"):
        return factor
    rests = [_without(table, operand, scalars) for operand in factor.operands if operand not in scalars]
    if factor.op == "mul" and len(rests) == 1:
        return rests[0]
    return table.make(factor.op, tuple(rests), factor.attribute, factor.dtype)


def _rounds(factor: Term, dtype: DType, is_form: bool) -> bool:
    """Whether a factor may be rounded: in a form one of f16 only where it is a power, which vanishes and does not
    overflow."""
    return factor.dtype is f32 and (dtype is bf16 or not is_form or factor.op == "exp2")


def _rounded(table: TermTable, factor: Term, dtype: DType) -> Term:
    if is_narrow(factor):
        return factor
    return table.apply("cast", (table.apply("cast", (factor,), "none", dtype),), "none", f32)
