"""The legal candidates of a region and of its forms for a GPU, in the order of its roofline, as Triton's text.

Warps and stages stand beside a schedule.  A candidate is legal where the placement pass takes its schedule and Triton
has what it asks for; whether its machine code is good is known when it is compiled (`emit_triton/resources.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.placed_loops import FunctionOp, ParallelOp
from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.emit_triton.descriptors import boxes_of
from luminal.emit_triton.emit import emit_function
from luminal.emit_triton.kernel import Options, TritonKernel
from luminal.errors import ScheduleError
from luminal.passes.place import place
from luminal.search.forms import Form
from luminal.search.gpu_factors import prepared_factors
from luminal.search.gpu_launches import GROUP, Work, works_of
from luminal.search.gpu_machine import GpuMachine
from luminal.search.gpu_roofline import estimate
from luminal.search.gpu_schedules import OPTIONS, GpuSchedules
from luminal.search.ordering import best
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes

MOST, MOST_COARSE = 32, 12
"""Schedules of a form that are priced; where only its price is wanted."""
VARIANTS = 2
"""Options of one schedule that are candidates."""
BEHIND = 8
"""Candidates that come before those with descriptors, which no device has run yet: only a long search gets to these."""
CROWDED = 8.0
"""How much longer what does not fit registers or shared memory is taken to run."""


@dataclass(frozen=True, slots=True)
class GpuCandidate:
    """A schedule with options of Triton's compiler, the roofline's seconds at each of the sizes, and the form of the
    region that it is for, "" for the region's own.  `function`: the form under the schedule."""

    schedule: Schedule
    options: Options
    seconds: tuple[float, ...]
    form: str
    function: FunctionOp

    def kernels(self) -> tuple[TritonKernel, ...]:
        """Its launches in order; ScheduleError or UnsupportedTargetError where Triton has not what it asks for."""
        return emit_function(self.function, self.options)

    def __str__(self) -> str:
        form = f"[{self.form}] " if self.form else ""
        options = self.options
        groups = f", groups of {options.group}" if options.group > 1 else ""
        groups += ", descriptors" if options.describes else ""
        groups += f", {options.programs} programs" if options.programs else ""
        return f"{form}{self.schedule} with {options.warps} warps, {options.stages} stages{groups}"


class GpuPricer:
    """Enumerates and prices candidates of regions for one machine under some licences."""

    def __init__(self, machine: GpuMachine, licences: Sequence[str]) -> None:
        self.machine, self.licences = machine, tuple(licences)

    def candidates(
        self,
        region: Region,
        samples: Samples,
        forms: Sequence[Form] = (),
        coarse: bool = False,
        name: str = "kernel",
    ) -> Iterator[GpuCandidate]:
        """The legal candidates, those first that lose least against the best for each of the sizes; plain loops last.

        `coarse`: fewer are looked at.  ScheduleError where there is none.
        """
        found: list[GpuCandidate] = []
        plain: list[GpuCandidate] = []
        for each in (Form("", region), *forms):
            form = Form(each.name, prepared_factors(each.region, self.licences))
            schedules = GpuSchedules(form.region, Shapes(form.region, samples.expected))
            for schedule in schedules.every(MOST_COARSE if coarse else MOST):
                found += self._priced(form, schedule, samples, name)
            if not form.name:
                plain = [c for s in schedules.plain() for c in self._priced(form, s, samples, name)[:1]]
        own = {candidate.schedule for candidate in found if not candidate.form}
        plain = [candidate for candidate in plain if candidate.schedule not in own]
        order = best([candidate.seconds for candidate in found], len(found)) if found else []
        known, described = (
            [found[n] for n in order if found[n].options.describes == describes]
            for describes in (False, True)
        )
        legal = False
        for candidate in (*known[:BEHIND], *described, *known[BEHIND:], *plain):
            try:
                candidate.kernels()
            except ScheduleError:
                continue
            legal = True
            yield candidate
        if not legal:
            raise ScheduleError(f"the region has no legal schedule for a GPU:\n{region_text(region)}")

    def _priced(self, form: Form, schedule: Schedule, samples: Samples, name: str) -> list[GpuCandidate]:
        """A schedule with the best of the options; nothing where it is not legal."""
        try:
            function = place(form.region, schedule, name, self.licences)
        except ScheduleError:
            return []
        values = [Shapes(form.region, sizes).values for sizes in samples.all]
        works = [works_of(function, sizes, self.machine) for sizes in values]
        machine = self.machine
        fuses = "contract" in self.licences
        gains = any(work.grouped_bytes < work.launch.memory_bytes for each in works for work in each)
        options = [
            Options(warps, stages, fuses, machine.eights, machine.scaled, machine.undotted, group)
            for group in ((1, GROUP) if gains else (1,))
            for warps, stages in OPTIONS
        ]
        columns = [tuple(self._seconds(each, one) for each in works) for one in options]
        found = [(options[number], columns[number]) for number in best(columns, VARIANTS)]
        if found and machine.describes and _is_described(function, machine):
            first, seconds = found[0]
            found += [
                (replace(first, describes=True, programs=n), seconds) for n in self._grids(first, works[0])
            ]
        return [GpuCandidate(schedule, one, seconds, form.name, function) for one, seconds in found]

    def _grids(self, options: Options, works: Sequence[Work]) -> tuple[int, ...]:
        """One program for each place of the grid, 0; or, where these are more, as many as are resident."""
        work = max(works, key=lambda each: each.launch.matrix_flops)
        launch = work.with_options(self.machine, options.warps, options.stages, options.group)
        resident = self.machine.units * launch.resident
        return (0, resident) if launch.programs > resident else (0,)

    def _seconds(self, works: Sequence[Work], options: Options) -> float:
        total = 0.0
        for work in works:
            launch = work.with_options(self.machine, options.warps, options.stages, options.group)
            fits = work.fits(self.machine, options.warps, options.stages)
            total += estimate(launch, self.machine).seconds * (1.0 if fits else CROWDED)
        return total


def _is_described(function: FunctionOp, machine: GpuMachine) -> bool:
    """Whether a product of some kernel of a function may be loaded by descriptors."""
    grids = [op for op in function.body.block.ops if isinstance(op, ParallelOp)]
    return any(boxes_of([op], machine.eights) for op in grids)
