"""Nearest-neighbour and linear resizing, with positions and weights computed as PyTorch's kernels do, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.dim import Dim, as_dim, known_equal
from luminal.dtype import DType, f32, f64, i64
from luminal.torch.lowering import Lowering, Scalar, Value, dtype, lowers, rank, shape_of

FORWARD = [
    f"{name}{n}d.default" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
]
BACKWARD = [
    f"{name}{n}d_backward.default"
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for n in (1, 2, 3)
]


@lowers(*FORWARD)
def upsample_nearest(low: Lowering, x: Value, sizes: Sequence[Any], *scales: Scalar | None) -> Value:
    axes = tuple(range(2, rank(x)))
    return low.b.index(x, _positions(low, shape_of(x)[2:], sizes, scales), axes=axes)


@lowers(*BACKWARD)
def upsample_nearest_backward(
    low: Lowering, grad: Value, sizes: Sequence[Any], inputs: Sequence[Any], *scales: Scalar | None
) -> Value:
    """Each gradient is added where its element came from."""
    shape = tuple(map(as_dim, inputs))
    zeros = low.full(0, shape, dtype(grad))
    places = _positions(low, shape[2:], sizes, scales)
    return low.b.index_put(zeros, grad, places, axes=tuple(range(2, len(shape))), accumulate=True)


def _positions(
    low: Lowering, inputs: Sequence[Dim], outputs: Sequence[Any], scales: Sequence[Scalar | None]
) -> list[Value]:
    """For each axis the position in the input of every position of the output, i64, of rank that broadcasts."""
    count = len(inputs)
    places: list[Value] = []
    for axis in range(count):
        place = _axis_positions(
            low, inputs[axis], as_dim(outputs[axis]), scales[axis] if scales else None, count
        )
        places.append(low.reshape(place, [as_dim(outputs[i] if i == axis else 1) for i in range(count)]))
    return places


def _axis_positions(low: Lowering, size: Dim, wanted: Dim, scale: Scalar | None, count: int) -> Value:
    steps = low.positions(wanted, 0, 1)
    step = _step(low, size, wanted, scale, f32)
    if "exact" in low.name:
        middle = low.b.add(low.cast(steps, f64), low.number(0.5, f64))
        real = low.cast(low.b.mul(middle, low.cast(step, f64)), f32)
    else:
        real = low.b.mul(low.cast(steps, f32), step)
    place = low.b.minimum(low.cast(low.b.floor(real), i64), low.number(size - 1, i64))
    # in two dimensions, and in every gradient, PyTorch takes equal sizes as the identity and double ones as halving,
    # whatever the scale
    ruled = count == 2 or "backward" in low.name
    if scale is None or not ruled or "exact" in low.name:
        return place
    if known_equal(size, wanted):
        return steps
    total, target = low.number(size, i64), low.number(wanted, i64)
    place = low.b.where(low.b.eq(target, total), steps, place)
    halved = low.b.trunc_divide(steps, low.number(2, i64))
    return low.b.where(low.b.eq(target, low.b.mul(total, low.number(2, i64))), halved, place)


def _step(low: Lowering, size: Dim, wanted: Dim, scale: Scalar | None, kind: DType) -> Value:
    """Input elements for one output element, in f32 or f64."""
    if scale is None:
        sizes = [low.cast(low.number(s, i64), kind) for s in (size, wanted)]
        return low.b.div(*sizes)
    if isinstance(scale, (int, float)):
        return low.number(float(np.float32(1.0 / scale)) if kind == f32 else 1.0 / scale, kind)
    return low.cast(low.b.div(low.number(1.0, f64), low.number(scale, f64)), kind)


# ---- linear ----------------------------------------------------------------------------------------------------

LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


@dataclass(frozen=True)
class _Neighbours:
    """For every position of an output axis the two it lies between in the input, and their weights."""

    first: Value
    second: Value
    first_weight: Value
    second_weight: Value


@lowers(*[f"{name}.default" for name in LINEAR])
def upsample_linear(
    low: Lowering, x: Value, sizes: Sequence[Any], align_corners: bool, *scales: Scalar | None
) -> Value:
    """One axis after the other, from the last on."""
    kind = _computed_kind(low, dtype(x))
    value = low.cast(x, kind)
    for number in reversed(range(rank(x) - 2)):
        axis = 2 + number
        size, wanted = shape_of(x)[axis], as_dim(sizes[number])
        near = _neighbours(low, size, wanted, align_corners, scales[number] if scales else None, kind)
        parts: list[Value] = []
        for place, weight in ((near.first, near.first_weight), (near.second, near.second_weight)):
            weight = low.reshape(weight, [wanted if i == axis else as_dim(1) for i in range(rank(x))])
            parts.append(low.b.mul(weight, low.b.index_select(value, place, axis=axis)))
        value = low.b.add(*parts)
    return low.cast(value, dtype(x))


@lowers(*[f"{name}_backward.default" for name in LINEAR])
def upsample_linear_backward(
    low: Lowering,
    grad: Value,
    sizes: Sequence[Any],
    inputs: Sequence[Any],
    align_corners: bool,
    *scales: Scalar | None,
) -> Value:
    """Each gradient, times its weights, is added to the elements that it came from."""
    kind = _computed_kind(low, dtype(grad))
    value = low.cast(grad, kind)
    for number in range(rank(grad) - 2):
        axis = 2 + number
        size, wanted = as_dim(inputs[axis]), as_dim(sizes[number])
        near = _neighbours(low, size, wanted, align_corners, scales[number] if scales else None, kind)
        shape = shape_of(value)
        total = low.full(0, (*shape[:axis], size, *shape[axis + 1 :]), kind)
        for place, weight in ((near.first, near.first_weight), (near.second, near.second_weight)):
            weight = low.reshape(weight, [wanted if i == axis else as_dim(1) for i in range(rank(grad))])
            part = low.b.mul(weight, value)
            total = low.b.index_put(total, part, [place], axes=(axis,), accumulate=True)
        value = total
    return low.cast(value, dtype(grad))


def _computed_kind(low: Lowering, kind: DType) -> DType:
    if not kind.is_float:
        raise low.refuse("linear resizing of integers, which PyTorch rounds in its own way")
    return f64 if kind == f64 else f32


def _neighbours(
    low: Lowering, size: Dim, wanted: Dim, align_corners: bool, scale: Scalar | None, kind: DType
) -> _Neighbours:
    steps = low.positions(wanted, 0, 1)
    zero, one = low.number(0, kind), low.number(1, kind)
    if known_equal(size, wanted):  # whatever the scale
        ones = low.full(1, (wanted,), kind)
        return _Neighbours(steps, steps, ones, low.zeros_like(ones))
    if align_corners:
        ends = [low.cast(low.number(s - 1, i64), kind) for s in (size, wanted)]
        step = low.b.div(ends[0], low.b.maximum(ends[1], one))
        step = low.b.where(low.b.gt(ends[1], zero), step, zero)
        real = low.b.mul(step, low.cast(steps, kind))
    else:
        half = low.number(0.5, kind)
        middle = low.b.add(low.cast(steps, kind), half)
        real = low.b.sub(low.b.mul(_step(low, size, wanted, scale, kind), middle), half)
        real = low.b.maximum(real, zero)
    last = low.number(size - 1, i64)
    first = low.b.minimum(low.cast(low.b.floor(real), i64), last)
    second = low.b.minimum(low.b.add(first, low.number(1, i64)), last)
    weight = low.b.minimum(low.b.maximum(low.b.sub(real, low.cast(first, kind)), zero), one)
    if scale is not None:  # equal sizes are the identity at run time too
        same = low.b.eq(low.number(size, i64), low.number(wanted, i64))
        first, second = low.b.where(same, steps, first), low.b.where(same, steps, second)
        weight = low.b.where(same, zero, weight)
    return _Neighbours(first, second, low.b.sub(one, weight), weight)
