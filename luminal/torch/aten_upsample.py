"""Resizing by nearest neighbours, linear and cubic: positions and weights as PyTorch's kernels compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from luminal.dim import Dim, as_dim, known_equal
from luminal.dtype import DType, f32, f64, i64
from luminal.torch.lowering import Lowering, Scalar, Value, dtype, lowers, rank, shape_of

FORWARD = [
    f"{name}{n}d.default" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
]
BACKWARD = [name.replace(".", "_backward.") for name in FORWARD]


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


# ---- linear and cubic ------------------------------------------------------------------------------------------

LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
CUBIC = "upsample_bicubic2d"
CUBIC_A = -0.75
Taps = list[tuple[Value, Value]]
"""For every position of an output axis, the places in the input that it is made of, and their weights."""


@lowers(*[f"{name}.default" for name in (*LINEAR, CUBIC)])
def upsample(
    low: Lowering, x: Value, sizes: Sequence[Any], align_corners: bool, *scales: Scalar | None
) -> Value:
    """One axis after the other, from the last on."""
    kind = _computed_kind(low, dtype(x))
    value = low.cast(x, kind)
    for number in reversed(range(rank(x) - 2)):
        axis = 2 + number
        size, wanted = shape_of(x)[axis], as_dim(sizes[number])
        total: Value | None = None
        for place, weight in _taps(
            low, size, wanted, align_corners, scales[number] if scales else None, kind
        ):
            weight = low.reshape(weight, [wanted if i == axis else as_dim(1) for i in range(rank(x))])
            part = low.b.mul(weight, low.b.index_select(value, place, axis=axis))
            total = part if total is None else low.b.add(total, part)
        value = cast(Value, total)
    return low.cast(value, dtype(x))


@lowers(*[f"{name}_backward.default" for name in (*LINEAR, CUBIC)])
def upsample_backward(
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
    kept = all(known_equal(as_dim(a), as_dim(b)) for a, b in zip(inputs[2:], sizes))
    if CUBIC in low.name and kept:
        return grad  # PyTorch copies, whatever the factors
    for number in range(rank(grad) - 2):
        axis = 2 + number
        size, wanted = as_dim(inputs[axis]), as_dim(sizes[number])
        shape = shape_of(value)
        total = low.full(0, (*shape[:axis], size, *shape[axis + 1 :]), kind)
        for place, weight in _taps(
            low, size, wanted, align_corners, scales[number] if scales else None, kind
        ):
            weight = low.reshape(weight, [wanted if i == axis else as_dim(1) for i in range(rank(grad))])
            total = low.b.index_put(total, low.b.mul(weight, value), [place], axes=(axis,), accumulate=True)
        value = total
    return low.cast(value, dtype(grad))


def _computed_kind(low: Lowering, kind: DType) -> DType:
    if not kind.is_float:
        raise low.refuse("resizing of integers, which PyTorch rounds in its own way")
    return kind.accumulate


def _taps(
    low: Lowering, size: Dim, wanted: Dim, align_corners: bool, scale: Scalar | None, kind: DType
) -> Taps:
    real = _real_positions(low, size, wanted, align_corners, scale, kind)
    taps = _cubic_taps if CUBIC in low.name else _linear_taps
    return taps(low, real, size, wanted, kind, scaled=scale is not None)


def _real_positions(
    low: Lowering, size: Dim, wanted: Dim, align_corners: bool, scale: Scalar | None, kind: DType
) -> Value:
    """Where in the input, as a real number, the middle of each output element lies."""
    steps = low.cast(low.positions(wanted, 0, 1), kind)
    if align_corners:
        zero, one = low.number(0, kind), low.number(1, kind)
        ends = [low.cast(low.number(s - 1, i64), kind) for s in (size, wanted)]
        step = low.b.div(ends[0], low.b.maximum(ends[1], one))
        return low.b.mul(low.b.where(low.b.gt(ends[1], zero), step, zero), steps)
    half = low.number(0.5, kind)
    return low.b.sub(low.b.mul(_step(low, size, wanted, scale, kind), low.b.add(steps, half)), half)


def _linear_taps(low: Lowering, real: Value, size: Dim, wanted: Dim, kind: DType, *, scaled: bool) -> Taps:
    """The two neighbours; equal sizes are the identity, whatever the scale."""
    steps = low.positions(wanted, 0, 1)
    zero, one, last = low.number(0, kind), low.number(1, kind), low.number(size - 1, i64)
    real = low.b.maximum(real, zero)
    first = low.b.minimum(low.cast(low.b.floor(real), i64), last)
    second = low.b.minimum(low.b.add(first, low.number(1, i64)), last)
    weight = low.b.minimum(low.b.maximum(low.b.sub(real, low.cast(first, kind)), zero), one)
    if known_equal(size, wanted):
        first = second = steps
        weight = low.full(0, (wanted,), kind)
    elif scaled:
        same = low.b.eq(low.number(size, i64), low.number(wanted, i64))
        first, second = low.b.where(same, steps, first), low.b.where(same, steps, second)
        weight = low.b.where(same, zero, weight)
    return [(first, low.b.sub(one, weight)), (second, weight)]


def _cubic_taps(low: Lowering, real: Value, size: Dim, wanted: Dim, kind: DType, *, scaled: bool) -> Taps:
    """Four neighbours, those beyond the border moved onto it."""
    floor = low.b.floor(real)
    base, last = low.cast(floor, i64), low.number(size - 1, i64)
    t = low.b.sub(real, floor)
    rest = low.b.sub(low.number(1, kind), t)
    one = low.number(1, kind)
    weights = [
        _cubic_far(low, low.b.add(t, one)),
        _cubic_near(low, t),
        _cubic_near(low, rest),
        _cubic_far(low, low.b.add(rest, one)),
    ]
    taps: Taps = []
    for number, weight in enumerate(weights):
        place = low.b.add(base, low.number(number - 1, i64))
        taps.append((low.b.minimum(low.b.maximum(place, low.number(0, i64)), last), weight))
    return taps


def _polynomial(low: Lowering, x: Value, *coefficients: float) -> Value:
    """Horner's rule, from the highest power on."""
    total = low.number(coefficients[0], dtype(x))
    for coefficient in coefficients[1:]:
        total = low.b.mul(total, x)
        if coefficient:
            total = low.b.add(total, low.number(coefficient, dtype(x)))
    return total


def _cubic_near(low: Lowering, x: Value) -> Value:
    return _polynomial(low, x, CUBIC_A + 2, -(CUBIC_A + 3), 0, 1)


def _cubic_far(low: Lowering, x: Value) -> Value:
    return _polynomial(low, x, CUBIC_A, -5 * CUBIC_A, 8 * CUBIC_A, -4 * CUBIC_A)
