"""Gathers and scatters as Triton text: duplicates, ragged edges, and what no order of programs may decide."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dim import as_dim, dim
from luminal.dtype import DType, bf16, bool_, f32, f64, i8, i32, i64
from luminal.errors import ScheduleError
from tests.emit_triton.support import check, emit, numbers, output
from tests.kernel import regions

M, N = dim("m"), dim("n")
ROWS = 7


def gathered() -> Region:
    """x[index[i], j], 0 where the index is out of range."""
    table, extents = TermTable(), {"i": M, "j": N}
    index = table.read(0, Affine.of({"i": 1}), i64)
    dynamic = table.apply("mul", (index, table.dimension(N)), None, i64)
    inside = table.apply("less_than", (index, table.constant(ROWS, i64)), "lt", bool_)
    value = table.read(1, Affine.of({"j": 1}), f32, dynamic, inside)
    arguments = [Argument(i64, M), Argument(f32, N * ROWS)]
    return Region(table, extents, arguments, [output(value, {"i": N, "j": 1}, extents)])


@pytest.mark.parametrize(
    "schedule",
    [
        "out0: i:*:parallel j:*:parallel i:4:block j:8:block",
        "out0: i:*:parallel j:* j:4:block",
        "out0: j:*:parallel i:*",
    ],
)
@pytest.mark.parametrize("shape", [(5, 9), (1, 1), (0, 3), (8, 16)])
def test_gather(schedule: str, shape: tuple[int, int]) -> None:
    m, n = shape
    index = np.array([3, 0, 6, 99, 0, 2, 6, 1], np.int64)[:m]
    check(gathered(), schedule, [index, numbers(ROWS * n)], {"m": m, "n": n}, tolerance=0)


def scattered(dtype: DType, combine: str) -> Region:
    """base[index[i], j] combined with value[i, j]."""
    table, extents = TermTable(), {"i": M, "j": as_dim(9)}
    index = table.read(1, Affine.of({"i": 1}), i64)
    dynamic = table.apply("mul", (index, table.constant(9, i64)), None, i64)
    value = table.read(0, Affine.of({"i": 9, "j": 1}), dtype)
    arguments = [Argument(dtype, M * 9), Argument(i64, M), Argument(dtype, as_dim(ROWS * 9))]
    result = Output(value, as_dim(ROWS * 9), Affine.of({"j": 1}), dynamic, None, combine, 2, frozenset("ij"))
    return Region(table, extents, arguments, [result])


ATOMIC = ["out0: i:*:parallel j:*:parallel i:4:block j:4:block", "out0: i:*:parallel j:16:block"]
IN_ORDER = ["out0: j:*:parallel i:* j:4:block", "out0: i:* j:*"]
INDEX = np.array([3, 0, 6, 3, 3, 2], np.int64)


def given(dtype: DType) -> list[np.ndarray]:
    return [numbers(6 * 9, dtype), INDEX, numbers(ROWS * 9, dtype, 1)]


@pytest.mark.parametrize("schedule", ATOMIC)
@pytest.mark.parametrize(
    ("dtype", "combine"), [(f32, "add"), (f64, "add"), (i32, "add"), (i64, "max"), (i32, "min")], ids=str
)
def test_duplicates_that_any_order_suits_are_atomic(schedule: str, dtype: DType, combine: str) -> None:
    (kernel,) = check(scattered(dtype, combine), schedule, given(dtype), {"m": 6})
    assert f"tl.atomic_{combine}(" in kernel.source


@pytest.mark.parametrize("schedule", IN_ORDER)
@pytest.mark.parametrize(
    ("dtype", "combine"),
    [(f32, "set"), (i8, "set"), (f32, "mul"), (f32, "max"), (bf16, "min"), (i8, "add"), (f32, "add")],
    ids=str,
)
def test_duplicates_in_the_order_of_one_program(schedule: str, dtype: DType, combine: str) -> None:
    values = given(dtype)
    if dtype.is_float:
        values[0][10], values[2][20] = np.nan, np.nan
    (kernel,) = check(scattered(dtype, combine), schedule, values, {"m": 6})
    assert "atomic" not in kernel.source


@pytest.mark.parametrize("schedule", ATOMIC)
@pytest.mark.parametrize(
    ("dtype", "combine"), [(f32, "set"), (f32, "mul"), (f32, "max"), (bf16, "add"), (i8, "add")], ids=str
)
def test_duplicates_that_programs_would_race_for_are_refused(
    schedule: str, dtype: DType, combine: str
) -> None:
    with pytest.raises(ScheduleError, match="depends on their order: make plain loops"):
        emit(scattered(dtype, combine), schedule)


def windows(combine: str, dynamic: bool) -> Region:
    """out[start[i] + j] or out[2 i + j] combined with value[i, j]: windows of 9 that overlap."""
    table, extents = TermTable(), {"i": M, "j": as_dim(9)}
    value = table.read(0, Affine.of({"i": 9, "j": 1}), f32)
    start = table.read(1, Affine.of({"i": 1}), i64) if dynamic else None
    address = Affine.of({"j": 1} if dynamic else {"i": 2, "j": 1})
    result = Output(value, as_dim(40), address, start, None, combine, 2, frozenset("ij"))
    return Region(
        table, extents, [Argument(f32, M * 9), Argument(i64, M), Argument(f32, as_dim(40))], [result]
    )


@pytest.mark.parametrize("dynamic", [True, False])
def test_windows_that_overlap(dynamic: bool) -> None:
    """No index of theirs is apart from the other."""
    inputs = [numbers(6 * 9), np.array([3, 0, 20, 5, 30, 6], np.int64), numbers(40, seed=1)]
    (kernel,) = check(windows("add", dynamic), "out0: i:*:parallel j:16:block", inputs, {"m": 6})
    assert "tl.atomic_add" in kernel.source
    check(windows("set", dynamic), "out0: i:* j:*", inputs, {"m": 6}, tolerance=0)
    for schedule in ("out0: i:*:parallel j:*", "out0: j:*:parallel i:*", "out0: i:* j:16:block"):
        with pytest.raises(ScheduleError, match="may meet at one place"):
            emit(windows("set", dynamic), schedule)


def test_a_column_of_its_own_is_apart() -> None:
    """out[index[i, j], j]: columns never meet, whatever the index says."""
    table, extents = TermTable(), {"i": M, "j": as_dim(9)}
    index = table.read(1, Affine.of({"i": 9, "j": 1}), i64)
    dynamic = table.apply("mul", (index, table.constant(9, i64)), None, i64)
    value = table.read(0, Affine.of({"i": 9, "j": 1}), f32)
    result = Output(value, as_dim(ROWS * 9), Affine.of({"j": 1}), dynamic, None, "set", 2, frozenset("ij"))
    arguments = [Argument(f32, M * 9), Argument(i64, M * 9), Argument(f32, as_dim(ROWS * 9))]
    region = Region(table, extents, arguments, [result])
    index = np.random.default_rng(0).integers(0, ROWS, 6 * 9)
    inputs = [numbers(6 * 9), index, numbers(ROWS * 9, seed=1)]
    for schedule in ("out0: j:*:parallel i:* j:4:block", "out0: i:* j:16:block"):
        check(region, schedule, inputs, {"m": 6}, tolerance=0)


def test_float_sums_need_a_licence_for_any_order() -> None:
    with pytest.raises(ScheduleError, match="depends on their order"):
        emit(scattered(f32, "add"), ATOMIC[0], licences=())
    assert "tl.atomic_add" in emit(scattered(i32, "add"), ATOMIC[0], licences=())[0].source


def test_an_update_in_place() -> None:
    table, extents = TermTable(), {"i": M}
    x, y = (table.read(number, Affine.of({"i": 1}), f32) for number in range(2))
    total = table.apply("add", (x, y), None, f32)
    region = Region(
        table, extents, [Argument(f32, M), Argument(f32, M)], [output(total, {"i": 1}, extents, alias=0)]
    )
    check(region, "out0: i:*:parallel i:8:block", [numbers(13), numbers(13, seed=1)], {"m": 13}, tolerance=0)


def test_an_update_that_reads_what_others_write_is_refused() -> None:
    table, extents = TermTable(), {"i": M}
    x = table.read(0, Affine.of({"i": -1}, M - 1), f32)
    region = Region(table, extents, [Argument(f32, M)], [output(x, {"i": 1}, extents, alias=0)])
    with pytest.raises(ScheduleError, match="is read and written in one kernel"):
        emit(region, "out0: i:*:parallel i:8:block")


def test_memory_of_one_program_is_refused() -> None:
    region = regions.softmax(M, 40)
    largest = next(n for n, t in enumerate(region.terms()) if t.op == "reduce")
    with pytest.raises(ScheduleError, match="no memory of one program's own"):
        emit(region, f"out0: i:*:parallel@r j:64:block; keep %{largest} as . from r at r: j:64:block")


def test_extents_that_are_no_powers_of_two_are_refused() -> None:
    with pytest.raises(ScheduleError, match="power of two"):
        emit(regions.softmax(M, 40), "out0: i:*:parallel j:40:block")


def test_blocks_that_are_too_large_are_refused() -> None:
    with pytest.raises(ScheduleError, match="1048576 at most"):
        emit(regions.softmax(M, 40), "out0: i:*:parallel i:32768:block j:64:block")
    with pytest.raises(ScheduleError, match="a block of 2097152 elements"):  # the product in full
        emit(regions.matmul(M, N, 8), "out0: i:*:parallel j:*:parallel i:512:block k:8:block j:512:block")


def test_writes_of_every_lane_to_one_place_are_refused() -> None:
    table, extents = TermTable(), {"i": M, "j": as_dim(4)}
    value = table.read(0, Affine.of({"i": 4, "j": 1}), f32)
    result = Output(value, M, Affine.of({"i": 1}), indices=frozenset("ij"))
    region = Region(table, extents, [Argument(f32, M * 4)], [result])
    with pytest.raises(ScheduleError, match="may meet at one place"):
        emit(region, "out0: i:*:parallel j:4:block")
    check(region, "out0: i:*:parallel j:*", [numbers(20)], {"m": 5}, tolerance=0)


def test_addresses_beyond_32_bits() -> None:
    """Text alone: nobody has that much memory."""
    b = regions.Builder()
    value = b.apply("mul", b.read(0, {"i": 1 << 20, "j": 1}), b.number(2))
    region = b.region({"i": 1 << 14, "j": 1 << 20}, [1 << 34], [(value, {"i": 1 << 20, "j": 1})])
    (kernel,) = emit(region, "out0: i:*:parallel j:*:parallel j:1024:block")
    assert "tl.cast(i, tl.int64) * 1048576 + j * 1024 + j_range" in kernel.source
