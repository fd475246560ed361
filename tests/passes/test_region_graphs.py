"""Region graphs of known primitives: their cuts, what they write in place, and what they check."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dim import as_dim, dim
from luminal.dtype import bf16, i32, i64
from luminal.errors import DivisionByZeroError, IndexOutOfRangeError, ShapeError
from luminal.passes import cut_choices
from luminal.passes.cut_choices import (
    conflicting_reductions,
    initial_cuts,
    instances,
    is_contraction,
)
from luminal.passes.cut_moves import neighbours
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.region_graph import CheckStep, RegionGraph, RegionStep
from luminal.passes.region_terms import RegionTooLargeError, RegionWalk
from luminal.passes.value_graph import Interface
from tests.passes.primitive_graphs import (
    encoder,
    graph_of,
    kept,
    matmul,
    numbers,
    same,
    silu,
    softmax,
    tensor,
    text,
)

S = dim("s", 0, 64)


# ---- cuts


def test_six_layers_share_the_regions_of_one() -> None:
    batch, length = dim("b", 1, 8), dim("t", 1, 50)
    few, many = form_regions(encoder(batch, length, 1)), form_regions(encoder(batch, length, 4))
    assert few.regions.keys() == many.regions.keys()
    assert len(many.steps) - len(few.steps) == 3 * 11
    assert sum(isinstance(step, CheckStep) for step in many.steps) == 1


def test_encoder_computes_what_its_primitives_do() -> None:
    graph = encoder(dim("b", 1, 8), dim("t", 1, 50), 1)
    generator = np.random.default_rng(0)
    inputs: list[np.ndarray] = [generator.integers(0, 100, (2, 5)), generator.integers(0, 2, (2, 5))]
    shapes = [[int(size) for size in kind.shape] for kind in graph.input_types[2:]]
    inputs += [generator.standard_normal(shape).astype(np.float32) * 0.3 for shape in shapes]
    regions = form_regions(graph)
    have = interpret_regions(regions, inputs, {"b": 2, "t": 5})[0]
    np.testing.assert_allclose(have, interpret(graph, inputs, {"b": 2, "t": 5})[0], rtol=2e-3, atol=2e-4)


def test_an_epilogue_ends_where_another_product_begins() -> None:
    """silu(x @ a) * (x @ b): two regions, each with one product."""

    def body(b: PrimitiveBuilder, x, first, second):
        return b.mul(silu(b, matmul(b, x, first)), matmul(b, x, second))

    regions = same(
        graph_of([tensor(3, 4), tensor(4, 5), tensor(4, 5)], body), [numbers(3, 4), *[numbers(4, 5)] * 2]
    )
    assert [text(regions, step).count("reduce.sum") for step in range(2)] == [1, 1]
    assert "exp2" in text(regions, 0)
    assert len(regions.steps) == 2


def test_softmax_of_both_axes_is_cut() -> None:
    graph = graph_of([tensor(5, 7)], lambda b, x: b.add(softmax(b, x, 0), softmax(b, x, 1)))
    regions = same(graph, [numbers(5, 7)])
    assert len(regions.steps) > 1
    assert not any(conflicting_reductions(region) for region in regions.regions.values())
    partition = Partition.of(graph)
    ((_, whole),) = instances(partition, Cuts())
    assert conflicting_reductions(whole.formed.region)


def test_a_reduction_of_a_reduction_over_its_own_index_is_cut() -> None:
    """The norm of a mean: the mean is not computed anew for each step of the norm."""

    def body(b: PrimitiveBuilder, x):
        mean = b.sum_reduce(x, [1])
        norm = b.sqrt(b.sum_reduce(b.mul(mean, mean), [1]))
        return b.recip(mean, kept(b, norm, mean, 1))

    assert len(same(graph_of([tensor(3, 4, 5)], body), [numbers(3, 4, 5)]).steps) == 2


def test_merged_values_are_stages_of_their_reader() -> None:
    def body(b: PrimitiveBuilder, q, k, v):
        return matmul(b, softmax(b, matmul(b, q, b.permute(k, (1, 0))), 1), v)

    graph = graph_of([tensor(S, 8)] * 3, body, [S])
    partition = Partition.of(graph)
    cuts = initial_cuts(partition)
    assert len(form_regions(partition, cuts).steps) == 3
    merged = Cuts(cuts.kept, cuts.kept)
    regions = form_regions(partition, merged)
    assert len(regions.steps) == 1
    region = next(iter(regions.regions.values()))
    assert len(region.inner) == 2
    assert region_text(parse_region(region_text(region))) == region_text(region)
    data = [numbers(9, 8) / 4 for _ in range(3)]
    np.testing.assert_allclose(
        interpret_regions(regions, data, {"s": 9})[0], interpret(graph, data, {"s": 9})[0], rtol=1e-5
    )


def test_moves_change_all_layers_alike_and_undo_each_other() -> None:
    partition = Partition.of(encoder(2, 5, 3))
    cuts = initial_cuts(partition)
    moves = dict(neighbours(partition, cuts))
    kinds = {name.split()[0] for name in moves}
    assert {"inline", "merge", "keep", "slide", "join"} <= kinds
    merged = next(found for name, found in moves.items() if name.startswith("merge"))
    assert len(merged.merged) % 3 == 0
    for _ in range(9):  # what was merged into different regions is parted by different moves
        parted = [found for name, found in neighbours(partition, merged) if name.startswith("part")]
        merged = min(parted, key=lambda found: len(found.merged), default=merged)
    assert merged == cuts
    joined = next(found for name, found in moves.items() if name.startswith("join"))
    assert cuts in [found for _, found in neighbours(partition, joined)]
    assert str(cuts) != str(joined)


def test_joined_regions_have_several_outputs() -> None:
    graph = graph_of([tensor(4, 6)], lambda b, x: (b.max_reduce(x, [1]), b.max_reduce(x, [1], "argmax")))
    partition = Partition.of(graph)
    pair = tuple(sorted(value.number for value in partition.graph.outputs))
    regions = form_regions(partition, Cuts(joined=frozenset({pair})))
    assert len(regions.steps) == 1
    assert text(regions).count("= load") == 1
    assert "reduce.argmax" in text(regions)
    data = numbers(4, 6)
    for have, want in zip(interpret_regions(regions, [data], {}), interpret(graph, [data], {}), strict=True):
        np.testing.assert_array_equal(have, want)


def test_joins_that_would_wait_for_each_other_are_left_out() -> None:
    def body(b: PrimitiveBuilder, x, y):
        first, second = b.exp2(x), b.exp2(y)
        return b.max_reduce(first, [0]), b.max_reduce(second, [0]), first, second

    partition = Partition.of(graph_of([tensor(5), tensor(5)], body))
    after, behind, first, second = (value.number for value in partition.graph.outputs)
    crossed = frozenset({tuple(sorted((first, behind))), tuple(sorted((second, after)))})
    assert len(form_regions(partition, Cuts(joined=crossed)).steps) == 3
    along = frozenset({tuple(sorted((first, second))), tuple(sorted((after, behind)))})
    assert len(form_regions(partition, Cuts(joined=along)).steps) == 2


def test_what_is_a_contraction() -> None:
    graph = graph_of([tensor(3, 4), tensor(4, 5)], lambda b, x, y: b.sum_reduce(matmul(b, x, y), [0]))
    found = [value.op for value in Partition.of(graph).graph.values if is_contraction(value)]
    assert found == ["sum_reduce"]


# ---- memory at the border


def test_strided_inputs_and_outputs() -> None:
    graph = graph_of([tensor(3, 4)], lambda b, x: b.exp2(x))
    transposed = (as_dim(1), as_dim(3))
    Interface(input_strides=[transposed], output_strides=[transposed]).attach(graph)
    regions = same(graph, [numbers(3, 4)])
    assert [value.strides for value in regions.values] == [transposed, transposed]
    assert "index i0 = 12\nargument" in text(regions)


def test_outputs_that_are_inputs_or_each_other_are_copies() -> None:
    def body(b: PrimitiveBuilder, x):
        y = b.add(x, x)
        return x, y, y, b.permute(y, (1, 0)), b.full(3, (2, 2), i32)

    regions = same(graph_of([tensor(3, 4)], body), [numbers(3, 4)])
    assert len(set(regions.outputs)) == 5
    assert [regions.values[number].kind for number in regions.outputs] == ["output"] * 5
    assert [regions.values[number].position for number in regions.outputs] == [0, 1, 2, 3, 4]


def updated(regions: RegionGraph) -> list[int]:
    """For each output, the input whose memory it is, or -1."""
    found: list[int] = []
    for number in regions.outputs:
        while regions.values[number].shares >= 0:
            number = regions.values[number].shares
        value = regions.values[number]
        found.append(value.position if value.kind == "input" else -1)
    return found


def test_an_update_of_the_same_element_is_in_place() -> None:
    graph = graph_of([tensor(3, 4), tensor(3, 4)], lambda b, x, y: b.add(b.mul(x, x), y))
    Interface(destinations={0: 0}).attach(graph)
    regions = same(graph, [numbers(3, 4), numbers(3, 4)])
    assert updated(regions) == [0]
    assert len(regions.steps) == 1
    assert "alias 0" in text(regions)


def test_an_update_that_reads_other_elements_is_moved_in_the_end() -> None:
    graph = graph_of([tensor(4, 4)], lambda b, x: b.add(x, b.permute(x, (1, 0))))
    Interface(destinations={0: 0}).attach(graph)
    regions = same(graph, [numbers(4, 4)])
    assert updated(regions) == [0]
    assert len(regions.steps) == 2


def test_softmax_into_its_own_input_is_moved() -> None:
    graph = graph_of([tensor(4, 4)], lambda b, x: softmax(b, x, 1))
    Interface(destinations={0: 0}).attach(graph)
    assert len(same(graph, [numbers(4, 4)]).steps) == 2


def test_inputs_that_change_places() -> None:
    graph = graph_of([tensor(5), tensor(5)], lambda b, x, y: (y, x))
    Interface(destinations={0: 0, 1: 1}).attach(graph)
    data = [numbers(5), numbers(5) + 1]
    regions = same(graph, data)
    assert updated(regions) == [0, 1]
    assert len(regions.steps) == 4


def test_an_input_that_stays_needs_no_step() -> None:
    graph = graph_of([tensor(5)], lambda b, x: x)
    Interface(destinations={0: 0}).attach(graph)
    regions = same(graph, [numbers(5)])
    assert regions.steps == []
    assert updated(regions) == [0]


def cache_update(bounds: str = "error") -> GraphOp:
    def body(b: PrimitiveBuilder, cache, new, place):
        where = [b.expand(b.reshape(place, (1, 1)), (1, 4)), b.iota((1, 4), 1)]
        updated = b.scatter(cache, b.mul(new, new), where, "set", bounds)
        return updated, b.sum_reduce(updated, [0]), b.max_reduce(cache, [0])

    return graph_of([tensor(6, 4), tensor(1, 4), tensor(1, dtype=i64)], body)


def test_a_cache_is_updated_in_place_after_its_last_reader() -> None:
    graph = cache_update()
    Interface(destinations={0: 0}).attach(graph)
    data = [numbers(6, 4), numbers(1, 4), np.array([2])]
    regions = same(graph, data)
    assert updated(regions) == [0, -1, -1]
    kinds = [type(step) for step in regions.steps]
    assert kinds == [CheckStep, RegionStep, RegionStep, RegionStep]
    write = next(n for n, s in enumerate(regions.steps) if regions.outputs[0] in s.outputs)
    readers = [n for n, s in enumerate(regions.steps) if regions.inputs[0] in s.arguments]
    assert readers[-1] == write
    assert isinstance(regions.steps[write], RegionStep)
    assert "index i0 = 4\n" in text(regions, write)


@pytest.mark.parametrize("reads", ["value", "index"])
def test_a_scatter_that_reads_its_own_base_elsewhere_is_moved_in_the_end(reads: str) -> None:
    def body(b: PrimitiveBuilder, base, other):
        value, index = (base, other) if reads == "value" else (other, base)
        return b.scatter(base, value, [b.iota((4, 4), 0), index], "set", "assumed")

    graph = graph_of([tensor(4, 4, dtype=i64), tensor(4, 4, dtype=i64)], body)
    Interface(destinations={0: 0}).attach(graph)
    data = np.random.default_rng(0).integers(0, 4, (2, 4, 4))
    regions = same(graph, [data[0], data[1]])
    assert updated(regions) == [0]
    assert len(regions.steps) == 3


def test_without_a_destination_the_base_is_copied() -> None:
    data = [numbers(6, 4), numbers(1, 4), np.array([2])]
    regions = same(cache_update(), data)
    assert updated(regions) == [-1, -1, -1]


def test_scatters_of_one_base_get_copies_and_a_chain_gets_one() -> None:
    def body(b: PrimitiveBuilder, x, value, place):
        double = b.add(x, x)
        once = b.scatter(double, value, [place], "add")
        twice = b.scatter(once, value, [place], "max")
        return twice, b.scatter(double, value, [place], "set")

    data = [numbers(5), numbers(3), np.array([1, 1, 4])]
    regions = same(graph_of([tensor(5), tensor(3), tensor(3, dtype=i64)], body), data)
    steps = [step for step in regions.steps if isinstance(step, RegionStep)]
    assert len(steps) == 6


def test_narrow_sums_of_a_scatter_round_once() -> None:
    def body(b: PrimitiveBuilder, x, value, place):
        return b.scatter(x, value, [place], "add")

    graph = graph_of([tensor(2, dtype=bf16), tensor(3, dtype=bf16), tensor(3, dtype=i64)], body)
    data = [np.array([256, 0], bf16.numpy), np.array([1, 1, 0.5], bf16.numpy), np.array([0, 0, 1])]
    have = interpret_regions(form_regions(graph), data, {})[0]
    assert have.tobytes() == interpret(graph, data, {})[0].tobytes()
    assert float(have[0]) == 258


# ---- what is found at run time


def test_a_wrong_index_is_found_before_anything_is_overwritten() -> None:
    graph = cache_update()
    Interface(destinations={0: 0}).attach(graph)
    regions = form_regions(graph)
    assert isinstance(regions.steps[0], CheckStep)
    assert regions.steps[0].sources == ("model.py:1 in forward",)
    for wrong in (-1, 6):
        with pytest.raises(IndexOutOfRangeError, match="out of bounds"):
            interpret_regions(regions, [numbers(6, 4), numbers(1, 4), np.array([wrong])], {})
    assert not any(isinstance(step, CheckStep) for step in form_regions(cache_update("assumed")).steps)


def test_equal_checks_are_one() -> None:
    def body(b: PrimitiveBuilder, x, y, place):
        return b.gather(x, [place]), b.gather(y, [place])

    regions = form_regions(graph_of([tensor(5), tensor(5), tensor(3, dtype=i64)], body))
    assert sum(isinstance(step, CheckStep) for step in regions.steps) == 1


def test_division_of_integers_by_zero() -> None:
    graph = graph_of([tensor(3, dtype=i32)] * 2, lambda b, x, y: b.recip(x, y, "floor"))
    regions = form_regions(graph)
    data = np.array([7, -7, 5], np.int32)
    np.testing.assert_array_equal(
        interpret_regions(regions, [data, np.full(3, 2, np.int32)], {})[0], data // 2
    )
    with pytest.raises(DivisionByZeroError):
        interpret_regions(regions, [data, np.array([1, 0, 1], np.int32)], {})
    constant = graph_of([tensor(3, dtype=i32)], lambda b, x: b.mod(x, b.full_like(3, x)))
    assert not any(isinstance(step, CheckStep) for step in form_regions(constant).steps)


def test_sizes_that_break_a_slice() -> None:
    graph = graph_of([tensor(S)], lambda b, x: b.slice(x, (S - 3,), (3,)), [S])
    regions = form_regions(graph)
    np.testing.assert_array_equal(interpret_regions(regions, [numbers(5)], {"s": 5})[0], numbers(5)[2:])
    with pytest.raises(ShapeError, match="leaves an axis"):
        interpret_regions(regions, [numbers(2)], {"s": 2})


def test_values_that_are_used_twice_over_and_over_are_walked_once() -> None:
    """A power of a @ b by 40 squares: there are 2 ** 40 ways back from the last to the product."""

    def body(b: PrimitiveBuilder, x, y):
        base = power = matmul(b, x, y)
        for _ in range(40):
            base = b.max(base, b.min(base, base))
            power = b.add(power, base)
        return power

    same(graph_of([tensor(4, 4), tensor(4, 4)], body), [numbers(4, 4), numbers(4, 4)])


def test_a_long_chain_needs_no_deep_stack() -> None:
    def body(b: PrimitiveBuilder, x):
        value = x
        for _ in range(3000):
            value = b.add(value, x)
        return value

    np.testing.assert_array_equal(
        interpret_regions(form_regions(graph_of([tensor(2)], body)), [numbers(2)], {})[0], numbers(2) * 3001
    )


def test_what_would_be_computed_at_too_many_points_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """x = x[p] + x[q], again and again: without cuts, the number of points doubles with each step."""

    def body(b: PrimitiveBuilder, x, p, q):
        for _ in range(16):
            x = b.add(b.gather(x, [p], "assumed"), b.gather(x, [q], "assumed"))
        return x

    graph = graph_of([tensor(4), tensor(4, dtype=i64), tensor(4, dtype=i64)], body)
    same(graph, [numbers(4), np.array([3, 1, 0, 2]), np.array([1, 1, 2, 3])])
    partition = Partition.of(graph)
    with pytest.raises(RegionTooLargeError, match="keep it in memory") as first:
        instances(partition, Cuts())
    monkeypatch.setattr(RegionWalk, "form", lambda *_: pytest.fail("it is tried once"))
    with pytest.raises(RegionTooLargeError) as again:
        instances(partition, Cuts())
    assert again.value.value == first.value.value


def test_steps_of_a_recurrent_network_are_kept_before_their_regions_are_formed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one row: each step is a product of a vector, read in two halves, which the next product needs whole."""

    def body(b: PrimitiveBuilder, x, weight):
        for _ in range(12):
            wide = b.expand(b.reshape(x, (1, 4)), (8, 4))
            both = b.sum_reduce(b.mul(wide, weight), [1])
            first, second = (b.slice(both, [start], [4]) for start in (0, 4))
            x = b.mul(b.exp2(first, "2"), second)
        return x

    graph = graph_of([tensor(4), tensor(8, 4)], body)
    partition = Partition.of(graph)
    formed: list[Cuts] = []
    found = cut_choices.instances
    monkeypatch.setattr(cut_choices, "instances", lambda p, cuts: formed.append(cuts) or found(p, cuts))
    cuts = initial_cuts(partition)
    assert len(formed) == 1
    *read, last = (v.number for v in partition.graph.values if v.op == "sum_reduce")
    assert {*read} <= cuts.kept and last not in cuts.kept
    monkeypatch.undo()
    same(graph, [numbers(4) / 9, numbers(8, 4) / 40])


def test_a_maximum_within_the_sum_of_its_row_is_not_kept() -> None:
    """It does not vary along the row, whatever the views between say."""

    def body(b: PrimitiveBuilder, x):
        greatest = b.max_reduce(x, [1])
        wide = b.expand(b.reshape(greatest, (3, 1, 1)), (3, 2, 4))
        less = b.add(b.reshape(x, (3, 2, 4)), wide)
        return b.sum_reduce(b.reshape(b.permute(less, [0, 2, 1]), (3, 8)), [1])

    graph = graph_of([tensor(3, 8)], body)
    partition = Partition.of(graph)
    assert not any(
        partition.graph.values[number].op == "max_reduce" for number in initial_cuts(partition).kept
    )
    assert len(same(graph, [numbers(3, 8)]).steps) == 1


def test_a_product_of_other_things_behind_a_product_is_kept() -> None:
    """x @ a + sum(v * w) of each column: the second sum has no place in the loops of the first; x @ a times a norm of x
    has."""

    def apart(b: PrimitiveBuilder, x, first, v, second):
        columns = b.sum_reduce(b.mul(b.expand(v, (4, 5)), second), [0])
        return b.add(matmul(b, x, first), b.expand(b.reshape(columns, (1, 5)), (3, 5)))

    shapes = [tensor(3, 4), tensor(4, 5), tensor(4, 1), tensor(4, 5)]
    given = [numbers(3, 4), numbers(4, 5), numbers(4, 1), numbers(4, 5)]
    assert len(same(graph_of(shapes, apart), given).steps) == 2

    def together(b: PrimitiveBuilder, x, first):
        squares = b.sum_reduce(b.mul(x, x), [1])
        return b.mul(matmul(b, x, first), b.expand(b.reshape(squares, (3, 1)), (3, 5)))

    assert len(same(graph_of(shapes[:2], together), given[:2]).steps) == 1
