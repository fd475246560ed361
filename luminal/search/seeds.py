"""Schedules that no generator suggested, as candidates: found elsewhere (by another machine or source, for other sizes,
or imported), or made of other candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import ScheduleError
from luminal.passes.place import place
from luminal.search.database import Database, Winner
from luminal.search.forms import Forms
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.mutations import mutations
from luminal.search.profile import Trial
from luminal.search.roofline import Estimate
from luminal.search.samples import Samples, bucket_of
from luminal.search.shapes import Shapes
from luminal.search.stage import parallel_trips
from luminal.search.variants import other_stores

RECALLED, MUTATED = "recalled", "mutated"
"""The kinds of such a candidate, and of one that is made of another (`mutations.py`)."""
UNPRICED = (RECALLED, MUTATED)
"""Candidates whose estimates are not the model's."""


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


def remembered(
    database: Database | None, region: Region, key: str, samples: Samples, machine: Machine, forms: Forms
) -> tuple[Winner, Candidate] | None:
    """What this machine found with this source, and its candidate; None where nothing is known, or it is not legal."""
    known = None if database is None else database.find(key, bucket_of(samples), machine)
    trial = None if known is None else recalled(region, key, known, samples, forms)
    return None if known is None or trial is None else (known, trial[0])


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
    estimates = tuple(Estimate(winner.cost * 1e-9 * grid, grid) for grid in _grids(schedule, form, samples))
    return Candidate(schedule, estimates, RECALLED, winner.form), form


def mutants(candidate: Candidate, form: Region, samples: Samples, machine: Machine) -> Iterator[Candidate]:
    """What is made of a candidate for a form of a region, priced as it is; not all of them need be legal."""
    expected = Shapes(form, samples.expected)
    stores = other_stores(candidate.schedule, expected, machine)
    for schedule in (*mutations(candidate.schedule, machine.threads), *([stores] if stores else [])):
        grids = _grids(schedule, form, samples)
        estimates = tuple(replace(e, grid=grid) for e, grid in zip(candidate.estimates, grids, strict=True))
        yield Candidate(schedule, estimates, MUTATED, candidate.form)


def _grids(schedule: Schedule, form: Region, samples: Samples) -> list[int]:
    """The iterations of a schedule's parallel loops at each of the sizes."""
    factors = schedule.roots[0].factors
    return [parallel_trips(Shapes(form, sizes), factors) for sizes in samples.all]
