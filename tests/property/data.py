"""Data of the inputs of random programs: small dyadic numbers, or floats with everything odd among them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from luminal.dtype import dtype_of
from tests.property.namespaces import DTYPES
from tests.property.program import Program


def make_input(program: Program, number: int, sizes: Mapping[str, int]) -> torch.Tensor:
    """The data of one input at some sizes: the same for the same program, sizes and seed."""
    one = program.inputs[number]
    if one.data is not None:
        return one.data
    shape = program.shape_of(number, sizes)
    key = [program.seed & 0xFFFFFFFF, program.seed >> 32, number, *(sizes[name] for name in sorted(sizes))]
    generator = np.random.default_rng(key)
    dtype = DTYPES[one.dtype]
    count = math.prod(shape)
    if program.kind == "views":
        flat = any_bits(generator, count, dtype)
    elif program.kind == "dyadic":
        flat = dyadic(generator, count, dtype)
    else:
        flat = numbers(generator, count, dtype)
    return lay_out(flat.reshape(shape), one.layout)


def lay_out(data: torch.Tensor, layout: str) -> torch.Tensor:
    """The same data in memory that is not contiguous."""
    if layout == "transposed":
        order = tuple(reversed(range(data.ndim)))
        return data.permute(order).contiguous().permute(order)
    if layout == "strided":
        wide = data.new_zeros([2 * size + 1 for size in data.shape])
        part = wide[tuple(slice(1, 1 + 2 * size, 2) for size in data.shape)]
        part.copy_(data)
        return part
    if layout == "expanded" and data.ndim and data.shape[0]:
        return data[:1].expand(data.shape)
    if layout == "channels" and data.ndim == 4:
        return data.contiguous(memory_format=torch.channels_last)
    return data


def dyadic(generator: np.random.Generator, count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.from_numpy(generator.integers(0, 2, count).astype(bool))
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -4
        return torch.from_numpy(generator.integers(low, 5, count)).to(dtype)
    values = generator.integers(-4, 5, count) / 2
    zeros = generator.random(count) < 0.05
    values[zeros] = -0.0
    return torch.from_numpy(values).to(dtype)


def numbers(generator: np.random.Generator, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of ordinary size, some exact ones, and in some inputs infinities, NaN and the ends of the range."""
    if dtype == torch.bool:
        return torch.from_numpy(generator.integers(0, 2, count).astype(bool))
    if not dtype.is_floating_point:
        info = dtype_of(dtype)
        low, high = int(info.lowest), int(info.highest)
        values = generator.integers(max(low, -9), 10, count).astype(np.int64)
        places = generator.random(count) < generator.choice([0.0, 0.0, 0.2])
        values[places] = generator.choice(
            np.array([low, high, low + 1, high - 1, 0, 1], np.int64), places.sum()
        )
        return torch.from_numpy(values).to(dtype)
    values = generator.standard_normal(count) * generator.choice([0.1, 1.0, 1.0, 8.0], count)
    whole = generator.random(count) < 0.15
    values[whole] = np.round(values[whole] * 2) / 2
    info = torch.finfo(dtype)
    odd = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        info.tiny / 4,
        -info.tiny / 2,
        info.max,
        -info.max,
        info.tiny,
    ]
    places = generator.random(count) < generator.choice([0.0, 0.0, 0.05, 0.3])
    values[places] = generator.choice(np.array(odd), places.sum())
    return torch.from_numpy(values).to(dtype)


def any_bits(generator: np.random.Generator, count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.from_numpy(generator.integers(0, 2, count).astype(bool))
    if not count:
        return torch.zeros(0, dtype=dtype)
    raw = np.frombuffer(generator.bytes(count * dtype.itemsize), np.uint8).copy()
    return torch.from_numpy(raw).view(dtype)
