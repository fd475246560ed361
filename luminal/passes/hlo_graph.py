"""What passes over hlo graphs share: equal operations made one, unused ones dropped, definitions put before uses, and
a part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.graph_op import GraphOp, build_graph, finish_graph
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.table_op import SOURCE
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Symbol

VIEWS = frozenset({"hlo.permute", "hlo.reshape", "hlo.expand", "hlo.slice", "hlo.flip", "hlo.window"})
"""Operations that are index arithmetic on the levels below."""


def merge_equal(graph: GraphOp) -> None:
    """Make equal operations one, in place; of what runs through torch, two calls are two."""
    seen: dict[Any, HloOp] = {}
    for op in list(graph.block.ops):
        if not isinstance(op, HloOp) or op.name == "hlo.extern":
            continue
        properties = frozenset((key, value) for key, value in op.properties.items() if key != SOURCE)
        earlier = seen.setdefault((op.name, tuple(op.operands), properties, tuple(op.result_types)), op)
        if earlier is not op:
            for old, new in zip(op.results, earlier.results, strict=True):
                old.replace_all_uses_with(new)
            graph.block.erase_op(op)


def drop_unused(block: Block) -> None:
    """Erase the operations whose results nobody reads."""
    for op in reversed(list(block.ops)):
        if op.results and not any(result.first_use for result in op.results):
            block.erase_op(op)


def sort_block(block: Block) -> None:
    """Put every definition before its uses, otherwise in the order that is there."""
    placed: set[Operation] = set()
    ordered: list[Operation] = []
    for first in list(block.ops):
        waiting = [first]
        while waiting:
            op = waiting[-1]
            missing = [
                o.owner for o in op.operands if isinstance(o.owner, Operation) and o.owner not in placed
            ]
            if op in placed or not missing:
                waiting.pop()
                if op not in placed:
                    placed.add(op)
                    ordered.append(op)
            else:
                waiting += reversed(missing)
    for op in ordered:
        op.detach()
        block.add_op(op)


def part_of(
    graph: GraphOp,
    name: str,
    results: Sequence[SSAValue],
    inputs: Sequence[SSAValue],
    symbols: Iterable[Symbol] = (),
) -> ModuleOp:
    """A module of the operations that compute some values of a graph from others, its inputs.

    `symbols`: those that it may have beside those of its inputs.
    """
    needed: set[Operation] = set()
    waiting = [value for value in results if value not in inputs]
    while waiting:
        op = waiting.pop().owner
        assert isinstance(op, Operation)
        if op not in needed:
            needed.add(op)
            waiting += [operand for operand in op.operands if operand not in inputs]
    types = [cast(TensorType, value.type) for value in inputs]
    made, block = build_graph(name, symbols, types, graph.licences)
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for op in graph.block.ops:
        if op in needed:
            block.add_op(op.clone(values))
    finish_graph(block, [values[result] for result in results])
    return ModuleOp([made])


def depends(values: Iterable[SSAValue], on: Iterable[SSAValue], places: Mapping[Operation, int]) -> bool:
    """Whether any of the values is one of the others or is computed from one; all of one block, whose operations
    have these places."""
    wanted, seen = set(on), set[SSAValue]()
    waiting = list(values)
    # what stands before all of them is computed from none
    earliest = min(places[o] if isinstance(o := value.owner, Operation) else 0 for value in wanted)
    while waiting:
        value = waiting.pop()
        if value in wanted:
            return True
        if value not in seen:
            seen.add(value)
            if isinstance(value.owner, Operation) and places.get(value.owner, 0) >= earliest:
                waiting += value.owner.operands
    return False
