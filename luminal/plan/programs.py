"""The programs of a compiled graph, one for each box of sizes: kept on disk, found again, and made executable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Symbol
from luminal.dim.buckets import Box, box_text
from luminal.emit_cpu.cache import read_entry, write_entry
from luminal.emit_cpu.jit import load_object
from luminal.emit_cpu.pool import process_pool
from luminal.plan.bucketed import BucketedExecutable
from luminal.plan.executable import PlanExecutable
from luminal.plan.kernels import Kernel, LoadedKernel
from luminal.plan.native_entry import segment_names
from luminal.plan.plan import Plan, plan_from_json, plan_to_json
from luminal.stats import Stats

Compiled = PlanExecutable | BucketedExecutable


@dataclass(frozen=True)
class Program:
    """What runs for the sizes of a box.

    `entry`: the object of its native entry; `keys`: under which that and its kernels, by name, are in the cache, None
    where they are not; `levels`: its text at each level that was asked for; `images`: the objects of its kernels, by
    name, where they were made here.
    """

    box: Box
    plan: Plan
    kernels: Mapping[str, Kernel]
    entry: bytes
    keys: tuple[str, Mapping[str, str]] | None = None
    levels: dict[str, str] = field(default_factory=dict[str, str])
    images: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class Interface(Protocol):
    """The border of a graph."""

    @property
    def symbols(self) -> Sequence[Symbol]: ...
    @property
    def input_types(self) -> Sequence[TensorType]: ...
    @property
    def output_types(self) -> Sequence[TensorType]: ...


class LoadedKernels:
    """Kernels of objects, each loaded once for all programs."""

    def __init__(self) -> None:
        self._known: dict[str, Kernel] = {}

    def load(self, name: str, key: str, image: bytes) -> Kernel:
        """The kernel of an object with this key."""
        if key not in self._known:
            library = load_object(image, [name])
            self._known[key] = LoadedKernel(library[name], library)
        return self._known[key]


def keep_programs(key: str, programs: Sequence[Program]) -> None:
    """Leave programs on disk for the next compilation of their graph."""
    kept: list[dict[str, Any]] = []
    for program in programs:
        assert program.keys is not None
        entry, kernels = program.keys
        plan = plan_to_json(program.plan)
        kept.append({"box": program.box, "plan": plan, "kernels": dict(kernels), "entry": entry})
    write_entry(key, json.dumps(kept).encode())


def find_programs(key: str, kernels: LoadedKernels) -> list[Program] | None:
    """The programs that an earlier compilation left on disk; None where anything of them is missing."""
    kept = read_entry(key)
    if kept is None:
        return None
    try:
        found = [_program(data, kernels) for data in json.loads(kept)]
    except (ValueError, KeyError, TypeError):
        return None
    programs = [program for program in found if program is not None]
    return programs if programs and len(programs) == len(found) else None


def _program(data: Mapping[str, Any], kernels: LoadedKernels) -> Program | None:
    images = {name: (object_key, read_entry(object_key)) for name, object_key in data["kernels"].items()}
    entry = read_entry(data["entry"])
    if entry is None or any(image is None for _, image in images.values()):
        return None
    loaded = {
        name: kernels.load(name, object_key, image)
        for name, (object_key, image) in images.items()
        if image is not None
    }
    box = {name: (low, high) for name, (low, high) in data["box"].items()}
    return Program(box, plan_from_json(data["plan"]), loaded, entry)


def executable_of(graph: Interface, programs: Sequence[Program], stats: Stats) -> Compiled:
    """What runs the programs of a graph; their figures are noted in `stats`."""
    several = len(programs) > 1
    made: list[tuple[Box, PlanExecutable]] = []
    for program in programs:
        plan = program.plan
        names = list(dict.fromkeys(["arena_bytes", "start", *filter(None, segment_names(plan))]))
        library = load_object(program.entry, names)
        own = Stats() if several else stats
        own.kernels, own.launches = len(plan.kernels), len(plan.steps)
        if several:
            stats.programs[box_text(program.box)] = own
        executable = PlanExecutable(
            plan, library.addresses, program.kernels, _pool_handle, own, keep_alive=library
        )
        made.append((program.box, executable))
    if not several:
        return made[0][1]
    stats.kernels = len({id(kernel) for program in programs for kernel in program.kernels.values()})
    stats.launches = max(len(program.plan.steps) for program in programs)
    return BucketedExecutable(graph.symbols, graph.input_types, graph.output_types, made, stats)


def _pool_handle(threads: int) -> int:
    return process_pool().handle if threads > 1 else 0
