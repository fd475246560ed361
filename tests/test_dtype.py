"""Dtypes: names, bit patterns and conversions agree with torch."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_bits import as_torch, patterns

from luminal.dtype import (
    DTYPES,
    bf16,
    bool_,
    cast_array,
    dtype_of,
    f4e2m1,
    f8e4m3fn,
    f16,
    f32,
    f64,
    from_bits,
    i8,
    i64,
    to_bits,
    u8,
)
from luminal.errors import DTypeError

TORCH = {d.name: d for d in DTYPES.values() if d.torch_name}
NAMES = st.sampled_from(sorted(TORCH))
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.5,
    2.5,
    math.inf,
    -math.inf,
    math.nan,
    1e30,
    -1e30,
    3e9,
    -3e9,
    2.0**31,
    -(2.0**31) - 1,
    9.3e18,
    -9.3e18,
    300.0,
    -300.0,
    255.9,
    -129.0,
    65535.5,
    65519.9,
    65520.0,
    448.0,
    464.0,
    465.0,
    61440.0,
    57344.0,
    2.0**-9,
    2.0**-10,
    1e-45,
    1e-40,
    1 + 2.0**-8,
    1 + 2.0**-8 + 2.0**-30,
    3.3e38,
    1e308,
]
FLOATS = st.one_of(st.sampled_from(EDGES), st.floats(width=64), st.floats(-400, 400), st.floats(-1e-3, 1e-3))


@settings(max_examples=400, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=8), NAMES, NAMES)
def test_cast_is_torchs(values: list[float], source: str, target: str) -> None:
    """From every dtype to every dtype; lengths on both sides of a vector."""
    array = cast_array(np.array(values * 5, np.float64), TORCH[source])
    assert patterns(as_torch(array)) == patterns(
        torch.tensor(values * 5, dtype=torch.float64).to(TORCH[source].torch)
    )
    found = as_torch(cast_array(array, TORCH[target]))
    assert patterns(found) == patterns(as_torch(array).to(TORCH[target].torch))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8), NAMES)
def test_cast_of_i64_is_torchs(values: list[int], target: str) -> None:
    found = as_torch(cast_array(np.array(values, np.int64), TORCH[target]))
    assert patterns(found) == patterns(torch.tensor(values).to(TORCH[target].torch))


@settings(max_examples=300, deadline=None)
@given(FLOATS, st.sampled_from(["f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "bool"]))
def test_float_constants_are_torchs(value: float, name: str) -> None:
    dtype = TORCH[name]
    expected = patterns(torch.tensor([value], dtype=torch.float64).to(dtype.torch))
    found = from_bits(to_bits(value, dtype), dtype)
    assert patterns(as_torch(np.array([found]))) == expected
    if value == value:
        assert to_bits(found, dtype) == to_bits(value, dtype)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_pattern_round_trips(dtype: Any) -> None:
    for bits in {
        0,
        1,
        (1 << dtype.pattern_bits) - 1,
        1 << (dtype.pattern_bits - 1),
        5 % (1 << dtype.pattern_bits),
    }:
        value = from_bits(bits, dtype)
        assert value.dtype == dtype.numpy and to_bits(value, dtype) == bits


def test_integer_constants() -> None:
    assert to_bits(-1, i8) == 0xFF and to_bits(-1, i64) == 2**64 - 1 and to_bits(-1, u8) == 255
    assert to_bits(True, f32) == 0x3F800000 and to_bits(1.7, i8) == 1 and to_bits(2, bool_) == 1
    assert to_bits(2**63 - 1, i64) == 2**63 - 1
    assert torch.full((), -1, dtype=torch.uint8).item() == 255


def test_constants_keep_the_sign_of_zero_and_nan() -> None:
    assert to_bits(-0.0, f32) == 0x80000000 and to_bits(math.nan, f32) == 0x7FC00000
    assert math.copysign(1.0, float(from_bits(0x8000, bf16))) == -1.0  # type: ignore[arg-type]
    assert to_bits(math.inf, f8e4m3fn) == 0x7E and to_bits(7.0, f4e2m1) == 0x7


@pytest.mark.parametrize("dtype", TORCH.values(), ids=str)
def test_names(dtype: Any) -> None:
    for alias in (dtype, dtype.name, dtype.torch_name, dtype.numpy, dtype.torch, str(dtype.torch)):
        assert dtype_of(alias) is dtype
    assert dtype.size_bytes == dtype.torch.itemsize == dtype.numpy.itemsize
    if dtype.is_float:
        assert dtype.is_signed and float(torch.finfo(dtype.torch).max) <= dtype.highest
    elif dtype.is_integer:
        limits = torch.iinfo(dtype.torch)
        assert (limits.min, limits.max) == (dtype.lowest, dtype.highest) and dtype.is_signed == (
            limits.min < 0
        )


def test_a_dtype_is_one_object() -> None:
    for dtype in DTYPES.values():
        assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype
    assert f16.accumulate is f32 and bf16.accumulate is f32 and f64.accumulate is f64 and i8.accumulate is i8
    assert dtype_of(float) is f64 and dtype_of(np.int8) is i8 and dtype_of("half") is f16


def test_errors() -> None:
    with pytest.raises(DTypeError, match="complex64"):
        dtype_of(torch.complex64)
    with pytest.raises(DTypeError, match="'f33' is no dtype"):
        dtype_of("f33")
    with pytest.raises(DTypeError, match="300 does not fit in i8"):
        to_bits(300, i8)
    with pytest.raises(DTypeError, match="does not fit in u8"):
        to_bits(-300, u8)
    with pytest.raises(DTypeError, match="nan cannot be an i64"):
        to_bits(math.nan, i64)
    with pytest.raises(DTypeError, match="0x2 is no bit pattern of bool"):
        from_bits(2, bool_)
    with pytest.raises(DTypeError, match="0x10 is no bit pattern of f4e2m1"):
        from_bits(16, f4e2m1)
    with pytest.raises(DTypeError, match="no unpacked dtype"):
        _ = f4e2m1.torch
