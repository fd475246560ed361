"""Elementwise primitives in machine code, bit for bit: as the interpreter of primitives, and as torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.placed import ROUNDED
from luminal.dtype import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from luminal.emit_cpu.arithmetic import apply_elementwise, memory_element
from luminal.emit_cpu.jit import Target, compile_object
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value
from tests.emit_cpu.kernels import EVERYWHERE, HOST, Loop, Write, loop_text

FLOATS = (f64, f32, f16, bf16)
INTEGERS = (i64, i32, i16, i8, u8)
NUMBERS = (*FLOATS, *INTEGERS)
EXACT: list[tuple[str, str, tuple[DType, ...]]] = [
    ("sqrt", "", FLOATS),
    ("recip", "none", FLOATS),
    ("add", "", NUMBERS),
    ("mul", "", NUMBERS),
    ("mod", "floor", NUMBERS),
    ("mod", "trunc", NUMBERS),
    ("recip", "floor", INTEGERS),
    ("recip", "trunc", INTEGERS),
    *(("bits", kind, (*INTEGERS, bool_)) for kind in ("and", "or", "xor")),
    *(("bits", kind, INTEGERS) for kind in ("shl", "shr")),
    *(("less_than", predicate, (*NUMBERS, bool_)) for predicate in ("lt", "le", "eq", "ne")),
    ("max", "", (*NUMBERS, bool_)),
    ("min", "", (*NUMBERS, bool_)),
]
CASES = [(op, variant, dtype) for op, variant, dtypes in EXACT for dtype in dtypes]


def writer(op: str, variant: str, dtypes: list[DType], result: DType, target: Target) -> Write:
    def write(f: Function, values: list[Value]) -> Value:
        operands = [f.compare("icmp ne", x, 0) if dtype.is_bool else x for x, dtype in zip(values, dtypes)]
        value = apply_elementwise(f, op, variant, operands, dtypes, result, target, False)
        return f.convert("zext", value, "i8") if result.is_bool else value

    return write


def compiled(
    op: str, variant: str, dtypes: list[DType], result: DType, lanes: int = 8, target: Target = HOST
) -> Loop:
    elements = [memory_element(dtype) for dtype in dtypes]
    return Loop(elements, memory_element(result), lanes, target, writer(op, variant, dtypes, result, target))


def values_of(dtype: DType) -> np.ndarray:
    """Every small pattern, or edges and a spread of patterns of a wide type."""
    if dtype.is_bool:
        return np.array([False, True])
    bits = dtype.bits
    if bits == 8:
        return np.arange(256, dtype=np.uint8).view(dtype.numpy)
    edges = [0, 1, 2, 3, 7, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    if dtype.is_float:
        info = {64: (52, 0x7FF), 32: (23, 0xFF), 16: (10, 0x1F) if dtype is f16 else (7, 0xFF)}[bits]
        top = info[1] << info[0]
        edges += [
            top,
            top | 1 << (bits - 1),
            top + (1 << (info[0] - 1)),
            1 << info[0],
            (info[1] >> 1) << info[0],
            5,
        ]
        edges += [1 << (bits - 1) | 5, (info[1] >> 1) << info[0] | 1 << (bits - 1), top - 1]
    rng = np.random.default_rng(3)
    spread = rng.integers(0, 1 << min(bits, 63), 40, dtype=np.uint64)
    near = rng.integers(0, 20, 20).astype(dtype.numpy).view(f"u{bits // 8}").astype(np.uint64)
    patterns = np.concatenate([np.array(edges, np.uint64), spread, near])
    return patterns.astype(f"u{bits // 8}").view(dtype.numpy)


def pairs(dtype: DType, divisor: bool) -> tuple[np.ndarray, np.ndarray]:
    values = values_of(dtype)
    left, right = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    if divisor and dtype.is_integer:
        right[right == 0] = 1
    return left, right


def assert_same(got: np.ndarray, expected: np.ndarray, dtype: DType) -> None:
    """Equal bits; one NaN is as good as another."""
    if dtype.is_float:
        nan = np.isnan(expected.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
        got, expected = got[~nan], expected[~nan]
    view = f"u{dtype.size_bytes}"
    np.testing.assert_array_equal(got.view(view), expected.astype(dtype.numpy).view(view))


@pytest.mark.parametrize("op, variant, dtype", CASES, ids=lambda value: str(value))
def test_exact_primitives_on_edges(op: str, variant: str, dtype: DType) -> None:
    result = bool_ if op == "less_than" else dtype
    if op == "sqrt":
        operands = [values_of(dtype)]
    else:
        operands = list(pairs(dtype, op == "mod" or variant in ("floor", "trunc")))
    expected = evaluate_elementwise(op, variant or None, operands, result)
    for target in EVERYWHERE:
        got = compiled(op, variant, [dtype] * len(operands), result, 8, target)(*operands, dtype=result.numpy)
        if op in ("max", "min") and dtype.is_float:
            differ = (expected != 0) | (got != 0)  # of equal zeros either may win, as in torch
            assert_same(got[differ], expected[differ], result)
        else:
            assert_same(got, expected, result)


@pytest.mark.parametrize("source", [*NUMBERS, bool_], ids=str)
@pytest.mark.parametrize("to", [*NUMBERS, bool_], ids=str)
def test_casts_are_torchs(source: DType, to: DType) -> None:
    values = values_of(source)
    if source.is_float:
        more = [
            1e10,
            -1e10,
            3e9,
            2147483648.5,
            -2147483648.5,
            300.9,
            -129.5,
            0.5,
            2.5,
            1e20,
            65519.0,
            65520.0,
            1e-41,
        ]
        with np.errstate(over="ignore"):
            values = np.concatenate([values, np.array(more).astype(source.numpy)])
    raw = torch.from_numpy(
        values.view(np.uint8) if source.is_bool else values.view(f"i{source.size_bytes}").copy()
    )
    expected = raw.view(source.torch).to(to.torch)
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[to.size_bytes]
    wanted = expected.view(carrier).numpy().view(to.numpy)
    for target in EVERYWHERE:
        for lanes in (0, 8):
            got = compiled("cast", "none", [source], to, lanes, target)(values, dtype=to.numpy)
            assert_same(got, wanted, to)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("subnormals", [0, 1, 3])
def test_vectors_are_rounded_to_bf16_as_torchs(lanes: int, subnormals: int) -> None:
    """Also where some lanes are subnormal, which AVX-512's own conversion flushes; every other value is a tie."""
    rng = np.random.default_rng(subnormals)
    bits = rng.integers(0, 1 << 32, (256, lanes), dtype=np.uint64).astype(np.uint32)
    bits[(bits & 0x7F800000) == 0] += 0x00800000
    bits[:, :subnormals] &= 0x807FFFFF
    bits[:, ::2] = bits[:, ::2] & 0xFFFF0000 | 0x8000
    values = bits.view(np.float32).ravel()
    wanted = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(bf16.numpy)
    got = compiled("cast", "none", [f32], bf16, lanes, HOST)(values, dtype=bf16.numpy)
    assert_same(got, wanted, bf16)


@pytest.mark.parametrize(
    "op, variant, dtypes", [*EXACT, ("exp2", "e", FLOATS), ("sin", "cos", FLOATS), ("log2", "10", FLOATS)]
)
def test_every_primitive_compiles_for_aarch64(op: str, variant: str, dtypes: tuple[DType, ...]) -> None:
    target = Target.aarch64()
    for dtype in dtypes:
        operands = [dtype] * (1 if op in ("sqrt", "exp2", "sin", "log2") else 2)
        result = bool_ if op == "less_than" else dtype
        elements = [memory_element(x) for x in operands]
        text = loop_text(elements, memory_element(result), 4, writer(op, variant, operands, result, target))
        assert compile_object(text, target).startswith(b"\x7fELF")


@pytest.mark.parametrize("rounding", ["floor", "ceil", "trunc", "even"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_to_integral_values(rounding: str, dtype: DType) -> None:
    values = np.concatenate([values_of(dtype), np.linspace(-4, 4, 33).astype(dtype.numpy)])
    expected = evaluate_elementwise("cast", rounding, [values], dtype)
    assert_same(compiled("cast", rounding, [dtype], dtype)(values), expected, dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_by_zero_does_not_trap(dtype: DType) -> None:
    a = values_of(dtype)
    zeros = np.zeros_like(a)
    for rounding in ("floor", "trunc"):
        assert (compiled("recip", rounding, [dtype] * 2, dtype)(a, zeros) == 0).all()
        np.testing.assert_array_equal(compiled("mod", rounding, [dtype] * 2, dtype)(a, zeros), a)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_select_takes_bits(dtype: DType) -> None:
    values = values_of(dtype)
    flags = np.arange(len(values)) % 2 == 0
    got = compiled("select", "", [bool_, dtype, dtype], dtype)(
        flags, values, values[::-1].copy(), dtype=dtype.numpy
    )
    view = f"u{dtype.size_bytes}"
    np.testing.assert_array_equal(got.view(view), np.where(flags, values.view(view), values[::-1].view(view)))


@settings(max_examples=60, derandomize=True)
@given(hypothesis_numpy.arrays(np.float32, 32, elements=st.floats(width=32)))
def test_float_modulo(x: np.ndarray) -> None:
    y = np.roll(x, 1)
    for sign in ("trunc", "floor"):
        expected = evaluate_elementwise("mod", sign, [x, y], f32)
        assert_same(FLOAT_MODULO[sign](x, y), expected, f32)


FLOAT_MODULO = {sign: compiled("mod", sign, [f32, f32], f32) for sign in ("trunc", "floor")}


def test_the_emitter_refuses_what_it_has_no_registers_for() -> None:
    with pytest.raises(KeyError):
        memory_element(DTYPES["f8e5m2"])


@pytest.mark.parametrize("target", EVERYWHERE, ids=lambda target: target.cpu)
@pytest.mark.parametrize("lanes", [0, 4])
def test_no_sum_takes_in_what_is_rounded(target: Target, lanes: int) -> None:
    """x * x - round(x * x) is 0, and exp(inf) - inf is NaN, where the sum may be contracted."""

    def sum_of(op: str, variant: str) -> Write:
        def write(f: Function, x: list[Value]) -> Value:
            operands = [x[0], x[0]] if op == "mul" else [x[0]]
            first = apply_elementwise(f, op, variant, operands, [f32] * len(operands), f32, target, True)
            return apply_elementwise(f, "add", "", [first, x[1]], [f32, f32], f32, target, True)

        return write

    x = np.full(8, 1 + 2**-13, np.float32)
    product = Loop(["float"] * 2, "float", lanes, target, sum_of("mul", ROUNDED))
    np.testing.assert_array_equal(product(x, -(x * x)), 0)
    x = np.full(8, np.inf, np.float32)
    assert np.isnan(Loop(["float"] * 2, "float", lanes, target, sum_of("exp2", "e"))(x, -x)).all()
