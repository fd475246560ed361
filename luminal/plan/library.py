"""Operations of a plan that are no generated kernels: sorting, and what runs through torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from luminal.dtype import dtype_of
from luminal.errors import CompileError, OutputError

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Tensors = Sequence["torch.Tensor"]
Operation = Callable[[Mapping[str, Any], Tensors, Mapping[str, int], Tensors], Tensors]
"""Attributes, operands, sizes and the memory of the results, which it may write to; gives the results."""


def as_torch(array: Array) -> torch.Tensor:
    """A tensor over the array's memory, also for the dtypes that torch does not take from NumPy."""
    import torch

    dtype = dtype_of(array.dtype)
    return torch.from_numpy(array.view(dtype.bit_carrier)).view(dtype.torch)


def as_numpy(tensor: torch.Tensor) -> Array:
    """An array over the tensor's memory."""
    import torch

    dtype = dtype_of(tensor.dtype)
    carrier = getattr(torch, {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[dtype.size_bytes])
    return tensor.detach().contiguous().view(carrier).numpy().view(dtype.numpy)


def _sort(
    attributes: Mapping[str, Any], operands: Tensors, dims: Mapping[str, int], outputs: Tensors
) -> Tensors:
    """Stable, NaN largest: values and their i64 positions along one axis."""
    import torch

    del dims, outputs
    axis, descending = attributes["axis"], bool(attributes["descending"])
    return torch.sort(operands[0], dim=axis, descending=descending, stable=True)


def _extern(
    attributes: Mapping[str, Any], operands: Tensors, dims: Mapping[str, int], outputs: Tensors
) -> Tensors:
    """The results of an operation of torch, which its payload names; in `outputs` where it is told to write there."""
    from luminal.torch.extern import call_extern

    return call_extern(str(attributes["payload"]), operands, dims, outputs)


OPERATIONS: dict[str, Operation] = {"sort": _sort, "extern": _extern}


def run_extern(
    attributes: Mapping[str, Any], operands: Sequence[Array], dims: Mapping[str, int]
) -> Sequence[Array]:
    """The results of an operation of torch on arrays."""
    return [as_numpy(result) for result in _extern(attributes, list(map(as_torch, operands)), dims, ())]


def run_library(
    op: str, attributes: Mapping[str, Any], operands: Tensors, outputs: Tensors, dims: Mapping[str, int]
) -> None:
    """Run an operation, on the device of its operands, and copy its results into `outputs`.

    OutputError where a result has another shape or dtype than the plan has for it.
    """
    if op not in OPERATIONS:
        raise CompileError(f"no library operation {op!r}; there are {', '.join(OPERATIONS)}")
    results = OPERATIONS[op](attributes, operands, dims, outputs)
    if len(results) != len(outputs):
        raise OutputError(f"{op} gave {len(results)} results; the plan has {len(outputs)}")
    for number, (result, output) in enumerate(zip(results, outputs, strict=True)):
        if result.shape != output.shape or result.dtype != output.dtype:
            raise OutputError(
                f"result {number} of {op} is {dtype_of(result.dtype)}{list(result.shape)}; "
                f"the plan has {dtype_of(output.dtype)}{list(output.shape)}"
            )
        if result.data_ptr() != output.data_ptr():
            output.copy_(result)
