"""`luminal.explain`: every level of what a model or a graph compiles to, and its search, as text and as a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luminal.dump import Levels, collect, explain_text
from luminal.errors import OptionError

if TYPE_CHECKING:
    from luminal.graph import Graph

CANDIDATES = 10
"""How many schedules of each kernel of a graph are timed at most, where the search is not done yet."""


def explain(
    model: Any,
    *inputs: Any,
    target: str | None = None,
    html: str | os.PathLike[str] | None = None,
    **keywords: Any,
) -> str:
    """Compile afresh and return the text of every level, from the graph down, once for each graph that is compiled.

    `model`: a module or function of PyTorch (compiled or not), which is run on the inputs; or a `Graph` or an exported
    program, without inputs.  `target`: what it is compiled for; a GPU need not be here, since the model then runs
    without the compiler.  The levels "search" and "config" tell what was timed; the text of the others is
    canonical: equal programs give equal text.  `html`: a file that is written, the same as one page that needs no
    other file; it has this machine's peak and bandwidth in it, which takes a few seconds to measure.

    OptionError where inputs are given to what takes none, and for a file that cannot be written.
    """
    found = compiled_levels(model, inputs, keywords, target)
    if html is not None:
        write_page(found, Path(html))
    return "\n".join(explain_text(levels) for levels in found)


def compiled_levels(
    model: Any, inputs: Sequence[Any], keywords: Mapping[str, Any], target: str | None = None
) -> list[Levels]:
    """What `explain` tells, for each graph that is compiled."""
    from luminal.graph import Graph

    with collect() as found:
        if isinstance(model, Graph):
            _refuse(inputs, keywords, "a graph")
            _compile_graph(model, target)
        else:
            _compile_model(model, inputs, keywords, target)
    return found


def write_page(found: Sequence[Levels], path: Path) -> None:
    """Write the page of some compilations; OptionError where the file cannot be written."""
    from luminal.bench.peak import memory_gbytes, peak_gflops
    from luminal.explain_html import page
    from luminal.options import thread_count

    threads = thread_count()
    text = page(found, peak_gflops(threads) * 1e9, memory_gbytes(threads) * 1e9)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None


def _refuse(inputs: Sequence[Any], keywords: Mapping[str, Any], what: str) -> None:
    if inputs or keywords:
        raise OptionError(f"explain: {what} takes no inputs; {len(inputs) + len(keywords)} were given")


def _compile_graph(graph: Graph, target: str | None) -> None:
    from luminal.compiler import compile_module
    from luminal.runtimes.cpu import CPURuntime

    if target is not None:
        compile_module(graph.module(), target, {"candidates": CANDIDATES})
        return
    graph.build_search_space(CPURuntime)
    graph.search(CPURuntime(), CANDIDATES)


def _compile_model(
    model: Any, inputs: Sequence[Any], keywords: Mapping[str, Any], target: str | None
) -> None:
    import torch
    from torch.export import ExportedProgram

    from luminal.torch.backend import Backend
    from luminal.torch.export import compile_exported

    if isinstance(model, ExportedProgram):
        _refuse(inputs, keywords, "an exported program")
        compile_exported(model, target=target)
        return
    plain = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", model)
    # A backend of its own: what other backends have compiled of the same code stays as it is, and is not used.
    backend = Backend("luminal_explain", target)

    def compile_alone(module: Any, given: Sequence[Any]) -> Any:
        """Compile a graph and run it without the compiler: the device may not be here."""
        backend(module, given)
        return module

    with torch.no_grad():
        torch.compile(plain, backend=backend if target is None else compile_alone)(*inputs, **keywords)
