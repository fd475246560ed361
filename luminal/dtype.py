"""Element types: names, sizes, limits, NumPy and torch counterparts, and constants as bit patterns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Union, cast

import ml_dtypes
import numpy as np

from luminal.errors import DTypeError

if TYPE_CHECKING:
    import torch

Kind = Literal["float", "integer", "bool"]


@dataclass(frozen=True, eq=False)
class DType:
    """One element type, each a single object. `bits` is the width of a value; in memory it takes `size_bytes`."""

    name: str
    kind: Kind
    bits: int
    signed: bool
    numpy_name: str
    torch_name: str | None
    """None where torch has no unpacked type (f4e2m1)."""

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for i64 .. u8; bool is no integer."""
        return self.kind == "integer"

    @property
    def is_signed(self) -> bool:
        return self.signed

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory; f4e2m1 takes a whole byte unless packed in a u8 plane."""
        return max(1, self.bits // 8)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype (of ml_dtypes for bf16, fp8 and fp4)."""
        return np.dtype(getattr(ml_dtypes if hasattr(ml_dtypes, self.numpy_name) else np, self.numpy_name))

    @property
    def torch(self) -> torch.dtype:
        """The torch dtype; DTypeError for f4e2m1, of which torch has packed pairs only."""
        import torch

        if self.torch_name is None:
            raise DTypeError(f"torch has no unpacked dtype {self.name}")
        return getattr(torch, self.torch_name)

    @property
    def accumulate(self) -> DType:
        """The dtype in which sums and products are kept: f32 for narrower floats, else the dtype itself."""
        return f32 if self.is_float and self.bits < 32 else self

    @property
    def bit_carrier(self) -> np.dtype[Any]:
        """The unsigned NumPy dtype of one element's bytes."""
        return np.dtype(f"u{self.size_bytes}")

    @property
    def pattern_bits(self) -> int:
        """How many bits of an element's bytes a pattern may use: 1 for bool, 4 for f4e2m1, else all."""
        return 1 if self.is_bool else self.bits

    @property
    def lowest(self) -> int | float:
        """The least value: -inf where the type has it, else the least finite one; False is 0."""
        if self.is_float:
            return -math.inf if self.has_infinity else float(ml_dtypes.finfo(self.numpy).min)
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int | float:
        """The largest value: inf where the type has it, else the largest finite one."""
        if self.is_float:
            return math.inf if self.has_infinity else float(ml_dtypes.finfo(self.numpy).max)
        return 1 if self.is_bool else (1 << (self.bits - self.signed)) - 1

    @property
    def has_infinity(self) -> bool:
        return self.is_float and self.name not in ("f8e4m3fn", "f4e2m1")

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return dtype_of, (self.name,)  # copies and pickles stay the one object

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


f64 = DType("f64", "float", 64, True, "float64", "float64")
f32 = DType("f32", "float", 32, True, "float32", "float32")
f16 = DType("f16", "float", 16, True, "float16", "float16")
bf16 = DType("bf16", "float", 16, True, "bfloat16", "bfloat16")
f8e4m3fn = DType("f8e4m3fn", "float", 8, True, "float8_e4m3fn", "float8_e4m3fn")
f8e5m2 = DType("f8e5m2", "float", 8, True, "float8_e5m2", "float8_e5m2")
f4e2m1 = DType("f4e2m1", "float", 4, True, "float4_e2m1fn", None)
i64 = DType("i64", "integer", 64, True, "int64", "int64")
i32 = DType("i32", "integer", 32, True, "int32", "int32")
i16 = DType("i16", "integer", 16, True, "int16", "int16")
i8 = DType("i8", "integer", 8, True, "int8", "int8")
u8 = DType("u8", "integer", 8, False, "uint8", "uint8")
bool_ = DType("bool", "bool", 8, False, "bool_", "bool")

DTYPES: dict[str, DType] = {
    d.name: d for d in (f64, f32, f16, bf16, f8e4m3fn, f8e5m2, f4e2m1, i64, i32, i16, i8, u8, bool_)
}
_ALIASES: dict[str, DType] = {
    **DTYPES,
    **{d.numpy_name: d for d in DTYPES.values()},
    **{d.torch_name: d for d in DTYPES.values() if d.torch_name},
    "double": f64,
    "float": f32,
    "half": f16,
    "long": i64,
    "int": i32,
    "short": i16,
}
_OF_NUMPY: dict[np.dtype[Any], DType] = {d.numpy: d for d in DTYPES.values()}
DTypeLike = Union[str, DType, "np.dtype[Any]", "torch.dtype", type]


def dtype_of(value: DTypeLike) -> DType:
    """The DType of a name ("f32", "float32"), a DType, a NumPy dtype or scalar type, or a torch dtype."""
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype) and value in _OF_NUMPY:
        return _OF_NUMPY[value]
    if isinstance(value, str):
        name = value.removeprefix("torch.")
    elif type(value).__module__ == "torch":
        name = str(value).removeprefix("torch.")
    else:
        try:
            name = np.dtype(cast(Any, value)).name
        except TypeError:
            name = repr(value)
    if name not in _ALIASES:
        raise DTypeError(f"{value!r} is no dtype that Luminal has; it has {', '.join(DTYPES)}")
    return _ALIASES[name]


def to_bits(value: bool | int | float | np.generic, dtype: DType) -> int:
    """The bit pattern of `value` as one element of `dtype`, with torch's conversion of a Python number.

    A float rounds to f32 first and from there to a narrower type, as in torch. Raises DTypeError for a number that
    an integer dtype cannot hold; u8 takes -128 to -1 too and wraps them.
    """
    if isinstance(value, np.generic) and value.dtype == dtype.numpy:
        return int(value.view(dtype.bit_carrier))
    plain: bool | int | float = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (bool, int, float)):
        plain = float(plain)
    if dtype.is_bool:
        return int(plain != 0)
    if dtype.is_integer:
        return _integer_bits(plain, dtype)
    return int(cast_array(np.asarray(float(plain), np.float64), dtype).view(dtype.bit_carrier))


def cast_array(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """`values` (of any of our dtypes) as `dtype`, with the meaning of torch's `.to()`.

    Narrow floats round from f32, so f64 and i64 round twice. f8e4m3fn and f4e2m1 saturate, infinities included. A
    float outside the range of i64 or i32 becomes the least value; i16 and i8 go through i32, u8 through i64.
    """
    if values.dtype == dtype.numpy:
        return values
    if dtype.is_bool:
        return np.asarray(values != 0)
    source = dtype_of(values.dtype)
    with np.errstate(all="ignore"):
        if source.is_float and source.bits < 32:
            values = values.astype(np.float32)
        if dtype.is_integer and source.is_float:
            return _truncate(values, i64 if dtype is u8 else i32 if dtype.bits < 32 else dtype).astype(
                dtype.numpy
            )
        if dtype.is_integer or dtype.bits >= 32:
            return values.astype(dtype.numpy)
        single = values.astype(np.float32)
        if not dtype.has_infinity:
            single = np.asarray(np.clip(single, dtype.lowest, dtype.highest), np.float32)
        return single.astype(dtype.numpy)


def _truncate(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    whole = np.trunc(values)
    fits = (whole >= float(dtype.lowest)) & (whole < -float(dtype.lowest))
    return np.where(fits, whole, 0).astype(dtype.numpy) + np.where(fits, 0, dtype.lowest).astype(dtype.numpy)


def _integer_bits(value: bool | int | float, dtype: DType) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise DTypeError(f"{value} cannot be an {dtype} constant")
    whole = int(value)
    if not -(1 << (dtype.bits - 1)) <= whole <= dtype.highest:
        raise DTypeError(f"{value} does not fit in {dtype}, which holds {dtype.lowest} to {dtype.highest}")
    return whole & ((1 << dtype.bits) - 1)


def from_bits(bits: int, dtype: DType) -> np.generic:
    """The NumPy scalar of `dtype` with this bit pattern."""
    if not 0 <= bits < 1 << dtype.pattern_bits:
        raise DTypeError(f"{bits:#x} is no bit pattern of {dtype}, which has {dtype.pattern_bits} bits")
    return cast(np.generic, np.array(bits, dtype.bit_carrier).view(dtype.numpy)[()])
