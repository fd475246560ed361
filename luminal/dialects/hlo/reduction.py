"""Reductions and scans over axes, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.elementwise import Array, of_doubles, of_singles, single, truth
from luminal.dialects.hlo.expression import Expression
from luminal.dialects.hlo.shapes import check_class, tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, known_equal, known_less, product
from luminal.dtype import DType, bool_, i64
from luminal.errors import OptionError, ShapeError


def reduced(shape: Sequence[Dim], axes: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """The shape after a reduction over `axes`."""
    shapes.check_axes(axes, len(shape))
    if keepdim:
        return tuple(as_dim(1) if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _check_not_empty(shape: Sequence[Dim], axes: Sequence[int]) -> None:
    for axis in axes:
        if shape[axis] == 0:
            raise ShapeError(f"axis {axis} of {text(shape)} is empty; a maximum or minimum needs an element")


def reduction(accepts: str, result: DType | None = None, empty: bool = True) -> Callable[..., TensorType]:
    """Inference of a reduction over `axes`; `empty` says whether it has a value over nothing."""

    def infer(x: TensorType, *, axes: Sequence[int], keepdim: bool, **_: object) -> TensorType:
        check_class(x.dtype, accepts)
        shape = reduced(x.shape, axes, keepdim)
        if not empty:
            _check_not_empty(x.shape, axes)
        return tensor(shape, x.dtype if result is None else result)

    return infer


def _infer_arg(x: TensorType, *, axis: int | None, keepdim: bool) -> TensorType:
    """i64 positions along `axis`, or in the flattened tensor for None."""
    check_class(x.dtype, "computed")
    axes = range(len(x.shape)) if axis is None else (axis,)
    shape = reduced(x.shape, axes, keepdim)
    _check_not_empty(x.shape, axes)
    return tensor(shape, i64)


def _infer_indexed(x: TensorType, *, axis: int, **_: object) -> list[TensorType]:
    """Values of the same type and i64 indices."""
    check_class(x.dtype, "computed")
    shapes.check_axis(axis, len(x.shape))
    return [x, tensor(x.shape, i64)]


def _infer_topk(x: TensorType, *, axis: int, count: Dim, largest: bool) -> list[TensorType]:
    check_class(x.dtype, "computed")
    size = x.shape[shapes.check_axis(axis, len(x.shape))]
    if known_less(size, count) or known_less(count, 0):
        raise OptionError(f"{count} elements were asked of axis {axis}, which has {size}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return [tensor(shape, x.dtype), tensor(shape, i64)]


# ---- in primitives ---------------------------------------------------------------------------------------------


def number_of(x: Expression, sizes: Sequence[Dim], shape: Sequence[Dim], less: float = 0.0) -> Expression:
    """How many elements `sizes` have, minus `less` but not below 0, as floats of a shape."""
    count = product(sizes)
    if count.constant is not None:
        return x.emitter.constant(max(count.constant - less, 0.0), shape, x.dtype)
    number = x.emitter.size(count).cast(x.dtype)
    if less:
        number = (number - less).maximum(0.0)
    return number.expand(shape)


def mean(x: Expression, axes: Sequence[int], keepdim: bool) -> Expression:
    total = x.sum(axes, keepdim)
    return total / number_of(x, [x.shape[axis] for axis in axes], total.shape)


def variance(x: Expression, axes: Sequence[int], correction: float, keepdim: bool) -> Expression:
    """The mean square of the distance to the mean: two passes, so that no square is cancelled.

    PyTorch adds up in f64. Here what the rounded mean is off, the mean distance, is taken out again; a constant row
    must not come out below 0, nor squares that overflow as NaN.
    """
    sizes = [x.shape[axis] for axis in axes]
    distance = x - mean(x, axes, True).expand(x.shape)
    total, rest = (distance * distance).sum(axes, keepdim), distance.sum(axes, keepdim)
    square = (total - rest * rest / number_of(x, sizes, total.shape)).maximum(0.0)
    square = total.eq(math.inf).select(total, square)
    return square / number_of(x, sizes, total.shape, correction)


def logsumexp(x: Expression, axes: Sequence[int], keepdim: bool) -> Expression:
    """log(sum(exp(x - m))) + m, where m is the maximum; an infinite one, or that of nothing, is the result itself."""
    if any(x.shape[axis] == 0 for axis in axes):
        return x.exp().sum(axes, keepdim).log()
    top = x.max(axes, True)
    total = (x - top.expand(x.shape)).exp().sum(axes, keepdim).log()
    top = top.reshape(total.shape)
    return top.abs().eq(math.inf).select(top, total + top)


def _logical(monoid: str, x: Expression, axes: Sequence[int], keepdim: bool) -> Expression:
    """any or all; over nothing any is False and all is True."""
    if any(x.shape[axis] == 0 for axis in axes):
        return x.emitter.constant(monoid == "min", reduced(x.shape, axes, keepdim), bool_)
    return truth(x).max(axes, keepdim, monoid)


def _arg(monoid: str, x: Expression, axis: int | None, keepdim: bool) -> Expression:
    if axis is not None:
        return x.max((axis,), keepdim, monoid)
    position = x.reshape([product(x.shape)]).max((0,), False, monoid)
    return position.reshape([1] * x.rank) if keepdim else position


def _scan(monoid: str, x: Expression, axis: int) -> Expression:
    return x.scan(monoid, axis)


def _running(monoid: str, x: Expression, axis: int) -> list[Expression]:
    """The running extremum, and the last position so far that attains it (the last NaN, after one)."""
    extremum = x.scan(monoid, axis)
    attained = x.eq(extremum)
    if x.dtype.is_float:
        attained = attained | x.isnan()
    position = x.emitter.positions_along(x.shape, axis)
    return [extremum, attained.select(position, 0).scan("max", axis)]


def _topk(x: Expression, axis: int, count: Dim, largest: bool) -> list[Expression]:
    return x.sort(axis, largest, None if known_equal(count, x.shape[axis]) else count)


# ---- in NumPy --------------------------------------------------------------------------------------------------


def _variance_array(x: Array, axes: Sequence[int], correction: float, keepdim: bool) -> Array:
    distance = x - x.mean(tuple(axes), keepdims=True)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.square(distance).sum(tuple(axes), keepdims=keepdim) / max(count - correction, 0.0)


def _logsumexp_array(x: Array, axes: Sequence[int], keepdim: bool) -> Array:
    top = x.max(tuple(axes), keepdims=True, initial=-math.inf)
    top = np.where(np.isinf(top), 0, top)
    total = np.log(np.exp(x - top).sum(tuple(axes), keepdims=True)) + top
    return total if keepdim else total.squeeze(tuple(axes))


def _over_axes(function: Callable[..., Any]) -> Callable[..., Array]:
    def interpret(x: Array, axes: Sequence[int], keepdim: bool) -> Array:
        return function(x, axis=tuple(axes), keepdims=keepdim)

    return interpret


def _total(function: Callable[..., Any]) -> Callable[..., Array]:
    """Sums and products: integers wrap in their dtype."""
    return of_doubles(lambda x, **rest: function(x, dtype=x.dtype, **rest))


def _truth(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda x, **rest: function(x != 0, **rest)


def _extreme(function: Callable[..., Any]) -> Callable[..., Array]:
    def interpret(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if any(x.shape[a] == 0 for a in axis):
            raise ShapeError(f"max and min: {x.shape} has no element along axes {axis}")
        return function(single(x), axis=axis, keepdims=keepdims)

    return interpret


def _arg_array(function: Callable[..., Any], x: Array, axis: int | None, keepdim: bool) -> Array:
    return function(single(x), axis=axis, keepdims=keepdim)


def _scan_array(function: Callable[..., Any], x: Array, axis: int) -> Array:
    """Sums start from 0.0, so that none is -0.0."""
    found = function(x, axis, x.dtype)
    return found + x.dtype.type(0) if function is np.cumsum else found


def _running_array(better: Callable[[Array, Array], Array], x: Array, axis: int) -> list[Array]:
    values, positions = x.copy(), np.zeros(x.shape, np.int64)
    along, where = np.moveaxis(values, axis, 0), np.moveaxis(positions, axis, 0)
    for i in range(1, len(along)):
        taken = np.isnan(along[i]) | (better(along[i], along[i - 1]) & ~np.isnan(along[i - 1]))
        along[i] = np.where(taken, along[i], along[i - 1])
        where[i] = np.where(taken, i, where[i - 1])
    return [values, positions]


def order(x: Array, axis: int, descending: bool) -> Array:
    """Positions that sort stably, NaN as the largest."""
    values = single(x)
    if not descending:
        return np.argsort(values, axis=axis, kind="stable")
    backward = np.argsort(np.flip(values, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backward, axis)


def _sort_array(x: Array, axis: int, descending: bool) -> list[Array]:
    positions = order(x, axis, descending)
    return [np.take_along_axis(x, positions, axis), positions]


def _topk_array(x: Array, axis: int, count: int, largest: bool) -> list[Array]:
    positions = np.take(order(x, axis, largest), range(count), axis)
    return [np.take_along_axis(x, positions, axis), positions]


Reduction = tuple[Callable[..., TensorType], Callable[..., Any], Callable[..., Any]]
OVER_AXES: dict[str, Reduction] = {
    "sum": (reduction("number"), Expression.sum, _over_axes(_total(np.sum))),
    "prod": (reduction("number"), partial(Expression.sum, monoid="prod"), _over_axes(_total(np.prod))),
    "max": (reduction("computed", empty=False), Expression.max, _over_axes(_extreme(np.max))),
    "min": (
        reduction("computed", empty=False),
        partial(Expression.max, monoid="min"),
        _over_axes(_extreme(np.min)),
    ),
    "any": (reduction("computed", bool_), partial(_logical, "max"), _over_axes(_truth(np.any))),
    "all": (reduction("computed", bool_), partial(_logical, "min"), _over_axes(_truth(np.all))),
    "mean": (reduction("float"), mean, of_doubles(_over_axes(np.mean))),
    "logsumexp": (reduction("float"), logsumexp, of_doubles(_logsumexp_array)),
}
"""Reductions over axes: inference, the spelling in primitives, NumPy."""

for _name, (_infer, _decompose, _interpret) in OVER_AXES.items():
    _wide = _name in ("mean", "logsumexp")
    define(_name, "x | axes:ints keepdim:bool=False", _infer, _decompose, _interpret, wide=_wide)
define(
    "var",
    "x | axes:ints correction:float=1.0 keepdim:bool=False",
    reduction("float"),
    variance,
    of_doubles(_variance_array),
    wide=True,
)
for _name, _function in (("argmax", np.argmax), ("argmin", np.argmin)):
    _interpret = partial(_arg_array, _function)
    define(_name, "x | axis:int? keepdim:bool=False", _infer_arg, partial(_arg, _name), _interpret)
for _name, _monoid, _function in (("cumsum", "sum", np.cumsum), ("cumprod", "prod", np.cumprod)):
    _interpret = of_doubles(partial(_scan_array, _function))
    define(_name, "x | axis:int", shapes.same("number"), partial(_scan, _monoid), _interpret)
for _name, _monoid, _better in (("cummax", "max", np.greater_equal), ("cummin", "min", np.less_equal)):
    _interpret = of_singles(partial(_running_array, _better))
    define(_name, "x | axis:int", _infer_indexed, partial(_running, _monoid), _interpret)
define("sort", "x | axis:int descending:bool=False", _infer_indexed, Expression.sort, _sort_array)
define("topk", "x | axis:int count:dim largest:bool=True", _infer_topk, _topk, _topk_array)
