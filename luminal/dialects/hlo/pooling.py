"""Pooling over windows of the last axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.dialects.hlo.elementwise import Array, of_doubles, of_singles
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.movement import window_count
from luminal.dialects.hlo.shapes import check_class, tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, dim_max, dim_min, product
from luminal.dtype import DType, dtype_of, i64
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


def _windows_array(
    x: Array, filler: Any, size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Array:
    """x with the pooled axes counting windows, and one new last axis through all cells of each."""
    kept = x.ndim - len(size)
    for axis, (k, s, p, d) in enumerate(zip(size, stride, padding, dilation), kept):
        count = int(_pooled_size(as_dim(x.shape[axis]), k, s, p, d, ceil))
        places = np.arange(count)[:, None] * s - p + np.arange(k) * d
        inside = (places >= 0) & (places < x.shape[axis])
        extended = np.concatenate([x, np.full_like(x.take([0], axis), filler)], axis)
        cells = extended.take(np.where(inside, places, x.shape[axis]), axis)
        x = np.moveaxis(cells, axis + 1, -1)
    return x.reshape(*x.shape[: kept + len(size)], -1)


def _max_pool_array(x: Array, **values: Any) -> Array:
    return _windows_array(x, dtype_of(x.dtype).lowest, **values).max(-1)


def _max_pool_index_array(x: Array, size: Ints, **values: Any) -> Array:
    spatial = x.shape[x.ndim - len(size) :]
    place = _windows_array(np.arange(math.prod(spatial)).reshape(spatial), -1, size, **values)
    windows = _windows_array(x, dtype_of(x.dtype).lowest, size, **values)
    best = windows.max(-1, keepdims=True)
    first = ((place >= 0) & ((windows == best) | np.isnan(windows))).argmax(-1)
    return np.take_along_axis(np.broadcast_to(place, windows.shape), first[..., None], -1)[..., 0]


def _avg_pool_array(
    x: Array, count_padding: bool, divisor: int | None, padding: Ints, **values: Any
) -> Array:
    ones = (1,) * len(padding)
    total = _windows_array(x, 0, padding=padding, dilation=ones, **values).sum(-1)
    cells = np.ones(x.shape[x.ndim - len(padding) :])
    if count_padding:
        cells = np.pad(cells, [(p, p) for p in padding], constant_values=1)
        padding = (0,) * len(padding)
    counted = _windows_array(cells, 0, padding=padding, dilation=ones, **values).sum(-1)
    counted = counted[tuple(slice(n) for n in total.shape[x.ndim - len(ones) :])]
    return total / (divisor or counted)


_POOL = "x | size:ints stride:ints padding:ints dilation:ints ceil:bool=False"
define("max_pool", _POOL, _infer("number"), _max_pool, of_singles(_max_pool_array))
define("max_pool_index", _POOL, _infer("number", i64), _max_pool_index, of_singles(_max_pool_index_array))
define(
    "avg_pool",
    "x | size:ints stride:ints padding:ints ceil:bool=False count_padding:bool=True divisor:int?",
    _infer("float"),
    _avg_pool,
    of_doubles(_avg_pool_array),
    wide=True,
)
