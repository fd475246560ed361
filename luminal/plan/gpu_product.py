"""What a build for a GPU leaves in a product's folder: machine code, texts, the plan, and how to launch it.

    manifest.json   target, parameters and inputs, outputs, kernels with their launches and resources
    plan.txt        the plan as text: what is called in which order, on which memory
    plan.json       the same as data (`luminal.plan.plan.plan_from_json`)
    kernels/        of each kernel NAME.cubin or NAME.hsaco, NAME.ptx or NAME.amdgcn, and NAME.py, Triton's text

Sizes are dims in text, over the symbols of the graph in the plan, and of the function in a kernel.  Tensors are in
row-major order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.emit_triton.aot import CompiledKernel, signature_type, triton_version
from luminal.emit_triton.emit import ALIGNMENT
from luminal.emit_triton.kernel import PREFIX, Parameter, TritonKernel
from luminal.emit_triton.resources import occupancy
from luminal.emit_triton.worker import ASSEMBLY, BINARY
from luminal.errors import OptionError
from luminal.plan.gpu_build import GpuFunction, GpuProgram
from luminal.plan.plan import LibraryStep, PlanStep, plan_to_json
from luminal.plan.product_folder import ProductData, write_folder

TRAILING = ("global scratch", "profile scratch")
"""Pointers that Triton's calling convention adds behind a kernel's own parameters: null where a program needs 0 bytes,
else the address of so many for each program, `scratch` bytes behind the workspaces' block, the next multiple of 128."""


@dataclass(frozen=True, slots=True)
class BorderTensor:
    """What a tensor at the border of the graph is to the user.

    `kind` of an input: "parameter" (of the model, given once) or "input"; of a result: "computed" (output `number`),
    "update" (output `number`, the next value of the input of that name), "part" (a view of output `number`), or what of
    the arguments it is.  `order`: axis i of the memory is axis order[i] of the user's tensor, None where they are the
    same; axes that the user's tensor repeats have size 1 in memory.
    """

    name: str
    kind: str
    number: int
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Border:
    """The inputs of a graph in order, and the model's results."""

    inputs: tuple[BorderTensor, ...]
    results: tuple[BorderTensor, ...]


def write_product(program: GpuProgram, border: Border, data: ProductData, folder: Path) -> None:
    """Write a program; errors as `write_folder`."""
    write_folder(folder, data, [program.plan], lambda made: _write(program, border, made))


def _write(program: GpuProgram, border: Border, folder: Path) -> dict[str, Any]:
    kernels = folder / "kernels"
    kernels.mkdir(parents=True)
    backend = program.target.backend
    for function in program.functions.values():
        for kernel, compiled in zip(function.kernels, function.compiled, strict=True):
            (kernels / f"{kernel.name}.{BINARY[backend]}").write_bytes(compiled.binary)
            (kernels / f"{kernel.name}.{ASSEMBLY[backend]}").write_text(compiled.assembly)
            (kernels / f"{kernel.name}.py").write_text(kernel.source)
    (folder / "plan.txt").write_text(str(program.plan))
    (folder / "plan.json").write_text(plan_to_json(program.plan))
    return manifest(program, border)


def manifest(program: GpuProgram, border: Border) -> dict[str, Any]:
    """What one must know to run a program; OptionError where the border is not that of its graph."""
    plan, target = program.plan, program.target
    if len(border.inputs) != plan.given:
        raise OptionError(f"the graph has {plan.given} inputs, not {len(border.inputs)}")
    inputs = zip(border.inputs, plan.inputs[: plan.given], strict=True)
    return {
        "target": {
            "name": target.name,
            "backend": target.backend,
            "architecture": target.architecture,
            "warp": target.machine.warp,
        },
        "triton": triton_version(),
        "dims": {s.name: {"min": s.minimum, "max": s.maximum} for s in plan.symbols},
        "alignment": ALIGNMENT,
        "inputs": [{**asdict(each), **_tensor(type_)} for each, type_ in inputs],
        "outputs": [
            {**_tensor(type_), "in_input": dict(plan.updates).get(number)}
            for number, type_ in enumerate(plan.outputs)
        ],
        "results": [asdict(each) for each in border.results],
        "arena": {
            "blocks": [{"bytes": str(b.size), "steps": [b.first, b.last]} for b in plan.arena.blocks],
            "below": plan.arena.below,
            "order": plan.arena.order,
        },
        "steps": [_step(step) for step in plan.steps],
        "functions": {name: _function(program, each) for name, each in program.functions.items()},
    }


def _tensor(type_: TensorType) -> dict[str, Any]:
    return {"dtype": type_.dtype.name, "shape": [str(size) for size in type_.shape]}


def _step(step: PlanStep) -> dict[str, Any]:
    if isinstance(step, LibraryStep):
        return {"library": step.op, "arguments": step.arguments, "outputs": step.outputs}
    found: dict[str, Any] = {
        "function": step.kernel,
        "arguments": step.arguments,
        "dims": [str(size) for size in step.dims],
        "workspace": step.workspace if step.workspace >= 0 else None,
    }
    return found | ({"fails_where_true": step.message} if step.check else {})


def _function(program: GpuProgram, function: GpuFunction) -> dict[str, Any]:
    launches = zip(function.kernels, function.compiled, function.scratch, strict=True)
    return {
        "form": function.candidate.form,
        "schedule": str(function.candidate.schedule),
        "estimated_seconds": function.candidate.seconds[0],
        "workspace_bytes": str(function.workspace_bytes),
        "symbols": [[s.name, s.minimum, s.maximum] for s in function.candidate.function.symbols.data],
        "workspaces": [str(offset) for offset in function.workspaces],
        "launches": [_launch(program, *launch) for launch in launches],
        "refused": function.refused,
    }


def _launch(
    program: GpuProgram, kernel: TritonKernel, compiled: CompiledKernel, scratch: Dim | None
) -> dict[str, Any]:
    target, metadata = program.target, compiled.metadata
    return {
        "file": f"kernels/{kernel.name}.{BINARY[target.backend]}",
        "symbol": metadata["name"],
        "grid": str(kernel.grid),
        "scratch": None if scratch is None else str(scratch),
        "threads": compiled.resources.warps * target.machine.warp,
        "shared_bytes": compiled.resources.shared,
        "parameters": [_parameter(parameter) for parameter in kernel.parameters],
        "signature": [signature_type(parameter) for parameter in kernel.parameters],
        "trailing": [
            {"name": name, "bytes": metadata.get(f"{name.split()[0]}_scratch_size", 0)} for name in TRAILING
        ],
        "resources": {**asdict(compiled.resources), "occupancy": occupancy(compiled.resources, target)},
    }


def _parameter(parameter: Parameter) -> Mapping[str, Any]:
    kinds = {prefix: kind for kind, prefix in PREFIX.items()}
    kind = kinds[parameter.name.rstrip("0123456789")] if parameter.is_pointer else "size"
    return {
        "name": parameter.name,
        "type": signature_type(parameter),
        "kind": kind,
        "divisor": parameter.divisor,
        "elements": None if parameter.elements is None else str(parameter.elements),
    }
