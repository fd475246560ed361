"""Rows that read or write at positions given by tensors, and opaque calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.elementwise import Array
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.shapes import check_same_shape, common_dtype, tensor, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, known_less
from luminal.dtype import cast_array, dtype_of, i64
from luminal.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError, UnsupportedOpError

COMBINE = ("set", "add", "mul", "max", "min")

# ---- inference -------------------------------------------------------------------------------------------------


def _check_index(*indices: TensorType) -> None:
    for index in indices:
        if index.dtype != i64:
            raise DTypeError(f"an index has dtype {index.dtype}, expected i64")


def _check_covered(index: TensorType, x: TensorType, axis: int | None) -> None:
    if len(index.shape) != len(x.shape):
        raise ShapeError(f"index {text(index.shape)} and tensor {text(x.shape)} differ in rank")
    if any(size == 0 for size in index.shape):
        return  # an index of no positions fits every tensor, as in PyTorch
    for i, (size, limit) in enumerate(zip(index.shape, x.shape)):
        if i != axis and known_less(limit, size):
            raise ShapeError(f"index {text(index.shape)} is larger than {text(x.shape)} along axis {i}")


def _infer_gather(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    """As torch.gather: the sizes of `index` are at most those of `x`, but along the axis."""
    _check_index(index)
    shapes.check_axis(axis, len(x.shape))
    _check_covered(index, x, axis)
    return tensor(index.shape, x.dtype)


def _infer_scatter(
    x: TensorType, index: TensorType, value: TensorType, *, axis: int, combine: str
) -> TensorType:
    """As torch.scatter, and scatter_reduce with include_self=True."""
    common_dtype((x, value))
    if combine not in COMBINE:
        raise OptionError(f"combine is {combine!r}, expected {', '.join(COMBINE)}")
    _infer_gather(x, index, axis=axis)
    _check_covered(index, value, None)
    return x


def _infer_index_select(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    _check_index(index)
    shapes.check_axis(axis, len(x.shape))
    if len(index.shape) > 1:
        raise ShapeError(f"the index has shape {text(index.shape)}, expected rank 0 or 1")
    return tensor((*x.shape[:axis], *(index.shape or (as_dim(1),)), *x.shape[axis + 1 :]), x.dtype)


def _infer_embedding(weight: TensorType, index: TensorType) -> TensorType:
    _check_index(index)
    if len(weight.shape) != 2:
        raise ShapeError(f"the weight has shape {text(weight.shape)}, expected rank 2")
    return tensor((*index.shape, weight.shape[1]), weight.dtype)


def index_place(axes: Sequence[int]) -> int:
    """Where torch puts the broadcast index axes of x[.., index, ..]: at the first indexed axis if the indexed ones
    are neighbours, else in front."""
    return axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0


def _infer_index(x: TensorType, indices: Sequence[TensorType], *, axes: Sequence[int]) -> TensorType:
    """x[.., index, ..] with an i64 index for each of the rising `axes`; negative positions count from the end."""
    if not indices or len(indices) != len(axes) or sorted(axes) != list(axes):
        raise OptionError(
            f"{len(indices)} indices for axes {tuple(axes)}: expected one for each of rising axes"
        )
    shapes.check_axes(axes, len(x.shape))
    _check_index(*indices)
    place = index_place(axes)
    sizes = [size for axis, size in enumerate(x.shape) if axis not in axes]
    sizes[place:place] = shapes.broadcast_shapes(*(index.shape for index in indices))
    return tensor(sizes, x.dtype)


def _infer_index_put(
    x: TensorType, value: TensorType, indices: Sequence[TensorType], *, axes: Sequence[int], accumulate: bool
) -> TensorType:
    """x after x[.., index, ..] = value (or +=); value broadcasts to the indexed part."""
    common_dtype((x, value))
    target = _infer_index(x, indices, axes=axes).shape
    check_same_shape(shapes.broadcast_shapes(target, value.shape), target, "the value with the indexed part")
    return x


def _infer_extern(
    operands: Sequence[TensorType], *, target: str, payload: str, types: Sequence[Any]
) -> list[TensorType]:
    return [tensor(shape, dtype) for dtype, *shape in types]


# ---- in primitives ---------------------------------------------------------------------------------------------


def _positions(shape: Sequence[Dim], axis: int, index: Expression) -> list[Expression]:
    """The position along each axis of a result, and the index instead along `axis`."""
    emitter = index.emitter
    return [index if i == axis else emitter.positions_along(shape, i) for i in range(len(shape))]


def _gather(x: Expression, index: Expression, axis: int) -> Expression:
    return x.gather(_positions(index.shape, axis, index))


def _scatter(x: Expression, index: Expression, value: Expression, axis: int, combine: str) -> Expression:
    if any(size == 0 for size in index.shape):
        return x
    part = value.slice([0] * value.rank, index.shape)
    if x.dtype.is_bool:
        combine = {"add": "max", "mul": "min"}.get(combine, combine)
    return x.scatter(part, _positions(index.shape, axis, index), combine)


def _index_select(x: Expression, index: Expression, axis: int) -> Expression:
    along = index.reshape(index.shape or (1,))
    shape = (*x.shape[:axis], *along.shape, *x.shape[axis + 1 :])
    spread = along.reshape((*along.shape, *[1] * (x.rank - 1 - axis))).expand(shape)
    return x.gather(_positions(shape, axis, spread))


def _embedding(weight: Expression, index: Expression) -> Expression:
    shape = (*index.shape, weight.shape[1])
    rows = index.insert_axes([index.rank]).expand(shape)
    return weight.gather([rows, weight.emitter.positions_along(shape, index.rank)])


def _index_positions(x: Expression, indices: Sequence[Expression], axes: Sequence[int]) -> list[Expression]:
    """For each axis of x the position that an element of x[.., index, ..] has there."""
    shape = _infer_index(x.type, [index.type for index in indices], axes=axes).shape
    place = index_place(axes)
    wide = shapes.broadcast_shapes(*(index.shape for index in indices))
    rest = [i for i in range(len(shape)) if not place <= i < place + len(wide)]
    positions: list[Expression] = []
    for axis, size in enumerate(x.shape):
        if axis not in axes:
            kept = axis - sum(indexed < axis for indexed in axes)
            positions.append(x.emitter.positions_along(shape, rest[kept]))
            continue
        index = indices[list(axes).index(axis)].expand(wide)
        wrapped = index.lt(0).select(index + x.emitter.size(size, wide), index)
        after = len(shape) - place - len(wide)
        positions.append(wrapped.reshape((*wide, *[1] * after)).expand(shape))
    return positions


def _index(x: Expression, indices: Sequence[Expression], axes: Sequence[int]) -> Expression:
    return x.gather(_index_positions(x, indices, axes))


def _index_put(
    x: Expression, value: Expression, indices: Sequence[Expression], axes: Sequence[int], accumulate: bool
) -> Expression:
    positions = _index_positions(x, indices, axes)
    add = "max" if x.dtype.is_bool else "add"
    return x.scatter(value.expand(positions[0].shape), positions, add if accumulate else "set")


def _extern(
    emitter: Emitter, operands: Sequence[Expression], target: str, payload: str, types: Sequence[Any]
) -> list[Expression]:
    results = _infer_extern([x.type for x in operands], target=target, payload=payload, types=types)
    values = emitter.extern([x.value for x in operands], results, target, payload)
    return [emitter.wrap(value) for value in values]


# ---- in NumPy --------------------------------------------------------------------------------------------------


def _checked(index: Array, size: int, axis: int, wrap: bool) -> Array:
    """The index, negative positions wrapped if `wrap`; IndexOutOfRangeError outside the axis."""
    positions = np.where(index < 0, index + size, index) if wrap else index
    outside = (positions < 0) | (positions >= size)
    if outside.any():
        raise IndexOutOfRangeError(f"index {index[outside].flat[0]} is outside axis {axis} of size {size}")
    return positions


def _gather_array(x: Array, index: Array, axis: int) -> Array:
    grid = list(np.indices(index.shape, sparse=True))
    grid[axis] = _checked(index, x.shape[axis], axis, False)
    return x[tuple(grid)]


def _put(x: Array, places: tuple[Any, ...], value: Array, combine: str) -> Array:
    """Narrow floats are combined in their accumulation dtype and rounded at the end."""
    dtype = dtype_of(x.dtype)
    result = cast_array(x, dtype.accumulate).copy() if combine in ("add", "mul") else x.copy()
    part = cast_array(value, dtype_of(result.dtype))
    if combine == "set":
        result[places] = part
    else:
        function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[combine]
        function.at(result, places, part)
    return result


def _scatter_array(x: Array, index: Array, value: Array, axis: int, combine: str) -> Array:
    if not index.size:
        return x
    grid = list(np.indices(index.shape, sparse=True))
    grid[axis] = _checked(index, x.shape[axis], axis, False)
    return _put(x, tuple(grid), value[tuple(map(slice, index.shape))], combine)


def _index_select_array(x: Array, index: Array, axis: int) -> Array:
    return x.take(_checked(index.reshape(-1), x.shape[axis], axis, False), axis)


def _embedding_array(weight: Array, index: Array) -> Array:
    return weight[_checked(index, len(weight), 0, False)]


def _places(x: Array, indices: Sequence[Array], axes: Sequence[int]) -> tuple[Any, ...]:
    places: list[Any] = [slice(None)] * x.ndim
    for axis, index in zip(axes, indices):
        places[axis] = _checked(index, x.shape[axis], axis, True)
    return tuple(places)


def _index_put_array(
    x: Array, value: Array, indices: Sequence[Array], axes: Sequence[int], accumulate: bool
) -> Array:
    return _put(x, _places(x, indices, axes), value, "add" if accumulate else "set")


Names = tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Any]]
INDEXING: dict[str, Names] = {
    "gather": ("x index | axis:int", _infer_gather, _gather, _gather_array),
    "scatter": ("x index value | axis:int combine:str='set'", _infer_scatter, _scatter, _scatter_array),
    "index_select": ("x index | axis:int", _infer_index_select, _index_select, _index_select_array),
    "embedding": ("weight index", _infer_embedding, _embedding, _embedding_array),
    "index": (
        "x indices* | axes:ints",
        _infer_index,
        _index,
        lambda x, indices, axes: x[_places(x, indices, axes)],
    ),
    "index_put": (
        "x value indices* | axes:ints accumulate:bool=False",
        _infer_index_put,
        _index_put,
        _index_put_array,
    ),
}
"""Signature, inference, the spelling in primitives, NumPy."""

for _name, (_signature, _infer, _decompose, _interpret) in INDEXING.items():
    define(_name, _signature, _infer, _decompose, _interpret)


def _extern_array(operands: Sequence[Array], target: str, payload: str, types: Sequence[Any]) -> Array:
    raise UnsupportedOpError(f"{target} runs outside of Luminal; no way to call it was given")


define(
    "extern",
    "operands* | target:str payload:str types:types",
    _infer_extern,
    _extern,
    _extern_array,
    creates=True,
)
