"""Stores of vectors whose lanes lie apart in memory while neighbours along a plain axis lie together.

    four vectors of channels, for the pixels p .. p + 3   ->   for each channel one store of four pixels

Four vectors of 32-bit elements become rows of four by two steps of interleaving within 128 bits; each quarter of what
results is stored at once. Scalars would be extracted and stored one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.dialects.kernel.placed import StoreOp
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.emit_cpu.text import Function, Value, bits_of, lanes_of

QUAD = 4


def quad_axis(op: StoreOp) -> TileAxis | None:
    """The plain axis along which a store of unmasked 32-bit elements is contiguous, where its lanes are not."""
    tile, address = op.tile, op.address.data
    if op.dynamic is not None or op.combine.data != "set" or tile.dtype.bits != 32:
        return None
    if len(tile.vector) != 1 or not tile.lane or tile.lane.extent % QUAD:
        return None
    strides = dict(zip(tile.axes, address.axis_strides, strict=True))
    if strides[tile.lane].constant == 1:
        return None
    plain = (axis for axis in tile.axes if not axis.in_vector and axis.extent >= QUAD)
    return next((axis for axis in plain if strides[axis].constant == 1), None)


def store_quads(f: Function, vectors: Sequence[Value], pointers: Sequence[Value], extra: str) -> None:
    """Store lane n of four vectors, one after the other, at pointer n."""
    first, second, third, fourth = vectors
    lanes = lanes_of(first.type)
    low, high = (
        [_interleaved(f, first, second, half, 1), _interleaved(f, third, fourth, half, 1)] for half in (0, 1)
    )
    rows = [_interleaved(f, a, b, half, 2) for a, b in (low, high) for half in (0, 1)]
    for lane in range(lanes):
        quad = f.shuffle(
            rows[lane % QUAD], rows[lane % QUAD], range(lane // QUAD * QUAD, (lane // QUAD + 1) * QUAD)
        )
        f.store(quad, pointers[lane], bits_of(quad.type) // 8, extra)


def _interleaved(f: Function, a: Value, b: Value, half: int, run: int) -> Value:
    """Of each 128 bits of two vectors one half, runs of so many elements in turn."""
    lanes = lanes_of(a.type)
    picked: list[int] = []
    for start in range(0, lanes, QUAD):
        for place in range(half * 2, half * 2 + 2, run):
            for vector in (0, lanes):
                picked += range(vector + start + place, vector + start + place + run)
    return f.shuffle(a, b, picked)
