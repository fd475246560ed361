"""Spells small regions for the examples of rules, f32 unless said otherwise: rows i, columns j and k, and m and n, of
which there may be any number, none included."""

from __future__ import annotations

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dim import Dim, as_dim, dim, product
from luminal.dtype import DType, f32, to_bits

SIZES = {"i": 3, "j": 5, "k": 4}


class Spelling:
    """Makes terms of one table; every `read` is another argument."""

    def __init__(self) -> None:
        self.table = TermTable()
        self.arguments: list[Argument] = []
        self.extents: dict[str, Dim] = {name: as_dim(size) for name, size in SIZES.items()}
        self.extents.update((name, dim(name, min=0)) for name in "mn")

    def read(self, *indices: str, dtype: DType = f32) -> Term:
        """A tensor over some indices, row-major."""
        strides: dict[str, Dim] = {}
        for position, index in enumerate(indices):
            strides[index] = product(self.extents[inner] for inner in indices[position + 1 :])
        self.arguments.append(Argument(dtype, product(self.extents[index] for index in indices)))
        return self.table.read(len(self.arguments) - 1, Affine.of(strides), dtype)

    def number(self, value: float, dtype: DType = f32) -> Term:
        return self.table.constant(to_bits(value, dtype), dtype)

    def apply(self, op: str, *operands: Term, variant: str | None = None) -> Term:
        return self.table.apply(op, operands, variant, operands[-1].dtype)

    def minus(self, left: Term, right: Term) -> Term:
        return self.apply("add", left, self.apply("mul", right, self.number(-1.0, right.dtype)))

    def divide(self, left: Term, right: Term) -> Term:
        return self.apply("recip", left, right, variant="none")

    def exp(self, value: Term) -> Term:
        return self.apply("exp2", value, variant="e")

    def total(self, value: Term, *indices: str, monoid: str = "sum") -> Term:
        return self.table.reduce(monoid, indices, (value,))

    def weights(self, scores: Term, *indices: str) -> Term:
        """exp(scores - max scores): the numerators of a softmax over some indices."""
        return self.exp(self.minus(scores, self.total(scores, *indices, monoid="max")))

    def region(self, term: Term) -> Region:
        """The region that computes a term, row-major in the order of its indices."""
        free = sorted(term.free)
        strides = {i: product(self.extents[inner] for inner in free[n + 1 :]) for n, i in enumerate(free)}
        elements = product(self.extents[index] for index in free)
        output = Output(term, elements, Affine.of(strides), indices=frozenset(free))
        return Region(self.table, self.extents, self.arguments, [output])
