"""The meaning of a region graph: runs its steps in NumPy, each region in the region interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.primitive.interpreter import evaluate as evaluate_primitive
from luminal.dialects.primitive.ops import OPS, PrimitiveOp
from luminal.dialects.table_op import ValueAttr
from luminal.dialects.tensor_type import tensor_type
from luminal.errors import DivisionByZeroError, IndexOutOfRangeError, ShapeError
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep, RegionValue

Array = NDArray[Any]
_ERRORS = {"index": IndexOutOfRangeError, "division": DivisionByZeroError}


def interpret_regions(
    graph: RegionGraph,
    inputs: Sequence[Array],
    dims: Mapping[str, int],
    call_extern: Callable[..., Sequence[Array]] | None = None,
) -> list[Array]:
    """The outputs of a region graph; `inputs` are not written, whatever the graph updates in place.

    Raises ShapeError where the sizes break a requirement, IndexOutOfRangeError and DivisionByZeroError of checks.
    """
    for requirement in graph.requirements:
        unless = requirement.unless is not None and requirement.unless.evaluate(dims) == 0
        if not unless and requirement.least.evaluate(dims) < 0:
            raise ShapeError(requirement.message)
    machine = _Machine(graph, dims, call_extern)
    for number, array in zip(graph.inputs, inputs, strict=True):
        machine.write(graph.values[number], array)
    for step in graph.steps:
        machine.run(step)
    return [np.array(machine.view(graph.values[number])) for number in graph.outputs]


class _Machine:
    def __init__(
        self, graph: RegionGraph, dims: Mapping[str, int], call_extern: Callable[..., Sequence[Array]] | None
    ) -> None:
        self.graph, self.dims, self.call_extern = graph, dims, call_extern
        self.memory: dict[int, Array] = {}
        for value in graph.values:
            if value.data is not None:
                self.memory[value.number] = np.frombuffer(value.data, value.dtype.numpy).copy()
            elif value.shares < 0:
                self.memory[value.number] = garbage(value.dtype, value.elements.evaluate(dims))

    def flat(self, number: int) -> Array:
        while self.graph.values[number].shares >= 0:
            number = self.graph.values[number].shares
        return self.memory[number]

    def view(self, value: RegionValue) -> Array:
        """A value's memory with its shape and strides."""
        shape = [size.evaluate(self.dims) for size in value.shape]
        memory = self.flat(value.number)
        strides = [stride.evaluate(self.dims) * memory.itemsize for stride in value.strides]
        if 0 in shape:
            return np.zeros(shape, value.dtype.numpy)
        return np.lib.stride_tricks.as_strided(memory, shape, strides)

    def write(self, value: RegionValue, array: Array) -> None:
        if array.size:
            self.view(value)[...] = array

    def run(self, step: RegionStep | CheckStep | OpaqueStep) -> None:
        if isinstance(step, OpaqueStep):
            self.run_opaque(step)
            return
        sizes = {name: size.evaluate(self.dims) for name, size in step.symbols.items()}
        results = evaluate(step.region, [self.flat(number) for number in step.arguments], sizes)
        for number, result in zip(step.outputs, results, strict=True):
            self.flat(number)[: result.size] = result
            if isinstance(step, CheckStep) and result[0]:
                raise _ERRORS[step.error](step.message)

    def run_opaque(self, step: OpaqueStep) -> None:
        values = self.graph.values
        types = [tensor_type(values[number].shape, values[number].dtype) for number in step.outputs]
        properties = {key: ValueAttr(value) for key, value in step.attributes.items()}  # pyright: ignore[reportArgumentType]
        op = OPS[step.op].create(result_types=types, properties=properties)
        assert isinstance(op, PrimitiveOp)
        operands = [np.array(self.view(values[number])) for number in step.arguments]
        results = evaluate_primitive(op, operands, self.dims, self.call_extern)
        for number, result in zip(step.outputs, results, strict=True):
            self.write(values[number], result)
