"""Reads what `luminal explain` explains: a graph of IR text, a Python file with a model, or an exported program."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luminal.commands.graph_file import read_dims, read_graph
from luminal.compiler import compile_module
from luminal.dump import Levels, collect
from luminal.errors import LuminalError, OptionError
from luminal.explanation import compiled_levels
from luminal.graph import Graph
from luminal.runtimes.reference import graph_of

EXPECTED = "a graph (a luminal.Graph), or a model with its example_inputs (a tuple)"


def levels_of_file(path: Path, dims: Sequence[str]) -> list[Levels]:
    """What a file compiles to.  `dims` are expected sizes, NAME=SIZE, for graphs of IR text.

    OptionError for a file that cannot be read or holds no model, VerifyError for a text that is no graph.
    """
    if path.suffix not in (".py", ".pt2"):
        return _levels_of_text(path, dims)
    if dims:
        raise OptionError(f"--dim is for graphs of IR text; {path} has its own example inputs")
    if not path.is_file():
        raise OptionError(f"{path}: No such file")
    if path.suffix == ".pt2":
        return compiled_levels(_exported(path), (), {})
    names = _names_of(path)
    if isinstance(names.get("graph"), Graph):
        return compiled_levels(names["graph"], (), {})
    if not callable(names.get("model")) or not isinstance(names.get("example_inputs"), (tuple, list)):
        raise OptionError(f"{path} defines no model; expected {EXPECTED}")
    return compiled_levels(names["model"], tuple(names["example_inputs"]), {})


def _levels_of_text(path: Path, dims: Sequence[str]) -> list[Levels]:
    module = read_graph(path)
    hint = read_dims(dims, graph_of(module).symbols)
    with collect() as found:
        compile_module(module, "cpu", {"hint": hint})
    return found


def _names_of(path: Path) -> Mapping[str, Any]:
    """What a Python file defines; OptionError where it fails."""
    try:
        return runpy.run_path(str(path), run_name="luminal_explain")
    except LuminalError:
        raise
    except (Exception, SystemExit) as error:
        raise OptionError(f"{path} fails: {type(error).__name__}: {error}") from error


def _exported(path: Path) -> Any:
    from torch.export import load

    try:
        return load(path)
    except Exception as error:  # torch raises whatever the reader of an archive meets
        raise OptionError(f"{path} is no program of torch.export: {error}") from error
