"""In which order candidates are looked at: those first that lose least, differing in what the model knows least."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from luminal.search.machine import Machine
from luminal.search.stage import Seconds

if TYPE_CHECKING:
    from luminal.search.generate import Candidate

NEAR = 1.2
"""Estimates within this factor of the best are taken as equal."""


def ordered(
    candidates: Sequence[Candidate], machine: Machine, factor: Callable[[Candidate], float] = lambda _: 1.0
) -> list[Candidate]:
    """The candidates that lose least against the best for each of the sizes first.

    Where the model hardly tells them apart, forms take turns, and in each of them families of register tiles: those
    that are timed first should differ in what the model knows least.  `factor` corrects the model's seconds of a
    candidate.
    """
    columns = [
        tuple(times * estimate.seconds(machine) for estimate in c.estimates)
        for c, times in ((c, factor(c)) for c in candidates)
    ]
    found = sorted(zip(_losses(columns), candidates, strict=True), key=lambda pair: pair[0])
    near = [candidate for loss, candidate in found if loss <= NEAR * found[0][0]]
    near = _in_turns(_in_turns(near, lambda each: each.family), lambda each: each.form)
    return near + [candidate for _, candidate in found[len(near) :]]


def _in_turns(candidates: Sequence[Candidate], trait: Callable[[Candidate], object]) -> list[Candidate]:
    """Candidates that differ in a trait by turns, in the order of the first of each."""
    alike: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        alike.setdefault(trait(candidate), []).append(candidate)
    turns = itertools.zip_longest(*alike.values())
    return [candidate for turn in turns for candidate in turn if candidate is not None]


def best(columns: Sequence[Seconds], most: int) -> list[int]:
    """The positions of those that lose least against the best for each of the sizes, in order."""
    losses = _losses(columns)
    return sorted(range(len(columns)), key=losses.__getitem__)[:most]


def _losses(columns: Sequence[Seconds]) -> list[float]:
    """What each loses against the best at each of the sizes, added up."""
    least = [min(column) for column in zip(*columns, strict=True)]
    return [sum(each / best for each, best in zip(seconds, least, strict=True)) for seconds in columns]
