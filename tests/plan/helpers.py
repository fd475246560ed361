"""Small region graphs made by hand, and executables of them whose kernels run in the placed interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.dialects.kernel.placed_interpreter import interpret_placed
from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, Symbol, as_dim, symbol_dim
from luminal.dtype import DType, f32
from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.passes.packed_loads import PackedLoad, packed_loads
from luminal.passes.place import place
from luminal.passes.region_graph import RegionGraph, RegionStep, RegionValue
from luminal.plan.build import KernelFacts, Outline, build_plan
from luminal.plan.executable import PlanExecutable
from luminal.plan.kernels import InterpretedKernel
from luminal.plan.native_entry import FrameLayout, entry_text, segment_names
from luminal.plan.packing import packed_elements
from luminal.plan.plan import KernelStep, Plan
from luminal.stats import Stats

D0 = symbol_dim(Symbol("d0", 0, None))
S = symbol_dim(Symbol("s", 0, 64))


def elementwise(op: str, count: int, size: Dim = D0) -> Region:
    """out[i] = op(argument 0 [i], argument 1 [i] ...)."""
    table = TermTable()
    address = Affine.of({"i": 1})
    loads = tuple(table.read(number, address, f32) for number in range(count))
    term = table.apply(op, loads, None, f32)
    arguments = [Argument(f32, size) for _ in range(count)]
    return Region(table, {"i": size}, arguments, [Output(term, size, address, indices=frozenset({"i"}))])


def value(
    number: int, kind: str, size: Dim = S, position: int = -1, dtype: DType = f32, shares: int = -1
) -> RegionValue:
    return RegionValue(number, dtype, (size,), (as_dim(1),), size, kind, position, shares)


def graph_of(
    values: list[RegionValue], steps: Sequence[Any], outputs: Sequence[int], requirements: Sequence[Any] = ()
) -> RegionGraph:
    inputs = tuple(v.number for v in values if v.kind in ("input", "constant") and v.position >= 0)
    regions = {step.key: step.region for step in steps if hasattr(step, "region")}
    return RegionGraph(values, list(steps), inputs, tuple(outputs), regions, list(requirements))


def step(
    region: Region, key: str, arguments: Sequence[int], outputs: Sequence[int], size: Dim = S
) -> RegionStep:
    symbols = {"d0": size} if region.symbols else {}
    return RegionStep(region, key, tuple(arguments), tuple(outputs), symbols, ())


def plain_schedule(region: Region) -> Schedule:
    """Every index of every output a loop, and the reduced indices inside of them."""
    roots: list[str] = []
    for number, output in enumerate(region.outputs):
        reduced = sorted({i for t in _below(output.term) if t.op == "reduce" for i in t.reduce.indices})
        factors = " ".join(f"{index}:*" for index in [*sorted(output.indices), *reduced]) or "."
        roots.append(f"out{number}: {factors}")
    return parse_schedule("; ".join(roots))


def _below(term: Term) -> list[Term]:
    return [term, *(t for operand in term.operands for t in _below(operand))]


def types_of(graph: RegionGraph, numbers: Sequence[int]) -> tuple[TensorType, ...]:
    return tuple(tensor_type(graph.values[n].shape, graph.values[n].dtype) for n in numbers)


def build(
    graph: RegionGraph, schedules: Mapping[str, Schedule] | None = None, hint: Mapping[str, int] | None = None
) -> tuple[Plan, dict[str, KernelFacts], dict[str, dict[int, PackedLoad]]]:
    found = {key: plain_schedule(region) for key, region in graph.regions.items()} | dict(schedules or {})
    facts = {key: KernelFacts(key, tuple(region.symbols)) for key, region in graph.regions.items()}
    packed = {key: packed_loads(graph.regions[key], found[key]) for key in graph.regions}
    symbols = {symbol for v in graph.values for size in v.shape for symbol in size.symbols()}
    outline = Outline(
        "main",
        tuple(sorted(symbols, key=lambda symbol: symbol.name)),
        types_of(graph, graph.inputs),
        types_of(graph, graph.outputs),
        hint or {},
    )
    return build_plan(outline, graph, facts, packed), facts, packed


def load_entry(plan: Plan) -> tuple[dict[str, int], Any]:
    text = entry_text(plan, FrameLayout.of(plan))
    names = list(dict.fromkeys(["arena_bytes", "start", *filter(None, segment_names(plan))]))
    library = load_object(compile_object(text, Target.host()), names)
    return {name: library[name] for name in names}, library


def interpreted(region: Region, schedule: Schedule, plan: Plan, key: str) -> InterpretedKernel:
    function = place(region, schedule, "kernel")
    references = [(argument.dtype, argument.elements) for argument in region.arguments]
    references += [(output.dtype, output.elements) for output in region.outputs]
    for one in plan.steps:
        if isinstance(one, KernelStep) and one.kernel == key:
            for position, packed in enumerate(one.packed):
                if packed >= 0:
                    references[position] = (
                        references[position][0],
                        as_dim(packed_elements(plan.packings[packed])),
                    )

    def run(arrays: list[np.ndarray[Any, Any]], dims: Mapping[str, int]) -> None:
        interpret_placed(function, arrays, dims)

    return InterpretedKernel(references, region.symbols, run)


def executable(
    graph: RegionGraph, schedules: Mapping[str, Schedule] | None = None, threads: int = 1
) -> PlanExecutable:
    plan, _, _ = build(graph, schedules)
    found = {key: plain_schedule(region) for key, region in graph.regions.items()} | dict(schedules or {})
    kernels = {key: interpreted(region, found[key], plan, key) for key, region in graph.regions.items()}
    entry, library = load_entry(plan)
    return PlanExecutable(plan, entry, kernels, lambda _: 0, Stats(), lambda: threads, library)
