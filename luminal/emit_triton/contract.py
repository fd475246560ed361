"""Sums of products of blocks: `tl.dot` where the shapes allow it, else a product in full and its sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import ApplyOp, ConstantOp, ContractOp, LoadOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dtype import DType, f32, f64, u8
from luminal.emit_triton.arithmetic import NARROW
from luminal.emit_triton.operands import EIGHTS, narrowest
from luminal.emit_triton.scaled import groups_of, scaled_factor
from luminal.emit_triton.text import TRUE, Value, atom, call, check_block, shape_text, type_text
from luminal.emit_triton.writes import guards_of

if TYPE_CHECKING:
    from luminal.emit_triton.blocks import BlockWriter

LEAST = 16
"""The least extent of each side of a product of blocks."""
EXACT_AFTER = 128
"""Products of two numbers of 8 bits that Hopper's units may add up with less than f32's precision."""
Axes = tuple[TileAxis, ...]


def write_contract(writer: BlockWriter, op: ContractOp, addend: Value | None = None) -> Value:
    """The value of a contract, and lines for what it needs; `addend`: what it starts from, where that is not its own
    accumulator, which is 0 then."""
    dtype = op.tile.dtype
    total = writer.value(op.accumulator) if addend is None else addend
    mask = writer.value(op.mask) if op.mask is not None else TRUE
    if not writer.addresses.axes(op.summed):
        return _multiply_add(writer, op, total, mask)
    product, is_plain_dot = _dot(writer, op, mask) or (_sum(writer, op, mask), False)
    if addend is None and starts_from_zero(op):
        text = product.text
        return Value(f"{text}.to({type_text(dtype)})" if dtype in NARROW else text, product.axes)
    axes = writer.addresses.axes([*total.axes, *product.axes])
    if is_plain_dot and total.axes == axes and dtype not in NARROW:
        return Value(f"{product.text.removesuffix(')')}, acc={total.text})", axes)
    texts = [total.fit(axes), product.fit(axes)]
    if dtype in NARROW:
        return Value(f"({atom(texts[0])}.to(tl.float32) + {atom(texts[1])}).to({type_text(dtype)})", axes)
    return Value(f"{atom(texts[0])} + {atom(texts[1])}", axes)


def starts_from_zero(op: ContractOp) -> bool:
    start = op.accumulator.owner
    return isinstance(start, ConstantOp) and start.bits.data == 0


def _multiply_add(writer: BlockWriter, op: ContractOp, total: Value, mask: Value) -> Value:
    left, right = writer.value(op.left), writer.value(op.right)
    axes = writer.addresses.axes([a for value in (total, left, right, mask) for a in value.axes])
    old, x, y = (value.fit(axes) for value in (total, left, right))
    if op.tile.dtype in NARROW:
        wide = " ".join(f"{atom(v)}.to(tl.float32) {sign}" for v, sign in ((x, "*"), (y, "+"), (old, "")))
        new = f"({wide.strip()}).to({type_text(op.tile.dtype)})"
    else:
        new = f"{atom(old)} + {atom(x)} * {atom(y)}"
    return Value(new if mask is TRUE else call("tl.where", mask.fit(axes), new, old), axes)


def _sum(writer: BlockWriter, op: ContractOp, mask: Value) -> Value:
    """The product in full, what is masked off being nothing, summed over the axes that the accumulator lacks."""
    summed = writer.addresses.axes(op.summed)
    left, right = writer.value(op.left), writer.value(op.right)
    present = writer.addresses.axes([*left.axes, *right.axes, *mask.axes, *summed])
    check_block(present)
    x, y = (_wide(value.fit(present), op.tile.dtype) for value in (left, right))
    text, known = f"{atom(x)} * {atom(y)}", {*left.axes, *right.axes}
    if mask is not TRUE:
        text, known = call("tl.where", mask.fit(present), text, "0.0"), known | {*mask.axes}
    if not set(present) <= known:
        text = call("tl.broadcast_to", text, shape_text(present))
    for position in reversed(range(len(present))):
        if present[position] in summed:
            text = call("tl.sum", text, f"axis={position}")
    return Value(text, tuple(axis for axis in present if axis not in summed))


def _wide(text: str, dtype: DType) -> str:
    return f"{atom(text)}.to(tl.float32)" if dtype in NARROW else text


def _dot(writer: BlockWriter, op: ContractOp, mask: Value) -> tuple[Value, bool] | None:
    """tl.dot over the axes that both operands have and the accumulator lacks, and whether its result is the value as it
    is; None where shapes are not its own."""
    order = writer.addresses.axes
    inner, out = order(op.summed), order(op.tile.axes)
    count = math.prod(axis.extent for axis in inner)
    factors = narrowest(op.left, op.right, count, writer.options.eights)
    left, right, dtype = factors.left, factors.right, factors.dtype
    if dtype.name in writer.options.undotted:
        return None
    x, y = writer.value(left), writer.value(right)
    batch = tuple(axis for axis in out if axis in x.axes and axis in y.axes)
    rows = tuple(axis for axis in out if axis in x.axes and axis not in batch)
    columns = tuple(axis for axis in out if axis in y.axes and axis not in batch)
    if rows and columns and out.index(columns[0]) < out.index(rows[0]):
        left, right, x, y, rows, columns = right, left, y, x, columns, rows
    small = min(math.prod(a.extent for a in axes) for axes in (rows, columns)) < LEAST
    if small or count < LEAST or not set(inner) <= set(x.axes) & set(y.axes):
        return None
    scaled = None if batch else _scaled_dot(writer, op, rows, columns, inner, mask)
    if scaled is not None:
        return _product(scaled, (*rows, *columns), out, (rows, columns))
    if mask is not TRUE:
        if not set(mask.axes) <= set(x.axes) & set(y.axes):
            return None
        x, y = (_masked(writer, op, value, found, mask) for value, found in ((left, x), (right, y)))
    x, y = (_converted(writer, value, found, dtype) for value, found in ((left, x), (right, y)))
    groups = [batch] if batch else []
    arguments = [_regroup(x, [*groups, rows, inner]), _regroup(y, [*groups, inner, columns])]
    if dtype is f32:
        arguments.append('input_precision="ieee"')
    if dtype is f64:
        arguments.append("out_dtype=tl.float64")
    if dtype in EIGHTS:
        arguments.append(f"max_num_imprecise_acc={min(EXACT_AFTER, count)}")
    return _product(call("tl.dot", *arguments), (*batch, *rows, *columns), out, (batch, rows, columns))


def _product(text: str, found: Axes, out: Axes, groups: Sequence[Axes]) -> tuple[Value, bool]:
    """A product with an axis for each of its own, and whether it is the value as it is."""
    wanted = tuple(axis for axis in out if axis in found)
    merges = any(len(group) > 1 for group in groups)
    if merges:
        text = f"{text}.reshape({shape_text(found)})"
    if found != wanted:
        text = turned(text, found, wanted)
    return Value(text, wanted), not merges and found == wanted


def _converted(writer: BlockWriter, value: SSAValue, found: Value, dtype: DType) -> Value:
    return Value(writer.arithmetic.cast(found.text, tile_of(value).dtype, dtype, "none"), found.axes)


def _scaled_dot(
    writer: BlockWriter, op: ContractOp, rows: Axes, columns: Axes, inner: Axes, mask: Value
) -> str | None:
    """tl.dot_scaled of factors that are numbers of few bits with scales, the left one with the rows; None where they
    are not, or their groups differ."""
    formats = writer.options.scaled
    found = [scaled_factor(value, formats) for value in (op.left, op.right)] if formats else [None]
    factors = [factor for factor in found if factor is not None]
    if len(factors) < 2:
        return None
    if set(rows) & set(tile_of(op.right).axes):
        factors.reverse()
    groups = [groups_of(factor, inner) for factor in factors]
    guards = guards_of(op.mask) if op.mask is not None else set[SSAValue]()
    is_zero = mask is TRUE or all(_is_zero_outside(factor.bytes.result, guards) for factor in factors)
    sizes = {factor.format.group for factor in factors}
    if groups[0] is None or groups[0] != groups[1] or len(sizes) > 1 or not is_zero:
        return None
    within = [factor.within for factor in factors]
    last = next((axis for axis in within if axis is not None), None)
    order = (*groups[0], *(a for a in inner if a not in groups[0] and a != last), *([last] if last else ()))
    arguments: list[str] = []
    for factor, side, is_left in zip(factors, (rows, columns), (True, False), strict=True):
        packed = tuple(axis for axis in order if axis != factor.within)
        order_of_side = [side, packed] if is_left else [packed, side]
        numbers, scales = (writer.value(load.result) for load in (factor.bytes, factor.scales))
        if {*numbers.axes} != {*side, *packed} or {*scales.axes} != {*side, *groups[0]}:
            return None
        seen = factor.format.scale
        kind = f".to({type_text(seen)}, bitcast=True)" if seen and factor.scales.tile.dtype is u8 else ""
        arguments += [
            _regroup(numbers, order_of_side),
            f"{atom(_regroup(scales, [side, groups[0]]))}{kind}",
            f'"{factor.format.numbers}"',
        ]
    return call("tl.dot_scaled", *arguments)


def _masked(writer: BlockWriter, op: ContractOp, value: SSAValue, found: Value, mask: Value) -> Value:
    """An operand that is 0 where the mask is off: as it is where it is known to be, else by a select."""
    assert op.mask is not None
    if _is_zero_outside(value, guards_of(op.mask)):
        return found
    dtype = tile_of(value).dtype
    zero = "0.0" if dtype is f32 else writer.arithmetic.constant(0, dtype).text
    return Value(call("tl.where", mask.fit(found.axes), found.text, zero), found.axes)


def _is_zero_outside(value: SSAValue, guards: set[SSAValue]) -> bool:
    """Whether a value is 0 wherever one of some guards is off: a load masked by them all, or a conversion of one."""
    owner = value.owner
    if isinstance(owner, LoadOp):
        return owner.mask is not None and guards <= guards_of(owner.mask)
    return (
        isinstance(owner, ApplyOp) and owner.op.data == "cast" and _is_zero_outside(owner.inputs[0], guards)
    )


def _regroup(value: Value, groups: Sequence[Axes]) -> str:
    """A block with one dimension for each group of its axes."""
    flat = tuple(axis for group in groups for axis in group)
    text = value.text if flat == value.axes else turned(value.text, value.axes, flat)
    if all(len(group) == 1 for group in groups):
        return text
    sizes = ", ".join(str(math.prod(axis.extent for axis in group)) for group in groups)
    return f"{atom(text)}.reshape([{sizes}])"


def turned(text: str, axes: Axes, wanted: Axes) -> str:
    """A block with its axes in another order."""
    if len(axes) == 2:
        return call("tl.trans", text)
    return call("tl.permute", text, f"[{', '.join(str(axes.index(axis)) for axis in wanted)}]")
