"""What passes over hlo graphs share: equal operations made one, unused ones dropped, definitions put before uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.table_op import SOURCE

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


def depends(values: Iterable[SSAValue], on: Iterable[SSAValue]) -> bool:
    """Whether any of the values is one of the others or is computed from one."""
    wanted, seen = set(on), set[SSAValue]()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in wanted:
            return True
        if value not in seen:
            seen.add(value)
            if isinstance(value.owner, Operation):
                waiting += value.owner.operands
    return False
