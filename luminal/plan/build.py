"""From a region graph and its compiled kernels to a plan: storage, lifetimes, workspaces and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, Symbol, as_dim, symbol_dim
from luminal.errors import CompileError, DimRangeError
from luminal.passes.fold_constants import Fold
from luminal.passes.memory_plan import Block, plan_arena, sample_dims
from luminal.passes.packed_loads import PackedLoad
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep, RegionValue, Step
from luminal.plan.packing import packing_of
from luminal.plan.plan import (
    THREADS,
    KernelStep,
    LibraryStep,
    Packing,
    Plan,
    PlanStep,
    PlanValue,
    Storage,
)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a plan must know of the kernel of a region.

    `symbols` are its sizes in the order of its ABI; its workspace has `shared` bytes and `private` bytes for each
    thread, dims over those symbols.
    """

    name: str
    symbols: tuple[str, ...]
    shared: Dim = field(default_factory=lambda: as_dim(0))
    private: Dim = field(default_factory=lambda: as_dim(0))


@dataclass(frozen=True, slots=True)
class Outline:
    """The border of the graph that a plan is for; `folds` compute the last of its inputs."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    hint: Mapping[str, int] = field(default_factory=dict[str, int])
    folds: tuple[Fold, ...] = ()


def memory_of(values: Sequence[RegionValue], number: int) -> int:
    """The value whose memory a value is, through updates in place."""
    while values[number].shares >= 0:
        number = values[number].shares
    return number


def build_plan(
    outline: Outline,
    graph: RegionGraph,
    facts: Mapping[str, KernelFacts],
    packed: Mapping[str, Mapping[int, PackedLoad]],
    sorts: Mapping[int, tuple[KernelFacts, Mapping[str, Dim]]] = MappingProxyType({}),
) -> Plan:
    """The plan of a graph.  `facts` are by region key; so are the loads that a kernel wants packed, by argument.
    `sorts`: the kernels of those that are native, with their sizes, by step."""
    if any(symbol.name == THREADS.name for symbol in outline.symbols):
        raise DimRangeError(
            f"a dim of a graph cannot be named {THREADS.name}: the plan has a size of that name"
        )
    arena = _Arena(graph)
    layouts: list[Packing] = []
    steps: list[PlanStep] = []
    for number, step in enumerate(graph.steps):
        if number in sorts:
            found, sizes = sorts[number]
            steps.append(_native_step(step, number, found, sizes, arena))
            continue
        if isinstance(step, OpaqueStep):
            attributes = tuple(sorted(step.attributes.items()))
            steps.append(LibraryStep(step.op, step.arguments, step.outputs, attributes, step.sources))
            continue
        wanted = {
            position: packing_of(step.region, load, arena.storage[step.arguments[position]], step.symbols)
            for position, load in packed.get(step.key, {}).items()
        }
        layouts += [packing for packing in wanted.values() if packing not in layouts]
        steps.append(_kernel_step(step, number, facts[step.key], wanted, layouts, arena))
    values = tuple(
        PlanValue(v.dtype, v.shape, v.strides, v.elements, arena.storage[v.number]) for v in graph.values
    )
    for number, value in enumerate(graph.outputs):
        if graph.values[value].kind != "output" or graph.values[value].position != number:
            raise CompileError(f"output {number} has no memory of its own")
    memory = [graph.values[memory_of(graph.values, number)] for number in graph.outputs]
    constants = [value.position for value in graph.values if value.kind == "constant"]
    samples = [{**sample, THREADS.name: 2} for sample in sample_dims(outline.symbols, outline.hint)]
    return Plan(
        outline.name,
        outline.symbols,
        outline.inputs,
        outline.outputs,
        tuple(position for position in constants if position >= 0),
        tuple((number, v.position) for number, v in enumerate(memory) if v.kind in ("input", "constant")),
        values,
        tuple(layouts),
        plan_arena(arena.blocks, samples),
        tuple(steps),
        tuple(graph.requirements),
        tuple(arena.data),
        outline.folds,
    )


def _native_step(
    step: Step, number: int, facts: KernelFacts, sizes: Mapping[str, Dim], arena: _Arena
) -> KernelStep:
    """A kernel that is no region's."""
    references = (*step.arguments, *step.outputs)
    workspace = (facts.shared + facts.private * symbol_dim(THREADS)).substitute(sizes)
    return KernelStep(
        facts.name,
        references,
        (-1,) * len(references),
        tuple(sizes[name] for name in facts.symbols),
        arena.workspace(workspace, number),
        sources=step.sources,
    )


def _kernel_step(
    step: RegionStep | CheckStep,
    number: int,
    facts: KernelFacts,
    packings: Mapping[int, Packing],
    layouts: list[Packing],
    arena: _Arena,
) -> KernelStep:
    workspace = facts.shared + facts.private * symbol_dim(THREADS)
    packed = tuple(
        layouts.index(packings[position]) if position in packings else -1
        for position in range(len(step.arguments) + len(step.outputs))
    )
    return KernelStep(
        facts.name,
        (*step.arguments, *step.outputs),
        packed,
        tuple(step.symbols[name] for name in facts.symbols),
        arena.workspace(workspace.substitute(step.symbols), number),
        step.error if isinstance(step, CheckStep) else "",
        step.message if isinstance(step, CheckStep) else "",
        step.sources,
    )


class _Arena:
    """Storage of every value, and the blocks of the arena with their lifetimes."""

    def __init__(self, graph: RegionGraph) -> None:
        self.blocks: list[Block] = []
        self.data: list[bytes] = []
        self.storage: dict[int, Storage] = {}
        roots = [memory_of(graph.values, value.number) for value in graph.values]
        kept = {roots[value.number]: value.position for value in graph.values if value.kind == "output"}
        lives = _lifetimes(graph, roots)
        for value in graph.values:
            root = graph.values[roots[value.number]]
            if root.number not in self.storage:
                self.storage[root.number] = self._root_storage(root, kept, lives)
            self.storage[value.number] = self.storage[root.number]

    def _root_storage(
        self, value: RegionValue, kept: Mapping[int, int], lives: Mapping[int, tuple[int, int]]
    ) -> Storage:
        if value.data is not None:
            self.data.append(value.data)
            return Storage("data", len(self.data) - 1)
        if value.kind in ("input", "constant"):
            return Storage("input", value.position)
        if value.number in kept:
            return Storage("output", kept[value.number])
        if value.elements == 0:  # which no step need define
            return self._block(as_dim(0), *lives.get(value.number, (0, 0)))
        if value.number not in lives:
            raise CompileError(f"value {value.number} is defined by no step")
        return self._block(value.elements * value.dtype.size_bytes, *lives[value.number])

    def _block(self, size: Dim, first: int, last: int) -> Storage:
        self.blocks.append(Block(size, first, last))
        return Storage("arena", len(self.blocks) - 1)

    def workspace(self, size: Dim, step: int) -> int:
        return -1 if size == 0 else self._block(size, step, step).number


def _lifetimes(graph: RegionGraph, roots: Sequence[int]) -> dict[int, tuple[int, int]]:
    """First and last step of each memory that a step defines or reads."""
    lives: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(graph.steps):
        for argument in step.arguments:
            root = graph.values[roots[argument]]
            if root.kind in ("intermediate", "output") and root.elements != 0 and root.number not in lives:
                raise CompileError(f"step {number} reads value {argument} before it is defined")
        for value in (*step.arguments, *step.outputs):
            lives[roots[value]] = (lives.get(roots[value], (number, number))[0], number)
    return lives
