"""Blocks of a product as boxes of tensors in memory, which one instruction of a GPU loads: TMA, from a descriptor.

A dimension of a box runs along one axis of a tile; a loop over another index is a dimension of which the box has one
step.  What lies outside of a tensor is loaded as 0, as masked elements are: a guard is the end of a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from luminal.dialects.kernel.placed import ContractOp, GuardOp, LoadOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import ForOp, ParallelOp
from luminal.dialects.kernel.placed_types import Loop, TileAxis
from luminal.dim import Dim, as_dim, divide_exact, known_less_equal, typical
from luminal.emit_triton.operands import narrowest
from luminal.emit_triton.sizes import fits_32
from luminal.emit_triton.writes import guards_of

BYTES = 16
"""What addresses and all strides but the last are multiples of, and the least bytes of a row of a box."""
MOST_SIDES, LONGEST = 5, 256
"""Dimensions of a tensor, and elements of a box along one of them."""
Moves = tuple[tuple[SSAValue, int], ...]


@dataclass(frozen=True, slots=True)
class Side:
    """A dimension: elements of memory from one of its `size` coordinates to the next; the tile's axis along it, where
    the box has more than one step; the loop variables that move the box along it, each with its steps."""

    stride: Dim
    size: Dim
    axis: TileAxis | None
    moves: Moves

    @property
    def extent(self) -> int:
        return 1 if self.axis is None else self.axis.extent


@dataclass(frozen=True, slots=True)
class Box:
    """What a load takes: its sides, the last one of stride 1, and the elements before the tensor."""

    sides: tuple[Side, ...]
    offset: int

    @property
    def axes(self) -> tuple[TileAxis, ...]:
        return tuple(side.axis for side in self.sides if side.axis is not None)


def boxes_of(ops: Sequence[Operation], eights: frozenset[str]) -> dict[LoadOp, Box]:
    """The loads among some operations that are boxes, of those that products of 16 bits or less take as they are."""
    loops = _loops(ops)
    found: dict[LoadOp, Box] = {}
    for op in (inner for outer in ops for inner in outer.walk()):
        if not isinstance(op, ContractOp):
            continue
        count = 1
        for axis in op.summed:
            count *= axis.extent
        factors = narrowest(op.left, op.right, count, eights)
        for load in (factors.left.owner, factors.right.owner):
            box = box_of(load, loops) if isinstance(load, LoadOp) and factors.dtype.bits <= 16 else None
            if box is not None and isinstance(load, LoadOp):
                found[load] = box
    return found


def _loops(ops: Sequence[Operation]) -> dict[SSAValue, Loop]:
    """The loop of each variable."""
    found: dict[SSAValue, Loop] = {}
    for op in (inner for outer in ops for inner in outer.walk()):
        if isinstance(op, ForOp):
            found[op.body.block.args[0]] = op.loop.data
        elif isinstance(op, ParallelOp):
            found |= {v: loop.data for v, loop in zip(op.body.block.args, op.loops)}
    return found


def box_of(op: LoadOp, loops: dict[SSAValue, Loop]) -> Box | None:
    """A load as a box; None where its address is data, a stride is not aligned, or a coordinate may leave its
    dimension."""
    address, width = op.address.data, op.tile.dtype.size_bytes
    strides = {v: s for v, s in zip(op.variables, address.strides, strict=True) if s != 0}
    pairs = zip(op.tile.axes, address.axis_strides, strict=True)
    steps = {axis: step for axis, step in pairs if axis.extent > 1}
    guards = _guards(op)
    offset = address.offset.constant
    if op.dynamic is not None or guards is None or offset is None or offset < 0 or offset * width % BYTES:
        return None
    sides: list[Side] = []
    for axis, stride in steps.items():
        own = [v for v in strides if loops[v].index == axis.index]
        side = _side(axis, stride, {v: strides.pop(v) for v in own}, loops, guards.pop(axis, None))
        if side is None:
            return None
        sides.append(side)
    for variable, stride in strides.items():
        loop = loops[variable]
        count = loop.whole if loop.extent is None else as_dim(loop.extent)
        sides.append(Side(stride, count, None, ((variable, 1),)))
    sides.sort(key=lambda side: (typical(side.stride), side.extent > 1), reverse=True)
    sides = [side for side in sides if side.extent > 1 or side.size != 1]
    return Box(tuple(sides), offset) if not guards and _is_tensor(op, sides, offset, width) else None


def _guards(op: LoadOp) -> dict[TileAxis, GuardOp] | None:
    """The guard of each axis that a load's mask is made of; None where it is made of others."""
    found: dict[TileAxis, GuardOp] = {}
    for value in guards_of(op.mask) if op.mask is not None else ():
        guard = value.owner
        if not isinstance(guard, GuardOp):
            return None
        axes = [(a, s) for a, s in zip(guard.tile.axes, guard.steps, strict=True) if a.extent > 1]
        if len(axes) != 1 or axes[0][1] != 1 or axes[0][0] in found:
            return None
        found[axes[0][0]] = guard
    return found


def _side(
    axis: TileAxis, stride: Dim, own: dict[SSAValue, Dim], loops: dict[SSAValue, Loop], guard: GuardOp | None
) -> Side | None:
    """The dimension along an axis, which loops over the same index move along."""
    moves: list[tuple[SSAValue, int]] = []
    for variable, step in own.items():
        count = divide_exact(step, stride)
        if count is None or count != loops[variable].weight:
            return None
        moves.append((variable, loops[variable].weight))
    if guard is None:
        size = loops[moves[0][0]].size if moves else as_dim(axis.extent)
    elif {*zip(guard.variables, guard.outer, strict=True)} == {*moves}:
        size = guard.size.data
    else:
        return None
    return Side(stride, size, axis, tuple(moves))


def _is_tensor(op: LoadOp, sides: Sequence[Side], offset: int, width: int) -> bool:
    """Whether sides, outermost first, are those of a tensor that a descriptor describes, all inside its memory."""
    if not 2 <= len(sides) <= MOST_SIDES or any(side.extent > LONGEST for side in sides):
        return False
    last = sides[-1]
    if last.stride != 1 or last.extent * width < BYTES:
        return False
    if any(divide_exact(side.stride * width, BYTES) is None for side in sides[:-1]):
        return False
    if not all(fits_32(side.size) for side in sides):
        return False
    room: Dim = reference_of(op.reference).elements - offset
    for outer, inner in zip((None, *sides), sides):
        whole = room if outer is None else outer.stride
        if not known_less_equal(inner.stride * (inner.size - 1) + 1, whole):
            return False
    return True
