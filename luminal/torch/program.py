"""The seam to the compiler: an hlo module becomes a `Program` that runs on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo.interpreter import interpret
from luminal.dtype import DType
from luminal.torch.calling import Program
from luminal.torch.extern import call_extern
from luminal.torch.import_fx import ImportedGraph
from luminal.torch.options import TorchOptions

Array = np.ndarray[Any, Any]


def build_program(
    imported: ImportedGraph, target: str, options: TorchOptions, constants: Sequence[int]
) -> Program:
    """Compile a module for a target."""
    return ReferenceProgram(imported.module)


class ReferenceProgram:
    """Runs the hlo graph in NumPy, op by op; nothing is updated in place."""

    in_place: frozenset[int] = frozenset()

    def __init__(self, module: ModuleOp) -> None:
        self.graph = cast(GraphOp, next(iter(module.ops)))
        self._constants: dict[int, torch.Tensor] = {}

    def set_constants(self, tensors: Mapping[int, torch.Tensor]) -> None:
        self._constants = dict(tensors)

    def run_tensors(
        self, inputs: Sequence[torch.Tensor | None], dims: Mapping[str, int], outputs: Sequence[torch.Tensor]
    ) -> None:
        arrays = [
            array_of(self._constants[number] if tensor is None else tensor, type_.dtype)
            for number, (tensor, type_) in enumerate(zip(inputs, self.graph.input_types, strict=True))
        ]
        results = interpret(self.graph, arrays, dims, _call)
        for tensor, array in zip(outputs, results, strict=True):
            tensor.copy_(tensor_of(array).view(tensor.dtype).reshape(tensor.shape))


def _call(op: Any, operands: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    tensors = [tensor_of(np.ascontiguousarray(array)) for array in operands]
    results = call_extern(op.values["payload"], tensors, dims)
    return [array_of(tensor, type_.dtype) for tensor, type_ in zip(results, op.result_types, strict=True)]


def array_of(tensor: torch.Tensor, dtype: DType) -> Array:
    """The tensor's memory as a NumPy array of the dtype; made contiguous where it is not."""
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bool or dtype.numpy.kind != "V" and plain.dtype.itemsize != 2:
        return plain.numpy()
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.dtype.itemsize]
    return plain.view(integers).numpy().view(dtype.numpy)


def tensor_of(array: Array) -> torch.Tensor:
    """A torch tensor over the array's memory, of the torch dtype of the same name."""
    from luminal.dtype import dtype_of

    dtype = dtype_of(array.dtype)
    carrier = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[array.dtype.itemsize]
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return torch.from_numpy(contiguous.view(carrier).copy()).view(dtype.torch)
