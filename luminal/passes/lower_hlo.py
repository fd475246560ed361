"""hlo to primitive: every op becomes its decomposition; sources, dims and licences stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.primitive.ops import OPS
from luminal.dialects.table_op import SOURCE
from luminal.dialects.tensor_type import TensorType
from luminal.dim import known_equal
from luminal.dtype import f32
from luminal.errors import CompileError


def lower_hlo(module: ModuleOp) -> None:
    """Replace the hlo ops of every graph by primitives, in place; ops of other dialects are kept as they are."""
    for graph in module.ops:
        if isinstance(graph, GraphOp):
            lower_graph(graph)


def lower_graph(graph: GraphOp) -> None:
    """The same for one graph."""
    old = graph.block
    new = Block(arg_types=old.arg_types)
    emitter = Emitter(new)
    values: dict[SSAValue, SSAValue] = {}

    def note(sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
        for source, target in zip(sources, targets, strict=True):
            values[source] = target
            if target.name_hint is None:
                target.name_hint = source.name_hint

    note(old.args, new.args)
    known: dict[object, _Template] = {}
    for op in old.ops:
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, HloOp):
            key = _likeness(op, operands)
            if key in known:
                note(op.results, known[key].repeat(operands, op.properties.get(SOURCE), new))
                continue
            emitter.source = op.source
            last, constants = new.last_op, len(emitter.constants)
            results = decompose(op, [emitter.wrap(operand) for operand in operands], emitter)
            note(op.results, [result.value for result in results])
            shared = frozenset(value.owner for value in list(emitter.constants.values())[constants:])
            made = new.ops if last is None else _from(last.next_op)
            known[key] = _Template(
                operands, [m for m in made if m not in shared], [result.value for result in results]
            )
        else:
            copy = op.clone(value_mapper=values)
            new.add_op(copy)
            note(op.results, copy.results)
    region = graph.regions[0]
    region.detach_block(old)
    region.add_block(new)
    old.erase(safe_erase=False)


@dataclass(frozen=True)
class _Template:
    """What an operation was lowered to, from which others that are alike are copied; constants are shared."""

    operands: Sequence[SSAValue]
    made: Sequence[Operation]
    results: Sequence[SSAValue]

    def repeat(self, operands: Sequence[SSAValue], source: Attribute | None, block: Block) -> list[SSAValue]:
        """The results of the same for other operands, its primitives at the end of a block."""
        values = dict(zip(self.operands, operands, strict=True))
        for op in self.made:
            copy = op.clone_without_regions(values, clone_name_hints=False)
            copy.properties.pop(SOURCE, None)
            if source is not None:
                copy.properties[SOURCE] = source
            block.add_op(copy)
        return [values.get(result, result) for result in self.results]


def _likeness(op: HloOp, operands: Sequence[SSAValue]) -> object:
    """What operations share that are lowered alike: all but the source, and operands that are no constants; those may
    be among the constants that what they are lowered to has anyway."""
    properties = frozenset((key, value) for key, value in op.properties.items() if key != SOURCE)
    given = tuple(o if isinstance(o.owner, OPS["const"]) else operands.index(o) for o in operands)
    return op.name, properties, tuple(op.operand_types), given, tuple(op.result_types)


def _from(op: Operation | None) -> Iterator[Operation]:
    """An operation and those behind it."""
    while op is not None:
        yield op
        op = op.next_op


def decompose(op: HloOp, operands: Sequence[Expression], emitter: Emitter) -> list[Expression]:
    """The op's results in primitives of its operands, with the types that it declares."""
    row, types = op.row, op.result_tensors
    if row.elementwise:
        operands = [x.expand(types[0].shape) for x in operands]
    if row.wide:
        operands = [x.cast(x.dtype.accumulate) for x in operands]
    groups = op.group(operands)
    found = row.decompose(*([emitter] if row.creates else []), *groups, **op.values)
    results = cast("list[Expression]", found if isinstance(found, (list, tuple)) else [found])
    return [_fit(result, type_, op) for result, type_ in zip(results, types, strict=True)]


def _fit(result: Expression, declared: TensorType, op: HloOp) -> Expression:
    """The result rounded to the declared dtype where it was composed in f32, its sizes spelled as declared."""
    if op.row.wide and result.dtype == f32:
        result = result.cast(declared.dtype)
    if result.type == declared:
        return result
    same = len(result.shape) == len(declared.shape) and all(map(known_equal, result.shape, declared.shape))
    if result.dtype != declared.dtype or not same:
        raise CompileError(f"{op.name} decomposes to {result.type}, declared {declared}")
    return result.reshape(declared.shape)
