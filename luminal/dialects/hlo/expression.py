"""Expressions: primitive operations in Python's notation, in which the decompositions of hlo ops are written.

An `Expression` is an SSA value of the primitive level and the `Emitter` that appends to its block. Operands of
elementwise operators have one shape and dtype; a Python number beside an expression is a constant of its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from xdsl.builder import Builder
from xdsl.ir import Block, SSAValue

from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.ops import OPS, SOFT
from luminal.dialects.table_op import SOURCE, Value
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, DimLike, as_dim, dims
from luminal.dtype import DType, bool_, i8, i16, i32, i64

Number = bool | int | float
CARRIERS: dict[int, DType] = {8: i8, 16: i16, 32: i32, 64: i64}
"""The integer dtype of each width, for work on bit patterns."""
ELEMENTWISE = frozenset(
    ["log2", "exp2", "sin", "sqrt", "recip", "add", "mul", "mod", "bits", "less_than", "select", "max", "min"]
)
"""Primitives whose result has the type of their last operand (less_than: bool)."""


class Emitter(PrimitiveBuilder):
    """Appends primitive operations to a block, each constant once."""

    def __init__(self, where: Block | Builder) -> None:
        super().__init__(where)
        self.constants: dict[tuple[int, tuple[Dim, ...], DType], SSAValue] = {}

    def one(
        self,
        name: str,
        operands: Sequence[SSAValue],
        values: dict[str, Value] | None = None,
        result: TensorType | None = None,
    ) -> SSAValue:
        """As the base's, but ops whose type is known without inference are first checked when the graph is verified."""
        if result is None and name not in ELEMENTWISE:
            return super().one(name, operands, values)
        type_ = cast(TensorType, operands[-1].type) if result is None else result
        if name == "less_than":
            type_ = TensorType((type_.shape, bool_))
        common: dict[str, Value] = {SOURCE: self.source, **(values or {})}
        return self.builder.insert(OPS[name].make(operands, (type_,), common)).results[0]

    def full_bits(self, bits: int, shape: Sequence[DimLike], dtype: DType) -> SSAValue:
        key = (bits, dims(shape), dtype)
        if key not in self.constants:
            self.constants[key] = super().full_bits(bits, shape, dtype)
        return self.constants[key]

    def wrap(self, value: SSAValue) -> Expression:
        return Expression(value, self)

    def constant(self, value: Number, shape: Sequence[DimLike], dtype: DType) -> Expression:
        return self.wrap(self.full(value, shape, dtype))

    def positions_along(self, shape: Sequence[DimLike], axis: int) -> Expression:
        """The position along `axis`, i64."""
        return self.wrap(self.iota(shape, axis))

    def size(self, dim: DimLike, shape: Sequence[DimLike] = ()) -> Expression:
        """A dim as i64, filled into a shape."""
        known = as_dim(dim).constant
        if known is not None:
            return self.constant(known, shape, i64)
        return self.wrap(self.broadcast_to(self.dim_value(dim), shape))


class Expression:
    """An SSA value with operators. `/` is true division of floats; comparisons are the methods lt, le, gt ..."""

    __slots__ = ("emitter", "value")

    def __init__(self, value: SSAValue, emitter: Emitter) -> None:
        self.value = value
        self.emitter = emitter

    @property
    def type(self) -> TensorType:
        return cast(TensorType, self.value.type)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    def _new(self, value: SSAValue) -> Expression:
        return Expression(value, self.emitter)

    # ---- elementwise -------------------------------------------------------------------------------------------

    def like(self, other: Expression | Number) -> Expression:
        """`other`, or the constant of this shape and dtype where it is a number."""
        return (
            other if isinstance(other, Expression) else self._new(self.emitter.full_like(other, self.value))
        )

    def _binary(self, name: str, other: Expression | Number, **values: str) -> Expression:
        return self._new(self.emitter.one(name, (self.value, self.like(other).value), {**values}))

    def __add__(self, other: Expression | Number) -> Expression:
        return self._binary("add", other)

    def __mul__(self, other: Expression | Number) -> Expression:
        return self._binary("mul", other)

    def __neg__(self) -> Expression:
        return self._new(self.emitter.neg(self.value))

    def __sub__(self, other: Expression | Number) -> Expression:
        return self + (-other)

    def __rsub__(self, other: Number) -> Expression:
        return self.like(other) - self

    def __truediv__(self, other: Expression | Number) -> Expression:
        return self.divide(other, "none")

    def __rtruediv__(self, other: Number) -> Expression:
        return self.like(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def divide(self, other: Expression | Number, rounding: Literal["none", "floor", "trunc"]) -> Expression:
        return self._binary("recip", other, rounding=rounding)

    def mod(self, other: Expression | Number, sign: Literal["floor", "trunc"]) -> Expression:
        return self._binary("mod", other, sign=sign)

    def maximum(self, other: Expression | Number) -> Expression:
        return self._binary("max", other)

    def minimum(self, other: Expression | Number) -> Expression:
        return self._binary("min", other)

    def bits(self, kind: Literal["and", "or", "xor", "shl", "shr"], other: Expression | Number) -> Expression:
        return self._binary("bits", other, kind=kind)

    def __and__(self, other: Expression | Number) -> Expression:
        return self.bits("and", other)

    def __or__(self, other: Expression | Number) -> Expression:
        return self.bits("or", other)

    def __xor__(self, other: Expression | Number) -> Expression:
        return self.bits("xor", other)

    def __invert__(self) -> Expression:
        return self ^ (
            True if self.dtype.is_bool else -1 if self.dtype.is_signed else (1 << self.dtype.bits) - 1
        )

    def compare(self, other: Expression | Number, predicate: Literal["lt", "le", "eq", "ne"]) -> Expression:
        return self._binary("less_than", other, predicate=predicate)

    def lt(self, other: Expression | Number) -> Expression:
        return self.compare(other, "lt")

    def le(self, other: Expression | Number) -> Expression:
        return self.compare(other, "le")

    def gt(self, other: Expression | Number) -> Expression:
        return self.like(other).compare(self, "lt")

    def ge(self, other: Expression | Number) -> Expression:
        return self.like(other).compare(self, "le")

    def eq(self, other: Expression | Number) -> Expression:
        return self.compare(other, "eq")

    def ne(self, other: Expression | Number) -> Expression:
        return self.compare(other, "ne")

    def isnan(self) -> Expression:
        return self.compare(self, "ne")

    def select(self, yes: Expression | Number, no: Expression | Number) -> Expression:
        """Where this condition holds `yes`, else `no`; at least one of them is an expression."""
        model = yes if isinstance(yes, Expression) else cast(Expression, no)
        return self._new(self.emitter.select(self.value, model.like(yes).value, model.like(no).value))

    def exp(self) -> Expression:
        return self._new(self.emitter.exp2(self.value, "e"))

    def exp2(self) -> Expression:
        return self._new(self.emitter.exp2(self.value, "2"))

    def log(self, base: Literal["2", "e", "10"] = "e") -> Expression:
        return self._new(self.emitter.log2(self.value, base))

    def sin(self, phase: Literal["sin", "cos"] = "sin") -> Expression:
        return self._new(self.emitter.sin(self.value, phase))

    def sqrt(self) -> Expression:
        return self._new(self.emitter.sqrt(self.value))

    def round(self, rounding: Literal["floor", "ceil", "trunc", "even"]) -> Expression:
        return self._new(self.emitter.round(self.value, rounding))

    def convert(self, dtype: DType) -> Expression:
        """torch's `.to(dtype)`; nothing where it has the dtype already."""
        return self._new(self.emitter.cast(self.value, dtype))

    def cast(self, dtype: DType) -> Expression:
        """The same where an operation computes in another dtype than its own: keep-wide may drop the rounding."""
        rounding = "soft" if {self.dtype, dtype} in SOFT else "none"
        return self._new(self.emitter.cast(self.value, dtype, rounding))

    def bitcast(self, dtype: DType) -> Expression:
        return self._new(self.emitter.cast(self.value, dtype, "bits"))

    def pattern(self) -> Expression:
        """The bit pattern as a signed integer."""
        return self.bitcast(CARRIERS[self.dtype.bits])

    def abs(self) -> Expression:
        """Without a sign, -0.0 and NaN included; integers wrap."""
        if self.dtype.is_float:
            return (self.pattern() & (1 << (self.dtype.bits - 1)) - 1).bitcast(self.dtype)
        return self.lt(0).select(-self, self) if self.dtype.is_signed else self

    def signbit(self) -> Expression:
        """True for negative floats, -0.0 and negative NaN included."""
        return self.pattern().lt(0)

    def with_sign(self, sign: Expression) -> Expression:
        """This float, which has no sign, with the sign bit of `sign`."""
        lowest = -(1 << (self.dtype.bits - 1))
        return (self.pattern() | (sign.pattern() & lowest)).bitcast(self.dtype)

    # ---- views -------------------------------------------------------------------------------------------------

    def permute(self, order: Sequence[int]) -> Expression:
        return self._new(self.emitter.permute(self.value, order))

    def move_axis(self, source: int, target: int) -> Expression:
        """The axis `source` at the place `target`, the others in their order."""
        order = [axis for axis in range(self.rank) if axis != source]
        order.insert(target, source)
        return self.permute(order)

    def reshape(self, shape: Sequence[DimLike]) -> Expression:
        return self._new(self.emitter.reshape(self.value, shape))

    def expand(self, shape: Sequence[DimLike]) -> Expression:
        """Broadcast to `shape` by NumPy's rules: axes may be added in front, sizes of 1 stretched."""
        return self._new(self.emitter.broadcast_to(self.value, shape))

    def insert_axes(self, positions: Sequence[int]) -> Expression:
        """With axes of size 1 at these increasing positions of the result."""
        shape = list(self.shape)
        for position in positions:
            shape.insert(position, as_dim(1))
        return self.reshape(shape)

    def slice(
        self, starts: Sequence[DimLike], stops: Sequence[DimLike], steps: Sequence[int] | None = None
    ) -> Expression:
        apart = tuple(steps or (1,) * self.rank)
        low, high = dims(starts), dims(stops)
        if all(s == 1 for s in apart) and all(a == 0 for a in low) and high == self.shape:
            return self
        sizes = [(b - a + step - 1) // step for a, b, step in zip(low, high, apart, strict=True)]
        return self._new(self.emitter.slice(self.value, low, sizes, apart))

    def narrow(self, axis: int, start: DimLike, length: DimLike) -> Expression:
        """`length` positions of one axis from `start`."""
        starts: list[DimLike] = [0] * self.rank
        stops: list[DimLike] = list(self.shape)
        starts[axis], stops[axis] = start, as_dim(start) + length
        return self.slice(starts, stops)

    def pad(self, low: Sequence[DimLike], high: Sequence[DimLike], value: Number) -> Expression:
        if all(amount == 0 for amount in dims((*low, *high))):
            return self
        return self._new(self.emitter.pad(self.value, low, high, value))

    def flip(self, axes: Sequence[int]) -> Expression:
        return self._new(self.emitter.flip(self.value, axes))

    def window(self, axis: int, size: int, step: int, dilation: int = 1) -> Expression:
        """Windows along `axis`, which counts them; a new last axis goes through the `size` elements of each."""
        dense = self._new(self.emitter.window(self.value, axis, dilation * (size - 1) + 1, step))
        return dense.slice([0] * dense.rank, dense.shape, [*[1] * self.rank, dilation])

    # ---- reductions, scans, indexing ---------------------------------------------------------------------------

    def _keep(self, reduced: SSAValue, axes: Sequence[int], keepdim: bool) -> Expression:
        result = self._new(reduced)
        return result.insert_axes(sorted(axes)) if keepdim and axes else result

    def sum(self, axes: Sequence[int], keepdim: bool = False, monoid: str = "sum") -> Expression:
        """Over no axes too a sum starts from 0.0: that of -0.0 is 0.0."""
        if not axes and monoid == "sum" and self.dtype.is_float:
            return self + 0.0
        return self._keep(self.emitter.sum_reduce(self.value, axes, monoid), axes, keepdim)

    def max(self, axes: Sequence[int], keepdim: bool = False, monoid: str = "max") -> Expression:
        """The extremum, or its first position, that `monoid` names: max, min, argmax, argmin."""
        return self._keep(self.emitter.max_reduce(self.value, axes, monoid), axes, keepdim)

    def scan(self, monoid: str, axis: int) -> Expression:
        return self._new(self.emitter.scan(self.value, axis, monoid))

    def gather(self, indices: Sequence[Expression]) -> Expression:
        """out[p] = self[indices[0][p], indices[1][p], ...]; an index out of range is a run-time error."""
        return self._new(self.emitter.gather(self.value, [index.value for index in indices]))

    def scatter(self, value: Expression, indices: Sequence[Expression], combine: str) -> Expression:
        """This tensor with `value` put at (or combined into) the indexed positions."""
        return self._new(self.emitter.scatter(self.value, value.value, [i.value for i in indices], combine))

    def sort(self, axis: int, descending: bool, count: Dim | None = None) -> list[Expression]:
        return [self._new(result) for result in self.emitter.sort(self.value, axis, descending, count)]
