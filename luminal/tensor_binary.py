"""Arithmetic, comparison, logic and selection on several operands, and Python's operators, as PyTorch has them.

An operand is a tensor, a number or a dim; their common dtype is that of `luminal.promotion`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from luminal.dim import Dim
from luminal.dtype import DType, bf16, bool_, f16, f32, f64, u8
from luminal.errors import DTypeError, OptionError, ScalarError
from luminal.promotion import Number, computes_wide, float_result, result_type, round_number
from luminal.tensor_base import TensorBase
from luminal.tensor_unary import UnaryMethods

if TYPE_CHECKING:
    from luminal.tensor import Tensor

Other: TypeAlias = "Tensor | Number | Dim"


class BinaryMethods(UnaryMethods):
    """Elementwise methods on two and three operands, and all operators but @ and []."""

    __slots__ = ()

    # ---- arithmetic ------------------------------------------------------------------------------------------------

    def add(self, other: Other, *, alpha: Number = 1) -> Tensor:
        """self + alpha * other. On bool it is a logical or."""
        return self._binary("add", other) if _is_one(alpha) else self._add_scaled("add", other, alpha)

    def sub(self, other: Other, *, alpha: Number = 1) -> Tensor:
        """self - alpha * other. Bool is refused, as in PyTorch."""
        self._refuse_bool_subtraction(other)
        return self._binary("sub", other) if _is_one(alpha) else self._add_scaled("sub", other, alpha)

    def mul(self, other: Other) -> Tensor:
        """self * other. On bool it is a logical and."""
        return self._binary("mul", other)

    def div(self, other: Other, *, rounding_mode: Literal["trunc", "floor"] | None = None) -> Tensor:
        """True division (integers give f32), or with `rounding_mode` "trunc" or "floor" the rounded quotient."""
        if rounding_mode is None:
            return self._binary("div", other, result=float_result)
        if rounding_mode not in ("trunc", "floor"):
            raise self._fail(
                "div", f"rounding_mode is {rounding_mode!r}, expected None, 'trunc', 'floor'", OptionError
            )
        return self._divide("trunc_divide" if rounding_mode == "trunc" else "floor_divide", other)

    def floor_divide(self, other: Other) -> Tensor:
        return self._divide("floor_divide", other)

    def remainder(self, other: Other) -> Tensor:
        """The remainder with the sign of the divisor: Python's %."""
        return self._divide("remainder", other)

    def fmod(self, other: Other) -> Tensor:
        """The remainder with the sign of the dividend: C's fmod."""
        return self._divide("fmod", other)

    def pow(self, exponent: Other) -> Tensor:
        """self ** exponent. As in PyTorch the numbers 2, 3, 0.5, -0.5, -1 and -2 are products, roots, reciprocals."""
        if isinstance(exponent, (TensorBase, Dim)):
            return self._power(exponent)
        self._check_computed("pow")
        number = self._number(exponent, "pow")
        dtype = result_type(self.type, number)
        if dtype.is_bool:
            return cast("Tensor", self) if number else self.graph.full_like(self, True)
        if dtype.is_integer and number < 0:
            raise self._fail("pow", f"integers have no power {number}; cast to a float first", ScalarError)
        exponent = round_number(self._fill_value(number, dtype, "pow") or 0, dtype)
        if (
            dtype == f16 and abs(exponent) == 0.5
        ):  # for f16 alone PyTorch takes no roots: (-inf) ** 0.5 is inf
            return self._power(exponent)
        return self._emit("pow_scalar", self._as(dtype), exponent=exponent)

    def maximum(self, other: Other) -> Tensor:
        """The larger; NaN if either is NaN."""
        return self._binary("maximum", other)

    def minimum(self, other: Other) -> Tensor:
        """The smaller; NaN if either is NaN."""
        return self._binary("minimum", other)

    def atan2(self, other: Other) -> Tensor:
        return self._binary("atan2", other, result=float_result)

    def clamp(self, min: Other | None = None, max: Other | None = None) -> Tensor:
        """At least `min` and at most `max` (`max` wins where they cross); NaN stays. One of them may be None."""
        bounds = [bound for bound in (min, max) if bound is not None]
        if not bounds:
            raise self._fail("clamp", "both min and max are None, expected at least one", OptionError)
        self._check_computed("clamp")
        dtype = result_type(self.type, *(self._promotable(bound, "clamp") for bound in bounds))
        if dtype.is_bool and (len(bounds) == 2 or not isinstance(bounds[0], TensorBase)):
            raise self._fail(
                "clamp",
                "dtype is bool, of which only one bound, a tensor, is defined; cast first",
                DTypeError,
            )
        result = self._as(dtype)
        numbers = {"low": min, "high": max}
        if not any(isinstance(bound, (TensorBase, Dim)) for bound in bounds):
            return result._emit(
                "clamp", result, **{k: self._fill_value(v, dtype, "clamp") for k, v in numbers.items()}
            )
        if min is not None:
            result = result._emit("maximum", result, self._fill(min, dtype, "clamp"))
        if max is not None:
            result = result._emit("minimum", result, self._fill(max, dtype, "clamp"))
        return result

    # ---- comparison and logic --------------------------------------------------------------------------------------

    def eq(self, other: Other) -> Tensor:
        return self._binary("eq", other)

    def ne(self, other: Other) -> Tensor:
        return self._binary("ne", other)

    def lt(self, other: Other) -> Tensor:
        return self._binary("lt", other)

    def le(self, other: Other) -> Tensor:
        return self._binary("le", other)

    def gt(self, other: Other) -> Tensor:
        return self._binary("gt", other)

    def ge(self, other: Other) -> Tensor:
        return self._binary("ge", other)

    def logical_and(self, other: Other) -> Tensor:
        return self._logical("logical_and", other)

    def logical_or(self, other: Other) -> Tensor:
        return self._logical("logical_or", other)

    def logical_xor(self, other: Other) -> Tensor:
        return self._logical("logical_xor", other)

    def bitwise_and(self, other: Other) -> Tensor:
        return self._bits("bitwise_and", other)

    def bitwise_or(self, other: Other) -> Tensor:
        return self._bits("bitwise_or", other)

    def bitwise_xor(self, other: Other) -> Tensor:
        return self._bits("bitwise_xor", other)

    def bitwise_left_shift(self, other: Other) -> Tensor:
        return self._bits("shift_left", other)

    def bitwise_right_shift(self, other: Other) -> Tensor:
        """Arithmetic: the sign stays."""
        return self._bits("shift_right", other)

    # ---- selection -------------------------------------------------------------------------------------------------

    def where(self, condition: Tensor, other: Other) -> Tensor:
        """self where `condition` (bool) holds, elsewhere `other`."""
        return select(condition, cast("Tensor", self), other)

    def masked_fill(self, mask: Tensor, value: Number | Tensor) -> Tensor:
        """`value` where `mask` (bool) holds; the dtype stays that of self."""
        if isinstance(value, TensorBase) and value.ndim:
            raise self._fail("masked_fill", f"value is {value.described()}, expected a number or rank 0")
        self._promotable(mask, "masked_fill")
        _check_condition(mask, "masked_fill")
        return self._emit("where", mask, self._fill(value, self.dtype, "masked_fill"), self)

    # ---- operators -------------------------------------------------------------------------------------------------

    __hash__ = object.__hash__
    __neg__ = UnaryMethods.neg
    __abs__ = UnaryMethods.abs
    __invert__ = UnaryMethods.bitwise_not
    __add__ = __radd__ = add
    __sub__ = sub
    __mul__ = __rmul__ = mul
    __truediv__ = div
    __floordiv__ = floor_divide
    __mod__ = remainder
    __pow__ = pow
    __lt__ = lt
    __le__ = le
    __gt__ = gt
    __ge__ = ge
    __and__ = __rand__ = bitwise_and
    __or__ = __ror__ = bitwise_or
    __xor__ = __rxor__ = bitwise_xor
    __lshift__ = bitwise_left_shift
    __rshift__ = bitwise_right_shift

    def __pos__(self) -> Tensor:
        if self.dtype.is_bool:
            raise self._fail("+", "dtype is bool, expected an integer or a float; cast first", DTypeError)
        return cast("Tensor", self)

    def __rsub__(self, other: Number | Dim) -> Tensor:
        self._refuse_bool_subtraction(other)
        return self._binary("sub", other, reverse=True)

    def __rtruediv__(self, other: Number | Dim) -> Tensor:
        """other * (1 / self), which is how PyTorch computes it."""
        return self.reciprocal().mul(other)

    def __rfloordiv__(self, other: Number | Dim) -> Tensor:
        return self._divide("floor_divide", other, reverse=True)

    def __rmod__(self, other: Number | Dim) -> Tensor:
        return self._divide("remainder", other, reverse=True)

    def __rpow__(self, base: Number | Dim) -> Tensor:
        return self._power(base, reverse=True)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.eq(cast(Any, other)) if _is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.ne(cast(Any, other)) if _is_operand(other) else NotImplemented

    def __rlshift__(self, other: Number | Dim) -> Tensor:
        return self._bits("shift_left", other, reverse=True)

    def __rrshift__(self, other: Number | Dim) -> Tensor:
        return self._bits("shift_right", other, reverse=True)

    # ---- how they are made -----------------------------------------------------------------------------------------

    def _binary(
        self,
        name: str,
        other: object,
        *,
        reverse: bool = False,
        result: Callable[[DType], DType] | None = None,
    ) -> Tensor:
        """`name` on self and other (other and self, if `reverse`) in their common dtype, or in `result` of it."""
        self._check_computed(name)
        typed = self._promotable(other, name)
        if isinstance(other, TensorBase):
            other._check_computed(name)
        dtype = result_type(self.type, typed)
        if result is not None:
            dtype = result(dtype)
        if not reverse and computes_wide(name, dtype, typed):
            return self._emit(name, self._as(f32), self._operand(other, f32, name))._as(dtype)
        left, right = self._as(dtype), self._operand(other, dtype, name)
        return self._emit(name, *((right, left) if reverse else (left, right)))

    def _divide(self, name: str, other: object, *, reverse: bool = False) -> Tensor:
        """Rounded division and remainders: no bool, and no integer by the number 0."""
        dtype = result_type(self.type, self._promotable(other, name))
        if dtype.is_bool:
            raise self._fail(name, "both operands are bool, expected an integer or a float", DTypeError)
        if not reverse and dtype.is_integer and not isinstance(other, (TensorBase, Dim)) and other == 0:
            raise self._fail(name, "an integer is divided by zero", ScalarError)
        return self._binary(name, other, reverse=reverse)

    def _power(self, other: object, *, reverse: bool = False) -> Tensor:
        if result_type(self.type, self._promotable(other, "pow")).is_bool:
            raise self._fail("pow", "base and exponent are bool, expected an integer or a float", DTypeError)
        return self._binary("pow", other, reverse=reverse)

    def _add_scaled(self, name: str, other: object, alpha: Number) -> Tensor:
        self._check_computed(name)
        dtype = result_type(self.type, self._promotable(other, name))
        if not dtype.is_float and isinstance(alpha, float):
            raise self._fail(name, f"alpha is {alpha}, expected a whole number for {dtype.name}", DTypeError)
        if isinstance(alpha, bool) and not dtype.is_bool:
            raise self._fail(name, f"alpha is {alpha}, expected a number for {dtype.name}", DTypeError)
        # Both halves of a f16 or bf16 result are rounded once, after the sum.
        wide = dtype.accumulate
        scale = self._fill(alpha, dtype, name)._as(wide)
        scaled = self._emit("mul", self._operand(other, dtype, name)._as(wide), scale)
        return self._emit(name, self._as(dtype)._as(wide), scaled)._as(dtype)

    def _refuse_bool_subtraction(self, other: object) -> None:
        is_bool = other.dtype.is_bool if isinstance(other, TensorBase) else isinstance(other, bool)
        if self.dtype.is_bool or is_bool:
            raise self._fail("sub", "subtraction is not defined on bool; use ^ or logical_not()", DTypeError)

    def _logical(self, name: str, other: object) -> Tensor:
        """On the common dtype's truth: in PyTorch an i32 scalar beside an i16 tensor is wrapped before it is tested."""
        self._check_computed(name)
        dtype = result_type(self.type, self._promotable(other, name))
        if isinstance(other, TensorBase):
            other._check_computed(name)
        left, right = self._as(dtype), self._operand(other, dtype, name)
        return self._emit(name, left._as(bool_), right._as(bool_))

    def _bits(self, name: str, other: object, *, reverse: bool = False) -> Tensor:
        dtype = result_type(self.type, self._promotable(other, name))
        if dtype.is_float or (dtype.is_bool and name.startswith("shift")):
            expected = "integers" if name.startswith("shift") else "integers or bool"
            raise self._fail(name, f"the common dtype is {dtype.name}, expected {expected}", DTypeError)
        return self._binary(name, other, reverse=reverse)


def select(condition: Tensor, input: Other, other: Other) -> Tensor:
    """`input` where the bool `condition` holds, elsewhere `other`, in their common dtype: `torch.where`."""
    _check_condition(condition, "where")
    operands = [condition._promotable(value, "where") for value in (input, other)]
    dtype = result_type(*operands)
    checked_as = f64 if dtype in (f16, bf16) else dtype
    filled = [condition._fill(value, dtype, "where", checked_as) for value in (input, other)]
    return condition._emit("where", condition._as(bool_), *filled)


def _check_condition(condition: object, method: str) -> None:
    if not isinstance(condition, TensorBase):
        raise DTypeError(f"{method}: the condition is a {type(condition).__name__}, expected a bool Tensor")
    if condition.dtype not in (bool_, u8):
        raise DTypeError(f"{method}: the condition is {condition.described()}, expected dtype bool")


def _is_one(alpha: Number) -> bool:
    return alpha == 1 and not isinstance(alpha, (bool, float))


def _is_operand(value: object) -> bool:
    return isinstance(value, (TensorBase, Dim, bool, int, float)) or hasattr(value, "item")
