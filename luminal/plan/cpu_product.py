"""What a build for the processor at hand leaves in a product's folder: of each program its plan and its objects.

program_0/plan.json, plan.txt, entry.o, NAME.o      and so on for the programs of other sizes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Symbol
from luminal.emit_cpu.jit import Target
from luminal.errors import NoDeviceError
from luminal.plan.plan import plan_from_json, plan_to_json
from luminal.plan.product_folder import ProductData, without_folds, write_folder
from luminal.plan.programs import Compiled, LoadedKernels, Program, executable_of
from luminal.stats import Stats


@dataclass(frozen=True, slots=True)
class _Border:
    symbols: Sequence[Symbol]
    input_types: Sequence[TensorType]
    output_types: Sequence[TensorType]


def write_product(
    programs: Sequence[Program], symbols: Sequence[Symbol], data: ProductData, folder: Path
) -> None:
    """Write the programs of a graph with these symbols; errors as `write_folder`."""

    def write(made: Path) -> dict[str, Any]:
        return {
            "target": {"name": "cpu", "processor": Target.host().key},
            "symbols": [[symbol.name, symbol.minimum, symbol.maximum] for symbol in symbols],
            "programs": [_write(program, made / f"program_{n}") for n, program in enumerate(programs)],
        }

    write_folder(folder, data, [program.plan for program in programs], write)


def _write(program: Program, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    (folder / "plan.txt").write_text(str(program.plan))
    (folder / "plan.json").write_text(plan_to_json(program.plan))
    (folder / "entry.o").write_bytes(program.entry)
    for name, image in program.images.items():
        (folder / f"{name}.o").write_bytes(image)
    return {"folder": folder.name, "box": program.box, "kernels": list(program.images)}


def read_program(folder: Path, manifest: Mapping[str, Any]) -> Compiled:
    """The programs of a product; NoDeviceError on a processor that they were not built for."""
    built, here = manifest["target"]["processor"], Target.host().key
    if built != here:
        raise NoDeviceError(f"the product was built for {built}; this processor is {here}")
    kernels = LoadedKernels()
    programs = [_read(folder / each["folder"], each, kernels) for each in manifest["programs"]]
    symbols, first = [Symbol(*entry) for entry in manifest["symbols"]], programs[0].plan
    return executable_of(_Border(symbols, first.inputs, first.outputs), programs, Stats())


def _read(folder: Path, data: Mapping[str, Any], kernels: LoadedKernels) -> Program:
    plan = without_folds(plan_from_json((folder / "plan.json").read_text()))
    loaded = {
        name: kernels.load(name, f"{folder.name} {name}", (folder / f"{name}.o").read_bytes())
        for name in data["kernels"]
    }
    box = {name: (low, high) for name, (low, high) in data["box"].items()}
    return Program(box, plan, loaded, (folder / "entry.o").read_bytes())
