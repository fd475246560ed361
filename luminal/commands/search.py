"""`luminal search graph.mlir`: a long search for the schedules of a graph, which later compilations find again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from luminal.commands.graph_file import add_dims, add_file, read_dims, read_graph, write_text
from luminal.compiler import compile_module
from luminal.dump import collect
from luminal.options import VERIFY
from luminal.runtimes.reference import graph_of

SEARCH = ("candidates", "budget", "seed", "timeout", "verify")
"""Options of this command that are those of a compilation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_dims(parser, "an expected size, which the schedules are timed at")
    parser.add_argument(
        "--candidates",
        type=int,
        default=0,
        help="timed for each kernel at most (default: what the budget allows)",
    )
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of searching in all (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of what the search draws (default: 0)")
    parser.add_argument(
        "--timeout", type=float, default=0.0, help="seconds that one run may take beside what is expected"
    )
    parser.add_argument(
        "--verify",
        default=VERIFY[0],
        help=f"what candidates are compared on: {', '.join(VERIFY)} data (default: full)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="write the config there, not to stdout")


def run(options: argparse.Namespace) -> int:
    module = read_graph(options.file)
    hint = read_dims(options.dim, graph_of(module).symbols)
    started = time.perf_counter()
    chosen = {"hint": hint, "mode": "max-autotune"} | {name: getattr(options, name) for name in SEARCH}
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
