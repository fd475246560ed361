"""Products of blocks: which become tl.dot, and that they give what the regions mean."""

from __future__ import annotations

import random

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Affine, Argument, Region, Term, TermTable
from luminal.dim import Dim, as_dim, dim
from luminal.dtype import DType, bf16, f16, f32, f64, to_bits
from luminal.emit_triton import aot
from luminal.emit_triton.aot import machine_for
from luminal.emit_triton.kernel import Options
from luminal.emit_triton.targets import target_named
from luminal.errors import ScheduleError
from tests.emit_triton.support import check, numbers, output
from tests.kernel import regions

M, N, K = dim("m"), dim("n"), dim("k")
TOLERANCE = {f64: 1e-12, f32: 1e-5, f16: 2e-3, bf16: 1e-2}


def gemm(m: Dim | int, n: Dim | int, k: Dim | int, dtype: DType, batch: Dim | int = 1) -> Region:
    """gelu(a @ b + bias) for each of a batch, in f32, rounded once."""
    rows, columns, inner, count = map(as_dim, (m, n, k, batch))
    table = TermTable()
    wide = dtype if dtype is f64 else f32

    def read(argument: int, strides: dict[str, Dim | int]) -> Term:
        found = table.read(argument, Affine.of(strides), dtype)
        return table.apply("cast", (found,), "none", f32) if dtype.bits == 16 else found

    def apply(op: str, *operands: Term, variant: str | None = None) -> Term:
        return table.apply(op, operands, variant, wide)

    def number(value: float) -> Term:
        return table.constant(to_bits(value, wide), wide)

    product = apply(
        "mul",
        read(0, {"b": rows * inner, "i": inner, "k": 1}),
        read(1, {"b": inner * columns, "k": columns, "j": 1}),
    )
    value = apply("add", table.reduce("sum", ["k"], (product,)), read(2, {"j": 1}))
    power = apply("exp2", apply("mul", value, number(-1.702)), variant="e")
    value = apply("recip", value, apply("add", power, number(1.0)), variant="none")
    if dtype.bits == 16:
        value = table.apply("cast", (value,), "none", dtype)
    extents = {"b": count, "i": rows, "j": columns, "k": inner}
    strides: dict[str, Dim | int] = {"b": rows * columns, "i": columns, "j": 1}
    sizes = [count * rows * inner, count * inner * columns, columns]
    arguments = [Argument(dtype, size) for size in sizes]
    return Region(table, extents, arguments, [output(value, strides, extents)])


GEMM = "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:16:block k:16:block j:32:block"


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16], ids=str)
@pytest.mark.parametrize("shape", [(16, 32, 16), (33, 40, 50), (1, 1, 1), (5, 3, 0)])
def test_gemm_with_bias_and_gelu(shape: tuple[int, int, int], dtype: DType) -> None:
    m, n, k = shape
    inputs = [numbers(m * k, dtype), numbers(k * n, dtype, 1), numbers(n, dtype, 2)]
    (kernel,) = check(
        gemm(M, N, K, dtype), GEMM, inputs, {"m": m, "n": n, "k": k}, tolerance=TOLERANCE[dtype]
    )
    (line,) = [line for line in kernel.source.splitlines() if "tl.dot" in line]
    assert ("ieee" in line) == (dtype is f32)
    assert "arg0_block, arg1_block" in line


def test_operands_that_are_narrower_stay_so_in_a_dot() -> None:
    (kernel,) = check(
        gemm(32, 32, 32, bf16),
        GEMM,
        [numbers(1024, bf16), numbers(1024, bf16, 1), numbers(32, bf16, 2)],
        tolerance=1e-2,
    )
    assert "arg0_block.to(" not in kernel.source


@pytest.mark.parametrize(
    "schedule",
    [
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:16:block j:32:block k:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* j:32:block k:16:block i:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* b:2:block i:16:block k:16:block j:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* k:2:partial k:16:block i:16:block j:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* k:2:tile k:16:block i:16:block j:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:2:block i:8:block k:16:block j:16:block",
        "out0: i:*:parallel j:*:parallel b:* k:* k:2:unroll i:16:block k:16:block j:16:block",
    ],
)
def test_dots_in_any_order_of_axes(schedule: str) -> None:
    inputs = [numbers(3 * 20 * 50), numbers(3 * 50 * 24, seed=1), numbers(24, seed=2)]
    (kernel,) = check(gemm(20, 24, K, f32, 3), schedule, inputs, {"k": 50})
    assert "tl.dot" in kernel.source


@pytest.mark.parametrize(
    "schedule",
    [
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:4:block k:16:block j:32:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* k:16:block j:32:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* k:16:block",
        "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:16:block j:16:block",
    ],
)
def test_small_products_are_written_out(schedule: str) -> None:
    inputs = [numbers(20 * 50), numbers(50 * 24, seed=1), numbers(24, seed=2)]
    (kernel,) = check(gemm(20, 24, K, f32), schedule, inputs, {"k": 50})
    assert "tl.dot" not in kernel.source


def test_what_is_masked_off_does_not_reach_a_sum() -> None:
    """Infinities beside the ragged edge: exp(x) is 1 where x was not read, and 1 * inf, 0 * inf would show."""
    b = regions.Builder()
    left = b.apply("exp2", b.read(0, {"i": K, "k": 1}), variant="e")
    right = b.apply("recip", b.number(1), b.read(1, {"k": 32, "j": 1}), variant="none")
    value = b.total(b.apply("mul", left, right), "k")
    region = b.region({"i": 16, "j": 32, "k": K}, [K * 16, K * 32], [(value, {"i": 32, "j": 1})])
    inputs = [numbers(16 * 19), np.abs(numbers(19 * 32, seed=1)) + 1]
    for block in ("i:16:block k:16:block j:32:block", "i:4:block k:16:block j:8:block"):
        check(region, f"out0: i:*:parallel j:*:parallel k:* {block}", inputs, {"k": 19})


def test_convolution_over_a_window() -> None:
    region = regions.convolution(M, 4, 8)
    inputs = [numbers(9 * 4), numbers(3 * 4 * 8, seed=1)]
    check(region, "out0: n:*:parallel r:* n:4:block c:4:block o:8:block", inputs, {"m": 7})
    check(region, "out0: n:*:parallel r:4:block n:4:block c:4:block o:8:block", inputs, {"m": 7})


def test_a_dot_over_two_indices() -> None:
    """Window and channels are the inner side together."""
    region = regions.convolution(M, 16, 16)
    inputs = [numbers(22 * 16), numbers(3 * 16 * 16, seed=1)]
    (kernel,) = check(
        region, "out0: n:*:parallel n:16:block r:4:block c:16:block o:16:block", inputs, {"m": 20}
    )
    assert "reshape([16, 64])" in kernel.source


@pytest.mark.parametrize("seed", range(30))
def test_random_blocks_of_a_product(seed: int) -> None:
    """Any split of each index into blocks, in any order: batched, merged and turned dots, and products in full."""
    draw = random.Random(seed)
    grid = draw.sample("bij", draw.randint(0, 3))
    loops = [index for index in draw.sample("bijk", 4) if index not in grid]
    blocks: list[str] = []
    for index in "bijk":
        role = "block" if index != "k" or draw.random() < 0.7 else "tile"
        extents = {"b": [1, 2], "i": [2, 16, 32], "j": [4, 16, 32], "k": [16, 32]}[index]
        blocks.append(f"{index}:{draw.choice(extents)}:{role}")
        if draw.random() < 0.3:
            blocks.append(f"{index}:2:block")
    draw.shuffle(blocks)
    factors = [f"{index}:*:parallel" for index in grid] + [f"{index}:*" for index in loops] + blocks
    inputs = [numbers(2 * 20 * 50), numbers(2 * 50 * 24, seed=1), numbers(24, seed=2)]
    try:
        check(gemm(20, 24, K, f32, 2), f"out0: {' '.join(factors)}", inputs, {"k": 50})
    except ScheduleError as error:
        assert "1048576 at most" in str(error) or "inside a loop over its own index" in str(error)


@pytest.mark.parametrize("shape", [(70, 50, 40), (16, 16, 16), (300, 17, 20)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_grid_in_groups_has_the_same_programs(batch: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    region = gemm(M, N, K, f32, batch) if batch > 1 else gemm(M, N, K, f32)
    inputs = [numbers(batch * m * k), numbers(batch * k * n, seed=1), numbers(n, seed=2)]
    schedule = "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:16:block k:16:block j:16:block"
    dims = {"m": m, "n": n, "k": k}
    (kernel,) = check(region, schedule, inputs, dims, options=Options(group=4))
    assert "inside // count" in kernel.source


def test_a_product_that_the_compiler_does_not_take_is_summed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_named("gfx942")
    monkeypatch.setattr(aot, "triton_version", lambda: "3.8.0")
    assert machine_for(target) is target.machine
    monkeypatch.setattr(aot, "triton_version", lambda: "3.6.0")
    assert not machine_for(target_named("sm_90")).undotted
    inputs = [numbers(33 * 40, f64), numbers(40 * 50, f64, 1), numbers(50, f64, 2)]
    options = Options(undotted=machine_for(target).undotted)
    (kernel,) = check(
        gemm(M, N, K, f64), GEMM, inputs, {"m": 33, "n": 50, "k": 40}, tolerance=1e-12, options=options
    )
    assert "tl.dot(" not in kernel.source and "tl.sum(" in kernel.source
