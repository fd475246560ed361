"""hlo module in, executable out: the order of the passes, the choice of schedules, and the cache of whole graphs.

    hlo --lower--> primitive --regions--> terms --schedule, place--> kernels --LLVM--> objects --plan--> executable

Targets: "cpu" (native), "kernel" (the same plan, its kernels in the placed interpreter) and "reference" (the hlo
interpreter); others come from plug-ins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from xdsl.dialects.builtin import ModuleOp

from luminal import dump
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.table_op import ValueAttr, value_text
from luminal.dialects.tensor_type import TensorType
from luminal.dtype import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from luminal.emit_cpu.cache import read_entry, write_entry
from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.emit_cpu.pool import process_pool
from luminal.errors import CompileError, UnsupportedTargetError
from luminal.options import CompileOptions, dump_directory, thread_count
from luminal.plan.executable import PlanExecutable
from luminal.plan.kernels import Kernel
from luminal.plan.native_entry import FrameLayout, entry_text, segment_names
from luminal.plan.plan import Plan, plan_from_json, plan_to_json
from luminal.runtimes.reference import ReferenceRuntime, graph_of
from luminal.stats import Stats, record

if TYPE_CHECKING:
    from luminal.dialects.kernel.terms import Region
    from luminal.passes.cuts import Cuts, Partition
    from luminal.passes.region_graph import RegionGraph
    from luminal.plan.native_kernels import KernelCompiler
    from luminal.runtimes.protocol import Executable
    from luminal.search.chooser import Choice
    from luminal.search.forms import Forms
    from luminal.search.samples import Samples

TARGETS = ("cpu", "kernel", "reference")
NATIVE_DTYPES = (f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool_)


class Chooser(Protocol):
    """Decides a region's schedule, for samples of its symbols' sizes."""

    def choose(self, region: Region, key: str, samples: Samples) -> Choice: ...


def compile_module(
    module: ModuleOp, target: str = "cpu", options: CompileOptions | Mapping[str, object] | None = None
) -> Executable:
    """Compile a module of one hlo graph; the module itself is left as it is.

    Raises UnsupportedTargetError for a target that is not known, OptionError for options that are not, GraphError for a
    module that is not one graph.
    """
    chosen = CompileOptions.of(options)
    if target not in TARGETS:
        from luminal.plugins import find_backend

        return find_backend(target, TARGETS).compile(module, chosen)
    if target == "reference":
        return ReferenceRuntime().compile(module.clone(), 1, {})
    return _Compilation(module, target, chosen).run()


@lru_cache(maxsize=1)
def source_digest() -> str:
    """A hash of the package's own source: what another version compiled is never loaded."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass
class _Compilation:
    module: ModuleOp
    target: str
    options: CompileOptions
    stats: Stats = field(default_factory=lambda: Stats(compilations=1))
    levels: dict[str, str] = field(default_factory=dict[str, str])

    def run(self) -> PlanExecutable:
        graph = graph_of(self.module)
        with self.stats.stage("key"):
            text = str(self.module)
            key = self._key(text)
        self.levels["hlo"] = text
        directory = dump_directory()
        wanted = dump.wanted(directory)
        cached = self.target == "cpu" and self.options.cache and "\\22object\\22:" not in text
        executable = self._load(key) if cached and not wanted else None
        if executable is None:
            executable = self._compile(graph, key if cached else None, wanted)
        record(self.stats)
        if wanted:
            dump.deliver(self.levels, directory, graph.graph_name, key)
        return executable

    def _key(self, text: str) -> str:
        parts = (source_digest(), Target.host().key, self.target, self.options.key, str(thread_count()), text)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    # ---- cold

    def _compile(self, graph: GraphOp, key: str | None, wanted: bool) -> PlanExecutable:
        from luminal.passes.cuts import Partition
        from luminal.passes.form_regions import form_regions
        from luminal.passes.in_place import share_memory
        from luminal.passes.lower_hlo import lower_hlo
        from luminal.passes.simplify import simplify
        from luminal.passes.value_graph import Interface
        from luminal.plan.choosers import start_workers
        from luminal.search.forms import Forms
        from luminal.search.samples import sample_sizes

        if self.target == "cpu":
            start_workers()
        module = self.module.clone()
        lowered = graph_of(module)
        Interface(
            constants=frozenset(self.options.constants), destinations=dict(self.options.updates)
        ).attach(lowered)
        with self.stats.stage("lower"):
            lower_hlo(module)
            simplify(module)
        if self.target == "cpu":
            _check_dtypes(lowered)
        if wanted:
            self.levels["primitive"] = str(module)
        with self.stats.stage("regions"):
            partition = Partition.of(lowered)
            samples = sample_sizes(graph.symbols, dict(self.options.hint), partition.requirements)
            hints = samples.expected
            forms = Forms(lowered.licences)
            regions = form_regions(partition, self._cut(partition, samples, forms))
        with self.stats.stage("schedule"):
            chooser, compiler = self._chooser(graph, forms)
            choices = _choose(regions, chooser, samples)
            regions = regions.with_regions(
                {key: _form(forms, region, key, choices[key]) for key, region in regions.regions.items()}
            )
        shared, origins = share_memory(regions, {name: choice.schedule for name, choice in choices.items()})
        choices = {name: choices[origin] for name, origin in origins.items()}
        if self.target == "kernel":
            plan, kernels, entries = self._interpreted(graph, shared, choices, hints)
        else:
            assert compiler is not None
            plan, kernels, entries = self._native(graph, shared, choices, hints, compiler, key)
        lost = set(self.options.updates) - set(plan.updates)
        if lost:
            raise CompileError(f"updates {sorted(lost)} (output, input) do not end in their inputs' memory")
        if wanted:
            self._describe(shared, choices, plan)
        return self._executable(plan, kernels, entries)

    def _cut(self, partition: Partition, samples: Samples, forms: Forms) -> Cuts:
        """The graph's cuts: the first ones for interpreters, searched ones for this machine."""
        from luminal.passes.cut_choices import initial_cuts
        from luminal.plan.measure import host_machine
        from luminal.search.cut_search import CutSearch

        if self.target == "kernel":
            return initial_cuts(partition)
        return CutSearch(partition, host_machine(thread_count()), samples, forms).run()

    def _chooser(self, graph: GraphOp, forms: Forms) -> tuple[Chooser, KernelCompiler | None]:
        from luminal.plan.choosers import PlainChooser, timed_chooser
        from luminal.plan.native_kernels import KernelCompiler

        if self.target == "kernel":
            return PlainChooser(), None
        compiler = KernelCompiler(Target.host(), graph.licences, self.options.cache)
        return timed_chooser(compiler, self.options, forms), compiler

    def _interpreted(
        self, graph: GraphOp, regions: RegionGraph, choices: Mapping[str, Choice], hints: Mapping[str, int]
    ) -> tuple[Plan, dict[str, Kernel], bytes]:
        from luminal.plan.assemble import interpreted_plan

        plan, kernels = interpreted_plan(graph, regions, choices, hints)
        return plan, kernels, compile_object(entry_text(plan, FrameLayout.of(plan)), Target.host())

    def _native(
        self,
        graph: GraphOp,
        regions: RegionGraph,
        choices: Mapping[str, Choice],
        hints: Mapping[str, int],
        compiler: KernelCompiler,
        key: str | None,
    ) -> tuple[Plan, dict[str, Kernel], bytes]:
        from luminal.plan.assemble import native_plan

        with self.stats.stage("place"):
            plan, sources = native_plan(graph, regions, choices, hints, compiler)
        with self.stats.stage("llvm"):
            images = {source.name: compiler.image(source, keep=True) for source in sources}
            entry_key, entry = compiler.entry(entry_text(plan, FrameLayout.of(plan)))
        if key is not None:
            kept = {
                "plan": plan_to_json(plan),
                "entry": entry_key,
                "kernels": {s.name: s.key for s in sources},
            }
            write_entry(key, json.dumps(kept).encode())
        self.levels["placed"] = "\n".join(str(source.function) for source in sources) + "\n"
        self.levels["llvm"] = "\n".join(source.text for source in sources)
        with self.stats.stage("load"):
            kernels = {name: _load_kernel(name, image) for name, image in images.items()}
        return plan, kernels, entry

    def _describe(self, regions: RegionGraph, choices: Mapping[str, Choice], plan: Plan) -> None:
        from luminal.dialects.kernel.region_text import region_text

        named = regions.regions.items()
        self.levels["regions"] = "\n".join(f"region {key}\n{region_text(region)}" for key, region in named)
        self.levels["schedules"] = "".join(f"{key}: {choices[key]}\n" for key in regions.regions)
        self.levels["plan"] = str(plan)

    # ---- warm

    def _load(self, key: str) -> PlanExecutable | None:
        """The executable that an earlier compilation left on disk; None where anything of it is missing."""
        with self.stats.stage("load"):
            kept = read_entry(key)
            if kept is None:
                return None
            try:
                data: dict[str, Any] = json.loads(kept)
                plan = plan_from_json(data["plan"])
                images = {name: read_entry(object_key) for name, object_key in data["kernels"].items()}
                entry = read_entry(data["entry"])
            except (ValueError, KeyError, TypeError):
                return None
            if entry is None or any(image is None for image in images.values()):
                return None
            kernels = {name: _load_kernel(name, image) for name, image in images.items() if image is not None}
        self.stats.cached = 1
        return self._executable(plan, kernels, entry)

    def _executable(self, plan: Plan, kernels: Mapping[str, Kernel], entry: bytes) -> PlanExecutable:
        names = list(dict.fromkeys(["arena_bytes", "start", *filter(None, segment_names(plan))]))
        with self.stats.stage("load"):
            library = load_object(entry, names)
        self.stats.kernels, self.stats.launches = len(plan.kernels), len(plan.steps)
        return PlanExecutable(plan, library.addresses, kernels, _pool_handle, self.stats, keep_alive=library)


def _check_dtypes(graph: GraphOp) -> None:
    """UnsupportedTargetError for a dtype that native code does not hold."""
    for op in graph.block.ops:
        for value in (*op.operands, *op.results):
            dtype = cast(TensorType, value.type).dtype
            if dtype not in NATIVE_DTYPES:
                source = op.properties.get("source")
                where = f" ({value_text(source.data)})" if isinstance(source, ValueAttr) else ""
                listed = ", ".join(known.name for known in NATIVE_DTYPES)
                raise UnsupportedTargetError(
                    f"{op.name} has a value of {dtype}{where}; target 'cpu' holds {listed}"
                )


def _load_kernel(name: str, image: bytes) -> Kernel:
    from luminal.plan.kernels import LoadedKernel

    library = load_object(image, [name])
    return LoadedKernel(library[name], library)


def _pool_handle(threads: int) -> int:
    return process_pool().handle if threads > 1 else 0


def _form(forms: Forms, region: Region, key: str, choice: Choice) -> Region:
    """The form of a region that its schedule is for."""
    found = forms.find(region, key, choice.form)
    assert found is not None
    return found


def _choose(regions: RegionGraph, chooser: Chooser, samples: Samples) -> dict[str, Choice]:
    """A schedule for every different region, at the sizes of its first use."""
    from luminal.passes.region_graph import OpaqueStep

    choices: dict[str, Choice] = {}
    for step in regions.steps:
        if not isinstance(step, OpaqueStep) and step.key not in choices:
            choices[step.key] = chooser.choose(step.region, step.key, samples.of(step.symbols))
    return choices
