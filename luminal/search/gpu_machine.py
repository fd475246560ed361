"""What a GPU's roofline, and the occupancy of its multiprocessors, must know of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luminal.emit_triton.operands import EIGHTS

PARTS = 4
"""Schedulers of a unit, each with registers of its own; of all NVIDIA's and AMD's GPUs that are described."""


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """A device of `units` multiprocessors (AMD: compute units).

    Rates: `bandwidth` and `cache_bandwidth` in bytes per second from memory and from the second cache of `l2` bytes;
    `matrix` in operations per second of the matrix units on dense operands, by dtype; `vector` in f32 operations per
    second (a multiply-add is two); `special` in exponentials of a unit's clock cycle.  All are advertised peaks:
    `matrix_part` and `memory_part` are what the best published kernels reach of them, `synchronous_part` what matrix
    instructions reach that a warp waits for (`mma.sync`).

    Limits: `registers` (32 bits) of a unit, `thread_registers` of a thread, handed out in `register_step`s of a thread;
    bytes of shared memory of a unit and of one program, with what each program's reservation adds; warps and programs
    of a unit.
    """

    units: int
    clock: float
    bandwidth: float
    cache_bandwidth: float
    l2: int
    matrix: Mapping[str, float]
    vector: float
    special: float
    matrix_part: float
    memory_part: float
    warp: int = 32
    registers: int = 65536
    thread_registers: int = 255
    register_step: int = 8
    unit_shared: int = 233472
    program_shared: int = 232448
    reserved_shared: int = 1024
    unit_warps: int = 64
    unit_programs: int = 32
    synchronous_part: float = 1.0
    launch_seconds: float = 3e-6
    latency: float = 0.7e-6
    """Seconds from asking memory to the answer."""
    scaled: frozenset[str] = frozenset()
    """The formats of numbers that it multiplies with a scale for each group of them (`emit_triton/scaled.py`)."""

    describes: bool = False
    """Whether one instruction loads a block of a tensor that a descriptor describes."""

    undotted: frozenset[str] = frozenset()
    """The dtypes of whose blocks no product can be compiled: they are multiplied and summed in full."""

    @property
    def eights(self) -> frozenset[str]:
        """The names of floats of 8 bits that it multiplies."""
        return frozenset(self.matrix) & {dtype.name for dtype in EIGHTS}


def resident_programs(machine: GpuMachine, registers: int, shared: int, warps: int) -> int:
    """How many programs of some `warps`, `registers` of a thread and bytes of `shared` memory a unit holds at a time; 0
    where it holds none."""
    step = machine.register_step
    per_warp = -(-max(registers, 1) // step) * step * machine.warp
    by_registers = machine.registers // PARTS // per_warp * PARTS // warps
    by_shared = machine.unit_shared // max(shared + machine.reserved_shared, 1)
    by_warps = machine.unit_warps // warps
    return min(by_registers, by_shared, by_warps, machine.unit_programs)
