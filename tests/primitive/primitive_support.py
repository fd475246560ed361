"""Making and running small primitive graphs in tests, and the values to run them on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch_bits import as_torch
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import SSAValue
from xdsl.parser import Parser

from luminal.dialects.graph_op import LUMINAL, GraphOp, build_graph, finish_graph
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dialects.primitive.ops import PRIMITIVE
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dtype import DType, cast_array, dtype_of

Array = np.ndarray[Any, Any]
Function = Callable[..., "SSAValue | Sequence[SSAValue]"]

FLOAT_EDGES = [
    0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 7.0, 0.1, -0.3, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40,
    3.3e38, -3.3e38, 1e10, 6.0e-8, 65504.0, 1e-3,
]  # fmt: skip


def make(types: Sequence[TensorType], function: Function, name: str = "main") -> GraphOp:
    """The verified graph of `function(builder, *inputs)`."""
    graph, block = build_graph(name, (), types)
    results = function(PrimitiveBuilder(block), *block.args)
    finish_graph(block, [results] if isinstance(results, SSAValue) else list(results))
    ModuleOp([graph]).verify()
    return graph


def run(
    function: Function, *arrays: Array, types: Sequence[TensorType] | None = None, **dims: int
) -> list[Array]:
    """`function(builder, *inputs)` on arrays, through the interpreter."""
    types = types or [tensor_type(array.shape, dtype_of(array.dtype)) for array in arrays]
    return interpret(make(types, function), arrays, dims)


def context() -> Context:
    loaded = Context()
    for dialect in (Builtin, LUMINAL, PRIMITIVE):
        loaded.load_dialect(dialect)
    return loaded


def parse(text: str) -> ModuleOp:
    return Parser(context(), text).parse_module()


def elements(dtype: DType) -> st.SearchStrategy[Any]:
    """Numbers for a dtype, the edges among them; floats are rounded to it later."""
    if dtype.is_float:
        return st.one_of(st.sampled_from(FLOAT_EDGES), st.floats(-100, 100), st.floats(width=32))
    low, high = int(dtype.lowest), int(dtype.highest)
    return st.one_of(
        st.sampled_from([low, high, 0, 1, high - 1]), st.integers(low, high), st.integers(0, 1 + high % 9)
    )


def to_array(numbers: Sequence[Any], dtype: DType) -> Array:
    if dtype.is_float:
        return cast_array(np.array(numbers, np.float64), dtype)
    return np.array(numbers, dtype.numpy)


def vectors(dtype: DType, count: int) -> st.SearchStrategy[list[Array]]:
    """`count` arrays of one length, 1 to 40."""
    rows = st.lists(st.tuples(*[elements(dtype)] * count), min_size=1, max_size=8)
    repeated = st.tuples(rows, st.sampled_from([1, 5]))
    return repeated.map(lambda p: [to_array([row[i] for row in p[0]] * p[1], dtype) for i in range(count)])


def shaped(dtype: DType, max_rank: int = 3, min_rank: int = 0, max_size: int = 4) -> st.SearchStrategy[Array]:
    """Arrays of small shapes, sizes 0 and 1 among them."""
    shapes = st.lists(st.integers(0, max_size), min_size=min_rank, max_size=max_rank).map(tuple)
    return shapes.flatmap(
        lambda shape: st.lists(elements(dtype), min_size=math.prod(shape), max_size=math.prod(shape)).map(
            lambda numbers: to_array(numbers, dtype).reshape(shape)
        )
    )


def torch_of(*arrays: Array) -> list[torch.Tensor]:
    return [as_torch(array) for array in arrays]
