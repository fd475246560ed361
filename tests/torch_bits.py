"""Comparing with torch bit for bit: arrays as torch tensors and back, and patterns in which every NaN is alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from luminal.dtype import dtype_of

_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_torch(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The array as a torch tensor of the same dtype, bf16 and fp8 included."""
    dtype = dtype_of(array.dtype)
    carrier = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[dtype.size_bytes]
    whole = torch.from_numpy(np.ascontiguousarray(array).view(carrier).copy().reshape(array.shape))
    return whole.view(dtype.torch)


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor as a NumPy array of the same dtype."""
    carried = tensor.contiguous().view(_CARRIERS[tensor.element_size()]).numpy()
    return carried.view(dtype_of(tensor.dtype).numpy)


def patterns(tensor: torch.Tensor | np.ndarray[Any, Any]) -> list[int | str]:
    """Bit patterns in row-major order, with every NaN alike."""
    tensor = as_torch(tensor) if isinstance(tensor, np.ndarray) else tensor
    bits = tensor.reshape(-1).contiguous().view(_CARRIERS[tensor.element_size()]).tolist()
    if not tensor.is_floating_point():
        return bits
    floats = tensor.reshape(-1).double().tolist()
    return ["nan" if math.isnan(value) else pattern for pattern, value in zip(bits, floats, strict=True)]


def same_bits(found: np.ndarray[Any, Any], expected: torch.Tensor, zero_signs: bool = True) -> bool:
    """Equal shapes, dtypes and bit patterns; `zero_signs` False takes -0.0 and 0.0 for the same."""
    expected = expected.contiguous()
    if found.shape != tuple(expected.shape) or dtype_of(found.dtype) is not dtype_of(expected.dtype):
        return False
    if not zero_signs:
        found, expected = as_numpy(as_torch(found) + 0), expected + 0
    return patterns(found) == patterns(expected)
