"""`luminal.explain`: every level of what a model or a graph compiles to, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luminal.dump import collect, explain_text

if TYPE_CHECKING:
    from luminal.graph import Graph


def explain(model: Any, *inputs: Any, **keywords: Any) -> str:
    """Compile afresh and return the text of every level, from the graph down, once for each graph that is compiled.

    `model`: a module or function of PyTorch (compiled or not), which is run on the inputs; or a `Graph`, without
    inputs.  The text is canonical: equal programs give equal text.
    """
    from luminal.graph import Graph

    with collect() as found:
        if isinstance(model, Graph):
            _compile_graph(model)
        else:
            _compile_model(model, inputs, keywords)
    return "\n".join(explain_text(levels) for levels in found)


def _compile_graph(graph: Graph) -> None:
    from luminal.runtimes.cpu import CPURuntime

    graph.build_search_space(CPURuntime)
    graph.search(CPURuntime(), 1)


def _compile_model(model: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    import torch

    from luminal.torch.backend import Backend

    plain = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", model)
    # A backend of its own: what other backends have compiled of the same code stays as it is, and is not used.
    with torch.no_grad():
        torch.compile(plain, backend=Backend("luminal_explain", None))(*inputs, **keywords)
