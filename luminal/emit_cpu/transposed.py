"""Vectors whose lanes lie apart in memory while neighbours along a plain axis lie together.

    four vectors of channels, for the pixels p .. p + 3   ->   for each channel one store of four pixels
    sixteen vectors of neighbours, one for each lane       <-   sixteen loads, transposed

Vectors are interleaved in pairs within 128 bits, which the processors do in one instruction, until each 128 bits are a
piece of a column; then whole pieces change places. Scalars would be loaded, or extracted and stored, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.dialects.kernel.placed import LoadOp, StoreOp
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.emit_cpu.arithmetic import memory_element
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value, bits_of, lanes_of

QUAD = 4
PIECE_BITS = 128
"""The part of a vector within which an instruction interleaves two of them."""


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


def turned_axis(op: LoadOp) -> TileAxis | None:
    """The plain axis along which a load is contiguous, where its lanes are not and as many neighbours are loaded."""
    tile, address = op.tile, op.address.data
    if op.dynamic is not None or len(tile.vector) != 1 or not tile.lane:
        return None
    lanes = tile.lane.extent
    if lanes & (lanes - 1) or lanes % (PIECE_BITS // bits_of(memory_element(tile.dtype))):
        return None
    strides = dict(zip(tile.axes, address.axis_strides, strict=True))
    if strides[tile.lane].constant in (0, 1):
        return None
    plain = (axis for axis in tile.axes if not axis.in_vector and axis.extent % lanes == 0)
    return next((axis for axis in plain if strides[axis].constant == 1), None)


def transposed(f: Function, vectors: Sequence[Value]) -> list[Value]:
    """As many vectors as each has lanes: number n has lane n of every one of them."""
    size = PIECE_BITS // bits_of(vectors[0].type)
    groups = [_columns(f, vectors[start : start + size]) for start in range(0, len(vectors), size)]
    found: dict[int, Value] = {}
    for place, rows in enumerate(zip(*groups, strict=True)):
        found |= {size * piece + place: row for piece, row in enumerate(_pieces_turned(f, rows, size))}
    return [found[lane] for lane in range(len(vectors))]


def _columns(f: Function, vectors: Sequence[Value]) -> list[Value]:
    """Vectors as many as a piece has elements: number n has in each piece what they have at its place n."""
    if len(vectors) == 1:
        return [*vectors]
    half = len(vectors) // 2
    pairs = zip(_columns(f, vectors[:half]), _columns(f, vectors[half:]), strict=True)
    return [_interleaved(f, a, b, part, half) for a, b in pairs for part in (0, 1)]


def _pieces_turned(f: Function, rows: Sequence[Value], size: int) -> list[Value]:
    """Vectors of as many pieces as there are vectors: number n has piece n of every one of them."""
    if len(rows) == 1:
        return [*rows]
    places = range(2 * lanes_of(rows[0].type))
    halves: list[list[Value]] = []
    for part in (0, 1):
        picked = [place for place in places if place // size % 2 == part]
        halves.append([f.shuffle(a, b, picked) for a, b in zip(rows[::2], rows[1::2], strict=True)])
    return [
        row for pair in zip(*(_pieces_turned(f, half, size) for half in halves), strict=True) for row in pair
    ]


def store_quads(f: Function, vectors: Sequence[Value], pointers: Sequence[Value], extra: str) -> None:
    """Store lane n of four vectors, one after the other, at pointer n."""
    rows = _columns(f, vectors)
    for lane in range(lanes_of(rows[0].type)):
        quad = f.shuffle(
            rows[lane % QUAD], rows[lane % QUAD], range(lane // QUAD * QUAD, (lane // QUAD + 1) * QUAD)
        )
        f.store(quad, pointers[lane], bits_of(quad.type) // 8, extra)


def _interleaved(f: Function, a: Value, b: Value, half: int, run: int) -> Value:
    """Of each piece of two vectors one half, runs of so many elements in turn."""
    lanes, size = lanes_of(a.type), PIECE_BITS // bits_of(a.type)
    picked: list[int] = []
    for start in range(0, lanes, size):
        for place in range(half * size // 2, (half + 1) * size // 2, run):
            for vector in (0, lanes):
                picked += range(vector + start + place, vector + start + place + run)
    return f.shuffle(a, b, picked)
