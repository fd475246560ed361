"""Nodes of an FX graph that compute with symbolic Python numbers instead of tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from xdsl.ir import SSAValue

from luminal.dialects.hlo.builder import HloBuilder
from luminal.dim import Dim
from luminal.dtype import f64
from luminal.errors import UnsupportedOpError
from luminal.torch.symbols import SymbolTable

BINARY: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.pow: "pow",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
}
UNARY: dict[Any, str | None] = {
    torch.sym_float: None,
    operator.neg: "neg",
    operator.pos: None,
    math.sqrt: "sqrt",
    getattr(torch, "_sym_sqrt", None): "sqrt",
    getattr(torch, "_sym_log2", None): "log2",
    torch.sym_not: None,
}


def lower_scalar(
    b: HloBuilder, symbols: SymbolTable, node: torch.fx.Node, argument: Callable[[Any], Any]
) -> Any:
    """A symbolic float as a rank 0 f64 value; a number that tracing has fixed as itself; a truth value as None: what it
    guards was decided when tracing."""
    fake = node.meta.get("val")
    if isinstance(fake, (bool, int, float, torch.SymBool)) or fake is None:
        return None if isinstance(fake, torch.SymBool) else fake
    operands = [_as_f64(b, argument(value)) for value in node.args]
    if node.target in BINARY:
        return b.emit(BINARY[node.target], *operands)
    if node.target in UNARY:
        name = UNARY[node.target]
        return operands[0] if name is None else b.emit(name, operands[0])
    raise UnsupportedOpError(f"{node.target} of symbolic numbers has no lowering")


def _as_f64(b: HloBuilder, value: Any) -> SSAValue:
    if isinstance(value, SSAValue):
        return value if value.type.dtype == f64 else b.cast(value, dtype=f64)  # pyright: ignore
    if isinstance(value, Dim):
        return b.cast(b.dim_value(dim=value), dtype=f64)
    return b.full(value=float(value), shape=(), dtype=f64)
