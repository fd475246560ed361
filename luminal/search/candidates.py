"""The legal candidates of a region and of its equal forms, in the roofline's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.errors import ScheduleError
from luminal.passes.ordered_writes import check_order
from luminal.passes.place import place
from luminal.search.forms import Form, last_of_each
from luminal.search.generate import Candidate, Generator
from luminal.search.loops import LoopGenerator
from luminal.search.machine import Machine
from luminal.search.narrow import NARROW, badly_filled, has_lanes_along, narrow_machine, wide_second
from luminal.search.ordering import ordered
from luminal.search.part_nests import PartGenerator
from luminal.search.profile import Trial
from luminal.search.record import Enumeration
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes
from luminal.search.variants import LEADING, behind_variants, fetching_ahead, variants


def plain_candidate(region: Region, machine: Machine, hint: Mapping[str, int]) -> Candidate:
    """The first legal schedule of plain loops."""
    for candidate in Generator(region, machine, Shapes(region, hint)).fallbacks():
        if is_legal(region, candidate):
            return candidate
    raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")


def legal_candidates(
    region: Region,
    machine: Machine,
    samples: Samples,
    forms: Sequence[Form] = (),
    seen: Enumeration | None = None,
) -> Iterator[Trial]:
    """The candidates that the placement pass accepts, each once, in the roofline's order, with what they are for: the
    region itself or one of its forms.  `seen` takes down what there was, and what was refused."""
    seen = Enumeration() if seen is None else seen
    yield from only_legal(every_candidate(region, machine, samples, forms), seen)


def only_legal(
    trials: Sequence[Trial], seen: Enumeration, is_built: Callable[[Trial], bool] = lambda trial: False
) -> Iterator[Trial]:
    """Those that the placement pass accepts; what is built has been placed."""
    seen.candidates += [candidate for candidate, _ in trials]
    for trial in trials:
        candidate, form = trial
        reason = None if is_built(trial) else refusal(form, candidate)
        if reason is not None:
            seen.refused.append((candidate, reason))
            continue
        seen.tried += 1
        yield trial


def every_candidate(
    region: Region, machine: Machine, samples: Samples, forms: Sequence[Form] = ()
) -> list[Trial]:
    """All candidates, each once, in the roofline's order, with what they are for; they need not be legal."""
    every = (Form("", region), *forms)
    generators = [generator_of(form, machine, samples) for form in every]
    named = {form.name: form.region for form in every}
    found = suggested(every, generators)
    found += [each for form in every for each in _narrow(form, machine, samples)]
    priced = {form: generator.priced for form, generator in zip(named, generators, strict=True)}
    found += [each for plain in found for each in fetching_ahead(plain, priced[plain.form], machine)]
    found += variants([(each, priced[each.form]) for each in ordered(found, machine)[:LEADING]], machine)
    in_order = wide_second(behind_variants(ordered(found, machine)), machine)
    every_one = (*in_order, *generators[0].fallbacks())
    once = {(each.form, str(each.schedule)): each for each in every_one}.values()
    return [(each, named[each.form]) for each in once]


def coarse_candidates(
    region: Region, machine: Machine, samples: Samples, forms: Sequence[Form] = ()
) -> list[Candidate]:
    """A few, in the roofline's order, of which the first tells what a region, or the best of its forms, costs.

    Whether they are legal is not asked: nearly all are, and asking takes as long as pricing.  Sizes of the blocks of a
    fold make little of a difference.
    """
    every, generators = coarse_generators(region, machine, samples, forms)
    return [
        *ordered(suggested(every, generators, for_all=False), machine),
        *generators[0].fallbacks(),
    ]


def coarse_generators(
    region: Region, machine: Machine, samples: Samples, forms: Sequence[Form]
) -> tuple[list[Form], list[Generator]]:
    """A region and those of its forms that differ in more than the size of blocks, each with what enumerates few of its
    schedules."""
    every = [Form("", region), *last_of_each(forms)]
    return every, [generator_of(form, machine, samples, coarse=True) for form in every]


def suggested(
    forms: Sequence[Form], generators: Sequence[Generator], for_all: bool = True
) -> list[Candidate]:
    """What the generator of each form suggests, in no order; `for_all` as there."""
    return [
        replace(candidate, form=form.name) if form.name else candidate
        for form, generator in zip(forms, generators, strict=True)
        for candidate in generator.suggested(for_all)
    ]


def _narrow(form: Form, machine: Machine, samples: Samples) -> list[Candidate]:
    """The first few with vectors of half the width, along what whole ones fill badly."""
    indices = badly_filled(Shapes(form.region, samples.expected), machine)
    if not indices:
        return []
    machine = narrow_machine(machine)
    made = suggested([form], [generator_of(form, machine, samples, coarse=True)], for_all=False)
    return ordered([each for each in made if has_lanes_along(each, indices)], machine)[:NARROW]


def generator_of(form: Form, machine: Machine, samples: Samples, coarse: bool = False) -> Generator:
    """What enumerates the schedules of a form: of its stages, of a loop, or of parts."""
    first, *others = (Shapes(form.region, sizes) for sizes in samples.all)
    has_loop = any(term.op == "loop" for term in form.region.terms())
    kind = LoopGenerator if has_loop else PartGenerator if form.region.parents else Generator
    return kind(form.region, machine, first, coarse, others)


def is_legal(region: Region, candidate: Candidate) -> bool:
    """Whether a candidate is legal for a region."""
    return refusal(region, candidate) is None


def refusal(region: Region, candidate: Candidate) -> str | None:
    """Why a candidate is not legal for a region, None where it is."""
    try:
        check_order(region, candidate.schedule)
        place(region, candidate.schedule, "probe")
    except ScheduleError as error:
        return str(error)
    return None
