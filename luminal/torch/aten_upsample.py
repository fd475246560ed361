"""Nearest-neighbour resizing, with positions computed as PyTorch's kernels do, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.dim import Dim, as_dim, known_equal
from luminal.dtype import f32, f64, i64
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
    step = _step(low, size, wanted, scale)
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


def _step(low: Lowering, size: Dim, wanted: Dim, scale: Scalar | None) -> Value:
    """Input elements for one output element, in f32."""
    if scale is None:
        sizes = [low.cast(low.number(s, i64), f32) for s in (size, wanted)]
        return low.b.div(*sizes)
    if isinstance(scale, (int, float)):
        return low.number(float(np.float32(1.0 / scale)), f32)
    return low.cast(low.b.div(low.number(1.0, f64), low.number(scale, f64)), f32)
