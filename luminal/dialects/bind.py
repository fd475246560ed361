"""Checking the inputs of a call against a graph, reading the sizes of symbols off them, and running op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.errors import DataSizeError, DTypeError, UnsetInputError

Array = np.ndarray[Any, Any]


def shape_of(shape: Iterable[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of symbolic dims; UnsetDimError and DimRangeError as `Dim.evaluate`."""
    return tuple(dim.evaluate(dims) for dim in shape)


def bind_inputs(
    types: Sequence[TensorType],
    inputs: Sequence[Array | None],
    dims: Mapping[str, int] | None = None,
    names: Sequence[str] = (),
) -> dict[str, int]:
    """The sizes of all symbols: those of `dims`, and those that stand alone as a dim of an input.

    Raises UnsetInputError for a missing input, DTypeError and DataSizeError for one of another dtype or shape,
    UnsetDimError and DimRangeError for sizes. `names` are the inputs' names for messages.
    """
    found = dict(dims or {})
    if len(inputs) != len(types):
        raise UnsetInputError(f"the graph has {len(types)} inputs; {len(inputs)} were given")
    for position, (type_, array) in enumerate(zip(types, inputs)):
        name = names[position] if position < len(names) else str(position)
        if array is None:
            raise UnsetInputError(f"input {name}, {type_}, has no data")
        if array.dtype != type_.dtype.numpy:
            raise DTypeError(f"input {name} must be {type_.dtype}; the data is {array.dtype}")
        if array.ndim != type_.rank:
            raise DataSizeError(f"input {name} must be {type_}; the data has shape {list(array.shape)}")
        for dim, size in zip(type_.shape, array.shape):
            symbol = dim.symbol
            if symbol is not None:
                found.setdefault(symbol.name, size)
    for position, (type_, array) in enumerate(zip(types, inputs)):
        assert array is not None
        expected = shape_of(type_.shape, found)
        if expected != array.shape:
            name = names[position] if position < len(names) else str(position)
            sizes = ", ".join(f"{symbol} = {size}" for symbol, size in sorted(found.items()))
            raise DataSizeError(
                f"input {name} must be {type_}, here {list(expected)}{f' ({sizes})' if sizes else ''}; "
                f"the data has shape {list(array.shape)}"
            )
    return found


def interpret_graph(
    graph: GraphOp,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None,
    evaluate: Callable[[Operation, Sequence[Array], Mapping[str, int]], Sequence[Array]],
) -> list[Array]:
    """A graph's outputs, each op's results being what `evaluate` gives; errors of `bind_inputs`."""
    names = [argument.name_hint or str(argument.index) for argument in graph.block.args]
    sizes = bind_inputs(graph.input_types, inputs, dims, names)
    values: dict[SSAValue, Array] = dict(zip(graph.block.args, inputs))
    end = graph.return_op
    for op in graph.block.ops:
        if op is not end:
            operands = [values[operand] for operand in op.operands]
            values.update(zip(op.results, evaluate(op, operands, sizes)))
    return [values[output] for output in end.operands]
