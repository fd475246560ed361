"""One stage of a region to be scheduled, and the nests of loops that are found for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.schedule import Factor, Stage
from luminal.dialects.kernel.terms import Term
from luminal.search.shapes import Shapes

Seconds = tuple[float, ...]
"""Of one core, at each of the sizes that schedules are priced for."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage's factors, the stages that it keeps, and the estimate.

    `filling`: the part of `seconds` that fills each of what is kept, and could stand further out.
    """

    factors: tuple[Factor, ...]
    kept: tuple[Stage, ...]
    seconds: Seconds
    kind: str
    filling: tuple[Seconds, ...] = ()

    def filled(self, elsewhere: Sequence[Stage]) -> Sequence[tuple[Stage, Seconds]]:
        """Of the stages that the nest keeps, given in the same order as they stand now: those that stand elsewhere."""
        return [
            (stage, seconds)
            for stage, own, seconds in zip(elsewhere, self.kept, self.filling, strict=True)
            if stage != own
        ]


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage to be scheduled: its roots, the indices that it must factor (by falling stride), what is bound already.

    `strides` are those of where the result is written.
    """

    roots: tuple[Term, ...]
    free: list[str]
    strides: dict[str, int]
    bound: frozenset[str]
    at: str | None
    stops: frozenset[Term]
    prefix: str


def add_seconds(columns: Sequence[Seconds]) -> Seconds:
    return tuple(sum(column) for column in zip(*columns, strict=True))


def less_seconds(all_of_it: Seconds, part: Seconds) -> Seconds:
    return tuple(whole - each for whole, each in zip(all_of_it, part, strict=True))


def lane_of(nest: Nest) -> str | None:
    return next((factor.index for factor in nest.factors if factor.role == "lane"), None)


def each_lane_first(nests: list[Nest]) -> list[Nest]:
    """The first nest of each lane, then the others: which lane suits a stage depends on the stages around it."""
    first: dict[str | None, Nest] = {}
    for nest in nests:
        first.setdefault(lane_of(nest), nest)
    return [*first.values(), *(nest for nest in nests if first[lane_of(nest)] is not nest)]


def digits_of(
    own: Sequence[str], lane: str | None, row: str | None, block: int
) -> tuple[tuple[str, int | None], ...]:
    """Digits of a buffer over some indices, that of the lane innermost; a block of rows at a time."""
    lane_last = sorted(own, key=lambda index: index == lane)
    return tuple((index, block if index == row else None) for index in lane_last)


def moved(stage: Stage, at: str | None) -> Stage:
    """A stage that fills its buffers in another scope, where they then live."""
    return replace(stage.with_buffers(lambda buffer: replace(buffer, at=at)), at=at)


def trips(shapes: Shapes, factors: tuple[Factor, ...], position: int) -> int:
    """How often a loop runs around those inside it."""
    factor = factors[position]
    if factor.extent is not None:
        return factor.extent
    inner = 1
    for other in factors[position + 1 :]:
        inner *= other.extent if other.index == factor.index and other.extent is not None else 1
    return -(-shapes.sizes[factor.index] // inner)


def parallel_trips(shapes: Shapes, factors: tuple[Factor, ...], most: int | None = None) -> int:
    """How many independent parts the parallel loops of a nest have, or the first so many of them."""
    parallel = [position for position, factor in enumerate(factors) if factor.role == "parallel"]
    return math.prod(trips(shapes, factors, position) for position in parallel[:most])
