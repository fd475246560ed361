"""Views, sources, reductions, scans, gather, scatter and sort against torch, at sizes 0 and 1 too, and symbolic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from primitive_support import elements, make, parse, run, shaped, to_array, torch_of
from torch_bits import same_bits

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.primitive.interpreter import interpret
from luminal.dialects.primitive.ops import NUMBERS, ORDERED
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import dim
from luminal.dtype import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i64
from luminal.errors import (
    DataSizeError,
    DimRangeError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    UnsetDimError,
    UnsetInputError,
    UnsupportedOpError,
)

STORED = [d for d in DTYPES.values() if d.torch_name]
S, B = dim("s", 0, 64), dim("b", 0, 64)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(STORED))
def test_permute_flip_expand_reshape(data: Any, dtype: DType) -> None:
    x = data.draw(shaped(dtype))
    (tensor,) = torch_of(x)
    order = data.draw(st.permutations(range(x.ndim)))
    assert same_bits(run(lambda b, x: b.permute(x, order), x)[0], tensor.permute(order))
    axes = sorted(data.draw(st.sets(st.integers(0, x.ndim - 1)))) if x.ndim else []
    picks = tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(x.ndim))
    assert same_bits(run(lambda b, x: b.flip(x, axes), x)[0], torch_of(x[picks])[0])  # torch flips no fp8
    grown = [data.draw(st.integers(0, 3)) if size == 1 else size for size in x.shape]
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    found = run(lambda b, x: b.broadcast_to(x, (*lead, *grown)), x)[0]
    assert same_bits(found, tensor.expand((*lead, *grown)))
    split = data.draw(st.sampled_from([(x.size,), (1, x.size), (*x.shape, 1), tuple(reversed(x.shape))]))
    assert same_bits(run(lambda b, x: b.reshape(x, split), x)[0], tensor.reshape(split))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(STORED))
def test_slice_pad_window(data: Any, dtype: DType) -> None:
    x = data.draw(shaped(dtype, min_rank=1))
    (tensor,) = torch_of(x)
    picks = [
        slice(*sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))), data.draw(st.integers(1, 3)))
        for n in x.shape
    ]
    sizes = [len(range(*pick.indices(n))) for pick, n in zip(picks, x.shape, strict=True)]
    starts, steps = [pick.start for pick in picks], [pick.step for pick in picks]
    assert same_bits(run(lambda b, x: b.slice(x, starts, sizes, steps), x)[0], tensor[tuple(picks)])
    low, high = (data.draw(st.lists(st.integers(0, 2), min_size=x.ndim, max_size=x.ndim)) for _ in range(2))
    value = data.draw(st.sampled_from([0, 1, math.inf, -0.0])) if dtype.is_float else 1
    found = run(lambda b, x: b.pad(x, low, high, value), x)[0]
    outside = torch.full(found.shape, float(value), dtype=torch.float64).to(dtype.torch)
    outside[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = tensor
    assert same_bits(found, outside)
    axis = data.draw(st.integers(0, x.ndim - 1))
    size, step = data.draw(st.integers(0, x.shape[axis])), data.draw(st.integers(1, 3))
    assert same_bits(run(lambda b, x: b.window(x, axis, size, step), x)[0], tensor.unfold(axis, size, step))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(NUMBERS))
def test_sum_and_product(data: Any, dtype: DType) -> None:
    """Small dyadic values, so that every order gives the same bits; integers wrap in their own dtype."""
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    count = math.prod(shape)
    numbers = st.sampled_from([-0.5, 0.0, -0.0, 1.0, 2.0, -2.0]) if dtype.is_float else elements(dtype)
    x = to_array(data.draw(st.lists(numbers, min_size=count, max_size=count)), dtype).reshape(shape)
    axes = sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1)))
    (tensor,) = torch_of(x)
    found = run(lambda b, x: b.sum_reduce(x, axes), x)[0]
    assert same_bits(found, tensor.sum(axes, dtype=tensor.dtype))
    wide = tensor.float() if dtype in (f16, bf16) else tensor
    product = wide
    for axis in reversed(axes):
        product = product.prod(axis, dtype=wide.dtype)
    assert same_bits(
        run(lambda b, x: b.sum_reduce(x, axes, "prod"), x)[0], product.to(tensor.dtype), zero_signs=False
    )


def test_narrow_sums_accumulate_in_f32_and_start_at_plus_zero() -> None:
    x = to_array([60000.0, 60000.0, -60000.0], f16)
    assert same_bits(run(lambda b, x: b.sum_reduce(x, [0]), x)[0], torch_of(x)[0].sum())
    zeros = to_array([-0.0, -0.0], f32)
    for result in (
        run(lambda b, x: b.sum_reduce(x, [0]), zeros)[0],
        run(lambda b, x: b.scan(x, 0), zeros)[0],
    ):
        assert not np.signbit(result).any()
    assert same_bits(
        run(lambda b, x: b.sum_reduce(x, [0]), np.full(3, 100, np.int8))[0], torch.tensor(44).to(torch.int8)
    )


def test_without_the_licence_a_sum_is_in_row_major_order() -> None:
    x = np.random.default_rng(0).standard_normal((2, 300, 7)).astype(np.float32)
    expected = np.cumsum(x.transpose(1, 0, 2).reshape(300, -1), axis=1)[:, -1]  # one after the other

    def build(b: Any, x: Any) -> Any:
        free = b.sum_reduce(x, [0, 2])
        b.strict = True
        return [free, b.sum_reduce(x, [0, 2])]

    graph = make([tensor_type(x.shape, f32)], build)
    free, strict = interpret(graph, [x])
    assert strict.tolist() == expected.tolist() and np.allclose(free, strict, rtol=1e-4)
    unlicensed = parse(str(graph).replace("{\n", 'licences ["contract"] {\n', 1)).body.block.first_op
    assert isinstance(unlicensed, GraphOp) and interpret(unlicensed, [x])[0].tolist() == expected.tolist()
    bytes_ = np.full((2, 3), 200, np.uint8)  # NumPy's accumulate would widen them
    assert run(lambda b, x: (setattr(b, "strict", True), b.sum_reduce(x, [1]))[1], bytes_)[0].tolist() == [
        88,
        88,
    ]
    empty = np.zeros((2, 0, 3), np.float32)
    assert (
        run(lambda b, x: (setattr(b, "strict", True), b.sum_reduce(x, [1], "prod"))[1], empty)[0].tolist()
        == [[1.0] * 3] * 2
    )


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(ORDERED))
def test_max_min_argmax_argmin(data: Any, dtype: DType) -> None:
    x = data.draw(shaped(dtype, min_rank=1))
    (tensor,) = torch_of(x)
    axes = sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1)))
    if any(x.shape[axis] == 0 for axis in axes):  # eager refuses; the primitive has its identity
        lowest = run(lambda b, x: b.max_reduce(x, axes), x)[0]
        assert all(value == dtype.lowest for value in lowest.ravel().tolist())
        positions = run(lambda b, x: b.max_reduce(x, axes[:1], "argmin"), x)[0]
        assert x.shape[axes[0]] or all(value == 2**63 - 1 for value in positions.ravel().tolist())
        return
    assert same_bits(run(lambda b, x: b.max_reduce(x, axes), x)[0], tensor.amax(axes), zero_signs=False)
    assert same_bits(
        run(lambda b, x: b.max_reduce(x, axes, "min"), x)[0], tensor.amin(axes), zero_signs=False
    )
    carried = tensor.to(torch.uint8) if dtype is bool_ else tensor
    found = run(lambda b, x: b.max_reduce(x, axes[:1], "argmax"), x)[0]
    assert same_bits(found, carried.argmax(axes[0]))
    found = run(lambda b, x: b.max_reduce(x, axes[:1], "argmin"), x)[0]
    assert same_bits(found, carried.argmin(axes[0]))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(ORDERED))
def test_scan(data: Any, dtype: DType) -> None:
    x = data.draw(shaped(dtype, min_rank=1))
    (tensor,), axis = torch_of(x), data.draw(st.integers(0, x.ndim - 1))
    assert same_bits(
        run(lambda b, x: b.scan(x, axis, "max"), x)[0], tensor.cummax(axis).values, zero_signs=False
    )
    assert same_bits(
        run(lambda b, x: b.scan(x, axis, "min"), x)[0], tensor.cummin(axis).values, zero_signs=False
    )
    if dtype is bool_:
        return
    assert same_bits(run(lambda b, x: b.scan(x, axis), x)[0], tensor.cumsum(axis, dtype=tensor.dtype))
    if dtype not in (f16, bf16):  # eager multiplies those in their own precision
        assert same_bits(
            run(lambda b, x: b.scan(x, axis, "prod"), x)[0], tensor.cumprod(axis, dtype=tensor.dtype)
        )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(STORED), index_dtype=st.sampled_from(["int64", "int32"]))
def test_gather_and_scatter_set(data: Any, dtype: DType, index_dtype: str) -> None:
    x = data.draw(shaped(dtype, min_rank=1))
    assume(x.size)
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    count = math.prod(shape)
    indices = [
        np.array(
            data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)), index_dtype
        ).reshape(shape)
        for n in x.shape
    ]
    tensor, *positions = torch_of(x, *indices)
    positions = [p.long() for p in positions]
    found = run(lambda b, x, *i: b.gather(x, i), x, *indices)[0]
    assert same_bits(found, tensor[tuple(positions)])
    value = np.array(found[..., ::-1]) if shape else found
    expected = tensor.clone()
    for place in np.ndindex(*shape):  # row-major, so the last of several wins
        expected[tuple(int(p[place]) for p in positions)] = torch_of(value)[0][place]
    assert same_bits(run(lambda b, x, v, *i: b.scatter(x, v, i), x, value, *indices)[0], expected)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), combine=st.sampled_from(["add", "mul", "max", "min"]))
def test_scatter_combines(data: Any, combine: str) -> None:
    """Against torch.scatter_reduce along one axis, on values for which every order gives the same bits."""
    dtype = data.draw(st.sampled_from([d for d in NUMBERS if d is not bool_]))
    numbers = st.sampled_from([-0.5, 1.0, 2.0, -2.0, math.nan]) if dtype.is_float else elements(dtype)
    base, value = (to_array(data.draw(st.lists(numbers, min_size=n, max_size=n)), dtype) for n in (3, 8))
    index = np.array(data.draw(st.lists(st.integers(0, 2), min_size=8, max_size=8)))
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    reference, *rest = torch_of(base, index, value)
    expected = reference.scatter_reduce(0, rest[0], rest[1], names[combine])
    found = run(lambda b, x, v, i: b.scatter(x, v, [i], combine), base, value, index)[0]
    assert same_bits(found, expected, zero_signs=False)


def test_scatter_of_narrow_floats_accumulates_in_f32() -> None:
    value = to_array([256.0] + [1.0] * 8, bf16)
    found = run(
        lambda b, x, v, i: b.scatter(x, v, [i], "add"), to_array([0.0], bf16), value, np.zeros(9, np.int64)
    )[0]
    assert float(found[0]) == 264.0  # one by one in bf16, 256 + 1 stays 256


@pytest.mark.parametrize("bounds", ["error", "assumed"])
@pytest.mark.parametrize("index", [3, -1])
def test_index_out_of_range(bounds: str, index: int) -> None:
    x, i = np.zeros(3, np.float32), np.array([0, index])
    with pytest.raises(
        IndexOutOfRangeError, match=f"index {index} is out of bounds for dimension 0 with size 3"
    ):
        run(lambda b, x, i: b.gather(x, [i], bounds), x, i)
    with pytest.raises(IndexError, match="out of bounds"):
        run(lambda b, x, i: b.scatter(x, b.slice(x, [0], [2]), [i], bounds=bounds), x, i)


def test_run_time_errors_name_the_source() -> None:
    def gather(b: Any, x: Any, i: Any) -> Any:
        b.source = "model.py:12 in forward"
        return b.gather(x, [i])

    with pytest.raises(IndexOutOfRangeError, match=r"model.py:12 in forward"):
        run(gather, np.zeros(3, np.float32), np.array([7]))


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(ORDERED), descending=st.booleans())
def test_sort(data: Any, dtype: DType, descending: bool) -> None:
    x = data.draw(shaped(dtype, min_rank=1, max_size=6))
    axis = data.draw(st.integers(0, x.ndim - 1))
    values, positions = run(lambda b, x: b.sort(x, axis, descending), x)
    expected = torch.sort(torch_of(x)[0], dim=axis, stable=True, descending=descending)
    assert same_bits(values, expected.values) and same_bits(positions, expected.indices)


def test_sources() -> None:
    results = run(lambda b: [b.iota((2, 3), 1), b.dim_value(5), b.full(-0.0, (2,), f32), b.full(7, (), i8)])
    assert results[0].tolist() == [[0, 1, 2]] * 2 and results[1] == 5 and results[1].shape == ()
    assert np.signbit(results[2]).all() and results[3].dtype == np.int8 and results[3] == 7
    table = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert same_bits(run(lambda b: b.dense(table))[0], torch_of(table)[0])


def test_symbolic_sizes() -> None:
    """One graph for all sizes: a softmax over rows, with what depends on a dim's value."""
    row = tensor_type((S, B + 2), f32)

    def build(b: Any, x: Any) -> Any:
        top = b.broadcast_to(b.reshape(b.max_reduce(x, [1]), (S, 1)), (S, B + 2))
        e = b.exp2(b.sub(x, top), "e")
        total = b.broadcast_to(b.reshape(b.sum_reduce(e, [1]), (S, 1)), (S, B + 2))
        tail = b.slice(x, [0, B], [S, 2])
        return [
            b.recip(e, total),
            tail,
            b.dim_value(S * B // 2),
            b.reshape(x, (S * (B + 2),)),
            b.pad(x, [0, B], [S, 0]),
        ]

    graph = make([row], build)
    for s, b in ((0, 0), (1, 0), (1, 1), (5, 3)):
        x = np.random.default_rng(0).standard_normal((s, b + 2)).astype(np.float32)
        softmax, tail, value, flat, padded = interpret(graph, [x], {"b": b})
        assert torch.allclose(torch_of(softmax)[0], torch.softmax(torch_of(x)[0], 1))
        assert tail.tolist() == x[:, b:].tolist() and value == s * b // 2 and flat.shape == (s * (b + 2),)
        assert padded.shape == (2 * s, 2 * b + 2)


def test_inputs_and_dims_that_do_not_fit() -> None:
    graph = make([tensor_type((S, B), f32), tensor_type((2 * S,), i64)], lambda b, x, y: [x, y])
    x, y = np.zeros((2, 3), np.float32), np.zeros(4, np.int64)
    assert [r.shape for r in interpret(graph, [x, y])] == [(2, 3), (4,)]
    with pytest.raises(UnsetInputError, match="2 inputs; 1 were given"):
        interpret(graph, [x])
    with pytest.raises(DTypeError, match="input 0 must be f32; the data is float64"):
        interpret(graph, [x.astype(float), y])
    with pytest.raises(DataSizeError, match=r"input 1 must be i64\[2\*s\], here \[4\] \(b = 3, s = 2\)"):
        interpret(graph, [x, y[:3]])
    with pytest.raises(DataSizeError, match="shape"):
        interpret(graph, [x[0], y])
    with pytest.raises(DataSizeError, match="input 0"):
        interpret(graph, [x, y], {"s": 3})
    with pytest.raises(DimRangeError, match="dim s in 0 to 64 was given 65"):
        interpret(graph, [np.zeros((65, 1), np.float32), np.zeros(130, np.int64)])
    with pytest.raises(UnsetDimError, match="dim b is not set"):
        interpret(make([tensor_type((2 * B,), f32)], lambda b, x: x), [np.zeros(4, np.float32)])


def test_sizes_that_turn_out_not_to_fit() -> None:
    x = np.zeros((3, 2), np.float32)
    types = [tensor_type((S, B), f32)]
    cases = {
        "cannot have the shape": lambda b, x: b.reshape(x, (S * B // 4, 4)),
        "leaves an axis of 3": lambda b, x: b.slice(x, [B, 0], [2, 1]),
        "does not fit in an axis of 2": lambda b, x: b.window(x, 1, 3, 1),
        "cannot be negative": lambda b, x: b.pad(x, [B - 3, 0], [0, 0]),
    }
    for message, build in cases.items():
        with pytest.raises(ShapeError, match=message):
            run(build, x, types=types)


def test_extern_needs_a_caller() -> None:
    def build(b: Any, x: Any) -> Any:
        return b.extern([x], [tensor_type((2,), f64)], "aten.fft", "{}")

    graph = make([tensor_type((2,), f64)], build)
    with pytest.raises(UnsupportedOpError, match=r"aten.fft runs through torch"):
        interpret(graph, [np.zeros(2)])
    found = interpret(
        graph, [np.arange(2.0)], call_extern=lambda op, xs, dims: [xs[0] + len(op.text("payload"))]
    )
    assert found[0].tolist() == [2.0, 3.0]
