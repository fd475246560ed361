"""The reference at sampled points: wrong kernels are caught, rounding is not."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.terms import Affine, Argument, Region, predicate
from luminal.dim import as_dim
from luminal.dtype import f32, f64, i64
from luminal.search.bounds import addresses_are_valid
from luminal.search.reference import Arithmetic, Evaluator, axes_of
from luminal.search.verify import agrees, sample_output
from tests.kernel import regions
from tests.kernel.test_place import CASES


def data(region: Region, dims: dict[str, int], seed: int = 1) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(a.elements.evaluate(dims)).astype(a.dtype.numpy) for a in region.arguments]


def row_sums(values: np.ndarray) -> tuple[Region, list[np.ndarray]]:
    b = regions.Builder()
    m, n = values.shape
    region = b.region({"i": m, "j": n}, [m * n], [(b.total(b.read(0, {"i": n, "j": 1}), "j"), {"i": 1})])
    return region, [values.reshape(-1)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "empty rows"])
def test_a_right_kernel_agrees_and_a_wrong_one_does_not(name: str) -> None:
    region, dims = CASES[name]
    arguments = data(region, dict(dims))
    results = evaluate(region, arguments, dims)
    for position, result in enumerate(results):
        sample = sample_output(region, position, arguments, dims)
        assert sample is not None
        assert agrees(sample, result)
        if region.outputs[position].dtype.is_float:
            assert not agrees(sample, result * np.float32(1.01) + np.float32(0.01))
            assert not agrees(sample, np.full_like(result, np.nan))
        else:
            assert not agrees(sample, result + 1)


def test_a_kernel_that_leaves_out_its_last_products_is_caught() -> None:
    region = regions.matmul(16, 16, 64)
    arguments = data(region, {})
    short = [arguments[0].copy(), *arguments[1:]]
    short[0].reshape(16, 64)[:, 63:] = 0
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    assert not agrees(sample, evaluate(region, short, {})[0])


def test_nan_and_infinities_are_exact() -> None:
    values = np.ones((4, 8), np.float32)
    values[0, 3], values[1, 2], values[2, 5] = np.nan, np.inf, -np.inf
    region, arguments = row_sums(values)
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    right = np.array([np.nan, np.inf, -np.inf, 8.0], np.float32)
    assert agrees(sample, right)
    hits = set(sample.addresses.tolist())
    wrong = {0: 0.0, 1: -np.inf, 2: np.nan, 3: np.inf}
    assert hits == set(wrong)
    for row, value in wrong.items():
        found = right.copy()
        found[row] = value
        assert not agrees(sample, found), row


def test_data_that_cancels_is_tolerated() -> None:
    draw = np.random.default_rng(2)
    values = draw.standard_normal((4, 512)).astype(np.float32)
    values[:, 1::2] = -values[:, ::2]
    values = draw.permuted(values * np.float32(1e6), axis=1)
    region, arguments = row_sums(values)
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    in_order = values[:, 0].copy()
    for column in range(1, 512):
        in_order += values[:, column]
    assert np.abs(in_order).max() > 0.01, "the data is well-conditioned"
    assert agrees(sample, in_order)
    assert not agrees(sample, in_order + np.float32(1e4))


def test_scans_of_data_with_nan() -> None:
    b = regions.Builder()
    value = b.table.scan("max", "j", b.read(0, {"i": 6, "j": 1}))
    region = b.region({"i": 4, "j": 6}, [24], [(value, {"i": 6, "j": 1})])
    values = np.random.default_rng(4).standard_normal((4, 6)).astype(np.float32)
    values[1, 3] = np.nan
    sample = sample_output(region, 0, [values.reshape(-1)], {})
    assert sample is not None
    right = np.maximum.accumulate(values, 1).reshape(-1)
    assert agrees(sample, right)
    assert not agrees(sample, np.fmax.accumulate(values, 1).reshape(-1) - 1)


def test_integers_are_exact() -> None:
    region = regions.argmax(8, 32)
    arguments = data(region, {})
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    right = evaluate(region, arguments, {})[0]
    assert agrees(sample, right)
    assert not agrees(sample, right + (np.arange(8) == sample.addresses[0]))


def test_empty_and_guarded_outputs_have_no_sample() -> None:
    region, _ = CASES["empty rows"]
    assert sample_output(region, 0, [np.zeros(0, np.float32)], {"m": 0, "n": 5}) is None


def test_f64_is_held_to_the_roundings_of_f64() -> None:
    region = regions.matmul(8, 8, 32, f64)
    arguments = data(region, {})
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    right = evaluate(region, arguments, {})[0]
    assert agrees(sample, right)
    assert not agrees(sample, right + 1e-9)


def compared(cancels: bool) -> tuple[Region, list[np.ndarray]]:
    """0 < (x * y + 1 - y * x) - 1, which is what rounding makes of it; or 0 < x + y."""
    b = regions.Builder()
    x, y = b.read(0, {"i": 1}), b.read(1, {"i": 1})
    one = b.apply("add", b.apply("mul", x, y), b.number(1.0))
    value = b.minus(b.minus(one, b.apply("mul", y, x)), b.number(1.0)) if cancels else b.apply("add", x, y)
    term = predicate(b.table, b.number(0.0), value)
    region = b.region({"i": 256}, [256, 256], [(term, {"i": 1})])
    return region, data(region, {})


def test_a_comparison_of_what_cancels_is_not_held_against_a_kernel() -> None:
    region, arguments = compared(cancels=True)
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None and sample.scatters
    for result in (np.zeros(256, np.bool_), np.ones(256, np.bool_), evaluate(region, arguments, {})[0]):
        assert agrees(sample, result)


def test_a_comparison_of_what_does_not_cancel_is_exact() -> None:
    region, arguments = compared(cancels=False)
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None and not sample.scatters
    right = evaluate(region, arguments, {})[0]
    assert agrees(sample, right)
    assert not agrees(sample, ~right)
    assert not agrees(sample, np.ones(256, np.bool_))


def test_a_quotient_by_what_cancels_may_be_nan_or_infinite_but_not_a_number() -> None:
    """(x * x - x * x) / 0"""
    b = regions.Builder()
    x = b.read(0, {"i": 1})
    square = b.apply("mul", x, x)
    value = b.apply("recip", b.minus(square, square), b.number(0.0), variant="none")
    region = b.region({"i": 64}, [64], [(value, {"i": 1})])
    sample = sample_output(region, 0, data(region, {}), {})
    assert sample is not None and sample.scatters
    for right in (np.nan, np.inf, -np.inf):
        assert agrees(sample, np.full(64, right, np.float32))


def gathered(offset: int) -> Region:
    """x[i + index[i] + offset], of 8 elements."""
    b = regions.Builder()
    table = b.table
    index = table.read(1, Affine.of({"i": 1}), i64)
    value = table.read(0, Affine.of({"i": 1}, offset), f32, dynamic=index)
    region = b.region({"i": 8}, [8, 8], [(value, {"i": 1})])
    region.arguments[1] = Argument(i64, as_dim(8))
    return region


def test_addresses_outside_of_memory_are_seen_before_anything_runs() -> None:
    zeros, ones = np.zeros(8, np.int64), np.ones(8, np.int64)
    values = np.ones(8, np.float32)
    assert addresses_are_valid(gathered(0), [values, zeros], {})
    assert not addresses_are_valid(gathered(0), [values, ones], {})
    assert not addresses_are_valid(gathered(1), [values, zeros], {})
    assert not addresses_are_valid(gathered(0), [values, -ones], {})
    assert addresses_are_valid(gathered(1), [values, -ones], {})


def test_an_index_of_a_loop_and_of_a_reduction_inside_it_are_told_apart() -> None:
    """A sum in order of exp(x - max x), both over j."""
    b = regions.Builder()
    x = b.read(0, {"i": 12, "j": 1})
    (carry,) = b.table.carries("j", [(f32, frozenset("i"))])
    power = b.apply("exp2", b.minus(x, b.total(x, "j", monoid="max")), variant="e")
    (total,) = b.table.loop("j", [carry], [b.number(0.0)], [b.apply("add", carry, power)])
    region = b.region({"i": 6, "j": 12}, [72], [(total, {"i": 1})])
    arguments = data(region, {})
    sample = sample_output(region, 0, arguments, {})
    assert sample is not None
    right = evaluate(region, arguments, {})[0]
    assert agrees(sample, right)
    assert not agrees(sample, right * np.float32(1.01))


def test_a_region_of_many_sums_has_few_axes() -> None:
    """Forty sums, each over an index of its own: none meets another, so one axis serves them all."""
    count = 40
    lines = ["index i = 3", *(f"index r{n} = 2" for n in range(count)), "argument 0 = f32 [6]"]
    numbers = iter(range(3 * count))
    total = -1
    for n in range(count):
        load, summed = next(numbers), next(numbers)
        lines += [f"%{load} = load 0 [i + (3)*r{n}] : f32", f"%{summed} = reduce.sum [r{n}] %{load} : f32"]
        if n:
            added = next(numbers)
            lines.append(f"%{added} = add %{total} %{summed} : f32")
            summed = added
        total = summed
    region = parse_region("\n".join([*lines, f"output 0 = %{total} at [i] of [3] over [i]"]))
    assert max(axes_of(region).values()) <= 2
    data = np.arange(6, dtype=np.float32)
    sizes = {name: size.evaluate({}) for name, size in region.extents.items()}
    chosen = {"i": np.arange(3)}
    found = Evaluator(region, [data], {}, sizes, chosen, Arithmetic()).value(region.outputs[0].term)
    np.testing.assert_allclose(found.reshape(-1), count * data.reshape(2, 3).sum(0))
