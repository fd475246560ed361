"""PyTorch's dtype promotion, for every front end.

An operand is a number, a dim (an int like any other), or anything with a `dtype` and a `shape`: a tensor of the Graph
API, or the type of an SSA value. Three priorities as in PyTorch: tensors with dims, then tensors of rank 0, then
numbers; a lower one changes the result only if its kind (bool < integer < float) is higher.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import ml_dtypes

from luminal.dim import Dim
from luminal.dtype import DType, bf16, bool_, f16, f32, from_bits, i16, i64, to_bits
from luminal.errors import DTypeError, ScalarError

DEFAULT_FLOAT = f32
Number = bool | int | float


class Typed(Protocol):
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[Dim, ...]: ...


Operand = Number | Dim | Typed

# For a f16 or bf16 result, PyTorch computes these in f32 with a right-hand number (or rank 0 tensor) that has not been
# rounded to the result's dtype. Elsewhere the number is rounded first.
WIDE_SCALAR_OPS = frozenset({"mul", "div", "floor_divide", "trunc_divide"})


def kind_rank(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    if dtype.is_bool:
        return 0
    return 2 if dtype.is_float else 1


def is_small_float(dtype: DType) -> bool:
    """fp8 and fp4: formats that are kept and cast, never computed with."""
    return dtype.is_float and dtype.size_bytes < 2


def promote_types(left: DType, right: DType) -> DType:
    """The dtype of an operation on tensors of the two dtypes: `torch.promote_types`.

    Raises DTypeError where a fp8 or fp4 dtype meets another one, as PyTorch does.
    """
    if left == right:
        return left
    for dtype in (left, right):
        if is_small_float(dtype):
            raise DTypeError(
                f"{left.name} and {right.name} do not promote: cast the {dtype.name} tensor first"
            )
    if kind_rank(left) != kind_rank(right):
        return left if kind_rank(left) > kind_rank(right) else right
    if {left, right} == {f16, bf16}:
        return f32
    if left.is_integer and left.is_signed != right.is_signed and left.bits == right.bits:
        return i16  # i8 with u8: no 8-bit dtype holds both
    return left if left.bits > right.bits else right


def number_dtype(value: Number | Dim) -> DType:
    """The dtype of a number that stands alone: bool, i64 or f32."""
    if isinstance(value, bool):
        return bool_
    return DEFAULT_FLOAT if isinstance(value, float) else i64


def result_type(*operands: Operand) -> DType:
    """The common dtype that PyTorch computes an operation on these operands in: `torch.result_type`."""
    levels: list[list[DType]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, (bool, int, float, Dim)):
            levels[2].append(number_dtype(operand))
        else:
            levels[0 if len(operand.shape) else 1].append(operand.dtype)
    higher = _promote_all(levels[0])
    for level in levels[1:]:
        lower = _promote_all(level)
        if higher is None or lower is None:
            higher = higher or lower
        elif kind_rank(lower) > kind_rank(higher):
            higher = promote_types(higher, lower)
    if higher is None:
        raise DTypeError("a result dtype needs at least one operand")
    return higher


def _promote_all(dtypes: Sequence[DType]) -> DType | None:
    result = None
    for dtype in dtypes:
        result = dtype if result is None else promote_types(result, dtype)
    return result


def computes_wide(name: str, result: DType, right: Operand) -> bool:
    """Whether the operation `name` keeps its right-hand operand in f32 although its result is f16 or bf16."""
    if name not in WIDE_SCALAR_OPS or result not in (f16, bf16):
        return False
    if isinstance(right, (bool, int, float)):
        return True
    return not isinstance(right, Dim) and not right.shape and right.dtype != result


def wrap_number(value: Number, dtype: DType) -> Number:
    """The number as arithmetic with a tensor of `dtype` sees it: integers wrap, what i64 can't hold is an error."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ScalarError(f"the integer {value} does not fit into 64 bits")
        return float(value)
    integer = int(value)
    if not -(2**63) <= integer < 2**63:
        raise ScalarError(f"the integer {value} does not fit into 64 bits")
    modulus = 1 << dtype.bits
    integer %= modulus
    return integer - modulus if dtype.is_signed and integer >= modulus >> 1 else integer


def fill_number(value: Number, dtype: DType, checked_as: DType | None = None) -> Number:
    """The number as a fill value of a tensor of `dtype` (pad, clamp, masked_fill): out of range is an error.

    As in PyTorch a float is truncated, a negative int (no float) wraps into u8, and infinities are in range.
    `checked_as` is the dtype whose range counts: torch.full and torch.where take any float into f16 and bf16.
    """
    limit = checked_as or dtype
    if dtype.is_integer:
        top = int(dtype.highest)
        bottom = int(dtype.lowest) if dtype.is_signed else 0 if isinstance(value, float) else -top
        if not bottom <= value <= top:  # also for NaN
            raise ScalarError(f"{value} is out of the range of {dtype.name}, which is {bottom} to {top}")
    elif dtype.is_float and math.isfinite(value):
        top = float(ml_dtypes.finfo(limit.numpy).max)
        if abs(value) > top:
            raise ScalarError(f"{value} is out of the range of {limit.name}, which is {-top} to {top}")
    return wrap_number(int(value) if dtype.is_integer else value, dtype)


def round_number(value: Number, dtype: DType) -> Number:
    """A number rounded to a float dtype, as PyTorch rounds the exponents of powers; other dtypes leave it alone."""
    return float(from_bits(to_bits(value, dtype), dtype)) if dtype.is_float else value


def float_result(dtype: DType) -> DType:
    """The dtype of exp, division and the like: floats keep theirs, bool and integers give f32."""
    return dtype if dtype.is_float else DEFAULT_FLOAT


def sum_result(dtype: DType) -> DType:
    """The dtype of sum, prod, cumsum and cumprod: bool and integers give i64."""
    return dtype if dtype.is_float else i64
