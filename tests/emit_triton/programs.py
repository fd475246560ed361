"""Runs a whole program that was built for a GPU: its plan's steps in order, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.plan.gpu_build import GpuProgram
from luminal.plan.plan import KernelStep, Plan, PlanValue
from tests.emit_triton.interpreter import run_kernels

Array = np.ndarray[Any, Any]


def run_program(program: GpuProgram, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    """The outputs for some inputs.  Every block of the arena is garbage until it is written."""
    plan = program.plan
    memory = {("input", number): array.copy().reshape(-1) for number, array in enumerate(inputs)}
    for step in plan.steps:
        assert isinstance(step, KernelStep)
        function = program.functions[step.kernel]
        arrays = [_array(plan, plan.values[number], memory, dims) for number in step.arguments]
        symbols = function.candidate.function.symbol_names
        sizes = {name: size.evaluate(dims) for name, size in zip(symbols, step.dims, strict=True)}
        run_kernels(function.kernels, arrays, sizes)
        assert not (step.check and arrays[-1][0]), step.message
    updated = dict(plan.updates)
    found: list[Array] = []
    for number, type_ in enumerate(plan.outputs):
        key = ("input", updated[number]) if number in updated else ("output", number)
        found.append(memory[key].reshape([size.evaluate(dims) for size in type_.shape]))
    return found


def _array(
    plan: Plan, value: PlanValue, memory: dict[tuple[str, int], Array], dims: Mapping[str, int]
) -> Array:
    """The memory of a value, made where it is wanted first; a block has the dtype of the value that is in it."""
    key = (value.storage.kind, value.storage.number)
    if key[0] == "data":
        return np.frombuffer(plan.data[key[1]], value.dtype.numpy).copy()
    if key not in memory or memory[key].dtype != value.dtype.numpy:
        memory[key] = garbage(value.dtype, value.elements.evaluate(dims))
    return memory[key]
