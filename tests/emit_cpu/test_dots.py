"""Sums of products of narrow numbers, in groups of neighbours: exact for integers, on every target; and which
instructions they become."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import pytest

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dim import dim
from luminal.dtype import DType, bf16, f16, f32, i8, i16, i32, u8
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target, assembly, compile_object
from luminal.errors import ScheduleError
from luminal.passes.place import place
from tests.emit_cpu.kernels import EVERYWHERE, HOST, TARGETS
from tests.emit_cpu.native_kernel import compile_function
from tests.emit_cpu.test_emit import LICENCES, check
from tests.kernel.products import inputs, product

ARM = Target("aarch64-unknown-linux-gnu", "generic", "+neon,+fullfp16,+dotprod,+i8mm", 128, 32)
M, N, K = dim("m"), dim("n"), dim("k")


def schedules(group: int, lanes: int, transposed: bool) -> list[str]:
    """The factors of a product: read as it lies, and in panels, of which one step loads neighbours side by side."""
    tail = f"j:2:tile j:{lanes}:lane k:{group}:group"
    if transposed:
        return [f"out0: i:* j:* k:* {tail}", f"out0: i:* j:* k:* k:{lanes}:lane k:{group}:group"]
    panel = f"keep %2 as k:* j:{2 * lanes} k:{group} from p at p: k:* {tail}"
    return [f"out0: i:* j:* k:* k:2:unroll {tail}", f"out0: j:*@p i:* k:* i:3:tile {tail}; {panel}"]


CASES = [
    ((u8, i8), i32, 4),
    ((i8, u8), i32, 4),
    ((i8, i8), i32, 2),
    ((u8, u8), i32, 2),
    ((i16, i16), i32, 2),
    ((bf16, bf16), f32, 2),
    ((f16, f16), f32, 2),
]


@pytest.mark.parametrize("target", EVERYWHERE, ids=lambda target: target.cpu)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("dtypes", "total", "group"), CASES, ids=str)
def test_groups_give_what_the_plain_sum_gives(
    dtypes: tuple[DType, DType], total: DType, group: int, transposed: bool, target: Target
) -> None:
    region = product(3, N, K, dtypes, total, transposed)
    dims = {"n": 37, "k": 21}
    for number, schedule in enumerate(schedules(group, target.vector_bits // 32, transposed)):
        check(region, schedule, inputs(region, dims, number), dims, target)


@pytest.mark.parametrize(("n", "k"), [(32, 16), (1, 3), (5, 0)])
def test_groups_of_few_and_of_nothing(n: int, k: int) -> None:
    region = product(M, n, k, (u8, i8), i32)
    for schedule in schedules(4, 16, False):
        for dims in ({"m": 5}, {"m": 0}):
            check(region, schedule, inputs(region, dims), dims)


@pytest.mark.parametrize(
    ("target", "dtypes", "total", "group", "instruction"),
    [
        (HOST, (u8, i8), i32, 4, "vpdpbusd"),
        (HOST, (i8, u8), i32, 4, "vpdpbusd"),
        (HOST, (bf16, bf16), f32, 2, "vdpbf16ps"),
        (Target.avx2(), (i8, i8), i32, 2, "vpmaddwd"),
        (ARM, (i8, i8), i32, 4, "sdot"),
        (ARM, (u8, u8), i32, 4, "udot"),
        (ARM, (u8, i8), i32, 4, "usdot"),
    ],
)
def test_groups_become_one_instruction(
    target: Target, dtypes: tuple[DType, DType], total: DType, group: int, instruction: str
) -> None:
    features = {"vpdpbusd": "avx512vnni", "vdpbf16ps": "avx512bf16"}
    if target is HOST and not HOST.has(features[instruction]):
        pytest.skip(f"this machine has no {instruction}")
    region = product(64, 64, 64, dtypes, total)
    schedule = parse_schedule(schedules(group, target.vector_bits // 32, False)[1])
    text = emit_function(place(region, schedule, "kernel", LICENCES), target).text
    lines = [line.split()[0] for line in assembly(text, target).splitlines() if line.startswith("\t")]
    assert lines.count(instruction) >= 6
    assert compile_object(text, target)


@pytest.mark.parametrize("bits", [1, 4, 6, 7, 8])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_small_products_are_summed_in_pairs_without_saturating(bits: int, target: Target) -> None:
    """As many addends as fit in i16, and one more, of the limits alone: 15 * -128 * 2 is added eight times."""
    region = product(3, 64, 144, (u8, i8), i32, bits=bits)
    lanes = target.vector_bits // 32
    for unrolled in (2, 4, 9):
        schedule = f"out0: i:* j:* k:* k:{unrolled}:unroll j:2:tile j:{lanes}:lane k:4:group"
        for limit in (-128, 127):
            a, b = np.full(3 * 144, 255, np.uint8), np.full(144 * 64, limit, np.int8)
            check(region, schedule, [a, b], {}, target)
        check(region, schedule, inputs(region, {}, bits), {}, target)


AVX512 = Target("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512bw,+avx512vl", 512, 32)


@pytest.mark.parametrize("target", [Target.avx2(), AVX512], ids=lambda target: target.cpu)
@pytest.mark.parametrize(("bits", "saturating", "wide"), [(4, 8, 1), (6, 8, 4), (7, 8, 8), (8, 0, 0)])
def test_how_many_of_them_are_summed_before_they_are_made_wider(
    bits: int, saturating: int, wide: int, target: Target
) -> None:
    """i16 holds eight pairs of products of four bits with i8, two of six bits, one of seven; of eight bits none."""
    region = product(3, 64, 32, (u8, i8), i32, bits=bits)
    lanes = target.vector_bits // 32
    schedule = parse_schedule(f"out0: i:* j:* k:* k:8:unroll j:{lanes}:lane k:4:group")
    text = assembly(emit_function(place(region, schedule, "kernel", LICENCES), target).text, target)
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("\t")]
    assert lines.count("vpmaddubsw") == saturating
    assert bits == 8 or lines.count("vpmaddwd") == wide


def test_without_licences_a_float_sum_keeps_its_order() -> None:
    """2^60 - 2^60 + 1 is 1, 1 + 2^60 - 2^60 is 0: an instruction that adds pairs first gives another bit."""
    region = product(4, 64, 64, (bf16, bf16), f32)
    dims: dict[str, int] = {}
    schedule = schedules(2, 16, False)[0]
    for licences in ((), ("contract",), ("reassociate",)):
        check(
            region, schedule, inputs(region, dims), dims, licences=licences, exact="contract" not in licences
        )
        text = emit_function(place(region, parse_schedule(schedule), "kernel", licences), HOST).text
        assert "dpbf16" not in text


def test_nan_and_infinities_come_through_the_instruction() -> None:
    region = product(5, 32, 34, (bf16, bf16), f32)
    arrays = inputs(region, {})
    arrays[0].reshape(5, 34)[1, 33], arrays[0].reshape(5, 34)[2, 0] = np.nan, np.inf
    arrays[1].reshape(34, 32)[7, 4], arrays[1].reshape(34, 32)[0, 3] = -np.inf, 0
    function = place(region, parse_schedule(schedules(2, 16, False)[1]), "kernel", LICENCES)
    out = np.zeros(5 * 32, np.float32)
    compile_function(function, HOST).run([*(x.ctypes.data for x in arrays), out.ctypes.data], {}, 1, 0)
    with np.errstate(invalid="ignore"):
        exact = arrays[0].reshape(5, 34).astype(np.float64) @ arrays[1].reshape(34, 32).astype(np.float64)
    assert np.isnan(exact).any() and np.isinf(exact).any()
    np.testing.assert_allclose(out.reshape(5, 32), exact, rtol=1e-5, atol=1e-5)


def test_subnormals_are_off_by_no_more_than_is_said() -> None:
    """Against f64, under the licences' own bound and that of what the instruction flushes (docs/semantics.md)."""
    region = product(6, 32, 66, (bf16, bf16), f32)
    rng = np.random.default_rng(3)
    arrays = [x.astype(np.float32) * 2.0 ** rng.integers(-60, 60, x.size) for x in inputs(region, {})]
    tiny = rng.integers(0, 8, arrays[0].size) == 0
    arrays[0] = np.where(tiny, 2.0**-130, arrays[0])
    a, b = (x.astype(bf16.numpy) for x in arrays)
    function = place(region, parse_schedule(schedules(2, 16, False)[1]), "kernel", LICENCES)
    out = np.zeros(6 * 32, np.float32)
    compile_function(function, HOST).run([a.ctypes.data, b.ctypes.data, out.ctypes.data], {}, 1, 0)
    left, right = a.reshape(6, 66).astype(np.float64), b.reshape(66, 32).astype(np.float64)
    flushed = np.where(np.abs(left) < 2.0**-126, 1.0, 0.0) @ np.abs(right)
    bound = 66 * 2.0**-24 * (np.abs(left) @ np.abs(right)) + 2.0**-126 * (66 + flushed)
    assert np.all(np.abs(out.reshape(6, 32) - left @ right) <= bound)


@pytest.mark.parametrize(
    "schedule",
    [
        "out0: i:* j:* k:* j:16:lane k:2:group k:2:group",
        "out0: i:* j:* k:* k:2:group k:2:tile j:16:lane",
        "out0: i:* j:* k:2:group k:* j:16:lane",
        "out0: i:* j:* k:* j:16:lane k:*:group",
    ],
)
def test_groups_that_cannot_be(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        place(product(4, 16, 8, (u8, i8), i32), parse_schedule(schedule), "kernel")
