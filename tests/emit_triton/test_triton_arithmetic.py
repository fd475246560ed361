"""Each elementwise primitive as Triton text against the interpreter: every dtype, edges first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dtype import (
    DType,
    bf16,
    bool_,
    f4e2m1,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    to_bits,
    u8,
)
from luminal.emit_triton.kernel import Options
from luminal.errors import UnsupportedTargetError
from tests.emit_triton.support import compare, elementwise, emit
from tests.emit_triton.support import run as run_region

FLOATS, INTEGERS = (f64, f32, f16, bf16), (i64, i32, i16, i8, u8)
SCHEDULE = "out0: i:*:parallel i:64:block"
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 3.5, 0.5, -0.5, 7.0, -7.0, 100.25, 1e-40, -1e-42, 3e4, -3e9,
    2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 1e30, np.inf, -np.inf, np.nan,
]  # fmt: skip
WHOLE = [0, 1, -1, 2, 3, 7, -7, 31, 32, 63, 64, -64, 100, 127, -128]


def edges(dtype: DType) -> np.ndarray:
    if dtype.is_bool:
        return np.array([False, True])
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return np.array(EDGES).astype(np.float32 if dtype.bits < 32 else dtype.numpy).astype(dtype.numpy)
        limits = [int(dtype.lowest), int(dtype.highest)]
        return np.array([n for n in WHOLE + limits if dtype.lowest <= n <= dtype.highest], dtype.numpy)


def pairs(dtype: DType) -> list[np.ndarray]:
    values = edges(dtype)
    found = list(itertools.product(range(len(values)), repeat=2))
    return [values[[pair[position] for pair in found]] for position in range(2)]


def run(
    op: str,
    variant: str | None,
    inputs: list[np.ndarray],
    dtypes: list[DType],
    result: DType,
    tolerance: float = 0,
    options: Options = Options(),
) -> None:
    """One operation on the given inputs, which gives what the interpreter of primitives gives."""
    region = elementwise(
        len(inputs[0]), lambda table, loads: table.apply(op, tuple(loads), variant, result), dtypes
    )
    got = run_region(region, emit(region, SCHEDULE, options=options), inputs, {})
    compare(got, [evaluate_elementwise(op, variant, inputs, result)], tolerance)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
def test_sums_products_and_extrema(op: str, dtype: DType) -> None:
    run(op, None, pairs(dtype), [dtype, dtype], dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_division(dtype: DType) -> None:
    for rounding in ("none",) if dtype.is_float else ("trunc", "floor"):
        run("recip", rounding, pairs(dtype), [dtype, dtype], dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("sign", ["trunc", "floor"])
def test_remainders(sign: str, dtype: DType) -> None:
    run("mod", sign, pairs(dtype), [dtype, dtype], dtype)


def test_remainders_of_f64_are_exact_however_far_apart_the_numbers_are() -> None:
    rng = np.random.default_rng(0)
    mantissas, exponents = rng.uniform(1, 2, (2, 60)), rng.integers(-1074, 1024, (2, 60))
    values = np.ldexp(mantissas, exponents)
    values[:, :3] = [[1.7976931348623157e308, 1.7976931348623157e308, 5e-324], [5e-324, 3e-323, 1e308]]
    run("mod", "trunc", [*values], [f64, f64], f64)


@pytest.mark.parametrize("dtype", [*INTEGERS, bool_], ids=str)
def test_bits(dtype: DType) -> None:
    for kind in ("and", "or", "xor") if dtype.is_bool else ("and", "or", "xor", "shl", "shr"):
        run("bits", kind, pairs(dtype), [dtype, dtype], dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, bool_], ids=str)
@pytest.mark.parametrize("predicate", ["lt", "le", "eq", "ne"])
def test_comparisons(predicate: str, dtype: DType) -> None:
    run("less_than", predicate, pairs(dtype), [dtype, dtype], bool_)


SHORT = (f8e4m3fn, f8e5m2, f4e2m1)
NATIVE = Options(eights=frozenset({"f8e4m3fn", "f8e5m2"}))


def all_of(dtype: DType) -> np.ndarray:
    """Every number of a short float; the edges of another dtype, and for f32 what lies between such numbers."""
    if dtype in SHORT:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    if dtype is not f32:
        return edges(dtype)
    near = [all_of(short).astype(np.float32) for short in SHORT]
    halves = [(x[1:] + x[:-1]) / 2 for x in map(np.unique, near)]
    ties = np.concatenate([*near, *halves])
    return np.concatenate([edges(f32), ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])


@pytest.mark.parametrize("to", [*FLOATS, *INTEGERS, bool_, *SHORT], ids=str)
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, bool_, *SHORT], ids=str)
def test_casts(source: DType, to: DType) -> None:
    """Short floats natively, and by their bits."""
    for options in (NATIVE, Options()) if {source, to} & {*SHORT} else (NATIVE,):
        run("cast", "none", [all_of(source)], [source], to, options=options)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_short_floats_that_move_keep_their_bits(dtype: DType) -> None:
    values = all_of(dtype)
    region = elementwise(
        len(values),
        lambda table, x: table.apply(
            "select", (x[1], x[0], table.constant(to_bits(1, dtype), dtype)), None, dtype
        ),
        [dtype, bool_],
    )
    for options in (NATIVE, Options()):
        flags = np.arange(len(values)) % 3 > 0
        (got,) = run_region(region, emit(region, SCHEDULE, options=options), [values, flags], {})
        wanted = np.where(flags, values.view(np.uint8), to_bits(1, dtype))
        np.testing.assert_array_equal(got.view(np.uint8), wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "trunc", "even"])
def test_whole_numbers(rounding: str, dtype: DType) -> None:
    run("cast", rounding, [edges(dtype)], [dtype], dtype)


@pytest.mark.parametrize(
    ("source", "to"), [(f32, i32), (i32, f32), (f64, i64), (i16, bf16), (u8, f8e5m2)], ids=str
)
def test_the_same_bits(source: DType, to: DType) -> None:
    run("cast", "bits", [edges(source)], [source], to)


FUNCTIONS = [
    ("log2", "2"), ("log2", "e"), ("log2", "10"), ("exp2", "2"), ("exp2", "e"), ("sin", "sin"), ("sin", "cos"),
    ("sqrt", None),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("op", "variant"), FUNCTIONS)
def test_functions(op: str, variant: str | None, dtype: DType) -> None:
    """NumPy stands in for the device's functions here: what this holds is the spelling, its edges, and that of exp."""
    usual = [value for value in EDGES if abs(value) < 1e4 or not np.isfinite(value)]
    values = np.array([*usual, *np.linspace(-90, 90, 200)], np.float32).astype(dtype.numpy)
    run(
        op, variant, [values], [dtype], dtype, tolerance={f64: 1e-14, f32: 3e-7, f16: 1e-3, bf16: 8e-3}[dtype]
    )


def test_minus_zero_is_kept() -> None:
    """What assert_array_equal does not see."""
    zero = np.array([-0.0], np.float32)
    for op, variant in (("cast", "floor"), ("cast", "even"), ("cast", "trunc")):
        region = elementwise(1, lambda table, x, o=op, v=variant: table.apply(o, (x[0],), v, f32))
        from tests.emit_triton.support import emit
        from tests.emit_triton.support import run as run_region

        (got,) = run_region(region, emit(region, "out0: i:1"), [zero], {})
        assert np.signbit(got[0]), variant


def test_small_exponentials_are_not_flushed() -> None:
    values = np.linspace(-150, -80, 300).astype(np.float32)
    least = np.finfo(np.float32).smallest_subnormal
    for variant, scale in (("2", 1.0), ("e", np.log(2.0))):
        x = (values * scale).astype(np.float32)
        region = elementwise(300, lambda table, loads, v=variant: table.apply("exp2", (loads[0],), v, f32))
        kernels = emit(region, SCHEDULE)
        assert "-126.0" in kernels[0].source
        (got,) = run_region(region, kernels, [x], {})
        wanted = np.exp2(x.astype(np.float64)) if variant == "2" else np.exp(x.astype(np.float64))
        assert (np.abs(got - wanted) <= wanted * 3e-7 + least).all()


def test_what_triton_has_not_is_refused() -> None:
    with pytest.raises(UnsupportedTargetError, match="the one of floats is 'none'"):
        run("recip", "floor", pairs(f32), [f32, f32], f32)


def test_what_fp8_cannot_compute_is_refused() -> None:
    with pytest.raises(UnsupportedTargetError, match="it stores and does not compute"):
        run("add", None, [edges(f8e5m2)] * 2, [f8e5m2, f8e5m2], f8e5m2)
