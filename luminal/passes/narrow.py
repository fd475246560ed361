"""A primitive graph for sizes of a box alone: its symbols get narrower ranges, and those of one size become numbers.

Operations stay what they are; what the box proves, later passes find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from luminal.dialects.graph_op import GraphOp, SymbolsAttr
from luminal.dialects.table_op import Value, ValueAttr
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, DimLike, Symbol, known_less, symbol_dim
from luminal.dim.buckets import Box
from luminal.errors import DimRangeError
from luminal.passes.requirements import requirements_of
from luminal.passes.simplify import simplify_graph
from luminal.passes.value_graph import ValueGraph, value_graph


def narrow(graph: GraphOp, box: Box) -> GraphOp | None:
    """The graph for the sizes of a box; its symbols have no buckets.  None where it fails for all of these sizes, but
    for the box of all sizes."""
    narrower = _Narrower(graph.symbols, box)
    try:
        found = narrower.graph(graph)
    except DimRangeError:  # a size divides by zero
        return None
    if box and _is_refused(value_graph(found)):
        return None
    simplify_graph(found)
    return found


def _is_refused(graph: ValueGraph) -> bool:
    """Whether a size is negative, or a requirement is broken, for whatever sizes there may be."""
    if any(known_less(size, 0) for value in graph.values for size in value.shape):
        return True
    return any(
        known_less(needed.least, 0) and (needed.unless is None or known_less(0, needed.unless))
        for needed in requirements_of(graph)
    )


class _Narrower:
    def __init__(self, symbols: tuple[Symbol, ...], box: Box) -> None:
        ranges = {s.name: box.get(s.name, (s.minimum, s.maximum)) for s in symbols}
        self.symbols = tuple(Symbol(name, low, high) for name, (low, high) in ranges.items())
        self.values: Mapping[str, DimLike] = {
            s.name: s.minimum if s.name in box and s.minimum == s.maximum else symbol_dim(s)
            for s in self.symbols
        }
        self.known: dict[Attribute, Attribute] = {}

    def graph(self, old: GraphOp) -> GraphOp:
        block = Block(arg_types=[self.attribute(type_) for type_ in old.block.arg_types])
        values: dict[SSAValue, SSAValue] = dict(zip(old.block.args, block.args, strict=True))
        for argument, made in values.items():
            made.name_hint = argument.name_hint
        for op in old.block.ops:
            copy = self.operation(op, values)
            block.add_op(copy)
            values.update(zip(op.results, copy.results, strict=True))
        properties = self.attributes(old.properties) | {"symbols": SymbolsAttr(self.symbols)}
        return GraphOp.create(
            properties=properties, attributes=self.attributes(old.attributes), regions=[Region(block)]
        )

    def operation(self, op: Operation, values: Mapping[SSAValue, SSAValue]) -> Operation:
        return type(op).create(
            operands=[values[operand] for operand in op.operands],
            result_types=[self.attribute(type_) for type_ in op.result_types],
            properties=self.attributes(op.properties),
            attributes=self.attributes(op.attributes),
        )

    def attributes(self, named: Mapping[str, Attribute]) -> dict[str, Attribute]:
        return {name: self.attribute(attribute) for name, attribute in named.items()}

    def attribute(self, attribute: Attribute) -> Attribute:
        found = self.known.get(attribute)
        if found is None:
            found = attribute
            if isinstance(attribute, TensorType):
                shape = [size.substitute(self.values) for size in attribute.shape]
                found = tensor_type(shape, attribute.dtype)
            elif isinstance(attribute, ValueAttr):
                found = ValueAttr(self.value(attribute.data))
            self.known[attribute] = found
        return found

    def value(self, value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(self.value, cast("tuple[Value, ...]", value)))
        if not isinstance(value, Dim):
            return value
        size = value.substitute(self.values)
        return size if size.constant is None else size.constant
