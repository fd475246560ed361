"""Attention as the fold that the search finds, in one kernel: to the last NaN what the region means."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Affine, Argument, Region, Term, TermTable, predicate
from luminal.dim import Dim, as_dim, dim
from luminal.dtype import DType, bf16, f32, to_bits
from luminal.search.forms import folding
from tests.emit_triton.support import LICENCES, check, numbers, output

HEADS, WIDTH, LENGTH = 2, 16, dim("s", min=1)
SCHEDULE = "out0: h:*:parallel i:*:parallel jo:* i:16:block ji:64:block e:16:block d:16:block"


def attention(dtype: DType, mask: str = "") -> Region:
    """softmax(q @ k.T + mask) @ v in f32."""
    table = TermTable()
    size: Dim = LENGTH * WIDTH

    def read(argument: int, strides: dict[str, Dim | int]) -> Term:
        found = table.read(argument, Affine.of(strides), dtype)
        return table.apply("cast", (found,), "none", f32) if dtype is bf16 else found

    def apply(op: str, *operands: Term, variant: str | None = None) -> Term:
        return table.apply(op, operands, variant, f32)

    def number(value: float) -> Term:
        return table.constant(to_bits(value, f32), f32)

    q, k = read(0, {"h": size, "i": WIDTH, "d": 1}), read(1, {"h": size, "j": WIDTH, "d": 1})
    v = read(2, {"h": size, "j": WIDTH, "e": 1})
    score = apply("mul", table.reduce("sum", ["d"], (apply("mul", q, k),)), number(0.25))
    if mask == "given":
        score = apply("add", score, table.read(3, Affine.of({"i": LENGTH, "j": 1}), f32))
    if mask == "causal":
        row, column = (table.index(Affine.of({name: 1})) for name in "ij")
        score = apply("select", predicate(table, row, column), number(float("-inf")), score)
    largest = table.reduce("max", ["j"], (score,))
    p = apply("exp2", apply("add", score, apply("mul", largest, number(-1.0))), variant="e")
    p = apply("recip", p, table.reduce("sum", ["j"], (p,)), variant="none")
    value = table.reduce("sum", ["j"], (apply("mul", p, v),))
    if dtype is bf16:
        value = table.apply("cast", (value,), "none", bf16)
    sizes = {"h": HEADS, "i": LENGTH, "j": LENGTH, "d": WIDTH, "e": WIDTH}
    extents = {name: as_dim(extent) for name, extent in sizes.items()}
    arguments = [Argument(dtype, size * HEADS)] * 3 + [Argument(f32, LENGTH * LENGTH)] * (mask == "given")
    strides: dict[str, Dim | int] = {"h": size, "i": WIDTH, "e": 1}
    return Region(table, extents, arguments, [output(value, strides, extents)])


def inputs(region: Region, length: int) -> list[np.ndarray]:
    return [
        numbers(argument.elements.evaluate({"s": length}), argument.dtype, seed)
        for seed, argument in enumerate(region.arguments)
    ]


@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
@pytest.mark.parametrize("mask", ["", "given", "causal"])
def test_a_fold_is_one_kernel(dtype: DType, mask: str) -> None:
    region = attention(dtype, mask)
    form = next(iter(folding(region, frozenset(LICENCES)))).region
    for length in (1, 16, 64, 70, 130):
        given = inputs(region, length)
        if mask == "given":
            rows = given[3].reshape(length, length)
            rows[:, length // 2 :] = -np.inf  # half a row,
            rows[length // 3] = -np.inf  # and a whole one
        tolerance = 2e-2 if dtype is bf16 else 1e-4
        (kernel,) = check(form, SCHEDULE, given, {"s": length}, tolerance, reference=region)
        assert kernel.source.count("tl.dot") == 2
        assert kernel.source.count("for ") == 1


def test_infinite_scores_and_nan() -> None:
    region = attention(f32)
    form = next(iter(folding(region, frozenset(LICENCES)))).region
    for value in (np.nan, np.inf, -np.inf):
        given = inputs(region, 70)
        given[0][:] = np.abs(given[0]) + 1
        given[1][16 * 30] = value
        check(form, SCHEDULE, given, {"s": 70}, 1e-4, reference=region)


def test_whole_blocks_that_a_mask_hides_are_left_out() -> None:
    """Where all values are finite, which a kernel before asks; else none is."""
    region = attention(f32, "causal")
    form = next(f.region for f in folding(region, frozenset(LICENCES)) if f.name == "folds of 64, bounded")
    (guard,) = (term.guard for term in form.terms() if term.op == "loop")
    assert guard is not None
    keeps = f"keep %{form.numbering()[guard]} as h:* at kernel: h:*:parallel jo:* ji:64:block e:16:block"
    for length, value in ((1, 0.0), (70, 0.0), (200, 0.0), (200, np.inf), (200, np.nan)):
        given = inputs(region, length)
        given[2][-1] = value
        kernels = check(form, f"{SCHEDULE}; {keeps}", given, {"s": length}, 1e-4, reference=region)
        assert len(kernels) == 2
        count = "((s + 63) // 64)"
        last = f"tl.where(work0_value, tl.minimum({count}, tl.cdiv(i * 16 + 16, 64)), {count})"
        assert f"j_last = {last}" in kernels[1].source
        assert "for j in range(0, j_last):" in kernels[1].source
