"""Sketches small hlo graphs for the examples of rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from luminal.dialects.graph_op import DEFAULT_LICENCES, build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import DimLike, as_dim
from luminal.dtype import DType, f32
from luminal.passes.value_graph import Interface


class Sketch:
    """`s.input(3, 4)` and `s.parameter(4, 5)` make inputs, `s.b.matmul(x, w)` an operation."""

    def __init__(self, licences: Sequence[str] = DEFAULT_LICENCES, rows: DimLike = 5) -> None:
        """`rows`: a size that an example has in its inputs, a number or a symbol."""
        self._licences, self._block, self.rows = licences, Block(), rows
        self._constants: set[int] = set()
        self.b = HloBuilder(self._block)

    def input(self, *shape: DimLike, dtype: DType = f32) -> SSAValue:
        type_ = tensor_type(tuple(map(as_dim, shape)), dtype)
        return self._block.insert_arg(type_, len(self._block.args))

    def parameter(self, *shape: DimLike, dtype: DType = f32) -> SSAValue:
        """An input that does not change from call to call."""
        self._constants.add(len(self._block.args))
        return self.input(*shape, dtype=dtype)

    def literal(self, array: np.ndarray[Any, Any], dtype: DType = f32) -> SSAValue:
        """A constant whose numbers are known."""
        data = array.astype(dtype.numpy)
        return self.b.constant(data=data.tobytes(), shape=data.shape, dtype=dtype)

    def module(self, results: Sequence[SSAValue]) -> ModuleOp:
        """A module of the graph that gives these results."""
        types = [cast(TensorType, argument.type) for argument in self._block.args]
        graph, block = build_graph("sketch", (), types, self._licences)
        values: dict[SSAValue, SSAValue] = dict(zip(self._block.args, block.args, strict=True))
        for op in self._block.ops:
            block.add_op(op.clone(values))
        finish_graph(block, [values[result] for result in results])
        Interface(constants=frozenset(self._constants)).attach(graph)
        module = ModuleOp([graph])
        module.verify()
        return module
