"""What each hlo op means, in NumPy, independent of the decompositions.

Elementary functions, sums and contractions of f32 are computed in f64 and rounded once, those of f16 and bf16 in f64
and rounded as from f32: the result stands for the exact value, not for one order of summation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from luminal.dialects.bind import interpret_graph, shape_of
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.table import HloOp
from luminal.dim import Dim
from luminal.dtype import cast_array, dtype_of
from luminal.errors import CompileError, DivisionByZeroError, IndexOutOfRangeError, ShapeError

Array = np.ndarray[Any, Any]
CallExtern = Callable[[HloOp, Sequence[Array], Mapping[str, int]], Sequence[Array]]


def interpret(
    graph: GraphOp,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    call_extern: CallExtern | None = None,
) -> list[Array]:
    """Run a graph of hlo ops; symbols that `dims` leaves out are read off the inputs' shapes.

    Raises what `bind_inputs` raises for inputs and dims that do not fit; while running IndexOutOfRangeError,
    DivisionByZeroError, and ShapeError where sizes that were not known to fit do not.
    """
    return interpret_graph(
        graph,
        inputs,
        dims,
        lambda op, operands, sizes: evaluate(cast(HloOp, op), operands, sizes, call_extern),
    )


def evaluate(
    op: HloOp, operands: Sequence[Array], dims: Mapping[str, int], call_extern: CallExtern | None = None
) -> list[Array]:
    """The results of one op; run-time errors name the user's source line where the op has one."""
    if op.name == "hlo.extern" and call_extern is not None:
        return list(call_extern(op, operands, dims))
    if op.row.wide:
        operands = [cast_array(x, dtype_of(x.dtype).accumulate) for x in operands]
    values = {key: _known(value, dims) for key, value in op.values.items()}
    try:
        with np.errstate(all="ignore"):
            found = op.row.interpret(*op.group(operands), **values)
    except (IndexOutOfRangeError, DivisionByZeroError, ShapeError) as error:
        raise type(error)(f"{error} (at {op.source})" if op.source else str(error)) from None
    found = found if isinstance(found, (list, tuple)) else [found]
    results = [cast_array(np.asarray(a), t.dtype) for a, t in zip(found, op.result_tensors, strict=True)]
    for array, type_ in zip(results, op.result_tensors):
        if array.shape != shape_of(type_.shape, dims):
            raise CompileError(f"{op.name} gave the shape {array.shape}, inferred {type_}")
    return results


def _known(value: Any, dims: Mapping[str, int]) -> Any:
    """An attribute with its dims evaluated."""
    if isinstance(value, tuple):
        return tuple(_known(part, dims) for part in cast("tuple[Any, ...]", value))
    return value.evaluate(dims) if isinstance(value, Dim) else value
