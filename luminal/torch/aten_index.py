"""ATen ops that read or write at positions which are data: index, gather, scatter and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch.fx

from luminal.dim import Dim, as_dim, known_equal, known_less, product
from luminal.dtype import DType, bool_, i32, i64, u8
from luminal.torch.aten_reduce import norm
from luminal.torch.aten_view import slice_bounds
from luminal.torch.layout import Layout, layout_of
from luminal.torch.lowering import Lowering, Operand, Scalar, Value, dtype, lowers, rank, shape_of

Size = int | Dim
Indices = Sequence[Value | None]


def _positions(low: Lowering, indices: Indices) -> tuple[list[int], list[Value]]:
    """The indexed axes and their i64 indices; masks decide the shape of a result and are refused."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [cast(Value, indices[axis]) for axis in axes]
    if any(dtype(index) in (bool_, u8) for index in given):
        raise low.refuse("an index that is a mask")
    return axes, [low.cast(index, i64) for index in given]


@lowers("index", "_unsafe_index")
def index(low: Lowering, x: Value, indices: Indices) -> Value:
    axes, given = _positions(low, indices)
    return low.b.index(x, given, axes=axes) if axes else x


@lowers("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    low: Lowering, x: Value, indices: Indices, values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    given = [entry for entry in indices if entry is not None]
    if len(indices) == len(given) == 1 and dtype(given[0]) == bool_:
        return _masked_put(low, x, given[0], values, accumulate)
    axes, positions = _positions(low, indices)
    if not axes:
        value = low.broadcast(low.cast(values, dtype(x)), shape_of(x))
        return low.b.add(x, value) if accumulate else value
    return low.b.index_put(x, low.cast(values, dtype(x)), positions, axes=axes, accumulate=accumulate)


def _masked_put(low: Lowering, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """x[mask] = value, for a value that is one number or the same for every place."""
    trailing = rank(x) - rank(mask)
    if rank(values) > trailing and not known_equal(product(shape_of(values)), 1):
        raise low.refuse("a mask with one value for each place")
    value = low.cast(values, dtype(x))
    if rank(values) > trailing:
        value = low.reshape(value, ())
    mask = low.reshape(mask, (*shape_of(mask), *[as_dim(1)] * trailing))
    return low.b.where(mask, low.b.add(x, value) if accumulate else value, x)


@lowers("gather")
def gather(low: Lowering, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if rank(x) == 0 or rank(index) == 0:
        count = max(rank(x), rank(index), 1)
        data = low.reshape(x, shape_of(x) or (1,) * count)
        places = low.reshape(index, shape_of(index) or (1,) * count)
        return low.reshape(low.b.gather(data, low.cast(places, i64), axis=low.axis(dim, count)), low.shape)
    return low.b.gather(x, low.cast(index, i64), axis=low.axis(dim, rank(x)))


@lowers("index_select")
def index_select(low: Lowering, x: Value, dim: int, index: Value) -> Value:
    if rank(x) == 0:
        return low.reshape(low.b.index_select(low.reshape(x, (1,)), low.cast(index, i64), axis=0), ())
    return low.b.index_select(x, low.cast(index, i64), axis=low.axis(dim, rank(x)))


@lowers("embedding")
def embedding(
    low: Lowering, weight: Value, indices: Value, padding: int = -1, scale: bool = False, sparse: bool = False
) -> Value:
    return low.b.embedding(weight, low.cast(indices, i64))


# ---- scatter ---------------------------------------------------------------------------------------------------


@lowers("scatter.src", "scatter.value")
def scatter(low: Lowering, x: Value, dim: int, index: Value, source: Operand) -> Value:
    return scattered(low, x, dim, index, source, "set")


@lowers("scatter.reduce", "scatter.value_reduce")
def scatter_combined(
    low: Lowering, x: Value, dim: int, index: Value, source: Operand, *, reduce: str
) -> Value:
    return scattered(low, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


@lowers("scatter_add")
def scatter_add(low: Lowering, x: Value, dim: int, index: Value, source: Value) -> Value:
    return scattered(low, x, dim, index, source, "add")


def scattered(low: Lowering, x: Value, dim: int, index: Value, source: Operand, combine: str) -> Value:
    """hlo.scatter with PyTorch's liberties: numbers as source, rank 0, an index smaller than the source."""
    shape = shape_of(x)
    count = max(rank(x), rank(index), 1)
    data, places = (
        low.reshape(x, shape or (1,) * count),
        low.cast(low.reshape(index, shape_of(index) or (1,)), i64),
    )
    value = low.operand(source, dtype(x))
    value = low.broadcast(value, shape_of(places)) if rank(value) == 0 else value
    for axis, size in enumerate(shape_of(places)):
        value = low.slice(value, axis, 0, size)
    result = low.b.scatter(data, places, value, axis=low.axis(dim, count), combine=combine)
    return low.reshape(result, shape)


@lowers("scatter_reduce")
def scatter_reduce(
    low: Lowering, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    return _reduced(low, x, dim, index, source, reduce, include_self)


@lowers("index_reduce")
def index_reduce(
    low: Lowering, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    axis = low.axis(dim, rank(x))
    data = low.reshape(x, shape_of(x) or (1,))
    source = low.reshape(source, shape_of(source) or (1,))
    shape = [as_dim(1)] * rank(data)
    shape[axis] = shape_of(source)[axis]
    places = low.broadcast(low.reshape(index, shape), shape_of(source))
    return low.reshape(_reduced(low, data, axis, places, source, reduce, include_self), shape_of(x))


def _reduced(
    low: Lowering, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool
) -> Value:
    """The reductions of scatter_reduce; without `include_self`, places that are written start from the identity."""
    kind = dtype(x)
    combine = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    base = x
    if not include_self:
        touched = scattered(low, low.full(False, shape_of(x), bool_), dim, index, True, "set")
        base = low.b.where(touched, low.operand(_identity(combine, kind), kind), x)
    result = scattered(low, base, dim, index, source, combine)
    if reduce != "mean":
        return result
    counts = scattered(low, low.full(int(include_self), shape_of(x), i64), dim, index, 1, "add")
    counts = low.cast(low.b.maximum(counts, low.number(1, i64)), kind)
    return low.b.emit("div" if kind.is_float else "floor_divide", result, counts)


def _identity(combine: str, kind: DType) -> Scalar:
    if combine in ("add", "mul"):
        return 0 if combine == "add" else 1
    if kind.is_float:
        return -math.inf if combine == "max" else math.inf
    return kind.lowest if combine == "max" else kind.highest


@lowers("put")
def put(low: Lowering, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = low.reshape(x, (product(shape_of(x)),))
    value = low.reshape(source, shape_of(index))
    result = low.b.index_put(flat, value, [low.cast(index, i64)], axes=(0,), accumulate=accumulate)
    return low.reshape(result, shape_of(x))


@lowers("masked_scatter")
def masked_scatter(low: Lowering, x: Value, mask: Value, source: Value) -> Value:
    """The k-th place of the mask, in row-major order, takes the k-th element of the source."""
    x, count = low.broadcast(x, low.shape), product(low.shape)
    if known_equal(product(shape_of(source)), 0) or count == 0:
        return x
    flat_mask = low.reshape(low.broadcast(mask, low.shape), (count,))
    running = low.b.cumsum(low.cast(flat_mask, i64), axis=0)
    place = low.b.maximum(low.b.sub(running, low.number(1, i64)), low.number(0, i64))
    place = low.b.where(flat_mask, place, low.number(0, i64))
    values = low.b.index(low.reshape(source, (product(shape_of(source)),)), [place], axes=(0,))
    chosen = low.b.where(flat_mask, low.cast(values, dtype(x)), low.reshape(x, (count,)))
    return low.reshape(chosen, shape_of(x))


# ---- writes into a part ----------------------------------------------------------------------------------------


@lowers("slice_scatter")
def slice_scatter(
    low: Lowering, x: Value, source: Value, dim: int = 0, start: Size | None = None, end: Size | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    axis = low.axis(dim, rank(x))
    first, _ = slice_bounds(low, shape_of(x)[axis], start, end)
    places = low.positions(shape_of(source)[axis], 0, 1, first, step)
    return _put_along(low, x, axis, places, source)


@lowers("select_scatter")
def select_scatter(low: Lowering, x: Value, source: Value, dim: int, index: Size) -> Value:
    axis = low.axis(dim, rank(x))
    first = low.clamped(index, shape_of(x)[axis], as_dim(0))
    shape = shape_of(x)
    one = low.reshape(source, (*shape[:axis], as_dim(1), *shape[axis + 1 :]))
    return _put_along(low, x, axis, low.reshape(low.number(first, i64), (1,)), one)


def _put_along(low: Lowering, x: Value, axis: int, places: Value, source: Value) -> Value:
    """x with x[.., places, ..] = source: only the source's elements are written where x may be overwritten."""
    return low.b.index_put(x, low.cast(source, dtype(x)), [places], axes=(axis,), accumulate=False)


@lowers("diagonal_scatter")
def diagonal_scatter(
    low: Lowering, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    count = rank(x)
    row, column = low.axis(dim1, count), low.axis(dim2, count)
    order = [axis for axis in range(count) if axis not in (row, column)] + [row, column]
    along = shape_of(source)[-1]
    rows = low.positions(along, 0, 1, start=max(-offset, 0))
    columns = low.positions(along, 0, 1, start=max(offset, 0))
    moved = low.permute(x, order)
    written = low.b.index_put(
        moved, low.cast(source, dtype(x)), [rows, columns], axes=(count - 2, count - 1), accumulate=False
    )
    return low.permute(written, [order.index(axis) for axis in range(count)])


def _strided_positions(low: Lowering, size: Sequence[Size], stride: Sequence[Size], offset: Size) -> Value:
    shape = [as_dim(s) for s in size]
    places = low.full(as_dim(offset), shape, i64)
    for axis, step in enumerate(stride):
        along = low.b.mul(low.positions(shape[axis], axis, len(shape)), low.number(as_dim(step), i64))
        places = low.b.add(places, along)
    return places


def _stored(low: Lowering, x: Value, offset: Size | None) -> tuple[Layout, Value, Dim]:
    """How the first argument lies in memory, its elements in that order, and where there a view at `offset` begins.

    A view may reach what the tensor itself does not hold: only tensors that fill their memory have a lowering.
    """
    fake = cast(torch.fx.Node, low.node.args[0]).meta["val"]
    layout, begin = layout_of(fake, low.symbols), low.symbols.size(fake.storage_offset())
    first = as_dim(0) if offset is None else as_dim(offset) - begin
    if not layout.dense or layout.stored.elements != product(shape_of(x)) or known_less(first, 0):
        raise low.refuse("a view by strides of a tensor that does not fill its memory")
    return layout, low.reshape(layout.to_stored(low.b, x), (product(shape_of(x)),)), first


@lowers("as_strided", "as_strided_copy")
def as_strided(
    low: Lowering, x: Value, size: Sequence[Size], stride: Sequence[Size], offset: Size | None = None
) -> Value:
    _, flat, begin = _stored(low, x, offset)
    return low.b.index(flat, [_strided_positions(low, size, stride, begin)], axes=(0,))


@lowers("as_strided_scatter")
def as_strided_scatter(
    low: Lowering,
    x: Value,
    source: Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    offset: Size | None = None,
) -> Value:
    layout, flat, begin = _stored(low, x, offset)
    places = _strided_positions(low, size, stride, begin)
    flat = low.b.index_put(flat, low.cast(source, dtype(x)), [places], axes=(0,), accumulate=False)
    return layout.to_logical(low.b, low.reshape(flat, layout.stored.shape))


# ---- searching -------------------------------------------------------------------------------------------------


@lowers("searchsorted")
def searchsorted(
    low: Lowering, sequence: Value, values: Operand, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """How many elements of the sorted sequence stand before each value: a comparison with all of them, summed."""
    if sorter is not None:
        sequence = low.b.gather(sequence, low.cast(sorter, i64), axis=rank(sequence) - 1)
    kind = low.promoted(sequence, values)
    ordered, value = low.cast(sequence, kind), low.operand(values, kind)
    wide = low.reshape(value, (*shape_of(value), 1))
    if rank(ordered) > 1:
        ordered = low.reshape(ordered, (*shape_of(ordered)[:-1], 1, shape_of(ordered)[-1]))
    # not (element >= value): a NaN among the values stands behind everything, as in a binary search
    behind = low.b.emit("gt" if right or side == "right" else "ge", ordered, wide)
    before = low.cast(low.b.logical_not(behind), i64)
    return low.cast(low.b.sum(before, axes=(rank(before) - 1,)), i32 if out_int32 else i64)


@lowers("bucketize")
def bucketize(
    low: Lowering, values: Operand, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    return searchsorted(low, boundaries, values, out_int32=out_int32, right=right)


@lowers("histc")
def histc(low: Lowering, x: Value, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Value:
    """Counts in equal bins between fixed edges; what lies outside, and NaN, counts nowhere."""
    kind, first, last = dtype(x), low.plain_number(min), low.plain_number(max)
    if not first < last or not kind.is_float:
        raise low.refuse("edges that depend on the data")
    flat = low.reshape(x, (product(shape_of(x)),))
    left, right = low.number(first, kind), low.number(last, kind)
    inside = low.b.logical_and(low.b.ge(flat, left), low.b.le(flat, right))
    scaled = low.b.div(low.b.mul(low.b.sub(flat, left), low.number(bins, kind)), low.b.sub(right, left))
    place = low.cast(low.b.where(inside, scaled, low.number(0, kind)), i64)
    place = low.b.minimum(place, low.number(low.symbols.fixed(bins) - 1, i64))
    counts = low.full(0, (as_dim(bins),), kind)
    return low.b.index_put(counts, low.cast(inside, kind), [place], axes=(0,), accumulate=True)


@lowers("_cdist_forward")
def cdist(low: Lowering, x: Value, y: Value, p: float, mode: Any = None) -> Value:
    a = low.reshape(x, (*shape_of(x)[:-1], 1, shape_of(x)[-1]))
    b = low.reshape(y, (*shape_of(y)[:-2], 1, *shape_of(y)[-2:]))
    difference = low.b.sub(a, b)
    return norm(low, difference, p, (rank(difference) - 1,))


@lowers("_pdist_forward")
def pdist(low: Lowering, x: Value, p: float = 2) -> Value:
    count = shape_of(x)[0].constant
    if count is None:
        raise low.refuse("pairs of a symbolic number of rows")
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    if not pairs:
        return low.full(0, low.shape, low.dtype)
    first, second = (low.constant_i64([pair[side] for pair in pairs]) for side in (0, 1))
    rows = [low.b.index_select(x, places, axis=0) for places in (first, second)]
    return norm(low, low.b.sub(*rows), p, (1,))
