"""A roofline that orders schedules: seconds of one core from flops, vector operations, bytes and packing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from luminal.dialects.kernel.terms import Term
from luminal.search.machine import Machine
from luminal.search.rereads import bytes_read_again
from luminal.search.shapes import Contraction, Shapes
from luminal.search.stage import StageView
from luminal.search.tiling import Tiling, Way

# Vector operations that an elementwise primitive costs, beyond the one of an addition.
OPERATION_COST = {
    "exp2": 12.0,
    "log2": 16.0,
    "sin": 24.0,
    "sqrt": 8.0,
    "recip": 6.0,
    "mod": 12.0,
    "load": 1.0,
}
STRIDED_COST = 12.0
TURNED_COST = 5.0
"""Vector operations of a vector that is loaded along another index than its lanes, and transposed in registers."""
PICKED_COST = {2: 3.0, 3: 5.0, 4: 7.0}
"""Vector operations of a load by its stride, where whole vectors are read and every so manieth element is picked."""
AROUND_COST = 3.0
"""Vector operations that add a sum of integers, scaled, to the sum that it is part of."""
STEP_CYCLES = 0.5
"""Of the loop over the sum itself, a step."""
LOADS_A_CYCLE = {1: 2.0, 2: 1.5}
"""Of factors, by the multiply-adds that begin in a cycle: where those are two, loads are in their way."""
FMA_LATENCY = 5.0
"""Cycles of a step of the sum, at least, until the sums of the step before are there."""
TILE_CYCLES = 12.0
"""What a register tile costs for each accumulator beside its sum: to set it, and to write what becomes of it."""
PARTIAL_ADDENDS, SPILL_CYCLES = 224, 8.0
"""Of short sums, roughly; and to add one to a long one that has no register, by accumulator."""
STRIDED_SECONDS = 0.7e-9
HOP_SECONDS, PAGE_BYTES, LINE_BYTES = 8e-9, 4096, 64
"""What it takes to go on in another page, where no hardware has looked ahead."""
FAR_BYTES, STORE_PART = 2048, 0.5
"""Steps from which on that is so, within a page too; and what part of it a store takes, which nothing waits for."""
NEAR_PAGES, NEAR_PART = 1024, 0.5
"""Pages whose addresses a core remembers, and what part of that it takes to come back to one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of one core for the whole region, its memory aside, and how many independent parts it has.

    `traffic`: seconds in which one core moves its memory; `ahead`: those of them that pass while something else
    is computed.  `before`: the phases before the last one that wait for each other, each as its part of the seconds and
    its own grid.
    """

    computing: float
    grid: int
    before: tuple[tuple[float, int], ...] = ()
    traffic: float = 0.0
    ahead: float = 0.0

    @property
    def core_seconds(self) -> float:
        """Of one core for the whole region; memory is waited for in part while computing."""
        waited = max(0.0, self.traffic - self.ahead)
        return max(self.computing, self.traffic) + 0.5 * min(self.computing, waited)

    def seconds(self, machine: Machine) -> float:
        if machine.threads == 1 or self.core_seconds < 2 * machine.waking:  # no other thread is woken
            return self.core_seconds
        last = 1.0 - sum(part for part, _ in self.before)
        phases = (*self.before, (last, self.grid))
        share = sum(part * -(-grid // machine.threads) / grid for part, grid in phases)
        return self.core_seconds * share + machine.waking * sum(grid > 1 for _, grid in phases)


def traffic_seconds(shapes: Shapes, machine: Machine) -> float:
    """Every argument read once, as far as it is, and every output written; and what passes after the first read again,
    by one core."""
    read, written = bytes_touched(shapes)
    return (read + 2 * written + bytes_read_again(shapes, machine.l2)) / machine.bandwidth


def bytes_touched(shapes: Shapes) -> tuple[int, int]:
    """Bytes of the arguments, as far as they are read, and of the outputs."""
    region = shapes.region
    loaded = [0] * len(region.arguments)
    for term in region.terms():
        if term.op == "load":
            loaded[term.load.argument] += shapes.volume(term.free)
    sizes = ((a.elements.evaluate(shapes.values), a.dtype.size_bytes) for a in region.arguments)
    read = sum(min(size, count) * width for (size, width), count in zip(sizes, loaded, strict=True))
    return read, sum(o.elements.evaluate(shapes.values) * o.dtype.size_bytes for o in region.outputs)


def row_seconds(
    shapes: Shapes,
    roots: tuple[Term, ...],
    stops: frozenset[Term],
    machine: Machine,
    lane: str,
    waste: float,
    tiled: Collection[str] = (),
    written: Mapping[str, int] | None = None,
) -> float:
    """Every term once for each value of its indices, in vectors along `lane`; what `stops` hold is read.

    `tiled`: indices of which a register tile has as many as lanes, so that what is contiguous along one is transposed.
    `written`: so many steps of some indices are written out together, and read once what they have in common.
    """
    operations = 0.0
    for term in shapes.below(roots, stops):
        is_read = term in stops and term not in roots
        reduces = term.op == "reduce" and not is_read
        indices = set(term.free) | (set(term.reduce.indices) if reduces else set[str]())
        volume = shapes.volume(indices)
        vector = machine.lanes if lane in indices else 1
        cost = 1.0 if is_read else OPERATION_COST.get(term.op, 1.0)
        if term.op == "load" and written:
            cost *= _different(shapes, term, written)
        if term.op == "load" and lane in term.free and (stride := shapes.stride(term, lane)) != 1:
            is_turned = any(shapes.stride(term, index) == 1 for index in tiled)
            cost *= TURNED_COST if is_turned else PICKED_COST.get(stride or 0, STRIDED_COST)
        operations += volume * cost / vector
    return operations * waste / machine.vectors_a_second


def hop_seconds(
    shapes: Shapes,
    view: StageView,
    machine: Machine,
    covered: Mapping[str, int],
    loops: Sequence[tuple[str, int]],
) -> float:
    """Memory that is larger than a core's cache in pieces, of which each lies in another page than the last.

    `covered`: what register tiles have of their indices; `loops`: index and iterations of each, the innermost first.
    """
    found = [
        ({index: shapes.stride(term, index) for index in term.free}, term.dtype, 1.0)
        for term in shapes.below(view.roots, view.stops)
        if term.op == "load"
    ]
    if view.strides:
        found.append(({index: view.strides[index] for index in view.free}, view.roots[0].dtype, STORE_PART))
    return HOP_SECONDS * sum(
        part * _hops(shapes, strides, dtype.size_bytes, machine, covered, loops)
        for strides, dtype, part in found
        if shapes.volume({*strides}) * dtype.size_bytes > machine.l2
    )


def _hops(
    shapes: Shapes,
    strides: Mapping[str, int | None],
    size: int,
    machine: Machine,
    covered: Mapping[str, int],
    loops: Sequence[tuple[str, int]],
) -> float:
    """Of one access with these strides in elements of `size` bytes: steps away from what was touched last, a step among
    pages that the loop outside comes back to counting as a part of one."""
    run = math.prod(count for index, count in covered.items() if strides.get(index) == 1)
    if run * size >= LINE_BYTES:  # whole lines, of which several may lie in a page
        steps = (((strides.get(i) or 0) * size, count) for i, count in covered.items())
        run *= math.prod(min(count, max(1, PAGE_BYTES // step)) for step, count in steps if step > size)
    reach = dict(covered)
    for place, (index, trips) in enumerate(loops):
        step = (strides.get(index) or 0) * reach.get(index, 1) * size
        reach[index] = reach.get(index, 1) * trips
        if step < FAR_BYTES or step <= run * size:
            run *= trips if step else 1
            continue
        # lines that are still there when what is left of them is wanted
        if shapes.sizes[index] * max(run * size, LINE_BYTES) <= machine.l1:
            run = max(run, LINE_BYTES // size)
        outside = [(strides.get(i) or 0) * reach.get(i, 1) * size for i, _ in loops[place + 1 : place + 2]]
        is_back = any(0 < step < FAR_BYTES for step in outside) and reach[index] <= NEAR_PAGES
        return shapes.volume({*strides}) / run * (NEAR_PART if is_back else 1.0)
    return 0.0


def _different(shapes: Shapes, load: Term, written: Mapping[str, int]) -> float:
    """The part of the addresses of a load that differ from each other where so many steps of some indices are."""
    steps = [(shapes.stride(load, index), size) for index, size in written.items() if index in load.free]
    if not steps or any(stride is None for stride, _ in steps):
        return 1.0
    ranges = [[place * (stride or 0) for place in range(size)] for stride, size in steps]
    every = [sum(places) for places in itertools.product(*ranges)]
    return len(set(every)) / len(every)


def contraction_seconds(
    shapes: Shapes,
    contraction: Contraction,
    machine: Machine,
    tiling: Tiling,
    covered: Mapping[str, int],
    way: Way,
    panel_cycles: float,
    partial: bool,
) -> float:
    """Fused multiply-adds at the rate that a register tile allows, padding counted; packing is not.

    `covered`: what a register tile has of its indices; `panel_cycles`: in which a vector of the lane side comes from
    where it lies; `partial`: whether a long sum is made up of short ones.
    """
    volume = 1.0
    for index in (*contraction.batch, *contraction.rows, *contraction.columns, *contraction.around):
        size, step = shapes.sizes[index], covered.get(index, 1)
        volume *= -(-size // step) * step
    steps = -(-shapes.volume({*contraction.sums}) // way.group)
    accumulators = tiling.tile * tiling.vectors
    # Cycles of one step of the sum: an fma each, loads beside them, and the latency of a chain that is too short.
    per_step = max(
        (way.cycles * accumulators + way.computed * tiling.vectors) / machine.multiply_adds + STEP_CYCLES,
        (tiling.vectors + tiling.tile) / LOADS_A_CYCLE[machine.multiply_adds],
        panel_cycles * tiling.vectors + STEP_CYCLES,
        FMA_LATENCY,
    )
    per_tile = TILE_CYCLES * accumulators / machine.multiply_adds
    if partial and 2 * accumulators + tiling.vectors + 1 > machine.registers:
        per_tile += SPILL_CYCLES * accumulators * steps * way.group / PARTIAL_ADDENDS
    around = AROUND_COST * volume if contraction.around else 0.0
    cycles = volume * (per_step * steps + per_tile) / accumulators + around
    return cycles / machine.lanes / machine.cycles_a_second


def packing_seconds(
    shapes: Shapes, packed: Term, stops: frozenset[Term], machine: Machine, lane: str, contiguous: bool
) -> float:
    """Computing an operand of a contraction and laying it out, once; `contiguous`: along its lanes it is read as it
    lies."""
    computed = row_seconds(shapes, (packed,), stops, machine, lane, 1.0) if packed.op != "load" else 0.0
    return computed + shapes.volume(packed.free) * (0.4e-9 if contiguous else 1.2e-9)


def kept_seconds(shapes: Shapes, kept: Term, machine: Machine) -> float:
    """Writing and reading panels that are all laid out before one is used, where no cache of a core holds them."""
    size = shapes.bytes_of(kept)
    return 2 * size / machine.bandwidth if size > machine.l2 else 0.0
