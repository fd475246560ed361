"""Reads a graph of IR text from a file, and the options that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError

from luminal.dialects import all_dialects
from luminal.dim import Symbol
from luminal.errors import OptionError, UnknownDimError, VerifyError
from luminal.runtimes.reference import graph_of


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a graph at the hlo level, as luminal-opt reads it")


def add_dims(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help=purpose)


def read_graph(path: Path) -> ModuleOp:
    """The verified module of one graph. VerifyError where the text is not that, OptionError without a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    context = Context()
    for name, factory in all_dialects().items():
        context.register_dialect(name, factory)
    try:
        module = Parser(context, text, str(path)).parse_module()
        module.verify()
    except (ParseError, DiagnosticException) as error:
        raise VerifyError(str(error)) from None
    graph_of(module)
    return module


def write_text(path: Path, text: str) -> None:
    """Write a file; OptionError where that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there; OptionError where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None


def read_pairs(pairs: Sequence[str], what: str) -> dict[str, str]:
    """`["s=17"]` as a mapping; OptionError for anything else."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise OptionError(f"{what} {pair!r} is not NAME=VALUE")
        found[name] = value
    return found


def read_dims(pairs: Sequence[str], symbols: Sequence[Symbol]) -> dict[str, int]:
    """The sizes that were given, checked against the graph's symbols and their ranges."""
    known = {symbol.name: symbol for symbol in symbols}
    dims: dict[str, int] = {}
    for name, text in read_pairs(pairs, "--dim").items():
        if name not in known:
            raise UnknownDimError(f"the graph has no dim {name!r}; its dims are {', '.join(known) or 'none'}")
        if not text.lstrip("-").isdigit():
            raise OptionError(f"--dim {name}={text}: expected a whole number")
        dims[name] = known[name].check(int(text))
    return dims
