"""What all operations of the placed form share: the tiles and references of their values, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.kernel.placed_types import Reference, ReferenceType, Tile, TileAxis, TileType


def tile_of(value: SSAValue) -> Tile:
    """The tile of a value; VerifyException where its type is none."""
    if not isinstance(value.type, TileType):
        raise VerifyException(f"expected a kernel.tile, got {value.type}")
    return value.type.data


def reference_of(value: SSAValue) -> Reference:
    """The memory that a value refers to; VerifyException where its type is none."""
    if not isinstance(value.type, ReferenceType):
        raise VerifyException(f"expected a kernel.ref, got {value.type}")
    return value.type.data


def merge_axes(tiles: Iterable[Tile]) -> tuple[TileAxis, ...]:
    """The union of axes, in the order of the tiles that hold them; the lane axis last but for the group axis."""
    axes = {axis: None for tile in tiles for axis in tile.axes}
    return tuple(sorted(axes, key=lambda axis: (axis.group, axis.lane)))


def check(condition: bool, message: str) -> None:
    """VerifyException with the message, unless the condition holds."""
    if not condition:
        raise VerifyException(message)


def check_covers(result: Tile, operands: Sequence[SSAValue], what: str) -> None:
    """VerifyException where an operand has an axis that the result lacks."""
    for operand in operands:
        extra = [str(axis) for axis in tile_of(operand).axes if axis not in result.axes]
        check(not extra, f"{what}: operand axes {extra} are not in the result {result}")


class KernelOperation(IRDLOperation):
    """Shared access to the results of kernel operations."""

    @property
    def tile(self) -> Tile:
        return tile_of(self.results[0])
