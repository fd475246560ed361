"""Where a product's factors come from when they are read again, and what order of loops that asks for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from luminal.dialects.kernel.terms import Region
from luminal.search.candidates import legal_candidates
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes, find_contraction
from luminal.search.streams import FIRST_LINE, PANEL_CYCLES, Streams
from luminal.search.tiling import Tiling, Way
from tests.kernel.regions import Builder

HOST = Machine(16, 32)
ROWS_OUTSIDE = Tiling("j", "i", vectors=3, tile=8, block=1, pack_rows=False, swap=False, across="j")
PANELS_OUTSIDE = replace(ROWS_OUTSIDE, swap=True)


def product(m: int, n: int, k: int, rows_contiguous: bool = False) -> Region:
    """x @ w.T, where w is a parameter; `rows_contiguous`: x lies transposed."""
    b = Builder()
    left = b.read(0, {"i": 1, "k": m} if rows_contiguous else {"i": k, "k": 1})
    value = b.total(b.apply("mul", left, b.read(1, {"j": k, "k": 1})), "k")
    region = b.region({"i": m, "j": n, "k": k}, [m * k, n * k], [(value, {"i": n, "j": 1})])
    x, w = region.arguments
    return replace(region, arguments=[x, replace(w, constant=True)])


def streams(region: Region) -> Streams:
    root = region.outputs[0].term
    contraction = find_contraction((root,), ["i", "j"], frozenset(), frozenset())
    assert contraction is not None
    if contraction.rows != ("i",):
        contraction = contraction.swapped()
    way = Way(contraction.left, contraction.right)
    return Streams(Shapes(region, {}), contraction, HOST, way)


def test_rows_that_pass_by_for_every_panel_are_waited_for_each_time() -> None:
    region = product(4096, 384, 384)
    assert streams(region).row_seconds(ROWS_OUTSIDE) == 0.0
    expected = 4096 * (384 / 48 - 1) * FIRST_LINE[2]
    assert streams(region).row_seconds(PANELS_OUTSIDE) == pytest.approx(expected)


def test_a_block_of_rows_waits_for_the_second_cache_and_packed_rows_for_nothing() -> None:
    region = product(4096, 384, 384)
    block = replace(ROWS_OUTSIDE, block=16)
    assert streams(region).row_seconds(block) == pytest.approx(4096 * 7 * FIRST_LINE[1])
    assert streams(region).row_seconds(replace(block, pack_rows=True)) == 0.0


def test_volumes_are_those_of_the_sizes_inside_a_loop() -> None:
    shapes = Shapes(product(64, 8, 4), {})
    assert shapes.volume({"i", "j"}) == 64 * 8
    shapes.resize({"i": 16})
    assert shapes.volume({"i", "j"}) == 16 * 8


def test_rows_that_lie_side_by_side_begin_together() -> None:
    assert streams(product(4096, 384, 384, rows_contiguous=True)).row_seconds(PANELS_OUTSIDE) == 0.0


def test_a_panel_comes_from_the_cache_that_holds_what_is_read_until_it_is_read_again() -> None:
    short, long, huge = product(64, 384, 64), product(64, 1536, 384), product(64, 32000, 2048)
    assert streams(short).panel_cycles(PANELS_OUTSIDE) == PANEL_CYCLES[0]
    assert streams(long).panel_cycles(PANELS_OUTSIDE) == 64 * PANEL_CYCLES[1]
    assert streams(long).panel_cycles(ROWS_OUTSIDE) == 64 * PANEL_CYCLES[2]
    from_memory = streams(huge).panel_cycles(ROWS_OUTSIDE)
    assert from_memory > 256 * PANEL_CYCLES[2]
    assert streams(huge).panel_cycles(replace(ROWS_OUTSIDE, block=8)) < from_memory / 4


def test_rows_stand_outside_where_the_sums_are_short_and_the_parameter_fits_the_cache() -> None:
    first, _ = next(legal_candidates(product(4096, 384, 384), HOST, Samples({})))
    assert str(first.schedule).startswith("out0: i:*:parallel@rows j:*@panel ")


def test_a_parameter_that_no_cache_holds_is_read_once_for_a_block_of_rows_at_least() -> None:
    first, _ = next(legal_candidates(product(512, 32000, 2048), HOST, Samples({})))
    assert re.match(r"out0: (j:\*:parallel@panel|i:\*:parallel@rows j:\*@panel i:\d+ )", str(first.schedule))
