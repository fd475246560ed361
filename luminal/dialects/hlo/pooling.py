"""Pooling over windows of the last axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from luminal.dialects.hlo.elementwise import Array, computed, double, single
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.movement import window_count
from luminal.dialects.hlo.shapes import check_class, tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, dim_max, dim_min, product
from luminal.dtype import DType, i64
from luminal.errors import OptionError

Ints = Sequence[int]


def _pooled_size(size: Dim, extent: int, step: int, padding: int, dilation: int, ceil: bool) -> Dim:
    """Windows along one axis; with `ceil` a last one may reach over the end if it starts before the end."""
    reach = dilation * (extent - 1) + 1
    if padding < 0 or 2 * padding > reach:
        raise OptionError(f"the padding {padding} is not between 0 and half of a window that spans {reach}")
    padded = size + 2 * padding
    if not ceil:
        return window_count(padded, extent, step, dilation)
    return dim_min((padded - reach + step - 1) // step + 1, (size + padding + step - 1) // step)


def _infer(accepts: str, result: DType | None = None) -> Callable[..., TensorType]:
    def infer(
        x: TensorType,
        *,
        size: Ints,
        stride: Ints,
        padding: Ints,
        ceil: bool,
        dilation: Ints = (),
        **_: object,
    ) -> TensorType:
        check_class(x.dtype, accepts)
        count, apart = len(size), dilation or (1,) * len(size)
        if not len(stride) == len(padding) == len(apart) == count <= len(x.shape) or not count:
            raise OptionError(
                f"size, stride, padding, dilation need an entry for each pooled axis of {text(x.shape)}"
            )
        kept = len(x.shape) - count
        windows = zip(x.shape[kept:], size, stride, padding, apart)
        return tensor(
            (*x.shape[:kept], *(_pooled_size(*window, ceil) for window in windows)),
            x.dtype if result is None else result,
        )

    return infer


# ---- in primitives ---------------------------------------------------------------------------------------------


def _windows(
    x: Expression, filler: int | float, size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Expression:
    """x with its last len(size) axes counting windows, and as many new axes that go through each; `filler` is read
    outside of x."""
    first = x.rank - len(size)
    for axis, (extent, step, edge, apart) in enumerate(zip(size, stride, padding, dilation), first):
        count = _pooled_size(x.shape[axis], extent, step, edge, apart, ceil)
        low, high = [as_dim(0)] * x.rank, [as_dim(0)] * x.rank
        low[axis] = as_dim(edge)
        needed = (count - 1) * step + apart * (extent - 1) + 1 - x.shape[axis] - edge
        high[axis] = dim_max(needed, edge) if ceil else as_dim(edge)
        x = x.pad(low, high, filler).window(axis, extent, step, apart).narrow(axis, 0, count)
    return x


def _max_pool(x: Expression, size: Ints, **values: Any) -> Expression:
    windows = _windows(x, x.dtype.lowest, size, **values)
    return windows.max(range(windows.rank - len(size), windows.rank))


def _max_pool_index(x: Expression, size: Ints, **values: Any) -> Expression:
    """The first position, in the flattened pooled axes, whose element is the window's maximum (or NaN)."""
    windows = _windows(x, x.dtype.lowest, size, **values)
    axes = range(windows.rank - len(size), windows.rank)
    largest = windows.max(axes, True).expand(windows.shape)
    spatial = x.shape[x.rank - len(size) :]
    position = x.emitter.positions_along([product(spatial)], 0).reshape(spatial)
    place = _windows(position, i64.highest, size, **values).expand(windows.shape)
    found = windows.eq(largest)
    if x.dtype.is_float:
        found = found | windows.isnan()
    return found.select(place, i64.highest).max(axes, False, "min")


def _avg_pool(
    x: Expression,
    size: Ints,
    stride: Ints,
    padding: Ints,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Expression:
    ones = (1,) * len(size)
    windows = _windows(x, 0, size, stride, padding, ones, ceil)
    total = windows.sum(range(windows.rank - len(size), windows.rank))
    if divisor is not None or (not ceil and (count_padding or not any(padding))):
        return total / float(divisor or math.prod(size))
    counts: Expression | None = None
    for axis, window in enumerate(zip(size, stride, padding), x.rank - len(size)):
        along = _cells(x.emitter, x.shape[axis], *window, ceil, count_padding, x.dtype)
        along = along.reshape((along.shape[0], *[1] * (x.rank - 1 - axis))).expand(total.shape)
        counts = along if counts is None else counts * along
    return total if counts is None else total / counts


def _cells(
    emitter: Emitter,
    size: Dim,
    extent: int,
    step: int,
    edge: int,
    ceil: bool,
    count_padding: bool,
    dtype: DType,
) -> Expression:
    """How many cells of each window along one axis count: those within x, or within x and its padding."""
    cells = emitter.constant(1, [size], dtype)
    if count_padding:
        count = _pooled_size(size, extent, step, edge, 1, ceil)
        beyond = dim_max((count - 1) * step + extent - size - 2 * edge, 0)
        padded = cells.pad([edge], [edge], 1).pad([0], [beyond], 0)
        return padded.window(0, extent, step).narrow(0, 0, count).sum([1])
    return _windows(cells, 0, [extent], [step], [edge], [1], ceil).sum([1])


# ---- in NumPy --------------------------------------------------------------------------------------------------


def _visit(x: Array, size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Any:
    """Windows one by one: (index of the result, index of the cells inside x, cells inside x and its padding)."""
    kept = x.ndim - len(size)
    sizes = x.shape[kept:]
    counts = [
        int(_pooled_size(as_dim(n), k, s, p, d, ceil))
        for n, k, s, p, d in zip(sizes, size, stride, padding, dilation)
    ]
    for place in combinations(*map(range, counts)):
        cells: list[np.ndarray[Any, Any]] = []
        counted = 1
        for i, n, k, s, p, d in zip(place, sizes, size, stride, padding, dilation):
            along = i * s - p + d * np.arange(k)
            counted *= int((along < n + p).sum())
            cells.append(along[(along >= 0) & (along < n)])
        yield (..., *place), (..., *np.ix_(*cells)), counted, counts


def _pool_array(x: Array, function: Callable[..., Any], dtype: Any, size: Ints, **values: Any) -> Array:
    kept = x.ndim - len(size)
    result: Array | None = None
    for place, cells, counted, counts in _visit(x, size, **values):
        if result is None:
            result = np.zeros((*x.shape[:kept], *counts), dtype)
        result[place] = function(x[cells].reshape(*x.shape[:kept], -1), counted, cells)
    return np.zeros((*x.shape[:kept], *[0] * len(size)), dtype) if result is None else result


def _max_pool_array(x: Array, **values: Any) -> Array:
    return _pool_array(x, lambda inside, counted, cells: inside.max(-1), x.dtype, **values)


def _max_pool_index_array(x: Array, size: Ints, **values: Any) -> Array:
    position = np.arange(math.prod(x.shape[x.ndim - len(size) :])).reshape(x.shape[x.ndim - len(size) :])

    def first(inside: Array, counted: int, cells: Any) -> Array:
        return position[cells[1:]].reshape(-1)[inside.argmax(-1)]

    return _pool_array(x, first, np.int64, size, **values)


def _avg_pool_array(x: Array, count_padding: bool, divisor: int | None, size: Ints, **values: Any) -> Array:
    def average(inside: Array, counted: int, cells: Any) -> Array:
        return inside.sum(-1) / (divisor or (counted if count_padding else inside.shape[-1]))

    return _pool_array(x, average, x.dtype, size, dilation=(1,) * len(size), **values)


_POOL = "x | size:ints stride:ints padding:ints dilation:ints ceil:bool=False"
define("max_pool", _POOL, _infer("number"), _max_pool, computed(_max_pool_array, single))
define(
    "max_pool_index", _POOL, _infer("number", i64), _max_pool_index, computed(_max_pool_index_array, single)
)
define(
    "avg_pool",
    "x | size:ints stride:ints padding:ints ceil:bool=False count_padding:bool=True divisor:int?",
    _infer("float"),
    _avg_pool,
    computed(_avg_pool_array, double),
    wide=True,
)
