"""Choosing a region's schedule: the roofline orders the candidates, the machine decides among the first few.

Every candidate that is timed has first been compared with the reference; one that disagrees is an error of the compiler
and is raised as such, never skipped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from luminal.search.database import Database
from luminal.search.generate import Candidate, Generator
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes
from luminal.search.verify import Sample, addresses_are_valid, agrees, sample_output

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule, and the nanoseconds that one iteration of its parallel loops is expected to take."""

    schedule: Schedule
    cost: int


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

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The first legal candidate in the roofline's order."""
        del key
        for candidate in legal_candidates(region, self.machine, samples):
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
    ) -> None:
        self.machine, self.measurer, self.database = machine, measurer, database
        self.budget = budget or Budget()
        self.timed = 0

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The fastest of the timed candidates, or what the database remembers."""
        if not samples.is_valid:
            return ModelChooser(self.machine).choose(region, key, samples)
        named = [sorted(sizes.items()) for sizes in samples.all]
        bucket = " ".join(",".join(f"{name}={_bucket(size)}" for name, size in sizes) for sizes in named)
        if self.database is not None:
            known = self.database.find(key, bucket, self.machine)
            if known is not None:
                return Choice(parse_schedule(known[0]), known[1])
        choice, seconds = self._measure(region, samples)
        if self.database is not None:
            self.database.store(key, bucket, self.machine, str(choice.schedule), choice.cost, seconds)
        return choice

    def _measure(self, region: Region, samples: Samples) -> tuple[Choice, float]:
        started = time.perf_counter()
        shapes = Shapes(region, samples.expected)
        dims = shapes.values
        arguments = [
            self.measurer.place(_data(region, n, a.dtype, a.elements.evaluate(dims)))
            for n, a in enumerate(region.arguments)
        ]
        if not addresses_are_valid(region, arguments, dims):
            return ModelChooser(self.machine).choose(region, "", samples), 0.0
        outputs = [
            self.measurer.place(np.zeros(o.elements.evaluate(dims), o.dtype.numpy)) for o in region.outputs
        ]
        expected = [sample_output(region, n, arguments, dims) for n in range(len(region.outputs))]
        runs: list[tuple[Candidate, Runnable]] = []
        for candidate in legal_candidates(region, self.machine, samples):
            if len(runs) >= self.budget.candidates or (
                runs and time.perf_counter() - started > self.budget.seconds
            ):
                break
            if runs and candidate.form == "scalar":
                break
            runnable = self.measurer.compile(region, candidate.schedule, _choice(candidate).cost)
            runnable.run(arguments, outputs, dims, self.machine.threads)
            _verify(region, candidate.schedule, expected, outputs)
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
        return Choice(runs[best][0].schedule, max(1, cost)), times[best]

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
    for candidate in _placed(region, Generator(region, machine, Shapes(region, hint)).fallbacks()):
        return candidate
    raise ScheduleError(f"the region has no legal schedule:\n{region_text(region)}")


def legal_candidates(
    region: Region, machine: Machine, samples: Samples, coarse: bool = False
) -> Iterator[Candidate]:
    """The candidates that the placement pass accepts, each once, in the roofline's order."""
    first, *others = (Shapes(region, sizes) for sizes in samples.all)
    return _placed(region, Generator(region, machine, first, coarse, others).candidates())


def _placed(region: Region, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    seen: set[str] = set()
    for candidate in candidates:
        text = str(candidate.schedule)
        if text in seen:
            continue
        seen.add(text)
        try:
            place(region, candidate.schedule, "probe")
        except ScheduleError:
            continue
        yield candidate


def _choice(candidate: Candidate) -> Choice:
    grid = max(1, candidate.estimate.grid)
    return Choice(candidate.schedule, max(1, int(candidate.estimate.core_seconds * 1e9 / grid)))


def _verify(
    region: Region, schedule: Schedule, samples: Sequence[Sample | None], outputs: Sequence[Array]
) -> None:
    for number, (sample, output) in enumerate(zip(samples, outputs, strict=True)):
        if sample is not None and not agrees(sample, output):
            raise SoundnessError(
                f"output {number} of a generated kernel differs from the reference\nschedule: {schedule}\n"
                f"region:\n{region_text(region)}"
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
