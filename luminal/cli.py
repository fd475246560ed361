"""The command `luminal`: one subcommand per table row.

Each row names the module that does the work, imported when it is asked for: `luminal --help` stays quick.
A subcommand's module has `add_arguments(parser)` and `run(options) -> exit status`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from luminal.errors import LuminalError

SUBCOMMANDS = {
    "run": ("luminal.commands.run", "compile a graph, execute it and print the results"),
    "search": ("luminal.commands.search", "time many schedules of a graph and remember the best"),
    "explain": ("luminal.commands.explain", "show every level of what a model compiles to, and its search"),
    "build": ("luminal.commands.build", "compile a model for a GPU that need not be there"),
    "bench": ("luminal.bench.command", "compare Luminal with its peers on suites of benchmarks"),
    "doctor": ("luminal.doctor", "say what of this machine Luminal can use"),
    "cache": ("luminal.commands.cache", "show, export, import or clear what is kept on disk"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="luminal", description="The Luminal tensor compiler.")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    asked = given[0] if given else ""
    for name, (module_name, purpose) in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=purpose, description=f"luminal {name}: {purpose}.")
        if name == asked:
            module = importlib.import_module(module_name)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    options = parser.parse_args(given)
    try:
        return options.run(options)
    except LuminalError as error:
        print(f"luminal {options.subcommand}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
