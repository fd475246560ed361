"""Products with quantised weights: decoded in registers, never in memory, and right."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dim import as_dim
from luminal.dtype import bf16, f8e4m3fn, f8e5m2, f32
from luminal.emit_triton.kernel import Options
from luminal.plan.gpu_build import build_for_gpu
from luminal.quantised import FORMATS
from tests.emit_triton import quantised
from tests.emit_triton.programs import run_program
from tests.emit_triton.support import check
from tests.emit_triton.support import numbers as moderate
from tests.kernel import regions

INNER, COLUMNS = 512, 128
LONG = ("q6_k", "q4_k", "mxfp8_e5m2", "nvfp4")
"""Formats that take long to interpret, and have much in common with others."""


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        pytest.param(name, rows, marks=pytest.mark.nightly if rows > 1 and name in LONG else ())
        for name in FORMATS
        for rows in (1, 128)
    ],
)
def test_a_product_decodes_its_weights_where_it_multiplies_them(name: str, rows: int) -> None:
    module = quantised.product(name, rows, INNER, COLUMNS)
    program = build_for_gpu(module, "sm_90")
    (function,) = program.functions.values()
    assert not program.plan.arena.blocks and not function.workspaces, "nothing is kept between launches"
    (kernel,) = function.kernels
    dots = [line for line in kernel.source.splitlines() if "tl.dot(" in line]
    assert len(dots) == (rows > 1) and not any("ieee" in line for line in dots)
    inputs = [*quantised.numbers("", rows, INNER), *quantised.numbers(name, COLUMNS, INNER, 1)]
    (found,) = run_program(program, inputs, {})
    right = quantised.wanted(module, inputs)
    assert np.isfinite(right).all() and np.abs(right).max() > 0.1
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=2e-2, atol=2e-2 * np.abs(right).max())


NATIVE = Options(eights=frozenset({"f8e4m3fn", "f8e5m2"}))
TILES = "out0: i:*:parallel k:* i:16:block k:{}:block j:16:block"


@pytest.mark.parametrize("options", [NATIVE, Options()], ids=["native", "bits"])
@pytest.mark.parametrize(
    ("left", "right", "depth", "multiplied"),
    [
        (f8e4m3fn, f8e4m3fn, 32, "f8"),
        (f8e5m2, f8e5m2, 32, "f8"),
        (f8e4m3fn, f8e5m2, 32, "bf16"),
        (bf16, f8e4m3fn, 32, "bf16"),
        (f8e4m3fn, f8e4m3fn, 16, "bf16"),
        (f32, f8e4m3fn, 32, "f32"),
    ],
    ids=str,
)
def test_a_product_of_short_floats(
    left: object, right: object, depth: int, multiplied: str, options: Options
) -> None:
    """Multiplied as they are where the target does, else exactly as bf16."""
    b = regions.Builder()
    reads = [
        b.table.read(0, regions.Affine.of({"i": 48, "k": 1}), left),
        b.table.read(1, regions.Affine.of({"k": 16, "j": 1}), right),
    ]
    wide = [term if term.dtype is f32 else b.table.apply("cast", (term,), "none", f32) for term in reads]
    total = b.total(b.apply("mul", *wide), "k")
    region = b.region({"i": 20, "j": 16, "k": 48}, [20 * 48, 48 * 16], [(total, {"i": 16, "j": 1})])
    region.arguments = [regions.Argument(d, as_dim(n)) for d, n in ((left, 20 * 48), (right, 48 * 16))]
    inputs = [moderate(20 * 48, left), moderate(48 * 16, right, 1)]
    (kernel,) = check(region, TILES.format(depth), inputs, tolerance=1e-5, options=options)
    (line,) = [line for line in kernel.source.splitlines() if "tl.dot(" in line]
    is_native = multiplied == "f8" and options is NATIVE
    assert ("max_num_imprecise_acc=" in line) == is_native
    assert ("tl.bfloat16" in line) == (multiplied != "f32" and not is_native)
    assert ("ieee" in line) == (multiplied == "f32")
