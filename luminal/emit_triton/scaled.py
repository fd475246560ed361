"""Factors that are numbers of few bits times a scale for each group of them: what `tl.dot_scaled` multiplies as it is.

Nothing is known by name.  What a factor is follows from its values: the one byte that its number, or its scale, is
computed from is given all 256 values, and the results are those of a format.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.ir import SSAValue

from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.placed import ApplyOp, ConstantOp, IndexOp, LoadOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dtype import DType, bf16, f8e4m3fn, from_bits, u8
from luminal.emit_triton.operands import EIGHTS

Array = np.ndarray[Any, Any]
BYTES = np.arange(256, dtype=np.uint8)
NIBBLES = np.stack([BYTES & 15, BYTES >> 4], 1)
NUMBERS: dict[str, Array] = {
    "e4m3": BYTES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)[:, None],
    "e5m2": BYTES.view(ml_dtypes.float8_e5m2).astype(np.float32)[:, None],
    "e2m1": NIBBLES.view(ml_dtypes.float4_e2m1fn).astype(np.float32),
}
"""The numbers of each byte of a format, the first one of its lowest bits."""
POWERS = BYTES.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)[:, None]


@dataclass(frozen=True, slots=True)
class Format:
    """The name in NUMBERS of a format's numbers, the value of each byte of a scale, how many numbers share one, and the
    dtype that Triton is to see a scale's byte as, where that says what it means."""

    numbers: str
    scales: Array
    group: int
    scale: DType | None = None


FORMATS = {
    "e4m3": Format("e4m3", POWERS, 32),
    "e5m2": Format("e5m2", POWERS, 32),
    "e2m1": Format("e2m1", POWERS, 32),
    "nvfp4": Format("e2m1", NUMBERS["e4m3"], 16, f8e4m3fn),
}
"""By the names that targets have for them."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A factor: the loads of its bytes and of its scales, its format, and the axis of the numbers within a byte."""

    bytes: LoadOp
    scales: LoadOp
    format: Format
    within: TileAxis | None


def scaled_factor(value: SSAValue, formats: Collection[str]) -> Scaled | None:
    """What a factor is in one of some formats; None where it is not."""
    owner = _unrounded(value).owner
    if not isinstance(owner, ApplyOp) or owner.op.data != "mul":
        return None
    for number, scale in (owner.inputs, reversed(owner.inputs)):
        of_scale, of_number = _leaves(scale), _leaves(number)
        if of_scale is None or of_number is None or of_scale[1] is not None:
            continue
        within, scales = of_number[1], _values(scale, None)
        for format in (FORMATS[name] for name in formats):
            table = NUMBERS[format.numbers]
            if (within is not None) != (table.shape[1] > 1) or not _is_same(scales, format.scales):
                continue
            if _is_same(_values(number, within), table):
                return Scaled(of_number[0], of_scale[0], format, within)
    return None


def _unrounded(value: SSAValue) -> SSAValue:
    """What a factor was before it went through bf16, which holds every number of a format times any of its scales."""
    owner = value.owner
    while (
        isinstance(owner, ApplyOp)
        and owner.op.data == "cast"
        and tile_of(owner.inputs[0]).dtype.bits >= bf16.bits
    ):
        if not tile_of(value).dtype.is_float or tile_of(value).dtype.bits < bf16.bits:
            break
        value = owner.inputs[0]
        owner = value.owner
    return value


def _leaves(value: SSAValue) -> tuple[LoadOp, TileAxis | None] | None:
    """The one load of bytes that a value is computed from, and the axis of two whose coordinate it needs too."""
    load: LoadOp | None = None
    axis: TileAxis | None = None
    stack, seen = [value], set[SSAValue]()
    while stack:
        owner = (found := stack.pop()).owner
        if found in seen:
            continue
        seen.add(found)
        match owner:
            case ApplyOp():
                stack += owner.inputs
            case ConstantOp():
                pass
            case LoadOp() if load is None and owner.tile.dtype in (u8, *EIGHTS):
                load = owner
            case IndexOp() if axis is None and _counts_two(owner):
                (axis,) = (a for a in owner.tile.axes if a.extent == 2)
            case _:
                return None
    return None if load is None else (load, axis)


def _counts_two(op: IndexOp) -> bool:
    """Whether an index is 0 and 1 along one axis, and nothing else."""
    address = op.address.data
    moves = [a for a, step in zip(op.tile.axes, address.axis_strides, strict=True) if step.constant != 0]
    is_plain = all(stride.constant == 0 for stride in (*address.strides, address.offset))
    return (
        is_plain
        and [axis.extent for axis in moves] == [2]
        and address.axis_strides[op.tile.axes.index(moves[0])] == 1
    )


def _values(value: SSAValue, within: TileAxis | None) -> Array:
    """A value for each byte, [256, 1]; for each place within it too, [256, 2]."""
    known: dict[SSAValue, Array] = {}

    def of(found: SSAValue) -> Array:
        if found not in known:
            known[found] = make(found)
        return known[found]

    def make(found: SSAValue) -> Array:
        owner, dtype = found.owner, tile_of(found).dtype
        shape = (256, 1 if within is None else 2)
        if isinstance(owner, LoadOp):
            return np.broadcast_to(BYTES.view(dtype.numpy)[:, None], shape)
        if isinstance(owner, IndexOp):
            return np.broadcast_to(np.arange(2, dtype=np.int64), shape)
        if isinstance(owner, ConstantOp):
            return np.full(shape, from_bits(owner.bits.data, dtype), dtype.numpy)
        assert isinstance(owner, ApplyOp)
        variant = owner.variant.data if owner.variant is not None else None
        return evaluate_elementwise(owner.op.data, variant, [of(operand) for operand in owner.inputs], dtype)

    return of(value)


def _is_same(found: Array, table: Array) -> bool:
    return (
        found.dtype == table.dtype
        and found.shape == table.shape
        and np.array_equal(found, table, equal_nan=True)
    )


def groups_of(factor: Scaled, inner: Collection[TileAxis]) -> tuple[TileAxis, ...] | None:
    """The axes of the scales among those summed over; None where they are none, or no scale for each group."""
    scales = tuple(axis for axis in inner if axis in factor.scales.tile.axes)
    size = math.prod(axis.extent for axis in inner) // math.prod(axis.extent for axis in scales)
    return scales if scales and size == factor.format.group else None
