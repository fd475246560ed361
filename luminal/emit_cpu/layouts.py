"""What all coordinates of a value, or of a contraction, have in common."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import ContractOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_types import Tile, TileAxis
from luminal.emit_cpu.addresses import Point, points


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a value belongs: its block, its axes outside of vectors, and those of its vectors."""

    block: Block
    outside: tuple[TileAxis, ...]
    vector: tuple[TileAxis, ...]

    @staticmethod
    def of(value: SSAValue) -> Layout:
        axes = tile_of(value).axes
        outside = tuple(axis for axis in axes if not axis.in_vector)
        return Layout(block_of(value), outside, tuple(axis for axis in axes if axis.in_vector))


@dataclass(frozen=True, slots=True)
class Product:
    """What all coordinates of a contraction have in common; `rest`: the places along the axes that it sums over."""

    total: SSAValue
    factors: tuple[SSAValue, SSAValue]
    mask: SSAValue | None
    tile: Tile
    rest: list[Point]
    group: tuple[TileAxis, ...]

    @staticmethod
    def of(op: ContractOp) -> Product:
        group = tuple(axis for axis in op.summed if axis.group)
        return Product(op.accumulator, (op.left, op.right), op.mask, op.tile, points(op.summed), group)


def block_of(value: SSAValue) -> Block:
    if isinstance(value, BlockArgument):
        return value.block
    block = value.owner.parent_block() if isinstance(value.owner, Operation) else None
    assert block is not None
    return block
