"""Timing candidates of a region: each is compiled, compared with the reference, and timed in turn with the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region, postorder
from luminal.dtype import DType
from luminal.errors import SoundnessError
from luminal.search.generate import Candidate
from luminal.search.verify import Sample, addresses_are_valid, agrees, sample_output

Array = NDArray[Any]
Trial = tuple[Candidate, Region]
"""A candidate, and the form of the region that it is for."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a region may cost: candidates timed, seconds in all, seconds of timing for each candidate, and the least
    number of candidates, whatever they take."""

    candidates: int = 3
    seconds: float = 0.3
    timing: float = 0.015
    least: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate: the median of its seconds, None where it was the only one and was not timed."""

    candidate: Candidate
    seconds: float | None


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


class Profiler(Protocol):
    """Times candidates; where it does so is its own affair."""

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        """What became of the first trials, as many as the budget allows, in their order.

        `dims`: sizes of the region's symbols.  None where the region cannot be run on data that is made up.  Raises
        SoundnessError for a candidate that disagrees with the reference.
        """
        ...


class LocalProfiler:
    """Compiles and times in this process."""

    def __init__(self, measurer: Measurer) -> None:
        self.measurer = measurer

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        started = time.perf_counter()
        arguments = [
            self.measurer.place(_data(region, n, a.dtype, a.elements.evaluate(dims)))
            for n, a in enumerate(region.arguments)
        ]
        if not addresses_are_valid(region, arguments, dims):
            return None
        outputs = [
            self.measurer.place(np.zeros(o.elements.evaluate(dims), o.dtype.numpy)) for o in region.outputs
        ]
        expected = [sample_output(region, n, arguments, dims) for n in range(len(region.outputs))]
        runs: list[tuple[Candidate, Runnable]] = []
        for candidate, form in trials:
            is_late = len(runs) >= budget.least and time.perf_counter() - started > budget.seconds
            if len(runs) >= budget.candidates or is_late:
                break
            runnable = self.measurer.compile(form, candidate.schedule, candidate.cost)
            runnable.run(arguments, outputs, dims, threads)
            _verify(form, candidate, expected, outputs)
            runs.append((candidate, runnable))
        if len(runs) <= 1:
            return [Outcome(candidate, None) for candidate, _ in runs]
        kernels = [run for _, run in runs]
        times = interleave(kernels, arguments, outputs, dims, threads, budget.timing * len(runs))
        return [Outcome(candidate, seconds) for (candidate, _), seconds in zip(runs, times, strict=True)]


def interleave(
    runs: Sequence[Runnable],
    arguments: Sequence[Array],
    outputs: Sequence[Array],
    dims: Mapping[str, int],
    threads: int,
    seconds: float,
) -> list[float]:
    """Median seconds of each, measured in turn; one that is hopeless is not run again."""
    samples: list[list[float]] = [[] for _ in runs]
    best = float("inf")
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or (time.perf_counter() < end and rounds < 25):
        for position, run in enumerate(runs):
            if samples[position] and min(samples[position]) > 1.5 * best:
                continue
            begin = time.perf_counter()
            run.run(arguments, outputs, dims, threads)
            samples[position].append(time.perf_counter() - begin)
            best = min(best, samples[position][-1])
        rounds += 1
    return [statistics.median(times) for times in samples]


def _verify(
    region: Region, candidate: Candidate, samples: Sequence[Sample | None], outputs: Sequence[Array]
) -> None:
    for number, (sample, output) in enumerate(zip(samples, outputs, strict=True)):
        if sample is not None and not agrees(sample, output):
            raise SoundnessError(
                f"output {number} of a generated kernel differs from the reference\n"
                f"schedule: {candidate.schedule}\nform: {candidate.form or 'as it is'}\nregion:\n{region_text(region)}"
            )


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
