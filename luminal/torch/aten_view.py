"""ATen ops that move or make elements without computing: views, joins, splits, copies and creation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from luminal import promotion
from luminal.dim import Dim, as_dim, dim_max, dim_min, known_less_equal, product
from luminal.dtype import f64, i64
from luminal.torch.lowering import Lowering, Operand, Scalar, Shape, Value, lowers, rank, shape_of

Size = int | Dim


@lowers("alias", "detach", "lift_fresh_copy", "lift", "clone", "alias_copy", "contiguous", "_conj", "_neg_view",
        "resolve_conj", "resolve_neg", "conj_physical", "positive")  # fmt: skip
def identity(low: Lowering, x: Value, **_: Any) -> Value:
    return x


@lowers("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy", "unsqueeze", "squeeze", "flatten",
        "unflatten", "unsqueeze_copy", "squeeze_copy")  # fmt: skip
def reshaped(low: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return low.reshape(x, low.shape)


@lowers("permute", "permute_copy")
def permute(low: Lowering, x: Value, order: Sequence[int]) -> Value:
    return low.permute(x, [low.axis(axis, rank(x)) for axis in order])


@lowers("t", "t_copy")
def matrix_transpose(low: Lowering, x: Value) -> Value:
    return low.permute(x, (1, 0)) if rank(x) == 2 else x


@lowers("transpose", "transpose_copy")
def transpose(low: Lowering, x: Value, first: int, second: int) -> Value:
    order = list(range(rank(x)))
    a, b = low.axis(first, rank(x)), low.axis(second, rank(x))
    if order:
        order[a], order[b] = order[b], order[a]
    return low.permute(x, order)


@lowers("expand", "expand_copy")
def expand(low: Lowering, x: Value, size: Sequence[Size], implicit: bool = False) -> Value:
    return low.broadcast(x, low.shape)


@lowers("slice", "slice_copy")
def slice_(
    low: Lowering, x: Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Value:
    axis = low.axis(dim, rank(x))
    first, last = slice_bounds(low, shape_of(x)[axis], start, end)
    return low.slice(x, axis, first, last, low.symbols.fixed(step))


def slice_bounds(low: Lowering, size: Dim, start: Size | None, end: Size | None) -> tuple[Dim, Dim]:
    """Both ends of a Python slice within 0 .. size, the second not before the first."""
    first = low.clamped(start, size, as_dim(0))
    last = low.clamped(end, size, size)
    return first, last if low.symbols.known_less_equal(first, last) else dim_max(first, last)


@lowers("narrow", "narrow_copy")
def narrow(low: Lowering, x: Value, dim: int, start: Size, length: Size) -> Value:
    axis = low.axis(dim, rank(x))
    first = low.clamped(start, shape_of(x)[axis], as_dim(0))
    return low.slice(x, axis, first, first + length)


@lowers("select", "select_copy")
def select(low: Lowering, x: Value, dim: int, index: Size) -> Value:
    axis = low.axis(dim, rank(x))
    first = low.clamped(index, shape_of(x)[axis], as_dim(0))
    return low.reshape(low.slice(x, axis, first, first + 1), low.shape)


@lowers("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes")
def split_with_sizes(low: Lowering, x: Value, sizes: Sequence[Size], dim: int = 0) -> tuple[Value, ...]:
    axis, position, parts = low.axis(dim, rank(x)), as_dim(0), list[Value]()
    for size in sizes:
        parts.append(low.slice(x, axis, position, position + size))
        position = position + size
    return tuple(parts)


@lowers("split", "unsafe_split", "split_copy", "chunk")
def split(low: Lowering, x: Value, size: Size, dim: int = 0) -> tuple[Value, ...]:
    axis = low.axis(dim, rank(x))
    return split_with_sizes(low, x, [low.type(i).shape[axis] for i in range(len(low.fake))], axis)


@lowers("unbind", "unbind_copy")
def unbind(low: Lowering, x: Value, dim: int = 0) -> tuple[Value, ...]:
    axis = low.axis(dim, rank(x))
    return tuple(low.reshape(low.slice(x, axis, i, i + 1), low.type(i).shape) for i in range(len(low.fake)))


@lowers("cat", "concat", "concatenate")
def cat(low: Lowering, xs: Sequence[Value], dim: int = 0) -> Value:
    """Tensors of shape (0,) are left out, as PyTorch does for the sake of old programs."""
    parts = [x for x in xs if not (rank(x) == 1 and shape_of(x)[0] == 0 and len(low.shape) != 1)]
    if not parts:
        return low.full(0, low.shape, low.dtype)
    axis = low.axis(dim, len(low.shape))
    rest = {other: size for other, size in enumerate(low.shape) if other != axis}
    values = [low.with_sizes(low.cast(x, low.dtype), rest) for x in parts]
    return values[0] if len(values) == 1 else low.b.cat(values, axis=axis)


@lowers("stack")
def stack(low: Lowering, xs: Sequence[Value], dim: int = 0) -> Value:
    return low.b.stack([low.cast(x, low.dtype) for x in xs], axis=low.axis(dim, len(low.shape)))


@lowers("repeat")
def repeat(low: Lowering, x: Value, repeats: Sequence[Size]) -> Value:
    count = len(repeats)
    sizes: Shape = (*(as_dim(1),) * (count - rank(x)), *shape_of(x))
    interleaved = [size for r, s in zip(repeats, sizes, strict=True) for size in (as_dim(r), s)]
    parts = low.reshape(x, [size for s in sizes for size in (as_dim(1), s)])
    return low.reshape(low.broadcast(parts, interleaved), low.shape)


@lowers("flip")
def flip(low: Lowering, x: Value, dims: Sequence[int]) -> Value:
    axes = tuple(sorted(low.axis(axis, rank(x)) for axis in dims))
    return low.b.flip(x, axes=axes) if axes and rank(x) else x


@lowers("roll")
def roll(low: Lowering, x: Value, shifts: Size | Sequence[Size], dims: int | Sequence[int] = ()) -> Value:
    moves = [shifts] if isinstance(shifts, (int, Dim)) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        flat = _rolled(low, low.reshape(x, (product(shape_of(x)),)), 0, moves[0])
        return low.reshape(flat, shape_of(x))
    for move, axis in zip(moves, axes, strict=True):
        x = _rolled(low, x, low.axis(axis, rank(x)), move)
    return x


def _rolled(low: Lowering, x: Value, axis: int, shift: Size) -> Value:
    if rank(x) == 0 or shape_of(x)[axis] == 0:
        return x
    size = shape_of(x)[axis]
    first = (-as_dim(shift)) % dim_max(size, as_dim(1))
    if first == 0:
        return x
    return low.b.cat([low.slice(x, axis, first, size), low.slice(x, axis, 0, first)], axis=axis)


@lowers("unfold", "unfold_copy")
def unfold(low: Lowering, x: Value, dim: int, size: int, step: int) -> Value:
    if rank(x) == 0:
        return low.reshape(x, low.shape) if size else low.full(0, low.shape, low.dtype)
    fixed = low.symbols.fixed
    return low.b.window(x, axis=low.axis(dim, rank(x)), size=fixed(size), step=fixed(step))


@lowers("diagonal", "diagonal_copy")
def diagonal(low: Lowering, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal as one gather with two positions that move together."""
    count = rank(x)
    row, column = low.axis(dim1, count), low.axis(dim2, count)
    order = [axis for axis in range(count) if axis not in (row, column)] + [row, column]
    moved = low.permute(x, order)
    along = (low.shape[-1],)
    rows = low.positions(along[0], 0, 1, start=max(-offset, 0))
    columns = low.positions(along[0], 0, 1, start=max(offset, 0))
    return low.b.index(moved, [rows, columns], axes=(count - 2, count - 1))


@lowers("constant_pad_nd")
def constant_pad(low: Lowering, x: Value, pad: Sequence[Size], value: Scalar = 0) -> Value:
    """Pairs (before, after) from the last axis on; negative amounts cut."""
    low_side, high_side = [as_dim(0)] * rank(x), [as_dim(0)] * rank(x)
    for number in range(len(pad) // 2):
        axis = rank(x) - 1 - number
        before, after = as_dim(pad[2 * number]), as_dim(pad[2 * number + 1])
        size = shape_of(x)[axis]
        start, stop = as_dim(0), size
        if not low.symbols.decide_less_equal(as_dim(0), before):
            start, before = -before, as_dim(0)
        if not low.symbols.decide_less_equal(as_dim(0), after):
            stop, after = size + after, as_dim(0)
        x = low.slice(x, axis, start, stop)
        low_side[axis], high_side[axis] = before, after
    fill = promotion.wrap_number(cast(float, value), low.dtype)
    return low.b.pad(x, low=low_side, high=high_side, value=fill)


@lowers("slice_backward")
def slice_backward(
    low: Lowering, grad: Value, sizes: Sequence[Size], dim: int, start: Size, end: Size, step: int
) -> Value:
    axis = low.axis(dim, len(sizes))
    size = as_dim(sizes[axis])
    first, _ = slice_bounds(low, size, start, end)
    return spread(low, grad, axis, size, first, low.symbols.fixed(step))


def spread(low: Lowering, x: Value, axis: int, size: Dim, start: Dim, step: int) -> Value:
    """A tensor of zeros whose elements start, start + step, ... along the axis are those of x."""
    count, shape = shape_of(x)[axis], shape_of(x)
    zeros = [as_dim(0)] * (rank(x) + 1)
    if step > 1:
        wide = low.reshape(x, (*shape[: axis + 1], as_dim(1), *shape[axis + 1 :]))
        high = [as_dim(step - 1) if i == axis + 1 else as_dim(0) for i in range(rank(x) + 1)]
        wide = low.b.pad(wide, low=zeros, high=high, value=0)
        x = low.reshape(wide, (*shape[:axis], count * step, *shape[axis + 1 :]))
        reach = size - start
        count = count * step
        if not known_less_equal(count, reach):
            x = low.slice(x, axis, 0, dim_min(count, reach))
            count = dim_min(count, reach)
    before = [start if i == axis else as_dim(0) for i in range(rank(x))]
    after = [size - start - count if i == axis else as_dim(0) for i in range(rank(x))]
    return low.b.pad(x, low=before, high=after, value=0)


@lowers("select_backward")
def select_backward(low: Lowering, grad: Value, sizes: Sequence[Size], dim: int, index: Size) -> Value:
    axis = low.axis(dim, len(sizes))
    shape = low.shape
    first = low.clamped(index, shape[axis], as_dim(0))
    one = low.reshape(grad, (*shape[:axis], as_dim(1), *shape[axis + 1 :]))
    return spread(low, one, axis, shape[axis], first, 1)


# ---- creation --------------------------------------------------------------------------------------------------


@lowers("full", "full_like", "new_full")
def full(low: Lowering, *arguments: Any, **_: Any) -> Value:
    return low.full(cast(Scalar, arguments[-1]), low.shape, low.dtype)


@lowers("fill", "copy")
def fill(low: Lowering, x: Value, value: Operand, non_blocking: bool = False) -> Value:
    return low.broadcast(low.operand(value, low.dtype), low.shape)


@lowers("scalar_tensor")
def scalar_tensor(low: Lowering, value: Scalar, **_: Any) -> Value:
    return low.number(value, low.dtype)


@lowers("empty", "empty_permuted", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "zeros",
        "zeros_like", "new_zeros")  # fmt: skip
def zeros(low: Lowering, *_: Any, **__: Any) -> Value:
    """Memory without values is zeroed: nobody can tell, and the result is the same at every run."""
    return low.full(0, low.shape, low.dtype)


@lowers("ones", "ones_like", "new_ones")
def ones(low: Lowering, *_: Any, **__: Any) -> Value:
    return low.full(1, low.shape, low.dtype)


@lowers("arange.start_step")
def arange(low: Lowering, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> Value:
    """start + position * step; for floats PyTorch computes that in f64 and rounds."""
    kind = i64 if all(isinstance(v, (int, Dim)) for v in (start, end, step)) else f64
    steps = low.iota(low.shape, 0, kind)
    if step != 1:
        steps = low.b.mul(steps, low.number(step, kind))
    if start != 0:
        steps = low.b.add(steps, low.number(start, kind))
    return low.cast(steps, low.dtype)


@lowers("iota")
def iota(low: Lowering, length: Size, start: Size = 0, step: Size = 1, **_: Any) -> Value:
    return arange(low, start, 0, step)


@lowers("eye")
def eye(low: Lowering, *_: Any, **__: Any) -> Value:
    rows, columns = low.iota(low.shape, 0), low.iota(low.shape, 1)
    return low.cast(low.b.eq(rows, columns), low.dtype)


@lowers("tril_indices", "triu_indices")
def triangle_indices(low: Lowering, *arguments: Any, **keywords: Any) -> Value:
    """Known integers, written into the graph."""
    target = cast(Any, low.node.target)
    known = target(*arguments, **{**keywords, "dtype": torch.int64, "device": "cpu", "pin_memory": False})
    return low.cast(low.reshape(low.constant_i64(known.flatten().tolist()), low.shape), low.dtype)


@lowers("_local_scalar_dense")
def local_scalar(low: Lowering, x: Value) -> Value:
    raise low.refuse("its result decides what is computed")


@lowers("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")
def symbolic(low: Lowering, *_: Any) -> Any:
    return low.symbols.size(low.fake)
