"""A primitive graph as a flat list of values with plain attributes, which the passes to regions walk many times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.graph_op import GraphOp, ReturnOp
from luminal.dialects.table_op import SOURCE, TableOp, ValueAttr
from luminal.dialects.table_op import Value as PlainValue
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, product
from luminal.dtype import DType, f32

INPUT = "input"
DATA = "data"
"""A constant tensor whose bytes are given."""
VIEWS = frozenset({"permute", "expand", "reshape", "slice", "flip", "window", "pad"})
"""Operations that move elements and compute none; pad adds a constant."""
REDUCTIONS = frozenset({"sum_reduce", "max_reduce"})
SPLATS = frozenset({"const", "iota", "dim_value"})
"""Values that are known from their indices: never kept, always inlined."""
OPAQUE = frozenset({"sort", "extern", "scatter"})
"""Operations that terms do not express; scatter is a region of its own form."""
_NOT_TERMS = VIEWS | REDUCTIONS | SPLATS | OPAQUE | {INPUT, DATA, "scan", "gather"}


@dataclass(eq=False, slots=True)
class Value:
    """One result of one primitive, or an input; `result` says which of the op's results it is."""

    number: int
    op: str
    operands: tuple[Value, ...]
    attributes: Mapping[str, PlainValue]
    shape: tuple[Dim, ...]
    dtype: DType
    result: int = 0
    siblings: tuple[Value, ...] = ()
    source: str = ""
    users: list[Value] = field(default_factory=list["Value"])

    def __repr__(self) -> str:
        return f"v{self.number}:{self.op}[{', '.join(map(str, self.shape))}]"

    @property
    def wide(self) -> DType:
        """The dtype in which terms compute this value: f32 for narrower floats."""
        return wide(self.dtype)

    @property
    def is_empty(self) -> bool:
        return any(size == 0 for size in self.shape)

    @property
    def is_elementwise(self) -> bool:
        return self.op not in _NOT_TERMS

    @property
    def is_stored(self) -> bool:
        """Whether it lies in memory whatever the cuts are."""
        return self.op in (INPUT, DATA) or self.op in OPAQUE

    def integer(self, key: str) -> int:
        return cast(int, self.attributes[key])

    def text(self, key: str) -> str:
        return cast(str, self.attributes[key])

    def integers(self, key: str) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes[key])

    def dims(self, key: str) -> tuple[Dim, ...]:
        return tuple(as_dim(d) for d in cast("tuple[int | Dim, ...]", self.attributes[key]))


@dataclass
class ValueGraph:
    """Values in topological order, numbered by their place; `outputs` may name a value twice."""

    values: list[Value]
    inputs: list[Value]
    outputs: list[Value]
    licences: frozenset[str]


@dataclass(frozen=True)
class Interface:
    """What the caller says of memory at the border of a graph.

    `input_strides` and `output_strides`: elements, one entry a tensor, None for row-major order.  `constants` numbers
    inputs that never change.  `destinations` maps an output to the input in whose memory it must end.
    """

    input_strides: Sequence[tuple[Dim, ...] | None] = ()
    output_strides: Sequence[tuple[Dim, ...] | None] = ()
    constants: frozenset[int] = frozenset()
    destinations: Mapping[int, int] = field(default_factory=dict[int, int])

    def attach(self, graph: GraphOp) -> None:
        """Write it into the graph's attributes, where `of` finds it."""
        graph.attributes.update(
            input_strides=ValueAttr(tuple(self.input_strides)),
            output_strides=ValueAttr(tuple(self.output_strides)),
            constants=ValueAttr(tuple(sorted(self.constants))),
            destinations=ValueAttr(tuple(sorted(self.destinations.items()))),
        )

    @staticmethod
    def of(graph: GraphOp) -> Interface:
        """What the graph's attributes say; row-major and without destinations where they say nothing."""

        def read(key: str) -> tuple[object, ...]:
            found = graph.attributes.get(key)
            return cast("tuple[object, ...]", found.data) if isinstance(found, ValueAttr) else ()

        def strides(key: str) -> list[tuple[Dim, ...] | None]:
            given = cast("tuple[tuple[int | Dim, ...] | None, ...]", read(key))
            return [None if entry is None else tuple(map(as_dim, entry)) for entry in given]

        return Interface(
            strides("input_strides"),
            strides("output_strides"),
            frozenset(cast("tuple[int, ...]", read("constants"))),
            dict(cast("tuple[tuple[int, int], ...]", read("destinations"))),
        )


def wide(dtype: DType) -> DType:
    """The dtype in which terms compute: f32 for narrower floats, else the dtype itself."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides in elements."""
    return _row_major(tuple(shape))


@lru_cache(maxsize=1 << 12)
def _row_major(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    strides = [as_dim(1)]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(shape)]))


def memory_elements(shape: Sequence[Dim], strides: Sequence[Dim]) -> Dim:
    """How many elements the memory of a strided tensor holds, from its first to its last."""
    if any(size == 0 for size in shape):
        return as_dim(0)
    if tuple(strides) == contiguous_strides(shape):
        return product(shape)
    last = as_dim(0)
    for size, stride in zip(shape, strides, strict=True):
        last = last + (size - 1) * stride
    return last + 1


class _GraphBuilder:
    def __init__(self) -> None:
        self.values: list[Value] = []

    def add(
        self,
        op: str,
        operands: tuple[Value, ...],
        attributes: Mapping[str, PlainValue],
        shape: tuple[Dim, ...],
        dtype: DType,
    ) -> Value:
        made = Value(len(self.values), op, operands, attributes, shape, dtype)
        self.values.append(made)
        for operand in dict.fromkeys(operands):
            operand.users.append(made)
        return made

    def cast(self, value: Value, dtype: DType) -> Value:
        return self.add("cast", (value,), {"rounding": "none"}, value.shape, dtype)

    def scatter(self, operands: tuple[Value, ...], attributes: Mapping[str, PlainValue]) -> Value:
        """Sums and products of narrow floats accumulate in f32 and round once, at the end."""
        base, value, *indices = operands
        carrier = base.wide
        if attributes["combine"] in ("add", "mul") and carrier is not base.dtype:
            operands = (self.cast(base, carrier), self.cast(value, carrier), *indices)
            return self.cast(self.add("scatter", operands, attributes, base.shape, carrier), base.dtype)
        return self.add("scatter", operands, attributes, base.shape, base.dtype)


def value_graph(graph: GraphOp) -> ValueGraph:
    """The live values of a graph at the primitive level, in its order; inputs all, used or not."""
    found: dict[SSAValue, Value] = {}
    builder = _GraphBuilder()
    for ssa in graph.block.args:
        type_ = cast(TensorType, ssa.type)
        found[ssa] = builder.add(INPUT, (), {}, type_.shape, type_.dtype)
    inputs = list(builder.values)
    live = _live_operations(graph)
    for op in graph.block.ops:
        if isinstance(op, ReturnOp) or op not in live:
            continue
        assert isinstance(op, TableOp)
        attributes = {key: cast(ValueAttr, attribute).data for key, attribute in op.properties.items()}
        source = str(attributes.pop(SOURCE, ""))
        operands = tuple(found[operand] for operand in op.operands)
        name = op.name.removeprefix("primitive.")
        types = op.result_tensors
        if name == "const" and "data" in attributes:
            name, attributes = _constant(attributes, types[0])
        first = len(builder.values)
        if name == "scatter":
            made = (builder.scatter(operands, attributes),)
        else:
            made = tuple(builder.add(name, operands, attributes, t.shape, t.dtype) for t in types)
        for value in builder.values[first:]:
            value.source = source
        for position, (ssa, value) in enumerate(zip(op.results, made, strict=True)):
            value.result, value.siblings = position, made
            found[ssa] = value
    return ValueGraph(
        builder.values, inputs, [found[ssa] for ssa in graph.outputs], frozenset(graph.licences)
    )


def _constant(attributes: Mapping[str, PlainValue], type_: TensorType) -> tuple[str, dict[str, PlainValue]]:
    """A constant of many numbers lies in memory; one of a single number is a splat."""
    if type_.elements != 1:
        return DATA, dict(attributes)
    return "const", {"bits": int.from_bytes(cast(bytes, attributes["data"]), "little")}


def _live_operations(graph: GraphOp) -> set[object]:
    live: set[object] = set()
    todo = [ssa.owner for ssa in graph.outputs]
    while todo:
        op = todo.pop()
        if isinstance(op, TableOp) and op not in live:
            live.add(op)
            todo += [operand.owner for operand in op.operands]
    return live


def checked_operands(value: Value) -> tuple[Value, ...]:
    """What an operation is given that may be wrong at run time: indices, or an integer divisor."""
    if value.op in ("gather", "scatter") and value.attributes["bounds"] == "error":
        return value.operands[1 if value.op == "gather" else 2 :]
    return value.operands[1:] if value.op in ("recip", "mod") and value.dtype.is_integer else ()


def sources_of(values: Iterable[Value]) -> tuple[str, ...]:
    """The source lines of values, each once, in order."""
    return tuple(dict.fromkeys(value.source for value in values if value.source))
