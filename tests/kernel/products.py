"""Regions that sum up products of narrow numbers, and data for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dim import Dim, as_dim
from luminal.dtype import DType, f16, f32, i8, i32, u8


def product(
    m: Dim | int,
    n: Dim | int,
    k: Dim | int,
    dtypes: tuple[DType, DType],
    total: DType,
    transposed: bool = False,
    constant: bool = False,
    bits: int | None = None,
) -> Region:
    """out[i, j] = sum over k of a[i, k] * b[k, j], or b[j, k], widened to the dtype of the sum; `constant`: b is;
    `bits`: so many of the low bits of a count.

    One row has no index i.
    """
    rows, columns, inner = map(as_dim, (m, n, k))
    table = TermTable()
    row = {} if m == 1 else {"i": rows}
    a = table.read(0, Affine.of({**dict.fromkeys(row, inner), "k": 1}), dtypes[0])
    strides = {"k": 1, "j": inner} if transposed else {"k": columns, "j": 1}
    b = table.read(1, Affine.of(strides), dtypes[1])
    if bits is not None:
        a = table.apply("bits", (a, table.constant((1 << bits) - 1, dtypes[0])), "and", dtypes[0])
    left, right = (table.apply("cast", (x,), "none", total) for x in (a, b))
    result = table.reduce("sum", ["k"], (table.apply("mul", (left, right), None, total),))
    address = Affine.of({**dict.fromkeys(row, columns), "j": 1})
    output = Output(result, rows * columns, address, indices=frozenset({"j", *row}))
    arguments = [Argument(dtypes[0], rows * inner), Argument(dtypes[1], inner * columns, constant)]
    return Region(table, {**row, "j": columns, "k": inner}, arguments, [output])


def integers(rng: np.random.Generator, size: int, dtype: DType) -> np.ndarray:
    """All values, the limits more often than others."""
    limits = np.iinfo(dtype.numpy)
    values = rng.integers(limits.min, limits.max, size, endpoint=True)
    often = rng.integers(0, 3, size)
    return np.where(often == 0, limits.min, np.where(often == 1, limits.max, values)).astype(dtype.numpy)


def inputs(region: Region, dims: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = [(a.dtype, a.elements.evaluate(dims)) for a in region.arguments]
    return [
        rng.standard_normal(size).astype(dtype.numpy) if dtype.is_float else integers(rng, size, dtype)
        for dtype, size in sizes
    ]


def blocks(
    m: Dim | int, n: int, count: int, block: int, weights: DType = i8, nibbles: bool = False
) -> Region:
    """out[i, j] = sum over b of s[j, b] * t[i, b] * (sum over l of w[j, b, l] * x[i, b, l]), the inner one in i32.

    One row has no index i.  `nibbles`: w holds two values in a byte, the first half of a block in the low bits, of
    which 8 is taken.
    """
    rows, columns, number, size = map(as_dim, (m, n, count, block))
    table = TermTable()

    def wide(term: Term, dtype: DType) -> Term:
        return table.apply("cast", (term,), "none", dtype)

    half = block // 2
    inner = {"h": half, "l": 1} if nibbles else {"l": 1}
    row = {} if m == 1 else {"i": as_dim(1)}
    x = table.read(0, Affine.of({**dict.fromkeys(row, number * size), "b": size, **inner}), i8)
    if nibbles:
        byte = table.read(1, Affine.of({"j": number * half, "b": half, "l": 1}), u8)
        shift = wide(table.index(Affine.of({"h": 4})), u8)
        low = table.apply(
            "bits", (table.apply("bits", (byte, shift), "shr", u8), table.constant(15, u8)), "and", u8
        )
        w = table.apply("add", (wide(low, i8), table.constant(0xF8, i8)), None, i8)
    else:
        w = table.read(1, Affine.of({"j": number * size, "b": size, "l": 1}), weights)
    products = table.apply("mul", (wide(w, i32), wide(x, i32)), None, i32)
    total = wide(table.reduce("sum", [*inner], (products,)), f32)
    scale = wide(table.read(2, Affine.of({"j": number, "b": 1}), f16), f32)
    scales = table.apply(
        "mul", (scale, table.read(3, Affine.of({**dict.fromkeys(row, number), "b": 1}), f32)), None, f32
    )
    result = table.reduce("sum", ["b"], (table.apply("mul", (scales, total), None, f32),))
    address = Affine.of({**dict.fromkeys(row, columns), "j": 1})
    output = Output(result, rows * columns, address, indices=frozenset({"j", *row}))
    arguments = [
        Argument(i8, rows * number * size),
        Argument(u8 if nibbles else weights, columns * number * (half if nibbles else size), True),
        Argument(f16, columns * number, True),
        Argument(f32, rows * number),
    ]
    extents = {"h": as_dim(2), "l": as_dim(half)} if nibbles else {"l": size}
    extents |= dict.fromkeys(row, rows)
    return Region(table, {"j": columns, "b": number, **extents}, arguments, [output])


def fields(m: int, n: int, count: int, size: int) -> Region:
    """out[i, j] = sum over b, g, h of s[j, b] * (sum over l of w[j, b, g, h, l] * x[i, b, g, h, l]), the inner one in
    i32, where w has six bits: four of them in a byte that two g share, two in a byte that all g and h share."""
    rows, columns, number, length = map(as_dim, (m, n, count, size))
    table = TermTable()

    def wide(term: Term, dtype: DType) -> Term:
        return table.apply("cast", (term,), "none", dtype)

    def field(byte: Term, place: Affine, mask: int) -> Term:
        shifted = table.apply("bits", (byte, wide(table.index(place), u8)), "shr", u8)
        return table.apply("bits", (shifted, table.constant(mask, u8)), "and", u8)

    group = {"g": 2 * length, "h": length}
    x = table.read(0, Affine.of({"i": number * 4 * length, "b": 4 * length, **group, "l": 1}), i8)
    low = table.read(1, Affine.of({"j": number * 2 * length, "b": 2 * length, "h": length, "l": 1}), u8)
    high = table.read(2, Affine.of({"j": number * length, "b": length, "l": 1}), u8)
    above = field(high, Affine.of({"g": 4, "h": 2}), 3)
    above = table.apply("bits", (above, table.constant(4, u8)), "shl", u8)
    w = table.apply("bits", (field(low, Affine.of({"g": 4}), 15), above), "or", u8)
    products = table.apply("mul", (wide(w, i32), wide(x, i32)), None, i32)
    scale = wide(table.read(3, Affine.of({"j": number, "b": 1}), f16), f32)
    total = wide(table.reduce("sum", ["l"], (products,)), f32)
    result = table.reduce("sum", ["b", "g", "h"], (table.apply("mul", (scale, total), None, f32),))
    output = Output(result, rows * columns, Affine.of({"i": columns, "j": 1}), indices=frozenset("ij"))
    arguments = [
        Argument(i8, rows * number * 4 * length),
        Argument(u8, columns * number * 2 * length, True),
        Argument(u8, columns * number * length, True),
        Argument(f16, columns * number, True),
    ]
    two = as_dim(2)
    extents = {"i": rows, "j": columns, "b": number, "g": two, "h": two, "l": length}
    return Region(table, extents, arguments, [output])
