"""What a compiled kernel takes of a GPU, read from what the compilers say, and whether a target can run it well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from luminal.emit_triton.targets import GpuTarget
from luminal.search.gpu_machine import resident_programs
from luminal.search.gpu_roofline import Launch

# How instructions of a kind begin, in PTX and in AMD's assembly.
NVIDIA_KINDS = {
    "wgmma": r"wgmma\.mma_async",
    "tcgen05": r"tcgen05\.mma",
    "mma.sync": r"(?<![\w.])mma\.sync",
    "cp.async": r"cp\.async\.c[ag]",
    "tma": r"cp\.async\.bulk\.tensor",
    "atomic": r"(?<![\w.])(?:atom|red)\.",
    "setmaxnreg": r"setmaxnreg\.",
    "barrier": r"(?<![\w.])bar(?:rier)?\.(?:cta\.)?sync|mbarrier\.try_wait",
}
AMD_KINDS = {
    "mfma": r"(?<!\w)v_s?mfma",
    "lds load": r"(?<!\w)(?:buffer|global)_load\S*[^\n;]*\blds\b",
    "atomic": r"(?<!\w)(?:global|flat|buffer)_atomic",
    "barrier": r"(?<!\w)s_barrier",
}
ASYNCHRONOUS = {"wgmma", "tcgen05"}
"""Matrix instructions that no warp waits for at once."""
KINDS = {"cuda": NVIDIA_KINDS, "hip": AMD_KINDS}


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers` of 32 bits, bytes of `stack` and of `spills` (what is moved out of registers and back) of a thread;
    bytes of `shared` memory and columns of `tensor_memory` of a program of `warps`; how many `instructions` of each
    kind stand in the code."""

    registers: int
    spills: int
    stack: int
    shared: int
    tensor_memory: int
    warps: int
    instructions: Mapping[str, int]


def count_instructions(assembly: str, backend: str) -> dict[str, int]:
    """How many instructions of each kind stand in PTX ("cuda") or AMD's assembly ("hip"); kinds that do not are left
    out."""
    counts = {kind: len(re.findall(pattern, assembly)) for kind, pattern in KINDS[backend].items()}
    return {kind: count for kind, count in counts.items() if count}


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text)]


def read_resources(backend: str, assembly: str, report: str, metadata: Mapping[str, int]) -> Resources:
    """The resources of a kernel; `report`: what `ptxas -v` said, for NVIDIA alone.

    Raises ValueError where the compiler has not said how many registers it took.
    """
    if backend == "cuda":
        registers = _numbers(r"Used (\d+) registers", report)
        spills = sum(_numbers(r"(\d+) bytes spill (?:stores|loads)", report))
        stack = _numbers(r"(\d+) bytes stack frame", report)
    else:
        registers = _numbers(r"\.vgpr_count:\s+(\d+)", assembly)
        spills = 4 * sum(_numbers(r"\.vgpr_spill_count:\s+(\d+)", assembly))
        stack = _numbers(r"\.private_segment_fixed_size:\s+(\d+)", assembly)
    if not registers:
        raise ValueError(f"the compiler does not say how many registers the kernel takes: {report!r}")
    return Resources(
        registers=max(registers),
        spills=spills,
        stack=max(stack, default=0),
        shared=metadata.get("shared", 0),
        tensor_memory=metadata.get("tmem_size", 0),
        warps=metadata["num_warps"],
        instructions=count_instructions(assembly, backend),
    )


def occupancy(resources: Resources, target: GpuTarget) -> int:
    """How many programs of a kernel a multiprocessor holds at a time; 0 where it holds none."""
    found = resident_programs(target.machine, resources.registers, resources.shared, resources.warps)
    if resources.tensor_memory:
        found = min(found, target.tensor_memory // resources.tensor_memory)
    return found


def with_resources(launch: Launch, resources: Resources, target: GpuTarget) -> Launch:
    """A launch as its compiled kernel makes it: how many programs share a multiprocessor, and how they multiply."""
    found = resources.instructions.keys()
    return replace(
        launch,
        resident=occupancy(resources, target),
        is_asynchronous=bool(ASYNCHRONOUS & found),
        is_specialised="setmaxnreg" in found,  # registers go from warps of one role to those of another
    )


def refusal(resources: Resources, target: GpuTarget) -> str | None:
    """Why a kernel is no candidate on a target, in one line; None where it is one."""
    machine = target.machine
    name = target.name
    if resources.shared > machine.program_shared:
        return f"it needs {resources.shared} bytes of shared memory, {name} has {machine.program_shared} for a program"
    if resources.tensor_memory > target.tensor_memory:
        return (
            f"it needs {resources.tensor_memory} columns of tensor memory, {name} has {target.tensor_memory}"
        )
    if resources.spills:
        return f"it spills {resources.spills} bytes of each thread's registers, of which it uses {resources.registers}"
    if not occupancy(resources, target):
        return (
            f"{resources.warps} warps with {resources.registers} registers of a thread do not fit on {name}"
        )
    return None
