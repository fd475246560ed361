"""Building primitive IR: one method per op, and the few compositions that every lowering needs.

Every op is checked as it is built, so that a mistake is raised where it is made, with the user's error class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from xdsl.builder import Builder
from xdsl.ir import Block, OpResult, SSAValue
from xdsl.ir.core import SSAValues
from xdsl.rewriter import InsertPoint

from luminal.dialects.primitive.ops import OPS, UNCHANGING, PrimitiveOp
from luminal.dialects.table_op import SOURCE, Value
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import DimLike, as_dim, dims
from luminal.dtype import DType, DTypeLike, dtype_of, i64, to_bits

Number = bool | int | float | np.generic


def type_of(value: SSAValue) -> TensorType:
    """The tensor type of a value."""
    return cast(TensorType, value.type)


class PrimitiveBuilder:
    """Inserts primitive ops at the end of a block, or where an xDSL Builder stands.

    `source` and `strict` are put on every op that is built until they are changed.
    """

    def __init__(self, where: Block | Builder, source: str | None = None, strict: bool = False) -> None:
        self.builder = where if isinstance(where, Builder) else Builder(InsertPoint.at_end(where))
        self.source = source
        self.strict = strict

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue],
        values: dict[str, Value] | None = None,
        results: Sequence[TensorType] = (),
    ) -> PrimitiveOp:
        """Insert primitive.`name`; `results` only for the ops whose result type is given."""
        common: dict[str, Value] = {SOURCE: self.source, "strict": self.strict or None}
        op = cast(PrimitiveOp, OPS[name].make(operands, results, {**(values or {}), **common}))
        inferred = op.infer()
        if not results:
            op.results = SSAValues(OpResult(type_, op, index) for index, type_ in enumerate(inferred))
        elif not op.row.results < 0:
            op.check()
        return self.builder.insert(op)

    def one(
        self,
        name: str,
        operands: Sequence[SSAValue],
        values: dict[str, Value] | None = None,
        result: TensorType | None = None,
    ) -> SSAValue:
        """`emit` of an op with one result, and that result."""
        return self.emit(name, operands, values, () if result is None else (result,)).results[0]

    # ---- elementwise -------------------------------------------------------------------------------------------

    def log2(self, x: SSAValue, base: str = "2") -> SSAValue:
        return self.one("log2", [x], {"base": base})

    def exp2(self, x: SSAValue, base: str = "2") -> SSAValue:
        return self.one("exp2", [x], {"base": base})

    def sin(self, x: SSAValue, phase: str = "sin") -> SSAValue:
        return self.one("sin", [x], {"phase": phase})

    def sqrt(self, x: SSAValue) -> SSAValue:
        return self.one("sqrt", [x])

    def recip(self, numerator: SSAValue, denominator: SSAValue, rounding: str = "none") -> SSAValue:
        """numerator / denominator, "floor" and "trunc" rounded."""
        return self.one("recip", [numerator, denominator], {"rounding": rounding})

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.one("add", [a, b])

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.one("mul", [a, b])

    def mod(self, a: SSAValue, b: SSAValue, sign: str = "floor") -> SSAValue:
        return self.one("mod", [a, b], {"sign": sign})

    def bits(self, a: SSAValue, b: SSAValue, kind: str) -> SSAValue:
        return self.one("bits", [a, b], {"kind": kind})

    def compare(self, a: SSAValue, b: SSAValue, predicate: str = "lt") -> SSAValue:
        """a `predicate` b as bool: lt, le, eq, ne; swap the operands for gt and ge."""
        return self.one("less_than", [a, b], {"predicate": predicate})

    def select(self, condition: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
        """x where the condition holds, else y."""
        return self.one("select", [condition, x, y])

    def max(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.one("max", [a, b])

    def min(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.one("min", [a, b])

    def cast(self, x: SSAValue, dtype: DTypeLike, rounding: str = "none") -> SSAValue:
        """x as `dtype`; x itself where nothing would change.

        `soft`: as an operation does that computes in another dtype than its own, so that the licence keep-wide may drop
        the rounding.
        """
        target = dtype_of(dtype)
        if target is type_of(x).dtype and rounding in UNCHANGING:
            return x
        return self.one("cast", [x], {"rounding": rounding}, TensorType((type_of(x).shape, target)))

    def round(self, x: SSAValue, rounding: str) -> SSAValue:
        """x as a whole number of the same float dtype: floor, ceil, trunc or even."""
        return self.one("cast", [x], {"rounding": rounding}, type_of(x))

    # ---- sources -----------------------------------------------------------------------------------------------

    def full(self, value: Number, shape: Sequence[DimLike], dtype: DTypeLike) -> SSAValue:
        """A tensor of one number everywhere, kept by its bit pattern."""
        return self.full_bits(to_bits(value, dtype_of(dtype)), shape, dtype_of(dtype))

    def full_bits(self, bits: int, shape: Sequence[DimLike], dtype: DType) -> SSAValue:
        return self.one("const", [], {"bits": bits}, tensor_type(shape, dtype))

    def full_like(self, value: Number, like: SSAValue) -> SSAValue:
        """A tensor of one number, of the type of `like`."""
        return self.full(value, type_of(like).shape, type_of(like).dtype)

    def dense(self, array: np.ndarray) -> SSAValue:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
        """A constant tensor with the array's shape, dtype and bytes."""
        return self.one(
            "const", [], {"data": array.tobytes()}, tensor_type(array.shape, dtype_of(array.dtype))
        )

    def iota(self, shape: Sequence[DimLike], axis: int) -> SSAValue:
        """The position along `axis`, i64."""
        return self.one("iota", [], {"axis": axis}, tensor_type(shape, i64))

    def dim_value(self, dim: DimLike) -> SSAValue:
        """The value of a dim as a 0-d i64."""
        return self.one("dim_value", [], {"dim": as_dim(dim)})

    # ---- views -------------------------------------------------------------------------------------------------

    def permute(self, x: SSAValue, order: Sequence[int]) -> SSAValue:
        """Axis i of the result is axis order[i] of x; x itself for the identity."""
        return (
            x if list(order) == list(range(len(order))) else self.one("permute", [x], {"order": tuple(order)})
        )

    def reshape(self, x: SSAValue, shape: Sequence[DimLike]) -> SSAValue:
        target = TensorType((dims(shape), type_of(x).dtype))
        return x if target == x.type else self.one("reshape", [x], None, target)

    def expand(self, x: SSAValue, shape: Sequence[DimLike]) -> SSAValue:
        """Dims of 1 repeated to `shape`, of the same rank; x itself where nothing changes."""
        target = TensorType((dims(shape), type_of(x).dtype))
        return x if target == x.type else self.one("expand", [x], None, target)

    def broadcast_to(self, x: SSAValue, shape: Sequence[DimLike]) -> SSAValue:
        """x aligned at the last axis and repeated to `shape`, as NumPy broadcasts."""
        missing = len(shape) - type_of(x).rank
        return self.expand(self.reshape(x, (*[1] * missing, *type_of(x).shape)) if missing > 0 else x, shape)

    def slice(
        self,
        x: SSAValue,
        starts: Sequence[DimLike],
        sizes: Sequence[DimLike],
        steps: Sequence[int] | None = None,
    ) -> SSAValue:
        """Per axis `sizes` elements from `starts`, every `steps`-th (1 where not given)."""
        values: dict[str, Value] = {"starts": dims(starts), "steps": tuple(steps or [1] * len(sizes))}
        return self.one("slice", [x], values, TensorType((dims(sizes), type_of(x).dtype)))

    def pad(
        self, x: SSAValue, low: Sequence[DimLike], high: Sequence[DimLike], value: Number = 0
    ) -> SSAValue:
        """x with `low` and `high` elements of `value` around each axis."""
        bits = to_bits(value, type_of(x).dtype)
        return self.one("pad", [x], {"low": dims(low), "high": dims(high), "bits": bits})

    def flip(self, x: SSAValue, axes: Sequence[int]) -> SSAValue:
        return self.one("flip", [x], {"axes": tuple(sorted(axes))}) if axes else x

    def window(self, x: SSAValue, axis: int, size: int, step: int) -> SSAValue:
        """Like Tensor.unfold: windows along `axis`, their content appended as the last axis."""
        return self.one("window", [x], {"axis": axis, "size": size, "step": step})

    # ---- reductions and roots ----------------------------------------------------------------------------------

    def sum_reduce(self, x: SSAValue, axes: Sequence[int], monoid: str = "sum") -> SSAValue:
        """The "sum" or "prod" over axes, which are dropped; x itself for no axes."""
        return self.one("sum_reduce", [x], {"axes": tuple(sorted(axes)), "monoid": monoid}) if axes else x

    def max_reduce(self, x: SSAValue, axes: Sequence[int], monoid: str = "max") -> SSAValue:
        """The "max", "min", "argmax" or "argmin" over axes, which are dropped; x itself for no axes."""
        return self.one("max_reduce", [x], {"axes": tuple(sorted(axes)), "monoid": monoid}) if axes else x

    def scan(self, x: SSAValue, axis: int, monoid: str = "sum") -> SSAValue:
        """Inclusive sum, prod, max or min along an axis."""
        return self.one("scan", [x], {"axis": axis, "monoid": monoid})

    def gather(self, data: SSAValue, indices: Sequence[SSAValue], bounds: str = "error") -> SSAValue:
        """out[p] = data[indices[0][p], indices[1][p], ...]."""
        return self.one("gather", [data, *indices], {"bounds": bounds})

    def scatter(
        self,
        base: SSAValue,
        value: SSAValue,
        indices: Sequence[SSAValue],
        combine: str = "set",
        bounds: str = "error",
    ) -> SSAValue:
        """`base` with value[p] combined in at (indices[0][p], ...), for p in row-major order."""
        return self.one("scatter", [base, value, *indices], {"combine": combine, "bounds": bounds})

    def sort(
        self, x: SSAValue, axis: int, descending: bool = False, count: DimLike | None = None
    ) -> tuple[SSAValue, SSAValue]:
        """Values and i64 positions, stable, NaN as the largest; the first `count` of them, or all."""
        first = {} if count is None else {"count": count}
        values, positions = self.emit("sort", [x], {"axis": axis, "descending": descending, **first}).results
        return values, positions

    def extern(
        self, operands: Sequence[SSAValue], results: Sequence[TensorType], target: str, payload: str = ""
    ) -> tuple[SSAValue, ...]:
        """A call that the runtime passes on to torch."""
        return tuple(self.emit("extern", operands, {"target": target, "payload": payload}, results).results)

    # ---- compositions ------------------------------------------------------------------------------------------

    def neg(self, x: SSAValue) -> SSAValue:
        """-x, exactly: times -1 flips the sign of zeros and infinities too, and wraps for integers."""
        dtype = type_of(x).dtype
        return self.mul(x, self.full(-1, type_of(x).shape, dtype))

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """a - b as a + -b, which rounds alike."""
        return self.add(a, self.neg(b))

    def logical_not(self, x: SSAValue) -> SSAValue:
        """not x, for bool."""
        return self.bits(x, self.full_like(True, x), "xor")

    def positions(self, shape: Sequence[DimLike]) -> list[SSAValue]:
        """One iota per axis of `shape`: the plain indices of a gather or scatter."""
        return [self.iota(shape, axis) for axis in range(len(shape))]
