"""ATen ops that work element by element: one row each where hlo has the op, a few lines where it must be composed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from xdsl.ir import SSAValue

from luminal import promotion
from luminal.dtype import DType, bool_, dtype_of, f32, i16, i32, i64
from luminal.torch.lowering import Lowering, Operand, Scalar, Value, dtype, lowers, shape_of, type_of

SAME = """abs neg=negative exp exp2 expm1 log log2 log10 log1p sin cos tan
    tanh sinh cosh asin acos atan asinh acosh atanh sigmoid silu relu erf sqrt rsqrt reciprocal square bitwise_not
    maximum minimum atan2 copysign bitwise_and bitwise_or bitwise_xor"""
"""Operands take the result's dtype; `hlo name=another ATen name`."""
INTEGRAL = "floor ceil trunc=fix"
"""The identity on integers."""
COMPARISONS = "eq ne lt le gt ge"
"""Operands take their common dtype, the result is bool."""
LOGICAL = "logical_not logical_and logical_or logical_xor"
"""Every operand counts as true or false."""
PREDICATES = "isnan isinf isfinite"
"""bool of a float; an integer is never NaN or infinite."""


def _names(row: str) -> list[tuple[str, list[str]]]:
    return [(word.split("=")[0], word.split("=")) for word in row.split()]


def _enter(row: str, make: Callable[[str], Callable[..., Any]]) -> None:
    for hlo, names in _names(row):
        lowers(*names)(make(hlo))


def _same(hlo: str) -> Callable[..., Any]:
    def rule(low: Lowering, *operands: Operand) -> Value:
        return low.b.emit(hlo, *[low.operand(x, low.dtype) for x in operands])

    return rule


def _comparison(hlo: str) -> Callable[..., Any]:
    def rule(low: Lowering, left: Operand, right: Operand) -> Value:
        common = low.promoted(left, right)
        return low.b.emit(hlo, low.operand(left, common), low.operand(right, common))

    return rule


def _logical(hlo: str) -> Callable[..., Any]:
    def rule(low: Lowering, *operands: Value) -> Value:
        return low.b.emit(hlo, *[low.as_bool(x) for x in operands])

    return rule


def _predicate(hlo: str) -> Callable[..., Any]:
    def rule(low: Lowering, x: Value) -> Value:
        if not dtype(x).is_float:
            return low.full(hlo == "isfinite", shape_of(x), bool_)
        return low.b.emit(hlo, x)

    return rule


def _integral(hlo: str) -> Callable[..., Any]:
    return lambda low, x: low.b.emit(hlo, x) if dtype(x).is_float else x


_enter(SAME, _same)
_enter(INTEGRAL, _integral)
_enter(COMPARISONS, _comparison)
_enter(LOGICAL, _logical)
_enter(PREDICATES, _predicate)


def arithmetic(low: Lowering, hlo: str, left: Operand, right: Operand) -> Value:
    """A binary op in the result's dtype; half-width floats keep a number on the right unrounded where PyTorch does."""
    result = low.dtype
    if (
        isinstance(left, SSAValue)
        and type_of(left).shape
        and promotion.computes_wide(hlo, result, _typed(right))
    ):
        wide = low.b.emit(hlo, low.operand(left, f32), low.operand(right, f32))
        return low.cast(wide, result)
    return low.b.emit(hlo, low.operand(left, result), low.operand(right, result))


def _typed(operand: Operand) -> Any:
    return type_of(operand) if isinstance(operand, SSAValue) else operand


@lowers("mul", "multiply")
def mul(low: Lowering, left: Operand, right: Operand) -> Value:
    if low.dtype == bool_:
        return low.b.logical_and(low.operand(left, bool_), low.operand(right, bool_))
    return arithmetic(low, "mul", left, right)


def _sum(low: Lowering, hlo: str, left: Operand, right: Operand, alpha: Scalar) -> Value:
    if low.dtype == bool_:
        return low.b.logical_or(low.operand(left, bool_), low.operand(right, bool_) if alpha else False)
    if alpha == 1:
        return arithmetic(low, hlo, left, right)
    wide = low.dtype.accumulate
    scaled = low.b.mul(low.operand(right, wide), low.number(alpha, wide))
    return low.cast(low.b.emit(hlo, low.operand(left, wide), scaled), low.dtype)


@lowers("add")
def add(low: Lowering, left: Operand, right: Operand, alpha: Scalar = 1) -> Value:
    return _sum(low, "add", left, right, alpha)


@lowers("sub", "subtract")
def sub(low: Lowering, left: Operand, right: Operand, alpha: Scalar = 1) -> Value:
    return _sum(low, "sub", left, right, alpha)


@lowers("fma")
def fma(low: Lowering, left: Operand, right: Operand, addend: Operand) -> Value:
    """What decompositions of `addcmul` and `addcdiv` end with; the CPU's own kernels round the product too."""
    product = low.b.mul(low.operand(left, low.dtype), low.operand(right, low.dtype))
    return low.b.add(product, low.operand(addend, low.dtype))


@lowers("rsub")
def rsub(low: Lowering, left: Operand, right: Operand, alpha: Scalar = 1) -> Value:
    return _sum(low, "sub", right, left, alpha)


@lowers("div", "divide", "true_divide")
def div(low: Lowering, left: Operand, right: Operand, rounding_mode: str | None = None) -> Value:
    hlo = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}[rounding_mode]
    return arithmetic(low, hlo, left, right)


@lowers("floor_divide")
def floor_divide(low: Lowering, left: Operand, right: Operand) -> Value:
    return arithmetic(low, "floor_divide", left, right)


@lowers("remainder", "fmod")
def remainder(low: Lowering, left: Operand, right: Operand) -> Value:
    return arithmetic(low, str(low.node.target).split(".")[1], left, right)


@lowers("pow")
def power(low: Lowering, base: Operand, exponent: Operand) -> Value:
    """Whole exponents are products, as in PyTorch; a negative one of integers is 0 but for the bases 1 and -1."""
    if isinstance(exponent, (int, float)) and isinstance(base, SSAValue):
        simple = {1: None, 2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
        known = exponent in simple and (low.dtype.is_float or exponent in (1, 2))
        if known and not isinstance(exponent, bool):
            value = low.cast(base, low.dtype)
            return low.b.emit(cast(str, simple[exponent]), value) if simple[exponent] else value
        if exponent == 3:
            value = low.cast(base, low.dtype)
            return low.b.mul(low.b.square(value), value)
    return low.b.pow(low.operand(base, low.dtype), low.operand(exponent, low.dtype))


lowers("bitwise_left_shift", "__lshift__")(_same("shift_left"))
lowers("bitwise_right_shift", "__rshift__")(_same("shift_right"))


@lowers("round")
def round_(low: Lowering, x: Value, decimals: int = 0) -> Value:
    x = low.cast(x, low.dtype)
    if decimals == 0 or not low.dtype.is_float:
        return low.b.round(x) if low.dtype.is_float else x
    wide = low.cast(x, low.dtype.accumulate)
    scale = low.number(10.0 ** abs(decimals), dtype(wide))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    scaled = low.b.round(low.b.emit(there, wide, scale))
    return low.cast(low.b.emit(back, scaled, scale), low.dtype)


@lowers("where.self")
def where(low: Lowering, condition: Value, x: Operand, y: Operand) -> Value:
    return low.b.where(low.as_bool(condition), low.operand(x, low.dtype), low.operand(y, low.dtype))


@lowers("clamp", "clip", "clamp_min")
def clamp(low: Lowering, x: Value, lower: Operand | None = None, upper: Operand | None = None) -> Value:
    """min(max(x, lower), upper), where NaN anywhere gives NaN."""
    value = low.cast(x, low.dtype)
    for bound, hlo in ((lower, "maximum"), (upper, "minimum")):
        if bound is not None:
            value = low.b.emit(hlo, value, low.operand(bound, low.dtype))
    return value


@lowers("clamp_max")
def clamp_max(low: Lowering, x: Value, bound: Operand) -> Value:
    return clamp(low, x, None, bound)


@lowers("hardtanh")
def hardtanh(low: Lowering, x: Value, lower: Scalar = -1, upper: Scalar = 1) -> Value:
    return clamp(low, x, lower, upper)


@lowers("relu6")
def relu6(low: Lowering, x: Value) -> Value:
    return clamp(low, x, 0, 6)


@lowers("gelu")
def gelu(low: Lowering, x: Value, approximate: str = "none") -> Value:
    return low.b.gelu(x, approximate=approximate)


@lowers("leaky_relu")
def leaky_relu(low: Lowering, x: Value, slope: Scalar = 0.01) -> Value:
    wide = _widened(low, x)
    positive = low.b.gt(wide, low.number(0, dtype(wide)))
    return low.cast(low.b.where(positive, wide, low.b.mul(wide, low.number(slope, dtype(wide)))), low.dtype)


@lowers("elu")
def elu(low: Lowering, x: Value, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Value:
    wide = _widened(low, x)
    kind = dtype(wide)
    shrunk = low.b.expm1(low.b.mul(wide, low.number(input_scale, kind)))
    below = low.b.mul(shrunk, low.number(low.plain_number(alpha) * low.plain_number(scale), kind))
    above = low.b.mul(wide, low.number(scale, kind))
    return low.cast(low.b.where(low.b.le(wide, low.number(0, kind)), below, above), low.dtype)


@lowers("_prelu_kernel")
def prelu(low: Lowering, x: Value, weight: Value) -> Value:
    return low.b.where(low.b.gt(x, low.number(0, dtype(x))), x, low.b.mul(weight, x))


def _widened(low: Lowering, x: Value) -> Value:
    """The operand in the dtype in which PyTorch's fused kernels compute: f32 for half-width floats."""
    return low.cast(x, low.dtype.accumulate)


@lowers("sign", "sgn")
def sign(low: Lowering, x: Value) -> Value:
    return x if dtype(x) == bool_ else low.b.sign(x)


@lowers("fmax")
def fmax(low: Lowering, x: Value, y: Value) -> Value:
    return _without_nan(low, "maximum", x, y)


@lowers("fmin")
def fmin(low: Lowering, x: Value, y: Value) -> Value:
    return _without_nan(low, "minimum", x, y)


def _without_nan(low: Lowering, hlo: str, x: Value, y: Value) -> Value:
    """The larger or smaller one; a number wins over NaN."""
    a, b = low.cast(x, low.dtype), low.cast(y, low.dtype)
    chosen = low.b.emit(hlo, a, b)
    if not low.dtype.is_float:
        return chosen
    return low.b.where(low.b.isnan(a), b, low.b.where(low.b.isnan(b), a, chosen))


@lowers("signbit")
def signbit(low: Lowering, x: Value) -> Value:
    """Whether the sign bit is set: also of -0.0 and NaN."""
    kind = dtype(x)
    if kind == bool_:
        return low.full(False, shape_of(x), bool_)
    if kind.is_float:
        x = low.b.bitcast(x, dtype={64: i64, 32: i32, 16: i16}[kind.bits])
    return low.b.lt(x, low.number(0, dtype(x)))


@lowers("hypot")
def hypot(low: Lowering, x: Value, y: Value) -> Value:
    """Scaled by the larger leg, so that squares neither overflow nor vanish; infinity wins over NaN."""
    a, b = (low.b.abs(_widened(low, leg)) for leg in (x, y))
    kind = dtype(a)
    longer, shorter = low.b.maximum(a, b), low.b.minimum(a, b)
    zero, one = low.number(0, kind), low.number(1, kind)
    degenerate = low.b.logical_or(low.b.eq(longer, zero), low.b.isinf(longer))
    ratio = low.b.div(shorter, low.b.where(degenerate, one, longer))
    length = low.b.mul(longer, low.b.sqrt(low.b.add(low.b.square(ratio), one)))
    length = low.b.where(low.b.eq(longer, zero), longer, length)
    infinite = low.b.logical_or(low.b.isinf(a), low.b.isinf(b))
    return low.cast(low.b.where(infinite, low.number(math.inf, kind), length), low.dtype)


@lowers("xlogy", "special_xlogy")
def xlogy(low: Lowering, x: Operand, y: Operand) -> Value:
    return _x_log(low, x, y, "log")


@lowers("special_xlog1py")
def xlog1py(low: Lowering, x: Operand, y: Operand) -> Value:
    return _x_log(low, x, y, "log1p")


def _x_log(low: Lowering, x: Operand, y: Operand, log: str) -> Value:
    """x * log(y), 0 where x is 0 and y no NaN."""
    wide = low.dtype.accumulate
    a, b = low.operand(low.operand(x, low.dtype), wide), low.operand(low.operand(y, low.dtype), wide)
    product = low.b.mul(a, low.b.emit(log, b))
    zero = low.number(0, wide)
    product = low.b.where(low.b.eq(a, zero), zero, product)
    return low.cast(low.b.where(low.b.isnan(b), low.number(math.nan, wide), product), low.dtype)


@lowers("special_entr")
def entr(low: Lowering, x: Value) -> Value:
    """-x * log(x), 0 at 0, -inf below."""
    wide = _widened(low, x)
    zero = low.number(0, dtype(wide))
    inside = low.b.mul(low.b.neg(wide), low.b.log(wide))
    inside = low.b.where(low.b.eq(wide, zero), zero, inside)
    below = low.b.lt(wide, zero)
    return low.cast(low.b.where(below, low.number(-math.inf, dtype(wide)), inside), low.dtype)


@lowers("ldexp")
def ldexp(low: Lowering, x: Value, exponent: Operand) -> Value:
    """x * 2 ** exponent, the power rounded to the result's dtype first, as in PyTorch."""
    return low.b.mul(low.cast(x, low.dtype), low.b.exp2(low.operand(exponent, low.dtype)))


@lowers("convert_element_type")
def convert_element_type(low: Lowering, x: Value, *_: Any) -> Value:
    """What decompositions convert with; users write `.to()`."""
    return low.cast(x, low.dtype)


@lowers("_to_copy", "to")
def to_copy(low: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return x if dtype(x) == low.dtype else low.b.cast(x, dtype=low.dtype)


@lowers("view.dtype")
def view_dtype(low: Lowering, x: Value, to: Any) -> Value:
    wanted: DType = dtype_of(to)
    if wanted.size_bytes != dtype(x).size_bytes or wanted == bool_:
        raise low.refuse("a view as a dtype of another size")
    return low.b.bitcast(x, dtype=wanted)


@lowers("angle")
def angle(low: Lowering, x: Value) -> Value:
    """0 or pi of a real number; NaN stays."""
    value = low.cast(x, low.dtype)
    kind = low.dtype
    turned = low.b.where(low.b.lt(value, low.number(0, kind)), low.number(math.pi, kind), low.number(0, kind))
    return low.b.where(low.b.isnan(value), value, turned)
