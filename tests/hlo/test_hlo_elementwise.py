"""Elementwise hlo ops against PyTorch: bit for bit where eager has a defined bit, within ulps where it has none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hlo_harness import check, run, to_array, ulps
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from luminal.errors import DivisionByZeroError

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1e-40,
    -1e-30,
    7.5,
    -7.5,
]


def floats(dtype: torch.dtype) -> torch.Tensor:
    """Special values, and random ones of many sizes."""
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(200, generator=generator, dtype=torch.float64)
    scale = torch.exp(torch.rand(200, generator=generator, dtype=torch.float64) * 8 - 4)
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), random * scale]).to(dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every special value with every other, as two vectors."""
    values = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    return values.repeat_interleave(len(values)), values.repeat(len(values))


def integers(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    info = torch.iinfo(dtype)
    values = torch.tensor([v for v in (info.min, -7, -2, -1, 0, 1, 2, 3, 9, info.max) if v >= info.min]).to(
        dtype
    )
    return values.repeat_interleave(len(values)), values.repeat(len(values))


# ---- exact -----------------------------------------------------------------------------------------------------

EXACT_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "square": torch.square,
    "relu": torch.relu,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "logical_not": torch.logical_not,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_function_of_a_float(name: str, dtype: torch.dtype) -> None:
    x = floats(dtype)
    check(lambda b, x: b.emit(name, x), [x], EXACT_UNARY[name](x))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["neg", "abs", "sign", "square", "relu", "bitwise_not", "logical_not"])
def test_function_of_an_integer_wraps(name: str, dtype: torch.dtype) -> None:
    x, _ = integers(dtype)
    check(lambda b, x: b.emit(name, x), [x], getattr(torch, name)(x))


EXACT_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "copysign": torch.copysign,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT_BINARY)
def test_exact_operation_on_floats(name: str, dtype: torch.dtype) -> None:
    x, y = pairs(dtype)
    if name in (
        "remainder",
        "fmod",
    ):  # a subnormal divisor gives NaN in PyTorch's vectors and the rest at their ends
        x, y = x[y.abs() != y.new_tensor(1e-40)], y[y.abs() != y.new_tensor(1e-40)]
    check(lambda b, x, y: b.emit(name, x, y), [x, y], EXACT_BINARY[name](x, y))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremum_of_floats_lets_nan_win(name: str) -> None:
    x, y = pairs(torch.float32)  # PyTorch's own sign of max(0.0, -0.0) depends on the position in the tensor
    check(lambda b, x, y: b.emit(name, x, y), [x, y], getattr(torch, name)(x, y), signs=False)


ON_INTEGERS = ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "le", "logical_and", "logical_xor"]
DIVISIONS = ["floor_divide", "trunc_divide", "remainder", "fmod"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [*ON_INTEGERS, *DIVISIONS, "bitwise_and", "bitwise_or", "bitwise_xor"])
def test_operation_on_integers(name: str, dtype: torch.dtype) -> None:
    x, y = integers(dtype)
    if name in DIVISIONS:
        keep = (y != 0) & ~(
            (y == -1) & (x == torch.iinfo(dtype).min)
        )  # the latter traps in PyTorch's own C++
        x, y = x[keep], y[keep]
    function = EXACT_BINARY.get(name) or getattr(torch, name)
    check(lambda b, x, y: b.emit(name, x, y), [x, y], function(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("left", [True, False])
def test_shift_by_any_amount(left: bool, dtype: torch.dtype) -> None:
    x, _ = integers(dtype)
    amounts = torch.tensor([0, 1, 3, torch.iinfo(dtype).bits - 1, torch.iinfo(dtype).bits, 100]).to(dtype)
    x, y = x[:10].repeat_interleave(6), amounts.repeat(10)
    expected = torch.bitwise_left_shift(x, y) if left else torch.bitwise_right_shift(x, y)
    check(lambda b, x, y: b.emit("shift_left" if left else "shift_right", x, y), [x, y], expected)


@pytest.mark.parametrize(
    "name", ["add", "mul", "maximum", "minimum", "bitwise_xor", "eq", "lt", "logical_or"]
)
def test_operation_on_bools(name: str) -> None:
    x, y = torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])
    check(lambda b, x, y: b.emit(name, x, y), [x, y], getattr(torch, name)(x, y))


@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_broadcasting_as_numpy(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
    shapes = [
        [data.draw(st.sampled_from([size, 1])) for size in shape[data.draw(st.integers(0, len(shape))) :]]
        for _ in range(3)
    ]
    condition, x, y = torch.rand(shapes[0]) > 0.5, torch.randn(shapes[1]), torch.randn(shapes[2])
    symbolic = data.draw(st.booleans())
    check(
        lambda b, c, x, y: b.where(c, x, y),
        [condition, x, y],
        torch.where(condition, x, y),
        symbolic=symbolic,
    )
    check(lambda b, x, y: b.add(x, y), [x, y], x + y, symbolic=symbolic)


BOUNDS = [
    (None, 1.0),
    (-1.0, None),
    (-1.0, 1.0),
    (2.0, -2.0),
    (0.0, math.inf),
    (math.nan, 1.0),
    (0.0, math.nan),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_clamp(low: float | None, high: float | None, dtype: torch.dtype) -> None:
    x = floats(dtype)
    check(lambda b, x: b.clamp(x, low=low, high=high), [x], torch.clamp(x, low, high), signs=False)


def test_clamp_keeps_the_negative_zero() -> None:
    x = torch.tensor([-0.0, 0.0])
    check(lambda b, x: b.clamp(x, low=0.0), [x], x)


# ---- powers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1 / 3, 2.5, -3.0, 4, 5.0, math.inf, -math.inf]
)
def test_power_by_a_number(exponent: float) -> None:
    x = floats(torch.float32)
    check(lambda b, x: b.pow_scalar(x, exponent=exponent), [x], torch.pow(x, exponent), relative=2e-7)


def test_power_of_specials() -> None:
    x, y = pairs(torch.float32)
    check(lambda b, x, y: b.pow(x, y), [x, y], torch.pow(x, y), relative=2e-7, absolute=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_power_is_accurate_where_the_result_is_large(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(20000, generator=generator, dtype=dtype) * 4 + 1e-3
    y = torch.randn(20000, generator=generator, dtype=dtype) * 40
    exact = np.power(x.numpy().astype(np.longdouble), y.numpy().astype(np.longdouble))
    near = np.isfinite(exact.astype(x.numpy().dtype)) & (exact > np.finfo(x.numpy().dtype).tiny)
    for level, (found,) in run(lambda b, x, y: b.pow(x, y), [x, y]).items():
        error = np.abs((found[near] - exact[near]) / exact[near]).max() / np.finfo(found.dtype).eps
        assert error < 2.5, f"{level}: {error}"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_power_of_integers(dtype: torch.dtype) -> None:
    x = torch.tensor([-3, -1, 0, 1, 2, 3, 7]).to(dtype).repeat_interleave(7)
    y = torch.tensor([0, 1, 2, 5, 40, 61, -1 if dtype != torch.uint8 else 3]).to(dtype).repeat(7)
    check(lambda b, x, y: b.pow(x, y), [x, y], torch.pow(x, y))
    for exponent in (0, 1, 2, 3, 7, 65):
        check(lambda b, x, e=exponent: b.pow_scalar(x, exponent=e), [x], torch.pow(x, exponent))


# ---- elementary functions --------------------------------------------------------------------------------------

UNIT_RANGE = ("asin", "acos", "atanh")
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], float]] = {
    "exp": (torch.exp, 1),
    "exp2": (torch.exp2, 1),
    "expm1": (torch.expm1, 2),
    "log": (torch.log, 1),
    "log2": (torch.log2, 1),
    "log10": (torch.log10, 1),
    "log1p": (torch.log1p, 2),
    "sin": (torch.sin, 1),
    "cos": (torch.cos, 1),
    "tan": (torch.tan, 2.5),
    "tanh": (torch.tanh, 1.5),
    "sinh": (torch.sinh, 2),
    "cosh": (torch.cosh, 2),
    "asin": (torch.asin, 1.5),
    "acos": (torch.acos, 1.5),
    "atan": (torch.atan, 1.5),
    "asinh": (torch.asinh, 2.5),
    "acosh": (torch.acosh, 2.5),
    "atanh": (torch.atanh, 2.5),
    "sigmoid": (torch.sigmoid, 2.5),
    "silu": (functional.silu, 2.5),
    "erf": (torch.erf, 1.5),
    "sqrt": (torch.sqrt, 0.5),
    "rsqrt": (torch.rsqrt, 1.5),
    "softplus": (functional.softplus, 3),
}
"""PyTorch's function, and the largest error allowed of the decomposition, in ulps of f32."""


def arguments(name: str) -> torch.Tensor:
    generator = np.random.default_rng(5)
    near, wide = generator.standard_normal(20000), generator.standard_normal(20000) * 10
    tiny = np.exp(generator.uniform(-60, 0, 5000)) * generator.choice([-1, 1], 5000)
    x = np.concatenate([near, wide, tiny, np.linspace(0.9, 1.1, 1001), np.linspace(-0.7, -0.5, 1001)])
    if name in UNIT_RANGE:
        x = np.tanh(x)
    if name == "acosh":
        x = 1 + np.abs(x)
    return torch.from_numpy(x.astype(np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_accurate(name: str) -> None:
    function, allowed = FUNCTIONS[name]
    x = arguments(name)
    exact = function(x.double()).numpy()
    fair = np.abs(exact) > 1e-35
    eager = ulps(function(x).numpy(), exact, np.float32)[fair]
    for level, (found,) in run(lambda b, x: b.emit(name, x), [x]).items():
        error = ulps(found, exact, np.float32)[fair]
        assert error.max() <= allowed + 0.01, f"{level}: {error.max()} ulp at {x[fair][error.argmax()]}"
        assert error.mean() <= 1.5 * eager.mean() + 0.01, f"{level}: {error.mean()}, eager {eager.mean()}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_in_double_precision(name: str) -> None:
    x = arguments(name).double() * 1.0000000123
    x = x.clamp(-1, 1) if name in UNIT_RANGE else x.clamp(min=1) if name == "acosh" else x
    check(lambda b, x: b.emit(name, x), [x], FUNCTIONS[name][0](x), relative=2e-15, absolute=1e-300)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_specials(name: str, dtype: torch.dtype) -> None:
    x = torch.cat(
        [floats(dtype)[: len(SPECIAL)], torch.tensor([88.9, -88.9, 89.2, 200.0, -200.0, 6e4]).to(dtype)]
    )
    tolerance = {torch.float64: 1e-14, torch.float32: 5e-7, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    check(
        lambda b, x: b.emit(name, x),
        [x],
        FUNCTIONS[name][0](x),
        relative=tolerance,
        absolute=1e-36 if dtype in (torch.float64, torch.float32) else 1e-7,
    )


def test_zeros_keep_their_sign() -> None:
    x = torch.tensor([0.0, -0.0])
    for name in (
        "expm1",
        "log1p",
        "sin",
        "tan",
        "tanh",
        "sinh",
        "asin",
        "atan",
        "asinh",
        "atanh",
        "erf",
        "sqrt",
        "silu",
    ):
        check(lambda b, x, name=name: b.emit(name, x), [x], FUNCTIONS[name][0](x))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_more_accurate_than_eager(approximate: str) -> None:
    x = arguments("gelu")
    exact = functional.gelu(x.double(), approximate=approximate).numpy()
    eager = np.abs(functional.gelu(x, approximate=approximate).numpy() - exact).max()
    for level, (found,) in run(lambda b, x: b.gelu(x, approximate=approximate), [x]).items():
        assert np.abs(found - exact).max() <= eager, level


def test_gelu_is_accurate_for_its_argument() -> None:
    """Two units of 2^-24 |x|, and three ulp where x is positive; eager's has 4.7 and 8.8."""
    x = arguments("gelu")
    exact = functional.gelu(x.double()).numpy()
    for level, (found,) in run(lambda b, x: b.gelu(x), [x]).items():
        error = np.abs(found - exact)
        assert (error <= 2 * 2.0**-24 * x.abs().double().numpy() + 1e-45).all(), level
        assert ulps(found, exact, np.float32)[x.numpy() > 0].max() <= 3.1, level


def test_gelu_far_from_zero() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 13.0, -13.0, 1e20, -1e20, 3e38, -3e38])
    expected = torch.tensor([math.nan, math.inf, math.nan, 13.0, -0.0, 1e20, -0.0, 3e38, -0.0])
    check(lambda b, x: b.gelu(x), [x], expected, absolute=1e-36)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_specials(approximate: str) -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, -100.0, 1e30], dtype=torch.float64)
    expected = functional.gelu(x, approximate=approximate)
    check(lambda b, x: b.gelu(x, approximate=approximate), [x], expected, relative=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_atan2_in_every_quadrant(dtype: torch.dtype) -> None:
    y, x = pairs(dtype)
    check(
        lambda b, y, x: b.atan2(y, x),
        [y, x],
        torch.atan2(y, x),
        relative=4e-7 if dtype == torch.float32 else 1e-15,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "silu", "gelu", "rsqrt", "expm1", "log1p"])
def test_narrow_floats_round_once(name: str, dtype: torch.dtype) -> None:
    x = (torch.randn(4000, generator=torch.Generator().manual_seed(2)).abs() + 0.1).to(dtype)
    function = functional.gelu if name == "gelu" else FUNCTIONS[name][0]
    once = to_array(function(x.double()).float().to(dtype)).astype(np.float64)
    for level, (found,) in run(lambda b, x: b.emit(name, x), [x]).items():
        wrong = (found.astype(np.float64) != once).mean()
        assert wrong < 0.002, f"{level}: {wrong:.2%} differ from the exact value rounded once"


# ---- conversion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, torch.bool])
@pytest.mark.parametrize("source", [*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool])
def test_cast(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.5, 100.25, -100.75, 3.14159]).to(source)
    check(lambda b, x: b.cast(x, dtype=target), [x], x.to(target))


def test_bitcast_keeps_the_payload_of_nan() -> None:
    x = torch.tensor([0x7FC00123, -4, 0], dtype=torch.int32)
    check(lambda b, x: b.bitcast(b.bitcast(x, dtype="f32"), dtype="i32"), [x], x)


def test_creation() -> None:
    x = torch.zeros(5)

    def build(b: Any, x: Any) -> list[Any]:
        size = x.type.shape[0]
        data = np.arange(6, dtype=np.float32).tobytes()
        return [
            b.full(value=2.5, shape=(size, 2), dtype="bf16"),
            b.iota(shape=(2, size), axis=1),
            b.iota(shape=(size,), axis=0, dtype="f16"),
            b.dim_value(dim=size * 2 + 1),
            b.constant(data=data, shape=(2, 3), dtype="f32"),
        ]

    expected = [
        torch.full((5, 2), 2.5, dtype=torch.bfloat16),
        torch.arange(5).expand(2, 5),
        torch.arange(5, dtype=torch.float16),
        torch.tensor(11),
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
    ]
    for symbolic in (False, True):
        check(build, [x], expected, symbolic=symbolic)


@pytest.mark.parametrize("name", ["floor_divide", "trunc_divide", "remainder", "fmod"])
def test_zero_divides_nothing_without_an_error(name: str) -> None:
    """Invariant: only an element that is divided by zero is an error, not a zero beside an empty tensor."""
    empty, zero = torch.zeros(0, 3, dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    check(lambda b, x, y: b.emit(name, x, y), [empty, zero], empty)
    with pytest.raises(DivisionByZeroError):
        run(lambda b, x, y: b.emit(name, x, y), [torch.ones(3, dtype=torch.int64), zero])
