"""Reads what `luminal explain` explains: a graph of IR text, a Python file with a model, or an exported program."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from luminal.commands.graph_file import read_dims, read_graph
from luminal.compiler import compile_module
from luminal.dump import Levels, collect
from luminal.errors import LuminalError, ModelError, OptionError
from luminal.explanation import compiled_levels
from luminal.graph import Graph
from luminal.runtimes.reference import graph_of

EXPECTED = "a graph (a luminal.Graph), or a model with its example_inputs (a tuple)"


def levels_of_file(path: Path, dims: Sequence[str]) -> list[Levels]:
    """What a file compiles to.  `dims` are expected sizes, NAME=SIZE, for graphs of IR text.

    OptionError for a file that cannot be read or holds no model, VerifyError for a text that is no graph, ModelError
    for a model that fails on its own inputs.
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
    return _levels_of_model(path, names["model"], tuple(names["example_inputs"]))


def _levels_of_text(path: Path, dims: Sequence[str]) -> list[Levels]:
    module = read_graph(path)
    hint = read_dims(dims, graph_of(module).symbols)
    with collect() as found:
        compile_module(module, "cpu", {"hint": hint})
    return found


def _levels_of_model(path: Path, model: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Levels]:
    try:
        with _quiet(
            "torch._subclasses.fake_tensor"
        ):  # it tells of an operator that fails, with its traceback
            return compiled_levels(model, inputs, {})
    except LuminalError:
        raise
    except Exception as error:
        inner = getattr(error, "inner_exception", None)  # of what Dynamo wraps
        if isinstance(inner, LuminalError):
            raise inner from None
        _check_alone(path, model, inputs)
        raise


def _check_alone(path: Path, model: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """ModelError for a model that fails without the compiler too."""
    import torch

    try:
        with torch.no_grad():
            model(*inputs)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{path}: the model fails on its example_inputs: {type(error).__name__}: {reason}"
        ) from error


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
        with _quiet("torch.export"):  # it tells of every reader that did not fit, with its traceback
            return load(path)
    except Exception as error:  # torch raises whatever the reader of an archive meets
        raise OptionError(
            f"{path} is no program that this version of torch.export has saved, or it is damaged"
        ) from error


@contextmanager
def _quiet(name: str) -> Generator[None]:
    """While open, a logger says nothing: what it has to say is raised too."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
