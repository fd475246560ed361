"""HloBuilder: append hlo operations to a block, one method for each row of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.builder import Builder
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from luminal.dialects.hlo.table import TABLE, HloOp, Row, create
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.dtype import i64
from luminal.errors import OptionError

Operand = SSAValue | bool | int | float | Dim | None
Number = (bool, int, float, Dim)


class HloBuilder:
    """Emits at the end of a block, or at an insertion point. `source` is recorded on every operation.

    `b.softmax(x, axis=1)` is `b.emit("softmax", x, axis=1)`: one SSAValue, or a tuple for ops of several results. A
    number among the operands becomes a constant of the dtype that the first tensor among them has; a Dim counts as the
    i64 number that it is.
    """

    def __init__(self, where: Block | InsertPoint) -> None:
        self.point = InsertPoint.at_end(where) if isinstance(where, Block) else where
        self.source: str | None = None
        self._builder = Builder(self.point)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.rstrip("_") not in TABLE:
            raise AttributeError(f"hlo has no op {name}")
        return lambda *operands, **attributes: self.emit(name.rstrip("_"), *operands, **attributes)

    def emit(self, name: str, *operands: Operand | Sequence[Operand], **attributes: Any) -> Any:
        """Append the op; a `*` operand of its signature takes a sequence. Returns its value or tuple of values.

        Raises OptionError for an unknown op or attribute or a wrong number of operands, and what the op's inference
        raises: ShapeError, DTypeError, AxisError, OptionError.
        """
        results = self.insert(name, operands, attributes).results
        return results[0] if len(results) == 1 else tuple(results)

    def insert(self, name: str, operands: Sequence[Any], attributes: dict[str, Any]) -> HloOp:
        """The same, but returns the operation."""
        row = TABLE.get(name)
        if row is None:
            raise OptionError(f"hlo has no op {name}")
        op = create(name, self._groups(row, operands), attributes, self.source)
        self._builder.insert(op)
        return op

    def _groups(self, row: Row, operands: Sequence[Any]) -> list[Any]:
        required = sum(spec.form != "?" for spec in row.operands)
        if not required <= len(operands) <= len(row.operands):
            names = ", ".join(spec.name + spec.form for spec in row.operands) or "none"
            raise OptionError(f"{row.name} was given {len(operands)} operands, expected {names}")
        given = [*operands, *[None] * (len(row.operands) - len(operands))]
        flat = [v for g in given for v in (g if isinstance(g, (list, tuple)) else (g,))]
        typed = [cast(TensorType, v.type) for v in flat if isinstance(v, SSAValue)]
        groups: list[Any] = []
        for spec, group in zip(row.operands, given, strict=True):
            if spec.form == "*":
                groups.append([self._value(v, typed) for v in cast("Sequence[Any]", group)])
            elif group is None and spec.form != "?":
                raise OptionError(f"{row.name} needs the operand {spec.name}")
            else:
                groups.append(None if group is None else self._value(group, typed))
        return groups

    def _value(self, value: Any, typed: Sequence[TensorType]) -> SSAValue:
        if isinstance(value, SSAValue):
            return value
        if not isinstance(value, Number) or not typed:
            raise OptionError(f"{value!r} is no operand; a value is, or a number beside one")
        # where(condition, 1.0, y): the condition says nothing about the dtype of the number
        dtype = next((t.dtype for t in typed if not t.dtype.is_bool), typed[0].dtype)
        if not isinstance(value, Dim):
            return self.emit("full", value=value, shape=(), dtype=dtype)
        number = self.emit("dim_value", dim=value)
        return number if dtype == i64 else self.emit("cast", number, dtype=dtype)
