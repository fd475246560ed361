"""The reference runtime: interprets a graph at a level of one's choice, in NumPy. Slow, and the judge of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.tensor_type import TensorType
from luminal.errors import GraphError, OptionError
from luminal.runtimes.protocol import Array, Executable, Runtime

Interpret = Callable[[Sequence[Array], Mapping[str, int]], list[Array]]


@dataclass(frozen=True)
class ReferenceExecutable:
    """A graph and the function that interprets it."""

    input_types: Sequence[TensorType]
    output_types: Sequence[TensorType]
    stats: Mapping[str, Any]
    interpret: Interpret

    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]:
        return self.interpret(inputs, dims or {})


def graph_of(module: ModuleOp) -> GraphOp:
    """The one graph of a module; GraphError where there is none or more than one."""
    graphs = [op for op in module.ops if isinstance(op, GraphOp)]
    if len(graphs) != 1:
        raise GraphError(f"the module has {len(graphs)} graphs, expected one")
    return graphs[0]


def _hlo(module: ModuleOp) -> Interpret:
    from luminal.dialects.hlo.interpreter import interpret

    graph = graph_of(module)
    return lambda inputs, dims: interpret(graph, list(inputs), dict(dims))


def _primitive(module: ModuleOp) -> Interpret:
    from luminal.dialects.primitive.interpreter import interpret
    from luminal.passes.lower_hlo import lower_hlo

    lower_hlo(module)
    graph = graph_of(module)
    return lambda inputs, dims: interpret(graph, list(inputs), dict(dims))


def _region(module: ModuleOp) -> Interpret:
    from luminal.passes.form_regions import form_regions
    from luminal.passes.interpret_regions import interpret_regions
    from luminal.passes.lower_hlo import lower_hlo
    from luminal.passes.simplify import simplify

    lower_hlo(module)
    simplify(module)
    regions = form_regions(graph_of(module))
    return lambda inputs, dims: interpret_regions(regions, inputs, dims)


def _kernel(module: ModuleOp) -> Interpret:
    from luminal.compiler import compile_module

    executable = compile_module(module, "kernel")
    return lambda inputs, dims: executable.run(inputs, dims)


LEVELS: dict[str, Callable[[ModuleOp], Interpret]] = {
    "hlo": _hlo,
    "primitive": _primitive,
    "region": _region,
    "kernel": _kernel,
}
"""How a module of one hlo graph is interpreted: as named ops, as primitives, as terms over indices, as placed loops."""


class ReferenceRuntime(Runtime):
    """`ReferenceRuntime(level="primitive")`: the graph is lowered so far, and interpreted."""

    def __init__(self, level: str = "hlo") -> None:
        super().__init__()
        if level not in LEVELS:
            raise OptionError(f"ReferenceRuntime: level is {level!r}, expected one of {', '.join(LEVELS)}")
        self.level = level

    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        del candidates, options  # there is nothing to choose
        graph = graph_of(module)
        types, results = graph.input_types, graph.output_types
        stats = {"level": self.level, "operations": sum(1 for _ in graph.block.ops)}
        return ReferenceExecutable(types, results, stats, LEVELS[self.level](module))
