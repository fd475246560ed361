"""Regions of known graphs: their terms, cuts, keys, and what they write in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dim import as_dim, dim
from luminal.dtype import bf16, f32, i32, i64
from luminal.errors import DivisionByZeroError, IndexOutOfRangeError, ShapeError, VerifyError
from luminal.passes.cut_choices import (
    conflicting_reductions,
    initial_cuts,
    instances,
    is_contraction,
    neighbours,
)
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.region_graph import CheckStep, RegionGraph, RegionStep
from luminal.passes.region_terms import RegionTooLargeError
from luminal.passes.value_graph import Interface
from tests.passes.primitive_graphs import encoder, graph_of, kept, layer_norm, matmul, silu, softmax, tensor

S = dim("s", 0, 64)


def text(regions: RegionGraph, step: int = -1) -> str:
    found = regions.steps[step]
    assert isinstance(found, RegionStep | CheckStep)
    return region_text(found.region)


def one(types: Sequence, body, **options) -> str:
    """The text of the only region of a graph."""
    regions = form_regions(graph_of(types, body, **options))
    assert len(regions.steps) == 1
    return text(regions)


def same(graph: GraphOp, inputs: Sequence[np.ndarray], dims: Mapping[str, int] | None = None) -> RegionGraph:
    """The regions of a graph, which compute what the primitives do."""
    regions = form_regions(graph)
    expected = interpret(graph, inputs, dims or {})
    for want, have in zip(expected, interpret_regions(regions, inputs, dims or {}), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    return regions


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


# ---- terms


def test_softmax_has_one_index() -> None:
    found = one([tensor(S, 8)], lambda b, x: softmax(b, x, 1), symbols=[S])
    assert "index i0 = d0\nindex i1 = 8\nargument" in found
    assert "reduce.max [i1]" in found
    assert "reduce.sum [i1]" in found
    assert found.count("= load") == 1


def test_layer_norm_has_one_index() -> None:
    types = [tensor(4, 3, 8), tensor(8), tensor(8)]
    found = one(types, layer_norm)
    assert "index i0 = 12\nindex i1 = 8\nargument" in found
    assert found.count("reduce.sum [i1]") == 2


def test_norm_of_a_split_axis_takes_the_digits_of_its_leaf() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        return b.permute(b.reshape(softmax(b, x, 1), (5, 3, 4)), (1, 0, 2))

    found = one([tensor(5, 12)], body)
    assert "reduce.max [i0 i2]" in found
    assert found.count("= load") == 1


def test_product_with_own_transpose_is_no_single_index() -> None:
    found = one([tensor(5, 7)], lambda b, x: matmul(b, x, b.permute(x, (1, 0))))
    assert "load 0 [(7)*i0 + r0]" in found
    assert "load 0 [(7)*i1 + r0]" in found


def test_sum_of_a_value_and_its_transpose_is_instantiated_twice() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        double = b.add(x, x)
        return b.sub(double, b.permute(double, (1, 0)))

    found = one([tensor(6, 6)], body)
    assert "[(6)*i0 + i1]" in found
    assert "[i0 + (6)*i1]" in found


def test_nested_reductions_do_not_share_a_name() -> None:
    """sum_a x[a] * sum_b x[b] * y[a, b]: a and b see the same x, but b stands inside of a."""

    def body(b: PrimitiveBuilder, x, y):  # type: ignore[no-untyped-def]
        inside = b.sum_reduce(b.mul(b.broadcast_to(x, (5, 5)), y), [1])
        return b.sum_reduce(b.mul(x, inside), [0])

    graph = graph_of([tensor(5), tensor(5, 5)], body)
    same(graph, [numbers(5), numbers(5, 5)])
    partition = Partition.of(graph)
    ((_, instance),) = instances(partition, Cuts())
    assert "reduce.sum [r0]" in region_text(instance.formed.region)
    assert "reduce.sum [r1]" in region_text(instance.formed.region)


def test_views_become_addresses() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        flipped = b.flip(b.slice(x, (1, 0), (3, 4), (2, 1)), [0])
        return b.window(flipped, 1, 2, 1)

    found = one([tensor(7, 4)], body)
    assert "load 0 [(-8)*i0 + i1 + i2 + (20)] : f32" in found


def test_flip_in_front_of_a_reshape_splits_its_index() -> None:
    found = one([tensor(12)], lambda b, x: b.flip(b.reshape(b.flip(x, [0]), (3, 4)), [1]))
    assert "load 0 [(-4)*i0 + i1 + (8)]" in found


def test_pad_reads_nothing_outside() -> None:
    graph = graph_of([tensor(S)], lambda b, x: b.pad(b.exp2(x), (2,), (1,), 7.0), [S])
    for size in (0, 1, 5):
        regions = same(graph, [numbers(size)], {"s": size})
    assert "guarded" in text(regions)


def test_concatenation_has_one_select_a_part() -> None:
    def body(b: PrimitiveBuilder, x, y):  # type: ignore[no-untyped-def]
        first = b.compare(b.iota((7,), 0), b.full(3, (7,), i64))
        return b.select(first, b.pad(x, (0,), (4,)), b.pad(y, (3,), (0,)))

    assert one([tensor(3), tensor(4)], body).count("= select") == 1


def test_convolution_is_affine() -> None:
    """A 3x3 convolution over a padded image: windows are sums of indices, nothing is divided."""

    def body(b: PrimitiveBuilder, x, w):  # type: ignore[no-untyped-def]
        windows = b.window(b.window(b.pad(x, (0, 1, 1), (0, 1, 1)), 1, 3, 1), 2, 3, 1)  # c h w r s
        left = b.expand(b.reshape(windows, (1, 2, 6, 6, 3, 3)), (4, 2, 6, 6, 3, 3))
        right = b.expand(b.reshape(w, (4, 2, 1, 1, 3, 3)), (4, 2, 6, 6, 3, 3))
        return b.sum_reduce(b.mul(left, right), [1, 4, 5])

    graph = graph_of([tensor(2, 6, 6), tensor(4, 2, 3, 3)], body)
    found = text(same(graph, [numbers(2, 6, 6), numbers(4, 2, 3, 3)]))
    assert "mod" not in found
    assert "dynamic" not in found


def test_reshape_without_refinement_over_rows_is_whole_again() -> None:
    found = one([tensor(6, 4), tensor(8, 3)], lambda b, x, y: b.mul(b.reshape(b.add(x, x), (8, 3)), y))
    assert "load 0 [i0] : f32" in found


def test_reshape_without_refinement_divides() -> None:
    def body(b: PrimitiveBuilder, x, y):  # type: ignore[no-untyped-def]
        return b.mul(b.reshape(b.permute(x, (1, 0)), (8, 3)), y)

    graph = graph_of([tensor(4, 6), tensor(8, 3)], body)
    same(graph, [numbers(4, 6), numbers(8, 3)])
    graph = graph_of(
        [tensor(4, 9), tensor(12, 3)], lambda b, x, y: b.mul(b.reshape(b.permute(x, (1, 0)), (12, 3)), y)
    )
    assert "mod.floor" in text(same(graph, [numbers(4, 9), numbers(12, 3)]))


def test_symbolic_reshape_divides_exactly() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        return b.permute(b.reshape(b.exp2(x), (S, 3, 4)), (1, 0, 2))

    found = one([tensor(3 * S, 4)], body, symbols=[S])
    assert "load 0 [(4)*i0 + (12)*i1 + i2]" in found


def test_plain_positions_of_a_gather_are_affine() -> None:
    def body(b: PrimitiveBuilder, table, ids):  # type: ignore[no-untyped-def]
        return b.gather(table, [b.expand(b.reshape(ids, (5, 1)), (5, 8)), b.iota((5, 8), 1)], "assumed")

    found = one([tensor(9, 8), tensor(5, dtype=i64)], body)
    assert "load 1 [i1] dynamic" in found
    assert "load 0 [i0] : i64" in found


def test_narrow_floats_round_where_no_licence_drops_it() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        return b.mul(b.add(x, x), x)

    wide = one([tensor(4, dtype=bf16)], body)
    exact = one([tensor(4, dtype=bf16)], body, licences=["reassociate"])
    assert wide.count("cast.none") == 2
    assert exact.count("cast.none") == 4


def test_strict_operations_round_and_user_casts_do() -> None:
    def strict(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        b.strict = True
        double = b.add(x, x)
        b.strict = False
        return b.mul(double, x)

    def user(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        return b.mul(b.cast(b.cast(b.add(x, x), f32), bf16), x)

    assert one([tensor(4, dtype=bf16)], strict).count("cast.none") == 4
    assert one([tensor(4, dtype=bf16)], user).count("cast.none") == 6


def test_sums_without_the_licence_are_loops_in_order() -> None:
    graph = graph_of([tensor(3, 4, 5)], lambda b, x: b.sum_reduce(x, [0, 2]), licences=[])
    data = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32) * 1e4
    regions = form_regions(graph)
    assert "reduce" not in text(regions)
    assert text(regions).count("= loop") == 2
    np.testing.assert_array_equal(interpret_regions(regions, [data], {})[0], interpret(graph, [data], {})[0])


# ---- keys


def test_equal_regions_have_equal_text_whatever_their_symbols_are_called() -> None:
    t, u = dim("t", 0, 64), dim("d0", 0, 64)
    texts = {one([tensor(size, 8)], lambda b, x: softmax(b, x, 1), symbols=[size]) for size in (S, t, u)}
    assert len(texts) == 1
    other = dim("s", 1, 64)
    assert one([tensor(other, 8)], lambda b, x: softmax(b, x, 1), symbols=[other]) not in texts


def test_axes_that_are_one_in_all_accesses_are_one_index() -> None:
    found = one([tensor(3, S, 5), tensor(3, S, 5)], lambda b, x, y: b.add(x, y), symbols=[S])
    assert "index i0 = 15*d0\nargument" in found


def test_constant_arguments_are_part_of_the_key() -> None:
    graph = graph_of([tensor(4, 5), tensor(5, 6)], matmul)
    plain = form_regions(graph).regions.keys()
    Interface(constants=frozenset({1})).attach(graph)
    regions = form_regions(graph)
    assert regions.regions.keys() != plain
    assert [value.kind for value in regions.values] == ["input", "constant", "output"]
    assert "argument 1 = f32 [30] constant" in text(regions)


@pytest.mark.parametrize(
    "line", ["%0 = nonsense : f32", "%0 = load : f32", "output 0 = %7", "argument 0 = f99 [3]"]
)
def test_text_that_is_no_region(line: str) -> None:
    with pytest.raises(VerifyError, match="no line of a region"):
        parse_region(line + "\n")


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

    def body(b: PrimitiveBuilder, x, first, second):  # type: ignore[no-untyped-def]
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

    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        mean = b.sum_reduce(x, [1])
        norm = b.sqrt(b.sum_reduce(b.mul(mean, mean), [1]))
        return b.recip(mean, kept(b, norm, mean, 1))

    assert len(same(graph_of([tensor(3, 4, 5)], body), [numbers(3, 4, 5)]).steps) == 2


def test_merged_values_are_stages_of_their_reader() -> None:
    def body(b: PrimitiveBuilder, q, k, v):  # type: ignore[no-untyped-def]
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
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
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
    def body(b: PrimitiveBuilder, cache, new, place):  # type: ignore[no-untyped-def]
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


def test_without_a_destination_the_base_is_copied() -> None:
    data = [numbers(6, 4), numbers(1, 4), np.array([2])]
    regions = same(cache_update(), data)
    assert updated(regions) == [-1, -1, -1]


def test_scatters_of_one_base_get_copies_and_a_chain_gets_one() -> None:
    def body(b: PrimitiveBuilder, x, value, place):  # type: ignore[no-untyped-def]
        double = b.add(x, x)
        once = b.scatter(double, value, [place], "add")
        twice = b.scatter(once, value, [place], "max")
        return twice, b.scatter(double, value, [place], "set")

    data = [numbers(5), numbers(3), np.array([1, 1, 4])]
    regions = same(graph_of([tensor(5), tensor(3), tensor(3, dtype=i64)], body), data)
    steps = [step for step in regions.steps if isinstance(step, RegionStep)]
    assert len(steps) == 6


def test_narrow_sums_of_a_scatter_round_once() -> None:
    def body(b: PrimitiveBuilder, x, value, place):  # type: ignore[no-untyped-def]
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
    def body(b: PrimitiveBuilder, x, y, place):  # type: ignore[no-untyped-def]
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


def test_a_long_chain_needs_no_deep_stack() -> None:
    def body(b: PrimitiveBuilder, x):  # type: ignore[no-untyped-def]
        value = x
        for _ in range(3000):
            value = b.add(value, x)
        return value

    np.testing.assert_array_equal(
        interpret_regions(form_regions(graph_of([tensor(2)], body)), [numbers(2)], {})[0], numbers(2) * 3001
    )


def test_what_would_be_computed_at_too_many_points_is_kept() -> None:
    """x = x[p] + x[q], again and again: without cuts, the number of points doubles with each step."""

    def body(b: PrimitiveBuilder, x, p, q):  # type: ignore[no-untyped-def]
        for _ in range(16):
            x = b.add(b.gather(x, [p], "assumed"), b.gather(x, [q], "assumed"))
        return x

    graph = graph_of([tensor(4), tensor(4, dtype=i64), tensor(4, dtype=i64)], body)
    same(graph, [numbers(4), np.array([3, 1, 0, 2]), np.array([1, 1, 2, 3])])
    partition = Partition.of(graph)
    with pytest.raises(RegionTooLargeError, match="keep it in memory"):
        instances(partition, Cuts())


# ---- the interpreter of regions


def product_region(size: int) -> Region:
    table = TermTable()
    left = table.read(0, Affine.of({"i0": size, "r0": 1}), f32)
    right = table.read(1, Affine.of({"i1": 1, "r0": size}), f32)
    total = table.reduce("sum", ["r0"], (table.apply("mul", (left, right), None, f32),))
    elements = as_dim(size * size)
    output = Output(total, elements, Affine.of({"i0": size, "i1": 1}), indices=frozenset({"i0", "i1"}))
    extents = dict.fromkeys(("i0", "i1", "r0"), as_dim(size))
    return Region(table, extents, [Argument(f32, elements)] * 2, [output])


def test_large_products_are_not_spread_out() -> None:
    data = [np.random.default_rng(n).standard_normal((128, 128)).astype(np.float32) for n in range(2)]
    have = evaluate(product_region(128), [array.ravel() for array in data], {})[0]
    np.testing.assert_allclose(have.reshape(128, 128), data[0] @ data[1], rtol=1e-4, atol=1e-4)


def test_an_access_outside_of_an_argument() -> None:
    with pytest.raises(IndexError, match="outside of 8 elements"):
        evaluate(product_region(3), [np.zeros(8, np.float32), np.zeros(9, np.float32)], {})


def test_a_carried_loop() -> None:
    """A running sum with a factor: c = c * 2 + x[r]."""
    table = TermTable()
    (carry,) = table.carries("r0", [(f32, frozenset({"i0"}))])
    item = table.read(0, Affine.of({"i0": 4, "r0": 1}), f32)
    double = table.apply("mul", (carry, table.constant(0x40000000, f32)), None, f32)
    (last,) = table.loop(
        "r0", [carry], [table.constant(0, f32)], [table.apply("add", (double, item), None, f32)]
    )
    output = Output(last, as_dim(3), Affine.of({"i0": 1}), indices=frozenset({"i0"}))
    region = Region(table, {"i0": as_dim(3), "r0": as_dim(4)}, [Argument(f32, as_dim(12))], [output])
    data = np.arange(12, dtype=np.float32)
    expected = data.reshape(3, 4) @ np.array([8, 4, 2, 1], np.float32)
    np.testing.assert_array_equal(evaluate(region, [data], {})[0], expected)
    assert region_text(parse_region(region_text(region))) == region_text(region)
