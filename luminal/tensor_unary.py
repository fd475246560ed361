"""Methods on one tensor, element by element: casts, functions, tests and bits, with PyTorch's dtypes and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from luminal.dtype import DTypeLike, bool_
from luminal.errors import DTypeError, OptionError
from luminal.promotion import float_result
from luminal.tensor_base import TensorBase

if TYPE_CHECKING:
    from luminal.tensor import Tensor


class UnaryMethods(TensorBase):
    """Casts and functions of one tensor."""

    __slots__ = ()

    # ---- casts -----------------------------------------------------------------------------------------------------

    def cast(self, dtype: DTypeLike) -> Tensor:
        """The values converted as `Tensor.to(dtype)` converts them: floats truncate, integers wrap, bool is != 0."""
        return self._as(dtype)

    def to(self, dtype: DTypeLike) -> Tensor:
        """`cast` under PyTorch's name."""
        return self._as(dtype)

    # ---- unary: the dtype stays ------------------------------------------------------------------------------------

    def abs(self) -> Tensor:
        return self._keep("abs")

    def neg(self) -> Tensor:
        return self._keep("neg")

    def sign(self) -> Tensor:
        """-1, 0 or 1; NaN gives 0, as PyTorch does."""
        return cast("Tensor", self) if self.dtype.is_bool else self._keep("sign")

    def relu(self) -> Tensor:
        return self._keep("relu")

    def square(self) -> Tensor:
        """x * x; bool gives i64."""
        return cast("Tensor", self).pow(2)

    def floor(self) -> Tensor:
        return self._round("floor")

    def ceil(self) -> Tensor:
        return self._round("ceil")

    def trunc(self) -> Tensor:
        return self._round("trunc")

    def round(self, *, decimals: int = 0) -> Tensor:
        """To the nearest integer, ties to even; or to `decimals` digits after (before, if negative) the point."""
        if not decimals:
            return self._round("round")
        self._check_computed("round", float_only=True)
        scale = 10.0 ** abs(decimals)
        wide = self._as(self.dtype.accumulate)  # narrow floats are rounded once, at the end
        if decimals > 0:
            return wide.mul(scale)._round("round").div(scale)._as(self.dtype)
        return wide.div(scale)._round("round").mul(scale)._as(self.dtype)

    # ---- unary: integers give f32 ----------------------------------------------------------------------------------

    def exp(self) -> Tensor:
        return self._float("exp")

    def exp2(self) -> Tensor:
        return self._float("exp2")

    def expm1(self) -> Tensor:
        return self._float("expm1")

    def log(self) -> Tensor:
        return self._float("log")

    def log2(self) -> Tensor:
        return self._float("log2")

    def log10(self) -> Tensor:
        return self._float("log10")

    def log1p(self) -> Tensor:
        return self._float("log1p")

    def sin(self) -> Tensor:
        return self._float("sin")

    def cos(self) -> Tensor:
        return self._float("cos")

    def tan(self) -> Tensor:
        return self._float("tan")

    def sinh(self) -> Tensor:
        return self._float("sinh")

    def cosh(self) -> Tensor:
        return self._float("cosh")

    def tanh(self) -> Tensor:
        return self._float("tanh")

    def asin(self) -> Tensor:
        return self._float("asin")

    def acos(self) -> Tensor:
        return self._float("acos")

    def atan(self) -> Tensor:
        return self._float("atan")

    def asinh(self) -> Tensor:
        return self._float("asinh")

    def acosh(self) -> Tensor:
        return self._float("acosh")

    def atanh(self) -> Tensor:
        return self._float("atanh")

    def erf(self) -> Tensor:
        return self._float("erf")

    def sigmoid(self) -> Tensor:
        return self._float("sigmoid")

    def sqrt(self) -> Tensor:
        return self._float("sqrt")

    def rsqrt(self) -> Tensor:
        return self._float("rsqrt")

    def reciprocal(self) -> Tensor:
        return self._float("reciprocal")

    # ---- unary: floats only ----------------------------------------------------------------------------------------

    def silu(self) -> Tensor:
        self._check_computed("silu", float_only=True)
        return self._emit("silu", self)

    def gelu(self, approximate: Literal["none", "tanh"] = "none") -> Tensor:
        if approximate not in ("none", "tanh"):
            raise self._fail(
                "gelu", f"approximate is {approximate!r}, expected 'none' or 'tanh'", OptionError
            )
        self._check_computed("gelu", float_only=True)
        return self._emit("gelu", self, approximate=approximate)

    # ---- tests and bits --------------------------------------------------------------------------------------------

    def isnan(self) -> Tensor:
        return self._emit("isnan", self) if self.dtype.is_float else self.graph.full_like(self, False, bool_)

    def isinf(self) -> Tensor:
        return self._emit("isinf", self) if self.dtype.is_float else self.graph.full_like(self, False, bool_)

    def isfinite(self) -> Tensor:
        return (
            self._emit("isfinite", self) if self.dtype.is_float else self.graph.full_like(self, True, bool_)
        )

    def logical_not(self) -> Tensor:
        self._check_computed("logical_not")
        return self._emit("logical_not", self._as(bool_))

    def bitwise_not(self) -> Tensor:
        if self.dtype.is_float:
            raise self._fail(
                "bitwise_not", f"dtype is {self.dtype.name}, expected an integer or bool", DTypeError
            )
        return self._emit("bitwise_not", self)

    # ---- how they are made -----------------------------------------------------------------------------------------

    def _keep(self, name: str) -> Tensor:
        self._check_computed(name, boolean=False)
        return self._emit(name, self)

    def _round(self, name: str) -> Tensor:
        self._check_computed(name, boolean=False)
        return self._emit(name, self) if self.dtype.is_float else cast("Tensor", self)

    def _float(self, name: str) -> Tensor:
        self._check_computed(name)
        return self._emit(name, self._as(float_result(self.dtype)))
