"""Schedules for a GPU: every region has one, the first ones are right, and the model prefers what it should."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dim import as_dim, dim
from luminal.dtype import bf16, f32, i64
from luminal.emit_triton.targets import A100, H100
from luminal.search.forms import forms
from luminal.search.gpu_candidates import GpuCandidate, GpuPricer
from luminal.search.gpu_launches import works_of
from luminal.search.samples import Samples
from tests.emit_triton.support import LICENCES, compare, numbers, run
from tests.emit_triton.test_attention import attention
from tests.emit_triton.test_products import gemm
from tests.kernel import regions

M, N, K = dim("m"), dim("n"), dim("k")
PRICER = GpuPricer(H100.machine, LICENCES)
SMALL: dict[str, tuple[Region, Mapping[str, int]]] = {
    "matmul": (regions.matmul(M, N, 40), {"m": 20, "n": 33}),
    "batched": (gemm(M, 24, 40, f32, 3), {"m": 17}),
    "a vector's product": (gemm(1, N, 70, f32), {"n": 33}),
    "softmax": (regions.softmax(M, N), {"m": 5, "n": 37}),
    "norm": (regions.layer_norm(M, 24), {"m": 7}),
    "attention": (regions.attention(1, M, 16), {"m": 9}),
    "two shapes": (regions.transposed_sum(M, 12), {"m": 9}),
    "running sums": (regions.cumulative(M, N), {"m": 5, "n": 9}),
    "places": (regions.argmax(M, N), {"m": 6, "n": 21}),
    "windows": (regions.convolution(M, 4, 8), {"m": 7}),
}


def candidates(region: Region, sizes: Mapping[str, int], pricer: GpuPricer = PRICER) -> list[GpuCandidate]:
    found = list(forms(region, frozenset(LICENCES)))
    return list(pricer.candidates(region, Samples(dict(sizes)), found))


@pytest.mark.parametrize("name", SMALL)
def test_the_first_of_each_form_gives_what_the_region_means(name: str) -> None:
    region, sizes = SMALL[name]
    found = candidates(region, sizes)
    inputs = [
        numbers(argument.elements.evaluate(sizes), argument.dtype, seed)
        for seed, argument in enumerate(region.arguments)
    ]
    wanted = evaluate(region, inputs, sizes)
    named = {each.form: each for each in reversed(found)}
    for candidate in named.values():
        compare(run(region, candidate.kernels(), inputs, sizes), wanted, 1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_blocks_are_powers_of_two_and_no_candidate_comes_twice(name: str) -> None:
    found = candidates(*SMALL[name])
    assert len({str(candidate) for candidate in found}) == len(found)
    for stage in itertools.chain(*((*each.schedule.roots, *each.schedule.kept) for each in found)):
        blocks = [factor for factor in stage.factors if factor.role == "block"]
        assert all(f.extent is not None and f.extent & (f.extent - 1) == 0 for f in blocks)
        assert not any(factor.role in ("tile", "lane", "partial") for factor in stage.factors)


def test_the_order_is_the_model_s() -> None:
    found = candidates(gemm(2048, 2048, 2048, bf16), {})
    plain = [each for each in found if all("block" not in str(stage) for stage in each.schedule.roots)]
    assert plain and found[-len(plain) :] == plain
    known = [each for each in found[: -len(plain)] if not each.options.describes]
    seconds = [each.seconds[0] for each in known]
    assert seconds == sorted(seconds)


def test_a_product_has_tiles_for_the_matrix_units() -> None:
    first = candidates(gemm(4096, 4096, 4096, bf16), {})[0]
    (kernel,) = first.kernels()
    assert "tl.dot(arg0_block, arg1_block" in kernel.source
    assert first.options.stages > 1 and first.options.warps >= 4
    extents = {f.index: f.extent for f in first.schedule.roots[0].factors if f.role == "block"}
    assert min(extents["i"] or 0, extents["j"] or 0) >= 64


def test_few_rows_are_padded_for_the_matrix_units_and_one_row_is_not() -> None:
    few = candidates(gemm(8, 4096, 4096, bf16), {})[0]
    one = candidates(gemm(1, 4096, 4096, bf16), {})[0]
    assert "i:16:block" in str(few.schedule) and "tl.dot" in few.kernels()[0].source
    assert "tl.dot" not in one.kernels()[0].source


def test_attention_is_one_kernel_with_two_products_and_no_memory() -> None:
    region = regions.attention(16, M, 64)
    first = candidates(region, {"m": 2048})[0]
    (kernel,) = first.kernels()
    assert first.form.startswith("folds of")
    assert kernel.source.count("tl.dot") == 2 and kernel.source.count("for ") == 1
    assert not any(parameter.name.startswith("work") for parameter in kernel.parameters)


def test_long_sums_are_made_in_parts_between_two_launches() -> None:
    b = regions.Builder()
    region = b.region({"k": 1 << 24}, [1 << 24], [(b.total(b.read(0, {"k": 1}), "k"), {})])
    first = candidates(region, {})[0]
    assert first.form == "in parts" and len(first.kernels()) == 2


def test_reads_along_another_index_have_square_blocks() -> None:
    b = regions.Builder()
    region = b.region(
        {"i": 4096, "j": 4096}, [1 << 24], [(b.read(0, {"i": 1, "j": 4096}), {"i": 4096, "j": 1})]
    )
    blocks = [f.extent or 1 for f in candidates(region, {})[0].schedule.roots[0].factors if f.role == "block"]
    assert len(blocks) == 2 and min(blocks) >= 8


def test_programs_are_enough_for_the_device() -> None:
    """A short product is cut into smaller tiles than a long one."""
    wide, narrow = (candidates(gemm(m, 1024, 1024, bf16), {})[0] for m in (8192, 128))
    tile = [
        f.extent or 1
        for c in (wide, narrow)
        for f in c.schedule.roots[0].factors
        if f.role == "block" and f.index in "ij"
    ]
    assert tile[0] * tile[1] > tile[2] * tile[3]


def test_other_sizes_count_too() -> None:
    region = gemm(M, 4096, 4096, bf16)
    for sizes in ({"m": 1}, {"m": 4096}):
        first = next(PRICER.candidates(region, Samples(sizes, ({"m": 64},))))
        assert len(first.seconds) == 2
    alone = next(PRICER.candidates(region, Samples({"m": 4096})))
    both = next(PRICER.candidates(region, Samples({"m": 4096}, ({"m": 1},))))
    assert alone.schedule != both.schedule


@pytest.mark.parametrize(
    ("combine", "licences", "first"),
    [
        ("add", LICENCES, "out0: j:*:parallel i:*:parallel j:256:block"),
        ("add", (), "out0: j:*:parallel i:* j:256:block"),
        ("set", LICENCES, "out0: j:*:parallel i:* j:256:block"),
    ],
)
def test_writes_that_meet_are_atomic_or_have_one_owner(
    combine: str, licences: tuple[str, ...], first: str
) -> None:
    """Where the order decides, as of float sums without a licence, one program goes over the rows in order."""
    table, extents = TermTable(), {"i": M, "j": as_dim(400)}
    index = table.apply("mul", (table.read(1, Affine.of({"i": 1}), i64), table.constant(400, i64)), None, i64)
    value = table.read(0, Affine.of({"i": 400, "j": 1}), f32)
    output = Output(value, as_dim(2000), Affine.of({"j": 1}), index, None, combine, 2, frozenset("ij"))
    arguments = [Argument(f32, M * 400), Argument(i64, M), Argument(f32, as_dim(2000))]
    region, sizes = Region(table, extents, arguments, [output]), {"m": 7}
    found = candidates(region, sizes, GpuPricer(H100.machine, licences))
    assert str(found[0].schedule) == first
    inputs = [numbers(7 * 400), np.array([3, 0, 4, 3, 3, 2, 0]), numbers(2000, seed=1)]
    wanted = evaluate(region, inputs, sizes)
    for candidate in {str(each.schedule): each for each in found}.values():
        compare(run(region, candidate.kernels(), inputs, sizes), wanted, 1e-5)


def test_writes_without_columns_of_their_own_have_plain_loops() -> None:
    table = TermTable()
    index, value = table.read(1, Affine.of({"i": 1}), i64), table.read(0, Affine.of({"i": 1}), f32)
    output = Output(value, as_dim(9), Affine.of({}), index, None, "set", 2, frozenset("i"))
    arguments = [Argument(f32, M), Argument(i64, M), Argument(f32, as_dim(9))]
    found = candidates(Region(table, {"i": M}, arguments, [output]), {"m": 6})
    assert {str(each.schedule) for each in found} == {"out0: i:*"}


def test_what_a_launch_does_is_counted() -> None:
    m, n, k = 256, 512, 128
    region = gemm(m, n, k, bf16)
    candidate = next(
        c for c in candidates(region, {}) if "i:64:block k:64:block j:128:block" in str(c.schedule)
    )
    (work,) = works_of(candidate.function, {}, H100.machine)
    launch = work.launch
    balance = H100.machine.units / launch.programs
    assert launch.programs == (m // 64) * (n // 128)
    assert launch.matrix_flops == 2 * m * n * k and launch.dtype == "bf16" and launch.steps == 2
    assert launch.memory_bytes == 2 * (m * k + k * n + m * n + n)
    operands = 2 * launch.programs * k * (64 + 128)
    assert launch.cache_bytes == balance * (operands + 2 * (m * n + launch.programs * 128))
    assert launch.exponentials >= m * n
    assert work.stage_bytes == 2 * 64 * (64 + 128)


def test_what_does_not_fit_a_device_comes_late() -> None:
    region = gemm(4096, 4096, 4096, f32)
    for target in (A100, H100):
        first = candidates(region, {}, GpuPricer(target.machine, LICENCES))[0]
        (work,) = works_of(first.function, {}, target.machine)
        assert work.fits(target.machine, first.options.warps, first.options.stages)
        assert not work.fits(target.machine, 1, 64)


def test_products_of_vector_units_have_tiles_that_registers_hold() -> None:
    """Of f32 on sm_90 a tile of 64 x 128 spills with 4 warps; half of it takes 79 to 167 registers."""
    for dtype, sides, warps, fits in (
        (f32, "i:64:block k:64:block j:128", 4, False),
        (f32, "i:64:block k:64:block j:128", 8, True),
        (f32, "i:64:block k:64:block j:64", 4, True),
        (bf16, "i:64:block k:64:block j:128", 4, True),
    ):
        found = candidates(gemm(1024, 1024, 1024, dtype), {})
        (work,) = works_of(next(c for c in found if sides in str(c)).function, {}, H100.machine)
        assert work.fits(H100.machine, warps, 2) == fits


def test_products_of_vector_units_read_less_by_larger_tiles() -> None:
    found = candidates(gemm(1024, 1024, 1024, f32), {})
    operations = [
        works_of(next(c for c in found if tile in str(c)).function, {}, H100.machine)[0].launch.operations
        for tile in ("i:16:block k:64:block j:16", "i:64:block k:64:block j:64")
    ]
    assert operations[0] > 1.2 * operations[1]
    assert "i:128:block k:64:block j:64:block with 8 warps" in str(found[0])


def test_blocks_that_a_mask_hides_have_no_price() -> None:
    region, samples = attention(bf16, "causal"), Samples({"s": 16384})
    seconds = {
        form.name: next(PRICER.candidates(form.region, samples, coarse=True)).seconds[0]
        for form in forms(region, frozenset(LICENCES))
        if form.name.startswith("folds of 128")
    }
    assert seconds["folds of 128, bounded"] < 0.6 * seconds["folds of 128"]
