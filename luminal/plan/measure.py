"""Candidates as machine code of this machine, for the search to time; and the figures of this machine."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.emit_cpu.dots import available
from luminal.emit_cpu.jit import Library, Target, load_object
from luminal.emit_cpu.pool import process_pool
from luminal.errors import CompileError
from luminal.passes.packed_loads import packed_loads
from luminal.plan.kernels import SIGNATURE
from luminal.plan.native_kernels import KernelCompiler, KernelSource
from luminal.plan.packing import pack, packed_elements, packing_of
from luminal.plan.plan import Storage
from luminal.runtimes.memory import allocate
from luminal.search.machine import Dot, Machine

Array = NDArray[Any]

COLD_PART, COLD_BYTES = 1.25, 40 << 20
"""What is read between two runs with the same copy of a parameter: so many times the last cache, or so much where its
size is not known."""
MOST_COPIES = 32
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of a core, a folder each."""
CLOCK = 3.125e9
"""Cycles of a core in a second, roughly: candidates are compared with each other."""
ONE_WIDE_UNIT = frozenset({"znver4", "cannonlake", "icelake-client", "tigerlake", "rocketlake"})
"""Processors that begin one multiply-add of 512 bits a cycle; all others at hand begin two of their widest vectors."""


def host_machine(threads: int) -> Machine:
    """This machine, for the generator and the roofline."""
    target = Target.host()
    full = (dot for dot in available(target) if dot.bits == target.vector_bits)
    dots = tuple(
        dict.fromkeys(Dot(dot.left, dot.right, dot.total, dot.group, dot.cycles, dot.largest) for dot in full)
    )
    lanes, multiply_adds = target.vector_bits // 32, multiply_adds_of(target)
    machine = Machine(
        lanes,
        target.vector_registers,
        flops=2 * lanes * multiply_adds * CLOCK,
        multiply_adds=multiply_adds,
        threads=threads,
        target=target.name,
        dots=dots,
    )
    caches = cache_bytes()
    l3 = caches[max(caches)] if caches else machine.l3
    return replace(machine, l1=caches.get(1, machine.l1), l2=caches.get(2, machine.l2), l3=l3)


def multiply_adds_of(target: Target) -> int:
    """How many multiply-adds of whole vectors a core begins in a cycle."""
    return 1 if target.vector_bits == 512 and target.cpu in ONE_WIDE_UNIT else 2


def cache_bytes(caches: Path = CACHES) -> dict[int, int]:
    """Bytes of the caches for data, by level; none where the system does not say."""
    found: dict[int, int] = {}
    for folder in caches.glob("index*"):
        try:
            level, size, kind = ((folder / name).read_text().strip() for name in ("level", "size", "type"))
            if kind != "Instruction":
                found[int(level)] = int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return found


@cache
def cold_bytes() -> int:
    """How much is read between two runs with the same copy of a parameter."""
    caches = cache_bytes()
    return int(COLD_PART * caches[max(caches)]) if caches else COLD_BYTES


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A kernel and its object, for another process."""

    source: KernelSource
    image: bytes


class HostMeasurer:
    """Compiles candidates for the search on this machine; what it builds runs in other processes too."""

    def __init__(self, compiler: KernelCompiler) -> None:
        self.compiler = compiler

    def __reduce__(self) -> tuple[type[HostMeasurer], tuple[KernelCompiler]]:
        made = self.compiler
        return HostMeasurer, (KernelCompiler(made.target, made.licences, made.use_cache),)

    def build(self, region: Region, schedule: Schedule, cost: int) -> BuiltKernel:
        """The object of a region under a schedule; ScheduleError where the schedule is not legal."""
        source = self.compiler.source(region, schedule, cost)
        image = self.compiler.image(source, keep=False)
        return BuiltKernel(replace(source, function=None), image)

    def adopt(self, built: BuiltKernel) -> None:
        """Keep what another process has built: the winner is wanted again."""
        self.compiler.adopt(built.source, built.image)

    def load(self, region: Region, schedule: Schedule, built: BuiltKernel) -> MeasuredKernel:
        """What was built, ready to run."""
        return MeasuredKernel(region, schedule, built, load_object(built.image, [built.source.name]))

    def compile(self, region: Region, schedule: Schedule, cost: int) -> MeasuredKernel:
        """Machine code of a region under a schedule; ScheduleError where the schedule is not legal."""
        return self.load(region, schedule, self.build(region, schedule, cost))

    def place(self, array: Array) -> Array:
        """A copy in huge pages where there are any, as arenas and outputs are."""
        placed = allocate(array.shape, array.dtype)
        placed[...] = array
        return placed


class MeasuredKernel:
    """A candidate that runs on flat arrays; constants that it wants packed are laid out before the first run on a list
    of arguments.

    In a model other kernels run between two calls of one, so that its parameters have left the caches of the cores:
    each run reads another copy of them.
    """

    def __init__(self, region: Region, schedule: Schedule, built: BuiltKernel, library: Library) -> None:
        self.region, self.schedule, self.source, self._library = region, schedule, built.source, library
        self._function = SIGNATURE(library[self.source.name])
        self._laid_out: list[tuple[Sequence[Array], dict[int, itertools.cycle[Array]]]] = []
        self._workspace = allocate((0,), np.dtype(np.uint8))

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        """Run it in place on `outputs`; CompileError for a status that is not 0."""
        size = self.source.shared.evaluate(dims) + threads * self.source.private.evaluate(dims)
        if self._workspace.nbytes < size:
            self._workspace = allocate((size,), np.dtype(np.uint8))
        packed = {number: next(copies) for number, copies in self._packed(arguments, dims).items()}
        arrays = [packed.get(number, array) for number, array in enumerate(arguments)]
        pointers = [array.ctypes.data for array in (*arrays, *outputs)]
        table = (ctypes.c_int64 * max(1, len(pointers)))(*pointers)
        sizes = [dims[name] for name in self.source.symbols]
        values = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        pool = process_pool().handle if threads > 1 else 0
        status = self._function(
            ctypes.addressof(table), ctypes.addressof(values), self._workspace.ctypes.data, pool, threads
        )
        if status:
            raise CompileError(f"kernel {self.source.name} failed with status {status}")

    def _packed(
        self, arguments: Sequence[Array], dims: Mapping[str, int]
    ) -> dict[int, itertools.cycle[Array]]:
        """The constants as they are laid out of a list of arguments, with copies where it is the first list, which is
        timed; that of the last one is kept beside the first's."""
        for known, packed in self._laid_out:
            if known is arguments:
                return packed
        packed = self._pack(arguments, dims, cold=not self._laid_out)
        self._laid_out = [*self._laid_out[:1], (arguments, packed)]
        return packed

    def _pack(
        self, arguments: Sequence[Array], dims: Mapping[str, int], cold: bool
    ) -> dict[int, itertools.cycle[Array]]:
        found: dict[int, itertools.cycle[Array]] = {}
        for argument, wanted in packed_loads(self.region, self.schedule).items():
            packing = packing_of(self.region, wanted, Storage("input", argument), dims)
            source = arguments[argument].view(packing.dtype.bit_carrier)
            target = allocate((packed_elements(packing),), source.dtype)
            pack(source, packing, target)
            more = min(MOST_COPIES, cold_bytes() // target.nbytes) if cold and target.nbytes else 0
            copies = [target, *(allocate(target.shape, target.dtype) for _ in range(more))]
            for copy in copies[1:]:
                copy[...] = target
            found[argument] = itertools.cycle(copies)
        return found
