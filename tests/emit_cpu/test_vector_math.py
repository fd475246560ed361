"""The vector library against NumPy in a wider type and against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from luminal.emit_cpu.jit import Target, assembly
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value
from luminal.emit_cpu.vector_math import exponential, logarithm, sine
from tests.emit_cpu.kernels import EVERYWHERE, HOST, TARGETS, Loop

FUNCTIONS: dict[str, Callable[[Function, Value, Target], Value]] = {
    "exp2": lambda f, x, target: exponential(f, x, "2", target),
    "exp": lambda f, x, target: exponential(f, x, "e", target),
    "log2": lambda f, x, target: logarithm(f, x, "2"),
    "log": lambda f, x, target: logarithm(f, x, "e"),
    "log10": lambda f, x, target: logarithm(f, x, "10"),
    "sin": lambda f, x, target: sine(f, x, "sin"),
    "cos": lambda f, x, target: sine(f, x, "cos"),
}
BOUNDS = {"exp2": 0.9, "exp": 0.9, "log2": 1.1, "log": 1.1, "log10": 1.1, "sin": 1.6, "cos": 1.6}
DTYPES = {"float": np.float32, "double": np.float64}
WIDER = {"float": np.float64, "double": np.longdouble}
RANGES = [(-110.0, 90.0), (-160.0, 135.0), (-750.0, 1030.0), (0.4, 2.1), (-7.0, 7.0), (-(2.0**18), 2.0**18)]


@cache
def compiled(name: str, element: str, lanes: int, target: Target) -> Loop:
    return Loop([element], element, lanes, target, lambda f, x: FUNCTIONS[name](f, x[0], target))


def ulps(name: str, got: np.ndarray, x: np.ndarray, element: str) -> np.ndarray:
    """Errors in units of the last place of the rounded result, where that is finite; specials are asserted."""
    dtype = DTYPES[element]
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(WIDER[element]))
        rounded = exact.astype(dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        infinite = np.isinf(rounded)
        np.testing.assert_array_equal(got[infinite], rounded[infinite])
        finite = np.isfinite(rounded)
        assert np.isfinite(got[finite]).all()
        unit = np.abs(np.spacing(np.abs(rounded[finite])))
        return np.abs((got[finite].astype(exact.dtype) - exact[finite]) / unit)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", EVERYWHERE, ids=lambda target: target.cpu)
@pytest.mark.parametrize("element", DTYPES)
def test_error_over_the_whole_range(name: str, target: Target, element: str) -> None:
    """Every 4093rd float of all 2^32 (or random f64 patterns), and many in the ranges that matter."""
    rng = np.random.default_rng(0)
    dtype = DTYPES[element]
    if element == "float":
        patterns = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    else:
        patterns = rng.integers(0, 2**64, 1 << 17, dtype=np.uint64).view(np.float64)
    x = np.concatenate([patterns, *(rng.uniform(low, high, 1 << 17).astype(dtype) for low, high in RANGES)])
    got = compiled(name, element, target.lanes(element), target)(x)
    assert ulps(name, got, x, element).max() <= BOUNDS[name]


def specials(dtype: type[np.floating]) -> np.ndarray:
    info = np.finfo(dtype)
    edges = [
        0.0,
        np.inf,
        np.nan,
        info.max,
        info.tiny,
        info.smallest_subnormal,
        info.tiny / 8,
        1.0,
        2.0,
        10.0,
        1000.0,
    ]
    edges += [
        127.5,
        128.0,
        149.0,
        150.0,
        151.0,
        88.72284,
        103.97,
        709.78,
        745.13,
        1023.99,
        1074.5,
        1076.0,
        2.0**17,
    ]
    return np.array([sign * edge for edge in edges for sign in (1, -1)], dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("lanes", [0, 1, 2, 3, 4, 8, 16, 32])
def test_specials_at_every_width(name: str, element: str, lanes: int) -> None:
    x = specials(DTYPES[element])
    got = compiled(name, element, lanes, HOST)(x)
    assert ulps(name, got, x, element).max() <= BOUNDS[name]


def test_signs_of_zero() -> None:
    for element, dtype in DTYPES.items():
        zeros = np.array([0.0, -0.0], dtype)
        np.testing.assert_array_equal(np.signbit(compiled("sin", element, 2, HOST)(zeros)), [False, True])
        assert (compiled("cos", element, 2, HOST)(zeros) == 1).all()
        assert (compiled("log", element, 2, HOST)(zeros) == -np.inf).all()
        ones = compiled("log2", element, 2, HOST)(np.array([1.0, 1.0], dtype))
        np.testing.assert_array_equal(np.signbit(ones), [False, False])


@pytest.mark.parametrize("element", DTYPES)
def test_powers_of_two_are_exact(element: str) -> None:
    """Down into the subnormals."""
    lowest, highest = (-149, 128) if element == "float" else (-1074, 1024)
    n = np.arange(lowest, highest, dtype=DTYPES[element])
    for target in EVERYWHERE:
        lanes = target.lanes(element)
        np.testing.assert_array_equal(
            compiled("exp2", element, lanes, target)(n), np.ldexp(DTYPES[element](1), n.astype(int))
        )
        np.testing.assert_array_equal(
            compiled("log2", element, lanes, target)(np.ldexp(DTYPES[element](1), n.astype(int))), n
        )


@settings(max_examples=200, derandomize=True)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(6381956970095103.0 * 2.0**797)
def test_f64_against_mpmath(x: float) -> None:
    """The hardest argument of cos among doubles is the example: there C's own library is off by 8 ulp."""
    with mpmath.workprec(1400):
        for name in FUNCTIONS:
            if (name.startswith("log") and x <= 0) or (name.startswith("exp") and abs(x) > 700):
                continue
            exact = (
                mpmath.mpf(2) ** x
                if name == "exp2"
                else mpmath.log(x, 2)
                if name == "log2"
                else getattr(mpmath, name)(x)
            )
            got = float(compiled(name, "double", HOST.lanes("double"), HOST)(np.array([x]))[0])
            unit = float(np.spacing(abs(float(exact))))
            bound = 10 if name in ("sin", "cos") and abs(x) > 2**28 else BOUNDS[name]
            assert abs(mpmath.mpf(got) - exact) <= bound * unit, (name, x)


def test_scalef_only_where_the_processor_has_it() -> None:
    wide = Loop(["float"], "float", 16, HOST, lambda f, x: exponential(f, x[0], "e", HOST))
    assert ("scalef" in wide.text) == HOST.has("avx512f")
    portable = Loop(["float"], "float", 8, HOST, lambda f, x: exponential(f, x[0], "e", Target.avx2()))
    assert "scalef" not in portable.text


def test_no_call_on_the_way_of_exp_and_log() -> None:
    for name in ("exp2", "exp", "log2", "log", "log10"):
        assert "call" not in assembly(compiled(name, "float", 8, TARGETS[-1]).text, TARGETS[-1])
