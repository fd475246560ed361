"""Candidates of a region on the device: each is compared with the reference first, then all are timed in turn, cold.

A launch that faults takes the device away from the whole process, so that nothing can be timed any more: DriverError.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.emit_triton.targets import GpuTarget
from luminal.errors import DriverError, SoundnessError
from luminal.plan.gpu_build import GpuFunction, code_of
from luminal.runtimes.gpu_device import Device
from luminal.search.samples import Samples
from luminal.search.timing import HOPELESS
from luminal.search.trial import Trials

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
ROUNDS: Mapping[str, int] = {"default": 5, "max-autotune": 15}
"""How often each candidate is timed, by mode."""


class DeviceJudge:
    """A `Judge` with a device.  `measured`: each candidate that was timed with its seconds, by the function's name."""

    def __init__(
        self, device: Device, target: GpuTarget, licences: Sequence[str], verify: str, mode: str
    ) -> None:
        self._device, self._target, self._verify = device, target, verify
        self._licences, self._rounds = tuple(licences), ROUNDS[mode]
        self.measured: dict[str, list[tuple[str, float]]] = {}

    def __call__(
        self, region: Region, samples: Samples, functions: Sequence[GpuFunction], forms: Sequence[Region]
    ) -> int:
        """The number of the fastest function; `forms` are what each computes, equal to the region.

        SoundnessError for one that differs from the reference.
        """
        if not samples.is_valid:
            return 0
        with self._device.active():
            trials = Trials(region, samples.expected, 1, lambda array: array, verify=self._verify)
            if not trials.is_valid:
                return 0
            runs = [_Run(self._device, function, self._target) for function in functions]
            for number, (function, form, run) in enumerate(zip(functions, forms, runs, strict=True)):
                candidate = function.candidate
                wrong = trials.check(number, form, candidate.schedule, bool(candidate.form), run)
                if wrong is not None:
                    lines = (
                        f"a generated kernel for {self._target.name} differs from the reference",
                        f"where: {wrong}",
                        f"candidate: {candidate}",
                        f"licences: {', '.join(self._licences) or 'none'}",
                        f"region:\n{region_text(region)}",
                    )
                    raise SoundnessError("\n".join(lines))
            seconds = self._time(runs)
        self.measured[functions[0].name] = [
            (str(function.candidate), taken) for function, taken in zip(functions, seconds, strict=True)
        ]
        return seconds.index(min(seconds))

    def _time(self, runs: Sequence[_Run]) -> list[float]:
        """The median seconds of each, on the data of the first check; what is hopeless is not run again."""
        taken: list[list[float]] = [[] for _ in runs]
        for _ in range(self._rounds):
            best = min((min(each) for each in taken if each), default=float("inf"))
            for each, run in zip(taken, runs, strict=True):
                if not each or min(each) <= HOPELESS * best:
                    each.append(self._device.time(run.again))
        return [statistics.median(each) for each in taken]


class _Run:
    """A function on flat arrays of the host, as `Trials` runs it; the first data stays on the device."""

    def __init__(self, device: Device, function: GpuFunction, target: GpuTarget) -> None:
        self._device, self._function = device, function
        self._code = code_of(function, target)
        self._loaded = [device.load(launch.code) for launch in self._code.launches]
        self._first: tuple[Sequence[torch.Tensor], Mapping[str, int]] | None = None

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        """Run it in place on `outputs`."""
        del threads
        tensors = [self._device.upload(array) for array in (*arguments, *outputs)]
        self._launch(tensors, dims)
        if self._first is None:
            self._first = tensors, dims
        for array, tensor in zip(outputs, tensors[len(arguments) :], strict=True):
            array[...] = self._device.download(tensor).view(array.dtype)

    def again(self) -> None:
        """Launch it on the data that it was run on first."""
        assert self._first is not None
        self._launch(*self._first)

    def _launch(self, tensors: Sequence[torch.Tensor], dims: Mapping[str, int]) -> None:
        sizes = {symbol.name: dims[symbol.name] for symbol in self._code.symbols}
        workspace = self._device.allocate(max(1, self._function.workspace_bytes.evaluate(sizes)))
        first = workspace.data_ptr()
        pointers = [tensor.data_ptr() for tensor in tensors]
        pointers += [first + offset.evaluate(sizes) for offset in self._code.workspaces]
        stream = self._device.stream()
        for launch, function in zip(self._code.launches, self._loaded, strict=True):
            programs = launch.programs.evaluate(sizes)
            if programs <= 0:
                continue
            arguments = [*pointers, *sizes.values(), *launch.scratch_arguments(first, sizes)]
            try:
                self._device.launch(function, programs, arguments, stream)
            except DriverError as error:
                raise DriverError(f"{error}, in {self._function.candidate}") from error
