"""hlo module in, executable for a GPU out: the build, the levels that one may look at, and the cache of whole programs.

Where the target's device is there, the first few candidates of each region are compared with the reference and timed
on it; where it is not, the model alone decides.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from luminal import dump
from luminal.emit_cpu.cache import read_entry, write_entry
from luminal.emit_triton.aot import triton_version
from luminal.emit_triton.targets import GpuTarget, target_named
from luminal.errors import CompileError, NoDeviceError
from luminal.options import CompileOptions, dump_directory
from luminal.plan.gpu_code import GpuCode, code_from_json, code_to_json
from luminal.plan.gpu_executable import GpuExecutable
from luminal.plan.plan import Plan, plan_from_json, plan_to_json
from luminal.runtimes.gpu_device import Device, find_device
from luminal.runtimes.reference import graph_of
from luminal.source import source_digest
from luminal.stats import Stats, record

if TYPE_CHECKING:
    from luminal.dialects.graph_op import GraphOp
    from luminal.plan.gpu_build import GpuFunction, GpuProgram
    from luminal.plan.gpu_judge import DeviceJudge

TRIED: Mapping[str, int] = {"default": 4, "max-autotune": 12}
"""Candidates of a region that are timed on the device, by mode."""


def compile_for_gpu(module: ModuleOp, target: str, options: CompileOptions) -> GpuExecutable:
    """Compile a module of one hlo graph for a target of `emit_triton/targets.py`; the module is left as it is.

    Raises UnsupportedTargetError where Triton is not installed, CompilationError where it refuses all candidates of a
    region, SoundnessError where one that the device runs differs from the reference.
    """
    stats, gpu = Stats(compilations=1), target_named(target)
    device = _device_of(gpu)
    tried = (options.candidates or TRIED[options.mode]) if device is not None else 1
    text, directory = str(module), dump_directory()
    parts = (source_digest(), triton_version(), gpu.name, options.key, str(tried), text)
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    wanted, cached = dump.wanted(directory), options.cache and "\\22object\\22:" not in text
    found = _kept(key) if cached and not wanted else None
    if found is not None:
        stats.cached = 1
        plan, codes = found
    else:
        judge = _judge(device, gpu, graph_of(module), options) if tried > 1 else None
        program = _build(module, gpu, options, judge, tried, stats)
        plan, codes = program.plan, program.codes
        if cached:
            _keep(key, plan, codes)
        if wanted:
            levels = dump.Levels()
            levels.update({"hlo": text, **dict(_levels(program, judge))})
            dump.deliver(levels, directory, graph_of(module).graph_name, key)
    stats.kernels, stats.launches = len(plan.kernels), len(plan.steps)
    record(stats)
    return GpuExecutable(plan, codes, gpu.architecture, stats)


def _device_of(target: GpuTarget) -> Device | None:
    """The target's device, where it is here."""
    try:
        return find_device(target.architecture)
    except NoDeviceError:
        return None


def _judge(
    device: Device | None, target: GpuTarget, graph: GraphOp, options: CompileOptions
) -> DeviceJudge | None:
    from luminal.plan.gpu_judge import DeviceJudge

    if device is None:
        return None
    return DeviceJudge(device, target, graph.licences, options.verify, options.mode)


def _build(
    module: ModuleOp,
    target: GpuTarget,
    options: CompileOptions,
    judge: DeviceJudge | None,
    tried: int,
    stats: Stats,
) -> GpuProgram:
    from luminal.plan.gpu_build import build_for_gpu

    with stats.stage("build"):
        program = build_for_gpu(
            module,
            target.name,
            options.updates,
            dict(options.hint),
            constants=options.constants,
            mode=options.mode,
            judge=judge,
            tried=tried,
        )
    stats.rewrites = dict(program.rewrites)
    lost = set(options.updates) - set(program.plan.updates)
    if lost:
        raise CompileError(f"updates {sorted(lost)} (output, input) do not end in their inputs' memory")
    return program


def _levels(program: GpuProgram, judge: DeviceJudge | None) -> Iterator[tuple[str, str]]:
    """The text of each level below the user's graph."""
    functions = program.functions.values()
    yield "primitive", str(program.lowered.module)
    yield "schedules", "".join(f"{each.name}: {each.candidate}\n" for each in functions)
    yield "placed", "\n".join(str(each.candidate.function) for each in functions) + "\n"
    yield "triton", "\n".join(kernel.source for each in functions for kernel in each.kernels)
    yield "plan", str(program.plan)
    measured = judge.measured if judge is not None else {}
    yield "search", "".join(line for f in functions for line in _considered(f, measured.get(f.name, [])))


def _considered(function: GpuFunction, measured: Sequence[tuple[str, float]]) -> Iterator[str]:
    """What the search says of a function: the model's seconds, what the device measured, and what was refused."""
    yield f"{function.name}: {function.candidate}\n"
    yield f"  by the model {function.candidate.seconds[0] * 1e6:.3g} us\n"
    for compiled in function.compiled:
        found = compiled.resources
        yield f"  {found.registers} registers, {found.spills} spilled, {found.shared} bytes of shared memory\n"
    for candidate, seconds in measured:
        yield f"  measured {seconds * 1e6:.3g} us: {candidate}\n"
    for reason in function.refused:
        yield f"  refused: {reason}\n"


def _keep(key: str, plan: Plan, codes: Mapping[str, GpuCode]) -> None:
    """Leave a program on disk for the next compilation of its graph."""

    def keep(image: bytes) -> str:
        return base64.b64encode(image).decode()

    kept = {"plan": plan_to_json(plan), "codes": {n: code_to_json(code, keep) for n, code in codes.items()}}
    write_entry(key, json.dumps(kept).encode())


def _kept(key: str) -> tuple[Plan, dict[str, GpuCode]] | None:
    """What an earlier compilation left on disk."""
    entry = read_entry(key)
    if entry is None:
        return None
    data = json.loads(entry)
    codes = {name: code_from_json(code, base64.b64decode) for name, code in data["codes"].items()}
    return plan_from_json(data["plan"]), codes
