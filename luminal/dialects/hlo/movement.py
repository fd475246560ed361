"""Rows that move elements without computing: views, padding, concatenation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.elementwise import Array
from luminal.dialects.hlo.expression import Expression
from luminal.dialects.hlo.shapes import tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, known_equal, known_less, known_unequal, product
from luminal.dtype import dtype_of, from_bits, to_bits
from luminal.errors import AxisError, OptionError, ShapeError


def _infer_permute(x: TensorType, *, order: Sequence[int]) -> TensorType:
    if sorted(order) != list(range(len(x.shape))):
        raise AxisError(f"order {tuple(order)} is no permutation of the axes of {text(x.shape)}")
    return tensor((x.shape[i] for i in order), x.dtype)


def _infer_reshape(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    """Numbers of elements that are not known to differ are compared at run time."""
    old, new = product(x.shape), product(shape)
    if any(known_less(size, 0) for size in shape):
        raise ShapeError(f"the new shape {text(shape)} has a negative size")
    if old != new and known_unequal(old, new):
        raise ShapeError(f"{text(x.shape)} has {old} elements, the new shape {text(shape)} has {new}")
    return tensor(shape, x.dtype)


def _infer_expand(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    offset = len(shape) - len(x.shape)
    if offset < 0 or not all(
        size == 1 or known_equal(size, new) for size, new in zip(x.shape, shape[offset:])
    ):
        raise ShapeError(f"{text(x.shape)} does not expand to {text(shape)}")
    return tensor(shape, x.dtype)


def _infer_slice(
    x: TensorType, *, starts: Sequence[Dim], stops: Sequence[Dim], steps: Sequence[int]
) -> TensorType:
    """Start inclusive, stop exclusive, both within the axis; each step at least 1."""
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        raise ShapeError(f"starts, stops and steps need one entry for each axis of {text(x.shape)}")
    if any(step < 1 for step in steps):
        raise OptionError(f"the steps are {tuple(steps)}, expected at least 1")
    sizes: list[Dim] = []
    for start, stop, step, size in zip(starts, stops, steps, x.shape):
        if known_less(start, 0) or known_less(stop, start) or known_less(size, stop):
            raise ShapeError(f"the slice {start} to {stop} does not lie within an axis of size {size}")
        sizes.append((stop - start + step - 1) // step)
    return tensor(sizes, x.dtype)


def _infer_pad(
    x: TensorType, *, low: Sequence[Dim], high: Sequence[Dim], value: bool | int | float
) -> TensorType:
    if not len(low) == len(high) == len(x.shape):
        raise ShapeError(f"low and high need one entry for each axis of {text(x.shape)}")
    if any(known_less(amount, 0) for amount in (*low, *high)):
        raise OptionError(f"the padding {text(low)}, {text(high)} is negative; slice instead")
    to_bits(value, x.dtype)
    return tensor((a + size + b for a, size, b in zip(low, x.shape, high)), x.dtype)


def _infer_cat(xs: Sequence[TensorType], *, axis: int) -> TensorType:
    if not xs:
        raise ShapeError("it was given no tensor, expected at least one")
    first = xs[0].shape
    shapes.check_axis(axis, len(first))
    total = as_dim(0)
    for x in xs:
        size = x.shape[axis] if axis < len(x.shape) else as_dim(0)
        shapes.check_same_shape(x.shape, (*first[:axis], size, *first[axis + 1 :]), "a tensor")
        total = total + size
    return tensor((*first[:axis], total, *first[axis + 1 :]), shapes.common_dtype(xs))


def _cat(xs: Sequence[Expression], axis: int) -> Expression:
    """A chain of selects over the padded pieces: each element is read from its own piece, so no bit is lost."""
    total = as_dim(0)
    for x in xs:
        total = total + x.shape[axis]
    start = as_dim(0)
    result: Expression | None = None
    for x in xs:
        stop = start + x.shape[axis]
        if x.shape[axis] == 0:
            continue
        low, high = [as_dim(0)] * x.rank, [as_dim(0)] * x.rank
        low[axis], high[axis] = start, total - stop
        piece = x.pad(low, high, 0)
        if result is not None:
            emitter = x.emitter
            position = emitter.positions_along(piece.shape, axis)
            piece = position.lt(emitter.size(start, piece.shape)).select(result, piece)
        result, start = piece, stop
    return xs[0] if result is None else result


def _infer_stack(xs: Sequence[TensorType], *, axis: int) -> TensorType:
    if not xs:
        raise ShapeError("it was given no tensor, expected at least one")
    first = xs[0].shape
    if not 0 <= axis <= len(first):
        raise AxisError(f"axis {axis} is outside a result of rank {len(first) + 1}")
    for x in xs:
        shapes.check_same_shape(x.shape, first, "a tensor")
    return tensor((*first[:axis], as_dim(len(xs)), *first[axis:]), shapes.common_dtype(xs))


def window_count(size: Dim, extent: int, step: int, dilation: int) -> Dim:
    """How many windows of `extent` elements, `dilation` apart, start `step` apart within `size`."""
    if extent < 1 or step < 1 or dilation < 1:
        raise OptionError(f"a window of {extent}, step {step}, dilation {dilation}: expected at least 1 each")
    reach = dilation * (extent - 1) + 1
    if known_less(size, reach):
        raise ShapeError(f"a window that spans {reach} does not fit in {size}")
    return (size - reach) // step + 1


def _infer_window(x: TensorType, *, axis: int, size: int, step: int, dilation: int) -> TensorType:
    """Like Tensor.unfold: the axis counts windows, a new last axis goes through each."""
    count = window_count(x.shape[shapes.check_axis(axis, len(x.shape))], size, step, dilation)
    return tensor((*x.shape[:axis], count, *x.shape[axis + 1 :], as_dim(size)), x.dtype)


def _reshape_array(x: Array, shape: Sequence[int]) -> Array:
    if min(shape, default=0) < 0 or math.prod(shape) != x.size:
        raise ShapeError(f"{x.size} elements cannot have the shape {text(shape)}")
    return x.reshape(shape)


def _pad_array(x: Array, low: Sequence[int], high: Sequence[int], value: bool | int | float) -> Array:
    if min((*low, *high), default=0) < 0:
        raise ShapeError(f"the padding {text(low)}, {text(high)} is negative")
    filler = from_bits(to_bits(value, dtype_of(x.dtype)), dtype_of(x.dtype))
    result = np.full([a + n + b for a, n, b in zip(low, x.shape, high)], filler)
    result[tuple(slice(a, a + n) for a, n in zip(low, x.shape))] = x
    return result


def _slice_array(x: Array, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Array:
    if any(not 0 <= a <= b <= n for a, b, n in zip(starts, stops, x.shape)):
        raise ShapeError(f"slice: {tuple(starts)} to {tuple(stops)} does not lie within {x.shape}")
    return x[tuple(map(slice, starts, stops, steps))]


def _window_array(x: Array, axis: int, size: int, step: int, dilation: int) -> Array:
    if x.shape[axis] < dilation * (size - 1) + 1:
        raise ShapeError(f"a window that spans {dilation * (size - 1) + 1} does not fit in {x.shape[axis]}")
    view = np.lib.stride_tricks.sliding_window_view(x, dilation * (size - 1) + 1, axis)[..., ::dilation]
    return view[(slice(None),) * axis + (slice(None, None, step),)]


define("permute", "x | order:ints", _infer_permute, Expression.permute, lambda x, order: x.transpose(order))
define("reshape", "x | shape:dims", _infer_reshape, Expression.reshape, _reshape_array)
define("expand", "x | shape:dims", _infer_expand, Expression.expand, np.broadcast_to)
define("slice", "x | starts:dims stops:dims steps:ints", _infer_slice, Expression.slice, _slice_array)
define("pad", "x | low:dims high:dims value:number=0", _infer_pad, Expression.pad, _pad_array)
define("cat", "xs* | axis:int", _infer_cat, _cat, np.concatenate)
define(
    "stack",
    "xs* | axis:int",
    _infer_stack,
    lambda xs, axis: _cat([x.insert_axes([axis]) for x in xs], axis),
    np.stack,
)
define("flip", "x | axes:ints", shapes.same(), Expression.flip, lambda x, axes: np.flip(x, axes))
define(
    "window",
    "x | axis:int size:int step:int=1 dilation:int=1",
    _infer_window,
    Expression.window,
    _window_array,
)
