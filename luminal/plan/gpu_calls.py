"""The launches of a plan for given sizes: every address as a place in one of the call's bases.

The bases of a call are the addresses of its inputs, its outputs, its arena, and of constants and data, in this order.
Steps are cut into parts: launches, which a device can record, and after them the flags of checks that must be read
before anything else runs; or a library step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from luminal.plan.gpu_code import GpuCode, GpuLaunch
from luminal.plan.plan import KernelStep, LibraryStep, Plan, PlanValue


@dataclass(frozen=True, slots=True)
class Place:
    """`offset` bytes behind a base; `base` is its number."""

    base: int
    offset: int = 0

    def address(self, bases: Sequence[int]) -> int:
        return bases[self.base] + self.offset


@dataclass(frozen=True, slots=True)
class Call:
    """One launch: a function of the device, programs, the places of its pointers, and its sizes; `block`: where the
    step's own memory begins."""

    function: Any
    launch: GpuLaunch
    programs: int
    pointers: tuple[Place, ...]
    sizes: Mapping[str, int]
    block: Place

    def arguments(self, bases: Sequence[int]) -> list[int]:
        scratch = self.launch.scratch_arguments(self.block.address(bases), self.sizes)
        return [*(place.address(bases) for place in self.pointers), *self.sizes.values(), *scratch]


@dataclass(frozen=True, slots=True)
class Part:
    """Launches, and the flags of the checks among them with their steps; or a library step."""

    calls: tuple[Call, ...]
    flags: tuple[tuple[Place, KernelStep], ...] = ()
    library: LibraryStep | None = None


@dataclass(frozen=True)
class SizedPlan:
    """A plan for some sizes."""

    values: Mapping[str, int]
    arena_bytes: int
    parts: tuple[Part, ...]
    places: Callable[[int], Place]
    """Where a value of the plan lies."""


@dataclass(frozen=True, slots=True)
class Bases:
    """Which base holds what."""

    inputs: Mapping[int, int]
    outputs: int
    arena: int
    data: int

    @staticmethod
    def of(plan: Plan) -> Bases:
        constants = set(plan.constants)
        varying = [position for position in range(len(plan.inputs)) if position not in constants]
        arena = len(varying) + len(plan.outputs)
        inputs = {position: rank for rank, position in enumerate(varying)}
        inputs |= {position: arena + 1 + rank for rank, position in enumerate(plan.constants)}
        return Bases(inputs, len(varying), arena, arena + 1 + len(plan.constants))


def sized_plan(
    plan: Plan,
    codes: Mapping[str, GpuCode],
    functions: Mapping[str, Sequence[Any]],
    values: Mapping[str, int],
) -> SizedPlan:
    """The plan's calls at these sizes; `functions` are the device's, for each launch of each code."""
    bases, offsets = Bases.of(plan), plan.arena.offsets(values)

    def places(number: int) -> Place:
        storage = plan.values[number].storage
        if storage.kind == "arena":
            return Place(bases.arena, offsets[storage.number])
        if storage.kind == "input":
            return Place(bases.inputs[storage.number])
        return Place((bases.outputs if storage.kind == "output" else bases.data) + storage.number)

    def calls_of(step: KernelStep) -> list[Call]:
        code = codes[step.kernel]
        sizes = {s.name: size.evaluate(values) for s, size in zip(code.symbols, step.dims, strict=True)}
        first = offsets[step.workspace] if step.workspace >= 0 else 0
        pointers = [places(number) for number in step.arguments]
        pointers += [Place(bases.arena, first + offset.evaluate(sizes)) for offset in code.workspaces]
        counts = [(launch.programs.evaluate(sizes), launch) for launch in code.launches]
        return [
            Call(function, launch, count, tuple(pointers), sizes, Place(bases.arena, first))
            for (count, launch), function in zip(counts, functions[step.kernel], strict=True)
            if count > 0
        ]

    parts: list[Part] = []
    for steps in _cut(plan):
        if isinstance(steps, LibraryStep):
            parts.append(Part((), (), steps))
            continue
        calls = [call for step in steps for call in calls_of(step)]
        flags = tuple((places(step.arguments[-1]), step) for step in steps if step.check)
        parts.append(Part(tuple(calls), flags))
    return SizedPlan(values, plan.arena.total(values), tuple(parts), places)


def _cut(plan: Plan) -> list[LibraryStep | list[KernelStep]]:
    """Library steps alone, kernels together up to the last of some checks that stand together."""
    found: list[LibraryStep | list[KernelStep]] = []
    for step in plan.steps:
        if isinstance(step, LibraryStep):
            found.append(step)
            continue
        last = found[-1] if found else None
        if isinstance(last, list) and (step.check or not last[-1].check):
            last.append(step)
        else:
            found.append([step])
    return found


def value_bytes(value: PlanValue, sizes: Mapping[str, int]) -> int:
    """How many bytes the memory of a value has."""
    return value.elements.evaluate(sizes) * value.dtype.size_bytes
