"""Placed kernels as Triton text, run by Triton's interpreter, against the interpreter of regions."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Affine, Argument, Region, Term, TermTable
from luminal.dim import as_dim, dim
from luminal.dtype import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, to_bits, u8
from luminal.errors import ScheduleError
from tests.emit_triton.support import check, elementwise, emit, numbers, output, with_specials
from tests.kernel import regions

M, N, S = dim("m"), dim("n"), dim("s")


@pytest.mark.parametrize("size", [0, 1, 7, 16, 53])
@pytest.mark.parametrize(
    "schedule",
    [
        "out0: i:*:parallel i:16:block",
        "out0: i:*:parallel i:2 i:8:block",
        "out0: i:*:parallel",
        "out0: i:* i:4:block",
    ],
)
def test_elementwise_chain_of_any_size(schedule: str, size: int) -> None:
    def build(table: TermTable, x: list[Term]) -> Term:
        product = table.apply("mul", (x[0], x[1]), None, f32)
        power = table.apply("exp2", (product,), "e", f32)
        return table.apply("max", (table.apply("add", (power, x[0]), None, f32), x[1]), None, f32)

    inputs = [with_specials(numbers(size, seed=seed)) for seed in (1, 2)]
    check(elementwise(S, build, (f32, f32)), schedule, inputs, {"s": size})
    if size:
        check(elementwise(size, build, (f32, f32)), schedule, inputs)


def test_views_and_broadcasting() -> None:
    """A transposed, a reversed and a repeated argument, over ragged blocks."""
    b = regions.Builder()
    left = b.read(0, {"i": 1, "j": M})
    right = b.read(1, {"j": -1}, N - 1)
    value = b.apply("add", b.apply("mul", left, right), b.read(2, {}))
    region = b.region({"i": M, "j": N}, [M * N, N, 1], [(value, {"i": N, "j": 1})])
    for m, n in ((5, 9), (1, 1), (0, 3), (33, 16)):
        inputs = [numbers(m * n), numbers(n, seed=1), numbers(1, seed=2)]
        for schedule in (
            "out0: i:*:parallel j:*:parallel i:8:block j:4:block",
            "out0: j:*:parallel i:* i:4:block j:16:block",
            "out0: i:*:parallel j:*",
        ):
            check(region, schedule, inputs, {"m": m, "n": n}, tolerance=0)


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool_], ids=str)
def test_moving_every_dtype_is_exact(dtype: DType) -> None:
    table, extents = TermTable(), {"i": S, "j": as_dim(5)}
    read = table.read(0, Affine.of({"i": 1, "j": S}), dtype)
    flag = table.read(1, Affine.of({"j": 1}), bool_)
    picked = table.apply("select", (flag, read, table.constant(to_bits(1, dtype), dtype)), None, dtype)
    region = Region(
        table,
        extents,
        [Argument(dtype, S * 5), Argument(bool_, as_dim(5))],
        [output(picked, {"i": 5, "j": 1}, extents)],
    )
    for size in (1, 9):
        inputs = [numbers(size * 5, dtype), numbers(5, bool_)]
        if dtype.is_float:
            inputs[0] = with_specials(inputs[0])
        check(region, "out0: i:*:parallel i:4:block j:8:block", inputs, {"s": size}, tolerance=0)


@pytest.mark.parametrize("shape", [(3, 40), (4, 64), (1, 1), (0, 5), (5, 7)])
def test_softmax_rows(shape: tuple[int, int]) -> None:
    m, n = shape
    for schedule in (
        "out0: i:*:parallel j:* i:2:block j:16:block",
        "out0: i:*:parallel j:*:masked j:8:block",
    ):
        check(regions.softmax(M, N), schedule, [numbers(m * n)], {"m": m, "n": n})


def test_softmax_of_a_whole_row_in_one_block() -> None:
    values = numbers(5 * 40)
    values[40:80], values[85], values[120] = -np.inf, np.nan, np.inf
    check(regions.softmax(M, 40), "out0: i:*:parallel i:4:block j:64:block", [values], {"m": 5})


def test_layer_norm() -> None:
    inputs = [numbers(7 * 24), numbers(24, seed=1)]
    for schedule in ("out0: i:*:parallel i:2:block j:32:block", "out0: i:*:parallel i:4:block j:* j:8:block"):
        check(regions.layer_norm(M, 24), schedule, inputs, {"m": 7})


REDUCTIONS = {
    "i": ["out0: j:*:parallel i:8:block j:16:block", "out0: j:*:parallel i:* i:2:block j:4:block"],
    "j": ["out0: i:*:parallel i:8:block j:16:block", "out0: i:*:parallel j:* i:2:block j:4:block"],
    "ij": ["out0: i:8:block j:16:block", "out0: i:* j:* i:2:block j:4:block"],
}


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [f64, f32, bf16, i64, i32, i8, u8, bool_], ids=str)
@pytest.mark.parametrize("axes", REDUCTIONS)
def test_reductions_over_each_axis(monoid: str, dtype: DType, axes: str) -> None:
    """Sums and products of narrow floats are in f32, as regions spell them."""
    b = regions.Builder(dtype)
    x = b.read(0, {"i": 9, "j": 1})
    if dtype is bf16 and monoid in ("sum", "prod"):
        x = b.table.apply("cast", (x,), "none", f32)
    extents = {"i": as_dim(5), "j": as_dim(9)}
    kept = {index: 1 for index in "ij" if index not in axes}
    result = output(b.total(x, *axes, monoid=monoid), kept, extents)
    region = Region(b.table, extents, [Argument(dtype, as_dim(45))], [result])
    values = numbers(45, dtype)
    for schedule in REDUCTIONS[axes]:
        check(region, schedule, [values])
        if dtype.is_float and monoid in ("max", "min"):
            check(region, schedule, [with_specials(values)], tolerance=0)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_the_first_of_equal_ones_and_nan_first(kind: str) -> None:
    b = regions.Builder()
    x = b.read(0, {"i": N, "j": 1})
    value = b.table.reduce(kind, ["j"], (x, b.table.index(Affine.of({"j": 1}))))
    region = b.region({"i": M, "j": N}, [M * N], [(value, {"i": 1})])
    values = np.round(numbers(6 * 21))
    values[30], values[35], values[42:63] = np.nan, np.nan, 1
    for schedule in ("out0: i:*:parallel i:2:block j:* j:8:block", "out0: i:*:parallel j:*"):
        check(region, schedule, [values], {"m": 6, "n": 21})
        check(region, schedule, [values[:0]], {"m": 6, "n": 0})


def test_running_sums() -> None:
    for n in (9, 1, 0):
        check(
            regions.cumulative(M, N), "out0: i:*:parallel i:4:block j:*", [numbers(5 * n)], {"m": 5, "n": n}
        )


def test_outputs_of_several_shapes_are_several_kernels() -> None:
    kernels = check(
        regions.transposed_sum(M, 12),
        "out0: j:*:parallel i:*:parallel j:4:block i:8:block; out1: j:*:parallel i:* j:4:block i:8:block",
        [numbers(9 * 12), numbers(9 * 12, seed=1)],
        {"m": 9},
    )
    assert [kernel.name for kernel in kernels] == ["kernel_0", "kernel_1"]


def test_a_term_that_is_kept_for_another_kernel_has_a_workspace() -> None:
    region = regions.softmax(M, 40)
    terms = region.terms()
    largest = next(n for n, t in enumerate(terms) if t.op == "reduce")
    kernels = check(
        region,
        f"out0: i:*:parallel i:2:block j:64:block; keep %{largest} as i:* at kernel: "
        "i:*:parallel i:4:block j:64:block",
        [numbers(6 * 40)],
        {"m": 6},
    )
    assert [p.name for p in kernels[0].parameters] == ["arg0", "out0", "work0", "m"]
    assert str(kernels[0].parameters[2].elements) == "m"
    assert len(kernels) == 2


def test_what_is_known_before_a_parallel_loop_is_not_known_behind_it() -> None:
    """Three outputs, of which the first and the last share a sum."""
    b = regions.Builder()
    x = b.read(0, {"k": 1})
    total = b.total(x, "k")
    outputs = [
        (total, {}),
        (b.apply("mul", x, b.number(2)), {"k": 1}),
        (b.apply("add", total, b.number(1)), {}),
    ]
    region = b.region({"k": 12}, [12], outputs)
    between = "out1: k:*:parallel k:4:block"
    with pytest.raises(ScheduleError, match="keep it at kernel"):
        emit(region, f"out0: k:* k:4:block; {between}; out2: k:* k:4:block")
    check(region, f"out0: k:* k:4:block; out2: k:* k:4:block; {between}", [numbers(12)])
