"""Checking the inputs of a call against the types of a graph, and reading the sizes of symbols off them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.errors import DataSizeError, DTypeError, UnsetInputError


def shape_of(shape: Iterable[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of symbolic dims; UnsetDimError and DimRangeError as `Dim.evaluate`."""
    return tuple(dim.evaluate(dims) for dim in shape)


def bind_inputs(
    types: Sequence[TensorType],
    inputs: Sequence[np.ndarray[Any, Any] | None],
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
