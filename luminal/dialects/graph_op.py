"""`luminal.graph` and `luminal.return`: the unit that is compiled, at hlo and primitive level alike.

    luminal.graph @main [s in 1 to 4096, b in 0 to inf buckets [1, 2 to 8]] (%x : !luminal.tensor<[b, s], f32>)
        -> (!luminal.tensor<[b, s], f32>) licences ["reassociate"] { ... luminal.return %y : ... }

The graph declares every symbol that a type or an attribute inside it uses, and the licences that hold in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Data, Dialect, Operation, OpTraits, Region, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.table_op import ValueAttr, value_text
from luminal.dialects.tensor_type import TensorType, symbol_scope
from luminal.dim import Dim, Range, Symbol, collect_symbols
from luminal.errors import DimRangeError, LicenceError

LICENCES = ("reassociate", "contract", "distribute", "keep-wide", "approximate")
DEFAULT_LICENCES = LICENCES[:4]


def check_licences(names: Iterable[str]) -> tuple[str, ...]:
    """The licences in the order of LICENCES, each once; LicenceError for an unknown name."""
    given = tuple(names)
    for name in given:
        if name not in LICENCES:
            raise LicenceError(f"no licence {name!r}; there are {', '.join(LICENCES)}")
    return tuple(name for name in LICENCES if name in given)


@irdl_attr_definition
class SymbolsAttr(Data[tuple[Symbol, ...]]):
    """The declared symbols of a graph, sorted by name."""

    name = "luminal.symbols"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Symbol, ...]:
        with parser.in_angle_brackets():
            return tuple(
                parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: read_symbol(parser))
            )

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{', '.join(symbol.declaration() for symbol in self.data)}>")


def read_symbol(parser: AttrParser) -> Symbol:
    """Parse a declaration: `s in 1 to 4096`, `s in 1 to 4096 buckets [1, 2 to 64]`."""
    position = parser.pos
    name = parser.parse_identifier()
    parser.parse_keyword("in")
    minimum = parser.parse_integer(allow_boolean=False)
    parser.parse_keyword("to")
    maximum = _read_end(parser)
    buckets: list[Range] = []
    if parser.parse_optional_keyword("buckets") is not None:
        buckets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _read_bucket(parser))
    try:
        return Symbol(name, minimum, maximum, buckets)
    except DimRangeError as error:
        parser.raise_error(str(error), position, parser.pos)


def _read_end(parser: AttrParser) -> int | None:
    """The last size of a range; None for `inf`."""
    if parser.parse_optional_keyword("inf") is not None:
        return None
    return parser.parse_integer(allow_boolean=False)


def _read_bucket(parser: AttrParser) -> Range:
    first = parser.parse_integer(allow_boolean=False)
    return first, first if parser.parse_optional_keyword("to") is None else _read_end(parser)


class ReturnOp(Operation):
    """Ends a graph and names its results."""

    name = "luminal.return"
    traits: ClassVar[OpTraits] = OpTraits(lambda: (IsTerminator(),))

    def print(self, printer: Printer) -> None:
        if not self.operands:
            return
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> ReturnOp:
        position = parser.pos
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        if operands is None:
            return cls.create()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.create(operands=parser.resolve_operands(operands, types, position))


class GraphOp(Operation):
    """A function from tensors to tensors: one block, which `luminal.return` ends."""

    name = "luminal.graph"
    traits: ClassVar[OpTraits] = OpTraits(lambda: (IsolatedFromAbove(), SymbolOpInterface()))

    @property
    def graph_name(self) -> str:
        return cast(StringAttr, self.properties["sym_name"]).data

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return cast(SymbolsAttr, self.properties["symbols"]).data

    @property
    def licences(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", cast(ValueAttr, self.properties["licences"]).data)

    @property
    def block(self) -> Block:
        return self.regions[0].block

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(cast(TensorType, argument.type) for argument in self.block.args)

    @property
    def return_op(self) -> ReturnOp:
        """The terminator; VerifyException where the block has none yet."""
        last = self.block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException(f"graph {self.graph_name} does not end in luminal.return")
        return last

    @property
    def outputs(self) -> tuple[SSAValue, ...]:
        return tuple(self.return_op.operands)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(cast(TensorType, value.type) for value in self.outputs)

    def verify_(self) -> None:
        if len(self.regions) != 1 or len(self.regions[0].blocks) != 1:
            raise VerifyException("luminal.graph has one region of one block")
        for key, kind in (("sym_name", StringAttr), ("symbols", SymbolsAttr), ("licences", ValueAttr)):
            if not isinstance(self.properties.get(key), kind):
                raise VerifyException(f"luminal.graph needs the property {key}")
        try:
            check_licences(self.licences)
            names = [symbol.name for symbol in self.symbols]
            if len(set(names)) != len(names):
                raise DimRangeError(f"a symbol is declared twice in [{', '.join(names)}]")
        except (LicenceError, DimRangeError) as error:
            raise VerifyException(str(error)) from error
        _ = self.return_op
        self._verify_body()

    def _verify_body(self) -> None:
        """Values are used after their definition, and every symbol in the body is declared, with its range."""
        defined: set[SSAValue] = set(self.block.args)
        seen: set[Attribute] = set()
        used: set[Dim] = set()

        def note_types(attributes: Iterable[Attribute]) -> None:
            for attribute in attributes:
                if attribute not in seen:
                    seen.add(attribute)
                    used.update(_dims_of(attribute))

        note_types(self.block.arg_types)
        for op in self.block.ops:
            for operand in op.operands:
                if operand not in defined:
                    raise VerifyException(
                        f"{op.name} uses a value that is not defined before it in the graph"
                    )
            defined.update(op.results)
            note_types(op.result_types)
            note_types(op.properties.values())
        declared = set(self.symbols)
        for symbol in collect_symbols(used).values():
            if symbol not in declared:
                raise VerifyException(f"graph {self.graph_name} does not declare {symbol.declaration()}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" @{self.graph_name} ")
        if self.symbols:
            printer.print_string(f"[{', '.join(symbol.declaration() for symbol in self.symbols)}] ")
        with printer.in_parens():
            printer.print_list(self.block.args, printer.print_block_argument)
        printer.print_string(" -> ")
        last = self.block.last_op
        with printer.in_parens():  # a graph that is still being built prints too
            printer.print_list(
                last.operand_types if isinstance(last, ReturnOp) else (), printer.print_attribute
            )
        if self.licences != DEFAULT_LICENCES:
            printer.print_string(f" licences {value_text(self.licences)}")
        if self.attributes:
            printer.print_string(" attributes")
            printer.print_attr_dict(self.attributes)
        printer.print_string(" ")
        printer.print_region(self.regions[0], print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> GraphOp:
        name = parser.parse_symbol_name()
        symbols = (
            parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_symbol(parser))
            or []
        )
        with symbol_scope(symbols):
            arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
            parser.parse_punctuation("->")
            position = parser.pos
            result_types = tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type))
            licences = DEFAULT_LICENCES
            if parser.parse_optional_keyword("licences") is not None:
                licences = tuple(
                    parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
                )
            extra = parser.parse_optional_attr_dict_with_keyword(("sym_name", "symbols", "licences"))
            region = parser.parse_region(arguments)
        graph = cls.create(
            properties=_properties(name.data, symbols, licences),
            attributes={} if extra is None else extra.data,
            regions=[region],
        )
        last = region.block.last_op
        if isinstance(last, ReturnOp) and last.operand_types != result_types:
            parser.raise_error("the graph's result types differ from those that it returns", position)
        return graph


def _properties(name: str, symbols: Iterable[Symbol], licences: Sequence[str]) -> dict[str, Attribute]:
    ordered = tuple(sorted(symbols, key=lambda symbol: symbol.name))
    return {
        "sym_name": StringAttr(name),
        "symbols": SymbolsAttr(ordered),
        "licences": ValueAttr(tuple(licences)),
    }


def _dims_of(attribute: Attribute) -> Iterable[Dim]:
    if isinstance(attribute, TensorType):
        return attribute.shape
    value = attribute.data if isinstance(attribute, ValueAttr) else None
    return [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Dim)]


def build_graph(
    name: str,
    symbols: Iterable[Symbol],
    input_types: Sequence[TensorType],
    licences: Iterable[str] = DEFAULT_LICENCES,
    input_names: Sequence[str] = (),
) -> tuple[GraphOp, Block]:
    """An empty graph and its block, which the caller fills and ends with `finish_graph`.

    Symbols of the input types are declared too; `input_names` become the names of the values in printed IR.
    Raises LicenceError for an unknown licence, DimRangeError for a symbol with two ranges.
    """
    block = Block(arg_types=input_types)
    for argument, hint in zip(block.args, input_names):
        argument.name_hint = hint if SSAValue.is_valid_name(hint) else None
    declared = {symbol.name: symbol for symbol in symbols}
    for symbol in collect_symbols(dim for type_ in input_types for dim in type_.shape).values():
        if declared.setdefault(symbol.name, symbol) != symbol:
            raise DimRangeError(
                f"one dim has two ranges: {declared[symbol.name].declaration()}, and {symbol.declaration()}"
            )
    graph = GraphOp.create(
        properties=_properties(name, declared.values(), check_licences(licences)), regions=[Region(block)]
    )
    return graph, block


def finish_graph(block: Block, results: Sequence[SSAValue]) -> ReturnOp:
    """End the block with `luminal.return`."""
    end = ReturnOp.create(operands=results)
    block.add_op(end)
    return end


LUMINAL = Dialect("luminal", [GraphOp, ReturnOp], [TensorType, SymbolsAttr, ValueAttr])
