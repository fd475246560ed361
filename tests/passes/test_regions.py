"""Regions of known primitives: their terms, text and keys, and how they are evaluated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from luminal.dialects.graph_op import DEFAULT_LICENCES
from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_ops import region_of, region_operation
from luminal.dialects.kernel.region_text import parse_region, region_key, region_text
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dim import as_dim, dim
from luminal.dtype import DType, bf16, f32, i64
from luminal.errors import VerifyError
from luminal.passes.cut_choices import (
    instances,
)
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.place import place
from luminal.passes.value_graph import Interface
from luminal.search.forms import forms
from tests.passes.primitive_graphs import (
    graph_of,
    kept,
    layer_norm,
    matmul,
    numbers,
    one,
    same,
    softmax,
    tensor,
    text,
)

S = dim("s", 0, 64)


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
    def body(b: PrimitiveBuilder, x):
        return b.permute(b.reshape(softmax(b, x, 1), (5, 3, 4)), (1, 0, 2))

    found = one([tensor(5, 12)], body)
    assert "reduce.max [i0 i2]" in found
    assert found.count("= load") == 1


def test_product_with_own_transpose_is_no_single_index() -> None:
    found = one([tensor(5, 7)], lambda b, x: matmul(b, x, b.permute(x, (1, 0))))
    assert "load 0 [(7)*i0 + r0]" in found
    assert "load 0 [(7)*i1 + r0]" in found


def test_sum_of_a_value_and_its_transpose_is_instantiated_twice() -> None:
    def body(b: PrimitiveBuilder, x):
        double = b.add(x, x)
        return b.sub(double, b.permute(double, (1, 0)))

    found = one([tensor(6, 6)], body)
    assert "[(6)*i0 + i1]" in found
    assert "[i0 + (6)*i1]" in found


def test_nested_reductions_do_not_share_a_name() -> None:
    """sum_a x[a] * sum_b x[b] * y[a, b]: a and b see the same x, but b stands inside of a."""

    def body(b: PrimitiveBuilder, x, y):
        inside = b.sum_reduce(b.mul(b.broadcast_to(x, (5, 5)), y), [1])
        return b.sum_reduce(b.mul(x, inside), [0])

    graph = graph_of([tensor(5), tensor(5, 5)], body)
    same(graph, [numbers(5), numbers(5, 5)])
    partition = Partition.of(graph)
    ((_, instance),) = instances(partition, Cuts())
    assert "reduce.sum [r0]" in region_text(instance.formed.region)
    assert "reduce.sum [r1]" in region_text(instance.formed.region)


def test_views_become_addresses() -> None:
    def body(b: PrimitiveBuilder, x):
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
    def body(b: PrimitiveBuilder, x, y):
        first = b.compare(b.iota((7,), 0), b.full(3, (7,), i64))
        return b.select(first, b.pad(x, (0,), (4,)), b.pad(y, (3,), (0,)))

    assert one([tensor(3), tensor(4)], body).count("= select") == 1


def test_convolution_is_affine() -> None:
    """A 3x3 convolution over a padded image: windows are sums of indices, nothing is divided."""

    def body(b: PrimitiveBuilder, x, w):
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
    def body(b: PrimitiveBuilder, x, y):
        return b.mul(b.reshape(b.permute(x, (1, 0)), (8, 3)), y)

    graph = graph_of([tensor(4, 6), tensor(8, 3)], body)
    same(graph, [numbers(4, 6), numbers(8, 3)])
    graph = graph_of(
        [tensor(4, 9), tensor(12, 3)], lambda b, x, y: b.mul(b.reshape(b.permute(x, (1, 0)), (12, 3)), y)
    )
    assert "mod.floor" in text(same(graph, [numbers(4, 9), numbers(12, 3)]))


def test_symbolic_reshape_divides_exactly() -> None:
    def body(b: PrimitiveBuilder, x):
        return b.permute(b.reshape(b.exp2(x), (S, 3, 4)), (1, 0, 2))

    found = one([tensor(3 * S, 4)], body, symbols=[S])
    assert "load 0 [(4)*i0 + (12)*i1 + i2]" in found


def test_plain_positions_of_a_gather_are_affine() -> None:
    def body(b: PrimitiveBuilder, table, ids):
        return b.gather(table, [b.expand(b.reshape(ids, (5, 1)), (5, 8)), b.iota((5, 8), 1)], "assumed")

    found = one([tensor(9, 8), tensor(5, dtype=i64)], body)
    assert "load 1 [i1] dynamic" in found
    assert "load 0 [i0] : i64" in found


def test_narrow_floats_round_where_no_licence_drops_it() -> None:
    def body(b: PrimitiveBuilder, x):
        return b.mul(b.add(x, x), x)

    wide = one([tensor(4, dtype=bf16)], body)
    exact = one([tensor(4, dtype=bf16)], body, licences=["reassociate"])
    assert wide.count("cast.none") == 2
    assert exact.count("cast.none") == 4


def test_strict_operations_round_and_user_casts_do() -> None:
    def strict(b: PrimitiveBuilder, x):
        b.strict = True
        double = b.add(x, x)
        b.strict = False
        return b.mul(double, x)

    def user(b: PrimitiveBuilder, x):
        return b.mul(b.cast(b.cast(b.add(x, x), f32), bf16), x)

    assert one([tensor(4, dtype=bf16)], strict).count("cast.none") == 4
    assert one([tensor(4, dtype=bf16)], user).count("cast.none") == 6


def exponentials(*, strict: bool, dtype: DType = f32) -> Region:
    """The region of sum(exp2(x - max x)), whose difference may be strict."""

    def body(b: PrimitiveBuilder, x):
        greatest = kept(b, b.max_reduce(x, [1]), x, 1)
        b.strict = strict
        difference = b.sub(x, greatest)
        b.strict = False
        return b.sum_reduce(b.exp2(difference), [1])

    (region,) = form_regions(graph_of([tensor(8, 128, dtype=dtype)], body)).regions.values()
    return region


def test_no_licence_applies_in_a_region_with_a_strict_operation() -> None:
    free, strict = exponentials(strict=False), exponentials(strict=True)
    licences = frozenset(DEFAULT_LICENCES)
    names = [form.name for form in forms(free, licences)]
    assert "folds of 64" in names and list(forms(strict, licences)) == list(forms(free, frozenset())) == []
    schedule = parse_schedule("out0: i0:* r0:*")
    placed = [place(region, schedule, "kernel", DEFAULT_LICENCES) for region in (free, strict)]
    assert [len(function.licences) for function in placed] == [len(DEFAULT_LICENCES), 0]
    assert "strict\n" in region_text(strict) and region_key(strict) != region_key(free)
    assert region_text(strict).replace("strict\n", "") == region_text(free)
    assert parse_region(region_text(strict)).is_strict and not parse_region(region_text(free)).is_strict
    assert region_of(region_operation(strict, "kernel")).is_strict


def test_a_strict_operation_of_another_region_and_one_on_integers_switch_nothing_off() -> None:
    def body(b: PrimitiveBuilder, x, n):
        b.strict = True
        total, counts = b.sum_reduce(x, [1]), b.add(n, n)
        b.strict = False
        return total, counts, b.exp2(b.add(total, total))

    graph = graph_of([tensor(8, 128), tensor(8, dtype=i64)], body)
    regions = form_regions(graph).regions.values()
    assert sum(region.is_strict for region in regions) == 1 and len(regions) == 3


def test_sums_without_the_licence_are_loops_in_order() -> None:
    graph = graph_of([tensor(3, 4, 5)], lambda b, x: b.sum_reduce(x, [0, 2]), licences=[])
    data = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32) * 1e4
    regions = form_regions(graph)
    assert "reduce" not in text(regions)
    assert text(regions).count("= loop") == 2
    np.testing.assert_array_equal(interpret_regions(regions, [data], {})[0], interpret(graph, [data], {})[0])


def test_what_no_step_of_a_loop_changes_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean within a sum of squares in order: both loops go over one index."""
    size, calls = 64, Counter[str]()

    def counted(name: str, *given: Any) -> np.ndarray:
        calls[name] += 1
        return evaluate_elementwise(name, *given)

    monkeypatch.setattr("luminal.dialects.kernel.region_interpreter.evaluate_elementwise", counted)
    types = [tensor(1, size), tensor(size), tensor(size)]
    same(
        graph_of(types, layer_norm, licences=[]),
        [numbers(*map(int, t.shape), dtype="float32") for t in types],
    )
    assert size < calls.total() < 10 * size


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


def test_a_pad_of_memory_with_zeros_needs_no_select() -> None:
    """Guards of both axes once each, on the load alone; a pad with another number selects."""

    def body(bits: float):
        return lambda b, x: b.pad(b.pad(x, (1, 0), (2, 0), bits), (0, 3), (0, 1), bits)

    padded = one([tensor(5, 6)], body(0.0))
    assert "select" not in padded and padded.count("= less_than") == 4
    other = one([tensor(5, 6)], body(1.0))
    assert other.count("= select") == 1 and other.count("= less_than") == 4


def test_a_pad_of_what_is_computed_selects_once() -> None:
    found = one([tensor(5, 6)], lambda b, x: b.pad(b.pad(b.exp2(x), (1, 0), (2, 0)), (0, 3), (0, 1)))
    assert found.count("= select") == 1
    graph = graph_of([tensor(5, 6)], lambda b, x: b.pad(b.exp2(x), (1, 2), (2, 1)))
    same(graph, [numbers(5, 6)])
