"""Vectors of half the width, where rows are short: 24 values are two vectors of 16, or three of 8, all full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.dialects.kernel.schedule import Factor
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.shapes import Shapes

NARROW = 8
"""So many candidates with vectors of half the width, at most."""
WASTE = 1.2
"""How much of an index whole vectors cover, at least, for each element that those of half the width cover."""
LEAST_LANES = 4
"""Lanes of a narrow vector, at least."""


def narrow_machine(machine: Machine) -> Machine:
    """The machine with vectors of half the width, of which it computes as many in a second."""
    return replace(machine, lanes=machine.lanes // 2, flops=machine.flops / 2)


def badly_filled(shapes: Shapes, machine: Machine) -> frozenset[str]:
    """The indices that something is contiguous along and that whole vectors fill much worse than half ones."""
    half = machine.lanes // 2
    if half < LEAST_LANES:
        return frozenset()
    region = shapes.region
    addresses = [term.load.address for term in region.terms() if term.op == "load"]
    addresses += [output.address for output in region.outputs]
    contiguous = {index for each in addresses for index, stride in each.strides if stride.constant == 1}
    return frozenset(
        index
        for index in contiguous
        if shapes.sizes[index] >= half // 2
        and _covered(shapes.sizes[index], machine.lanes) >= WASTE * _covered(shapes.sizes[index], half)
    )


def _covered(size: int, lanes: int) -> int:
    return -(-size // lanes) * lanes


def has_lanes_along(candidate: Candidate, indices: frozenset[str]) -> bool:
    """Whether a vector of a candidate runs along one of some indices."""
    return any(factor.index in indices for factor in _lanes(candidate))


def wide_second(candidates: Sequence[Candidate], machine: Machine) -> list[Candidate]:
    """The candidates in their order, but the first of whole vectors at the second place, if not before: whether a mask
    costs more than a narrow vector, the model does not know."""
    wide = (n for n, each in enumerate(candidates) if any(f.extent == machine.lanes for f in _lanes(each)))
    first = next(wide, 0)
    if first < 2:
        return list(candidates)
    return [candidates[0], candidates[first], *candidates[1:first], *candidates[first + 1 :]]


def _lanes(candidate: Candidate) -> list[Factor]:
    schedule = candidate.schedule
    stages = (*schedule.roots, *schedule.kept, *(stage for loop in schedule.loops for stage in loop.body))
    return [factor for stage in stages for factor in stage.factors if factor.role == "lane"]
