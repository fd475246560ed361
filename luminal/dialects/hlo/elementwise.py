"""Elementwise rows: arithmetic, comparisons, logic, elementary functions, conversion and creation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.dialects.hlo import functions, shapes
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, known_less, product
from luminal.dtype import DType, bool_, cast_array, dtype_of, i64, to_bits
from luminal.errors import DivisionByZeroError, DTypeError, OptionError, ShapeError

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., Any]


def single(x: Array) -> Array:
    """Floats below f32 as f32, in which their arithmetic is done."""
    return cast_array(x, dtype_of(x.dtype).accumulate)


def double(x: Array) -> Array:
    """Floats as f64, so that an elementary function is right to half a unit of f32."""
    return x.astype(np.float64) if dtype_of(x.dtype).is_float else x


def _converted(function: Evaluate, convert: Callable[[Array], Array]) -> Evaluate:
    def interpret(*arrays: Array | None, **values: Any) -> Any:
        return function(*(None if array is None else convert(array) for array in arrays), **values)

    return interpret


def of_doubles(function: Evaluate) -> Evaluate:
    """`function` of f64 in the place of floats; the caller rounds the result to its dtype."""
    return _converted(function, double)


def of_singles(function: Evaluate) -> Evaluate:
    """`function` of f32 in the place of narrower floats."""
    return _converted(function, single)


# ---- elementary functions --------------------------------------------------------------------------------------


def _gelu_array(x: Array, approximate: str) -> Array:
    if approximate == "none":
        return x * 0.5 * (1 + ERF(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _infer_gelu(x: TensorType, *, approximate: str) -> TensorType:
    if approximate not in ("none", "tanh"):
        raise OptionError(f"approximate is {approximate!r}, expected 'none' or 'tanh'")
    return shapes.elementwise("float")(x)


def ERF(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


ELEMENTARY: dict[str, tuple[Evaluate, Evaluate]] = {
    "exp": (Expression.exp, np.exp),
    "exp2": (Expression.exp2, np.exp2),
    "expm1": (functions.expm1, np.expm1),
    "log": (Expression.log, np.log),
    "log2": (lambda x: x.log("2"), np.log2),
    "log10": (lambda x: x.log("10"), np.log10),
    "log1p": (functions.log1p, np.log1p),
    "sin": (Expression.sin, np.sin),
    "cos": (lambda x: x.sin("cos"), np.cos),
    "tan": (functions.tan, np.tan),
    "tanh": (functions.tanh, np.tanh),
    "sinh": (functions.sinh, np.sinh),
    "cosh": (functions.cosh, np.cosh),
    "asin": (functions.asin, np.arcsin),
    "acos": (functions.acos, np.arccos),
    "atan": (functions.atan, np.arctan),
    "asinh": (functions.asinh, np.arcsinh),
    "acosh": (functions.acosh, np.arccosh),
    "atanh": (functions.atanh, np.arctanh),
    "sigmoid": (functions.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "silu": (functions.silu, lambda x: x / (1 + np.exp(-x))),
    "erf": (functions.erf, ERF),
    "rsqrt": (lambda x: 1.0 / x.sqrt(), lambda x: 1 / np.sqrt(x)),
    "sqrt": (Expression.sqrt, np.sqrt),
    "reciprocal": (lambda x: 1.0 / x, lambda x: 1 / x),
    "floor": (lambda x: x.round("floor"), np.floor),
    "ceil": (lambda x: x.round("ceil"), np.ceil),
    "round": (lambda x: x.round("even"), np.round),
    "trunc": (lambda x: x.round("trunc"), np.trunc),
}
"""Functions of one float: the spelling in primitives, and NumPy's."""

ONE_PRIMITIVE = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "log10",
        "sin",
        "cos",
        "sqrt",
        "reciprocal",
        "floor",
        "ceil",
        "round",
        "trunc",
    ]
)
"""Those that are one primitive, which itself computes narrow floats in f32: no casts around it."""

for _name, (_decompose, _interpret) in ELEMENTARY.items():
    _infer = shapes.elementwise("float")
    _wide = _name not in ONE_PRIMITIVE
    define(_name, "x", _infer, _decompose, of_doubles(_interpret), elementwise=True, wide=_wide)

define(
    "gelu",
    "x | approximate:str='none'",
    _infer_gelu,
    functions.gelu,
    of_doubles(_gelu_array),
    elementwise=True,
)


def _softplus_array(x: Array, beta: float, threshold: float) -> Array:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


define(
    "softplus",
    "x | beta:float=1.0 threshold:float=20.0",
    shapes.elementwise("float"),
    functions.softplus,
    of_doubles(_softplus_array),
    elementwise=True,
    wide=True,
)

# ---- arithmetic ------------------------------------------------------------------------------------------------


def _check_divisor(x: Array, y: Array) -> None:
    """A zero beside which there is nothing to divide does no harm."""
    if y.dtype.kind in "iu" and x.size and not y.all():
        raise DivisionByZeroError("an integer was divided by zero")


def _sign(x: Expression) -> Expression:
    return x.gt(0).select(1, x.lt(0).select(x.like(-1), 0))


def _remainder_array(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    if x.dtype.kind != "f":
        return np.mod(x, y)
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _fmod_array(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    return np.fmod(x, y)


def _trunc_divide(x: Expression, y: Expression) -> Expression:
    return (x / y).round("trunc") if x.dtype.is_float else x.divide(y, "trunc")


def _trunc_divide_array(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    if x.dtype.kind == "f":
        return np.trunc(x / y)
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(x.dtype)


def _floor_divide(x: Expression, y: Expression) -> Expression:
    """torch's floor of an exact quotient: that of (x - fmod) / y, corrected, with the sign of x / y where 0."""
    if not x.dtype.is_float:
        return x.divide(y, "floor")
    rest = x.mod(y, "trunc")
    quotient = (x - rest) / y
    mixed = rest.ne(0.0) & (y.lt(0.0) ^ rest.lt(0.0))
    quotient = mixed.select(quotient - 1.0, quotient)
    floor = quotient.round("floor")
    floor = (quotient - floor).gt(0.5).select(floor + 1.0, floor)
    exact = x / y
    zero = exact.like(0.0).with_sign(exact)
    return y.eq(0.0).select(exact, quotient.eq(0.0).select(zero, floor))


def _floor_divide_array(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    if x.dtype.kind != "f":
        return np.floor_divide(x, y)
    rest = np.fmod(x, y)
    quotient = (x - rest) / y - ((rest != 0) & ((y < 0) != (rest < 0)))
    floor = np.floor(quotient) + (quotient - np.floor(quotient) > 0.5)
    return np.where(y == 0, x / y, np.where(quotient == 0, np.copysign(0, x / y), floor))


def _pow(x: Expression, y: Expression) -> Expression:
    if x.dtype.is_float:
        return functions.pow(x, y)
    power, base = x.like(1), x
    for bit in range(x.dtype.bits - x.dtype.is_signed):
        power = (y & (1 << bit)).ne(0).select(power * base, power)
        base = base * base
    if not x.dtype.is_signed:
        return power
    return (y.lt(0) & x.ne(1) & x.ne(-1)).select(0, power)


def _pow_array(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        # not np.power, which takes the square root for a single exponent 0.5: (-inf) ** 0.5 is inf
        return np.float_power(x, y)
    small = np.where(np.abs(x) == 1, np.abs(y) % 2, 0) if x.dtype.kind == "i" else y
    power = np.power(x, np.where(y < 0, small, y))
    return np.where((y < 0) & (np.abs(x) != 1), 0, power)


FAST_POWERS: dict[float, Callable[[Any, Callable[[Any], Any]], Any]] = {
    0.5: lambda x, sqrt: sqrt(x),
    1: lambda x, sqrt: x,
    2: lambda x, sqrt: x * x,
    3: lambda x, sqrt: x * x * x,
    -0.5: lambda x, sqrt: 1.0 / sqrt(x),
    -1: lambda x, sqrt: 1.0 / x,
    -2: lambda x, sqrt: 1.0 / (x * x),
}
"""Exponents that PyTorch spells out."""


def _infer_pow_scalar(x: TensorType, *, exponent: int | float) -> TensorType:
    if x.dtype.is_integer and (isinstance(exponent, float) or exponent < 0):
        raise OptionError(f"the exponent of an integer is {exponent}, expected a whole number of at least 0")
    return shapes.elementwise("number")(x)


def _pow_scalar(x: Expression, exponent: int | float) -> Expression:
    if exponent == 0:
        return x.like(1)
    if exponent in FAST_POWERS:
        return FAST_POWERS[exponent](x, Expression.sqrt)
    if x.dtype.is_float:
        return functions.pow(x, x.like(exponent))
    power: Expression | None = None
    base = x
    for bit in range(int(exponent).bit_length()):
        if int(exponent) >> bit & 1:
            power = base if power is None else power * base
        base = base * base
    return x.like(1) if power is None else power


def _pow_scalar_array(x: Array, exponent: int | float) -> Array:
    if exponent == 0:
        return np.ones_like(x)
    if exponent in FAST_POWERS:
        return FAST_POWERS[exponent](x, np.sqrt)
    if x.dtype.kind != "f":
        return np.power(x, np.array(exponent % (1 << 63), np.int64)).astype(x.dtype)
    return np.float_power(x, x.dtype.type(exponent))


def _infer_clamp(x: TensorType, *, low: int | float | None, high: int | float | None) -> TensorType:
    for bound in (low, high):
        if bound is not None:
            to_bits(bound, x.dtype)
    return shapes.elementwise("number")(x)


def _clamp(x: Expression, low: int | float | None, high: int | float | None) -> Expression:
    """NaN stays; a bound of NaN gives NaN; `high` wins over `low`."""
    if low is not None:
        x = x.like(low) if low != low else x.lt(low).select(low, x)
    if high is not None:
        x = x.like(high) if high != high else x.gt(high).select(high, x)
    return x


def _clamp_array(x: Array, low: int | float | None, high: int | float | None) -> Array:
    if low is not None:
        x = np.where(~(x >= low) & ~np.isnan(x), x.dtype.type(low), x)
    if high is not None:
        x = np.where(~(x <= high) & ~np.isnan(x), x.dtype.type(high), x)
    return x


def _shift_array(left: bool) -> Evaluate:
    def shift(x: Array, y: Array) -> Array:
        bits = x.dtype.itemsize * 8
        inside = (y >= 0) & (y < bits)
        amount = np.where(inside, y, 0 if left else bits - 1).astype(x.dtype)
        return np.where(inside, np.left_shift(x, amount), 0) if left else np.right_shift(x, amount)

    return shift


ARITHMETIC: dict[str, tuple[str, str, Evaluate, Evaluate]] = {
    "neg": ("x", "number", Expression.__neg__, np.negative),
    "abs": ("x", "number", Expression.abs, np.abs),
    "sign": ("x", "number", _sign, lambda x: np.where(np.isnan(x), 0, np.sign(x))),
    "square": ("x", "number", lambda x: x * x, np.square),
    "relu": ("x", "number", lambda x: x.lt(0).select(0, x), lambda x: np.where(x < 0, 0, x)),
    "bitwise_not": ("x", "bits", Expression.__invert__, np.invert),
    "add": ("x y", "computed", lambda x, y: x | y if x.dtype.is_bool else x + y, np.add),
    "mul": ("x y", "computed", lambda x, y: x & y if x.dtype.is_bool else x * y, np.multiply),
    "sub": ("x y", "number", Expression.__sub__, np.subtract),
    "div": ("x y", "float", Expression.__truediv__, np.divide),
    "floor_divide": ("x y", "number", _floor_divide, _floor_divide_array),
    "trunc_divide": ("x y", "number", _trunc_divide, _trunc_divide_array),
    "remainder": ("x y", "number", lambda x, y: x.mod(y, "floor"), _remainder_array),
    "fmod": ("x y", "number", lambda x, y: x.mod(y, "trunc"), _fmod_array),
    "pow": ("x y", "number", _pow, _pow_array),
    "maximum": ("x y", "computed", Expression.maximum, np.maximum),
    "minimum": ("x y", "computed", Expression.minimum, np.minimum),
    "atan2": ("x y", "float", functions.atan2, of_doubles(np.arctan2)),
    "copysign": ("x y", "float", lambda x, y: x.abs().with_sign(y), np.copysign),
    "bitwise_and": ("x y", "bits", Expression.__and__, np.bitwise_and),
    "bitwise_or": ("x y", "bits", Expression.__or__, np.bitwise_or),
    "bitwise_xor": ("x y", "bits", Expression.__xor__, np.bitwise_xor),
    "shift_left": ("x y", "integer", lambda x, y: x.bits("shl", y), _shift_array(True)),
    "shift_right": ("x y", "integer", lambda x, y: x.bits("shr", y), _shift_array(False)),
}
"""Operations that keep the dtype: operands, dtype class, the spelling in primitives, and NumPy's."""

SEVERAL_ROUNDINGS = frozenset(["floor_divide", "trunc_divide", "pow", "atan2"])
"""Those whose spelling would round narrow floats more than once: they are composed in f32."""

for _name, (_signature, _class, _decompose, _interpret) in ARITHMETIC.items():
    _infer, _wide = shapes.elementwise(_class), _name in SEVERAL_ROUNDINGS
    define(_name, _signature, _infer, _decompose, of_singles(_interpret), elementwise=True, wide=_wide)

define(
    "pow_scalar",
    "x | exponent:number",
    _infer_pow_scalar,
    _pow_scalar,
    of_singles(_pow_scalar_array),
    elementwise=True,
    wide=True,
)
define(
    "clamp",
    "x | low:number? high:number?",
    _infer_clamp,
    _clamp,
    of_singles(_clamp_array),
    elementwise=True,
)

# ---- comparisons and logic -------------------------------------------------------------------------------------


def truth(x: Expression) -> Expression:
    return x if x.dtype.is_bool else x.ne(0)


PREDICATES: dict[str, tuple[str, str, Evaluate, Evaluate]] = {
    "isnan": ("x", "float", Expression.isnan, np.isnan),
    "isinf": ("x", "float", lambda x: x.abs().eq(math.inf), np.isinf),
    "isfinite": ("x", "float", lambda x: x.abs().lt(math.inf), np.isfinite),
    "logical_not": ("x", "computed", lambda x: ~x if x.dtype.is_bool else x.eq(0), np.logical_not),
    "eq": ("x y", "computed", Expression.eq, np.equal),
    "ne": ("x y", "computed", Expression.ne, np.not_equal),
    "lt": ("x y", "computed", Expression.lt, np.less),
    "le": ("x y", "computed", Expression.le, np.less_equal),
    "gt": ("x y", "computed", Expression.gt, np.greater),
    "ge": ("x y", "computed", Expression.ge, np.greater_equal),
    "logical_and": ("x y", "computed", lambda x, y: truth(x) & truth(y), np.logical_and),
    "logical_or": ("x y", "computed", lambda x, y: truth(x) | truth(y), np.logical_or),
    "logical_xor": ("x y", "computed", lambda x, y: truth(x) ^ truth(y), np.logical_xor),
}
"""Operations that give bool: operands, dtype class, the spelling in primitives, and NumPy's."""

for _name, (_signature, _class, _decompose, _interpret) in PREDICATES.items():
    _infer = shapes.elementwise(_class, bool_)
    define(_name, _signature, _infer, _decompose, of_singles(_interpret), elementwise=True)


def _infer_where(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    shapes.check_class(condition.dtype, "bool")
    shape = shapes.broadcast_shapes(condition.shape, x.shape, y.shape)
    return shapes.tensor(shape, shapes.common_dtype((x, y)))


define("where", "condition x y", _infer_where, Expression.select, np.where, elementwise=True)

# ---- conversion and creation -----------------------------------------------------------------------------------


def _infer_cast(x: TensorType, *, dtype: DType, written: bool) -> TensorType:
    """`written`: by the user, not where an operation computes in another dtype than its own."""
    return shapes.tensor(x.shape, dtype)


def _cast(x: Expression, dtype: DType, written: bool) -> Expression:
    return x.convert(dtype) if written else x.cast(dtype)


def _infer_bitcast(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.size_bytes != dtype.size_bytes:
        raise DTypeError(f"{x.dtype} and {dtype} differ in size")
    return shapes.tensor(x.shape, dtype)


def _infer_full(*, value: bool | int | float, shape: Sequence[Dim], dtype: DType) -> TensorType:
    to_bits(value, dtype)
    if any(known_less(size, 0) for size in shape):
        raise ShapeError(f"the shape {shapes.text(shape)} has a negative size")
    return shapes.tensor(shape, dtype)


def _infer_constant(*, data: bytes, shape: Sequence[Dim], dtype: DType) -> TensorType:
    count = product(shape).constant
    if count is None or len(data) != count * dtype.size_bytes:
        raise ShapeError(f"{len(data)} bytes are no data of shape {shapes.text(shape)} and dtype {dtype}")
    return shapes.tensor(shape, dtype)


def _infer_iota(*, shape: Sequence[Dim], axis: int, dtype: DType) -> TensorType:
    shapes.check_axis(axis, len(shape))
    return _infer_full(value=0, shape=shape, dtype=dtype)


def _constant(emitter: Emitter, data: bytes, shape: Sequence[Dim], dtype: DType) -> Expression:
    return emitter.wrap(emitter.one("const", [], {"data": data}, shapes.tensor(shape, dtype)))


def _full(emitter: Emitter, value: bool | int | float, shape: Sequence[Dim], dtype: DType) -> Expression:
    return emitter.constant(value, shape, dtype)


def _iota(emitter: Emitter, shape: Sequence[Dim], axis: int, dtype: DType) -> Expression:
    return emitter.positions_along(shape, axis).cast(dtype)


def _constant_array(data: bytes, shape: Sequence[int], dtype: DType) -> Array:
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def _full_array(value: bool | int | float, shape: Sequence[int], dtype: DType) -> Array:
    pattern = np.full(shape, to_bits(value, dtype), dtype.bit_carrier)
    return pattern.view(dtype.numpy)


def _iota_array(shape: Sequence[int], axis: int, dtype: DType) -> Array:
    along = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return cast_array(np.broadcast_to(along, shape), dtype)


define(
    "cast",
    "x | dtype:dtype written:bool=True",
    _infer_cast,
    _cast,
    lambda x, dtype, written: cast_array(x, dtype),
)
define("bitcast", "x | dtype:dtype", _infer_bitcast, Expression.bitcast, lambda x, dtype: x.view(dtype.numpy))
CREATION: dict[str, tuple[str, Evaluate, Evaluate, Evaluate]] = {
    "constant": ("| data:bytes shape:dims dtype:dtype", _infer_constant, _constant, _constant_array),
    "full": ("| value:number shape:dims dtype:dtype", _infer_full, _full, _full_array),
    "iota": ("| shape:dims axis:int dtype:dtype='i64'", _infer_iota, _iota, _iota_array),
    "dim_value": (
        "| dim:dim",
        lambda *, dim: shapes.tensor((), i64),
        lambda emitter, dim: emitter.size(dim),
        lambda dim: np.array(dim, np.int64),
    ),
}
"""Operations without operands: signature, inference, the spelling in primitives, NumPy."""

for _name, (_signature, _create, _decompose, _interpret) in CREATION.items():
    define(_name, _signature, _create, _decompose, _interpret, creates=True)
