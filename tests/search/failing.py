"""Measurers whose kernels fail: imported by worker processes too, so that it is a module of its own."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import BuiltKernel, HostMeasurer, MeasuredKernel
from luminal.plan.native_kernels import KernelCompiler

Array = np.ndarray[Any, Any]


def compiler() -> KernelCompiler:
    return KernelCompiler(Target.host(), ("contract", "reassociate"), use_cache=False)


class Kernel:
    """A native kernel that does something else from its run number `first` on."""

    def __init__(self, kernel: MeasuredKernel, fault: str, first: int) -> None:
        self.kernel, self.fault, self.first, self.runs = kernel, fault, first, 0

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        self.kernel.run(arguments, outputs, dims, threads)
        self.runs += 1
        if self.runs < self.first:
            return
        if self.fault == "segfault":
            ctypes.string_at(1)
        if self.fault == "abort":
            os.abort()
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "wrong":
            outputs[0][...] += 1


class Failing(HostMeasurer):
    """The kernels of one schedule have a fault, from their run number `first` on; or its compilation has."""

    def __init__(self, fault: str, schedule: str, first: int = 1, stage: str = "run") -> None:
        super().__init__(compiler())
        self.fault, self.schedule, self.first, self.stage = fault, schedule, first, stage

    def __reduce__(self) -> Any:
        return Failing, (self.fault, self.schedule, self.first, self.stage)

    def build(self, region: Region, schedule: Schedule, cost: int) -> BuiltKernel:
        if self.stage == "build" and str(schedule) == self.schedule:
            os.abort()
        return super().build(region, schedule, cost)

    def load(self, region: Region, schedule: Schedule, built: BuiltKernel) -> Any:
        kernel = super().load(region, schedule, built)
        return Kernel(kernel, self.fault, self.first) if str(schedule) == self.schedule else kernel
