"""A whole graph for a GPU that need not be there: hlo module in; plan, Triton texts and machine code out.

    hlo --lower--> primitive --cuts by the GPU's model--> regions --candidates--> Triton --ahead of time--> machine code

Of each region the first candidate in the model's order is taken whose machine code its compiler does not refuse: none
that spills registers or asks for more shared memory than there is.  A `judge` that has the device chooses among the
first few of them by their times.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim, as_dim
from luminal.emit_triton.aot import CompiledKernel, compile_kernel, machine_for, signature_type
from luminal.emit_triton.kernel import TritonKernel
from luminal.emit_triton.resources import refusal
from luminal.emit_triton.targets import GpuTarget, target_named
from luminal.errors import CompilationError, CompileError
from luminal.passes.cuts import Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep
from luminal.passes.value_graph import Interface
from luminal.plan.assemble import outline_of
from luminal.plan.build import KernelFacts, build_plan
from luminal.plan.gpu_code import SCRATCH_ALIGNMENT, GpuCode, GpuLaunch
from luminal.plan.plan import Plan
from luminal.runtimes.gpu_device import Code
from luminal.runtimes.reference import graph_of
from luminal.search.forms import Forms
from luminal.search.gpu_candidates import GpuCandidate, GpuPricer
from luminal.search.gpu_cuts import GpuCutSearch
from luminal.search.hlo_search import HloSearch, Lowered
from luminal.search.samples import Samples, sample_sizes

TRIES = 12
"""Candidates of a region that are compiled, until one is not refused; after them plain loops."""
SCRATCH = "global_scratch_size"
"""Bytes that each program asks its launcher for, where it describes tensors."""
ALIGNMENT = 256
"""Bytes that each workspace begins at a multiple of."""


@dataclass(frozen=True)
class GpuFunction:
    """What computes a region: launches in order, each with its machine code, under one candidate.

    `workspaces`: where each of its workspaces begins in the plan's block, in bytes, dims over the kernels' symbols;
    `scratch`: where that of each launch does, if its programs ask for any; `refused`: why candidates before this one
    were not taken.
    """

    name: str
    candidate: GpuCandidate
    kernels: tuple[TritonKernel, ...]
    compiled: tuple[CompiledKernel, ...]
    workspaces: tuple[Dim, ...]
    scratch: tuple[Dim | None, ...]
    workspace_bytes: Dim
    refused: tuple[str, ...]


@dataclass(frozen=True)
class GpuProgram:
    """A graph compiled for a target: a kernel step of the plan names the function that it calls."""

    target: GpuTarget
    plan: Plan
    functions: Mapping[str, GpuFunction]
    lowered: Lowered
    rewrites: Mapping[str, str]
    """What became of each rewrite of the hlo graph that was priced."""

    @property
    def codes(self) -> dict[str, GpuCode]:
        """What each function launches, by name."""
        return {name: code_of(function, self.target) for name, function in self.functions.items()}


def code_of(function: GpuFunction, target: GpuTarget) -> GpuCode:
    """What a function launches."""
    launches: list[GpuLaunch] = []
    for kernel, compiled, scratch in zip(function.kernels, function.compiled, function.scratch, strict=True):
        if compiled.metadata.get("profile_scratch_size"):
            raise CompileError(f"kernel {kernel.name} wants memory for a profile, which no launch provides")
        code = Code(
            compiled.binary,
            compiled.metadata["name"],
            compiled.resources.warps * target.machine.warp,
            compiled.resources.shared,
            tuple(map(signature_type, kernel.parameters)),
        )
        launches.append(GpuLaunch(code, kernel.grid, scratch))
    symbols = tuple(function.candidate.function.symbols.data)
    return GpuCode(symbols, function.workspaces, tuple(launches))


Judge = Callable[[Region, Samples, "Sequence[GpuFunction]", Sequence[Region]], int]
"""Runs functions of a region, whose forms stand beside them, and gives the number of the best."""


def build_for_gpu(
    module: ModuleOp,
    target: str,
    updates: Sequence[tuple[int, int]] = (),
    hint: Mapping[str, int] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    *,
    constants: Sequence[int] = (),
    mode: str = "default",
    judge: Judge | None = None,
    tried: int = 1,
) -> GpuProgram:
    """Compile a module of one hlo graph; the module itself is left as it is.

    `updates`: pairs (output, input) that share memory; `hint`: expected sizes; `progress` is told how far it has come;
    `constants`: positions of inputs that do not change from call to call; `mode` says how many rewrites are priced;
    `judge` chooses among `tried` candidates of a region.

    Raises UnsupportedTargetError for a target that is not known; CompilationError where no candidate of a region can
    be compiled.
    """
    device, expected = target_named(target), dict(hint or {})
    module = module.clone()
    graph = graph_of(module)
    Interface(constants=frozenset(constants), destinations=dict(updates)).attach(graph)
    progress("lowering")
    pricer, forms = GpuPricer(machine_for(device), graph.licences), Forms(graph.licences)

    def cutting(partition: Partition, samples: Samples, estimates: dict[str, list[float]]) -> GpuCutSearch:
        return GpuCutSearch(partition, pricer, samples, forms, estimates)

    search = HloSearch(module, cutting, expected, mode, ranks=True)
    lowered = search.run()
    samples = sample_sizes(lowered.graph.symbols, expected, lowered.partition.requirements)
    progress("choosing cuts")
    cuts = cutting(lowered.partition, samples, search.estimates).run()
    regions = form_regions(lowered.partition, cuts)
    choice = _Choice(regions, samples, pricer, forms, device, judge, tried)
    functions = choice.run(progress)
    facts = {
        key: KernelFacts(
            function.name, tuple(function.candidate.function.symbol_names), function.workspace_bytes
        )
        for key, function in functions.items()
    }
    plan = build_plan(outline_of(lowered.graph, samples.expected, lowered.folds), regions, facts, {})
    named = {function.name: function for function in functions.values()}
    return GpuProgram(device, plan, named, lowered, search.verdicts)


@dataclass
class _Choice:
    """The choice of a function for each different region."""

    regions: RegionGraph
    samples: Samples
    pricer: GpuPricer
    forms: Forms
    target: GpuTarget
    judge: Judge | None
    tried: int

    def run(self, progress: Callable[[str], None]) -> dict[str, GpuFunction]:
        """A function for each different region, by its key; compilers run beside each other, the device alone."""
        steps = {step.key: step for step in self.regions.steps if not isinstance(step, OpaqueStep)}
        done = itertools.count(1)

        def compiled(key: str) -> list[GpuFunction]:
            found = _chosen(names[key], listed[key], self.target, self.tried)
            progress(f"kernel {next(done)} of {len(steps)}")
            return found

        names = {key: f"kernel_{_digest(step.region)}" for key, step in steps.items()}
        listed: dict[str, list[GpuCandidate]] = {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            futures: dict[str, Future[list[GpuFunction]]] = {}
            for key, step in steps.items():
                listed[key] = _candidates(step, names[key], self.samples, self.pricer, self.forms)
                futures[key] = pool.submit(compiled, key)
            return {key: self._best(steps[key], future.result()) for key, future in futures.items()}

    def _best(self, step: RegionStep | CheckStep, found: Sequence[GpuFunction]) -> GpuFunction:
        if self.judge is None or len(found) == 1:
            return found[0]
        forms = [self.forms.find(step.region, step.key, function.candidate.form) for function in found]
        known = [form for form in forms if form is not None]
        return found[self.judge(step.region, self.samples.of(step.symbols), found, known)]


def _digest(region: Region) -> str:
    return hashlib.sha256(region_text(region).encode()).hexdigest()[:16]


def _candidates(
    step: RegionStep | CheckStep, name: str, samples: Samples, pricer: GpuPricer, forms: Forms
) -> list[GpuCandidate]:
    """The first candidates of a region, and its last, plain loops."""
    found = pricer.candidates(
        step.region, samples.of(step.symbols), forms.of(step.region, step.key), name=name
    )
    *others, last = found
    return [*others[:TRIES], last]


def _chosen(
    name: str, candidates: Sequence[GpuCandidate], target: GpuTarget, count: int
) -> list[GpuFunction]:
    """The first `count` candidates whose kernels are not refused; where all are, the last that can run, if slowly."""
    found: list[GpuFunction] = []
    refused: list[str] = []
    slow: GpuFunction | None = None
    error: CompilationError | None = None
    for candidate in candidates:
        kernels = candidate.kernels()
        try:
            compiled = tuple(compile_kernel(kernel, target) for kernel in kernels)
        except CompilationError as failed:
            error = failed
            refused.append(f"{candidate}: {failed.reason}")
            continue
        function = GpuFunction(
            name, candidate, kernels, compiled, *_workspaces(kernels, compiled), tuple(refused)
        )
        reasons = [reason for each in compiled if (reason := refusal(each.resources, target)) is not None]
        if not reasons:
            found.append(function)
            if len(found) == count:
                return found
            continue
        refused.append(f"{candidate}: {reasons[0]}")
        if all(each.resources.shared <= target.machine.program_shared for each in compiled):
            slow = function
    if slow is not None and not found:
        return [slow]
    if not found:
        assert error is not None
        raise error
    return found


def _workspaces(
    kernels: Sequence[TritonKernel], compiled: Sequence[CompiledKernel]
) -> tuple[tuple[Dim, ...], tuple[Dim | None, ...], Dim]:
    """Where each workspace begins, and the scratch memory of each launch, and how many bytes there are."""
    total = as_dim(0)

    def begins(size: Dim) -> Dim:
        nonlocal total
        offset = total
        total = total + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
        return offset

    offsets = tuple(
        begins(parameter.elements * parameter.dtype.size_bytes)
        for parameter in kernels[0].parameters
        if parameter.is_workspace and parameter.elements is not None
    )
    wanted = [(kernel.grid, each.metadata.get(SCRATCH, 0)) for kernel, each in zip(kernels, compiled)]
    scratch = tuple(
        begins(programs * size + SCRATCH_ALIGNMENT) if size else None for programs, size in wanted
    )
    return offsets, scratch, total
