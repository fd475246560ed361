"""Every elementwise method and operator against torch, over all dtypes, shapes and special values."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from api_harness import (
    DTYPES,
    FLOATS,
    Case,
    both,
    check,
    compare,
    few,
    for_examples,
    method,
    random_values,
    small_numbers,
)
from hypothesis import strategies as st

import luminal.dtype as dt
from luminal.dim import dim
from luminal.graph import Graph
from luminal.runtimes.protocol import Runtime
from luminal.tensor import where

MakeRuntime = Callable[[], Runtime]

KEPT = ("abs", "neg", "sign", "relu", "square", "floor", "ceil", "trunc", "round")
FUNCTIONS = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
)
MORE_FUNCTIONS = (
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "reciprocal",
)
TESTS = ("isnan", "isinf", "isfinite", "logical_not", "bitwise_not")
UNARY = [
    *[method(name, exact=True) for name in (*KEPT, *TESTS)],
    *[method(name) for name in (*FUNCTIONS, *MORE_FUNCTIONS)],
    both("-x", operator.neg, True),
    both("+x", operator.pos, True),
    both("~x", operator.invert, True),
    both("abs(x)", abs, True),
]
# Next to zero PyTorch's own results have lost their digits, and at the largest number it overflows.
ACTIVATIONS = [
    Case("silu", lambda x: x.silu(), F.silu, absolute=1.0),
    Case("gelu", lambda x: x.gelu(), F.gelu, absolute=1.0),
    Case(
        "gelu tanh",
        lambda x: x.gelu(approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        absolute=1.0,
    ),
]

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unary(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    @for_examples(make_runtime, 4, shape=SHAPES, seed=st.integers(0, 99), symbolic=st.booleans())
    def _(shape: tuple[int, ...], seed: int, symbolic: bool) -> None:
        check(make_runtime, UNARY, [random_values(dtype, shape, seed)], symbolic=symbolic)
        check(
            make_runtime, ACTIVATIONS, [random_values(dtype, shape, seed, special=False)], symbolic=symbolic
        )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_round_to_decimals(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = random_values(dtype, (40,), 0, special=False)
    check(
        make_runtime,
        [method("round", decimals=1), method("round", decimals=-1), method("round", decimals=0)],
        [x],
    )


CASTS = st.lists(st.integers(0, 4), max_size=2).map(tuple)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_casts(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    """Floats truncate towards zero, integers wrap, bool is != 0. (NaN as an integer has no value.)"""
    cases = [
        Case(f"to {target}", lambda x, t=target: x.cast(t), lambda x, t=target: x.to(t.torch), True)
        for target in DTYPES
    ]
    check(make_runtime, cases, [small_numbers(dtype, (5, 7), 1)])
    if not dtype.is_float:
        check(make_runtime, cases, [random_values(dtype, (5, 7), 2)])
    else:
        wide = [case for case in cases if any(case.name == f"to {target}" for target in (*FLOATS, dt.bool_))]
        check(make_runtime, wide, [random_values(dtype, (5, 7), 2)])


def test_bits_of_another_dtype(make_runtime: MakeRuntime) -> None:
    x = random_values(dt.f32, (3, 5), 3)
    cases = [
        both("int32", lambda x: x.view(torch.int32)),
        both("and back", lambda x: x.view(torch.int32).view(x.dtype)),
    ]
    assert check(make_runtime, cases, [x]) == 2


ARITHMETIC = [
    both("add", lambda x, y: x.add(y), True),
    both("sub", lambda x, y: x.sub(y), True),
    both("mul", lambda x, y: x.mul(y), True),
    both("div", lambda x, y: x.div(y)),
    Case("maximum", lambda x, y: x.maximum(y), lambda x, y: x.maximum(y), True, zeros=False),
    Case("minimum", lambda x, y: x.minimum(y), lambda x, y: x.minimum(y), True, zeros=False),
    both("atan2", lambda x, y: x.atan2(y)),
    *[
        both(name, lambda x, y, f=getattr(operator, name): f(x, y), True)
        for name in ["eq", "ne", "lt", "le", "gt", "ge"]
    ],
    *[both(name, lambda x, y, f=getattr(operator, name): f(x, y), True) for name in ("and_", "or_", "xor")],
    *[
        both(name, lambda x, y, n=name: getattr(x, n)(y), True)
        for name in ["logical_and", "logical_or", "logical_xor"]
    ],
    Case("where", lambda x, y: where(x > y, x, y), lambda x, y: torch.where(x > y, x, y), True),
    both("x.where(c, y)", lambda x, y: x.where(x == x, y), True),
]
# PyTorch rounds the quotient of narrow floats before it takes its whole part; the keep-wide licence need not. Its
# remainders of floats are off by units in the last place.
QUOTIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": lambda x, y: x.floor_divide(y),
    "div floor": lambda x, y: x.div(y, rounding_mode="floor"),
    "div trunc": lambda x, y: x.div(y, rounding_mode="trunc"),
    "x // y": operator.floordiv,
}
REMAINDERS: dict[str, Callable[[Any, Any], Any]] = {
    "remainder": lambda x, y: x.remainder(y),
    "fmod": lambda x, y: x.fmod(y),
    "x % y": operator.mod,
}
DIVISION = [
    *[Case(name, function, function, exact=True, halves=False) for name, function in QUOTIENTS.items()],
    *[Case(name, function, function, absolute=1.0) for name, function in REMAINDERS.items()],
]


def broadcasting(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    pair: list[tuple[int, ...]] = []
    for _ in range(2):
        own = [1 if draw(st.integers(0, 3)) == 0 else size for size in shape]
        pair.append(tuple(own[draw(st.integers(0, len(own))) :]))
    return pair[0], pair[1]


PAIRS_OF_SHAPES = st.composite(broadcasting)()


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_binary_with_broadcasting_and_promotion(make_runtime: MakeRuntime, left: dt.DType) -> None:
    @for_examples(make_runtime, 3, shapes=PAIRS_OF_SHAPES, seed=st.integers(0, 99), symbolic=st.booleans())
    def _(shapes: tuple[tuple[int, ...], tuple[int, ...]], seed: int, symbolic: bool) -> None:
        for right in few(make_runtime, DTYPES, 3):
            pair = [random_values(left, shapes[0], seed), random_values(right, shapes[1], seed + 1)]
            check(make_runtime, ARITHMETIC, pair, symbolic=symbolic)


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_division_and_remainders(make_runtime: MakeRuntime, left: dt.DType) -> None:
    for right in few(make_runtime, DTYPES, 4):
        x, y = (
            random_values(left, (6, 8), 5),
            random_values(right, (6, 8), 6, special=False),
        )
        x = torch.where(x.double().abs() < 1e3, x, torch.ones_like(x))
        if not (left.is_float or right.is_float):
            y = torch.where(y == 0, torch.ones_like(y), y)
        check(make_runtime, DIVISION, [x, y])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_integer], ids=str)
def test_shifts(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = random_values(dtype, (50,), 7)
    count = torch.arange(50).remainder(dtype.bits).to(dtype.torch)
    cases = [
        both("x << y", operator.lshift, True),
        both("x >> y", operator.rshift, True),
        both("left", lambda x, y: x.bitwise_left_shift(y), True),
        both("right", lambda x, y: x.bitwise_right_shift(y), True),
        both("x << 2", lambda x, y: x << 2, True),
        both("x >> 2", lambda x, y: x >> 2, True),
        both("3 << y", lambda x, y: 3 << (y & 3), True),
        both("100 >> y", lambda x, y: 100 >> y, True),
    ]
    check(make_runtime, cases, [x, count])


NUMBERS = [2, -3, 0, -0.0, 1, 200, True, 0.5, -2.5, 3.3, 1e30, float("inf")]


def with_number(number: float) -> list[Case]:
    return [
        both(f"x + {number}", lambda x: x + number, True),
        both(f"{number} + x", lambda x: number + x, True),
        both(f"x - {number}", lambda x: x - number, True),
        both(f"{number} - x", lambda x: number - x, True),
        both(f"x * {number}", lambda x: x * number, True),
        both(f"{number} * x", lambda x: number * x, True),
        both(f"x / {number}", lambda x: x / number),
        both(f"{number} / x", lambda x: number / x),
        both(f"{number} < x", lambda x: number < x, True),
        both(f"x <= {number}", lambda x: x <= number, True),
        both(f"x == {number}", lambda x: x == number, True),
        both(f"x != {number}", lambda x: x != number, True),
        both(f"x & {number}", lambda x: x & number, True),
        both(f"{number} | x", lambda x: number | x, True),
        both(f"x ^ {number}", lambda x: x ^ number, True),
        both(f"clamp(min={number})", lambda x: x.clamp(min=number), True),
        both(f"clamp(1, {number})", lambda x: x.clamp(1, number), True),
        Case("where", lambda x: where(x > 1, x, number), lambda x: torch.where(x > 1, x, number), True),
        both(f"masked_fill {number}", lambda x: x.masked_fill(x == 1, number), True),
        both(f"add alpha {number}", lambda x: x.add(x, alpha=number)),
        both(f"x ** {number}", lambda x: x**number),
    ]


def divided_by(number: float) -> list[Case]:
    return [
        both(f"x // {number}", lambda x: x // number, True),
        replace(both(f"x % {number}", lambda x: x % number), absolute=1.0),
        replace(both(f"fmod {number}", lambda x: x.fmod(number)), absolute=1.0),
    ]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_numbers_on_both_sides(make_runtime: MakeRuntime, number: float) -> None:
    for dtype in few(make_runtime, DTYPES, 3):
        x = random_values(dtype, (60,), 8)
        check(make_runtime, with_number(number), [x])
        # Of large quotients PyTorch's own fmod is NaN or right, depending on the element's position.
        check(make_runtime, divided_by(number), [torch.where(x.double().abs() < 1e4, x, torch.ones_like(x))])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.is_bool], ids=str)
def test_numbers_divided_by_tensors(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = random_values(dtype, (60,), 9, special=dtype.is_float)
    x = torch.where((x == 0) | (x.double().abs() < 1e-4), torch.ones_like(x), x)
    cases = [
        both("7 // x", lambda x: 7 // x, True),
        both("-7 % x", lambda x: -7 % x),
        both("7.5 // x", lambda x: 7.5 // x, True),
        both("-7.5 % x", lambda x: -7.5 % x),
    ]
    check(make_runtime, [replace(case, halves=False, absolute=1.0) for case in cases], [x])


EXPONENTS = [2, 3, 4, 1, 0, 0.5, -0.5, -1, -2, 2.5, -3]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_powers(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = random_values(dtype, (80,), 10)
    check(make_runtime, [both(f"x ** {e}", lambda x, e=e: x**e) for e in EXPONENTS], [x])
    check(make_runtime, [both(f"{b} ** x", lambda x, b=b: b**x) for b in (2, 0.5, -1, 1, 0, 3.5)], [x])


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_powers_of_tensors(make_runtime: MakeRuntime, left: dt.DType) -> None:
    for right in few(make_runtime, DTYPES, 4):
        x, y = (
            random_values(left, (80,), 11, special=left.is_float),
            random_values(right, (80,), 12, special=False),
        )
        check(make_runtime, [both("x ** y", operator.pow)], [x, y])


@pytest.mark.parametrize("half", [dt.f16, dt.bf16], ids=str)
def test_numbers_beside_half_floats_are_rounded_when_torch_rounds_them(
    make_runtime: MakeRuntime, half: dt.DType
) -> None:
    """x * 0.1 keeps 0.1 in f32, x + 0.1 rounds it first: to the bit as torch has it."""
    x = random_values(half, (500,), 13, special=False)
    scalar = torch.tensor(0.1)
    cases = [
        both("x + 0.1", lambda x, s: x + 0.1, True),
        both("x * 0.1", lambda x, s: x * 0.1, True),
        both("0.1 * x", lambda x, s: 0.1 * x, True),
        both("x / 0.3", lambda x, s: x / 0.3, True),
        both("x // 0.3", lambda x, s: x // 0.3, True),
        both("x * s", lambda x, s: x * s, True),
        both("x + s", lambda x, s: x + s, True),
        both("s * x", lambda x, s: s * x, True),
        both("x / s", lambda x, s: x / s, True),
    ]
    check(make_runtime, cases, [x, scalar])


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_scalars_of_rank_0_promote_as_in_torch(make_runtime: MakeRuntime, left: dt.DType) -> None:
    for right in few(make_runtime, DTYPES, 3):
        pair = [random_values(left, (4,), 14), random_values(right, (), 15)]
        check(make_runtime, ARITHMETIC, pair)


def test_clamp_with_tensors_promotes_all_three(make_runtime: MakeRuntime) -> None:
    for low, high in itertools.product([dt.f32, dt.i32, dt.f64], repeat=2):
        x = random_values(dt.i32, (4, 5), 16, special=False)
        bounds = [random_values(low, (5,), 17, special=False), random_values(high, (4, 1), 18, special=False)]
        cases = [
            both("clamp(low, high)", lambda x, low, high: x.clamp(low, high), True),
            both("clamp(max=high)", lambda x, low, high: x.clamp(max=high), True),
        ]
        check(make_runtime, cases, [x, *bounds])


def test_clamp_of_bool_takes_one_tensor(make_runtime: MakeRuntime) -> None:
    """Invariant: what PyTorch refuses of a bool (numbers, two bounds) is refused, one tensor as bound is not."""
    x, bound = (random_values(dt.bool_, (4, 5), seed) for seed in (16, 17))
    cases = [
        both("clamp(min=bound)", lambda x, bound: x.clamp(min=bound), True),
        both("clamp(max=bound)", lambda x, bound: x.clamp(max=bound), True),
        both("clamp(bound, bound)", lambda x, bound: x.clamp(bound, bound), True),
        both("clamp(min=True)", lambda x, bound: x.clamp(min=True), True),
    ]
    assert check(make_runtime, cases, [x, bound]) == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dims_as_operands(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    """A dim is the int that it stands for, on both sides of every operator."""
    expressions = {
        "x + s": lambda x, s: x + s,
        "s + x": lambda x, s: s + x,
        "s * x": lambda x, s: s * x,
        "s - x": lambda x, s: s - x,
        "x - (2 * s + 1)": lambda x, s: x - (2 * s + 1),
        "x / s": lambda x, s: x / s,
        "s / x": lambda x, s: s / (abs(x) + 1),
        "x // s": lambda x, s: x // s,
        "x % s": lambda x, s: x % s,
        "x < s": lambda x, s: x < s,
        "s < x": lambda x, s: s < x,
        "s == x": lambda x, s: s == x,
        "x ** s": lambda x, s: x**s,
        "maximum": lambda x, s: (x + 0).maximum(s if not isinstance(s, int) else torch.tensor(s)),
    }
    size = 3
    x = small_numbers(dtype, (size, 4), 19)
    graph = Graph()
    symbol = dim("s", 1, 10)
    own = graph.tensor((symbol, 4), dtype, "x")
    results = []
    for name, function in expressions.items():
        try:
            wanted = function(x, size)
        except RuntimeError:
            continue
        results.append((name, function(own, symbol).output(), wanted))
    runtime = make_runtime()
    graph.build_search_space(type(runtime))
    graph.search(runtime, 1).set_data(own, x)
    graph.set_dim("s", size)
    runtime.execute(graph.dyn_map)
    assert results
    for name, tensor, wanted in results:
        compare(name, runtime.get_numpy(tensor), wanted)
