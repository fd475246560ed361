"""hlo module in, executable out: the order of the passes, the choice of schedules, and the cache of whole graphs.

    hlo --lower--> primitive --regions--> terms --schedule, place--> kernels --LLVM--> objects --plan--> executable

From the primitive level on there is one program for all sizes, or one for each box that the dims' buckets make.

Targets: "cpu" (native), "kernel" (the same plan, its kernels in the placed interpreter), "reference" (the hlo
interpreter), and the GPUs of `emit_triton/targets.py`, by name or architecture; others come from plug-ins.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from xdsl.dialects.builtin import ModuleOp

from luminal import dump
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.table_op import ValueAttr, value_text
from luminal.dialects.tensor_type import TensorType
from luminal.dim.buckets import Box, box_text
from luminal.dtype import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from luminal.emit_cpu.jit import Target, compile_object
from luminal.emit_triton.targets import TARGETS as GPUS
from luminal.errors import CompileError, OptionError, UnsupportedTargetError
from luminal.garbage import rare_collections
from luminal.options import CompileOptions, dump_directory, thread_count
from luminal.plan.native_entry import FrameLayout, entry_text
from luminal.plan.plan import Plan
from luminal.plan.programs import (
    Compiled,
    LoadedKernels,
    Program,
    executable_of,
    find_programs,
    keep_programs,
)
from luminal.runtimes.reference import ReferenceRuntime, graph_of
from luminal.search.purse import Purse
from luminal.source import source_digest
from luminal.stats import Stats, record

if TYPE_CHECKING:
    from luminal.dialects.kernel.terms import Region
    from luminal.passes.cuts import Partition
    from luminal.passes.fold_constants import Fold
    from luminal.passes.region_graph import RegionGraph
    from luminal.plan.build import Outline
    from luminal.plan.native_kernels import KernelCompiler
    from luminal.plan.parts import Part
    from luminal.runtimes.protocol import Executable
    from luminal.search.chooser import Choice, Wanted
    from luminal.search.config import SearchConfig
    from luminal.search.configured import Chooser
    from luminal.search.forms import Forms
    from luminal.search.hlo_search import Lowered
    from luminal.search.long_search import LongSearch
    from luminal.search.record import SearchRecord
    from luminal.search.samples import Samples

TARGETS = ("cpu", "kernel", "reference")
NATIVE_DTYPES = (f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool_)


@rare_collections()
def compile_module(
    module: ModuleOp, target: str = "cpu", options: CompileOptions | Mapping[str, object] | None = None
) -> Executable:
    """Compile a module of one hlo graph; the module itself is left as it is.

    Raises UnsupportedTargetError for a target that is not known, OptionError for options that are not, GraphError for a
    module that is not one graph.
    """
    chosen = CompileOptions.of(options)
    _check_constants(graph_of(module), chosen.constants)
    if target in GPUS:
        from luminal.plan.gpu_compile import compile_for_gpu

        return compile_for_gpu(module, target, chosen)
    if target not in TARGETS:
        from luminal.plugins import find_backend

        return find_backend(target, (*TARGETS, *GPUS)).compile(module, chosen)
    if target == "reference":
        return ReferenceRuntime().compile(module.clone(), 1, {})
    return _Compilation(module, target, chosen).run()


@rare_collections()
def compile_programs(module: ModuleOp, options: CompileOptions) -> list[Program]:
    """The native programs of a module, each with its objects; errors as `compile_module`."""
    _check_constants(graph_of(module), options.constants)
    return _Compilation(module, "cpu", options).programs(graph_of(module))


@dataclass(frozen=True)
class _Search:
    """What decides schedules and takes down how; `long` decides cuts too, where there is time for it; `shown` shows the
    search of so many regions while it is open."""

    forms: Forms
    chooser: Chooser
    record: SearchRecord
    compiler: KernelCompiler | None
    long: LongSearch | None
    shown: Callable[[int], AbstractContextManager[None]]


@dataclass
class _Compilation:
    module: ModuleOp
    target: str
    options: CompileOptions
    stats: Stats = field(default_factory=lambda: Stats(compilations=1))
    levels: dump.Levels = field(default_factory=dump.Levels)
    chosen: dict[tuple[str, str], Choice] = field(default_factory=dict[tuple[str, str], "Choice"])
    kernels: LoadedKernels = field(default_factory=LoadedKernels)
    limit: Purse | None = None
    """What a contest may spend on this; None where this is for none: then library kernels may be timed against
    generated ones, and cuts searched."""

    def __post_init__(self) -> None:
        self.purse = self.limit or Purse.of(self.options)

    def run(self) -> Compiled:
        graph = graph_of(self.module)
        with self.stats.stage("key"):
            text = str(self.module)
            key = self._key(text)
        self.levels["hlo"] = text
        directory = dump_directory()
        wanted = dump.wanted(directory)
        cached = self.target == "cpu" and self.options.cache and "\\22object\\22:" not in text
        executable = self._loaded(graph, key) if cached and not wanted else None
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

    def _compile(self, graph: GraphOp, key: str | None, wanted: bool) -> Compiled:
        return self._executable(graph, self.programs(graph, key, wanted))

    def programs(self, graph: GraphOp, key: str | None = None, wanted: bool = False) -> list[Program]:
        """The programs of the graph, compiled; kept on disk under a key where there is one."""
        from luminal.plan.choosers import start_workers
        from luminal.plan.parts import Divider
        from luminal.search.config import SearchConfig
        from luminal.search.forms import Forms

        if self.target == "cpu":
            start_workers()
        forms = Forms(graph.licences)
        with self.stats.stage("lower"):
            lowered, estimates = self._lower(forms)
        if self.target == "cpu":
            _check_dtypes(lowered.graph)
        if wanted:
            self.levels["primitive"] = str(lowered.module)
        config = SearchConfig.parse(self.options.config) if self.options.config else SearchConfig()
        search = self._search(graph, forms, config, wanted)
        divider = Divider(self.target != "kernel", self.options, forms, config, self.stats)
        parts = divider.parts(lowered.graph, lowered.partition, estimates)
        with search.shown(sum(len(part.regions.regions) for part in parts)):
            parts = divider.recut(parts, search.long) if search.long is not None else parts
            programs = [self._program(part, lowered.folds, search, wanted) for part in parts]
        if key is not None:
            keep_programs(key, programs)
        if wanted:
            self._describe(programs)
        return programs

    def _loaded(self, graph: GraphOp, key: str) -> Compiled | None:
        """What an earlier compilation left on disk; None where anything of it is missing."""
        with self.stats.stage("load"):
            programs = find_programs(key, self.kernels)
        if programs is None:
            return None
        self.stats.cached = 1
        return self._executable(graph, programs)

    def _executable(self, graph: GraphOp, programs: Sequence[Program]) -> Compiled:
        with self.stats.stage("load"):
            return executable_of(graph, programs, self.stats)

    def _lower(self, forms: Forms) -> tuple[Lowered, dict[str, list[float]]]:
        """The graph as primitives: for this machine the cheapest of its equal graphs, with what its regions cost."""
        from luminal.passes.value_graph import Interface
        from luminal.plan.contest import Contests
        from luminal.plan.measure import host_machine
        from luminal.search.cut_search import CutSearch
        from luminal.search.hlo_search import HloSearch, Lowered
        from luminal.search.library_search import LibrarySearch

        module, options = self.module.clone(), self.options
        border = Interface(constants=frozenset(options.constants), destinations=dict(options.updates))
        border.attach(graph_of(module))
        if self.target == "kernel":
            return Lowered.of(module), {}
        machine = host_machine(thread_count())

        def pricer(partition: Partition, samples: Samples, estimates: dict[str, list[float]]) -> CutSearch:
            return CutSearch(partition, machine, samples, forms, estimates)

        search = HloSearch(module, pricer, dict(options.hint), options.mode)
        found = search.run()
        may_time = self.limit is None and options.mode == "max-autotune"
        contests = Contests(self._alone, self.purse, dict(options.hint)) if may_time else None
        library = LibrarySearch(found.hlo, contest=contests)
        changed = library.run()
        self.stats.rewrites, self.stats.library = search.verdicts, library.verdicts
        return found if changed is None else Lowered.of(changed, found.rewrites), search.estimates

    def _alone(self, module: ModuleOp, purse: Purse) -> Compiled:
        """A part of the graph, compiled for a contest."""
        from luminal.passes.value_graph import Interface

        constants = tuple(sorted(Interface.of(graph_of(module)).constants))
        options = replace(self.options, constants=constants, updates=(), buckets="declared")
        return _Compilation(module, self.target, options, limit=purse)._compile(graph_of(module), None, False)

    def _search(self, graph: GraphOp, forms: Forms, config: SearchConfig, wanted: bool) -> _Search:
        from luminal.plan.choosers import PlainChooser, long_search, timed_chooser
        from luminal.plan.native_kernels import KernelCompiler
        from luminal.progress import shown
        from luminal.search.configured import ConfiguredChooser
        from luminal.search.record import SearchRecord

        if self.target == "kernel":
            record = SearchRecord()
            plain = ConfiguredChooser(PlainChooser(), config, forms, record)
            return _Search(forms, plain, record, None, None, lambda regions: contextlib.nullcontext())
        compiler = KernelCompiler(Target.host(), graph.licences, self.options.cache, wanted)
        timed = timed_chooser(compiler, self.options, forms, self.purse)
        long = long_search(timed, self.options) if self.limit is None else None
        chooser = ConfiguredChooser(long or timed, config, forms, timed.record)
        at_once = self.options.mode == "max-autotune"
        return _Search(
            forms,
            chooser,
            timed.record,
            compiler,
            long,
            lambda regions: shown(timed.record, regions, timed.budget, at_once),
        )

    def _program(
        self,
        part: Part,
        folds: Sequence[Fold],
        search: _Search,
        wanted: bool,
    ) -> Program:
        from luminal.passes.in_place import share_memory
        from luminal.plan.assemble import outline_of

        regions = part.regions
        with self.stats.stage("schedule"):
            choices = self._choose(regions, search.chooser, part.samples)
            regions = regions.with_regions(
                {
                    key: _form(search.forms, region, key, choices[key])
                    for key, region in regions.regions.items()
                }
            )
        shared, origins = share_memory(regions, {name: choice.schedule for name, choice in choices.items()})
        choices = {name: choices[origin] for name, origin in origins.items()}
        outline = outline_of(part.graph, part.samples.expected, folds)
        if search.compiler is None:
            program = self._interpreted(part.box, outline, shared, choices)
        else:
            program = self._native(part.box, outline, shared, choices, search.compiler, wanted)
        lost = set(self.options.updates) - set(program.plan.updates)
        if lost:
            raise CompileError(f"updates {sorted(lost)} (output, input) do not end in their inputs' memory")
        if wanted:
            program.levels.update(_levels(shared, choices, program.plan))
        if wanted and search.compiler is not None:
            self._report(part, shared, choices, origins, search, program)
        return program

    def _report(
        self,
        part: Part,
        regions: RegionGraph,
        choices: Mapping[str, Choice],
        origins: Mapping[str, str],
        search: _Search,
        program: Program,
    ) -> None:
        """Say what the search of a program's regions considered."""
        from luminal.plan.measure import host_machine
        from luminal.search.config import graph_digest
        from luminal.search.report import report_of
        from luminal.search.report_text import search_text

        record, machine, digest = search.record, host_machine(thread_count()), graph_digest(part.graph)
        record.graphs[digest] = str(part.cuts)
        report = report_of(
            part.graph, digest, regions, choices, origins, record, search.forms, machine, part.samples
        )
        self.levels.reports.append(report)
        program.levels["search"] = search_text(report)
        self.levels["config"] = record.config()

    def _choose(self, regions: RegionGraph, chooser: Chooser, samples: Samples) -> dict[str, Choice]:
        """A schedule for every different region, at the sizes of its first use; one that other programs have too is
        searched once."""
        from luminal.passes.region_graph import OpaqueStep

        wanted: dict[str, Wanted] = {}
        for step in regions.steps:
            if not isinstance(step, OpaqueStep) and step.key not in wanted:
                wanted[step.key] = step.region, step.key, samples.of(step.symbols)
        fresh = [each for key, each in wanted.items() if (key, str(each[2])) not in self.chosen]
        chooser.prepare(fresh)
        for region, key, sizes in fresh:
            self.chosen[key, str(sizes)] = chooser.choose(region, key, sizes)
        return {key: self.chosen[key, str(sizes)] for key, (_, _, sizes) in wanted.items()}

    def _interpreted(
        self, box: Box, outline: Outline, regions: RegionGraph, choices: Mapping[str, Choice]
    ) -> Program:
        from luminal.plan.assemble import interpreted_plan

        plan, kernels = interpreted_plan(outline, regions, choices)
        entry = compile_object(entry_text(plan, FrameLayout.of(plan)), Target.host())
        return Program(box, plan, kernels, entry)

    def _native(
        self,
        box: Box,
        outline: Outline,
        regions: RegionGraph,
        choices: Mapping[str, Choice],
        compiler: KernelCompiler,
        wanted: bool,
    ) -> Program:
        from luminal.plan.assemble import native_plan

        with self.stats.stage("place"):
            plan, sources = native_plan(outline, regions, choices, compiler)
        with self.stats.stage("llvm"):
            images = [compiler.image(source, keep=True) for source in sources]
            entry_key, entry = compiler.entry(entry_text(plan, FrameLayout.of(plan)))
        with self.stats.stage("load"):
            kernels = {
                source.name: self.kernels.load(source.name, source.key, image)
                for source, image in zip(sources, images, strict=True)
            }
        keys = {source.name: source.key for source in sources}
        own = {source.name: image for source, image in zip(sources, images, strict=True)}
        program = Program(box, plan, kernels, entry, (entry_key, keys), {}, own)
        if wanted:
            program.levels["placed"] = (
                "\n".join(str(source.function or source.name) for source in sources) + "\n"
            )
            program.levels["llvm"] = "\n".join(source.text for source in sources)
        return program

    def _describe(self, programs: list[Program]) -> None:
        """The levels that each program has for itself, one after another, under the sizes that it is for."""
        for level in dict.fromkeys(level for program in programs for level in program.levels):
            mark = ";" if level == "llvm" else "//"
            texts = [
                program.levels[level] if len(programs) == 1
                else f"{mark} program of {box_text(program.box)}\n{program.levels[level]}"
                for program in programs
            ]  # fmt: skip
            self.levels[level] = "\n".join(texts)


def _levels(regions: RegionGraph, choices: Mapping[str, Choice], plan: Plan) -> dict[str, str]:
    from luminal.dialects.kernel.region_text import region_text

    named = regions.regions.items()
    return {
        "regions": "\n".join(f"region {key}\n{region_text(region)}" for key, region in named),
        "schedules": "".join(f"{key}: {choices[key]}\n" for key in regions.regions),
        "plan": str(plan),
    }


def _check_constants(graph: GraphOp, positions: Sequence[int]) -> None:
    """OptionError for a constant that is no input, or has no fixed size."""
    types = graph.input_types
    for position in positions:
        if position >= len(types):
            raise OptionError(f"constants: there is no input {position}; the graph has {len(types)}")
        if types[position].elements.constant is None:
            raise OptionError(
                f"constants: input {position} is {types[position]}, a constant input has fixed sizes"
            )


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


def _form(forms: Forms, region: Region, key: str, choice: Choice) -> Region:
    """The form of a region that its schedule is for."""
    found = forms.find(region, key, choice.form)
    assert found is not None
    return found
