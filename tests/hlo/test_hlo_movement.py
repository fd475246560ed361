"""hlo ops that move, reduce, scan, sort and index, against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hlo_harness import check, run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from luminal.errors import IndexOutOfRangeError, ShapeError

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SHAPES = [(3, 4, 5), (1, 4, 1), (0, 3, 2), (2, 0, 3), (1, 1, 1), (5, 2, 3)]


def tensor(shape: Any, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Whole numbers from -8 to 8 in any dtype: sums and products of a few are exact."""
    values = torch.randint(-8, 9, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)


def noisy(shape: Any, seed: int = 0) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))


both = pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbols"])

# ---- movement --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("shape", SHAPES)
def test_permute_flip_stack(shape: tuple[int, ...], symbolic: bool) -> None:
    x, y = tensor(shape), tensor(shape, seed=1)
    check(lambda b, x: b.permute(x, order=(2, 0, 1)), [x], x.permute(2, 0, 1), symbolic=symbolic)
    check(lambda b, x: b.flip(x, axes=(0, 2)), [x], x.flip(0, 2), symbolic=symbolic)
    for axis in range(4):
        check(
            lambda b, *xs, a=axis: b.stack(xs, axis=a), [x, y], torch.stack([x, y], axis), symbolic=symbolic
        )


@both
@pytest.mark.parametrize("dtype", DTYPES)
def test_cat_of_pieces_loses_no_bit(dtype: torch.dtype, symbolic: bool) -> None:
    pieces = [tensor((2, n, 3), dtype, n) for n in (3, 1, 0, 4)]
    if dtype.is_floating_point:
        pieces[0][0, 0] = -0.0
        pieces[1][:] = math.nan
        pieces[3][1] = math.inf
    for count in range(1, 5):
        some = pieces[:count]
        check(lambda b, *xs: b.cat(xs, axis=1), some, torch.cat(some, 1), symbolic=symbolic)


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_slice_pad_and_window(data: st.DataObject) -> None:
    size, other = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 3))
    x = noisy((size, other))
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    step = data.draw(st.integers(1, 4))
    check(
        lambda b, x: b.slice(x, starts=(start, 0), stops=(stop, x.type.shape[1]), steps=(step, 1)),
        [x],
        x[start:stop:step],
        symbolic=True,
    )
    low, high = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    check(
        lambda b, x: b.pad(x, low=(low, 0), high=(high, 1), value=-1.5),
        [x],
        functional.pad(x, (0, 1, low, high), value=-1.5),
        symbolic=data.draw(st.booleans()),
    )
    extent = data.draw(st.integers(1, 3))
    if extent <= size:
        expected = x.unfold(0, extent, step)
        check(lambda b, x: b.window(x, axis=0, size=extent, step=step), [x], expected)


def test_dilated_window() -> None:
    x = noisy((2, 11))
    expected = torch.stack([x[:, i : i + 5 : 2] for i in range(0, 7, 3)], 1)
    for symbolic in (False, True):
        check(lambda b, x: b.window(x, axis=1, size=3, step=3, dilation=2), [x], expected, symbolic=symbolic)


def test_reshape_and_expand_of_symbolic_sizes() -> None:
    x = noisy((4, 1, 6))

    def build(b: Any, x: Any) -> list[Any]:
        n, _, m = x.type.shape
        flat = b.reshape(x, shape=(n * m,))
        return [flat, b.reshape(flat, shape=(m, n, 1)), b.expand(x, shape=(2, n, n + m, m))]

    expected = [x.reshape(24), x.reshape(6, 4, 1), x.expand(2, 4, 10, 6)]
    for symbolic in (False, True):
        check(build, [x], expected, symbolic=symbolic)


def test_sizes_that_are_not_known_to_fit_are_compared_at_run_time() -> None:
    x = noisy((7,))
    cases: list[Any] = [
        lambda b, x: b.reshape(x, shape=(x.type.shape[0] // 2, 2)),
        lambda b, x: b.slice(x, starts=(2,), stops=(x.type.shape[0] * 2 - 6,), steps=(1,)),
        lambda b, x: b.pad(x, low=(x.type.shape[0] - 8,), high=(0,)),
        lambda b, x: b.window(x, axis=0, size=8),
    ]
    for build in cases:
        with pytest.raises(ShapeError):
            run(build, [x], symbolic=True)
    even = noisy((8,))
    check(cases[0], [even], even.reshape(4, 2), symbolic=True)


# ---- reductions ------------------------------------------------------------------------------------------------

AXES = [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]


@both
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions_of_floats(shape: tuple[int, ...], axes: tuple[int, ...], symbolic: bool) -> None:
    x = noisy(shape)
    tolerance: dict[str, Any] = {"symbolic": symbolic, "relative": 2e-6, "absolute": 1e-6}
    for keepdim in (False, True):
        common: dict[str, Any] = {"axes": axes, "keepdim": keepdim}
        check(lambda b, x, c=common: b.sum(x, **c), [x], x.sum(axes, keepdim), **tolerance)
        check(lambda b, x, c=common: b.mean(x, **c), [x], x.mean(axes, keepdim), **tolerance)
        check(lambda b, x, c=common: b.logsumexp(x, **c), [x], x.logsumexp(axes, keepdim), **tolerance)
        for correction in (0.0, 1.0):
            expected = torch.var(x, axes, correction=correction, keepdim=keepdim)
            build = lambda b, x, c=common, r=correction: b.var(x, correction=r, **c)  # noqa: E731
            check(build, [x], expected, **tolerance)
        if 0 not in [shape[axis] for axis in axes]:
            check(lambda b, x, c=common: b.max(x, **c), [x], x.amax(axes, keepdim), symbolic=symbolic)
            check(lambda b, x, c=common: b.min(x, **c), [x], x.amin(axes, keepdim), symbolic=symbolic)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_by_dtype(dtype: torch.dtype) -> None:
    x = tensor((3, 4, 5), dtype)
    if dtype != torch.bool:
        check(lambda b, x: b.sum(x, axes=(1,)), [x], x.sum(1, dtype=dtype))
        check(lambda b, x: b.prod(x, axes=(0,)), [x], x.prod(0, dtype=dtype))
        check(lambda b, x: b.cumsum(x, axis=1), [x], x.cumsum(1, dtype=dtype))
        check(lambda b, x: b.cumprod(x, axis=0), [x], x.cumprod(0, dtype=dtype))
    check(lambda b, x: b.max(x, axes=(0, 2)), [x], x.amax((0, 2)))
    check(lambda b, x: b.any(x, axes=(2,)), [x], x.bool().any(2))
    check(lambda b, x: b.all(x, axes=(0, 1), keepdim=True), [x], x.bool().all(0).all(0)[None, None])
    check(lambda b, x: b.argmax(x, axis=2), [x], (x.int() if dtype == torch.bool else x).argmax(2))
    check(lambda b, x: b.argmin(x, axis=None), [x], (x.int() if dtype == torch.bool else x).argmin())


def test_running_sums_start_from_zero() -> None:
    """Invariant: no running sum is -0.0."""
    x = torch.tensor([[-0.0, -0.0, 1.0]])
    check(lambda b, x: b.cumsum(x, axis=1), [x], torch.tensor([[0.0, 0.0, 1.0]]))


def test_narrow_sums_accumulate_in_single_precision() -> None:
    x = torch.full((4096,), 60000.0, dtype=torch.float16)
    check(lambda b, x: b.mean(x, axes=(0,)), [x], x.mean(0))
    y = torch.full((1000,), 1.0, dtype=torch.bfloat16)
    check(lambda b, x: b.sum(x, axes=(0,)), [y], y.sum(0))


def test_reductions_of_specials() -> None:
    rows = [[math.nan, 1.0], [math.inf, 1.0], [-math.inf, -math.inf], [math.inf, -math.inf], [-0.0, -0.0]]
    x = torch.tensor(rows)
    for name in ("sum", "max", "min", "mean", "logsumexp", "var"):
        expected = {"max": torch.amax, "min": torch.amin}.get(name) or getattr(torch, name)
        check(lambda b, x, name=name: b.emit(name, x, axes=(1,)), [x], expected(x, 1), relative=1e-6)
    check(lambda b, x: b.sum(x, axes=(1,)), [torch.full((1, 1), -0.0)], torch.zeros(1))
    check(lambda b, x: b.argmax(x, axis=1), [x], x.argmax(1))
    for correction in (2.0, 3.0):
        expected = torch.var(x, 1, correction=correction)
        check(lambda b, x, c=correction: b.var(x, axes=(1,), correction=c), [x], expected)


def test_variance_does_not_cancel() -> None:
    x = noisy((2, 1000)) + 1e4
    check(lambda b, x: b.var(x, axes=(1,)), [x], x.double().var(1).float(), relative=1e-5)


@both
@pytest.mark.parametrize("shape", SHAPES)
def test_running_extrema(shape: tuple[int, ...], symbolic: bool) -> None:
    x = tensor(shape)
    if x.numel() > 10:
        x[1, 1] = math.nan
    for name in ("cummax", "cummin"):
        expected = list(getattr(x, name)(1))
        check(lambda b, x, name=name: b.emit(name, x, axis=1), [x], expected, symbolic=symbolic)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_sort_is_stable_and_nan_the_largest(dtype: torch.dtype, descending: bool) -> None:
    x = tensor((4, 9, 2), dtype)
    if dtype.is_floating_point:
        x[0, 3], x[1, 2:4], x[2, 1] = math.nan, math.nan, -math.inf
    expected = list(torch.sort(x, dim=1, descending=descending, stable=True))
    check(lambda b, x: b.sort(x, axis=1, descending=descending), [x], expected)


def test_topk() -> None:
    x = torch.tensor([[3.0, math.nan, -1.0, 7.0], [0.5, 2.0, -math.inf, 1.0]])
    for largest in (True, False):
        expected = list(x.topk(3, 1, largest=largest))
        check(lambda b, x, g=largest: b.topk(x, axis=1, count=3, largest=g), [x], expected)


# ---- indexing --------------------------------------------------------------------------------------------------


@both
def test_gather_and_selection(symbolic: bool) -> None:
    x, index = noisy((3, 5, 4)), torch.randint(0, 5, (2, 6, 4), generator=torch.Generator().manual_seed(0))
    if not symbolic:
        check(lambda b, x, i: b.gather(x, i, axis=1), [x, index], x.gather(1, index))
    rows = torch.tensor([4, 0, 0, 2, 1, 3])
    check(lambda b, x, i: b.index_select(x, i, axis=1), [x, rows], x.index_select(1, rows), symbolic=symbolic)
    check(
        lambda b, x, i: b.index_select(x, i, axis=1),
        [x, rows[0]],
        x.index_select(1, rows[0]),
        symbolic=symbolic,
    )
    table = noisy((5, 3))
    check(
        lambda b, w, i: b.embedding(w, i),
        [table, index],
        functional.embedding(index, table),
        symbolic=symbolic,
    )


@pytest.mark.parametrize("combine", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_scatter(dtype: torch.dtype, combine: str) -> None:
    x, value = tensor((3, 5, 4), dtype), tensor((3, 6, 4), dtype, 1)
    index = torch.randint(0, 5, (2, 6, 4), generator=torch.Generator().manual_seed(0))
    if combine == "set":
        index = index[:, :1]  # what one of several values for one place PyTorch takes is not defined
        expected = x.scatter(1, index, value)
    else:
        reduce = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[combine]
        expected = x.scatter_reduce(1, index, value, reduce)
    check(lambda b, x, i, v: b.scatter(x, i, v, axis=1, combine=combine), [x, index, value], expected)


PLACES: list[tuple[int, ...]] = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@both
@pytest.mark.parametrize("axes", PLACES)
def test_index_and_index_put(axes: tuple[int, ...], symbolic: bool) -> None:
    x = noisy((3, 4, 5))
    shapes = [(2, 1), (6,), (2, 6)] if len(axes) > 1 else [(2, 6)]
    indices = [
        torch.randint(-x.shape[axis], x.shape[axis], shape, generator=torch.Generator().manual_seed(axis))
        for axis, shape in zip(axes, shapes, strict=False)
    ]
    key: list[Any] = [slice(None)] * 3
    for axis, index in zip(axes, indices, strict=True):
        key[axis] = index
    expected = x[tuple(key)]
    check(lambda b, x, *i: b.index(x, i, axes=axes), [x, *indices], expected, symbolic=symbolic)
    value = noisy(expected.shape, 4)
    target = x.clone()
    target[tuple(key)] = value
    build = lambda b, x, v, *i: b.index_put(x, v, i, axes=axes)  # noqa: E731
    check(build, [x, value, *indices], target, symbolic=symbolic)
    places = [None if isinstance(k, slice) else k for k in key]
    summed = torch.ops.aten.index_put(x, places, value, True)
    build = lambda b, x, v, *i: b.index_put(x, v, i, axes=axes, accumulate=True)  # noqa: E731
    check(build, [x, value, *indices], summed, symbolic=symbolic, relative=1e-6, absolute=1e-6)


@pytest.mark.parametrize("wrong", [5, -1])
def test_index_out_of_range(wrong: int) -> None:
    x, index = noisy((3, 5)), torch.tensor([0, wrong])

    def build(b: Any, x: Any, index: Any) -> Any:
        b.source = "model.py:7"
        return b.index_select(x, index, axis=1)

    with pytest.raises(IndexOutOfRangeError, match=rf"{wrong} .*5.*model.py:7"):
        check(build, [x, index], x)


def test_index_wraps_once() -> None:
    x = noisy((3, 5))
    with pytest.raises(IndexOutOfRangeError):
        check(lambda b, x, i: b.index(x, [i], axes=(0,)), [x, torch.tensor([-4])], x)
