"""The placed form of a kernel: explicit loops over tiles, the same for every target.

`luminal.passes.place` makes it from a region and its schedule; emitters differ only in how they hold a tile.
Operands of elementwise ops broadcast: an operand that lacks an axis of the result is used for each coordinate of
that axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
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
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.graph_op import SymbolsAttr, read_symbol
from luminal.dialects.kernel.placed_types import (
    Address,
    AddressAttribute,
    Loop,
    LoopAttribute,
    Reference,
    ReferenceType,
    SizeAttribute,
    Tile,
    TileAxis,
    TileType,
)
from luminal.dialects.kernel.terms import ELEMENTWISE, PAIRED_MONOIDS
from luminal.dialects.tensor_type import symbol_scope
from luminal.dim import Dim, Symbol
from luminal.dtype import DType, bool_, i64

MONOIDS = ("sum", "prod", "max", "min", "argmax", "argmin")
COMBINES = ("set", "add", "mul", "max", "min")


def tile_of(value: SSAValue) -> Tile:
    """The tile of a value; VerifyException where its type is none."""
    if not isinstance(value.type, TileType):
        raise VerifyException(f"expected a kernel.tile, got {value.type}")
    return value.type.data


def reference_of(value: SSAValue) -> Reference:
    if not isinstance(value.type, ReferenceType):
        raise VerifyException(f"expected a kernel.ref, got {value.type}")
    return value.type.data


def merge_axes(tiles: Iterable[Tile]) -> tuple[TileAxis, ...]:
    """The union of axes, in the order of the tiles that hold them; the lane axis last."""
    axes = {axis: None for tile in tiles for axis in tile.axes}
    return tuple(sorted(axes, key=lambda axis: axis.lane))


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)


def _check_covers(result: Tile, operands: Sequence[SSAValue], what: str) -> None:
    for operand in operands:
        extra = [str(axis) for axis in tile_of(operand).axes if axis not in result.axes]
        _check(not extra, f"{what}: operand axes {extra} are not in the result {result}")


def _read_licence(parser: Parser) -> str:
    """A licence's name; `keep-wide` has a hyphen, which is not part of an identifier."""
    name = parser.parse_identifier()
    while parser.parse_optional_punctuation("-") is not None:
        name += "-" + parser.parse_identifier()
    return name


class KernelOperation(IRDLOperation):
    """Shared access to the results of kernel operations."""

    @property
    def tile(self) -> Tile:
        return tile_of(self.results[0])


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
            _check(not unknown, f"kernel {self.sym_name.data}: undeclared symbols {sorted(unknown)}")


@irdl_op_definition
class AllocateOp(KernelOperation):
    """Scratch memory that lives as long as the enclosing block; inside a parallel loop, one for each worker."""

    name = "kernel.allocate"
    reference = result_def(ReferenceType)

    @staticmethod
    def of(dtype: DType, elements: Dim, alias: int) -> AllocateOp:
        return AllocateOp.create(result_types=[ReferenceType(Reference(dtype, elements, "scratch", alias))])


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
        _check(
            isinstance(self.parent_op(), FunctionOp),
            "kernel.parallel stands in a kernel.function's own block",
        )
        _check(
            len(self.body.block.args) == len(self.loops),
            "kernel.parallel has one loop variable for each loop",
        )


@irdl_op_definition
class ForOp(IRDLOperation):
    """A sequential loop with carried tiles; `outer` are the variables of the loops over the same index around it."""

    name = "kernel.for"
    outer = var_operand_def(IndexType)
    inits = var_operand_def(TileType)
    loop = prop_def(LoopAttribute)
    carried = var_result_def(TileType)
    body = region_def("single_block")
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(loop: Loop, outer: Sequence[SSAValue], inits: Sequence[SSAValue], body: Block) -> ForOp:
        return ForOp.build(
            operands=[outer, inits],
            properties={"loop": LoopAttribute(loop)},
            result_types=[[value.type for value in inits]],
            regions=[Region(body)],
        )

    def verify_(self) -> None:
        loop = self.loop.data
        _check(
            len(self.outer) == len(loop.outer_weights),
            f"kernel.for over {loop.index}: one weight for each outer loop",
        )
        block = self.body.block
        types = [value.type for value in self.inits]
        _check(
            [argument.type for argument in block.args[1:]] == types,
            f"kernel.for over {loop.index}: carry types differ",
        )
        last = block.last_op
        _check(isinstance(last, YieldOp), f"kernel.for over {loop.index}: the body ends with kernel.yield")
        assert last is not None
        _check(
            [value.type for value in last.operands] == types,
            f"kernel.for over {loop.index}: yields other types",
        )


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
class ConstantOp(KernelOperation):
    """One bit pattern at every coordinate of the result."""

    name = "kernel.constant"
    bits = prop_def(IntAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(bits: int, dtype: DType, axes: tuple[TileAxis, ...] = ()) -> ConstantOp:
        return ConstantOp.create(
            properties={"bits": IntAttr(bits)}, result_types=[TileType(Tile(dtype, axes))]
        )


@irdl_op_definition
class DimensionOp(KernelOperation):
    """The i64 value of a size."""

    name = "kernel.dimension"
    size = prop_def(SizeAttribute)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(size: Dim) -> DimensionOp:
        return DimensionOp.create(
            properties={"size": SizeAttribute(size)}, result_types=[TileType(Tile(i64))]
        )


def _verify_address(op: Operation, address: Address, variables: Sequence[SSAValue], axes: int) -> None:
    _check(len(address.strides) == len(variables), f"{op.name}: one stride for each loop variable")
    _check(len(address.axis_strides) == axes, f"{op.name}: one stride for each tile axis")


@irdl_op_definition
class IndexOp(KernelOperation):
    """The i64 value of an affine expression of loop variables and tile coordinates."""

    name = "kernel.index"
    variables = var_operand_def(IndexType)
    address = prop_def(AddressAttribute)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(variables: Sequence[SSAValue], address: Address, axes: tuple[TileAxis, ...]) -> IndexOp:
        return IndexOp.build(
            operands=[variables],
            properties={"address": AddressAttribute(address)},
            result_types=[TileType(Tile(i64, axes))],
        )

    def verify_(self) -> None:
        _verify_address(self, self.address.data, self.variables, len(self.tile.axes))


@irdl_op_definition
class GuardOp(KernelOperation):
    """Whether an index lies below its size: sum(variable * weight) + tile coordinates < size."""

    name = "kernel.guard"
    variables = var_operand_def(IndexType)
    index = prop_def(StringAttr)
    weights = prop_def(ArrayAttr[IntAttr])
    size = prop_def(SizeAttribute)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        index: str,
        variables: Sequence[SSAValue],
        weights: Sequence[int],
        size: Dim,
        axes: tuple[TileAxis, ...],
    ) -> GuardOp:
        return GuardOp.build(
            operands=[variables],
            properties={
                "index": StringAttr(index),
                "weights": ArrayAttr([IntAttr(weight) for weight in weights]),
                "size": SizeAttribute(size),
            },
            result_types=[TileType(Tile(bool_, axes))],
        )

    def verify_(self) -> None:
        _check(len(self.weights) == len(self.variables), "kernel.guard: one weight for each loop variable")
        _check(self.tile.dtype == bool_, "kernel.guard gives bool")


@irdl_op_definition
class LoadOp(KernelOperation):
    """Elements at an address; where the mask is false nothing is read and the value is zero."""

    name = "kernel.load"
    reference = operand_def(ReferenceType)
    variables = var_operand_def(IndexType)
    dynamic = opt_operand_def(TileType)
    mask = opt_operand_def(TileType)
    address = prop_def(AddressAttribute)
    result = result_def(TileType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        reference: SSAValue,
        variables: Sequence[SSAValue],
        address: Address,
        axes: tuple[TileAxis, ...],
        dynamic: SSAValue | None = None,
        mask: SSAValue | None = None,
    ) -> LoadOp:
        return LoadOp.build(
            operands=[reference, variables, dynamic, mask],
            properties={"address": AddressAttribute(address)},
            result_types=[TileType(Tile(reference_of(reference).dtype, axes))],
        )

    def verify_(self) -> None:
        _verify_address(self, self.address.data, self.variables, len(self.tile.axes))
        _check(
            self.tile.dtype == reference_of(self.reference).dtype,
            "kernel.load: dtype differs from the reference's",
        )
        _check_covers(self.tile, [v for v in (self.dynamic, self.mask) if v is not None], "kernel.load")


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Writes a tile at an address where the mask holds; `combine` says how it meets what is there."""

    name = "kernel.store"
    reference = operand_def(ReferenceType)
    value = operand_def(TileType)
    variables = var_operand_def(IndexType)
    dynamic = opt_operand_def(TileType)
    mask = opt_operand_def(TileType)
    address = prop_def(AddressAttribute)
    axes = prop_def(TileType)
    combine = prop_def(StringAttr)
    nontemporal = opt_prop_def(UnitAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        reference: SSAValue,
        value: SSAValue,
        variables: Sequence[SSAValue],
        address: Address,
        axes: tuple[TileAxis, ...],
        dynamic: SSAValue | None = None,
        mask: SSAValue | None = None,
        combine: str = "set",
        nontemporal: bool = False,
    ) -> StoreOp:
        return StoreOp.build(
            operands=[reference, value, variables, dynamic, mask],
            properties={
                "address": AddressAttribute(address),
                "axes": TileType(Tile(reference_of(reference).dtype, axes)),
                "combine": StringAttr(combine),
                **({"nontemporal": UnitAttr()} if nontemporal else {}),
            },
        )

    @property
    def tile(self) -> Tile:
        """The coordinates that are written; the value, mask and dynamic address broadcast to them."""
        return self.axes.data

    def verify_(self) -> None:
        _verify_address(self, self.address.data, self.variables, len(self.tile.axes))
        _check(tile_of(self.value).dtype == reference_of(self.reference).dtype, "kernel.store: dtype differs")
        _check(self.combine.data in COMBINES, f"kernel.store: combine is one of {', '.join(COMBINES)}")
        operands = [v for v in (self.value, self.dynamic, self.mask) if v is not None]
        _check_covers(self.tile, operands, "kernel.store")


@irdl_op_definition
class ApplyOp(KernelOperation):
    """An elementwise primitive on tiles: `op` and `variant` as in terms.ELEMENTWISE."""

    name = "kernel.apply"
    inputs = var_operand_def(TileType)
    op = prop_def(StringAttr)
    variant = opt_prop_def(StringAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(op: str, variant: str | None, operands: Sequence[SSAValue], dtype: DType) -> ApplyOp:
        axes = merge_axes(tile_of(operand) for operand in operands)
        return ApplyOp.build(
            operands=[operands],
            properties={"op": StringAttr(op), **({"variant": StringAttr(variant)} if variant else {})},
            result_types=[TileType(Tile(dtype, axes))],
        )

    def verify_(self) -> None:
        _check(self.op.data in ELEMENTWISE, f"kernel.apply: no elementwise op {self.op.data!r}")
        _check(
            len(self.inputs) == ELEMENTWISE[self.op.data],
            f"kernel.apply {self.op.data}: wrong number of operands",
        )
        _check_covers(self.tile, self.inputs, f"kernel.apply {self.op.data}")


@irdl_op_definition
class ContractOp(KernelOperation):
    """accumulator + left * right at each coordinate of the accumulator, fused where the licence `contract` is given."""

    name = "kernel.contract"
    accumulator = operand_def(TileType)
    left = operand_def(TileType)
    right = operand_def(TileType)
    mask = opt_operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(accumulator: SSAValue, left: SSAValue, right: SSAValue, mask: SSAValue | None) -> ContractOp:
        return ContractOp.build(operands=[accumulator, left, right, mask], result_types=[accumulator.type])

    def verify_(self) -> None:
        _check(
            self.accumulator.type == self.result.type, "kernel.contract: accumulator and result types differ"
        )
        operands = [v for v in (self.left, self.right, self.mask) if v is not None]
        _check_covers(self.tile, operands, "kernel.contract")


@irdl_op_definition
class AccumulateOp(IRDLOperation):
    """combine(accumulator, value) at each coordinate where the mask holds.

    argmax and argmin carry (value, position).
    """

    name = "kernel.accumulate"
    accumulators = var_operand_def(TileType)
    values = var_operand_def(TileType)
    mask = opt_operand_def(TileType)
    monoid = prop_def(StringAttr)
    combined = var_result_def(TileType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        monoid: str, accumulators: Sequence[SSAValue], values: Sequence[SSAValue], mask: SSAValue | None
    ) -> AccumulateOp:
        return AccumulateOp.build(
            operands=[accumulators, values, mask],
            properties={"monoid": StringAttr(monoid)},
            result_types=[[accumulator.type for accumulator in accumulators]],
        )

    def verify_(self) -> None:
        _check(self.monoid.data in MONOIDS, f"kernel.accumulate: monoid is one of {', '.join(MONOIDS)}")
        parts = 2 if self.monoid.data in PAIRED_MONOIDS else 1
        _check(
            len(self.accumulators) == len(self.values) == parts,
            f"kernel.accumulate {self.monoid.data}: {parts} values",
        )
        for accumulator in self.accumulators:
            operands = [*self.values, *([self.mask] if self.mask is not None else [])]
            _check_covers(tile_of(accumulator), operands, "kernel.accumulate")


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Combines a tile over the axes that its result lacks."""

    name = "kernel.reduce"
    inputs = var_operand_def(TileType)
    monoid = prop_def(StringAttr)
    reduced = var_result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(monoid: str, inputs: Sequence[SSAValue], dropped: frozenset[TileAxis]) -> ReduceOp:
        types: list[Attribute] = []
        for value in inputs:
            tile = tile_of(value)
            types.append(TileType(Tile(tile.dtype, tuple(axis for axis in tile.axes if axis not in dropped))))
        return ReduceOp.build(
            operands=[inputs], properties={"monoid": StringAttr(monoid)}, result_types=[types]
        )

    def verify_(self) -> None:
        _check(self.monoid.data in MONOIDS, f"kernel.reduce: monoid is one of {', '.join(MONOIDS)}")
        _check(len(self.inputs) == len(self.reduced), "kernel.reduce: one result for each input")
        for before, after in zip(self.inputs, self.reduced, strict=True):
            _check(set(tile_of(after).axes) <= set(tile_of(before).axes), "kernel.reduce adds no axis")


PLACED_OPERATIONS: tuple[type[Operation], ...] = (
    FunctionOp, AllocateOp, ParallelOp, ForOp, YieldOp, ConstantOp, DimensionOp, IndexOp, GuardOp, LoadOp, StoreOp,
    ApplyOp, ContractOp, AccumulateOp, ReduceOp,
)  # fmt: skip
PLACED_ATTRIBUTES: tuple[type[Attribute], ...] = (
    TileType, ReferenceType, LoopAttribute, AddressAttribute, SizeAttribute,
)  # fmt: skip
