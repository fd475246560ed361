"""Products of numbers of few bits with scales: found by what they give, and multiplied as they are where that is
possible."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dialects.kernel.placed import ContractOp
from luminal.dialects.kernel.terms import Affine, Region
from luminal.dtype import DType, bf16, f8e4m3fn, f32, i8
from luminal.emit_triton.kernel import TritonKernel
from luminal.emit_triton.scaled import NUMBERS, scaled_factor
from luminal.emit_triton.targets import target_named
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.search.gpu_factors import prepared_factors
from tests.emit_triton import quantised
from tests.emit_triton.programs import run_program
from tests.kernel import regions

INNER, ROWS = 512, 128
NIGHTLY = pytest.mark.nightly
TARGETS = {
    ("mxfp8", "sm_100"): "kind::mxf8f6f4.block_scale",
    ("mxfp8", "sm_120"): "kind::mxf8f6f4.block_scale",
    ("mxfp8", "gfx950"): "mfma_scale",
    ("mxfp4", "sm_100"): "kind::mxf4.block_scale",
    ("mxfp4", "sm_120"): "kind::mxf4nvf4.block_scale.scale_vec::2X",
    ("mxfp4", "gfx950"): "mfma_scale",
    ("nvfp4", "sm_100"): "kind::mxf4nvf4.block_scale",
    ("nvfp4", "sm_120"): "kind::mxf4nvf4.block_scale.scale_vec::4X",
    ("mxfp8 mxfp4", "sm_100"): "kind::mxf8f6f4.block_scale",
    ("mxfp8 mxfp4", "gfx950"): "mfma_scale",
}
"""What multiplies two formats, by target."""
USUAL = (
    ("mxfp8", "sm_120"),
    ("mxfp8", "gfx950"),
    ("mxfp4", "sm_100"),
    ("nvfp4", "sm_120"),
    ("mxfp8 mxfp4", "gfx950"),
)
"""Each kind of instruction once."""


def built(left: str, right: str, target: str) -> tuple[GpuProgram, TritonKernel]:
    program = build_for_gpu(quantised.product(right, ROWS, INNER, ROWS, left), target)
    (function,) = program.functions.values()
    (kernel,) = function.kernels
    return program, kernel


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("mxfp4", "mxfp8"),
        ("mxfp8_e5m2", "mxfp4"),
        ("nvfp4", "nvfp4"),
        pytest.param("mxfp8", "mxfp8", marks=NIGHTLY),
        pytest.param("mxfp8_e5m2", "mxfp8", marks=NIGHTLY),
        pytest.param("mxfp4", "mxfp4", marks=NIGHTLY),
        pytest.param("mxfp8", "mxfp4", marks=NIGHTLY),
    ],
)
def test_a_product_of_scaled_numbers(left: str, right: str) -> None:
    program, kernel = built(left, right, "sm_100")
    assert "tl.dot_scaled(" in kernel.source and "tl.dot(" not in kernel.source
    inputs = [*quantised.numbers(left, ROWS, INNER), *quantised.numbers(right, ROWS, INNER, 1)]
    (found,) = run_program(program, inputs, {})
    right_one = quantised.wanted(quantised.product(right, ROWS, INNER, ROWS, left), inputs)
    np.testing.assert_allclose(
        found.astype(np.float64), right_one, rtol=1e-2, atol=1e-2 * np.abs(right_one).max()
    )


@pytest.mark.parametrize(
    ("names", "target"),
    [*USUAL, *(pytest.param(*each, marks=NIGHTLY) for each in TARGETS if each not in USUAL)],
)
def test_the_matrix_units_take_the_scales(names: str, target: str) -> None:
    """On sm_100 those that work on 128 rows at a time."""
    left, right = (names.split() * 2)[:2]
    program = build_for_gpu(quantised.product(right, 4096, 4096, 4096, left), target)
    (function,) = program.functions.values()
    assert TARGETS[names, target] in function.compiled[0].assembly


@pytest.mark.parametrize(
    ("left", "right", "target"),
    [
        ("mxfp8", "mxfp8", "sm_90"),
        ("", "mxfp8", "sm_100"),
        ("nvfp4", "nvfp4", "gfx950"),
        ("nvfp4", "mxfp4", "sm_100"),
        ("Q8_0", "mxfp8", "sm_100"),
    ],
)
def test_others_are_decoded(left: str, right: str, target: str) -> None:
    """Where the target has no such units, a factor has no scales or others, or the groups of the two differ."""
    _, kernel = built(left, right, target)
    assert "tl.dot_scaled(" not in kernel.source and "tl.dot(" in kernel.source


def test_a_scalar_leaves_the_sum_only_under_licences_and_beside_bytes() -> None:
    def region(dtype: DType) -> Region:
        b = regions.Builder()
        number = b.table.apply("cast", (b.table.read(0, Affine.of({"i": 64, "k": 1}), dtype),), "none", f32)
        scaled = b.apply("mul", number, b.table.read(2, Affine.of({}), f32))
        total = b.total(b.apply("mul", scaled, b.read(1, {"k": 64, "j": 1})), "k")
        return b.region({"i": 64, "j": 64, "k": 64}, [4096, 4096, 1], [(total, {"i": 64, "j": 1})])

    for dtype, licences, leaves in (
        (f8e4m3fn, ("distribute", "keep-wide"), True),
        (i8, ("distribute", "keep-wide"), True),
        (f8e4m3fn, ("distribute",), False),
        (bf16, ("distribute", "keep-wide"), False),
    ):
        (total,) = [t for t in prepared_factors(region(dtype), licences).terms() if t.op == "reduce"]
        assert (total.factors[0].op == "cast") == leaves, (dtype, licences)


def test_a_format_is_what_its_bytes_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one number of 256 changed it is another."""
    program, _ = built("mxfp8", "mxfp8", "sm_90")
    (function,) = program.functions.values()
    products = [op for op in function.candidate.function.walk() if isinstance(op, ContractOp)]
    formats = target_named("sm_100").machine.scaled
    for op in products:
        found = [scaled_factor(value, formats) for value in (op.left, op.right)]
        assert [factor.format.numbers for factor in found if factor is not None] == ["e4m3", "e4m3"]
    changed = NUMBERS["e4m3"].copy()
    changed[17] *= 2
    monkeypatch.setitem(NUMBERS, "e4m3", changed)
    assert all(scaled_factor(op.left, formats) is None for op in products)
