"""One stage of a region to be scheduled, and the nests of loops that are found for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luminal.dialects.kernel.schedule import Factor, Stage
from luminal.dialects.kernel.terms import Term

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
