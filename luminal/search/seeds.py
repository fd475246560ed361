"""Schedules that were found elsewhere, as candidates: by another machine or source, for other sizes, or imported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import ScheduleError
from luminal.passes.place import place
from luminal.search.database import Winner
from luminal.search.forms import Forms
from luminal.search.generate import Candidate, trips
from luminal.search.profile import Trial
from luminal.search.roofline import Estimate
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes

RECALLED = "recalled"
"""The kind of such a candidate."""


def seed_trials(
    region: Region, key: str, known: Iterable[Winner], samples: Samples, forms: Forms, most: int
) -> Iterator[Trial]:
    """The first so many of the remembered schedules that are legal for a region, each once."""
    found: set[tuple[str, str]] = set()
    for winner in known:
        name = (winner.form, winner.schedule)
        if len(found) == most:
            return
        trial = None if name in found else recalled(region, key, winner, samples, forms)
        if trial is not None:
            found.add(name)
            yield trial


def recalled(region: Region, key: str, winner: Winner, samples: Samples, forms: Forms) -> Trial | None:
    """The candidate of a remembered schedule, priced at what was measured; None where it is not legal for the region or
    for a form that the region has."""
    form = forms.find(region, key, winner.form)
    if form is None:
        return None
    try:
        schedule = parse_schedule(winner.schedule)
        place(form, schedule, "probe")
    except ScheduleError:
        return None
    factors = schedule.roots[0].factors
    parallel = [position for position, factor in enumerate(factors) if factor.role == "parallel"]
    shapes = [Shapes(form, sizes) for sizes in samples.all]
    grids = [math.prod(trips(each, factors, position) for position in parallel) for each in shapes]
    estimates = tuple(Estimate(winner.cost * 1e-9 * grid, grid) for grid in grids)
    return Candidate(schedule, estimates, RECALLED, winner.form), form
