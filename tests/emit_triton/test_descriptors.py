"""Blocks of products that descriptors load, and grids whose programs go over several places in turn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dialects.kernel.terms import Affine, Argument, Region, TermTable
from luminal.dim import Dim, as_dim, dim
from luminal.dtype import bf16, f32
from luminal.emit_triton.aot import compile_kernel, machine_for
from luminal.emit_triton.kernel import Options
from luminal.emit_triton.targets import target_named
from luminal.plan.gpu_build import GpuFunction, build_for_gpu, code_of
from luminal.plan.gpu_code import SCRATCH_ALIGNMENT, code_from_json, code_to_json
from luminal.search.forms import Form
from luminal.search.gpu_candidates import BEHIND, GpuPricer
from luminal.search.samples import Samples
from tests.emit_triton import quantised
from tests.emit_triton.kinds import KINDS
from tests.emit_triton.support import LICENCES, check, emit, numbers, output
from tests.emit_triton.test_products import GEMM, gemm

LARGE = "out0: b:*:parallel i:*:parallel j:*:parallel k:* i:128:block k:64:block j:128:block"
MATRIX = {"sm_90": "wgmma", "sm_100": "tcgen05", "sm_120": "mma.sync"}
PLAIN, PERSISTENT = Options(4, 3, describes=True), Options(8, 3, group=8, describes=True, programs=5)


def by_rows(m: Dim | int, n: int, k: int) -> Region:
    """a b^T: both factors lie along what is summed."""
    table, extents = TermTable(), {"i": as_dim(m), "j": as_dim(n), "k": as_dim(k)}
    left, right = (
        table.apply("cast", (table.read(number, Affine.of({i: k, "k": 1}), bf16),), "none", f32)
        for number, i in enumerate("ij")
    )
    total = table.reduce("sum", ["k"], (table.apply("mul", (left, right), None, f32),))
    arguments = [Argument(bf16, extents[i] * k) for i in "ij"]
    return Region(table, extents, arguments, [output(total, {"i": n, "j": 1}, extents)])


@pytest.mark.parametrize(
    "options", [PLAIN, PERSISTENT, Options(programs=5)], ids=["plain", "persistent", "loads"]
)
@pytest.mark.parametrize("sizes", [(32, 64, 32, 1), (40, 48, 80, 2), (7, 8, 24, 3)], ids=str)
def test_boxes_give_what_loads_give(sizes: tuple[int, int, int, int], options: Options) -> None:
    m, n, k, batch = sizes
    inputs = [numbers(batch * m * k, bf16), numbers(batch * k * n, bf16, 1), numbers(n, bf16, 2)]
    (kernel,) = check(gemm(m, n, k, bf16, batch), GEMM, inputs, tolerance=1e-2, options=options)
    assert kernel.source.count("make_tensor_descriptor(") == 2 * options.describes
    assert ("flatten=True" in kernel.source) == bool(options.programs)
    assert kernel.grid.evaluate({}) <= (options.programs or 1 << 20)


def test_a_box_is_turned_where_the_product_wants_it_so_and_rows_may_be_symbolic() -> None:
    m = dim("m", 1, 1 << 20)
    schedule = "out0: i:*:parallel j:*:parallel k:* i:16:block k:16:block j:32:block"
    for rows in (5, 16, 33):
        inputs = [numbers(rows * 64, bf16), numbers(40 * 64, bf16, 1)]
        (kernel,) = check(by_rows(m, 40, 64), schedule, inputs, {"m": rows}, 1e-2, options=PLAIN)
        assert "tl.trans(arg1_tensor.load([j * 32, k * 16]))" in kernel.source


@pytest.mark.parametrize(
    ("sizes", "dtype", "count"),
    [((64, 64, 81), bf16, 1), ((64, 60, 64), bf16, 1), ((64, 64, 64), f32, 0)],
    ids=str,
)
def test_what_is_not_aligned_or_wide_is_loaded_as_ever(
    sizes: tuple[int, int, int], dtype: object, count: int
) -> None:
    (kernel,) = emit(gemm(*sizes, dtype), GEMM, options=PLAIN)
    assert kernel.source.count("make_tensor_descriptor(") == count


@pytest.mark.parametrize("target", MATRIX)
@pytest.mark.parametrize("programs", [0, 132])
def test_boxes_are_loaded_by_one_instruction(programs: int, target: str) -> None:
    options = Options(8, 3, describes=True, programs=programs, group=8)
    (kernel,) = emit(gemm(4096, 4096, 4096, bf16), LARGE, options=options)
    compiled = compile_kernel(kernel, target)
    assert {"tma", MATRIX[target]} <= {*compiled.resources.instructions}
    assert "cp.async.bulk.tensor" in compiled.assembly
    assert "cp.async" not in compiled.resources.instructions


@pytest.mark.parametrize(("target", "is_there"), [("sm_80", False), ("sm_90", True), ("gfx950", False)])
def test_descriptors_are_candidates_behind_others(target: str, is_there: bool) -> None:
    pricer = GpuPricer(machine_for(target_named(target)), LICENCES)
    found = [c.options for c in pricer.candidates(by_rows(8192, 4096, 4096), Samples({}, ({},)))]
    assert not any(each.describes for each in found[:BEHIND])
    assert any(each.describes for each in found) == is_there
    assert any(each.programs % 132 == 0 < each.programs for each in found) == is_there


def test_a_launch_has_memory_for_its_descriptors() -> None:
    def described(
        region: object, samples: object, functions: Sequence[GpuFunction], forms: Sequence[Form]
    ) -> int:
        return next(n for n, function in enumerate(functions) if function.candidate.options.describes)

    program = build_for_gpu(KINDS["product"].make(bf16, 512), "sm_90", judge=described, tried=12)
    (function,) = program.functions.values()
    (kernel,) = function.kernels
    code = code_of(function, program.target)
    (launch,) = code.launches
    size = function.compiled[0].metadata["global_scratch_size"]
    assert size > 0 and launch.scratch == 0
    assert function.workspace_bytes.evaluate({}) >= kernel.grid.evaluate({}) * size + SCRATCH_ALIGNMENT
    assert launch.scratch_arguments(64, {}) == [128] and launch.scratch_arguments(128, {}) == [128]
    images = {"0": launch.code.image}
    assert code_from_json(code_to_json(code, lambda image: "0"), images.__getitem__) == code
    assert all(block.size.constant for block in program.plan.arena.blocks) and program.plan.arena.blocks


def test_a_quantised_factor_is_no_box() -> None:
    """Its bytes are decoded first."""
    program = build_for_gpu(quantised.product("q8_0", 256, 256, 256), "sm_90")
    (function,) = program.functions.values()
    assert not function.candidate.options.describes
