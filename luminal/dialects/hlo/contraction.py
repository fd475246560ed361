"""Contractions: matrix product, convolution, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.elementwise import Array, of_doubles
from luminal.dialects.hlo.expression import Expression
from luminal.dialects.hlo.movement import window_count
from luminal.dialects.hlo.shapes import check_class, check_same_shape, common_dtype, tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, DimLike, known_equal
from luminal.dtype import bool_
from luminal.errors import DTypeError, OptionError, ShapeError

# ---- matrix product --------------------------------------------------------------------------------------------


def _infer_matmul(a: TensorType, b: TensorType) -> TensorType:
    """As torch.matmul: vectors are rows on the left and columns on the right, leading axes broadcast."""
    dtype = common_dtype((a, b))
    check_class(dtype, "number")
    if not a.shape or not b.shape:
        raise ShapeError(f"{text(a.shape)} and {text(b.shape)}: a tensor of rank 0 has no matrix product")
    inner = b.shape[-min(len(b.shape), 2)]
    if not known_equal(a.shape[-1], inner):
        raise ShapeError(f"{text(a.shape)} and {text(b.shape)}: {a.shape[-1]} columns meet {inner} rows")
    batch = shapes.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tensor((*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ())), dtype)


def _matmul(a: Expression, b: Expression) -> Expression:
    rows = a.insert_axes([0]) if a.rank == 1 else a
    columns = b.insert_axes([1]) if b.rank == 1 else b
    columns = columns.move_axis(columns.rank - 1, columns.rank - 2)
    batch = shapes.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows, columns = rows.insert_axes([rows.rank - 1]), columns.insert_axes([columns.rank - 2])
    space = (*batch, rows.shape[-3], columns.shape[-2], rows.shape[-1])
    total = (rows.expand(space) * columns.expand(space)).sum([len(space) - 1])
    kept = (*a.shape[-2:-1], *(b.shape[-1:] if b.rank > 1 else ()))
    return total.reshape((*batch, *kept))


define("matmul", "a b", _infer_matmul, _matmul, of_doubles(np.matmul), wide=True)

# ---- convolution -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """The attributes of a convolution: one entry for each spatial axis."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    transposed: bool
    output_padding: Sequence[int] | None

    def axes(self, extents: Sequence[Any]) -> list[tuple[int, int, int, int, int]]:
        """(extent, stride, padding, reach of the window beyond its first element, extra output) of each axis."""
        reach = [d * (k - 1) for d, k in zip(self.dilation, extents)]
        extra = self.output_padding or (0,) * len(extents)
        return list(zip(extents, self.stride, self.padding, reach, extra, strict=True))


def _infer_conv(x: TensorType, weight: TensorType, bias: TensorType | None, **options: Any) -> TensorType:
    """x [n, c, *sizes], weight [o, c/groups, *extents] (transposed: [c, o/groups, *extents]), bias [o]."""
    windows = Windows(**options)
    dtype = common_dtype([t for t in (x, weight, bias) if t is not None])
    check_class(dtype, "number")
    rank, groups = len(x.shape) - 2, windows.groups
    if rank < 1 or len(weight.shape) != rank + 2:
        raise ShapeError(f"input {text(x.shape)} and weight {text(weight.shape)} need one rank of at least 3")
    for values in (windows.stride, windows.padding, windows.dilation, windows.output_padding or (0,) * rank):
        if len(values) != rank:
            raise OptionError(f"{tuple(values)} needs one entry for each of {rank} spatial axes")
    extents = [size.constant or 0 for size in weight.shape[2:]]
    if 0 in extents or groups < 1:
        raise ShapeError(
            f"weight {text(weight.shape)}, {groups} groups: expected constant extents, groups > 0"
        )
    inner, outer = weight.shape[1] * groups, weight.shape[0]
    if windows.transposed:
        inner, outer = outer, inner
    if not known_equal(x.shape[1], inner):
        raise ShapeError(
            f"input {text(x.shape)}: {x.shape[1]} channels, weight {text(weight.shape)} takes {inner}"
        )
    if not known_equal(weight.shape[0] % groups, 0):
        raise ShapeError(f"{weight.shape[0]} channels do not divide into {groups} groups")
    if bias is not None:
        check_same_shape(bias.shape, (outer,), "the bias")
    sizes: list[Dim] = []
    for size, (extent, stride, padding, reach, extra), apart in zip(
        x.shape[2:], windows.axes(extents), windows.dilation
    ):
        if windows.transposed:
            sizes.append((size - 1) * stride - 2 * padding + reach + extra + 1)
        else:
            sizes.append(window_count(size + 2 * padding, extent, stride, apart))
    return tensor((x.shape[0], outer, *sizes), dtype)


def _spread(x: Expression, axis: int, stride: int) -> Expression:
    """With stride - 1 zeros between the elements along an axis."""
    if stride == 1:
        return x
    high: list[DimLike] = [0] * (x.rank + 1)
    high[axis + 1] = stride - 1
    spaced = x.insert_axes([axis + 1]).pad([0] * (x.rank + 1), high, 0)
    shape = (*x.shape[:axis], x.shape[axis] * stride, *x.shape[axis + 1 :])
    return spaced.reshape(shape).narrow(axis, 0, (x.shape[axis] - 1) * stride + 1)


def _pad_or_crop(x: Expression, axis: int, low: int, high: int) -> Expression:
    below, above = [0] * x.rank, [0] * x.rank
    below[axis], above[axis] = max(low, 0), max(high, 0)
    padded = x.pad(below, above, 0)
    start, end = max(-low, 0), max(-high, 0)
    return padded.narrow(axis, start, padded.shape[axis] - start - end)


def _conv(x: Expression, weight: Expression, bias: Expression | None, **options: Any) -> Expression:
    """Windows of the padded input times the weight, summed over channels and the window. A transposed one is that of
    the input spread by the stride, with the weight turned round."""
    windows = Windows(**options)
    rank, groups = x.rank - 2, windows.groups
    kernel = weight.reshape((groups, weight.shape[0] // groups, *weight.shape[1:]))
    axes = windows.axes([int(size) for size in weight.shape[2:]])
    for axis, (extent, stride, padding, reach, extra) in enumerate(axes, 2):
        low = high = padding
        if windows.transposed:
            x, stride, low, high = _spread(x, axis, stride), 1, reach - padding, reach - padding + extra
        x = _pad_or_crop(x, axis, low, high).window(axis, extent, stride, windows.dilation[axis - 2])
    if windows.transposed:
        kernel = kernel.move_axis(2, 1).flip(range(3, rank + 3))
    sizes = x.shape[2 : rank + 2]
    x = x.reshape((x.shape[0], groups, 1, x.shape[1] // groups, *x.shape[2:]))
    space = (x.shape[0], groups, kernel.shape[1], *x.shape[3:])
    kernel = kernel.reshape((groups, *kernel.shape[1:3], *[1] * rank, *kernel.shape[3:]))
    total = (x.expand(space) * kernel.expand(space)).sum([3, *range(4 + rank, 4 + 2 * rank)])
    result = total.reshape((total.shape[0], kernel.shape[1] * groups, *sizes))
    if bias is None:
        return result
    return result + bias.reshape((bias.shape[0], *[1] * rank)).expand(result.shape)


def _conv_array(x: Array, weight: Array, bias: Array | None, **options: Any) -> Array:
    """One matrix product for each offset within the window: from (transposed: to) a strided part of a wide tensor."""
    windows = Windows(**options)
    groups = windows.groups
    rank, kernel = x.ndim - 2, weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    axes = windows.axes(weight.shape[2:])
    if windows.transposed:
        counts, channels = x.shape[2:], weight.shape[1]
        sizes = [(n - 1) * s + reach + 1 + e for n, (_, s, _, reach, e) in zip(counts, axes)]
    else:
        grouped = np.pad(grouped, [(0, 0)] * 3 + [(p, p) for p in windows.padding])
        sizes = [(n - reach - 1) // s + 1 for n, (_, s, _, reach, _) in zip(grouped.shape[3:], axes)]
        counts, channels = sizes, kernel.shape[1]
    total = np.zeros((x.shape[0], groups, channels, *sizes))
    for offset in np.ndindex(*weight.shape[2:]):
        starts = [o * d for o, d in zip(offset, windows.dilation)]
        part = (..., *[slice(o, o + n * s, s) for o, n, s in zip(starts, counts, windows.stride)])
        matrix = kernel[(..., *offset)]
        if windows.transposed:
            total[part] += np.einsum("ngc...,gco->ngo...", grouped, matrix)
        else:
            total += np.einsum("ngc...,goc->ngo...", grouped[part], matrix)
    if windows.transposed:
        total = total[(..., *[slice(p, size - p) for p, size in zip(windows.padding, sizes)])]
    result = total.reshape(x.shape[0], channels * groups, *total.shape[3:])
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


CONV = "stride:ints padding:ints dilation:ints groups:int=1 transposed:bool=False output_padding:ints?"
define("conv", f"x weight bias? | {CONV}", _infer_conv, _conv, of_doubles(_conv_array), wide=True)

# ---- attention -------------------------------------------------------------------------------------------------


def _infer_attention(
    q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None, *, causal: bool, scale: float | None
) -> TensorType:
    """q [.., h, t, d], k [.., g, s, d], v [.., g, s, e], h a multiple of g; mask broadcasts to [.., h, t, s]."""
    dtype = common_dtype((q, k, v))
    check_class(dtype, "float")
    rank = len(q.shape)
    if rank < 2 or len(k.shape) != rank or len(v.shape) != rank:
        given = ", ".join(text(t.shape) for t in (q, k, v))
        raise ShapeError(f"query, key and value {given} need one rank of at least 2")
    lead = max(rank - 3, 0)
    check_same_shape(k.shape, (*q.shape[:lead], *k.shape[lead:-1], q.shape[-1]), "the key")
    check_same_shape(v.shape, (*k.shape[:-1], v.shape[-1]), "the value")
    if rank > 2 and q.shape[-3] != k.shape[-3] and not known_equal(q.shape[-3] % k.shape[-3], 0):
        raise ShapeError(f"{q.shape[-3]} query heads are no multiple of {k.shape[-3]} key heads")
    if mask is not None:
        if mask.dtype not in (bool_, dtype):
            raise DTypeError(f"the mask has dtype {mask.dtype}, expected bool or {dtype}")
        scores = (*q.shape[:-1], k.shape[-2])
        check_same_shape(shapes.broadcast_shapes(scores, mask.shape), scores, "the mask with the scores")
    return tensor((*q.shape[:-1], v.shape[-1]), dtype)


def _share_heads(x: Expression, heads: Dim) -> Expression:
    """Key or value heads repeated for the query heads that share them."""
    if x.rank < 3 or x.shape[-3] == heads:
        return x
    wide = x.insert_axes([x.rank - 2])
    repeats = heads // x.shape[-3]
    shape = (*wide.shape[:-3], repeats, *wide.shape[-2:])
    return wide.expand(shape).reshape((*x.shape[:-3], heads, *x.shape[-2:]))


def _attention(
    q: Expression, k: Expression, v: Expression, mask: Expression | None, causal: bool, scale: float | None
) -> Expression:
    """softmax(q k^T scale + mask) v, and 0 for a row without any key that counts, as PyTorch's fused kernels give.

    Both products are of numbers of the operands' dtype: of narrow floats, the weights are rounded before the second.
    """
    dtype, wide = q.dtype, q.dtype.accumulate
    q, k, v = (x.cast(wide) for x in (q, k, v))
    if q.rank > 2:
        k, v = _share_heads(k, q.shape[-3]), _share_heads(v, q.shape[-3])
    scores = _matmul(q, k.move_axis(k.rank - 1, k.rank - 2))
    scores = scores * _scale(q, scores, scale)
    if mask is not None:
        given = mask.expand(scores.shape)
        given = given if mask.dtype.is_bool else given.cast(wide)
        # a bool mask is added as 0 or -inf, as PyTorch does: a NaN among masked scores stays
        scores = scores + (given.select(scores.like(0.0), -math.inf) if mask.dtype.is_bool else given)
    last = scores.rank - 1
    if causal:
        emitter = scores.emitter
        row, column = (emitter.positions_along(scores.shape, axis) for axis in (last - 1, last))
        scores = column.le(row).select(scores, -math.inf)
    top = scores.max([last], True)
    weights = (scores - top.expand(scores.shape)).exp()
    result = _matmul(weights.cast(dtype).cast(wide), v)
    total = weights.sum([last], True)
    empty = top.eq(-math.inf).expand(result.shape)
    return empty.select(0.0, result / total.expand(result.shape)).cast(dtype)


def _scale(q: Expression, scores: Expression, scale: float | None) -> Expression | float:
    if scale is not None or q.shape[-1].constant is not None:
        return 1 / math.sqrt(max(int(q.shape[-1]), 1)) if scale is None else scale
    return (1.0 / q.emitter.size(q.shape[-1]).cast(q.dtype).sqrt()).expand(scores.shape)


def _attention_array(
    q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float | None
) -> Array:
    if q.ndim > 2 and k.shape[-3] != q.shape[-3]:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    if mask is not None:
        scores = scores + (np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - top)
    return np.where(top == -np.inf, 0, weights @ v / weights.sum(-1, keepdims=True))


define(
    "attention",
    "q k v mask? | causal:bool=False scale:float?",
    _infer_attention,
    _attention,
    of_doubles(_attention_array),
)
