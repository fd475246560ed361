"""A whole graph for a GPU that need not be there: hlo module in; plan, Triton texts and machine code out.

    hlo --lower--> primitive --cuts by the GPU's model--> regions --candidates--> Triton --ahead of time--> machine code

Of each region the first candidate in the model's order is taken whose machine code its compiler does not refuse: none
that spills registers or asks for more shared memory than there is.  Nothing is run.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim, as_dim
from luminal.emit_triton.aot import CompiledKernel, compile_kernel
from luminal.emit_triton.kernel import TritonKernel
from luminal.emit_triton.resources import refusal
from luminal.emit_triton.targets import GpuTarget, target_named
from luminal.errors import CompilationError, UnsupportedTargetError
from luminal.passes.form_regions import form_regions
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep
from luminal.passes.value_graph import Interface
from luminal.plan.assemble import outline_of
from luminal.plan.build import KernelFacts, build_plan
from luminal.plan.plan import Plan
from luminal.runtimes.reference import graph_of
from luminal.search.forms import Forms
from luminal.search.gpu_candidates import GpuCandidate, GpuPricer
from luminal.search.gpu_cuts import GpuCutSearch
from luminal.search.hlo_search import Lowered
from luminal.search.samples import Samples, sample_sizes

TRIES = 12
"""Candidates of a region that are compiled, until one is not refused; after them plain loops."""
ALIGNMENT = 256
"""Bytes that each workspace begins at a multiple of."""


@dataclass(frozen=True)
class GpuFunction:
    """What computes a region: launches in order, each with its machine code, under one candidate.

    `workspaces`: where each of its workspaces begins in the plan's block, in bytes, dims over the kernels' symbols;
    `refused`: why candidates before this one were not taken.
    """

    name: str
    candidate: GpuCandidate
    kernels: tuple[TritonKernel, ...]
    compiled: tuple[CompiledKernel, ...]
    workspaces: tuple[Dim, ...]
    workspace_bytes: Dim
    refused: tuple[str, ...]


@dataclass(frozen=True)
class GpuProgram:
    """A graph compiled for a target: a kernel step of the plan names the function that it calls."""

    target: GpuTarget
    plan: Plan
    functions: Mapping[str, GpuFunction]


def build_for_gpu(
    module: ModuleOp,
    target: str,
    updates: Sequence[tuple[int, int]] = (),
    hint: Mapping[str, int] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> GpuProgram:
    """Compile a module of one hlo graph; the module itself is left as it is.

    `updates`: pairs (output, input) that share memory; `hint`: expected sizes; `progress` is told how far it has come.
    Raises UnsupportedTargetError for a target that is not known, and for graphs with operations that only a host runs;
    CompilationError where no candidate of a region can be compiled.
    """
    device = target_named(target)
    module = module.clone()
    graph = graph_of(module)
    Interface(destinations=dict(updates)).attach(graph)
    progress("lowering")
    lowered = Lowered.of(module, has_sort=False)
    samples = sample_sizes(lowered.graph.symbols, hint or {}, lowered.partition.requirements)
    pricer, forms = GpuPricer(device.machine, graph.licences), Forms(graph.licences)
    progress("choosing cuts")
    cuts = GpuCutSearch(lowered.partition, pricer, samples, forms).run()
    regions = form_regions(lowered.partition, cuts)
    _check_steps(regions, device)
    functions = _functions(regions, samples, pricer, forms, device, progress)
    facts = {
        key: KernelFacts(
            function.name, tuple(function.candidate.function.symbol_names), function.workspace_bytes
        )
        for key, function in functions.items()
    }
    plan = build_plan(outline_of(lowered.graph, samples.expected), regions, facts, {})
    return GpuProgram(device, plan, {function.name: function for function in functions.values()})


def _check_steps(regions: RegionGraph, target: GpuTarget) -> None:
    for step in regions.steps:
        if isinstance(step, OpaqueStep):
            where = f" ({', '.join(step.sources)})" if step.sources else ""
            raise UnsupportedTargetError(
                f"{step.op}{where} runs in a library of the host; target {target.name!r} has no kernel for it"
            )


def _functions(
    regions: RegionGraph,
    samples: Samples,
    pricer: GpuPricer,
    forms: Forms,
    target: GpuTarget,
    progress: Callable[[str], None],
) -> dict[str, GpuFunction]:
    """A function for each different region, by its key; compilers run beside each other."""
    steps = {step.key: step for step in regions.steps if not isinstance(step, OpaqueStep)}
    done = itertools.count(1)

    def chosen(key: str) -> GpuFunction:
        function = _chosen(names[key], listed[key], target)
        progress(f"kernel {next(done)} of {len(steps)}")
        return function

    names = {key: f"kernel_{_digest(step.region)}" for key, step in steps.items()}
    listed: dict[str, list[GpuCandidate]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {}
        for key, step in steps.items():
            listed[key] = _candidates(step, names[key], samples, pricer, forms)
            futures[key] = pool.submit(chosen, key)
        return {key: future.result() for key, future in futures.items()}


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


def _chosen(name: str, candidates: Sequence[GpuCandidate], target: GpuTarget) -> GpuFunction:
    """The first candidate whose kernels are not refused; where all are, the last that can run, if slowly."""
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
        function = GpuFunction(name, candidate, kernels, compiled, *_workspaces(kernels[0]), tuple(refused))
        reasons = [reason for each in compiled if (reason := refusal(each.resources, target)) is not None]
        if not reasons:
            return function
        refused.append(f"{candidate}: {reasons[0]}")
        if all(each.resources.shared <= target.machine.program_shared for each in compiled):
            slow = function
    if slow is not None:
        return slow
    assert error is not None
    raise error


def _workspaces(kernel: TritonKernel) -> tuple[tuple[Dim, ...], Dim]:
    """Where each workspace begins, and how many bytes there are."""
    offsets: list[Dim] = []
    total = as_dim(0)
    for parameter in kernel.parameters:
        if parameter.is_workspace and parameter.elements is not None:
            offsets.append(total)
            size = parameter.elements * parameter.dtype.size_bytes
            total = total + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    return tuple(offsets), total
