"""Elementwise primitives against torch, bit for bit, on every dtype: NaN, infinities, -0.0, subnormals, wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from primitive_support import run, shaped, to_array, torch_of, vectors
from torch_bits import same_bits

from luminal.dialects.primitive.ops import FLOATS, INTEGERS, NUMBERS, ORDERED
from luminal.dtype import DTYPES, DType, bool_, dtype_of, f16, f32, f64, i32, i64, u8
from luminal.errors import DivisionByZeroError

Reference = Callable[..., torch.Tensor]

# (name, what is built, torch, dtypes, whether the sign of a zero result is eager's too)
UNARY: list[tuple[str, Any, Reference]] = [
    # torch.sqrt itself is MKL's, which rounds one in six wrongly; of f64 rounded to f32 it is exact
    ("sqrt", lambda b, x: b.sqrt(x), lambda x: exact_sqrt(x)),
    ("floor", lambda b, x: b.round(x, "floor"), torch.floor),
    ("ceil", lambda b, x: b.round(x, "ceil"), torch.ceil),
    ("trunc", lambda b, x: b.round(x, "trunc"), torch.trunc),
    ("even", lambda b, x: b.round(x, "even"), torch.round),
    ("neg", lambda b, x: b.neg(x), torch.neg),
]
APPROXIMATE: list[tuple[str, Any, Reference]] = [
    ("log2", lambda b, x: b.log2(x), torch.log2),
    ("log", lambda b, x: b.log2(x, "e"), torch.log),
    ("log10", lambda b, x: b.log2(x, "10"), torch.log10),
    ("exp2", lambda b, x: b.exp2(x), torch.exp2),
    ("exp", lambda b, x: b.exp2(x, "e"), torch.exp),
    ("sin", lambda b, x: b.sin(x), torch.sin),
    ("cos", lambda b, x: b.sin(x, "cos"), torch.cos),
]
BINARY: list[tuple[str, Any, Reference, tuple[DType, ...], bool]] = [
    ("add", lambda b, x, y: b.add(x, y), torch.add, NUMBERS, True),
    ("sub", lambda b, x, y: b.sub(x, y), torch.sub, NUMBERS, True),
    ("mul", lambda b, x, y: b.mul(x, y), torch.mul, NUMBERS, True),
    ("div", lambda b, x, y: b.recip(x, y), torch.div, FLOATS, True),
    ("max", lambda b, x, y: b.max(x, y), torch.maximum, ORDERED, False),
    ("min", lambda b, x, y: b.min(x, y), torch.minimum, ORDERED, False),
    ("lt", lambda b, x, y: b.compare(x, y, "lt"), torch.lt, ORDERED, True),
    ("le", lambda b, x, y: b.compare(x, y, "le"), torch.le, ORDERED, True),
    ("eq", lambda b, x, y: b.compare(x, y, "eq"), torch.eq, ORDERED, True),
    ("ne", lambda b, x, y: b.compare(x, y, "ne"), torch.ne, ORDERED, True),
    ("and", lambda b, x, y: b.bits(x, y, "and"), torch.bitwise_and, (*INTEGERS, bool_), True),
    ("or", lambda b, x, y: b.bits(x, y, "or"), torch.bitwise_or, (*INTEGERS, bool_), True),
    ("xor", lambda b, x, y: b.bits(x, y, "xor"), torch.bitwise_xor, (*INTEGERS, bool_), True),
    ("shl", lambda b, x, y: b.bits(x, y, "shl"), torch.bitwise_left_shift, INTEGERS, True),
    ("shr", lambda b, x, y: b.bits(x, y, "shr"), torch.bitwise_right_shift, INTEGERS, True),
]
DIVISIONS: list[tuple[str, Any, Reference]] = [
    ("floor_divide", lambda b, x, y: b.recip(x, y, "floor"), torch.floor_divide),
    (
        "trunc_divide",
        lambda b, x, y: b.recip(x, y, "trunc"),
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ),
    ("remainder", lambda b, x, y: b.mod(x, y), torch.remainder),
    ("fmod", lambda b, x, y: b.mod(x, y, "trunc"), torch.fmod),
]


def exact_sqrt(x: torch.Tensor) -> torch.Tensor:
    if x.dtype is torch.float64:
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(np.sqrt(x.numpy()))
    return x.double().sqrt().float().to(x.dtype)


def by_name(rows: list[Any]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=[row[0] for row in rows])


@by_name(UNARY)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(FLOATS))
def test_exact_unary(row: Any, data: Any, dtype: DType) -> None:
    (x,) = data.draw(vectors(dtype, 1))
    assert same_bits(run(row[1], x)[0], row[2](*torch_of(x)))


@by_name(APPROXIMATE)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(FLOATS))
def test_elementary_functions(row: Any, data: Any, dtype: DType) -> None:
    """Special values are eager's to the bit; the others lie within an ulp of f64's, or eager's own error."""
    (x,) = data.draw(vectors(dtype, 1))
    found, (tensor,) = run(row[1], x)[0], torch_of(x)
    assert found.dtype == x.dtype
    exact = row[2](tensor.double())
    special = ~torch.isfinite(exact) | (exact == 0) | ~torch.isfinite(tensor)
    (ours,) = torch_of(found)
    assert same_bits(found[special.numpy()], exact[special].to(tensor.dtype))
    ulp = torch.finfo(tensor.dtype).eps * exact.abs().clamp(min=torch.finfo(tensor.dtype).smallest_normal)
    error = (ours.double() - exact).abs()
    overflow = ~torch.isfinite(exact.to(tensor.dtype))
    assert torch.all(special | overflow | (error <= ulp))


@by_name(BINARY)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_binary(row: Any, data: Any) -> None:
    _, build, reference, dtypes, zero_signs = row
    dtype = data.draw(st.sampled_from(dtypes))
    arrays = data.draw(vectors(dtype, 2))
    assert same_bits(run(build, *arrays)[0], reference(*torch_of(*arrays)), zero_signs)


def divide(reference: Reference, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Eager element by element: its vector code errs for quotients beyond 2**24 and rounds narrow quotients early."""
    return torch.cat([reference(x[i : i + 1].clone(), y[i : i + 1].clone()) for i in range(len(x))])


@by_name(DIVISIONS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_rounded_division(row: Any, data: Any) -> None:
    _, build, reference = row
    dtype = data.draw(st.sampled_from(NUMBERS))
    x, y = data.draw(vectors(dtype, 2))
    if dtype.is_integer:
        lowest = np.asarray(dtype.lowest).astype(x.dtype)
        overflow = dtype.is_signed & (x == lowest) & (y == -1)  # eager ends the process for trunc
        assume(not overflow.any())
        if not y.all():
            with pytest.raises(DivisionByZeroError):
                run(build, x, y)
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                reference(*torch_of(x, y))
            return
    assert same_bits(run(build, x, y)[0], divide(reference, *torch_of(x, y)))


@pytest.mark.parametrize("dtype", [i64, i32], ids=str)
@pytest.mark.parametrize("rounding", ["floor", "trunc"])
def test_least_integer_by_minus_one_wraps(dtype: DType, rounding: str) -> None:
    x, y = np.array([dtype.lowest], dtype.numpy), np.array([-1], dtype.numpy)
    assert run(lambda b, x, y: b.recip(x, y, rounding), x, y)[0].tolist() == [dtype.lowest]
    assert run(lambda b, x, y: b.mod(x, y, rounding), x, y)[0].tolist() == [0]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([d for d in DTYPES.values() if d.torch_name]))
def test_select(data: Any, dtype: DType) -> None:
    x, y = data.draw(vectors(dtype, 2))
    condition = np.array(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))))
    found = run(lambda b, c, x, y: b.select(c, x, y), condition, x, y)[0]
    assert same_bits(found, torch.where(*torch_of(condition), *torch_of(x, y)))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_cast(data: Any) -> None:
    source, target = (
        data.draw(st.sampled_from([d for d in DTYPES.values() if d.torch_name])) for _ in range(2)
    )
    (x,) = data.draw(vectors(source, 1))
    assert same_bits(run(lambda b, x: b.cast(x, target), x)[0], torch_of(x)[0].to(target.torch))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bit_cast(data: Any) -> None:
    source = data.draw(st.sampled_from([d for d in DTYPES.values() if d.torch_name and not d.is_bool]))
    same = [
        d for d in DTYPES.values() if d.torch_name and d.size_bytes == source.size_bytes and not d.is_bool
    ]
    target = data.draw(st.sampled_from(same))
    (x,) = data.draw(vectors(source, 1))
    assert same_bits(run(lambda b, x: b.cast(x, target, "bits"), x)[0], torch_of(x)[0].view(target.torch))


def test_fp4_bits() -> None:
    found = run(lambda b, x: b.cast(b.cast(x, "f4e2m1", "bits"), f32), np.arange(16, dtype=np.uint8))[0]
    assert found.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert np.signbit(found[8])
    back = run(lambda b, x: b.cast(b.cast(x, "f4e2m1"), u8, "bits"), found)[0]
    assert back.tolist() == list(range(16))


@settings(max_examples=40, deadline=None)
@given(shaped(f32), shaped(i64))
def test_any_shape(x: Any, y: Any) -> None:
    assert same_bits(run(lambda b, x: b.add(x, x), x)[0], torch.add(*torch_of(x, x)))
    assert same_bits(run(lambda b, y: b.mul(y, y), y)[0], torch.mul(*torch_of(y, y)))


def test_narrow_floats_round_once_per_op() -> None:
    x = to_array([1.0009765625, 3.0, 60000.0], f16)
    assert same_bits(run(lambda b, x: b.mul(b.add(x, x), x), x)[0], (lambda t: (t + t) * t)(torch_of(x)[0]))
    wide = to_array([2.0**53 + 1], f64)
    assert dtype_of(run(lambda b, x: b.cast(x, "bf16"), wide)[0].dtype).name == "bf16"
