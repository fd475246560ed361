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


def fetch_ahead(region: Region, path: Sequence[Scope], buffer: PlacedBuffer, reference: SSAValue) -> None:
    """Put what each step of the innermost loop fetches of a buffer in that loop, once.

    ScheduleError where that loop does not read it, or its panels come back and are of symbolic size.
    """
    loops = [scope for scope in path if scope.factor is not None and scope.factor.role != "unroll"]
    strides = [_stride(region, scope, buffer) for scope in loops]
    if not strides or strides[-1].constant == 0:
        raise ScheduleError(
            f"buffer {buffer.buffer}: no loop reads on in it, of which more could be fetched ahead"
        )
    innermost = loops[-1]
    if ("ahead", id(buffer)) in innermost.memo:
        return
    innermost.memo["ahead", id(buffer)] = True
    reads = [(scope, stride) for scope, stride in zip(loops, strides, strict=True) if stride.constant != 0]
    turns = [scope for scope, stride in zip(loops, strides, strict=True) if stride.constant == 0]
    inside = len(loops) - 1 - loops.index(turns[-1]) if turns else len(reads)
    outside, inner = reads[: len(reads) - inside], reads[len(reads) - inside :]
    if outside:
        innermost.block.add_op(_next_panel(buffer, reference, outside, turns[-1], inner))
        return
    variables = [cast(SSAValue, scope.variable) for scope, _ in reads]
    distance, step = STREAM_BYTES // buffer.dtype.size_bytes, _known(buffer, strides[-1])
    innermost.block.add_op(PrefetchOp.of(reference, variables, [s for _, s in reads], distance, step))


def _stride(region: Region, scope: Scope, buffer: PlacedBuffer) -> Dim:
    """The elements of a buffer from one step of an open loop to the next."""
    assert scope.factor is not None
    return buffer.stride(region, scope.factor.index, scope.factor.weight, scope.factor.extent)


def _next_panel(
    buffer: PlacedBuffer,
    reference: SSAValue,
    outside: Sequence[tuple[Scope, Dim]],
    turn: Scope,
    inside: Sequence[tuple[Scope, Dim]],
) -> PrefetchOp:
    """Of the panel after the one that the loops `outside` are at, what a step of those `inside` fetches in a turn."""
    panel = _known(buffer, outside[-1][1])
    steps = [-(-_known(buffer, stride) // PARTS) for _, stride in inside]
    variables = [cast(SSAValue, scope.variable) for scope, _ in (*outside, *inside)]
    strides = [*(stride for _, stride in outside), *map(as_dim, steps)]
    parts = (cast(SSAValue, turn.variable), PARTS, -(-panel // PARTS))
    return PrefetchOp.of(reference, variables, strides, panel, steps[-1], parts)


def _known(buffer: PlacedBuffer, stride: Dim) -> int:
    if stride.constant is None:
        raise ScheduleError(
            f"buffer {buffer.buffer}: its panels are of symbolic size, and are not fetched ahead"
        )
    return stride.constant
