"""Methods that move elements: permute, reshape, slicing, padding and the rest. None of them computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from luminal.dim import (
    Dim,
    DimLike,
    as_dim,
    dim_max,
    dim_min,
    divide_exact,
    known_less,
    known_less_equal,
    product,
)
from luminal.dtype import DType, DTypeLike, dtype_of, i64
from luminal.errors import AxisError, DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from luminal.promotion import Number, promote_types
from luminal.tensor_base import TensorBase, flat_arguments, plain_int, shape_text, size_of

if TYPE_CHECKING:
    from types import EllipsisType

    from luminal.tensor import Tensor

PadMode = Literal["constant", "reflect", "replicate", "circular"]
Index: TypeAlias = "int | Dim | slice | EllipsisType | Tensor | None"


class ViewMethods(TensorBase):
    """Views, slicing and padding, with PyTorch's names and arguments; sizes may be dims."""

    __slots__ = ()

    def permute(self, *axes: int | Sequence[int], dims: Sequence[int] | None = None) -> Tensor:
        """The axes in another order: `x.permute(0, 2, 1)`, `x.permute((0, 2, 1))` or `x.permute(dims=(0, 2, 1))`."""
        given = flat_arguments(axes, dims, "permute", "dims")
        order = tuple(self._axis(dim, method="permute") for dim in given)
        if sorted(order) != list(range(self.ndim)):
            raise self._fail("permute", f"dims {given} are no order of its {self.ndim} axes", AxisError)
        return self._emit("permute", self, order=order)

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Two axes swapped."""
        first, second = self._axis(dim0, method="transpose"), self._axis(dim1, method="transpose")
        order = list(range(self.ndim))
        if order:
            order[first], order[second] = order[second], order[first]
        return self._emit("permute", self, order=order)

    @property
    def T(self) -> Tensor:
        """All axes reversed; of a matrix, its transpose."""
        return self._emit("permute", self, order=tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise self._fail("mT", "expected at least two axes")
        return self.transpose(-2, -1)

    def expand(self, *sizes: DimLike | Sequence[DimLike], size: Sequence[DimLike] | None = None) -> Tensor:
        """Axes of size 1 repeated, and new ones in front; -1 keeps a size."""
        given = flat_arguments(sizes, size, "expand", "size")
        added = len(given) - self.ndim
        if added < 0:
            raise self._fail("expand", f"{shape_text(given)} has fewer than its {self.ndim} axes")
        wanted = [size_of(one, "a size") for one in given]
        for position, one in enumerate(wanted):
            if one == -1:
                if position < added:
                    raise self._fail("expand", f"-1 stands for no axis that exists in {shape_text(given)}")
                wanted[position] = self.shape[position - added]
        return self._emit("expand", self, shape=wanted)

    def reshape(self, *sizes: DimLike | Sequence[DimLike], shape: Sequence[DimLike] | None = None) -> Tensor:
        """Another shape of as many elements; one size may be -1. What symbols leave open is checked at execution."""
        given = flat_arguments(sizes, shape, "reshape", "shape")
        wanted = [size_of(size, "a size") for size in given]
        unknown = [position for position, size in enumerate(wanted) if size == -1]
        if len(unknown) > 1:
            raise self._fail("reshape", f"{shape_text(wanted)} leaves more than one size open")
        if unknown:
            rest = product(size for size in wanted if size != -1)
            if rest == 0:
                raise self._fail("reshape", f"the -1 in {shape_text(wanted)} could be any size beside a 0")
            inferred = divide_exact(self.numel(), rest)
            wanted[unknown[0]] = self.numel() // rest if inferred is None else inferred
        have, want = self.numel(), product(wanted)
        problem = f"its {have} elements do not fill {shape_text(given)}"
        self._require(have, want, "reshape", problem)
        self._require(want, have, "reshape", problem)
        return self._emit("reshape", self, shape=wanted)

    def view(self, *sizes: DimLike | Sequence[DimLike] | DTypeLike) -> Tensor:
        """With a dtype, the same bytes read as another dtype of the same width. Else `reshape`: in a graph there are no
        strides that could forbid it."""
        if len(sizes) == 1 and not isinstance(sizes[0], (int, Dim, tuple, list)):
            return self._emit("bitcast", self, dtype=dtype_of(cast("DTypeLike", sizes[0])))
        return self.reshape(*cast("tuple[DimLike, ...]", sizes))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes from `start_dim` to `end_dim`, both included, as one."""
        start, end = self._axis(start_dim, method="flatten"), self._axis(end_dim, method="flatten")
        if start > end:
            raise self._fail("flatten", f"start_dim {start_dim} comes after end_dim {end_dim}", AxisError)
        middle = product(self.shape[start : end + 1])
        return self._emit("reshape", self, shape=(*self.shape[:start], middle, *self.shape[end + 1 :]))

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Tensor:
        """Without the axes of size 1, or those of `dim` that have it; a symbolic size stays, whatever its value."""
        axes = range(self.ndim) if dim is None else self._axes(dim, "squeeze") if dim != () else ()
        shape = [size for axis, size in enumerate(self.shape) if axis not in axes or size.constant != 1]
        return self._emit("reshape", self, shape=shape)

    def unsqueeze(self, dim: int) -> Tensor:
        """A new axis of size 1 before axis `dim` of the result."""
        axis = self._axis(dim, self.ndim + 1, "unsqueeze")
        return self._emit("reshape", self, shape=(*self.shape[:axis], as_dim(1), *self.shape[axis:]))

    def flip(self, *axes: int | Sequence[int], dims: Sequence[int] | None = None) -> Tensor:
        """The elements in reverse along the axes."""
        given = flat_arguments(axes, dims, "flip", "dims")
        return self._emit("flip", self, axes=self._axes(given, "flip")) if given else cast("Tensor", self)

    def unfold(self, dimension: int, size: int, step: int) -> Tensor:
        """All windows of `size` elements, `step` apart: the axis counts windows, a new last axis goes through one."""
        axis = self._axis(dimension, method="unfold")
        extent, stride = plain_int(size, "size"), plain_int(step, "step")
        if extent < 0 or stride < 1:
            raise self._fail(
                "unfold", f"size is {extent} and step {stride}, expected at least 0 and 1", OptionError
            )
        source = self if self.ndim else self.reshape(1)
        length = source.shape[axis]
        self._require(
            extent, length, "unfold", f"size {extent} is larger than dim {dimension}, which is {length}"
        )
        if not extent:
            count = length // stride + 1
            return self.graph.full(
                (*source.shape[:axis], count, *source.shape[axis + 1 :], 0)[-self.ndim - 1 :], 0, self.dtype
            )
        if self.ndim:
            return source._emit("window", source, axis=axis, size=extent, step=stride)
        return source._emit("slice", source, starts=(0,), stops=(extent,), steps=(1,))

    def pad(self, pad: Sequence[DimLike], mode: PadMode = "constant", value: Number | None = None) -> Tensor:
        """`torch.nn.functional.pad`: (low, high) of the last axis, of the one before it ...; negative ones crop."""
        amounts = [size_of(amount, "a pad amount") for amount in pad]
        if len(amounts) % 2 or len(amounts) > 2 * self.ndim:
            problem = f"{shape_text(amounts)} is no list of (low, high) for at most {self.ndim} axes"
            raise self._fail("pad", problem, OptionError)
        if mode not in ("constant", "reflect", "replicate", "circular"):
            expected = "constant, reflect, replicate or circular"
            raise self._fail("pad", f"mode is {mode!r}, expected {expected}", OptionError)
        if mode != "constant" and value is not None:
            raise self._fail("pad", f"mode {mode!r} takes no value", OptionError)
        low, high = [as_dim(0)] * self.ndim, [as_dim(0)] * self.ndim
        for position in range(len(amounts) // 2):
            axis = self.ndim - 1 - position
            low[axis], high[axis] = amounts[2 * position : 2 * position + 2]
        if mode == "constant":
            return self._pad_constant(low, high, 0 if value is None else value)
        result = cast("Tensor", self)
        for axis in range(self.ndim):
            if low[axis] != 0 or high[axis] != 0:
                result = result._pad_from_inside(axis, low[axis], high[axis], mode)
        return result

    def _pad_constant(self, low: Sequence[Dim], high: Sequence[Dim], value: Number) -> Tensor:
        for amount in (*low, *high):
            if not known_less_equal(0, amount) and not known_less_equal(amount, 0):
                raise self._fail("pad", f"whether {amount} pads or crops depends on its value", OptionError)
        cropped = cast("Tensor", self)
        starts = [dim_max(0, -amount) for amount in low]
        stops = [size - dim_max(0, -amount) for size, amount in zip(self.shape, high, strict=True)]
        if any(start != 0 for start in starts) or any(s != z for s, z in zip(stops, self.shape, strict=True)):
            for axis, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                self._require(
                    start, stop, "pad", f"dim {axis} of size {self.shape[axis]} is cropped to a negative size"
                )
            cropped = self._emit("slice", self, starts=starts, stops=stops, steps=(1,) * self.ndim)
        added_low, added_high = (
            [dim_max(0, amount) for amount in low],
            [dim_max(0, amount) for amount in high],
        )
        if all(amount == 0 for amount in (*added_low, *added_high)):
            return cropped
        fill = self._fill_value(value, self.dtype, "pad")
        return cropped._emit("pad", cropped, low=added_low, high=added_high, value=fill)

    def _pad_from_inside(self, axis: int, low: Dim, high: Dim, mode: str) -> Tensor:
        """One axis padded with its own elements: their positions are computed, and gathered.

        What a negative amount crops is not there for "circular" either.
        """
        start = dim_max(0, -low) if mode == "circular" else as_dim(0)
        size = self.shape[axis] - start - (dim_max(0, -high) if mode == "circular" else 0)
        least = {"reflect": dim_max(low, high) + 1, "circular": dim_max(low, high), "replicate": as_dim(1)}[
            mode
        ]
        self._require(
            least, size, "pad", f"mode {mode!r} with {low} and {high} needs dim {axis} of at least {least}"
        )
        position: Tensor = self.graph.iota((self.shape[axis] + low + high,), 0, i64) - low
        if mode == "replicate":
            position = position.clamp(0).minimum(size - 1)
        elif mode == "circular":
            position = (position - start).remainder(size) + start
        else:
            position = (size - 1) + -(position.abs() - (size - 1)).abs()
        return self._emit("index_select", self, position, axis=axis)

    # ---- slicing ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.ndim:
            raise self._fail("len", "it has no axes", ShapeError)
        size = self.shape[0].constant
        if size is None:
            raise self._fail(
                "len", f"its first size, {self.shape[0]}, is not a number; use .shape[0]", ShapeError
            )
        return size

    def __iter__(self) -> Any:
        return iter([self[position] for position in range(len(self))])

    def __bool__(self) -> bool:
        raise self._fail(
            "bool", "a tensor of a graph has no value yet; use where() in place of if", DTypeError
        )

    def __contains__(self, value: object) -> bool:
        raise self._fail("in", "a tensor of a graph has no value yet; use (x == value).any()", DTypeError)

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Tensor:
        """Ints, dims, slices with positive steps, `...`, None, and integer tensors, as PyTorch reads them."""
        keys = self._full_key(key if isinstance(key, tuple) else (key,))
        starts: list[Dim] = []
        stops: list[Dim] = []
        steps: list[int] = []
        shape: list[Dim] = []  # of the slice, without the axes that ints take away and with new ones
        indices: dict[int, Tensor] = {}
        for one in keys:
            if one is None:
                shape.append(as_dim(1))
                continue
            axis = len(starts)
            size = self.shape[axis]
            start, stop, step = as_dim(0), size, 1
            if isinstance(one, slice):
                start, stop, step = self._slice(one, size)
                shape.append((stop - start + step - 1) // step)
            elif isinstance(one, TensorBase):
                indices[len(shape)] = self._index_tensor(cast("Tensor", one))
                shape.append(size)
            else:
                start = self._position(one, size, axis)
                stop = start + 1
            starts.append(start)
            stops.append(stop)
            steps.append(step)
        result = cast("Tensor", self)
        if (
            any(s != 0 for s in starts)
            or any(s != z for s, z in zip(stops, self.shape, strict=True))
            or max(steps, default=1) > 1
        ):
            result = self._emit("slice", self, starts=starts, stops=stops, steps=steps)
        if tuple(shape) != result.shape:
            result = result._emit("reshape", result, shape=shape)
        if indices:
            result = result._emit("index", result, list(indices.values()), axes=tuple(indices))
        return result

    def _full_key(self, key: Sequence[Any]) -> list[Any]:
        """The key with `...` written out, one entry for each axis beside the Nones."""
        for one in key:
            if isinstance(one, bool) or not (
                one is None
                or one is Ellipsis
                or isinstance(one, (slice, TensorBase, Dim))
                or hasattr(one, "__index__")
            ):
                raise self._fail(
                    "indexing",
                    f"{one!r} is no index; ints, dims, slices, ..., None and integer tensors are",
                    IndexOutOfRangeError,
                )
        used = sum(one is not None and one is not Ellipsis for one in key)
        if used > self.ndim:
            raise self._fail("indexing", f"{used} indices for {self.ndim} axes", AxisError)
        if not any(one is Ellipsis for one in key):
            key = (*key, Ellipsis)
        full: list[Any] = []
        for one in key:
            if one is not Ellipsis:
                full.append(one)
            else:
                full.extend([slice(None)] * (self.ndim - used))
                used = self.ndim  # a second `...` stands for nothing
        return full

    def _slice(self, key: slice, size: Dim) -> tuple[Dim, Dim, int]:
        """Start, stop (start <= stop <= size) and step. Bounds out of range are clipped, as Python does."""
        step = 1 if key.step is None else plain_int(key.step, "a slice's step")
        if step < 1:
            raise self._fail(
                "indexing", f"the step of {_slice_text(key)} must be at least 1; use flip()", OptionError
            )
        first = as_dim(0) if key.start is None else dim_max(0, self._from_start(key.start, size))
        last = size if key.stop is None else dim_min(self._from_start(key.stop, size), size)
        start = dim_min(first, size)
        # From `first`, not from `start`: where they differ the slice is empty both ways, and s - 1 stays s - 1.
        return start, start + dim_max(0, last - first), step

    def _from_start(self, bound: DimLike, size: Dim) -> Dim:
        """A slice's bound counted from the start, unclipped."""
        value = size_of(bound, "a slice's bound")
        if known_less_equal(0, value):
            return value
        if known_less(value, 0):
            return size + value
        problem = (
            f"whether the bound {value} counts from the end depends on its value; write {size} + ({value})"
        )
        raise self._fail("indexing", problem, OptionError)

    def _position(self, key: DimLike, size: Dim, axis: int) -> Dim:
        value = self._from_start(key, size)
        problem = f"index {key} is outside dim {axis}, which has size {size}"
        self._require(0, value, "indexing", problem, IndexOutOfRangeError)
        self._require(value + 1, size, "indexing", problem, IndexOutOfRangeError)
        return value

    def _index_tensor(self, index: Tensor) -> Tensor:
        self._promotable(index, "indexing")
        if index.dtype.is_bool:
            problem = f"the size of a selection by {index.described()} depends on data; use where() or masked_fill()"
            raise self._fail("indexing", problem, DTypeError)
        if not index.dtype.is_integer:
            raise self._fail("indexing", f"the index {index.described()} is no integer", DTypeError)
        return index._as(i64)


def _slice_text(key: slice) -> str:
    return ":".join("" if part is None else str(part) for part in (key.start, key.stop, key.step))


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along an axis, in their common dtype: `torch.cat`. Empty 1-d tensors are skipped, as there."""
    first, rest = _same_graph(tensors, "cat")
    kept = [t for t in (first, *rest) if t.shape != (as_dim(0),)] or [first]
    dtype = _common(list(tensors))
    return kept[0]._emit("cat", [t._as(dtype) for t in kept], axis=kept[0]._axis(dim, method="cat"))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis, in their common dtype: `torch.stack`."""
    first, rest = _same_graph(tensors, "stack")
    dtype = _common(list(tensors))
    return first._emit(
        "stack", [t._as(dtype) for t in (first, *rest)], axis=first._axis(dim, first.ndim + 1, "stack")
    )


def _same_graph(tensors: Sequence[Tensor], method: str) -> tuple[Tensor, Sequence[Tensor]]:
    for tensor in tensors:
        if not isinstance(tensor, TensorBase):
            raise DTypeError(f"{method} was given a {type(tensor).__name__}, expected Tensors")
        tensors[0]._promotable(tensor, method)
    if not tensors:
        raise ShapeError(f"{method} was given no tensors, expected at least one")
    return tensors[0], tensors[1:]


def _common(tensors: Sequence[Tensor]) -> DType:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = promote_types(dtype, tensor.dtype)
    return dtype
