"""What depends on constant inputs alone is computed once, when they are bound: casts, weight norms, joined weights.

Views stay in the graph, where they cost nothing.  What a fold computes becomes an input behind the others that never
changes, and that no caller gives:

    (x, w): h = cast(w) : bf16; y = matmul(x, h)
    (x, w, h): y = matmul(x, h)                     and the fold (w): h = cast(w)

A cast that only makes a constant wider stays too: memory is read as narrow as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from xdsl.ir import Operation, SSAValue

from luminal.dialects.graph_op import GraphOp, ReturnOp
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.kernel.terms import WIDENS
from luminal.dialects.table_op import Value
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.passes.hlo_graph import VIEWS, drop_unused, part_of
from luminal.passes.value_graph import Interface

SMALL, GROWTH = 1 << 12, 4
"""A result that takes more bytes than what it is computed from is computed at every call: widening a parameter would
cost its memory, and reading it. One of at most so many bytes may take so many times as much."""
MOVEMENTS = VIEWS | {
    "hlo.pad",
    "hlo.cat",
    "hlo.stack",
    "hlo.cast",
    "hlo.where",
    "hlo.gather",
    "hlo.embedding",
}
"""Operations that add nothing up; others that are not elementwise may, in an order of their own."""
Bases = frozenset[SSAValue]


@dataclass(frozen=True, slots=True)
class Fold:
    """A constant computed from others: `text` is an hlo module whose graph takes the inputs at the positions
    `sources`, and gives one tensor."""

    text: str
    sources: tuple[int, ...]


def fold_constants(graph: GraphOp) -> list[Fold]:
    """Take what depends on constant inputs alone out of an hlo graph, in place.

    The constants are those of the graph's `Interface`, which afterwards names the new inputs too: one for each fold,
    behind the others, in order; a fold may read the input of an earlier one.
    """
    interface = Interface.of(graph)
    block = graph.block
    written = set(interface.destinations.values())
    fixed = [block.args[position] for position in sorted(interface.constants - written)]
    known = constant_values(graph, fixed)
    roots = [value for value in known if _is_root(value, known)]
    if not roots:
        return []
    positions = {value: number for number, value in enumerate(block.args)}
    positions |= {value: len(block.args) + number for number, value in enumerate(roots)}
    folds = [_extract(graph, value, positions) for value in roots]
    for value in roots:
        argument = block.insert_arg(value.type, len(block.args))
        value.replace_all_uses_with(argument)
    drop_unused(block)
    added = range(len(block.args) - len(roots), len(block.args))
    replace(interface, constants=interface.constants | set(added)).attach(graph)
    return folds


def constant_values(graph: GraphOp, fixed: Iterable[SSAValue]) -> dict[SSAValue, Bases]:
    """The values that are the same at every call, with the inputs and literals that they are computed from.

    `fixed`: the inputs that never change.  A value that grows is computed at every call.
    """
    known: dict[SSAValue, Bases] = {value: frozenset([value]) for value in fixed if _is_static(value)}
    licensed = "reassociate" in graph.licences
    for op in graph.block.ops:
        if not isinstance(op, HloOp) or not _is_fixed(op, licensed):
            continue
        if not all(operand in known for operand in op.operands):
            continue
        bases = frozenset[SSAValue]().union(*(known[operand] for operand in op.operands))
        if op.name == "hlo.constant":
            bases = frozenset(op.results)
        size = sum(map(_bytes, op.results))
        given = sum(map(_bytes, bases))
        if op.operands and op.name not in VIEWS and size > (GROWTH * given if size <= SMALL else given):
            continue
        known.update(dict.fromkeys(op.results, bases))
    for value in [value for value in known if _is_widened(value) and _is_read_elsewhere(value, known)]:
        del known[value]
    return known


def _is_widened(value: SSAValue) -> bool:
    """Whether a cast only makes a value wider: it is kept narrow, and widened where it is read."""
    op = value.owner
    if not isinstance(op, HloOp) or op.name != "hlo.cast":
        return False
    before, after = (cast(TensorType, each.type).dtype for each in (op.operands[0], value))
    return before in WIDENS.get(after, ())


def _is_fixed(op: HloOp, licensed: bool) -> bool:
    """Whether an operation gives the same at every call for the same operands, to the bit or as licensed."""
    if not all(map(_is_static, op.results)) or any(map(_is_symbolic, op.given.values())):
        return False
    if op.name == "hlo.extern" and '"call"' in op.text("payload"):
        return False  # a draw of random numbers, or an effect
    return licensed or not op.operands or op.row.elementwise or op.name in MOVEMENTS


def _is_static(value: SSAValue) -> bool:
    return all(size.constant is not None for size in cast(TensorType, value.type).shape)


def _is_symbolic(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(map(_is_symbolic, value))
    return isinstance(value, Dim) and value.constant is None


def _bytes(value: SSAValue) -> int:
    type_ = cast(TensorType, value.type)
    return type_.elements.evaluate({}) * type_.dtype.size_bytes


def _is_root(value: SSAValue, known: dict[SSAValue, Bases]) -> bool:
    """Whether a constant is computed, is read by what is none, and is no result that a caller could write to."""
    op = value.owner
    if not isinstance(op, HloOp) or not op.operands or op.name in VIEWS or not known[value]:
        return False
    if any(isinstance(reader, ReturnOp) for reader in _readers(value)):
        return False
    return _is_read_elsewhere(value, known)


def _is_read_elsewhere(value: SSAValue, known: dict[SSAValue, Bases]) -> bool:
    """Whether something that is not the same at every call reads a value."""
    return any(not all(result in known for result in reader.results) for reader in _readers(value))


def _readers(value: SSAValue) -> Iterator[Operation]:
    """The operations that read a value, and through views theirs."""
    for use in value.uses:
        if use.operation.name in VIEWS:
            yield from _readers(use.operation.results[0])
        else:
            yield use.operation


def _extract(graph: GraphOp, root: SSAValue, positions: dict[SSAValue, int]) -> Fold:
    """The fold that computes a value, from inputs and from earlier folds."""
    sources: set[SSAValue] = set()
    waiting: list[SSAValue] = list(cast(Operation, root.owner).operands)
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        if value in positions:
            sources.add(value)
        elif isinstance(value.owner, Operation):
            fresh = [operand for operand in value.owner.operands if operand not in seen]
            seen.update(fresh)
            waiting += fresh
    ordered = sorted(sources, key=lambda value: positions[value])
    text = str(part_of(graph, "fold", [root], ordered))
    return Fold(text, tuple(positions[value] for value in ordered))
