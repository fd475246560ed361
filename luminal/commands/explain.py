"""`luminal explain graph.mlir`: every level of what a graph compiles to, as text, or in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from luminal.commands.graph_file import add_dims, add_file, read_dims, read_graph
from luminal.compiler import compile_module
from luminal.dump import LEVELS, collect, explain_text
from luminal.runtimes.reference import graph_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_dims(parser, "an expected size, which the schedules are chosen for")
    parser.add_argument(
        "--level", action="append", choices=list(LEVELS), help="only this level; may be repeated"
    )
    parser.add_argument("--dump", type=Path, metavar="FOLDER", help="write one file for each level there")


def run(options: argparse.Namespace) -> int:
    module = read_graph(options.file)
    hint = read_dims(options.dim, graph_of(module).symbols)
    with collect() as found:
        compile_module(module, "cpu", {"hint": hint})
    levels = {name: text for name, text in found[-1].items() if not options.level or name in options.level}
    if options.dump is None:
        print(explain_text(levels), end="")
        return 0
    options.dump.mkdir(parents=True, exist_ok=True)
    for name, text in levels.items():
        (options.dump / LEVELS[name]).write_text(text, encoding="utf-8")
        print(options.dump / LEVELS[name])
    return 0
