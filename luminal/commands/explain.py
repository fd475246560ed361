"""`luminal explain MODEL`: every level of what a model compiles to, and its search, as text, a page or files."""

from __future__ import annotations

import argparse
from pathlib import Path

from luminal.commands.graph_file import add_dims, make_folder, write_text
from luminal.commands.model_file import EXPECTED, levels_of_file
from luminal.dump import LEVELS, explain_text
from luminal.explanation import write_page
from luminal.search.config import SearchConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = (
        f"a graph as luminal-opt reads it, a .pt2 file of torch.export, or a .py file that defines {EXPECTED}"
    )
    parser.add_argument("file", type=Path, metavar="MODEL", help=kinds)
    add_dims(parser, "an expected size of a graph, which the schedules are chosen for")
    parser.add_argument(
        "--level", action="append", choices=list(LEVELS), help="only this level; may be repeated"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with everything instead")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="write the config of all graphs there too"
    )
    parser.add_argument("--dump", type=Path, metavar="FOLDER", help="write one file for each level there")


def run(options: argparse.Namespace) -> int:
    found = levels_of_file(options.file, options.dim)
    if options.config is not None:
        configs = [SearchConfig.parse(levels["config"]) for levels in found if "config" in levels]
        write_text(options.config, SearchConfig.merged(configs).text())
    if options.html is not None:
        write_page(found, options.html)
        print(options.html)
        return 0
    for number, levels in enumerate(found):
        wanted = {name: text for name, text in levels.items() if not options.level or name in options.level}
        if options.dump is None:
            print(explain_text(wanted), end="")
            continue
        folder = options.dump if len(found) == 1 else options.dump / str(number)
        make_folder(folder)
        for name, text in wanted.items():
            write_text(folder / LEVELS[name], text)
            print(folder / LEVELS[name])
    return 0
