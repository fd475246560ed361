"""What depends on parameters alone is computed once, when they are bound: casts under autocast, weight norms.

Views stay in the graph, where they cost nothing. What the fold computes becomes an argument that never changes:

    w = placeholder; h = _to_copy(w, bf16); y = mm(x, h)
    w = placeholder; h = placeholder (computed by `Folded.compute` from w); y = mm(x, h)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx

VIEWS = frozenset(
    "alias detach expand permute reshape select slice squeeze t transpose unsqueeze view _unsafe_view".split()  # noqa: SIM905
)
"""Ops that are left in the graph, by name."""
GROWTH = 4
"""A result that takes more than so many times the bytes of what it is computed from is computed at every call."""


@dataclass(frozen=True)
class Folded:
    """The folded part: `compute` takes the arguments at the positions `uses`, and gives the values of the placeholders
    `places` that were added."""

    uses: tuple[int, ...]
    places: range
    compute: Callable[..., Sequence[torch.Tensor]]


def fold_parameters(module: torch.fx.GraphModule, static: frozenset[int]) -> Folded | None:
    """Take what depends on the arguments `static` alone out of the graph; None where there is nothing."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    written = {node.args[0] for node in graph.nodes if node.target is torch.ops.aten.copy_.default}
    fixed = {placeholders[n] for n in static if placeholders[n] not in written}
    constant = _constant_nodes(graph, fixed)
    roots = [node for node in graph.nodes if node in constant and _is_root(node, constant, fixed)]
    if not roots:
        return None
    needed = _ancestors(roots)
    uses = [n for n, node in enumerate(placeholders) if node in needed]
    compute = _extract(module, roots, needed)
    _replace(graph, roots, placeholders[-1])
    module.recompile()
    return Folded(tuple(uses), range(len(placeholders), len(placeholders) + len(roots)), compute)


def _constant_nodes(graph: torch.fx.Graph, fixed: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """The parameters, and all nodes that are computed from them alone and are the same at every call."""
    constant = set(fixed)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if (
            node.op == "call_function"
            and inputs
            and all(other in constant for other in inputs)
            and _is_pure(node)
        ):
            constant.add(node)
    return constant


def _is_pure(node: torch.fx.Node) -> bool:
    op, fake = node.target, node.meta.get("val")
    if not isinstance(op, torch._ops.OpOverload) or not isinstance(fake, torch.Tensor):
        return False
    symbolic = any(not isinstance(size, int) for size in (*fake.shape, *fake.stride()))
    return not (symbolic or op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags)


def _is_view(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in VIEWS


def _is_root(node: torch.fx.Node, constant: set[torch.fx.Node], fixed: set[torch.fx.Node]) -> bool:
    """Whether the node computes, is read by what stays, is no result a user could write to, and is small enough."""
    if node in fixed or _is_view(node):
        return False
    readers = _readers(node)
    if all(reader in constant for reader in readers) or any(reader.op == "output" for reader in readers):
        return False
    sources = sum(_bytes(other) for other in _ancestors([node]) if other in fixed)
    return _bytes(node) <= GROWTH * sources


def _readers(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The users, and through views theirs."""
    found: set[torch.fx.Node] = set()
    for user in node.users:
        found |= _readers(user) if _is_view(user) else {user}
    return found


def _bytes(node: torch.fx.Node) -> int:
    fake = cast(torch.Tensor, node.meta["val"])
    return fake.numel() * fake.element_size()


def _ancestors(nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    found: set[torch.fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _extract(module: torch.fx.GraphModule, roots: list[torch.fx.Node], needed: set[torch.fx.Node]) -> Any:
    """The function from the needed placeholders to the roots, run by torch."""
    graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    for node in module.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, lambda other: copies[other])
    graph.output(tuple(copies[root] for root in roots))
    run = torch.fx.GraphModule(module, graph)

    def compute(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            return run(*tensors)

    return compute


def _replace(graph: torch.fx.Graph, roots: list[torch.fx.Node], last: torch.fx.Node) -> None:
    """Every root becomes a placeholder behind the last one."""
    for root in roots:
        with graph.inserting_after(last):
            last = graph.placeholder(f"folded_{root.name}")
        last.meta = {**root.meta}
        root.replace_all_uses_with(last)
    graph.eliminate_dead_code()
