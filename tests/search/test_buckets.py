"""Sizes that stand for buckets, and the buckets that the roofline advises for a machine that is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

import luminal as lm
from luminal.dim import Range, Symbol
from luminal.dim.buckets import boxes, bucketed, gaps
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cuts import Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.narrow import narrow
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of
from luminal.search.buckets import MARGIN, BucketAdvice, expected_sizes, middle
from luminal.search.forms import Forms
from luminal.search.machine import Machine
from luminal.search.samples import Samples

MACHINE = Machine(lanes=16, registers=32, threads=2)


@pytest.mark.parametrize(
    ("range_", "size"),
    [
        ((1, 1), 1), ((2, 64), 11), ((65, 8192), 729), ((0, 0), 0), ((0, 64), 8), ((-5, 64), 8),
        ((513, None), 1024), ((5000, None), 5000),
    ],
)  # fmt: skip
def test_a_bucket_is_priced_at_its_geometric_middle(range_: Range, size: int) -> None:
    assert middle(range_) == size


def test_gaps_are_what_no_bucket_covers() -> None:
    symbol = Symbol("s", 0, 100)
    assert gaps(symbol, ((1, 1), (2, 8), (50, 99))) == [(0, 0), (9, 49), (100, 100)]
    assert gaps(symbol, ((0, 100),)) == []
    assert gaps(Symbol("s"), ((0, 4),)) == [(5, None)]
    assert gaps(Symbol("s"), ((3, None),)) == [(0, 2)]


def test_boxes_are_all_pairs_of_buckets_and_what_is_left() -> None:
    symbols = [Symbol("s", 1, 8, [(1, 1)]), Symbol("t", 1, 8, [(1, 4), (5, 8)]), Symbol("u")]
    assert boxes(symbols, bucketed(symbols)) == [
        {"s": (1, 1), "t": (1, 4)},
        {"s": (1, 1), "t": (5, 8)},
        {"t": (1, 4)},
        {"t": (5, 8)},
    ]
    assert boxes(symbols, {}) == [{}]


def test_what_is_known_of_a_size_is_expected_where_a_bucket_holds_it() -> None:
    symbols = [Symbol("s", 1, 4096, [(1, 1), (2, 64)]), Symbol("b", 1, 64), Symbol("free")]
    known: list[Mapping[str, int]] = [{"s": 16, "b": 4}, {"s": 512, "b": 32}]
    assert expected_sizes(symbols, {"s": (1, 1)}, known) == {"s": 1, "b": 4}
    assert expected_sizes(symbols, {"s": (2, 64)}, known) == {"s": 16, "b": 4}
    assert expected_sizes(symbols, {}, known) == {"s": 512, "b": 4}
    assert expected_sizes(symbols, {}, [{"s": 16}]) == {"s": 515}
    assert expected_sizes(symbols, {"b": (33, 64)}, []) == {"s": 515, "b": 45}


def advice_for(build: Callable[[lm.Graph], object]) -> tuple[BucketAdvice, tuple[Symbol, ...]]:
    cx = lm.Graph()
    build(cx)
    module = cx.module()
    lower_hlo(module)
    simplify(module)
    graph = graph_of(module)
    partition = Partition.of(graph)
    regions = form_regions(partition, initial_cuts(partition))
    return BucketAdvice(regions, MACHINE, Forms(graph.licences)), graph.symbols


def square(cx: lm.Graph) -> None:
    """A small size wants other register tiles than a larger one."""
    s, b = lm.dim("s", 1, 8192), lm.dim("b", 1, 64)
    cx.tensor((s, 1024)).matmul(cx.tensor((1024, s))).output()
    cx.tensor((b,)).sin().output()


SIZES = Samples({"s": 4, "b": 4}, ({"s": 32, "b": 32},))


def test_a_symbol_is_split_where_schedules_of_its_own_save_enough() -> None:
    advice, symbols = advice_for(square)
    assert advice.saving(SIZES) > MARGIN
    assert advice.buckets(symbols, SIZES, 2) == {"s": ((1, 11), (12, 8192))}, "b changes next to nothing"


def test_sizes_that_want_the_same_schedules_are_not_split() -> None:
    advice, symbols = advice_for(square)
    large = Samples({"s": 512, "b": 4}, ({"s": 64, "b": 32},))
    assert 0 <= advice.saving(large) <= MARGIN
    assert advice.buckets(symbols, large, 2) == {}


def test_nothing_is_split_without_another_size_or_where_none_is_allowed() -> None:
    advice, symbols = advice_for(square)
    assert advice.buckets(symbols, Samples({"s": 4, "b": 4}), 2) == {}
    assert advice.buckets(symbols, Samples(SIZES.expected, SIZES.others, is_valid=False), 2) == {}
    assert advice.buckets(symbols, SIZES, 0) == {}


def test_a_graph_of_one_box_has_the_box_s_sizes_alone() -> None:
    cx = lm.Graph()
    s = lm.dim("s", 0, 64, buckets=[1])
    cx.tensor((s, 2 * s + 1)).sum(0).output()
    module = cx.module()
    lower_hlo(module)
    graph = graph_of(module)
    before = str(module)
    one, some = narrow(graph, {"s": (1, 1)}), narrow(graph, {"s": (2, 8)})
    assert one is not None and some is not None
    one.verify()
    some.verify()
    assert "[s in 1 to 1] (%input0: !luminal.tensor<[1, 3], f32>) -> (!luminal.tensor<[3], f32>)" in str(one)
    assert "[s in 2 to 8] (%input0: !luminal.tensor<[s, 2*s + 1], f32>)" in str(some)
    assert str(module) == before
