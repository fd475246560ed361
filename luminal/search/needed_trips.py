"""How many iterations a placed loop with limits has, on the average over the loops around it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Block, SSAValue

from luminal.dialects.kernel.placed_loops import ForOp, ParallelOp

SAMPLES = 16


def needed_trips(op: ForOp, trips: float, dims: Mapping[str, int]) -> float:
    """Of so many iterations, how many are needed, where the guard of the limits holds."""
    bounds = op.bounds
    if not bounds.limits:
        return trips
    counts = [_count(variable, dims) for variable in bounds.variables]
    total = 0.0
    for sample in range(SAMPLES):
        places = [count * (2 * sample + 1) // (2 * SAMPLES) for count in counts]
        first, last = 0.0, trips
        for limit in bounds.limits:
            strides = [stride.evaluate(dims) for stride in limit.strides]
            reach = limit.offset.evaluate(dims) + sum(p * s for p, s in zip(places, strides, strict=True))
            end = float(limit.iteration(reach))
            first, last = (first, min(last, end)) if limit.is_upper else (max(first, end), last)
        total += max(0.0, last - first)
    return total / SAMPLES


def _count(variable: SSAValue, dims: Mapping[str, int]) -> int:
    """The iterations of the loop that a variable belongs to."""
    block = variable.owner
    assert isinstance(block, Block)
    op = block.parent_op()
    if isinstance(op, ParallelOp):
        loop = op.loops.data[list[SSAValue](block.args).index(variable)].data
    else:
        assert isinstance(op, ForOp)
        loop = op.loop.data
    whole = -(-max(1, loop.size.evaluate(dims)) // loop.weight)
    return whole if loop.extent is None else min(whole, loop.extent)
