"""Dtype promotion against torch.result_type, exhaustively."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import luminal.dtype as dt
from luminal.dim import Dim, dim
from luminal.errors import DTypeError, ScalarError
from luminal.promotion import computes_wide, fill_number, promote_types, result_type, wrap_number

TORCH = {
    dt.f64: torch.float64,
    dt.f32: torch.float32,
    dt.f16: torch.float16,
    dt.bf16: torch.bfloat16,
    dt.f8e4m3fn: torch.float8_e4m3fn,
    dt.f8e5m2: torch.float8_e5m2,
    dt.i64: torch.int64,
    dt.i32: torch.int32,
    dt.i16: torch.int16,
    dt.i8: torch.int8,
    dt.u8: torch.uint8,
    dt.bool_: torch.bool,
}
WIDE = [dtype for dtype in TORCH if dtype not in (dt.f8e4m3fn, dt.f8e5m2)]


@dataclass(frozen=True)
class Fake:
    dtype: dt.DType
    shape: tuple[Dim, ...]


def operands() -> list[tuple[object, object]]:
    """Pairs of a luminal operand and the torch operand that it stands for."""
    pairs: list[tuple[object, object]] = [(True, True), (3, 3), (2.5, 2.5), (dim("s"), 7)]
    for dtype, torch_dtype in TORCH.items():
        for shape in ((), (2, 3)):
            own = Fake(dtype, tuple(dim(f"d{size}") for size in shape))
            pairs.append((own, torch.empty(shape, dtype=torch_dtype)))
    return pairs


def test_result_type_of_all_pairs_is_torchs() -> None:
    checked = 0
    for (left, torch_left), (right, torch_right) in itertools.product(operands(), repeat=2):
        if not (isinstance(left, Fake) or isinstance(right, Fake)):
            continue
        try:
            expected = torch.result_type(torch_left, torch_right)
        except RuntimeError:
            with pytest.raises(DTypeError):
                result_type(left, right)  # type: ignore[arg-type]
            continue
        got = TORCH[result_type(left, right)]  # type: ignore[arg-type]
        assert got == expected, (left, right)
        checked += 1
    assert checked > 500


def test_result_type_of_triples_is_that_of_torch_where_and_clamp() -> None:
    """Three operands at once are not two promotions in a row: clamp(x, min, max) promotes all three."""
    pairs = [p for p in operands() if not isinstance(p[0], Fake) or p[0].dtype in WIDE]
    numbers = [p for p in pairs if not isinstance(p[0], (Fake, Dim, bool))]
    tensors = [p for p in pairs if isinstance(p[0], Fake)]
    for (x, tx), (low, tlow), (high, thigh) in itertools.product(tensors, numbers, numbers):
        assert TORCH[result_type(x, low, high)] == torch.clamp(tx.zero_(), tlow, thigh).dtype  # type: ignore


def test_numbers_alone() -> None:
    assert result_type(1, 2) == dt.i64
    assert result_type(True, False) == dt.bool_
    assert result_type(1, 2.0) == dt.f32


def test_promote_types_is_torchs() -> None:
    for left, right in itertools.product(TORCH, repeat=2):
        try:
            expected = torch.promote_types(TORCH[left], TORCH[right])
        except RuntimeError:
            with pytest.raises(DTypeError, match="cast"):
                promote_types(left, right)
            continue
        assert TORCH[promote_types(left, right)] == expected


def test_fp4_does_not_promote() -> None:
    assert promote_types(dt.f4e2m1, dt.f4e2m1) == dt.f4e2m1
    with pytest.raises(DTypeError, match="f4e2m1"):
        promote_types(dt.f4e2m1, dt.f32)


@pytest.mark.parametrize("dtype", [d for d in WIDE if d.is_integer], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "value", [0, 1, -1, 127, 128, 200, -129, 255, 256, 300, 2**31, -(2**31) - 1, 2**63 - 1]
)
def test_wrapped_numbers_are_what_torch_adds(dtype: dt.DType, value: int) -> None:
    zero = torch.zeros(1, dtype=TORCH[dtype])
    assert wrap_number(value, dtype) == int((zero + value)[0])


@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "value",
    [
        0,
        1,
        -1,
        -2.7,
        127,
        128,
        2.7,
        255,
        256,
        -255,
        -256,
        1e30,
        -1e39,
        65519,
        65530.0,
        float("-inf"),
        float("nan"),
        True,
    ],
)
def test_fill_numbers_are_what_torch_fills(dtype: dt.DType, value: float) -> None:
    """torch.full takes any float into f16 and bf16; masked_fill, pad and clamp look at the dtype itself."""
    checked_as = dt.f64 if dtype in (dt.f16, dt.bf16) else dtype
    zero = torch.zeros(1, dtype=TORCH[dtype])
    check_fill(dtype, value, checked_as, lambda: torch.full((1,), value, dtype=TORCH[dtype]))
    check_fill(dtype, value, None, lambda: zero.masked_fill(zero == 0, value))


def check_fill(
    dtype: dt.DType, value: float, checked_as: dt.DType | None, filled: Callable[[], torch.Tensor]
) -> None:
    try:
        expected = filled()
    except RuntimeError:
        with pytest.raises(ScalarError):
            fill_number(value, dtype, checked_as)
        return
    got = torch.tensor([fill_number(value, dtype, checked_as)], dtype=torch.float64).to(TORCH[dtype])
    assert torch.equal(got, expected) or (value != value and bool(got.isnan()))


def test_an_integer_of_more_than_64_bits_is_refused() -> None:
    for dtype in (dt.i64, dt.f32):
        with pytest.raises(ScalarError, match="64 bits"):
            wrap_number(2**70, dtype)


@pytest.mark.parametrize("half", [dt.f16, dt.bf16], ids=lambda d: d.name)
def test_which_operations_keep_a_number_wide(half: dt.DType) -> None:
    """Decided by bits: multiply by 0.1 as it is and by 0.1 rounded to the half format, and see which torch does."""
    operations = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "floor_divide": torch.floor_divide,
        "trunc_divide": lambda x, s: torch.div(x, s, rounding_mode="trunc"),
        "remainder": torch.remainder,
        "fmod": torch.fmod,
        "pow": torch.pow,
    }
    x = torch.linspace(0.1, 50, 4000).to(TORCH[half])
    for name, operation in operations.items():
        for number in (0.1, 3.3):
            wide = operation(x.float(), torch.tensor(number)).to(TORCH[half])
            narrow = operation(x.float(), torch.tensor(number).to(TORCH[half]).float()).to(TORCH[half])
            got = operation(x, number)
            assert not torch.equal(wide, narrow)
            assert torch.equal(got, wide) == computes_wide(name, half, number), name
            assert torch.equal(got, narrow) != computes_wide(name, half, number), name
    assert not computes_wide("mul", dt.f32, 0.1)
    assert computes_wide("mul", half, Fake(dt.f32, ()))
    assert not computes_wide("mul", half, Fake(half, ()))
    assert not computes_wide("mul", half, Fake(dt.f32, (dim("s"),)))
