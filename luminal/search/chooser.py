"""Choosing a region's schedule: the roofline orders the candidates, the machine decides among the first few.

Every candidate that is timed has first been compared with the reference; one that disagrees is an error of the compiler
and is raised as such, never skipped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region, postorder
from luminal.dtype import DType
from luminal.errors import ScheduleError, SoundnessError
from luminal.passes.place import place
from luminal.search.database import Database, Winner
from luminal.search.forms import Form, Forms
from luminal.search.generate import Candidate, Generator, ordered
from luminal.search.loops import LoopGenerator
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes
from luminal.search.verify import Sample, addresses_are_valid, agrees, sample_output

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule, the nanoseconds that one iteration of its parallel loops is expected to take, and the form of the
    region that it is for, "" for the region's own."""

    schedule: Schedule
    cost: int
    form: str = ""

    def __str__(self) -> str:
        return f"[{self.form}] {self.schedule}" if self.form else str(self.schedule)


class Runnable(Protocol):
    """A compiled candidate."""

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        """Run on flat arrays in place; packed arguments are laid out before the first run, not in it."""
        ...


class Measurer(Protocol):
    """What the search needs of a backend."""

    def compile(self, region: Region, schedule: Schedule, cost: int) -> Runnable:
        """Machine code of a region under a schedule; ScheduleError where the schedule is not legal."""
        ...

    def place(self, array: Array) -> Array:
        """A copy in memory like that of an executable's arena, so that what is timed is what will run."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a region may cost: candidates timed, seconds in all, and seconds of timing for each candidate."""

    candidates: int = 3
    seconds: float = 0.3
    timing: float = 0.015


class ModelChooser:
    """The roofline alone decides: for targets that this machine does not have."""

    def __init__(self, machine: Machine, forms: Forms | None = None) -> None:
        self.machine, self.forms = machine, forms or Forms()

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The first legal candidate in the roofline's order."""
        for candidate, _ in legal_candidates(region, self.machine, samples, self.forms.of(region, key)):
            return _choice(candidate)
        raise ScheduleError("the region has no legal schedule")


class TimedChooser:
    """Times the first few candidates on this machine, verified, and remembers the winner."""

    def __init__(
        self,
        machine: Machine,
        measurer: Measurer,
        database: Database | None = None,
        budget: Budget | None = None,
        forms: Forms | None = None,
    ) -> None:
        self.machine, self.measurer, self.database = machine, measurer, database
        self.budget, self.forms = budget or Budget(), forms or Forms()
        self.timed = 0

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The fastest of the timed candidates, or what the database remembers."""
        if not samples.is_valid:
            return ModelChooser(self.machine, self.forms).choose(region, key, samples)
        named = [sorted(sizes.items()) for sizes in samples.all]
        bucket = " ".join(",".join(f"{name}={_bucket(size)}" for name, size in sizes) for sizes in named)
        if self.database is not None:
            known = self.database.find(key, bucket, self.machine)
            if known is not None and self.forms.find(region, key, known.form) is not None:
                return Choice(parse_schedule(known.schedule), known.cost, known.form)
        choice, seconds = self._measure(region, key, samples)
        if self.database is not None:
            winner = Winner(str(choice.schedule), choice.cost, choice.form)
            self.database.store(key, bucket, self.machine, winner, seconds)
        return choice

    def _measure(self, region: Region, key: str, samples: Samples) -> tuple[Choice, float]:
        started = time.perf_counter()
        shapes = Shapes(region, samples.expected)
        dims = shapes.values
        arguments = [
            self.measurer.place(_data(region, n, a.dtype, a.elements.evaluate(dims)))
            for n, a in enumerate(region.arguments)
        ]
        if not addresses_are_valid(region, arguments, dims):
            return ModelChooser(self.machine, self.forms).choose(region, key, samples), 0.0
        outputs = [
            self.measurer.place(np.zeros(o.elements.evaluate(dims), o.dtype.numpy)) for o in region.outputs
        ]
        expected = [sample_output(region, n, arguments, dims) for n in range(len(region.outputs))]
        runs: list[tuple[Candidate, Runnable]] = []
        for candidate, form in legal_candidates(region, self.machine, samples, self.forms.of(region, key)):
            if len(runs) >= self.budget.candidates or (
                runs and time.perf_counter() - started > self.budget.seconds
            ):
                break
            if runs and candidate.kind == "scalar":
                break
            runnable = self.measurer.compile(form, candidate.schedule, _choice(candidate).cost)
            runnable.run(arguments, outputs, dims, self.machine.threads)
            _verify(form, candidate, expected, outputs)
            self.timed += 1
            runs.append((candidate, runnable))
        if not runs:
            raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")
        if len(runs) == 1:
            return _choice(runs[0][0]), runs[0][0].estimate.seconds(self.machine)
        times = self._interleave([run for _, run in runs], arguments, outputs, dims)
        best = min(range(len(runs)), key=times.__getitem__)
        grid = max(1, runs[best][0].estimate.grid)
        cost = int(times[best] * 1e9 * min(self.machine.threads, grid) / grid)
        return Choice(runs[best][0].schedule, max(1, cost), runs[best][0].form), times[best]

    def _interleave(
        self,
        runs: Sequence[Runnable],
        arguments: Sequence[Array],
        outputs: Sequence[Array],
        dims: Mapping[str, int],
    ) -> list[float]:
        """Median seconds of each, measured in turn; one that is hopeless is not run again."""
        samples: list[list[float]] = [[] for _ in runs]
        best = float("inf")
        end = time.perf_counter() + self.budget.timing * len(runs)
        rounds = 0
        while rounds < 3 or (time.perf_counter() < end and rounds < 25):
            for position, run in enumerate(runs):
                if samples[position] and min(samples[position]) > 1.5 * best:
                    continue
                begin = time.perf_counter()
                run.run(arguments, outputs, dims, self.machine.threads)
                samples[position].append(time.perf_counter() - begin)
                best = min(best, samples[position][-1])
            rounds += 1
        return [statistics.median(times) for times in samples]


def plain_candidate(region: Region, machine: Machine, hint: Mapping[str, int]) -> Candidate:
    """The first legal schedule of plain loops."""
    for candidate in Generator(region, machine, Shapes(region, hint)).fallbacks():
        if is_legal(region, candidate):
            return candidate
    raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")


def legal_candidates(
    region: Region, machine: Machine, samples: Samples, forms: Sequence[Form] = (), coarse: bool = False
) -> Iterator[tuple[Candidate, Region]]:
    """The candidates that the placement pass accepts, each once, in the roofline's order, with what they are for: the
    region itself or one of its forms."""
    every = (Form("", region), *forms)
    generators = [generator_of(form, machine, samples, coarse) for form in every]
    named = {form.name: form.region for form in every}
    found = [
        replace(candidate, form=form.name)
        for form, generator in zip(every, generators, strict=True)
        for candidate in generator.suggested()
    ]
    seen: set[tuple[str, str]] = set()
    for candidate in (*ordered(found, machine), *generators[0].fallbacks()):
        name = (candidate.form, str(candidate.schedule))
        if name not in seen and is_legal(named[candidate.form], candidate):
            seen.add(name)
            yield candidate, named[candidate.form]


def generator_of(form: Form, machine: Machine, samples: Samples, coarse: bool = False) -> Generator:
    """What enumerates the schedules of a form, be it a region's own, named "", or a loop."""
    first, *others = (Shapes(form.region, sizes) for sizes in samples.all)
    kind = LoopGenerator if form.name else Generator
    return kind(form.region, machine, first, coarse, others)


def is_legal(region: Region, candidate: Candidate) -> bool:
    """Whether the placement pass accepts a candidate."""
    try:
        place(region, candidate.schedule, "probe")
    except ScheduleError:
        return False
    return True


def _choice(candidate: Candidate) -> Choice:
    grid = max(1, candidate.estimate.grid)
    cost = max(1, int(candidate.estimate.core_seconds * 1e9 / grid))
    return Choice(candidate.schedule, cost, candidate.form)


def _verify(
    region: Region, candidate: Candidate, samples: Sequence[Sample | None], outputs: Sequence[Array]
) -> None:
    for number, (sample, output) in enumerate(zip(samples, outputs, strict=True)):
        if sample is not None and not agrees(sample, output):
            raise SoundnessError(
                f"output {number} of a generated kernel differs from the reference\n"
                f"schedule: {candidate.schedule}\nform: {candidate.form or 'as it is'}\nregion:\n{region_text(region)}"
            )


def _bucket(size: int) -> int:
    """Sizes of one power of two share their result."""
    return max(0, size).bit_length()


@lru_cache(maxsize=1)
def _noise() -> Array:
    """Values near one; long enough that no two arguments of a kernel are alike where they are read together."""
    return np.random.default_rng(0).uniform(0.5, 1.5, 1_000_003).astype(np.float32)


def _data(region: Region, position: int, dtype: DType, elements: int) -> Array:
    """Values near one for arithmetic; zeros where the value is an address or a position, so that it is valid."""
    if not dtype.is_float and _addresses(region, position):
        return np.zeros(elements, dtype.numpy)
    values = np.resize(np.roll(_noise(), 7919 * position), elements)
    if dtype.is_float:
        return values.astype(dtype.numpy)
    if dtype.is_bool:
        return values > 1.0
    return (values * 2 + 1).astype(dtype.numpy)


def _addresses(region: Region, position: int) -> bool:
    """Whether an argument's values take part in addresses."""
    roots = [term.operands[0] for term in region.terms() if term.op == "load" and term.load.dynamic]
    roots += [output.dynamic for output in region.outputs if output.dynamic is not None]
    return any(term.op == "load" and term.load.argument == position for term in postorder(roots))
