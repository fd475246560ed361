"""What the roofline counts: each value where it is computed, and only its reading where it is kept."""

from __future__ import annotations

import pytest

from luminal.search.generate import Generator
from luminal.search.machine import Machine
from luminal.search.roofline import (
    contraction_seconds,
    kept_seconds,
    packing_seconds,
    row_seconds,
    traffic_seconds,
)
from luminal.search.shapes import Shapes, find_contraction
from luminal.search.tiling import Tiling, Way
from tests.kernel.regions import Builder

HOST = Machine(16, 32)


def test_a_kept_value_is_read_where_it_is_used_and_costs_what_a_load_costs() -> None:
    b = Builder()
    x = b.read(0, {"i": 64, "j": 1})
    weight = b.apply("exp2", x, variant="e")
    of_weight, of_load = b.total(weight, "j"), b.total(x, "j")
    shapes = Shapes(b.region({"i": 32, "j": 64}, [2048], [(of_weight, {"i": 1}), (of_load, {"i": 1})]), {})
    kept = row_seconds(shapes, (of_weight,), frozenset({weight}), HOST, "j", 1.0)
    loaded = row_seconds(shapes, (of_load,), frozenset(), HOST, "j", 1.0)
    computed = row_seconds(shapes, (of_weight,), frozenset(), HOST, "j", 1.0)
    assert kept == pytest.approx(loaded)
    assert computed > 2 * kept


def test_a_sum_of_products_that_is_kept_is_no_contraction_of_its_readers() -> None:
    b = Builder()
    score = b.total(b.apply("mul", b.read(0, {"i": 8, "k": 1}), b.read(1, {"j": 8, "k": 1})), "k")
    shifted = b.apply("add", score, b.number(1.0))
    b.region({"i": 4, "j": 4, "k": 8}, [32, 32], [(shifted, {"i": 4, "j": 1})])
    free = ["i", "j"]
    assert find_contraction((shifted,), free, frozenset(), frozenset()) is not None
    assert find_contraction((shifted,), free, frozenset(), frozenset({score})) is None
    assert find_contraction((score,), free, frozenset(), frozenset({score})) is not None


def test_packing_a_computed_operand_costs_what_computing_it_costs() -> None:
    b = Builder()
    load = b.read(0, {"j": 8, "k": 1})
    summed = b.total(b.apply("mul", b.read(1, {"j": 512, "r": 1}), b.read(2, {"k": 512, "r": 1})), "r")
    shapes = Shapes(
        b.region(
            {"j": 64, "k": 8, "r": 512},
            [512, 32768, 4096],
            [(b.apply("add", load, summed), {"j": 8, "k": 1})],
        ),
        {},
    )
    cheap, dear = (
        packing_seconds(shapes, term, frozenset(), HOST, "j", contiguous=True) for term in (load, summed)
    )
    assert dear > 20 * cheap


def test_panels_that_no_cache_holds_are_written_and_read_again() -> None:
    b = Builder()
    load = b.read(0, {"j": 1024, "k": 1})
    prices: list[float] = []
    for columns in (64, 4096):
        region = b.region({"j": columns, "k": 1024}, [columns << 10], [(load, {"j": 1024, "k": 1})])
        prices.append(kept_seconds(Shapes(region, {}), load, HOST))
    assert prices == [0.0, pytest.approx(2 * (4096 << 12) / HOST.bandwidth)]


def test_a_sum_of_products_costs_the_same_whether_it_is_the_result_or_is_scaled_first() -> None:
    """The root of a stage may be its contraction itself: its products are not computed once more beside it."""
    costs: list[float] = []
    for scaled in (False, True):
        b = Builder()
        product = b.apply("mul", b.read(0, {"i": 256, "k": 1}), b.read(1, {"k": 256, "j": 1}))
        value = b.total(product, "k")
        value = b.apply("mul", value, b.number(0.5)) if scaled else value
        region = b.region({"i": 256, "j": 256, "k": 256}, [65536, 65536], [(value, {"i": 256, "j": 1})])
        best = Generator(region, HOST, Shapes(region, {})).candidates()[0]
        costs.append(best.estimate.core_seconds)
    plain, scaled_cost = costs
    assert plain <= scaled_cost < 1.05 * plain


def test_of_an_argument_that_is_read_in_part_only_that_part_is_traffic() -> None:
    b = Builder()
    whole, part = (
        Shapes(b.region({"i": 32, "j": 64}, [1 << 20], [(b.read(0, strides), {"i": 1})]), {})
        for strides in ({"i": 64}, {})
    )
    table = b.region({"i": 1 << 20}, [1 << 20], [(b.read(0, {"i": 1}), {"i": 1})])
    few, written = 32 * 4, 2 * 32 * 4
    assert traffic_seconds(whole, HOST) * HOST.bandwidth == pytest.approx(few + written)
    assert traffic_seconds(part, HOST) < traffic_seconds(whole, HOST)
    assert traffic_seconds(Shapes(table, {}), HOST) * HOST.bandwidth == pytest.approx(3 * 4 * (1 << 20))


def test_where_two_multiply_adds_begin_in_a_cycle_a_register_tile_needs_more_sums_than_loads() -> None:
    """Six rows of one vector wait for their seven loads, and eight sums for each other; twelve sums do not."""
    host = Machine(8, 16, multiply_adds=2)
    b = Builder()
    value = b.total(b.apply("mul", b.read(0, {"i": 512, "k": 1}), b.read(1, {"j": 512, "k": 1})), "k")
    shapes = Shapes(b.region({"i": 96, "j": 96, "k": 512}, [49152, 49152], [(value, {"i": 96, "j": 1})]), {})
    contraction = find_contraction((value,), ["i", "j"], frozenset(), frozenset())
    assert contraction is not None
    way = Way(contraction.left, contraction.right)

    def seconds(tile: int, vectors: int) -> float:
        tiling = Tiling("j", "i", vectors, tile, 1, pack_rows=False, swap=False, across="j")
        return contraction_seconds(
            shapes, contraction, host, tiling, tiling.covered(host.lanes), way, 0.5, partial=False
        )

    best = 2 * 96 * 96 * 512 / host.flops
    assert best < seconds(4, 3) < 1.15 * best
    assert seconds(4, 3) == seconds(6, 2)
    assert seconds(8, 1) > 1.1 * seconds(4, 3)
    assert seconds(6, 1) > 1.4 * seconds(4, 3)
