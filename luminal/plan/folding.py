"""Constants that are computed from others when those are bound: the folds of a plan, run in NumPy.

Plans that fold the same constants in the same way share what comes of it, as they share packed layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.parser import Parser

from luminal.dialects import all_dialects
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.interpreter import interpret
from luminal.dialects.hlo.table import HloOp
from luminal.passes.fold_constants import Fold
from luminal.plan.constants import Constant, Shared
from luminal.plan.kernels import memory_view
from luminal.plan.library import run_extern
from luminal.runtimes.memory import allocate

Array = NDArray[Any]
_SHARED = Shared()


def folded_array(fold: Fold, constants: Sequence[Constant]) -> Array:
    """What a fold computes from the constants at its sources, row-major: what another plan holds, or new memory.

    Raises what the operations of the fold raise, with the user's lines.
    """
    return _SHARED.find(constants, fold.text, lambda: _compute(fold, constants))


def _compute(fold: Fold, constants: Sequence[Constant]) -> Array:
    graph = _graph(fold.text)
    inputs: list[Array] = []
    for type_, constant in zip(graph.input_types, constants, strict=True):
        shape = tuple(size.evaluate({}) for size in type_.shape)
        inputs.append(memory_view(constant.address, type_.elements.evaluate({}), type_.dtype).reshape(shape))
    (result,) = interpret(graph, inputs, {}, _extern)
    array = allocate(result.shape, result.dtype)
    np.copyto(array, result)
    return array


def _extern(op: HloOp, operands: Sequence[Array], dims: Mapping[str, int]) -> Sequence[Array]:
    return run_extern(op.values, [operand.copy() for operand in operands], dims)


@lru_cache(maxsize=256)
def _graph(text: str) -> GraphOp:
    context = Context()
    for name, factory in all_dialects().items():
        context.register_dialect(name, factory)
    return cast(GraphOp, next(iter(Parser(context, text).parse_module().ops)))
