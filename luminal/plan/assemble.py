"""From regions with their schedules to a plan and its kernels, native or interpreted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from numpy.typing import NDArray

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_interpreter import interpret_placed
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import ONE, Dim
from luminal.emit_cpu.sorting import SORTED, SYMBOLS
from luminal.passes.fold_constants import Fold
from luminal.passes.packed_loads import PackedLoad, packed_loads
from luminal.passes.place import place
from luminal.passes.region_graph import OpaqueStep, RegionGraph, RegionValue, Step
from luminal.plan.build import KernelFacts, Outline, build_plan
from luminal.plan.kernels import InterpretedKernel, Kernel
from luminal.plan.native_kernels import KernelCompiler, KernelSource
from luminal.plan.plan import Plan
from luminal.search.chooser import Choice


def outline_of(graph: GraphOp, hints: Mapping[str, int], folds: Sequence[Fold] = ()) -> Outline:
    """The border of a lowered graph; `hints` are expected sizes, and `folds` compute the last of its inputs."""
    return Outline(
        graph.graph_name, graph.symbols, graph.input_types, graph.output_types, hints, tuple(folds)
    )


def _packed(regions: RegionGraph, choices: Mapping[str, Choice]) -> dict[str, dict[int, PackedLoad]]:
    return {key: packed_loads(region, choices[key].schedule) for key, region in regions.regions.items()}


def native_plan(
    outline: Outline,
    regions: RegionGraph,
    choices: Mapping[str, Choice],
    compiler: KernelCompiler,
) -> tuple[Plan, list[KernelSource]]:
    """The plan, and the kernels that it calls, each different one once."""
    facts: dict[str, KernelFacts] = {}
    sources: dict[str, KernelSource] = {}
    for key, region in regions.regions.items():
        choice = choices[key]
        source = compiler.source(region, choice.schedule, choice.cost)
        sources[source.name] = source
        facts[key] = source
    sorts: dict[int, tuple[KernelFacts, dict[str, Dim]]] = {}
    for number, step in enumerate(regions.steps):
        sizes = sort_sizes(step, regions)
        if isinstance(step, OpaqueStep) and sizes is not None:
            dtype = regions.values[step.arguments[0]].dtype
            source = compiler.sort(dtype, bool(step.attributes["descending"]))
            sources[source.name] = source
            sorts[number] = source, sizes
    plan = build_plan(outline, regions, facts, _packed(regions, choices), sorts)
    return plan, [sources[name] for name in plan.kernels]


def sort_sizes(step: Step, regions: RegionGraph) -> dict[str, Dim] | None:
    """The sizes of a sort's kernel; None for other steps, for dtypes that it does not know, and where a tensor is not
    row-major."""
    if not isinstance(step, OpaqueStep) or step.op != "sort":
        return None
    (source, values, places) = (regions.values[n] for n in (*step.arguments, *step.outputs))
    axis = cast("int", step.attributes["axis"])
    if source.dtype.name not in SORTED or not all(map(_is_row_major, (source, values, places))):
        return None
    outer, inner = (math.prod(part, start=ONE) for part in (source.shape[:axis], source.shape[axis + 1 :]))
    return dict(zip(SYMBOLS, (outer, source.shape[axis], inner, values.shape[axis]), strict=True))


def _is_row_major(value: RegionValue) -> bool:
    step = ONE
    for size, stride in zip(reversed(value.shape), reversed(value.strides), strict=True):
        if stride != step and size != 1:
            return False
        step = step * size
    return True


def interpreted_plan(
    outline: Outline, regions: RegionGraph, choices: Mapping[str, Choice]
) -> tuple[Plan, dict[str, Kernel]]:
    """The plan, and its kernels in the placed interpreter."""
    facts: dict[str, KernelFacts] = {}
    kernels: dict[str, Kernel] = {}
    for number, (key, region) in enumerate(regions.regions.items()):
        name = f"kernel_{number}"
        kernels[name] = interpreted_kernel(region, choices[key].schedule, name)
        facts[key] = KernelFacts(name, tuple(region.symbols))
    plan = build_plan(outline, regions, facts, _packed(regions, choices))
    return plan, kernels


def interpreted_kernel(region: Region, schedule: Schedule, name: str) -> InterpretedKernel:
    """A region under a schedule, placed and interpreted."""
    function = place(region, schedule, name)
    references = map(reference_of, function.body.block.args)
    memory = [(reference.dtype, reference.elements) for reference in references]

    def run(arrays: list[NDArray[Any]], dims: Mapping[str, int]) -> None:
        interpret_placed(function, arrays, dims)

    return InterpretedKernel(memory, function.symbol_names, run)
