"""What a lowering function works with: the hlo builder, the node that is lowered, and conversions of its arguments.

A lowering is a function `(low, *arguments, **keywords) -> value | tuple of values` whose arguments are those of the
ATen op, with tensors as hlo values, symbolic integers as Dims and everything else as it is. `LOWERINGS` holds them by
the op's name: "sum" for every overload, "max.dim" for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.fx
from xdsl.ir import SSAValue

from luminal import promotion
from luminal.dialects.hlo.builder import HloBuilder
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, as_dim, dim_max, dim_min
from luminal.dtype import DType, bool_, i64
from luminal.errors import UnsupportedOpError
from luminal.torch.symbols import SymbolTable

UNBOUNDED = 2**62
"""A stop from here on means the end of the axis: PyTorch writes an open slice as 2**63 - 1."""
Value = SSAValue
Scalar = bool | int | float | Dim | Value
"""A number of the ATen call; one that is only known at run time is a Dim or a rank 0 tensor."""
Operand = Scalar
Shape = tuple[Dim, ...]
Rule = Callable[..., Any]

LOWERINGS: dict[str, Rule] = {}
"""By ATen name without the namespace: "add", or "max.dim" where the overloads differ."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Enter the function into `LOWERINGS` under these names."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} has two lowerings")
            LOWERINGS[name] = rule
        return rule

    return enter


def type_of(value: Value) -> TensorType:
    return cast(TensorType, value.type)


def shape_of(value: Value) -> Shape:
    return type_of(value).shape


def dtype(value: Value) -> DType:
    return type_of(value).dtype


def rank(value: Value) -> int:
    return len(shape_of(value))


class Lowering:
    """One node being lowered. `b` appends hlo operations; `fake` is the traced result that the lowering must equal."""

    def __init__(self, builder: HloBuilder, symbols: SymbolTable, node: torch.fx.Node) -> None:
        self.b = builder
        self.symbols = symbols
        self.node = node
        self.fake: Any = node.meta.get("val")

    @property
    def name(self) -> str:
        return str(self.node.target)

    def type(self, number: int | None = None) -> TensorType:
        """The type of the result, or of result `number` of several."""
        fake = self.fake if number is None else self.fake[number]
        return tensor_type(self.symbols.shape(fake.shape), fake.dtype)

    @property
    def shape(self) -> Shape:
        return self.type().shape

    @property
    def dtype(self) -> DType:
        return self.type().dtype

    def refuse(self, why: str) -> UnsupportedOpError:
        """The error that sends a node to the fallback: raise it where the arguments are of a kind not lowered."""
        return UnsupportedOpError(f"{self.name}: {why}")

    def uses_result(self, number: int) -> bool:
        """Whether anything reads result `number` of a node of several."""
        return any(number in user.args[1:] for user in self.node.users)

    # ---- values ------------------------------------------------------------------------------------------------

    def cast(self, value: Value, to: DType) -> Value:
        """The value as an operation computes with it, or gives it."""
        return value if dtype(value) == to else self.b.cast(value, dtype=to, written=False)

    def converted(self, value: Value, to: DType) -> Value:
        """The value in a dtype that the user asked for: it is rounded, whatever the licences."""
        return value if dtype(value) == to else self.b.cast(value, dtype=to)

    def number(self, value: Scalar, to: DType) -> Value:
        """A rank 0 tensor of a Python number or Dim, converted as arithmetic with a tensor of that dtype does."""
        if isinstance(value, SSAValue):  # a symbolic float is a tensor
            return self.cast(value, to)
        if isinstance(value, Dim) and value.constant is None:
            return self.cast(self.b.dim_value(dim=value), to)
        plain = value.constant if isinstance(value, Dim) else value
        if isinstance(plain, complex):
            raise self.refuse("a complex number")
        return self.b.full(value=promotion.wrap_number(cast(float, plain), to), shape=(), dtype=to)

    def plain_number(self, value: Scalar) -> float:
        """A number that decides what is computed: a symbolic integer is guarded to keep its value."""
        if isinstance(value, SSAValue):
            raise self.refuse("a symbolic float that decides what is computed")
        return float(self.symbols.fixed(value) if isinstance(value, Dim) else value)

    def operand(self, value: Operand, to: DType) -> Value:
        """A tensor of that dtype: a cast of a tensor, a rank 0 tensor of a number."""
        return self.cast(value, to) if isinstance(value, SSAValue) else self.number(value, to)

    def full(self, value: Scalar, shape: Sequence[Dim], to: DType) -> Value:
        """A tensor filled with a number."""
        return self.broadcast(self.number(value, to), shape)

    def promoted(self, *operands: Operand) -> DType:
        """The dtype that PyTorch computes these operands in."""
        typed = [type_of(x) if isinstance(x, SSAValue) else x for x in operands]
        return promotion.result_type(*typed)

    # ---- shapes ------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[Dim | int]) -> Value:
        wanted = tuple(as_dim(size) for size in shape)
        return value if shape_of(value) == wanted else self.b.reshape(value, shape=wanted)

    def broadcast(self, value: Value, shape: Sequence[Dim]) -> Value:
        return value if shape_of(value) == tuple(shape) else self.b.expand(value, shape=tuple(shape))

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        return value if list(order) == list(range(len(order))) else self.b.permute(value, order=tuple(order))

    def each(self, values: Any, count: int, default: Sequence[int] = ()) -> tuple[int, ...]:
        """One plain integer for each of `count` axes, of what PyTorch lets be given once, or left out for `default`."""
        listed = (values,) if isinstance(values, (int, Dim)) else tuple(values) or tuple(default)
        plain = tuple(self.symbols.fixed(value) for value in listed)
        return plain * count if len(plain) == 1 else plain

    def axis(self, axis: int, count: int) -> int:
        """A non-negative axis; rank 0 counts as rank 1, as in PyTorch."""
        return axis + max(count, 1) if axis < 0 else axis

    def axes(self, axes: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
        """Non-negative axes, all of them for None or none given; empty for rank 0."""
        if count == 0:
            return ()
        if axes is None or (not isinstance(axes, int) and not axes):
            return tuple(range(count))
        listed = (axes,) if isinstance(axes, int) else axes
        return tuple(self.axis(axis, count) for axis in listed)

    def clamped(self, index: int | Dim | None, size: Dim, default: Dim) -> Dim:
        """A start or stop of a Python slice as a position in 0 .. size."""
        if index is None:
            return default
        if isinstance(index, int) and index >= UNBOUNDED:
            return size
        position, zero, known = as_dim(index), as_dim(0), self.symbols.known_less_equal
        if not self.symbols.decide_less_equal(zero, position):
            position = position + size
        if not known(zero, position):
            position = dim_max(position, zero)
        return position if known(position, size) else dim_min(position, size)

    def slice(self, value: Value, axis: int, start: Dim | int, stop: Dim | int, step: int = 1) -> Value:
        """Elements start .. stop of one axis; both within it."""
        shape = shape_of(value)
        if step == 1 and as_dim(start) == 0 and as_dim(stop) == shape[axis]:
            return value
        starts = [as_dim(start) if i == axis else as_dim(0) for i in range(len(shape))]
        stops = [as_dim(stop) if i == axis else size for i, size in enumerate(shape)]
        steps = [step if i == axis else 1 for i in range(len(shape))]
        return self.b.slice(value, starts=starts, stops=stops, steps=steps)

    def with_sizes(self, value: Value, sizes: Mapping[int, Dim]) -> Value:
        """The tensor with these sizes along its axes, which a guard makes sure of where PyTorch's trace does not."""
        for axis, size in sizes.items():
            if shape_of(value)[axis] != size and self.symbols.decide_equal(shape_of(value)[axis], size):
                value = self.slice(value, axis, 0, size)
        return value

    def fixed_sizes(self, value: Value, axes: Iterable[int]) -> Value:
        """The tensor with plain sizes along the axes, guarded to stay what they were traced as."""
        for axis in axes:
            if shape_of(value)[axis].constant is None:
                value = self.slice(value, axis, 0, self.symbols.fixed(shape_of(value)[axis]))
        return value

    def iota(self, shape: Sequence[Dim], axis: int, to: DType = i64) -> Value:
        """The position along an axis, in a tensor of the shape."""
        return self.b.iota(shape=tuple(shape), axis=axis, dtype=to)

    def positions(self, size: Dim, axis: int, count: int, start: Dim | int = 0, step: int = 1) -> Value:
        """start, start + step, ... along `axis` of a tensor of rank `count` that is 1 elsewhere, i64."""
        shape = [size if i == axis else as_dim(1) for i in range(count)]
        result = self.iota(shape, axis)
        if step != 1:
            result = self.b.mul(result, self.number(step, i64))
        return result if as_dim(start) == 0 else self.b.add(result, self.number(as_dim(start), i64))

    def wrapped(self, index: Value, size: Dim) -> Value:
        """An index with negative values counted from the end."""
        index = self.cast(index, i64)
        zero = self.number(0, i64)
        return self.b.where(self.b.lt(index, zero), self.b.add(index, self.number(size, i64)), index)

    def constant_i64(self, values: Sequence[int]) -> Value:
        """A rank 1 tensor of known integers."""
        data = np.asarray(values, np.int64).tobytes()
        return self.b.constant(data=data, shape=(as_dim(len(values)),), dtype=i64)

    def as_bool(self, value: Value) -> Value:
        return value if dtype(value) == bool_ else self.b.ne(value, self.number(0, dtype(value)))
