"""The seam to the compiler: an hlo module becomes a `Program` that runs on addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.interpreter import interpret
from luminal.dialects.tensor_type import TensorType
from luminal.options import CompileOptions
from luminal.plan.constants import Constant
from luminal.plan.library import as_numpy, as_torch
from luminal.torch.calling import Program
from luminal.torch.extern import call_extern
from luminal.torch.import_fx import ImportedGraph
from luminal.torch.options import TorchOptions

Array = np.ndarray[Any, Any]


def build_program(
    imported: ImportedGraph, target: str, options: TorchOptions, constants: Sequence[int]
) -> Program:
    """Compile a module for a target; `constants` are the positions of inputs that are bound once."""
    if target == "reference":
        graph = cast(GraphOp, next(iter(imported.module.ops)))
        return ArrayProgram(
            imported.module,
            constants,
            imported.updates,
            lambda inputs, dims: interpret(graph, inputs, dims, _call),
        )
    chosen = CompileOptions(
        constants=tuple(constants),
        updates=tuple(imported.updates),
        hint=tuple(sorted(imported.hints.items())),
        **options.of_search(),
    )
    executable = compile_module(imported.module, target, chosen)
    if hasattr(executable, "run_pointers"):
        return cast(Program, executable)
    return ArrayProgram(imported.module, constants, imported.updates, executable.run)


class ArrayProgram:
    """Runs what takes and gives NumPy arrays: the hlo interpreter, which judges the others, and targets of plug-ins."""

    def __init__(
        self,
        module: ModuleOp,
        constants: Sequence[int],
        updates: Sequence[tuple[int, int]],
        run: Callable[[Sequence[Array], Mapping[str, int]], Sequence[Array]],
    ) -> None:
        self.run = run
        self.graph = cast(GraphOp, next(iter(module.ops)))
        self.dim_names = tuple(symbol.name for symbol in self.graph.symbols)
        self.call_inputs = tuple(n for n in range(len(self.graph.input_types)) if n not in set(constants))
        self._updates = dict(updates)
        self._constants: dict[int, int] = {}

    def bind_constants(self, constants: Mapping[int, Constant]) -> None:
        self._constants = {position: constant.address for position, constant in constants.items()}

    def run_pointers(self, inputs: Sequence[int], dims: Sequence[int], outputs: Sequence[int]) -> None:
        values = dict(zip(self.dim_names, dims, strict=True))
        addresses = {**self._constants, **dict(zip(self.call_inputs, inputs, strict=True))}
        arrays = [_array_at(addresses[n], type_, values) for n, type_ in enumerate(self.graph.input_types)]
        # copies: a result may be a view of an input that is about to be overwritten
        results = [np.array(result) for result in self.run(arrays, values)]
        for number, (type_, result) in enumerate(zip(self.graph.output_types, results, strict=True)):
            target = self._updates.get(number)
            address = outputs[number] if target is None else addresses[target]
            np.copyto(_array_at(address, type_, values), result)


def _array_at(address: int, type_: TensorType, dims: Mapping[str, int]) -> Array:
    from luminal.plan.kernels import memory_view

    shape = tuple(size.evaluate(dims) for size in type_.shape)
    return memory_view(address, int(np.prod(shape, dtype=np.int64)), type_.dtype).reshape(shape)


def _call(op: Any, operands: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    tensors = [as_torch(operand.copy()) for operand in operands]
    return [as_numpy(result) for result in call_extern(op.values["payload"], tensors, dims)]
