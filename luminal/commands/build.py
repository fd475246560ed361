"""`luminal build FILE --target sm_90 --out FOLDER`: compile a model for a GPU that need not be there."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from luminal.commands.graph_file import add_dims
from luminal.commands.model_file import source_of_file
from luminal.emit_triton.targets import TARGETS, target_named
from luminal.options import progress_wanted

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
    parser.add_argument("--target", required=True, help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the product goes")


def run(options: argparse.Namespace) -> int:
    from luminal.plan.gpu_build import build_for_gpu
    from luminal.plan.gpu_product import check_folder, write_product

    target_named(options.target)
    check_folder(options.out)
    line = _Line()
    line.tell("reading")
    source = source_of_file(options.file, options.dim)
    program = build_for_gpu(source.module, options.target, source.updates, source.hint, line.tell)
    write_product(program, source.border, options.out)
    line.clear()
    launches = sum(len(program.functions[name].kernels) for name in program.plan.kernels)
    print(f"{options.out}: {len(program.functions)} functions in {launches} kernels for {options.target}")
    return 0


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
