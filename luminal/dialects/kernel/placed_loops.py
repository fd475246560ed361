"""The frame of a placed kernel: the function, its parallel and sequential loops, and its scratch memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr, StringAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator

from luminal.dialects.graph_op import SymbolsAttr, read_symbol
from luminal.dialects.kernel.placed_base import KernelOperation, check, reference_of, tile_of
from luminal.dialects.kernel.placed_types import (
    Limit,
    LimitAttribute,
    Loop,
    LoopAttribute,
    Reference,
    ReferenceType,
    Tile,
    TileType,
)
from luminal.dialects.tensor_type import symbol_scope
from luminal.dim import Dim, Symbol
from luminal.dtype import DType, bool_


def _read_licence(parser: Parser) -> str:
    """A licence's name; `keep-wide` has a hyphen, which is not part of an identifier."""
    name = parser.parse_identifier()
    while parser.parse_optional_punctuation("-") is not None:
        name += "-" + parser.parse_identifier()
    return name


@irdl_op_definition
class FunctionOp(IRDLOperation):
    """A kernel: its block arguments are references, its symbols the sizes that it depends on, in ABI order.

    `licences` are those that the code generator's flags follow; `cost` estimates nanoseconds per iteration of the
    parallel loops.
    """

    name = "kernel.function"
    sym_name = prop_def(StringAttr)
    symbols = prop_def(SymbolsAttr)
    licences = prop_def(ArrayAttr[StringAttr])
    cost = opt_prop_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    @staticmethod
    def build_function(
        name: str, symbols: Sequence[Symbol], licences: Iterable[str], body: Block, cost: int | None = None
    ) -> FunctionOp:
        return FunctionOp.create(
            properties={
                "sym_name": StringAttr(name),
                "symbols": SymbolsAttr(tuple(symbols)),
                "licences": ArrayAttr([StringAttr(licence) for licence in sorted(licences)]),
                **({"cost": IntAttr(cost)} if cost is not None else {}),
            },
            regions=[Region(body)],
        )

    @property
    def symbol_names(self) -> list[str]:
        return [symbol.name for symbol in self.symbols.data]

    def print(self, printer: Printer) -> None:
        printer.print_string(
            f" @{self.sym_name.data} [{', '.join(symbol.range_text() for symbol in self.symbols.data)}] "
        )
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(f" licences [{', '.join(licence.data for licence in self.licences)}]")
        printer.print_string(f" cost {self.cost.data} " if self.cost is not None else " ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> FunctionOp:
        name = parser.parse_symbol_name()
        symbols = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_symbol(parser))
        with symbol_scope(symbols):
            arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
            parser.parse_characters("licences")
            licences = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: _read_licence(parser)
            )
            cost = parser.parse_integer() if parser.parse_optional_keyword("cost") else None
            body = parser.parse_region(arguments)
        body.detach_block(block := body.block)
        return cls.build_function(name.data, symbols, licences, block, cost)

    def verify_(self) -> None:
        declared = set(self.symbol_names)
        for argument in self.body.block.args:
            unknown = {symbol.name for symbol in reference_of(argument).elements.symbols()} - declared
            check(not unknown, f"kernel {self.sym_name.data}: undeclared symbols {sorted(unknown)}")


@irdl_op_definition
class ParallelOp(IRDLOperation):
    """Independent iterations over the product of its loops; stands in the function's own block."""

    name = "kernel.parallel"
    loops = prop_def(ArrayAttr[LoopAttribute])
    body = region_def("single_block")

    @staticmethod
    def of(loops: Sequence[Loop], body: Block) -> ParallelOp:
        return ParallelOp.create(
            properties={"loops": ArrayAttr([LoopAttribute(loop) for loop in loops])}, regions=[Region(body)]
        )

    def verify_(self) -> None:
        check(
            isinstance(self.parent_op(), FunctionOp),
            "kernel.parallel stands in a kernel.function's own block",
        )
        check(
            len(self.body.block.args) == len(self.loops),
            "kernel.parallel has one loop variable for each loop",
        )


class Bounds(NamedTuple):
    """Which iterations of a loop are needed: limits over variables of loops around it, which hold where the guard does,
    if there is one."""

    variables: Sequence[SSAValue] = ()
    limits: Sequence[Limit] = ()
    guard: SSAValue | None = None


UNBOUNDED = Bounds()


@irdl_op_definition
class ForOp(IRDLOperation):
    """A sequential loop with carried tiles; `outer` are the variables of the loops over the same index around it.

    Iterations beyond its `limits`, over the variables `around`, change nothing and are left out, unless there is a
    guard that is false.
    """

    name = "kernel.for"
    outer = var_operand_def(IndexType)
    inits = var_operand_def(TileType)
    around = var_operand_def(IndexType)
    guard = opt_operand_def(TileType)
    loop = prop_def(LoopAttribute)
    limits = opt_prop_def(ArrayAttr[LimitAttribute])
    carried = var_result_def(TileType)
    body = region_def("single_block")
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        loop: Loop,
        outer: Sequence[SSAValue],
        inits: Sequence[SSAValue],
        body: Block,
        bounds: Bounds = UNBOUNDED,
    ) -> ForOp:
        limits = ArrayAttr([LimitAttribute(limit) for limit in bounds.limits])
        return ForOp.build(
            operands=[outer, inits, bounds.variables, bounds.guard],
            properties={"loop": LoopAttribute(loop), **({"limits": limits} if bounds.limits else {})},
            result_types=[[value.type for value in inits]],
            regions=[Region(body)],
        )

    @property
    def bounds(self) -> Bounds:
        limits = () if self.limits is None else [limit.data for limit in self.limits]
        return Bounds(self.around, limits, self.guard)

    def verify_(self) -> None:
        loop = self.loop.data
        check(
            len(self.outer) == len(loop.outer_weights),
            f"kernel.for over {loop.index}: one weight for each outer loop",
        )
        block = self.body.block
        types = [value.type for value in self.inits]
        check(
            [argument.type for argument in block.args[1:]] == types,
            f"kernel.for over {loop.index}: carry types differ",
        )
        last = block.last_op
        check(isinstance(last, YieldOp), f"kernel.for over {loop.index}: the body ends with kernel.yield")
        assert last is not None
        check(
            [value.type for value in last.operands] == types,
            f"kernel.for over {loop.index}: yields other types",
        )
        self._verify_bounds()

    def _verify_bounds(self) -> None:
        what, bounds = f"kernel.for over {self.loop.data.index}", self.bounds
        strides = [len(limit.strides) for limit in bounds.limits]
        is_one_bool = bounds.guard is None or tile_of(bounds.guard) == Tile(bool_)
        check(is_one_bool, f"{what}: the guard of its limits is one bool")
        check(bool(strides) or not (self.around or self.guard), f"{what}: no limits, but what they need")
        check({*strides} <= {len(self.around)}, f"{what}: each limit has one stride for each variable")
        check(all(limit.step > 0 for limit in bounds.limits), f"{what}: the step of a limit is above 0")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The carried tiles of the next iteration."""

    name = "kernel.yield"
    values = var_operand_def(TileType)
    traits = traits_def(IsTerminator())

    @staticmethod
    def of(values: Sequence[SSAValue]) -> YieldOp:
        return YieldOp.build(operands=[values])


@irdl_op_definition
class AllocateOp(KernelOperation):
    """Scratch memory that lives as long as the enclosing block; inside a parallel loop, one for each worker."""

    name = "kernel.allocate"
    reference = result_def(ReferenceType)

    @staticmethod
    def of(dtype: DType, elements: Dim, alias: int) -> AllocateOp:
        return AllocateOp.create(result_types=[ReferenceType(Reference(dtype, elements, "scratch", alias))])
