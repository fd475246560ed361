"""The trials of one region in one process: its data and references, comparing kernels with them, and timing.

In a model other kernels run between two calls of one.  Parameters that are laid out anew have left the caches by then:
each run reads another copy (luminal/plan/measure.py).  What the kernel before has just written is warm, and so it is
here: the other arguments and the outputs stay where they are from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.search.timing import interleave
from luminal.search.trial_data import KINDS, Long, hostile_data, hostile_sizes, ordinary_data
from luminal.search.verify import Sample, first_mismatch, sample_output

Array = NDArray[Any]
POINTS, HOSTILE_POINTS = 64, 16
"""Of an output that are compared, at most."""


class Runnable(Protocol):
    """A compiled candidate."""

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        """Run on flat arrays in place; packed arguments are laid out before the first run on a list, not in it."""
        ...


@dataclass(frozen=True, slots=True)
class Wrong:
    """Where a kernel is wrong: the number of the output, the sizes, what the data was, and the first wrong place."""

    output: int
    sizes: tuple[tuple[str, int], ...]
    data: str
    mismatch: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes)
        return f"output {self.output}, {self.data} data{f' with {sizes}' if sizes else ''}, {self.mismatch}"


@dataclass
class _Case:
    """Data at some sizes, memory for outputs, and what they are there: found when something is compared with it."""

    region: Region
    dims: Mapping[str, int]
    data: str
    arguments: list[Array]
    outputs: list[Array]
    is_hostile: bool

    @cached_property
    def samples(self) -> list[Sample | None] | None:
        """Of each output; None where the data leads outside of memory."""
        points = HOSTILE_POINTS if self.is_hostile else POINTS
        try:
            return [
                sample_output(self.region, number, self.arguments, self.dims, 0, points, self.is_hostile)
                for number in range(len(self.outputs))
            ]
        except IndexError:
            return None

    def wrong(self, is_fold: bool) -> Wrong | None:
        assert self.samples is not None
        for number, (sample, output) in enumerate(zip(self.samples, self.outputs, strict=True)):
            found = None if sample is None else first_mismatch(sample, output, is_fold)
            if found is not None:
                return Wrong(number, tuple(sorted(self.dims.items())), self.data, str(found))
        return None


def _no_note(number: int) -> None:
    del number


class Trials:
    """Kernels of one region at some sizes.

    `place` lays an array where an executable's memory would be; `note` is told the number of a kernel before it runs,
    and -1 when it has run; `verify`: whether kernels are checked on hostile data too ("full"), or on "ordinary" data
    alone.
    """

    def __init__(
        self,
        region: Region,
        dims: Mapping[str, int],
        threads: int,
        place: Callable[[Array], Array],
        note: Callable[[int], None] = _no_note,
        verify: str = "full",
    ) -> None:
        self.region, self.dims, self.threads = region, dict(dims), threads
        self._place, self._note, self._verify = place, note, verify
        self._hostile: dict[tuple[object, ...], _Case | None] = {}
        self._long: Long = {}
        self._ordinary = self._case(dims, ordinary_data(region, dims), "ordinary")

    @property
    def is_valid(self) -> bool:
        """Whether the region can be run on data that is made up."""
        return self._ordinary is not None and self._ordinary.samples is not None

    def renew(self, seed: int) -> None:
        """Fresh ordinary data."""
        self._ordinary = self._case(self.dims, ordinary_data(self.region, self.dims, seed), "fresh")

    def check(
        self, number: int, form: Region, schedule: Schedule, is_fold: bool, run: Runnable
    ) -> Wrong | None:
        """Where a kernel of a form differs from the reference of the region: on ordinary data, then on hostile data if
        that is wanted."""
        assert self._ordinary is not None
        found = self._checked(self._ordinary, number, is_fold, run)
        if found is not None or self._verify == "ordinary":
            return found
        for sizes, kind in hostile_sizes(self.region, form, schedule, self.dims):
            case = self._hostile_case(sizes, kind)
            if case is None or case.samples is None:
                continue
            found = self._checked(case, number, is_fold, run)
            if found is not None:
                return found
        return None

    def time(self, runs: Mapping[int, Runnable], seconds: float) -> list[tuple[float, ...]]:
        """The seconds of each run of each kernel, on ordinary data, in turn."""
        case = self._ordinary
        assert case is not None

        def timed(run: Runnable) -> Callable[[], None]:
            return lambda: run.run(case.arguments, case.outputs, case.dims, self.threads)

        numbers = list(runs)
        try:
            return interleave(
                [timed(run) for run in runs.values()], seconds, lambda n: self._note(numbers[n])
            )
        finally:
            self._note(-1)

    def _checked(self, case: _Case, number: int, is_fold: bool, run: Runnable) -> Wrong | None:
        for output, memory in zip(self.region.outputs, case.outputs, strict=True):
            memory[...] = (
                case.arguments[output.alias] if output.alias >= 0 else garbage(output.dtype, memory.size)
            )
        self._note(number)
        try:
            run.run(case.arguments, case.outputs, case.dims, self.threads)
        finally:
            self._note(-1)
        return case.wrong(is_fold)

    def _hostile_case(self, sizes: Mapping[str, int], number: int) -> _Case | None:
        key = (number, *sorted(sizes.items()))
        if key not in self._hostile:
            data = hostile_data(self.region, sizes, number, self._long)
            self._hostile[key] = self._case(sizes, data, KINDS[number % len(KINDS)], is_hostile=True)
        return self._hostile[key]

    def _case(
        self, dims: Mapping[str, int], data: list[Array] | None, name: str, is_hostile: bool = False
    ) -> _Case | None:
        """None where the data is not to be had."""
        if data is None:
            return None
        # kernels only read their arguments; where nothing is timed these may stay where they are
        arguments = data if is_hostile else [self._place(array) for array in data]
        outputs = [
            self._place(np.zeros(output.elements.evaluate(dims), output.dtype.numpy))
            for output in self.region.outputs
        ]
        return _Case(self.region, dict(dims), name, arguments, outputs, is_hostile)
