"""Operations of a plan that are no generated kernels: sorting, and what runs through torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from luminal.dim import as_dim
from luminal.dtype import dtype_of
from luminal.errors import CompileError, OutputError

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Tensors = Sequence["torch.Tensor"]
FEW = 4
"""A selection is worth trying where it is for less than one element of so many."""
Operation = Callable[[Mapping[str, Any], Tensors, Mapping[str, int], Tensors], Tensors]
"""Attributes, operands, sizes and the memory of the results, which it may write to; gives the results."""


class View(NamedTuple):
    """How a tensor of a plan lies in memory, for the sizes of a call: the slot with its address, its bytes, strides in
    elements."""

    slot: int
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def at(self, address: int) -> torch.Tensor:
        """The tensor there; somebody else keeps the memory."""
        import torch

        if not self.size:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        memory = (ctypes.c_char * self.size).from_address(address)
        return torch.frombuffer(memory, dtype=self.dtype).as_strided(self.shape, self.strides)


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
    """Stable, NaN largest: values and their i64 positions along one axis, or the first `count` of them."""
    import torch

    del outputs
    (x,), axis, descending = operands, attributes["axis"], bool(attributes["descending"])
    if attributes.get("count") is None:
        return torch.sort(x, dim=axis, descending=descending, stable=True)
    count = as_dim(attributes["count"]).evaluate(dims)
    found = (
        _first(x, axis, descending, count)
        if 0 < count < x.shape[axis] // FEW and x.dtype != torch.bool
        else None
    )
    if found is not None:
        return found
    return [
        part.narrow(axis, 0, count) for part in torch.sort(x, dim=axis, descending=descending, stable=True)
    ]


def _first(x: torch.Tensor, axis: int, descending: bool, count: int) -> Tensors | None:
    """The first of a stable sort by a selection, whose own order of equal elements may be any; None where the last of
    them has an equal among the others."""
    import torch

    values, places = torch.topk(x, count + 1, dim=axis, largest=descending)
    last, next_one = values.narrow(axis, count - 1, 1), values.narrow(axis, count, 1)
    if bool(((last == next_one) | (last.isnan() & next_one.isnan())).any()):
        return None
    places = places.narrow(axis, 0, count).sort(axis).values
    values, order = torch.sort(x.gather(axis, places), dim=axis, descending=descending, stable=True)
    return values, places.gather(axis, order)


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
