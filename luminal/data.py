"""The user's data as NumPy arrays: numbers, lists, NumPy arrays and torch tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from luminal.dtype import DType, bool_, dtype_of, f32, i64
from luminal.errors import DataSizeError, DTypeError

if TYPE_CHECKING:
    import torch

DataLike = Union[
    bool, int, float, bytes, Sequence[Any], Mapping[str, Any], "np.ndarray[Any, Any]", "torch.Tensor"
]


def array_of(data: Any, dtype: DType | None, name: str) -> tuple[np.ndarray[Any, Any], DType]:
    """A contiguous array of its own and its dtype.

    Numbers and lists are converted to `dtype` (by default bool, i64 or f32), so long as no float becomes an integer and
    no integer is out of range. An array or torch tensor keeps its dtype, and `dtype` must be that: a conversion is
    the user's to write. Errors name the tensor: DTypeError, DataSizeError for a ragged list.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        array = _from_torch(data)
    elif isinstance(data, (np.ndarray, np.generic)):
        array = np.array(data, order="C")
    else:
        return _from_lists(data, dtype, name)
    found = dtype_of(array.dtype)
    if dtype is not None and dtype != found:
        raise DTypeError(
            f"{name!r} has dtype {dtype.name}, but its data has {found.name}; convert the data first"
        )
    return array, found


def _from_torch(data: torch.Tensor) -> np.ndarray[Any, Any]:
    dtype = dtype_of(data.dtype)
    plain = data.detach().cpu().contiguous()
    if dtype.is_float and dtype.bits < 32:
        import torch

        # NumPy has no bf16 or fp8 of its own: the bits go across as integers.
        carrier = torch.int16 if dtype.bits == 16 else torch.uint8
        return plain.view(carrier).numpy().view(dtype.numpy).copy()
    return plain.numpy().copy()


def _from_lists(data: Any, dtype: DType | None, name: str) -> tuple[np.ndarray[Any, Any], DType]:
    try:
        array = np.array(data)
    except ValueError:
        raise DataSizeError(f"{name!r}: the lists of its data differ in length") from None
    except OverflowError:
        raise DTypeError(f"{name!r}: a number of its data does not fit into 64 bits") from None
    kind = array.dtype.kind if array.size else "b"
    if kind not in "biuf":
        raise DTypeError(f"{name!r}: its data is a {type(data).__name__} that is not made of numbers alone")
    found = dtype or (bool_ if kind == "b" and array.size else i64 if kind in "iu" else f32)
    if kind == "f" and not found.is_float:
        raise DTypeError(f"{name!r} has dtype {found.name}, but its data has floats; convert the data first")
    if found.is_integer and array.size:
        low, high = int(array.min()), int(array.max())
        if low < found.lowest or high > found.highest:
            bad = low if low < found.lowest else high
            raise DTypeError(f"{name!r} has dtype {found.name}, which holds no {bad}")
    with np.errstate(over="ignore"):
        # As in PyTorch a Python float goes to f32 first, and from there to a narrower dtype.
        wide = array.astype(np.float32) if found.is_float and found.bits < 32 else array
        return np.ascontiguousarray(wide.astype(found.numpy)).reshape(array.shape), found
