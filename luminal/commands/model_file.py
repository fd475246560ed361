"""Reads what `luminal explain` explains and `luminal build` builds: a graph of IR text, a Python file with a model, or
an exported program."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from luminal.commands.graph_file import read_dims, read_graph
from luminal.compiler import compile_module
from luminal.dump import Levels, collect
from luminal.errors import LuminalError, ModelError, OptionError
from luminal.explanation import compiled_levels
from luminal.graph import Graph
from luminal.plan.gpu_product import Border, BorderTensor
from luminal.runtimes.reference import graph_of
from luminal.torch.product import ProductCall

EXPECTED = "a graph (a luminal.Graph), or a model with its example_inputs (a tuple)"


def levels_of_file(path: Path, dims: Sequence[str]) -> list[Levels]:
    """What a file compiles to.  `dims` are expected sizes, NAME=SIZE, for graphs of IR text.

    OptionError for a file that cannot be read or holds no model, VerifyError for a text that is no graph, ModelError
    for a model that fails on its own inputs.
    """
    if _is_text(path, dims):
        return _levels_of_text(path, dims)
    if path.suffix == ".pt2":
        return compiled_levels(_exported(path), (), {})
    names = _names_of(path)
    if isinstance(names.get("graph"), Graph):
        return compiled_levels(names["graph"], (), {})
    return _levels_of_model(path, names["model"], tuple(names["example_inputs"]))


@dataclass(frozen=True)
class Source:
    """One hlo graph, what its border is to the user, how it is called, pairs (output, input) that share memory, and
    expected sizes."""

    module: ModuleOp
    border: Border
    call: ProductCall
    updates: tuple[tuple[int, int], ...] = ()
    hint: Mapping[str, int] = field(default_factory=dict[str, int])


def source_of_file(path: Path, dims: Sequence[str]) -> Source:
    """The one graph that a file holds; a model is exported with its example inputs, and its `dynamic_shapes`, if any.

    Errors are those of `levels_of_file`; OptionError also for a model that torch.export does not take.
    """
    if _is_text(path, dims):
        module = read_graph(path)
        return _graph_source(module, read_dims(dims, graph_of(module).symbols))
    if path.suffix == ".pt2":
        return _exported_source(_exported(path))
    names = _names_of(path)
    if isinstance(names.get("graph"), Graph):
        return _graph_source(names["graph"].module(), {})
    return _exported_source(_export(path, names))


def _is_text(path: Path, dims: Sequence[str]) -> bool:
    """Whether a file is IR text; OptionError for dims of one that is not, and for one that is not there."""
    if path.suffix not in (".py", ".pt2"):
        return True
    if dims:
        raise OptionError(f"--dim is for graphs of IR text; {path} has its own example inputs")
    if not path.is_file():
        raise OptionError(f"{path}: No such file")
    return False


def _graph_source(module: ModuleOp, hint: Mapping[str, int]) -> Source:
    graph = graph_of(module)
    inputs = tuple(BorderTensor(a.name_hint or str(a.index), "input", a.index) for a in graph.block.args)
    results = tuple(BorderTensor(str(n), "computed", n) for n in range(len(graph.output_types)))
    call = ProductCall.plain(graph.input_types, graph.output_types)
    return Source(module, Border(inputs, results), call, (), hint)


def _export(path: Path, names: Mapping[str, Any]) -> Any:
    import torch

    class Wrapped(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return names["model"](*inputs)

    model = names["model"] if isinstance(names["model"], torch.nn.Module) else Wrapped()
    dynamic = names.get("dynamic_shapes")
    try:
        with torch.no_grad():
            return torch.export.export(
                model, tuple(names["example_inputs"]), dynamic_shapes=dynamic, strict=False
            )
    except Exception as error:  # torch raises whatever the model meets
        _check_alone(path, names["model"], tuple(names["example_inputs"]))
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise OptionError(f"{path}: torch.export does not take the model: {reason}") from error


def _exported_source(program: Any) -> Source:
    from torch.export.graph_signature import InputKind

    from luminal.torch.export import UPDATES, exported_call, import_exported
    from luminal.torch.options import TorchOptions

    found = import_exported(program, TorchOptions(strict=True))
    imported, specs = found.imported, found.program.graph_signature.input_specs

    def named(number: int, slot: Any) -> BorderTensor:
        order = slot.layout.order
        if slot.constant is not None:
            return BorderTensor(f"constant {number}", "parameter", number, order)
        spec = specs[slot.argument]
        kind = "input" if spec.kind is InputKind.USER_INPUT else "parameter"
        return BorderTensor(spec.target or spec.arg.name, kind, number, order)

    inputs = tuple(named(number, slot) for number, slot in enumerate(imported.inputs))

    def resulting(slot: Any, spec: Any) -> BorderTensor:
        order = None if slot.layout is None else slot.layout.order
        return BorderTensor(spec.target or spec.arg.name, slot.kind, slot.number, order)

    outputs = [spec for spec in found.program.graph_signature.output_specs if spec.kind not in UPDATES]
    # hidden results stand behind those of the model
    results = [resulting(slot, spec) for slot, spec in zip(imported.outputs, outputs, strict=False)]
    for output, position in imported.updates:
        results.append(replace(inputs[position], kind="update", number=output))
    call = exported_call(found)
    return Source(
        imported.module, Border(inputs, tuple(results)), call, tuple(imported.updates), dict(imported.hints)
    )


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
    """What a Python file defines, a graph or a model among it; OptionError where it fails or does not."""
    try:
        names = runpy.run_path(str(path), run_name="luminal_explain")
    except LuminalError:
        raise
    except (Exception, SystemExit) as error:
        raise OptionError(f"{path} fails: {type(error).__name__}: {error}") from error
    has_model = callable(names.get("model")) and isinstance(names.get("example_inputs"), (tuple, list))
    if not has_model and not isinstance(names.get("graph"), Graph):
        raise OptionError(f"{path} defines no model; expected {EXPECTED}")
    return names


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
