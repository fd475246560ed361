"""Operations made from a table: one attribute class for all values, one printed form, one way to verify.

Printed form, the same for every op of every table (types once where all are equal):

    %2 = primitive.add %0, %1 : !luminal.tensor<[s], f32>
    %3 = primitive.sum_reduce %2 {axes = [0], monoid = "sum"} : !luminal.tensor<[s], f32> -> !luminal.tensor<[], f32>
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, cast

from xdsl.ir import Data, Operation, OpTraits, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.tensor_type import TensorType, read_dim
from luminal.dim import Dim, dims, ir_text
from luminal.dtype import DTYPES, DType
from luminal.errors import LuminalError, OptionError

Value = None | bool | int | float | str | bytes | DType | Dim | tuple["Value", ...]
SOURCE = "source"
"""The attribute that every op may have: where the user wrote it, "model.py:12 in forward"."""


@irdl_attr_definition
class ValueAttr(Data[Value]):
    """A plain value as an attribute.

    Equality is that of the text and of the symbols in it: 1, 1.0 and true differ, so do 0.0 and -0.0, nan equals
    itself, and a constant dim equals its int.
    """

    name = "luminal.value"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Value:
        with parser.in_angle_brackets():
            return read_value(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{value_text(self.data)}>")

    @cached_property
    def _text(self) -> str:
        return value_text(self.data)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, ValueAttr):
            return self is other
        if isinstance(self.data, bytes) or isinstance(other.data, bytes):
            return self.data == other.data  # the text of a large tensor is not worth keeping
        return self._text == other._text and _symbols(self.data) == _symbols(other.data)

    def __hash__(self) -> int:
        return hash(self.data if isinstance(self.data, bytes) else self._text)


def value_text(value: Value) -> str:
    """The value in IR text; what `read_value` reads back."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case float() if math.isfinite(value):
            digits, _, exponent = repr(value).partition("e")
            return f"{digits}{'' if '.' in digits else '.0'}{'e' if exponent else ''}{exponent}"
        case str() if value.isascii() and value.isprintable() and not {'"', "\\"} & {*value}:
            return f'"{value}"'
        case str():
            return '"' + "".join(_escape(byte) for byte in value.encode()) + '"'
        case bytes():
            return f'bytes "{value.hex()}"'
        case Dim():
            return ir_text(value)
        case tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case _:
            return str(value)


def read_value(parser: AttrParser) -> Value:
    """Parse what `value_text` wrote; constant dims become ints."""
    text = parser.parse_optional_str_literal()
    if text is not None:
        return text
    escaped = parser.parse_optional_bytes_literal()  # xDSL's token for a string that is not plain ASCII
    if escaped is not None:
        return escaped.decode()
    for keyword, value in _KEYWORDS.items():
        if parser.parse_optional_keyword(keyword) is not None:
            return value
    name = parser.parse_optional_keyword_in(DTYPES)
    if name is not None:
        return DTYPES[name]
    if parser.parse_optional_keyword("bytes") is not None:
        return bytes.fromhex(parser.parse_str_literal())
    items = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_value(parser))
    if items is not None:
        return tuple(items)
    negative = parser.parse_optional_punctuation("-") is not None
    number = parser.parse_optional_float(allow_negative=False)
    if number is None and parser.parse_optional_keyword("inf") is not None:
        number = math.inf
    if number is not None:
        return -number if negative else number
    dim = read_dim(parser, negative)
    return dim if dim.constant is None else dim.constant


_KEYWORDS: dict[str, Value] = {"none": None, "true": True, "false": False, "nan": math.nan}


def _escape(byte: int) -> str:
    if byte == 0x5C:
        return "\\\\"
    return chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x22 else f"\\{byte:02X}"


def _symbols(value: Value) -> frozenset[object]:
    if isinstance(value, tuple):
        return frozenset().union(*map(_symbols, value))
    return frozenset(value.symbols()) if isinstance(value, Dim) else frozenset()


class TableOp(Operation):
    """Base of all table ops. Values sit in `properties` as ValueAttr; a subclass names its row and checks itself."""

    traits: ClassVar[OpTraits] = OpTraits(lambda: (Pure(),))
    attribute_names: ClassVar[frozenset[str]] = frozenset()
    """The attributes that the op may have, beside `source`."""

    @classmethod
    def make(
        cls,
        operands: Sequence[SSAValue],
        result_types: Sequence[TensorType],
        values: Mapping[str, Value] | None = None,
    ) -> TableOp:
        """A detached op; `values` whose value is None are left out."""
        properties = {key: ValueAttr(value) for key, value in (values or {}).items() if value is not None}
        return cls.create(operands=operands, result_types=result_types, properties=properties)

    def value(self, key: str, default: Value = None) -> Value:
        """The plain value of an attribute."""
        found = self.properties.get(key)
        return default if found is None else cast(ValueAttr, found).data

    def integer(self, key: str) -> int:
        """An int attribute; OptionError where it is missing or none."""
        value = self.value(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise OptionError(
                f"attribute {key} of {self.name} must be a whole number, not {value_text(value)}"
            )
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A tuple of ints."""
        value = self.value(key)
        if not isinstance(value, tuple) or not all(
            isinstance(v, int) and not isinstance(v, bool) for v in value
        ):
            raise OptionError(
                f"attribute {key} of {self.name} must be whole numbers in [], not {value_text(value)}"
            )
        return cast("tuple[int, ...]", value)

    def dims(self, key: str) -> tuple[Dim, ...]:
        """A tuple of dims."""
        value = self.value(key)
        if not isinstance(value, tuple) or not all(isinstance(v, (int, Dim)) for v in value):
            raise OptionError(f"attribute {key} of {self.name} must be dims in [], not {value_text(value)}")
        return dims(cast("tuple[int | Dim, ...]", value))

    def text(self, key: str) -> str:
        """A string."""
        value = self.value(key)
        if not isinstance(value, str):
            raise OptionError(f'attribute {key} of {self.name} must be a "string", not {value_text(value)}')
        return value

    @property
    def source(self) -> str | None:
        """Where the user wrote it, or None."""
        value = self.value(SOURCE)
        return value if isinstance(value, str) else None

    @property
    def operand_tensors(self) -> tuple[TensorType, ...]:
        return tuple(cast(TensorType, operand.type) for operand in self.operands)

    @property
    def result_tensors(self) -> tuple[TensorType, ...]:
        return tuple(cast(TensorType, result.type) for result in self.results)

    def check(self) -> None:
        """Raise a LuminalError where the op breaks its rules; subclasses say which rules."""

    def verify_(self) -> None:
        try:
            for kind, types in (("operand", self.operand_types), ("result", self.result_types)):
                for position, type_ in enumerate(types):
                    if not isinstance(type_, TensorType):
                        raise OptionError(f"{kind} {position} must be a !luminal.tensor, not {type_}")
            for key, attribute in self.properties.items():
                if key != SOURCE and key not in self.attribute_names:
                    known = ", ".join(sorted(self.attribute_names)) or "none"
                    raise OptionError(f"unknown attribute {key}; {self.name} has: {known}")
                if not isinstance(attribute, ValueAttr):
                    raise OptionError(f"attribute {key} must be a plain value, not {attribute}")
            self.check()
        except LuminalError as error:
            raise VerifyException(f"{self.name}: {error}") from error

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_operand)
        if self.properties:
            entries = sorted(self.properties.items(), key=lambda item: (item[0] == SOURCE, item[0]))
            printer.print_string(
                " {" + ", ".join(f"{key} = {_entry_text(key, a)}" for key, a in entries) + "}"
            )
        operand_types, result_types = self.operand_types, self.result_types
        printer.print_string(" : ")
        if operand_types and len(result_types) == 1 and len({*operand_types, *result_types}) == 1:
            printer.print_attribute(result_types[0])
            return
        if operand_types:
            printer.print_list(operand_types, printer.print_attribute)
            printer.print_string(" ")
        printer.print_string("-> ")
        printer.print_list(result_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> TableOp:
        position = parser.pos
        operands = (
            parser.parse_optional_undelimited_comma_separated_list(
                parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
            )
            or []
        )
        entries = (
            parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, lambda: _read_entry(parser))
            or []
        )
        parser.parse_punctuation(":")
        types = (
            parser.parse_optional_undelimited_comma_separated_list(
                parser.parse_optional_type, parser.parse_type
            )
            or []
        )
        if parser.parse_optional_punctuation("->") is not None:
            results = (
                parser.parse_optional_undelimited_comma_separated_list(
                    parser.parse_optional_type, parser.parse_type
                )
                or []
            )
        else:
            types, results = types * len(operands), types
        return cls.create(
            operands=parser.resolve_operands(operands, types, position),
            result_types=results,
            properties=dict(entries),
        )


def _entry_text(key: str, attribute: object) -> str:
    if not isinstance(attribute, ValueAttr):
        return str(attribute)
    if key == "bits" and isinstance(attribute.data, int):
        return hex(attribute.data)  # a pattern, not a number
    return value_text(attribute.data)


def _read_entry(parser: Parser) -> tuple[str, ValueAttr]:
    key = parser.parse_identifier()
    parser.parse_punctuation("=")
    return key, ValueAttr(read_value(parser))
