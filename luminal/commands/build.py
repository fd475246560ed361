"""`luminal build FILE --target sm_90 --out FOLDER`: compile a model ahead, for `lm.load`; a GPU need not be there."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from luminal.commands.graph_file import add_dims
from luminal.commands.model_file import Source, source_of_file
from luminal.emit_triton.targets import TARGETS, target_named
from luminal.options import CompileOptions, progress_wanted
from luminal.runtimes.reference import graph_of

PATIENCE = 1.0
"""Seconds after which a build shows how far it has come."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        help="a graph of IR text, a .pt2 file of torch.export, or a .py file that defines `model` and "
        "`example_inputs`, or `graph`",
    )
    add_dims(parser, "an expected size, for graphs of IR text")
    parser.add_argument(
        "--target", required=True, help=f"cpu, this processor, or one of {', '.join(TARGETS)}"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the product goes")


def run(options: argparse.Namespace) -> int:
    from luminal.plan.product_folder import check_folder

    if options.target != "cpu":
        target_named(options.target)
    check_folder(options.out)
    line = _Line()
    line.tell("reading")
    source = source_of_file(options.file, options.dim)
    build = _build_native if options.target == "cpu" else _build_for_gpu
    said = build(source, options.target, options.out, line.tell)
    line.clear()
    print(f"{options.out}: {said} for {options.target}")
    return 0


def _build_for_gpu(source: Source, target: str, out: Path, tell: Callable[[str], None]) -> str:
    from luminal.plan.gpu_build import build_for_gpu
    from luminal.plan.gpu_product import write_product

    constants = source.call.constants
    program = build_for_gpu(source.module, target, source.updates, source.hint, tell, constants=constants)
    write_product(program, source.border, source.call.data(), out)
    launches = sum(len(program.functions[name].kernels) for name in program.plan.kernels)
    return f"{len(program.functions)} functions in {launches} kernels"


def _build_native(source: Source, target: str, out: Path, tell: Callable[[str], None]) -> str:
    from luminal.compiler import compile_programs
    from luminal.plan.cpu_product import write_product

    del target
    tell("compiling")
    hint = tuple(sorted(source.hint.items()))
    chosen = CompileOptions(constants=tuple(source.call.constants), updates=source.updates, hint=hint)
    programs = compile_programs(source.module, chosen)
    write_product(programs, graph_of(source.module).symbols, source.call.data(), out)
    kernels = {name for program in programs for name in program.images}
    return f"{len(programs)} programs in {len(kernels)} kernels"


class _Line:
    """One line on a terminal that says what goes on, once there is reason to."""

    def __init__(self) -> None:
        self.started, self.shows, self.width = time.perf_counter(), progress_wanted(sys.stderr), 0

    def tell(self, text: str) -> None:
        seconds = time.perf_counter() - self.started
        if self.shows and seconds >= PATIENCE:
            self._write(f"build: {text} | {seconds:.0f} s")

    def clear(self) -> None:
        if self.width:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self.width)}\r")
        sys.stderr.flush()
        self.width = len(text)
