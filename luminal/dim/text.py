"""Dims as text: Python's spelling, and the spelling of IR text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from luminal.dim.core import Dim, Symbol, as_dim, symbol_dim
from luminal.dim.rules import APPLY, extremum
from luminal.errors import DimRangeError, UnsetDimError


def parse_dim(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """The dim that `str(dim)` wrote; `floordiv` and `mod`, the spellings in IR text, are read as // and %.

    Raises UnsetDimError for a symbol that is not in `symbols`, DimRangeError for text that is no dim.
    """
    source = re.sub(r"\bmod\b", "%", re.sub(r"\bfloordiv\b", "//", text))
    try:
        return _parse_node(ast.parse(source.strip(), mode="eval").body, symbols)
    except SyntaxError as error:
        raise DimRangeError(f"{text!r} is no dim expression") from error


def ir_text(value: Dim) -> str:
    """The dim in IR text, where // would begin a comment and % a value: `s floordiv 2`, `s mod 2`."""
    return str(value).replace(" // ", " floordiv ").replace(" % ", " mod ")


def _parse_node(node: ast.expr, symbols: Mapping[str, Symbol]) -> Dim:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return as_dim(number)
        case ast.Name(id=name):
            if name not in symbols:
                raise UnsetDimError(
                    f"dim {name} is not declared; declared are: {', '.join(sorted(symbols)) or 'none'}"
                )
            return symbol_dim(symbols[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parse_node(operand, symbols)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_parse_node(left, symbols), _parse_node(right, symbols))
        case ast.Call(func=ast.Name(id="min" | "max" as kind), args=arguments, keywords=[]):
            return extremum(kind, [_parse_node(argument, symbols) for argument in arguments])
        case _:
            raise DimRangeError(f"{ast.unparse(node)!r} is no dim expression")


_OPERATORS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: APPLY["//"],
    ast.Mod: APPLY["%"],
}


def unpickle(text: str, symbols: tuple[tuple[Any, ...], ...]) -> Dim:
    return parse_dim(text, {name: Symbol(name, *rest) for name, *rest in symbols})
