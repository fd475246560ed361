"""ATen ops over windows of the last axes: pooling, adaptive pooling, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from luminal.dim import Dim, as_dim, known_equal, product
from luminal.dtype import i64
from luminal.torch.lowering import Lowering, Value, dtype, lowers, rank, shape_of

Ints = int | Sequence[int]


def _axes_of(name: str) -> int:
    return next(count for count in (1, 2, 3) if f"{count}d" in name)


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    low: Lowering, x: Value, kernel: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Value, Value | None]:  # fmt: skip
    """Values, and where each was in the flattened input plane."""
    count = _axes_of(low.name)
    size = low.each(kernel, count)
    how: dict[str, Any] = {
        "size": size, "stride": low.each(stride, count, size), "padding": low.each(padding, count),
        "dilation": low.each(dilation, count), "ceil": ceil_mode,
    }  # fmt: skip
    values = low.b.max_pool(x, **how)
    return values, low.b.max_pool_index(x, **how) if low.uses_result(1) else None


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
        "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")  # fmt: skip
def max_pool_backward(low: Lowering, grad: Value, x: Value, *rest: Any) -> Value:
    """Each gradient goes to the element that won its window."""
    places, count = cast(Value, rest[-1]), _axes_of(low.name)
    lead = shape_of(x)[: rank(x) - count]
    flat = (*lead, product(shape_of(x)[rank(x) - count :]))
    gradients = low.reshape(grad, (*lead, product(shape_of(grad)[rank(x) - count :])))
    where = low.reshape(places, shape_of(gradients))
    zeros = low.full(0, flat, dtype(grad))
    return low.reshape(low.b.scatter(zeros, where, gradients, axis=len(lead), combine="add"), shape_of(x))


@lowers("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    low: Lowering, x: Value, kernel: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    count = _axes_of(low.name)
    if not dtype(x).is_float:
        raise low.refuse("averages of integers")
    size = low.each(kernel, count)
    return low.b.avg_pool(
        x, size=size, stride=low.each(stride, count, size), padding=low.each(padding, count), ceil=ceil_mode,
        count_padding=count_include_pad, divisor=divisor_override,
    )  # fmt: skip


@lowers("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    low: Lowering, grad: Value, x: Value, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Value:  # fmt: skip
    """Each gradient over its divisor, added to every element of its window: a convolution with ones, transposed."""
    count = _axes_of(low.name)
    size = low.each(kernel, count)
    stride, padding = low.each(stride, count, size), low.each(padding, count)
    kind, spatial = dtype(grad), shape_of(x)[rank(x) - count :]
    lead = shape_of(x)[: rank(x) - count]
    if any(extent.constant is None for extent in spatial):
        raise low.refuse("the gradient of pooling over a symbolic size")
    if divisor_override is not None:
        shares = low.b.div(grad, low.number(divisor_override, kind))
    else:
        ones = low.full(1, (as_dim(1), *spatial), kind)
        window = {"size": size, "stride": stride, "padding": padding, "ceil": ceil_mode}
        inside = low.b.avg_pool(ones, **window, count_padding=True, divisor=1)  # elements that are no padding
        if count_include_pad:
            share = low.b.avg_pool(ones, **window, count_padding=True, divisor=None)
            shares = low.b.mul(grad, low.b.div(share, inside))
        else:
            shares = low.b.div(grad, inside)
    outputs = shape_of(grad)[rank(x) - count :]
    batch = low.reshape(shares, (product(lead), as_dim(1), *outputs))
    ones = low.full(1, (as_dim(1), as_dim(1), *map(as_dim, size)), kind)
    spread = low.b.conv(
        batch, ones, None, stride=stride, padding=(0,) * count, dilation=(1,) * count, transposed=True,
        output_padding=(0,) * count,
    )  # fmt: skip
    for axis in range(count):
        spread = _window_of(low, spread, 2 + axis, padding[axis], cast(int, spatial[axis].constant))
    return low.reshape(spread, shape_of(x))


def _window_of(low: Lowering, x: Value, axis: int, start: int, size: int) -> Value:
    """Elements start .. start + size of an axis, zeros where it is shorter."""
    available = cast(int, shape_of(x)[axis].constant)
    missing = start + size - available
    if missing > 0:
        high = [as_dim(missing if i == axis else 0) for i in range(rank(x))]
        x = low.b.pad(x, low=[as_dim(0)] * rank(x), high=high, value=0)
    return low.slice(x, axis, start, start + size)


# ---- adaptive pooling ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Windows:
    """Every window of an adaptive pooling, filled up to the longest: `data` is [*lead, *outputs, *longest], `inside`
    says which elements are no filling ([*outputs, *longest]), `starts` where each begins along its axis."""

    data: Value
    inside: Value
    starts: list[Value]
    longest: list[Dim]


def _adaptive_windows(low: Lowering, x: Value, outputs: Sequence[Any]) -> _Windows:
    count = len(outputs)
    lead = rank(x) - count
    starts: list[Value] = []
    longest: list[Dim] = []
    inside: Value | None = None
    for number, wanted in enumerate(map(as_dim, outputs)):
        axis = lead + 2 * number
        size = shape_of(x)[axis]
        start, places, mask, length = _axis_windows(low, size, wanted)
        x = low.b.index_select(x, low.reshape(places, (wanted * length,)), axis=axis)
        shape = shape_of(x)
        x = low.reshape(x, (*shape[:axis], wanted, length, *shape[axis + 1 :]))
        spread = [as_dim(1)] * (2 * count)
        spread[number], spread[count + number] = wanted, length
        mask = low.reshape(mask, spread)
        inside = mask if inside is None else low.b.logical_and(inside, mask)
        starts.append(start)
        longest.append(length)
    order = [*range(lead), *range(lead, lead + 2 * count, 2), *range(lead + 1, lead + 2 * count, 2)]
    return _Windows(low.permute(x, order), cast(Value, inside), starts, longest)


def _axis_windows(low: Lowering, size: Dim, outputs: Dim) -> tuple[Value, Value, Value, Dim]:
    """Along one axis: starts [outputs], positions and whether they are in the window [outputs, longest], longest."""
    length = size // outputs if known_equal(size % outputs, 0) else (size + outputs - 1) // outputs + 1
    total, count = low.number(size, i64), low.number(outputs, i64)
    cell = low.positions(outputs, 0, 1)
    start = low.b.trunc_divide(low.b.mul(cell, total), count)
    past = low.b.mul(low.b.add(cell, low.number(1, i64)), total)
    stop = low.b.trunc_divide(low.b.add(past, low.b.sub(count, low.number(1, i64))), count)
    column = low.reshape(start, (outputs, as_dim(1)))
    places = low.b.add(column, low.positions(length, 1, 2))
    inside = low.b.lt(places, low.reshape(stop, (outputs, as_dim(1))))
    return start, low.b.minimum(places, low.b.sub(total, low.number(1, i64))), inside, length


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(low: Lowering, x: Value, outputs: Sequence[Any]) -> Value:
    count, lead = len(outputs), rank(x) - len(outputs)
    if all(known_equal(as_dim(wanted), 1) for wanted in outputs):
        return low.b.mean(x, axes=tuple(range(lead, rank(x))), keepdim=True)
    kind = dtype(x).accumulate
    windows = _adaptive_windows(low, low.cast(x, kind), outputs)
    axes = tuple(range(lead + count, lead + 2 * count))
    total = low.b.sum(low.b.where(windows.inside, windows.data, low.number(0, kind)), axes=axes)
    sizes = low.b.sum(low.cast(windows.inside, kind), axes=tuple(range(count, 2 * count)))
    return low.cast(low.b.div(total, sizes), dtype(x))


@lowers("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(low: Lowering, grad: Value, x: Value) -> Value:
    """Axis by axis, each gradient over the length of its window is added to the elements of that."""
    count = _axes_of(low.name)
    kind = dtype(grad).accumulate
    value = low.cast(grad, kind)
    for axis in range(rank(x) - count, rank(x)):
        size, outputs = shape_of(x)[axis], shape_of(value)[axis]
        _, places, inside, length = _axis_windows(low, size, outputs)
        weight = low.cast(inside, kind)
        weight = low.b.div(weight, low.b.sum(weight, axes=(1,), keepdim=True))
        before, after = shape_of(value)[:axis], shape_of(value)[axis + 1 :]
        ones = ([as_dim(1)] * len(before), [as_dim(1)] * len(after))
        parts = low.b.mul(
            low.reshape(value, (*before, outputs, as_dim(1), *after)),
            low.reshape(weight, (*ones[0], outputs, length, *ones[1])),
        )
        total = low.full(0, (*before, size, *after), kind)
        flat = low.reshape(parts, (*before, outputs * length, *after))
        where = low.reshape(places, (outputs * length,))
        value = low.b.index_put(total, flat, [where], axes=(axis,), accumulate=True)
    return low.cast(value, dtype(grad))


@lowers("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(low: Lowering, x: Value, outputs: Sequence[Any]) -> tuple[Value, Value | None]:
    """Values, and where each was in the flattened input plane."""
    count, lead = len(outputs), rank(x) - len(outputs)
    sizes = shape_of(x)[lead:]
    windows = _adaptive_windows(low, x, outputs)
    cells, inner = shape_of(windows.data)[: lead + count], product(windows.longest)
    nothing = low.number(-math.inf if dtype(x).is_float else dtype(x).lowest, dtype(x))
    flat = low.reshape(low.b.where(windows.inside, windows.data, nothing), (*cells, inner))
    values = low.b.max(flat, axes=(rank(flat) - 1,))
    if not low.uses_result(1):
        return values, None
    winner = low.b.argmax(flat, axis=rank(flat) - 1)
    place = low.number(0, i64)
    for number in range(count):
        behind = product(windows.longest[number + 1 :])
        within = low.b.trunc_divide(winner, low.number(behind, i64))
        within = low.b.remainder(within, low.number(windows.longest[number], i64))
        starts = low.reshape(
            windows.starts[number], [as_dim(outputs[i] if i == number else 1) for i in range(count)]
        )
        along = low.b.mul(low.b.add(within, starts), low.number(product(sizes[number + 1 :]), i64))
        place = low.b.add(place, along)
    return values, place
