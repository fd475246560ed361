"""The placed form of a kernel: operations on tiles inside explicit loops (`placed_loops`), the same for every target.

`luminal.passes.place` makes it from a region and its schedule; emitters differ only in how they hold a tile.
Operands of elementwise ops broadcast: an operand that lacks an axis of the result is used for each coordinate of
that axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from luminal.dialects.kernel.placed_base import (
    KernelOperation,
    check,
    check_covers,
    merge_axes,
    reference_of,
    tile_of,
)
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp, YieldOp
from luminal.dialects.kernel.placed_types import (
    Address,
    AddressAttribute,
    LimitAttribute,
    LoopAttribute,
    ReferenceType,
    SizeAttribute,
    Tile,
    TileAxis,
    TileType,
)
from luminal.dialects.kernel.terms import ELEMENTWISE, PAIRED_MONOIDS
from luminal.dim import Dim, as_dim
from luminal.dtype import DType, bool_, i64

MONOIDS = ("sum", "prod", "max", "min", "argmax", "argmin")
COMBINES = ("set", "add", "mul", "max", "min")


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
    check(len(address.strides) == len(variables), f"{op.name}: one stride for each loop variable")
    check(len(address.axis_strides) == axes, f"{op.name}: one stride for each tile axis")


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
    """Whether an index lies below its size: sum(variable * weight) + sum(tile coordinate * weight) < size.

    `weights` are those of the variables, then those of one step along each tile axis: more than the axis' own where it
    belongs to a part of the index.
    """

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
        steps: Sequence[int],
    ) -> GuardOp:
        return GuardOp.build(
            operands=[variables],
            properties={
                "index": StringAttr(index),
                "weights": ArrayAttr([IntAttr(weight) for weight in (*weights, *steps)]),
                "size": SizeAttribute(size),
            },
            result_types=[TileType(Tile(bool_, axes))],
        )

    @property
    def outer(self) -> list[int]:
        """The weights of the loop variables."""
        return [weight.data for weight in self.weights][: len(self.variables)]

    @property
    def steps(self) -> list[int]:
        """The weights of a step along each tile axis."""
        return [weight.data for weight in self.weights][len(self.variables) :]

    def verify_(self) -> None:
        wanted = len(self.variables) + len(self.tile.axes)
        check(len(self.weights) == wanted, "kernel.guard: one weight for each loop variable and tile axis")
        check(self.tile.dtype == bool_, "kernel.guard gives bool")


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
        check(
            self.tile.dtype == reference_of(self.reference).dtype,
            "kernel.load: dtype differs from the reference's",
        )
        check_covers(self.tile, [v for v in (self.dynamic, self.mask) if v is not None], "kernel.load")


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
        check(tile_of(self.value).dtype == reference_of(self.reference).dtype, "kernel.store: dtype differs")
        check(self.combine.data in COMBINES, f"kernel.store: combine is one of {', '.join(COMBINES)}")
        operands = [v for v in (self.value, self.dynamic, self.mask) if v is not None]
        check_covers(self.tile, operands, "kernel.store")


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """Asks for memory that is read soon, and changes no value: `elements` from the address on, which may lie outside of
    what the reference has; where there are parts, moved by `part` elements for each turn, counted modulo `parts`."""

    name = "kernel.prefetch"
    reference = operand_def(ReferenceType)
    variables = var_operand_def(IndexType)
    turn = opt_operand_def(IndexType)
    address = prop_def(AddressAttribute)
    elements = prop_def(IntAttr)
    parts = opt_prop_def(IntAttr)
    part = opt_prop_def(IntAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        reference: SSAValue,
        variables: Sequence[SSAValue],
        strides: Sequence[Dim],
        offset: int,
        elements: int,
        parts: tuple[SSAValue, int, int] | None = None,
    ) -> PrefetchOp:
        """`parts`: the variable of the turns, how many parts there are, and the elements of each."""
        turn, count, part = parts or (None, 0, 0)
        return PrefetchOp.build(
            operands=[reference, variables, turn],
            properties={
                "address": AddressAttribute(Address(tuple(strides), (), as_dim(offset))),
                "elements": IntAttr(elements),
                **({"parts": IntAttr(count), "part": IntAttr(part)} if parts else {}),
            },
        )

    def verify_(self) -> None:
        _verify_address(self, self.address.data, self.variables, 0)
        counts = [each.data for each in (self.elements, self.parts, self.part) if each is not None]
        check(min(counts) > 0, "kernel.prefetch: fetches nothing")
        check(len(counts) == (1 if self.turn is None else 3), "kernel.prefetch: parts belong to turns")


ROUNDED = "rounded"
"""The variant of a product that is no part of a fused multiply-add, whatever the licences."""


@irdl_op_definition
class ApplyOp(KernelOperation):
    """An elementwise primitive on tiles: `op` and `variant` as in terms.ELEMENTWISE, or ROUNDED of a product."""

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
        check(self.op.data in ELEMENTWISE, f"kernel.apply: no elementwise op {self.op.data!r}")
        check(
            len(self.inputs) == ELEMENTWISE[self.op.data],
            f"kernel.apply {self.op.data}: wrong number of operands",
        )
        check_covers(self.tile, self.inputs, f"kernel.apply {self.op.data}")


@irdl_op_definition
class ContractOp(KernelOperation):
    """accumulator + left * right at each coordinate of the accumulator, fused where the licence `contract` is given.

    Over axes that the accumulator lacks, the products are summed, those where the mask holds.  Operands of a narrower
    dtype are widened to the accumulator's, which is exact.
    """

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
        check(
            self.accumulator.type == self.result.type, "kernel.contract: accumulator and result types differ"
        )
        check(not any(axis.lane for axis in self.summed), "kernel.contract sums over no lanes")

    @property
    def summed(self) -> tuple[TileAxis, ...]:
        """The axes of the operands that the accumulator lacks."""
        operands = [v for v in (self.left, self.right, self.mask) if v is not None]
        return tuple(axis for axis in merge_axes(map(tile_of, operands)) if axis not in self.tile.axes)


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
        check(self.monoid.data in MONOIDS, f"kernel.accumulate: monoid is one of {', '.join(MONOIDS)}")
        parts = 2 if self.monoid.data in PAIRED_MONOIDS else 1
        check(
            len(self.accumulators) == len(self.values) == parts,
            f"kernel.accumulate {self.monoid.data}: {parts} values",
        )
        for accumulator in self.accumulators:
            operands = [*self.values, *([self.mask] if self.mask is not None else [])]
            check_covers(tile_of(accumulator), operands, "kernel.accumulate")


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
        check(self.monoid.data in MONOIDS, f"kernel.reduce: monoid is one of {', '.join(MONOIDS)}")
        check(len(self.inputs) == len(self.reduced), "kernel.reduce: one result for each input")
        for before, after in zip(self.inputs, self.reduced, strict=True):
            check(set(tile_of(after).axes) <= set(tile_of(before).axes), "kernel.reduce adds no axis")


PLACED_OPERATIONS: tuple[type[Operation], ...] = (
    FunctionOp, AllocateOp, ParallelOp, ForOp, YieldOp, ConstantOp, DimensionOp, IndexOp, GuardOp, LoadOp, StoreOp,
    PrefetchOp, ApplyOp, ContractOp, AccumulateOp, ReduceOp,
)  # fmt: skip
PLACED_ATTRIBUTES: tuple[type[Attribute], ...] = (
    TileType, ReferenceType, LoopAttribute, LimitAttribute, AddressAttribute, SizeAttribute,
)  # fmt: skip
