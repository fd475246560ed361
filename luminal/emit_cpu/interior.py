"""Where the masks of loads hold throughout: the inside of a padded image, in which no load needs a guard.

    for i2: for r1: load x[i2 + r1 - 1] if 1 <= i2 + r1 and i2 + r1 < 113
    ->  for i2: if the two hold for all r1 and all lanes: the loops without masks, else: the loops with them

    for i: out[i] = x[i] if i < 1024 else y[i - 1024]
    ->  for i < 1024: out[i] = x[i];  for 1024 <= i: out[i] = y[i - 1024]

A part of a mask compares an affine index with a number. Where that moves with a single loop of known bounds, the loop
is cut where the part begins or ceases to hold. The loops around a load that carry values are reductions; the
body of the innermost loop outside of them is written twice, and asks before it begins whether each part holds at the
least and at the greatest index that the loops inside and the tile reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from luminal.dialects.kernel.placed import ApplyOp, ConstantOp, IndexOp, LoadOp
from luminal.dialects.kernel.placed_loops import ForOp, FunctionOp
from luminal.dim import Dim
from luminal.emit_cpu.addresses import AddressWriter, Point
from luminal.emit_cpu.text import Index


@dataclass(frozen=True, eq=False)
class Part:
    """One comparison: `index < limit`, or `limit <= index` where `is_lower`."""

    compare: ApplyOp
    index: IndexOp
    limit: int
    is_lower: bool


def part_of(compare: ApplyOp) -> Part | None:
    """An operation as a part of a mask that can be decided for a whole range; None where it is none."""
    if compare.op.data != "less_than" or compare.variant is None or compare.variant.data not in ("lt", "le"):
        return None
    left, right = (operand.owner for operand in compare.inputs)
    strict = compare.variant.data == "lt"
    if isinstance(left, IndexOp) and isinstance(right, ConstantOp):
        return Part(compare, left, _signed(right) + (not strict), is_lower=False)
    if isinstance(left, ConstantOp) and isinstance(right, IndexOp):
        return Part(compare, right, _signed(left) + strict, is_lower=True)
    return None


def _signed(op: ConstantOp) -> int:
    return op.bits.data - (op.bits.data >> 63 << 64)


def interiors(function: FunctionOp) -> dict[Block, list[Part]]:
    """The blocks that are written twice, with the parts of the masks inside."""
    found: dict[Block, dict[ApplyOp, Part]] = {}
    for load in function.walk():
        if not isinstance(load, LoadOp) or load.mask is None:
            continue
        block = _outside_of_reductions(load)
        for compare in _compared(load.mask):
            part = part_of(compare)
            if part is not None and part.index.variables and _is_inside(compare.parent_block(), block):
                found.setdefault(block, {})[compare] = part
    return {block: list(parts.values()) for block, parts in found.items()}


def _outside_of_reductions(load: LoadOp) -> Block:
    block = load.parent_block()
    assert block is not None
    while isinstance(loop := block.parent_op(), ForOp) and loop.inits:
        block = loop.parent_block()
        assert block is not None
    return block


def _compared(mask: SSAValue) -> Iterator[ApplyOp]:
    """The operations that all hold where a mask does."""
    owner = mask.owner
    if not isinstance(owner, ApplyOp):
        return
    if owner.op.data == "bits" and owner.variant is not None and owner.variant.data == "and":
        for operand in owner.inputs:
            yield from _compared(operand)
    else:
        yield owner


def _is_inside(inner: Block | None, block: Block) -> bool:
    """Whether a block is another one, or stands in it at any depth."""
    while inner is not None and inner is not block:
        owner = inner.parent_op()
        inner = None if owner is None else owner.parent_block()
    return inner is block


def turning(part: Part, variable: SSAValue) -> tuple[int, int] | None:
    """The iterations of a loop before which a part is one thing throughout, and from which on it is the other: an upper
    limit holds first, a lower one last. None where other loops move it too, or that is not known."""
    address, tile = part.index.address.data, part.index.tile
    steps = [stride.constant for stride in (*address.strides, address.offset, *address.axis_strides)]
    known = [step for step in steps if step is not None]
    if list(part.index.variables) != [variable] or len(known) < len(steps):
        return None
    step, offset, *strides = known
    if step <= 0 or min(strides, default=0) < 0:
        return None
    ahead = sum(stride * (axis.extent - 1) for axis, stride in zip(tile.axes, strides, strict=True))
    return -((offset + ahead - part.limit) // step), -((offset - part.limit) // step)


def holds(part: Part, block: Block, tiles: AddressWriter) -> Index | bool | None:
    """Whether a part holds wherever the loops inside of a block and the tile reach: known, an i1, or None where it
    cannot be asked, since the sign of a stride is not known."""
    address, known, spans = part.index.address.data, list[tuple[SSAValue, Dim]](), list[Dim]()
    for variable, stride in zip(part.index.variables, address.strides, strict=True):
        own = variable.owner
        assert isinstance(own, Block)
        if own is not block and _is_inside(own, block):
            spans.append(stride * (_trips(variable) - 1))
        else:
            known.append((variable, stride))
    for axis, stride in zip(part.index.tile.axes, address.axis_strides, strict=True):
        spans.append(stride * (axis.extent - 1))
    extreme = _extreme(address.offset, spans, part.is_lower)
    if extreme is None:
        return None
    reached = tiles.affine([variable for variable, _ in known], [stride for _, stride in known], extreme)
    if isinstance(reached, int):
        return reached >= part.limit if part.is_lower else reached < part.limit
    return tiles.f.compare(f"icmp {'sge' if part.is_lower else 'slt'}", reached, part.limit)


def always_holds(part: Part, tiles: AddressWriter, point: Point) -> bool:
    """Whether a part holds for one coordinate, whatever the loops' variables are."""
    address, spans = part.index.address.data, list[Dim]()
    offset = tiles.offset(address, part.index.tile.axes, point)
    for variable, stride in zip(part.index.variables, address.strides, strict=True):
        value = tiles.variables[variable][0]
        if isinstance(value, int):
            offset = offset + stride * value
        elif isinstance(variable.owner, Block) and isinstance(variable.owner.parent_op(), ForOp):
            spans.append(stride * (_trips(variable) - 1))
        else:
            return False
    for axis, stride in zip(part.index.tile.axes, address.axis_strides, strict=True):
        if axis.in_vector:
            spans.append(stride * (axis.extent - 1))
    extreme = _extreme(offset, spans, part.is_lower)
    least, greatest = (None, None) if extreme is None else extreme.bounds()
    if part.is_lower:
        return least is not None and least >= part.limit
    return greatest is not None and greatest < part.limit


def _extreme(offset: Dim, spans: Sequence[Dim], least: bool) -> Dim | None:
    """The least or the greatest of an index that moves by each span or not at all; None where a sign is not known."""
    for span in spans:
        low, high = span.bounds()
        if low is not None and low >= 0:
            offset = offset if least else offset + span
        elif high is not None and high <= 0:
            offset = offset + span if least else offset
        else:
            return None
    return offset


def _trips(variable: SSAValue) -> Dim:
    """The most iterations of a loop."""
    block = variable.owner
    assert isinstance(block, Block)
    loop = block.parent_op()
    assert isinstance(loop, ForOp), "the loops inside of a block are sequential"
    return loop.loop.data.most
