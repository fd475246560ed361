"""Seconds of a launch on a GPU, from what its programs compute and move: orders candidates where no device is there.

The busiest multiprocessor decides.  Matrix and vector units work beside each other as far as warps have roles or
several programs share a multiprocessor; memory is waited for beside computing as far as loops are pipelined or programs
share.  docs/performance.md compares it with published measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

from luminal.search.gpu_machine import GpuMachine

SPECIALISED_SHOWS = 0.25
"""The part of the shorter of matrix and vector work that is not hidden behind the longer where warps have roles;
without roles it is one over the root of the programs that share a multiprocessor.  From the headline figures of the
FlashAttention-3 and FlashAttention-2 papers."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the programs of one launch do, all together, but for what is said of one program.

    `memory_bytes`: what is moved from and to memory, each byte once; `cache_bytes`: what programs read and write
    through the second cache, once for each program that does.  `matrix_flops` are of operands of `dtype`, by
    instructions that no warp waits for where `is_asynchronous` (wgmma, tcgen05); `is_specialised`: some warps multiply
    while others do the rest.  `operations`: vector instructions of a lane; `exponentials`: of the special unit.  One
    program: `steps` of its outer loop, of which `stages` are in flight; `resident`: programs that share a
    multiprocessor at a time.
    """

    programs: int
    memory_bytes: float
    cache_bytes: float = 0.0
    matrix_flops: float = 0.0
    dtype: str = "bf16"
    is_asynchronous: bool = False
    is_specialised: bool = False
    operations: float = 0.0
    exponentials: float = 0.0
    steps: int = 1
    stages: int = 1
    resident: int = 1


@dataclass(frozen=True, slots=True)
class GpuEstimate:
    """Seconds of a launch, and of its parts as if each were alone; `waiting`: latencies that follow each other."""

    seconds: float
    matrix: float
    vector: float
    transfer: float
    waiting: float


def estimate(launch: Launch, machine: GpuMachine) -> GpuEstimate:
    """What a launch costs, cold: nothing of its data is in a cache.

    Raises KeyError where the machine has no matrix units for the dtype.
    """
    busiest = -(-launch.programs // machine.units)
    balance = busiest * machine.units / launch.programs
    matrix = vector = 0.0
    if launch.matrix_flops:
        part = machine.matrix_part
        if not launch.is_asynchronous:
            part = min(part, machine.synchronous_part)
        matrix = launch.matrix_flops / (machine.matrix[launch.dtype] * part) * balance
    lanes = machine.vector / 2
    specials = machine.special * machine.units * machine.clock
    vector = (launch.operations / lanes + launch.exponentials / specials) * balance
    resident = max(1, min(launch.resident, busiest))
    shows = SPECIALISED_SHOWS if launch.is_specialised else resident**-0.5
    compute = max(matrix, vector) + shows * min(matrix, vector)
    transfer = max(
        launch.memory_bytes / (machine.bandwidth * machine.memory_part),
        launch.cache_bytes / machine.cache_bandwidth,
    )
    depth = max(1, min(launch.stages, launch.steps))
    waiting = -(-busiest // resident) * launch.steps / depth * machine.latency
    # A pipelined loop shows its first step alone; without one, only the other programs of the unit hide it.
    hiding = resident * (launch.steps if depth > 1 else 1)
    longer, shorter = max(compute, transfer), min(compute, transfer)
    seconds = machine.launch_seconds + max(longer + shorter / hiding, waiting)
    return GpuEstimate(seconds, matrix, vector, transfer, waiting)
