"""Regions built by hand for the tests of schedules and placement; sizes are ints or dims."""

from __future__ import annotations

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dim import Dim, as_dim
from luminal.dtype import DType, bool_, f32, i64, to_bits

Size = Dim | int


class Builder:
    """Spells terms of one dtype."""

    def __init__(self, dtype: DType = f32) -> None:
        self.table = TermTable()
        self.dtype = dtype

    def read(self, argument: int, strides: dict[str, Size], offset: Size = 0) -> Term:
        return self.table.read(argument, Affine.of(strides, offset), self.dtype)

    def number(self, value: float) -> Term:
        return self.table.constant(to_bits(value, self.dtype), self.dtype)

    def apply(self, op: str, *operands: Term, variant: str | None = None) -> Term:
        return self.table.apply(op, operands, variant, bool_ if op == "less_than" else self.dtype)

    def minus(self, left: Term, right: Term) -> Term:
        return self.apply("add", left, self.apply("mul", right, self.number(-1)))

    def total(self, value: Term, *indices: str, monoid: str = "sum") -> Term:
        return self.table.reduce(monoid, indices, (value,))

    def region(
        self,
        extents: dict[str, Size],
        sizes: list[Size],
        outputs: list[tuple[Term, dict[str, Size]]],
        inner: tuple[Term, ...] = (),
    ) -> Region:
        dims = {name: as_dim(extent) for name, extent in extents.items()}
        made: list[Output] = []
        for term, strides in outputs:
            elements = as_dim(1)
            for index in strides:
                elements = elements * dims[index]
            made.append(Output(term, elements, Affine.of(strides), indices=frozenset(strides)))
        return Region(self.table, dims, [Argument(self.dtype, as_dim(s)) for s in sizes], made, list(inner))


def matmul(m: Size, n: Size, k: Size, dtype: DType = f32) -> Region:
    """max(a @ b + bias, 0)"""
    b = Builder(dtype)
    product = b.apply("mul", b.read(0, {"i": k, "k": 1}), b.read(1, {"k": n, "j": 1}))
    value = b.apply("max", b.apply("add", b.total(product, "k"), b.read(2, {"j": 1})), b.number(0))
    return b.region({"i": m, "j": n, "k": k}, [as_dim(m) * k, as_dim(k) * n, n], [(value, {"i": n, "j": 1})])


def softmax(m: Size, n: Size) -> Region:
    b = Builder()
    x = b.read(0, {"i": n, "j": 1})
    p = b.apply("exp2", b.minus(x, b.total(x, "j", monoid="max")), variant="e")
    value = b.apply("recip", p, b.total(p, "j"), variant="none")
    return b.region({"i": m, "j": n}, [as_dim(m) * n], [(value, {"i": n, "j": 1})])


def layer_norm(m: Size, n: int) -> Region:
    b = Builder()
    x = b.read(0, {"i": n, "j": 1})
    centred = b.minus(x, b.apply("mul", b.total(x, "j"), b.number(1 / n)))
    variance = b.apply("mul", b.total(b.apply("mul", centred, centred), "j"), b.number(1 / n))
    scale = b.apply(
        "recip", b.number(1), b.apply("sqrt", b.apply("add", variance, b.number(1e-5))), variant="none"
    )
    value = b.apply("mul", b.apply("mul", centred, scale), b.read(1, {"j": 1}))
    return b.region({"i": m, "j": n}, [as_dim(m) * n, n], [(value, {"i": n, "j": 1})])


def attention(h: Size, s: Size, d: int, merged: bool = True) -> Region:
    """softmax(q @ k.T) @ v for each of h heads of s rows."""
    b = Builder()
    s = as_dim(s)
    q, k = b.read(0, {"h": s * d, "i": d, "d": 1}), b.read(1, {"h": s * d, "j": d, "d": 1})
    v = b.read(2, {"h": s * d, "j": d, "e": 1})
    score = b.apply("mul", b.total(b.apply("mul", q, k), "d"), b.number(0.125))
    p = b.apply("exp2", b.minus(score, b.total(score, "j", monoid="max")), variant="e")
    p = b.apply("recip", p, b.total(p, "j"), variant="none")
    value = b.total(b.apply("mul", p, v), "j")
    strides: dict[str, Size] = {"h": s * d, "i": d, "e": 1}
    extents: dict[str, Size] = {"h": h, "i": s, "j": s, "d": d, "e": d}
    return b.region(extents, [s * h * d] * 3, [(value, strides)], (score, p) if merged else ())


def transposed_sum(m: Size, n: Size) -> Region:
    """x.T + y, and the sum of each column of x: two outputs with different loops."""
    b = Builder()
    x = b.read(0, {"i": n, "j": 1})
    y = b.read(1, {"j": m, "i": 1})
    value = b.apply("add", x, y)
    return b.region(
        {"i": m, "j": n},
        [as_dim(m) * n, as_dim(m) * n],
        [(value, {"j": m, "i": 1}), (b.total(x, "i"), {"j": 1})],
    )


def cumulative(m: Size, n: Size) -> Region:
    b = Builder()
    value = b.apply("mul", b.table.scan("sum", "j", b.read(0, {"i": n, "j": 1})), b.number(2))
    return b.region({"i": m, "j": n}, [as_dim(m) * n], [(value, {"i": n, "j": 1})])


def argmax(m: Size, n: Size) -> Region:
    b = Builder()
    x = b.read(0, {"i": n, "j": 1})
    value = b.table.reduce("argmax", ["j"], (x, b.table.index(Affine.of({"j": 1}))))
    assert value.dtype == i64
    return b.region({"i": m, "j": n}, [as_dim(m) * n], [(value, {"i": 1})])


def convolution(n: Size, c: int, o: int) -> Region:
    """A window of 3 over padded rows of c channels: a reduction over two indices."""
    b = Builder()
    x, w = b.read(0, {"n": c, "r": c, "c": 1}), b.read(1, {"r": c * o, "c": o, "o": 1})
    value = b.total(b.apply("mul", x, w), "r", "c")
    return b.region(
        {"n": n, "o": o, "r": 3, "c": c}, [(as_dim(n) + 2) * c, 3 * c * o], [(value, {"n": o, "o": 1})]
    )


def folded(m: Size, n: int) -> Region:
    """sum over j of x[i, j] as a carried loop that also carries the running maximum."""
    b = Builder()
    x = b.read(0, {"i": n, "j": 1})
    low = b.number(-1e30)
    zero = b.number(0)
    free = frozenset({"i"})
    carries = b.table.carries("j", [(f32, free), (f32, free)])
    largest = b.apply("max", carries[0], x)
    rescale = b.apply("exp2", b.minus(carries[0], largest), variant="e")
    total = b.apply(
        "add", b.apply("mul", carries[1], rescale), b.apply("exp2", b.minus(x, largest), variant="e")
    )
    maximum, summed = b.table.loop("j", carries, [low, zero], [largest, total])
    value = b.apply("add", maximum, b.apply("log2", summed, variant="e"))
    return b.region({"i": m, "j": n}, [as_dim(m) * n], [(value, {"i": 1})])
