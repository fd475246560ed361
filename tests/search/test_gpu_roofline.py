"""The roofline of a GPU: what each input of a launch does to its price, and how near it comes to published times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.published_kernels import (
    CALIBRATION,
    LATER,
    PUBLISHED,
    Published,
    median_error,
    table,
)
from benchmarks.published_launches import attention
from luminal.emit_triton.targets import H100
from luminal.search.gpu_machine import resident_programs
from luminal.search.gpu_roofline import Launch, estimate

MACHINE = H100.machine
LOOP = Launch(programs=1320, memory_bytes=1e8, matrix_flops=1e12, is_asynchronous=True, steps=64, stages=3)


def seconds(launch: Launch) -> float:
    return estimate(launch, MACHINE).seconds


@pytest.mark.parametrize("entries", [PUBLISHED, LATER], ids=["first", "later"])
def test_the_median_error_on_published_kernels_is_below_a_fifth(entries: tuple[Published, ...]) -> None:
    assert median_error(entries) < 0.2


def test_there_are_enough_kernels_of_enough_devices() -> None:
    assert len(PUBLISHED) >= 20 and len({entry.device for entry in PUBLISHED}) >= 6


@pytest.mark.parametrize("entry", CALIBRATION, ids=lambda entry: entry.name)
def test_what_the_model_was_set_by_comes_back(entry: Published) -> None:
    assert abs(entry.error) < 0.1


def test_no_measurement_is_also_a_calibration() -> None:
    held_out = {(entry.device, entry.launch, entry.source) for entry in (*PUBLISHED, *LATER)}
    assert not held_out & {(entry.device, entry.launch, entry.source) for entry in CALIBRATION}
    assert all(entry.source for entry in (*PUBLISHED, *LATER, *CALIBRATION))


def test_the_documentation_has_the_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    for entries in (PUBLISHED, LATER):
        assert table(entries) in page and table(entries).count("\n") == len(entries) + 1
        assert f"{len(entries)} kernels, median error {median_error(entries) * 100:.0f} %" in page


def test_an_empty_launch_costs_a_launch_and_one_latency() -> None:
    assert seconds(Launch(1, 0)) == pytest.approx(MACHINE.launch_seconds + MACHINE.latency)


def test_a_copy_runs_at_the_bandwidth_that_can_be_reached() -> None:
    expected = 1e10 / (MACHINE.bandwidth * MACHINE.memory_part)
    assert seconds(Launch(100_000, 1e10, resident=16)) == pytest.approx(expected, rel=0.01)


def test_one_program_more_than_a_wave_costs_a_whole_program() -> None:
    full, tail = (replace(LOOP, programs=count, matrix_flops=count * 1e9) for count in (132, 133))
    assert estimate(tail, MACHINE).matrix == pytest.approx(2 * estimate(full, MACHINE).matrix)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (LOOP, replace(LOOP, is_asynchronous=False)),
        (replace(LOOP, operations=1e10), replace(LOOP, operations=2e10)),
        (replace(LOOP, operations=1e10, is_specialised=True), replace(LOOP, operations=1e10)),
        (replace(LOOP, operations=1e10, resident=2), replace(LOOP, operations=1e10)),
        (LOOP, replace(LOOP, stages=1)),
        (LOOP, replace(LOOP, cache_bytes=2e10)),
        (LOOP, replace(LOOP, exponentials=1e10)),
        (replace(LOOP, dtype="f8e4m3fn"), LOOP),
        (replace(LOOP, matrix_flops=0, resident=4), replace(LOOP, matrix_flops=0)),
    ],
)
def test_worse_launches_cost_more(better: Launch, worse: Launch) -> None:
    assert seconds(better) < seconds(worse)


def test_latencies_follow_each_other_where_nothing_is_in_flight() -> None:
    chain = Launch(132, 1e6, steps=1000)
    assert seconds(chain) == pytest.approx(MACHINE.launch_seconds + 1000 * MACHINE.latency)
    assert seconds(replace(chain, stages=4)) < seconds(chain) / 3.9


def test_narrow_heads_are_bound_by_exponentials() -> None:
    wide, narrow = (estimate(attention(1, 16, 8192, 8192, width), MACHINE) for width in (256, 32))
    assert wide.matrix > wide.vector and narrow.matrix < narrow.vector


def test_a_dtype_without_matrix_units_has_no_price() -> None:
    with pytest.raises(KeyError, match="f4e2m1"):
        estimate(replace(LOOP, dtype="f4e2m1"), MACHINE)


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "expected"),
    [
        (32, 0, 4, 16),  # 64 warps
        (128, 0, 4, 4),  # 65536 registers
        (255, 0, 8, 1),
        (32, 100_000, 4, 2),  # 228 KB, 1 KB a program for the system
        (32, 232_448, 4, 1),
        (32, 232_449, 4, 0),
        (32, 0, 1, 32),  # 32 programs
    ],
)
def test_what_is_scarce_says_how_many_programs_reside(
    registers: int, shared: int, warps: int, expected: int
) -> None:
    assert resident_programs(MACHINE, registers, shared, warps) == expected
