"""ATen ops over windows of the last axes: pooling, adaptive pooling, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from luminal.dim import as_dim, known_equal, product
from luminal.dtype import i64
from luminal.torch.lowering import Lowering, Value, dtype, lowers, rank, shape_of

Ints = int | Sequence[int]


def _each(values: Ints, count: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    listed = (values,) if isinstance(values, int) else tuple(values) or tuple(default)
    return listed * count if len(listed) == 1 else listed


def _axes_of(name: str) -> int:
    return next(count for count in (1, 2, 3) if f"{count}d" in name)


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    low: Lowering, x: Value, kernel: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Value, Value | None]:  # fmt: skip
    """Values, and where each was in the flattened input plane."""
    count = _axes_of(low.name)
    size = _each(kernel, count)
    how: dict[str, Any] = {
        "size": size, "stride": _each(stride, count, size), "padding": _each(padding, count),
        "dilation": _each(dilation, count), "ceil": ceil_mode,
    }  # fmt: skip
    values = low.b.max_pool(x, **how)
    return values, low.b.max_pool_index(x, **how) if low.uses_result(1) else None


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(low: Lowering, grad: Value, x: Value, *rest: Any) -> Value:
    """Each gradient goes to the element that won its window."""
    return _to_places(low, grad, cast(Value, rest[-1]), x, _axes_of(low.name))


def _to_places(low: Lowering, grad: Value, places: Value, x: Value, count: int) -> Value:
    lead = shape_of(x)[: rank(x) - count]
    flat = (*lead, product(shape_of(x)[rank(x) - count :]))
    gradients = low.reshape(grad, (*lead, product(shape_of(grad)[rank(x) - count :])))
    where = low.reshape(places, shape_of(gradients))
    zeros = low.full(0, flat, dtype(grad))
    return low.reshape(low.b.scatter(zeros, where, gradients, axis=len(lead), combine="add"), shape_of(x))


@lowers("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(low: Lowering, grad: Value, x: Value, places: Value) -> Value:
    return _to_places(low, grad, places, x, _axes_of(low.name))


@lowers("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    low: Lowering, x: Value, kernel: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    count = _axes_of(low.name)
    size = _each(kernel, count)
    return low.b.avg_pool(
        x, size=size, stride=_each(stride, count, size), padding=_each(padding, count), ceil=ceil_mode,
        count_padding=count_include_pad, divisor=divisor_override,
    )  # fmt: skip


@lowers("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    low: Lowering, grad: Value, x: Value, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Value:  # fmt: skip
    """Each gradient over its divisor, added to every element of its window: a convolution with ones, transposed."""
    count = _axes_of(low.name)
    size = _each(kernel, count)
    stride, padding = _each(stride, count, size), _each(padding, count)
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


def _cells(size: int, outputs: int) -> list[tuple[int, int]]:
    """Start and stop of each adaptive window."""
    return [(i * size // outputs, -((-(i + 1) * size) // outputs)) for i in range(outputs)]


def _adaptive_windows(
    low: Lowering, x: Value, outputs: Sequence[Any]
) -> tuple[Value, Value, list[list[int]]]:
    """Every window of an adaptive pooling, padded to the longest: x as [*lead, *outputs, *longest], whether an
    element lies in its window, and the positions taken along each axis."""
    count = len(outputs)
    lead = rank(x) - count
    taken: list[list[int]] = []
    mask: Value | None = None
    for number, wanted in enumerate(outputs):
        size, cells_wanted = shape_of(x)[lead + 2 * number].constant, as_dim(wanted).constant
        if size is None or cells_wanted is None:
            raise low.refuse("adaptive pooling of a symbolic size")
        cells = _cells(size, cells_wanted)
        longest = max((stop - start for start, stop in cells), default=1)
        places = [min(start + j, size - 1) for start, _ in cells for j in range(longest)]
        inside = [start + j < stop for start, stop in cells for j in range(longest)]
        x = low.b.index_select(x, low.constant_i64(places), axis=lead + 2 * number)
        before, after = shape_of(x)[: lead + 2 * number], shape_of(x)[lead + 2 * number + 1 :]
        x = low.reshape(x, (*before, as_dim(cells_wanted), as_dim(longest), *after))
        shape = [as_dim(1)] * (2 * count)
        shape[2 * number], shape[2 * number + 1] = as_dim(cells_wanted), as_dim(longest)
        one = low.reshape(low.b.ne(low.constant_i64([int(v) for v in inside]), low.number(0, i64)), shape)
        mask = one if mask is None else low.b.logical_and(mask, one)
        taken.append(places)
    order = [*range(lead), *range(lead, lead + 2 * count, 2), *range(lead + 1, lead + 2 * count, 2)]
    chosen = low.permute(cast(Value, mask), [*range(0, 2 * count, 2), *range(1, 2 * count, 2)])
    return low.permute(x, order), chosen, taken


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(low: Lowering, x: Value, outputs: Sequence[Any]) -> Value:
    count, lead = len(outputs), rank(x) - len(outputs)
    if all(known_equal(as_dim(wanted), 1) for wanted in outputs):
        return low.b.mean(x, axes=tuple(range(lead, rank(x))), keepdim=True)
    windows, mask, _ = _adaptive_windows(low, x, outputs)
    axes = tuple(range(lead + count, lead + 2 * count))
    total = low.b.sum(low.b.where(mask, windows, low.number(0, dtype(x))), axes=axes)
    sizes = low.b.sum(low.cast(mask, dtype(x)), axes=tuple(range(count, 2 * count)))
    return low.b.div(total, sizes)


@lowers("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(low: Lowering, x: Value, outputs: Sequence[Any]) -> tuple[Value, Value | None]:
    count, lead = len(outputs), rank(x) - len(outputs)
    sizes = [cast(int, as_dim(size).constant or 0) for size in shape_of(x)[lead:]]
    windows, mask, taken = _adaptive_windows(low, x, outputs)
    shape = shape_of(windows)
    cells, inner = shape[: lead + count], product(shape[lead + count :])
    nothing = low.number(-math.inf if dtype(x).is_float else dtype(x).lowest, dtype(x))
    flat = low.reshape(low.b.where(mask, windows, nothing), (*cells, inner))
    values = low.b.max(flat, axes=(rank(flat) - 1,))
    if not low.uses_result(1):
        return values, None
    winner = low.b.argmax(flat, axis=rank(flat) - 1)
    longest = [cast(int, size.constant) for size in shape[lead + count :]]
    place: Value | None = None
    for number in range(count):
        within = low.b.trunc_divide(winner, low.number(math.prod(longest[number + 1 :]), i64))
        within = low.b.remainder(within, low.number(longest[number], i64))
        start = [taken[number][i] for i in range(0, len(taken[number]), longest[number])]
        starts = low.reshape(
            low.constant_i64(start), [as_dim(len(start) if i == number else 1) for i in range(count)]
        )
        along = low.b.mul(low.b.add(within, starts), low.number(math.prod(sizes[number + 1 :]), i64))
        place = along if place is None else low.b.add(place, along)
    return values, place
