"""Fetching what is read next of a packed constant, before it is wanted.

A panel may be read once for every turn of a loop that it does not vary with, such as one over tiles of rows: in the
first turn from memory, as fast as that gives it, and in the others from a cache, when memory has nothing to do.  So
each turn fetches a part of the panel that comes next, spread over the steps of the loop that reads this one:

    for panel:  for turn:  for step:  read panel[step];  fetch (panel + 1)[turn mod PARTS + step / steps]

What is read once is a stream.  Hardware looks ahead along a stream too, but not far, and not into the next page:

    for panel:  for step:  read panel[step];  fetch what lies STREAM_BYTES behind it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import PrefetchOp
from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim, as_dim
from luminal.errors import ScheduleError
from luminal.passes.nest import PlacedBuffer, Scope

PARTS = 4
"""How many parts of a panel are fetched, one in each turn: with as many turns or more, memory has all of their time."""
STREAM_BYTES = 1024
"""How far ahead a stream is fetched: about what memory gives while the first of it is waited for."""

OpenLoop = tuple[int, SSAValue, Dim]
"""The depth of a loop, its variable, and the elements of the buffer from one step of it to the next."""


def fetch_ahead(
    region: Region, path: Sequence[Scope], buffer: PlacedBuffer, reference: SSAValue
) -> tuple[int, PrefetchOp]:
    """The depth of the loop whose steps read a buffer, and what each of them fetches.

    ScheduleError where no loop reads it, or its panels come back and are of symbolic size.
    """
    loops = [
        (
            depth,
            cast(SSAValue, scope.variable),
            buffer.stride(region, scope.factor.index, scope.factor.weight, scope.factor.extent),
        )
        for depth, scope in enumerate(path)
        if scope.factor is not None and scope.factor.role != "unroll"
    ]
    turns = [position for position, (_, _, stride) in enumerate(loops) if stride.constant == 0]
    reads = [loop for loop in loops if loop[2].constant != 0]
    if not reads or loops[-1] is not reads[-1]:
        raise ScheduleError(
            f"buffer {buffer.buffer}: no loop reads on in it, of which more could be fetched ahead"
        )
    outside = [loop for loop in reads if turns and loop[0] < loops[turns[-1]][0]]
    if outside:
        return reads[-1][0], _next_panel(buffer, reference, outside, loops[turns[-1]], loops[turns[-1] + 1 :])
    step = _known(buffer, reads[-1][2])
    distance = STREAM_BYTES // buffer.dtype.size_bytes
    variables, strides = [loop[1] for loop in reads], [loop[2] for loop in reads]
    return reads[-1][0], PrefetchOp.of(reference, variables, strides, distance, step)


def _next_panel(
    buffer: PlacedBuffer,
    reference: SSAValue,
    outside: Sequence[OpenLoop],
    turn: OpenLoop,
    inside: Sequence[OpenLoop],
) -> PrefetchOp:
    """Of the panel after the one that the loops `outside` are at, what a step of those `inside` fetches in a turn."""
    panel = _known(buffer, outside[-1][2])
    steps = [-(-_known(buffer, stride) // PARTS) for _, _, stride in inside]
    variables = [variable for _, variable, _ in (*outside, *inside)]
    strides = [*(stride for _, _, stride in outside), *map(as_dim, steps)]
    parts = (turn[1], PARTS, -(-panel // PARTS))
    return PrefetchOp.of(reference, variables, strides, panel, steps[-1], parts)


def _known(buffer: PlacedBuffer, stride: Dim) -> int:
    if stride.constant is None:
        raise ScheduleError(
            f"buffer {buffer.buffer}: its panels are of symbolic size, and are not fetched ahead"
        )
    return stride.constant
