"""`luminal search graph.mlir`: a long search for the schedules of a graph, which later compilations find again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from luminal.commands.graph_file import add_dims, add_file, read_dims, read_graph, write_text
from luminal.compiler import compile_module
from luminal.dump import collect
from luminal.runtimes.reference import graph_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_dims(parser, "an expected size, which the schedules are timed at")
    parser.add_argument(
        "--candidates", type=int, default=24, help="timed for each kernel at most (default: 24)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="write the config there, not to stdout")


def run(options: argparse.Namespace) -> int:
    module = read_graph(options.file)
    hint = read_dims(options.dim, graph_of(module).symbols)
    started = time.perf_counter()
    chosen = {"hint": hint, "mode": "max-autotune", "candidates": options.candidates}
    with collect() as found:
        executable = compile_module(module, "cpu", chosen)
    levels = found[-1]
    print(levels["schedules"].rstrip())
    if options.config is None:
        print(levels["config"].rstrip())
    else:
        write_text(options.config, levels["config"])
    stats = executable.stats
    print(f"{stats['kernels']} kernels, {stats['launches']} launches, {time.perf_counter() - started:.1f} s")
    return 0
