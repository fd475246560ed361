"""The one tensor type of all levels above memory, and the reading of symbolic dims in IR text.

`!luminal.tensor<[s, 4096], f32>`: symbols are declared, with their ranges, by the graph op around them, so a type is
parsed inside a `symbol_scope`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from xdsl.ir import Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from luminal.dim import Dim, DimLike, Symbol, as_dim, dim_max, dim_min, dims, ir_text, product, symbol_dim
from luminal.dtype import DTYPES, DType, DTypeLike, dtype_of

_SCOPE: ContextVar[Mapping[str, Symbol] | None] = ContextVar("symbols", default=None)


@contextmanager
def symbol_scope(symbols: Iterable[Symbol]) -> Generator[None, None, None]:
    """While open, dims in IR text may use these symbols."""
    token = _SCOPE.set({symbol.name: symbol for symbol in symbols})
    try:
        yield
    finally:
        _SCOPE.reset(token)


def current_symbols() -> Mapping[str, Symbol]:
    """The symbols of the open scope; empty outside of any."""
    return _SCOPE.get() or {}


@irdl_attr_definition
class TensorType(Data[tuple[tuple[Dim, ...], DType]], TypeAttribute):
    """A tensor of `dtype` whose shape is a tuple of Dims; make one with `tensor_type`. Equality is structural."""

    name = "luminal.tensor"

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.data[0]

    @property
    def dtype(self) -> DType:
        return self.data[1]

    @property
    def rank(self) -> int:
        return len(self.data[0])

    @property
    def elements(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[Dim, ...], DType]:
        with parser.in_angle_brackets():
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_dim(parser))
            parser.parse_punctuation(",")
            position = parser.pos
            name = parser.parse_identifier()
            if name not in DTYPES:
                parser.raise_error(f"no dtype {name}; there are {', '.join(DTYPES)}", position, parser.pos)
        negative = [size for size in shape if size.constant is not None and size.constant < 0]
        if negative:
            parser.raise_error(f"a size cannot be negative: {negative[0]}", position, parser.pos)
        return tuple(shape), DTYPES[name]

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<[{', '.join(map(ir_text, self.shape))}], {self.dtype.name}>")

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def tensor_type(shape: Iterable[DimLike], dtype: DTypeLike) -> TensorType:
    """The tensor type of a shape of ints and Dims."""
    return TensorType((dims(shape), dtype_of(dtype)))


def read_dim(parser: AttrParser, negative: bool = False) -> Dim:
    """Parse a dim in IR spelling (`s floordiv 2 + 1`), with the symbols of the open scope.

    `negative`: a leading minus has been read already; it binds to the first factor.
    """
    total = _read_term(parser, negative)
    while (
        sign := parser.parse_optional_punctuation("+") or parser.parse_optional_punctuation("-")
    ) is not None:
        term = _read_term(parser)
        total = total + term if sign == "+" else total - term
    return total


def _read_term(parser: AttrParser, negative: bool = False) -> Dim:
    total = -_read_factor(parser) if negative else _read_factor(parser)
    while True:
        if parser.parse_optional_punctuation("*") is not None:
            total = total * _read_factor(parser)
        elif parser.parse_optional_keyword("floordiv") is not None:
            total = total // _read_factor(parser)
        elif parser.parse_optional_keyword("mod") is not None:
            total = total % _read_factor(parser)
        else:
            return total


def _read_factor(parser: AttrParser) -> Dim:
    if parser.parse_optional_punctuation("-") is not None:
        return -_read_factor(parser)
    if parser.parse_optional_punctuation("(") is not None:
        inner = read_dim(parser)
        parser.parse_punctuation(")")
        return inner
    number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
    if number is not None:
        return as_dim(number)
    position = parser.pos
    name = parser.parse_identifier(context_msg=", or a number, in a dim")
    if name in ("min", "max"):
        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: read_dim(parser))
        return dim_min(*arguments) if name == "min" else dim_max(*arguments)
    symbol = (_SCOPE.get() or {}).get(name)
    if symbol is None:
        declared = ", ".join(_SCOPE.get() or {}) or "none"
        parser.raise_error(
            f"dim {name} is not declared by the graph; declared: {declared}", position, parser.pos
        )
    return symbol_dim(symbol)
