"""Products of narrow floats that a program has computed: rounded as it says, so that matrix units take them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.terms import Affine, Region, Term, is_narrow
from luminal.dtype import DType, bf16, f16, f32
from luminal.graph import Graph
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.search.gpu_factors import round_factors
from luminal.tensor import Tensor
from tests.emit_triton.programs import run_program
from tests.kernel import regions

LENGTH, WIDTH = 48, 16


def attended(dtype: DType, weigh: Callable[[Tensor, Tensor], Tensor]) -> GpuProgram:
    cx = Graph()
    q, k, v = (cx.tensor((2, LENGTH, WIDTH), dtype=dtype) for _ in "qkv")
    weigh(q.matmul(k.transpose(1, 2)).softmax(dim=2), v).output()
    return build_for_gpu(cx.module(), "sm_90")


def dots(program: GpuProgram) -> list[str]:
    kernels = [kernel for function in program.functions.values() for kernel in function.kernels]
    return [line for kernel in kernels for line in kernel.source.splitlines() if "tl.dot(" in line]


def given(dtype: DType) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, LENGTH, WIDTH)).astype(dtype.numpy) for _ in "qkv"]


def wanted(inputs: list[np.ndarray]) -> np.ndarray:
    q, k, v = (array.astype(np.float64) for array in inputs)
    scores = q @ k.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    return weights / weights.sum(2, keepdims=True) @ v


@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
def test_weights_are_rounded_where_the_program_rounds_them(dtype: DType) -> None:
    program = attended(dtype, lambda weights, v: weights.matmul(v))
    assert len(dots(program)) == 2 and not any("ieee" in line for line in dots(program))
    assert len(program.functions) == 1, "a fold"
    inputs = given(dtype)
    (found,) = run_program(program, inputs, {})
    np.testing.assert_allclose(found.astype(np.float64), wanted(inputs), rtol=2e-2, atol=2e-2)


def test_what_the_program_keeps_in_f32_stays_so() -> None:
    def weigh(weights: Tensor, v: Tensor) -> Tensor:
        return weights.cast(f32).exp().matmul(v.cast(f32))

    assert any("ieee" in line for line in dots(attended(bf16, weigh)))


def _contraction(dtype: DType, weigh: Callable[[regions.Builder, Term], Term]) -> Region:
    b = regions.Builder()
    weight = weigh(b, b.read(0, {"i": 64, "k": 1}))
    other = b.table.apply("cast", (b.table.read(1, Affine.of({"k": 64, "j": 1}), dtype),), "none", f32)
    total = b.total(b.apply("mul", weight, other), "k")
    region = b.region({"i": 64, "j": 64, "k": 64}, [4096, 4096], [(total, {"i": 64, "j": 1})])
    region.factors = dtype
    return region


def test_a_form_of_f16_rounds_powers_alone() -> None:
    """A divisor may have left its sum: what was divided may overflow f16, a power of no more than 0 does not."""
    for is_form, weigh, rounds in (
        (False, lambda b, x: b.apply("add", x, x), True),
        (True, lambda b, x: b.apply("add", x, x), False),
        (True, lambda b, x: b.apply("exp2", x, variant="2"), True),
    ):
        region = _contraction(f16, weigh)
        region.parents = {"k": ("k", 1)} if is_form else {}
        (total,) = [term for term in round_factors(region).terms() if term.op == "reduce"]
        assert all(is_narrow(factor) for factor in total.factors) == rounds


def test_the_dtype_of_factors_is_part_of_a_region_s_text() -> None:
    region = regions.softmax(8, 8)
    plain = region_text(region)
    region.factors = bf16
    assert region_text(region) != plain and parse_region(region_text(region)).factors is bf16
