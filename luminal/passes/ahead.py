"""Fetching the next panel of a packed constant while this one is used.

A panel is read once for every turn of a loop that it does not vary with, such as one over tiles of rows: from memory in
the first turn, as fast as that gives it, and from a cache in the others, when memory has nothing to do.  So each turn
fetches a part of the panel that comes next, spread over the steps of the loop that reads this one:

    for panel:  for turn:  for step:  read panel[step];  fetch (panel + 1)[turn mod PARTS + step / steps]
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


def fetch_ahead(
    region: Region, path: Sequence[Scope], buffer: PlacedBuffer, reference: SSAValue
) -> tuple[int, PrefetchOp]:
    """The depth of the loop whose steps read a panel, and what each of them fetches of the next one.

    ScheduleError where the panel is not read again in each turn of a loop, or is of symbolic size.
    """
    loops = [
        (depth, scope, buffer.stride(region, scope.factor.index, scope.factor.weight, scope.factor.extent))
        for depth, scope in enumerate(path)
        if scope.factor is not None and scope.factor.role != "unroll"
    ]
    turns = [position for position, (_, _, stride) in enumerate(loops) if stride.constant == 0]
    turn = turns[-1] if turns else 0
    outside, inside = loops[:turn], loops[turn + 1 :]
    panels = [stride for _, _, stride in outside if stride.constant != 0]
    if not panels or not inside:
        raise ScheduleError(f"buffer {buffer.buffer}: no loop reads a panel of it again in each turn")
    panel = _known(buffer, panels[-1])
    steps = [-(-_known(buffer, stride) // PARTS) for _, _, stride in inside]
    used = [(scope, stride) for _, scope, stride in outside if stride.constant != 0]
    variables = [
        cast(SSAValue, scope.variable) for scope in (*(s for s, _ in used), *(s for _, s, _ in inside))
    ]
    strides = [*(stride for _, stride in used), *map(as_dim, steps)]
    fetched = PrefetchOp.of(
        reference,
        variables,
        strides,
        panel,
        cast(SSAValue, loops[turn][1].variable),
        (PARTS, -(-panel // PARTS)),
        steps[-1],
    )
    return inside[-1][0], fetched


def _known(buffer: PlacedBuffer, stride: Dim) -> int:
    if stride.constant is None:
        raise ScheduleError(
            f"buffer {buffer.buffer}: its panels are of symbolic size, and are not fetched ahead"
        )
    return stride.constant
