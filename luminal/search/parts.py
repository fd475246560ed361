"""Reductions over a long index in parts: each part of the index is reduced on its own, and the parts are then combined.

    sum_j x[j]         ->   y[p] = sum_i x[p S + i], kept; sum_p y[p]
    argmax_j x[j], j   ->   y[p] = max_i x[p S + i], k[p] = argmax_i x[p S + i], p S + i, kept; argmax_p y[p], k[p]

The parts are independent of each other, so that a program with few results still has work for every core.  Folds that
an e-graph finds have parts too (`folds.py`), which `part_sizes` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from luminal.dialects.kernel.terms import Affine, LoadAttribute, Region, Term, TermTable
from luminal.dim import Dim, as_dim, typical

PARTS = 16
"""How many parts there are at least, at a typical size of the index."""
SMALLEST = 1024
"""Values of the index in a part, at least."""
FEW = 64
"""Results of which a region may have as many at most: with more there is work for every core."""
FEW_PRODUCTS = 1024
"""As many where each is a sum of products whose sides have indices of their own: a register tile computes many."""
SHORTEST = 512
"""Values of an index whose folds have parts, at least."""
BLOCK = 128
"""Values of a part that is folded as one tile."""
BEST = {"argmax": "max", "argmin": "min"}
"""What gives the value that a monoid carries beside its position."""
ASSOCIATIVE = ("sum", "prod", "max", "min", *BEST)


def region_in_parts(region: Region, licences: frozenset[str]) -> Region | None:
    """The region with the longest of its reduced indices in parts; None where that makes no sense, or is not allowed:
    floats are added and multiplied in another order under the licence reassociate alone."""
    outputs = region.outputs
    if region.inner or region.parents or len(outputs) != 1 or outputs[0].alias >= 0:
        return None
    terms = region.terms()
    if any(term.op in ("loop", "scan") for term in terms):
        return None
    reduced = [term for term in terms if term.op == "reduce" and typical(region.elements(term)) <= _few(term)]
    lengths = {index: typical(region.extents[index]) for term in reduced for index in term.reduce.indices}
    index = max(sorted(lengths), key=lengths.__getitem__, default=None)
    if index is None or lengths[index] < PARTS * SMALLEST:
        return None
    over = [term for term in terms if term.op == "reduce" and index in term.reduce.indices]
    if not all(term in reduced and _may_split(term, index, licences) for term in over):
        return None
    return _Splitting(region, index, _size(lengths[index])).region()


def part_sizes(length: int, results: int) -> list[int]:
    """The sizes of parts that a fold over an index has of a typical length, with so many results."""
    if results > FEW or length < SHORTEST:
        return []
    return sorted({BLOCK, max(BLOCK, _size(max(PARTS, length)))})


def _size(length: int) -> int:
    return 1 << (length // PARTS).bit_length() - 1


def _few(term: Term) -> int:
    """Results of a reduction, at most, with which there is not work for every core."""
    product = term.operands[0]
    if term.reduce.monoid != "sum" or product.op != "mul":
        return FEW
    left, right = product.operands
    return FEW_PRODUCTS if left.free - right.free and right.free - left.free else FEW


def _may_split(term: Term, index: str, licences: frozenset[str]) -> bool:
    monoid = term.reduce.monoid
    exact = monoid in ("max", "min") or not term.dtype.is_float
    return monoid in ASSOCIATIVE and index in term.operands[0].free and (exact or "reassociate" in licences)


class _Splitting:
    """Copies a region's terms, with one index in parts where it is reduced."""

    def __init__(self, source: Region, index: str, size: int) -> None:
        self.source, self.index, self.table = source, index, TermTable()
        self.part, self.inner = f"{index}p", f"{index}i"
        self.weights = {self.part: size, self.inner: 1}
        self.copies: dict[tuple[Term, bool], Term] = {}
        self.kept: list[Term] = []

    def region(self) -> Region:
        source = self.source
        for term in source.terms():
            for inside in (False, True) if self.index in term.free else (False,):
                self.copies[term, inside] = self._copy(term, inside)
        (output,) = source.outputs
        dynamic, guard = (
            None if term is None else self.copies[term, False] for term in (output.dynamic, output.guard)
        )
        made = replace(output, term=self.copies[output.term, False], dynamic=dynamic, guard=guard)
        length = source.extents[self.index]
        extents = dict(source.extents)
        size = self.weights[self.part]
        extents[self.part], extents[self.inner] = (length + (size - 1)) // size, as_dim(size)
        whole = whole_of(source, self.index)
        extents[whole] = length
        parents = {name: (whole, weight) for name, weight in self.weights.items()}
        inner = [term for term in self.kept if term is not made.term]
        return Region(
            self.table, extents, source.arguments, [made], inner, parents, source.is_strict, source.factors
        )

    def _copy(self, term: Term, inside: bool) -> Term:
        over = term.op == "reduce" and self.index in term.reduce.indices
        operands = tuple(
            self.copies[operand, (inside or over) and self.index in operand.free] for operand in term.operands
        )
        if over:
            others = [index for index in term.reduce.indices if index != self.index]
            within = (*others, self.inner)
            monoid = term.reduce.monoid
            partial = [self.table.reduce(monoid, within, operands)]
            if monoid in BEST:
                partial.insert(0, self.table.reduce(BEST[monoid], within, operands[:1]))
            total = self.table.reduce(monoid, (self.part,), tuple(partial))
            self.kept += [*partial, total]
            return total
        free = term.free - {self.index} | frozenset(self.weights) if inside else term.free
        attribute = in_parts(term.attribute, self.index, self.weights) if inside else term.attribute
        return self.table.make(term.op, operands, attribute, term.dtype, free)


def whole_of(region: Region, index: str) -> str:
    """What the parts of a reduced index are parts of: the index, or where results have it too, another one of its
    size."""
    return f"{index}w" if any(index in output.indices for output in region.outputs) else index


def in_parts(attribute: object, index: str, weights: Mapping[str, int]) -> object:
    """An attribute whose addresses speak of the parts of an index, which have these weights."""
    if isinstance(attribute, Affine):
        strides: dict[str, Dim] = dict(attribute.strides)
        stride = strides.pop(index, as_dim(0))
        return Affine.of(
            {**strides, **{part: stride * weight for part, weight in weights.items()}}, attribute.offset
        )
    if isinstance(attribute, LoadAttribute):
        return attribute._replace(address=cast(Affine, in_parts(attribute.address, index, weights)))
    return attribute
