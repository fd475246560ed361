"""Candidates as machine code of this machine, for the search to time; and the figures of this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.placed import FunctionOp
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import as_dim
from luminal.emit_cpu.cache import cached_object
from luminal.emit_cpu.emit import Emitted, emit_function
from luminal.emit_cpu.jit import Library, Target, load_object
from luminal.emit_cpu.pool import process_pool
from luminal.errors import CompileError
from luminal.passes.place import place
from luminal.plan.kernels import SIGNATURE
from luminal.plan.packing import pack, packed_elements, packed_loads, packing_of
from luminal.runtimes.memory import allocate
from luminal.search.machine import Machine

Array = NDArray[Any]


def host_machine(threads: int) -> Machine:
    """This machine, for the generator and the roofline."""
    target = Target.host()
    return Machine(target.vector_bits // 32, target.vector_registers, threads=threads)


class MeasuredKernel:
    """A compiled candidate with workspace of its own."""

    def __init__(self, region: Region, schedule: Schedule, function: FunctionOp, emitted: Emitted, library: Library):
        self.region, self.emitted, self.library = region, emitted, library
        self.symbols = function.symbol_names
        self.packed = packed_loads(region, schedule)
        self.layouts: dict[int, Array] = {}
        self.entry = SIGNATURE(library[emitted.name])
        self.workspace = np.empty(0, np.uint8)

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        """Run on flat arrays; CompileError where the kernel reports a status."""
        for position, (buffer, load) in self.packed.items():
            if position not in self.layouts:
                symbols = {name: as_dim(dims[name]) for name in self.symbols}
                packing = packing_of(self.region, buffer, load, position, symbols)
                self.layouts[position] = allocate((packed_elements(packing),), arguments[position].dtype)
                pack(arguments[position], packing, self.layouts[position])
        sizes = [size.evaluate(dims) for size in (self.emitted.shared_bytes, self.emitted.private_bytes)]
        needed = sizes[0] + threads * sizes[1]
        if self.workspace.size < needed:
            self.workspace = allocate((needed,), np.dtype(np.uint8))
        memory = [*(self.layouts.get(n, a) for n, a in enumerate(arguments)), *outputs]
        pointers = (ctypes.c_void_p * max(len(memory), 1))(*(array.ctypes.data for array in memory))
        values = (ctypes.c_int64 * max(len(self.symbols), 1))(*(dims[name] for name in self.symbols))
        status = self.entry(
            ctypes.addressof(pointers), ctypes.addressof(values), self.workspace.ctypes.data, process_pool().handle, threads
        )
        if status:
            raise CompileError(f"a candidate ended with status {status}")


class HostMeasurer:
    """Compiles candidates for this machine."""

    def __init__(self, licences: Sequence[str]) -> None:
        self.licences = tuple(licences)

    def compile(self, region: Region, schedule: Schedule, cost: int) -> MeasuredKernel:
        """ScheduleError where the schedule is not legal for the region."""
        function = place(region, schedule, "kernel", self.licences, cost)
        emitted = emit_function(function, Target.host())
        image, _ = cached_object(emitted.text, Target.host())
        return MeasuredKernel(region, schedule, function, emitted, load_object(image, [emitted.name]))
