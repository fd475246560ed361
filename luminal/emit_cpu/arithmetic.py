"""The elementwise primitives and monoids in IR, with PyTorch's meaning on every processor.

In registers a bool is an i1, an f16 or bf16 the i16 of its bits, and u8 an i8; arithmetic of narrow floats
goes through f32 and is rounded once. NaN wins in max and min. Nothing here traps or is poison: integer
division by zero gives 0 and a conversion out of range gives what torch gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

from luminal.dialects.kernel.placed import ROUNDED
from luminal.dtype import DType, bf16, f16, f32
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value, bits_of, constant, constant_bits, lanes_of, vector_of, with_element
from luminal.emit_cpu.vector_math import exponential, logarithm, rounded, sine

REGISTERS = {
    "f64": "double",
    "f32": "float",
    "f16": "i16",
    "bf16": "i16",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "i8",
    "bool": "i1",
}
NARROW = (f16, bf16)
BFLOAT_CONVERSIONS = {16: ("avx512bf16", "avx512dq"), 8: ("avx512bf16", "avx512dq", "avx512vl")}
"""Lanes that one instruction rounds to bf16, with what a processor needs for it. It flushes subnormals."""
SUBNORMAL = 0x20
"""The class that AVX-512 tells subnormals by."""


def register_type(dtype: DType, lanes: int = 0) -> str:
    """The LLVM type of a value of `dtype` in registers. KeyError for a dtype that the CPU does not
    compute."""
    return vector_of(REGISTERS[dtype.name], lanes)


def memory_element(dtype: DType) -> str:
    """The LLVM type of one element in memory: a bool is a byte."""
    return "i8" if dtype.is_bool else REGISTERS[dtype.name]


# Conversions


def widen(f: Function, x: Value, dtype: DType) -> Value:
    """f16 or bf16 bits as f32: exact."""
    if dtype is f16:
        return f.convert("fpext", f.bitcast(x, with_element(x.type, "half")), "float")
    wide = f.op("shl", f.convert("zext", x, "i32"), 16)
    return f.bitcast(wide, with_element(x.type, "float"))


def narrow(f: Function, x: Value, dtype: DType, target: Target | None = None) -> Value:
    """f32 as f16 or bf16 bits: to nearest even, subnormals kept. `target`: whose instructions may be used."""
    if dtype is f16:
        return f.bitcast(f.convert("fptrunc", x, "half"), with_element(x.type, "i16"))
    lanes = lanes_of(x.type)
    if (
        target is None
        or lanes not in BFLOAT_CONVERSIONS
        or not all(map(target.has, BFLOAT_CONVERSIONS[lanes]))
    ):
        return _as_bfloat(f, x)
    bits, bfloats = 32 * lanes, vector_of("bfloat", lanes)
    convert, classify = f"llvm.x86.avx512bf16.cvtneps2bf16.{bits}", f"llvm.x86.avx512.fpclass.ps.{bits}"
    f.module.declare(convert, bfloats, [x.type])
    f.module.declare(classify, vector_of("i1", lanes), [x.type, "i32"])
    flushed = f.call(vector_of("i1", lanes), classify, [x, constant("i32", SUBNORMAL)])

    def by_instruction() -> list[Value]:
        return [f.bitcast(f.call(bfloats, convert, [x]), with_element(x.type, "i16"))]

    return f.choose(f.reduce("or", flushed), lambda: [_as_bfloat(f, x)], by_instruction)[0]


def _as_bfloat(f: Function, x: Value) -> Value:
    """The bits of f32 rounded to bf16, by integer arithmetic."""
    bits = f.bitcast(x, with_element(x.type, "i32"))
    odd = f.op("and", f.op("lshr", bits, 16), 1)
    rounded = f.op("add", f.op("add", bits, 0x7FFF), odd)
    kept = f.select(f.compare("fcmp uno", x, x), f.op("or", bits, 0x400000), rounded)
    return f.convert("trunc", f.op("lshr", kept, 16), "i16")


def _float_to_integer(f: Function, x: Value, dtype: DType) -> Value:
    """Truncation; what i64, or i32 for narrower integers, cannot hold becomes its least value. u8 goes
    through i64."""
    through = "i64" if dtype.bits == 64 or (not dtype.is_signed and bits_of(x.type) == 64) else "i32"
    bits = bits_of(through)
    limit = 2.0 ** (bits - 1)
    # In f64, what lies between the least i32 and the next integer below truncates to the least i32.
    below = bits == 32 and bits_of(x.type) == 64
    low = f.compare("fcmp ogt", x, -limit - 1) if below else f.compare("fcmp oge", x, -limit)
    fits = f.op("and", low, f.compare("fcmp olt", x, limit))
    whole = f.freeze(f.convert("fptosi", x, through))
    result = f.select(fits, whole, constant_bits(whole.type, 1 << (bits - 1)))
    return result if dtype.bits == bits else f.convert("trunc", result, REGISTERS[dtype.name])


def cast_value(
    f: Function, x: Value, source: DType, to: DType, rounding: str, target: Target | None = None
) -> Value:
    """The primitive `cast`: torch's `.to()` for "none", to an integral value for floor, ceil, trunc and even,
    the same bits for "bits"."""
    if rounding == "bits":
        return f.bitcast(x, with_element(x.type, REGISTERS[to.name]))
    if rounding != "none":
        wide = widen(f, x, source) if source in NARROW else x
        rounded = f.intrinsic("roundeven" if rounding == "even" else rounding, wide)
        return narrow(f, rounded, source, target) if source in NARROW else rounded
    if source is to:
        return x
    if source in NARROW:
        return cast_value(f, widen(f, x, source), f32, to, "none", target)
    if to in NARROW:
        return narrow(f, cast_value(f, x, source, f32, "none"), to, target)
    element = REGISTERS[to.name]
    if to.is_bool:
        return f.compare("fcmp une" if source.is_float else "icmp ne", x, 0)
    if source.is_float:
        if not to.is_float:
            return _float_to_integer(f, x, to)
        return f.convert("fpext" if to.bits > source.bits else "fptrunc", x, element)
    if to.is_float:
        return f.convert("sitofp" if source.is_signed else "uitofp", x, element)
    if source.is_bool or to.bits > source.bits:
        return f.convert("sext" if source.is_signed else "zext", x, element)
    return x if to.bits == source.bits else f.convert("trunc", x, element)


# Integers


def _divide_parts(f: Function, a: Value, b: Value, dtype: DType) -> tuple[Value, Value]:
    """Quotient (towards zero) and remainder without a trap: x / 0 is 0 rest x, and x / -1 wraps."""
    divide, rest = ("sdiv", "srem") if dtype.is_signed else ("udiv", "urem")
    zero = f.compare("icmp eq", b, 0)
    if not dtype.is_signed:
        safe = f.select(zero, 1, b)
        return f.select(zero, 0, f.op(divide, a, safe)), f.select(zero, a, f.op(rest, a, safe))
    minus = f.compare("icmp eq", b, -1)
    safe = f.select(f.op("or", zero, minus), 1, b)
    quotient = f.select(minus, f.negate(a), f.select(zero, 0, f.op(divide, a, safe)))
    return quotient, f.select(zero, a, f.op(rest, a, safe))


def _crosses(f: Function, rest: Value, b: Value) -> Value:
    """Whether a floored division differs from a truncated one: a rest, of the other sign than the divisor."""
    differs = f.compare("icmp slt", f.op("xor", rest, b), 0)
    return f.op("and", differs, f.compare("icmp ne", rest, 0))


def _integer_quotient(f: Function, a: Value, b: Value, dtype: DType, rounding: str) -> Value:
    quotient, rest = _divide_parts(f, a, b, dtype)
    if rounding == "trunc" or not dtype.is_signed:
        return quotient
    # A division by zero has no floor to go to.
    down = f.op("and", _crosses(f, rest, b), f.compare("icmp ne", b, 0))
    return f.op("add", quotient, f.convert("sext", down, REGISTERS[dtype.name]))


def _modulo(f: Function, a: Value, b: Value, dtype: DType, sign: str) -> Value:
    if dtype.is_float:
        rest = f.op("frem", a, b)
        if sign == "trunc":
            return rest
        other = f.op("xor", f.compare("fcmp olt", b, 0.0), f.compare("fcmp olt", rest, 0.0))
        shift = f.op("and", f.compare("fcmp une", rest, 0.0), other)
        return f.select(shift, f.op("fadd", rest, b), rest)
    _, rest = _divide_parts(f, a, b, dtype)
    if sign == "trunc" or not dtype.is_signed:
        return rest
    return f.select(_crosses(f, rest, b), f.op("add", rest, b), rest)


def _bits(f: Function, a: Value, b: Value, dtype: DType, kind: str) -> Value:
    """and or xor; shl and shr (arithmetic where signed). A shift by less than 0 or by the width or more gives
    0, or the sign where shr is arithmetic."""
    if kind in ("and", "or", "xor"):
        return f.op(kind, a, b)
    inside = f.compare("icmp ult", b, dtype.bits)
    if kind == "shl" or not dtype.is_signed:
        shifted = f.op("shl" if kind == "shl" else "lshr", a, f.select(inside, b, 0))
        return f.select(inside, shifted, 0)
    return f.op("ashr", a, f.select(inside, b, dtype.bits - 1))


# Order

ORDERED = {"lt": "fcmp olt", "le": "fcmp ole", "eq": "fcmp oeq", "ne": "fcmp une"}


def compare_values(f: Function, a: Value, b: Value, dtype: DType, predicate: str) -> Value:
    """a predicate b; comparisons with NaN are false but for ne."""
    if dtype.is_float:
        return f.compare(ORDERED[predicate], a, b)
    sign = "" if predicate in ("eq", "ne") else "s" if dtype.is_signed else "u"
    return f.compare(f"icmp {sign}{predicate}", a, b)


def extremum(f: Function, a: Value, b: Value, dtype: DType, kind: Literal["max", "min"]) -> Value:
    """The larger or smaller value; NaN if either is."""
    if dtype.is_bool:
        return f.op("or" if kind == "max" else "and", a, b)
    if not dtype.is_float:
        return f.intrinsic(("s" if dtype.is_signed else "u") + kind, *f.pair(a, b))
    # What x86 has in one instruction, which gives `a` where there is a NaN: that of `b` is repaired beside the chain of
    # a running extremum, and fenced, as LLVM would make one comparison of both. Of two zeros either will do, but one
    # keeps its sign, so that `nsz` would say too much.
    a, b = f.pair(a, b)
    better = f.select(f.compare("fcmp ogt" if kind == "max" else "fcmp olt", b, a), b, a)
    better = f.intrinsic("arithmetic.fence", better)
    return f.select(f.compare("fcmp uno", b, b), b, better)


def combine(f: Function, monoid: str, a: Value, b: Value, dtype: DType, flags: str = "") -> Value:
    """One step of sum, prod, max or min (also under the names add and mul), in the dtype itself."""
    if dtype in NARROW:
        wide = combine(f, monoid, widen(f, a, dtype), widen(f, b, dtype), f32, flags)
        return narrow(f, wide, dtype)
    match monoid:
        case "max" | "min":
            return extremum(f, a, b, dtype, monoid)
        case "sum" | "add":
            return f.op(
                "fadd" if dtype.is_float else "or" if dtype.is_bool else "add",
                a,
                b,
                flags if dtype.is_float else "",
            )
        case _:
            return f.op(
                "fmul" if dtype.is_float else "and" if dtype.is_bool else "mul",
                a,
                b,
                flags if dtype.is_float else "",
            )


def combine_pair(
    f: Function, monoid: str, old: tuple[Value, Value], new: tuple[Value, Value], dtype: DType
) -> tuple[Value, Value]:
    """One step of argmax or argmin on (value, i64 position): the first position wins a tie, NaN wins over
    numbers."""
    if dtype in NARROW:
        old_wide, new_wide = (widen(f, old[0], dtype), old[1]), (widen(f, new[0], dtype), new[1])
        take = _takes(f, monoid, old_wide, new_wide, f32)
    else:
        take = _takes(f, monoid, old, new, dtype)
    return f.select(take, new[0], old[0]), f.select(take, new[1], old[1])


def _takes(
    f: Function, monoid: str, old: tuple[Value, Value], new: tuple[Value, Value], dtype: DType
) -> Value:
    (value, position), (other, place) = old, new
    left, right = (value, other) if monoid == "argmax" else (other, value)
    better = compare_values(f, left, right, dtype, "lt")
    tie = compare_values(f, other, value, dtype, "eq")
    if dtype.is_float:
        old_nan, new_nan = f.compare("fcmp uno", value, value), f.compare("fcmp uno", other, other)
        better = f.op("or", better, f.select(old_nan, constant(old_nan.type, 0), new_nan))
        tie = f.op("or", tie, f.op("and", old_nan, new_nan))
    return f.op("or", better, f.op("and", tie, f.compare("icmp slt", place, position)))


def _multiply(
    f: Function, x: Sequence[Value], dtype: DType, variant: str, target: Target, flags: str
) -> Value:
    if variant != ROUNDED:
        return combine(f, "prod", x[0], x[1], dtype, flags)
    return rounded(f, combine(f, "prod", x[0], x[1], dtype), target)


# The table of elementwise primitives

Apply = Callable[[Function, Sequence[Value], DType, str, Target, str], Value]


def _recip(f: Function, x: Sequence[Value], dtype: DType, variant: str, target: Target, flags: str) -> Value:
    return f.op("fdiv", x[0], x[1]) if dtype.is_float else _integer_quotient(f, *f.pair(*x), dtype, variant)


APPLY: dict[str, Apply] = {
    "log2": lambda f, x, dtype, base, target, flags: logarithm(f, x[0], cast(Literal["2", "e", "10"], base)),
    "exp2": lambda f, x, dtype, base, target, flags: exponential(
        f, x[0], cast(Literal["2", "e"], base), target
    ),
    "sin": lambda f, x, dtype, phase, target, flags: sine(f, x[0], cast(Literal["sin", "cos"], phase)),
    "sqrt": lambda f, x, dtype, variant, target, flags: f.intrinsic("sqrt", x[0]),
    "recip": _recip,
    "add": lambda f, x, dtype, variant, target, flags: combine(f, "sum", x[0], x[1], dtype, flags),
    "mul": _multiply,
    "mod": lambda f, x, dtype, sign, target, flags: _modulo(f, *f.pair(*x), dtype, sign),
    "bits": lambda f, x, dtype, kind, target, flags: _bits(f, *f.pair(*x), dtype, kind),
    "less_than": lambda f, x, dtype, predicate, target, flags: compare_values(
        f, x[0], x[1], dtype, predicate
    ),
    "max": lambda f, x, dtype, variant, target, flags: extremum(f, x[0], x[1], dtype, "max"),
    "min": lambda f, x, dtype, variant, target, flags: extremum(f, x[0], x[1], dtype, "min"),
}


def apply_elementwise(
    f: Function,
    op: str,
    variant: str,
    operands: Sequence[Value],
    dtypes: Sequence[DType],
    result: DType,
    target: Target,
    contract: bool,
) -> Value:
    """One elementwise primitive on scalars or vectors; operands may be scalars beside vectors. `contract`
    licenses fused multiply-add across the operation."""
    if op == "cast":
        return cast_value(f, operands[0], dtypes[0], result, variant or "none", target)
    if op == "select":
        return f.select(operands[0], operands[1], operands[2])
    dtype = dtypes[0]
    if dtype in NARROW and op != "bits":
        wide = [widen(f, x, dtype) for x in operands]
        value = APPLY[op](f, wide, f32, variant, target, "contract" if contract else "")
        return value if result.is_bool else narrow(f, value, dtype, target)
    return APPLY[op](f, operands, dtype, variant, target, "contract" if contract else "")
