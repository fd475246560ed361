"""Methods that reduce, scan, sort, normalise and multiply matrices, with PyTorch's names, arguments and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import ml_dtypes

from luminal.dim import DimLike, known_equal, product
from luminal.dtype import DTypeLike, bf16, bool_, f16, f32, i64, u8
from luminal.errors import DTypeError, OptionError, ShapeError
from luminal.promotion import Number, sum_result
from luminal.tensor_base import TensorBase, shape_text, size_of

if TYPE_CHECKING:
    from luminal.tensor import Tensor

Axes: TypeAlias = "int | Sequence[int] | None"


class ValuesAndIndices(NamedTuple):
    """What max(dim), min(dim), cummax, cummin, sort and topk give."""

    values: Tensor
    indices: Tensor


class ReductionMethods(TensorBase):
    """Reductions take `dim` as None (all axes), an int or a tuple, and `keepdim`."""

    __slots__ = ()

    # ---- sums and what is built of them ----------------------------------------------------------------------------

    def sum(self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Tensor:
        """bool and integers sum in i64; f16 and bf16 accumulate in f32. Over nothing it is 0."""
        return self._sum("sum", dim, keepdim, dtype)

    def prod(self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Tensor:
        """The product, with the dtypes of `sum`. Over nothing it is 1."""
        return self._sum("prod", dim, keepdim, dtype)

    def mean(self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Tensor:
        """Floats only, unless `dtype` says one; f16 and bf16 round the mean, not what it adds up. Over nothing NaN."""
        asked = self if dtype is None else self._as(dtype)
        asked._check_computed("mean", float_only=True)
        source = self._as(f32) if asked is not self and asked.dtype in (f16, bf16) else asked
        found = self._emit("mean", source, axes=source._axes(dim, "mean"), keepdim=bool(keepdim))
        return found._as(asked.dtype)

    def var(
        self, dim: Axes = None, *, correction: Number = 1, keepdim: bool = False, unbiased: bool | None = None
    ) -> Tensor:
        """The variance with divisor max(0, n - correction); `unbiased` False is correction 0. Floats only."""
        self._check_computed("var", float_only=True)
        amount = float(correction) if unbiased is None else float(unbiased)
        return self._emit("var", self, axes=self._axes(dim, "var"), correction=amount, keepdim=bool(keepdim))

    def std(
        self, dim: Axes = None, *, correction: Number = 1, keepdim: bool = False, unbiased: bool | None = None
    ) -> Tensor:
        """The square root of `var`, rounded once."""
        wide = self._as(f32) if self.dtype in (f16, bf16) else self
        variance = wide.var(dim, correction=correction, keepdim=keepdim, unbiased=unbiased)
        return variance.sqrt()._as(self.dtype)

    def logsumexp(self, dim: Axes, keepdim: bool = False) -> Tensor:
        source = self if self.dtype.is_float else self._as(f32)
        source._check_computed("logsumexp")
        return self._emit("logsumexp", source, axes=source._axes(dim, "logsumexp"), keepdim=bool(keepdim))

    # ---- extrema ---------------------------------------------------------------------------------------------------

    def amax(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The largest value, NaN if there is one. Over nothing it is an error."""
        return self._extremum("max", dim, keepdim, "amax")

    def amin(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The smallest value, NaN if there is one. Over nothing it is an error."""
        return self._extremum("min", dim, keepdim, "amin")

    def max(self, dim: Axes | Tensor = None, keepdim: bool = False) -> Tensor | ValuesAndIndices:
        """As in PyTorch three things: over all axes a value, over one int axis (values, indices), with a tensor
        `maximum`. Over a tuple of axes, which PyTorch leaves to `amax`, it is `amax`."""
        return self._max_or_min("max", dim, keepdim)

    def min(self, dim: Axes | Tensor = None, keepdim: bool = False) -> Tensor | ValuesAndIndices:
        """As `max`."""
        return self._max_or_min("min", dim, keepdim)

    def argmax(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The i64 position of the first largest value, NaN being largest: in the flattened tensor, along one axis, or
        in the row-major order of several."""
        self._check_computed("argmax", boolean=False)
        return self._arg("argmax", dim, keepdim)

    def argmin(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The i64 position of the first smallest value, as `argmax`."""
        self._check_computed("argmin", boolean=False)
        return self._arg("argmin", dim, keepdim)

    def any(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Whether one is not 0; bool, but u8 for u8. `dim` () means no axes, as in PyTorch."""
        return self._any_or_all("any", dim, keepdim)

    def all(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Whether none is 0; bool, but u8 for u8."""
        return self._any_or_all("all", dim, keepdim)

    # ---- scans and sorting -----------------------------------------------------------------------------------------

    def cumsum(self, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
        """Inclusive running sums; bool and integers give i64."""
        return self._scan("cumsum", dim, dtype)

    def cumprod(self, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
        """Inclusive running products; bool and integers give i64."""
        return self._scan("cumprod", dim, dtype)

    def cummax(self, dim: int) -> ValuesAndIndices:
        """Running maxima and the position of the last one that is as large."""
        return self._pair("cummax", dim)

    def cummin(self, dim: int) -> ValuesAndIndices:
        return self._pair("cummin", dim)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesAndIndices:
        """Sorted values and where they came from; NaN is largest. Always stable, whatever `stable` says."""
        del stable
        return self._pair("sort", dim, descending=bool(descending))

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The indices of `sort`."""
        del stable
        return self.sort(dim, descending).indices

    def topk(self, k: DimLike, dim: int = -1, largest: bool = True) -> ValuesAndIndices:
        """The `k` largest (or smallest) along an axis, in order."""
        count = size_of(k, "k")
        axis = self._axis(dim, method="topk")
        size = self.shape[axis] if self.ndim else 1
        self._require(count, size, "topk", f"k is {count}, and dim {dim} has size {size}")
        return self._pair("topk", dim, count=count, largest=bool(largest))

    # ---- normalisations --------------------------------------------------------------------------------------------

    def softmax(self, dim: int, dtype: DTypeLike | None = None) -> Tensor:
        """exp(x - max) / sum(exp(x - max)); a slice of -inf alone gives NaN. Floats only, unless `dtype` says one."""
        return self._softmax("softmax", dim, dtype)

    def log_softmax(self, dim: int, dtype: DTypeLike | None = None) -> Tensor:
        return self._softmax("log_softmax", dim, dtype)

    def layer_norm(
        self,
        normalized_shape: DimLike | Sequence[DimLike],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, whose sizes are `normalized_shape`."""
        axes = self._normalised_axes("layer_norm", normalized_shape, {"weight": weight, "bias": bias})
        return self._emit("layer_norm", self, weight, bias, axes=axes, epsilon=float(eps))

    def rms_norm(
        self,
        normalized_shape: DimLike | Sequence[DimLike],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Tensor:
        """x / sqrt(mean(x * x) + eps) * weight over the last axes; `eps` None is the dtype's epsilon, as in PyTorch."""
        axes = self._normalised_axes("rms_norm", normalized_shape, {"weight": weight})
        epsilon = float(ml_dtypes.finfo(self.dtype.accumulate.numpy).eps) if eps is None else float(eps)
        return self._emit("rms_norm", self, weight, axes=axes, epsilon=epsilon)

    # ---- products --------------------------------------------------------------------------------------------------

    def matmul(self, other: Tensor) -> Tensor:
        """`torch.matmul`: leading axes broadcast, a vector is a row on the left and a column on the right."""
        if not isinstance(other, TensorBase):
            raise self._fail(
                "matmul", f"the other operand is a {type(other).__name__}, expected a Tensor", DTypeError
            )
        self._promotable(other, "matmul")
        pair = f"{self.described()} and {other.described()}"
        if self.dtype != other.dtype:
            raise DTypeError(f"matmul of {pair}: expected one dtype; cast one of them")
        if self.dtype.is_bool:
            raise DTypeError(f"matmul of {pair}: dtype bool, expected an integer or a float")
        return self._emit("matmul", self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.matmul(other)

    # ---- how they are made -----------------------------------------------------------------------------------------

    def _sum(self, name: str, dim: Axes, keepdim: bool, dtype: DTypeLike | None) -> Tensor:
        self._check_computed(name)
        source = self._as(sum_result(self.dtype) if dtype is None else dtype)
        if source.dtype.is_bool:
            raise self._fail(name, "dtype bool, expected an integer or a float", DTypeError)
        return self._emit(name, source, axes=source._axes(dim, name), keepdim=bool(keepdim))

    def _extremum(self, name: str, dim: Axes, keepdim: bool, method: str) -> Tensor:
        self._check_computed(method)
        axes = self._axes(dim, method)
        self._refuse_empty(axes, method)
        return self._emit(name, self, axes=axes, keepdim=bool(keepdim))

    def _refuse_empty(self, axes: Sequence[int], method: str) -> None:
        for axis in axes:
            self._require(
                1, self.shape[axis], method, f"dim {axis} is empty, and there is no {method} of nothing"
            )

    def _max_or_min(self, name: str, dim: object, keepdim: bool) -> Tensor | ValuesAndIndices:
        if isinstance(dim, TensorBase):
            tensor = cast("Tensor", self)
            other = cast("Tensor", dim)
            return tensor.maximum(other) if name == "max" else tensor.minimum(other)
        axes = cast("int | Sequence[int] | None", dim)
        values = self._extremum(name, axes, keepdim, name)
        if not isinstance(axes, int):
            return values
        return ValuesAndIndices(values, self._arg(f"arg{name}", axes, keepdim))

    def _arg(self, name: str, dim: Axes, keepdim: bool) -> Tensor:
        self._check_computed(name)
        axes = self._axes(dim, name)
        self._refuse_empty(axes, name)
        if not axes:
            return self.graph.full_like(self, 0, i64)
        if dim is None or len(axes) == 1:
            return self._emit(name, self, axis=None if dim is None else axes[0], keepdim=bool(keepdim))
        kept = [axis for axis in range(self.ndim) if axis not in axes]
        rows = self._emit("permute", self, order=(*kept, *axes))
        shape = [self.shape[axis] for axis in kept]
        rows = rows._emit("reshape", rows, shape=(*shape, product(self.shape[axis] for axis in axes)))
        found = rows._emit(name, rows, axis=len(kept), keepdim=False)
        if not keepdim:
            return found
        return found._emit(
            "reshape", found, shape=[1 if axis in axes else s for axis, s in enumerate(self.shape)]
        )

    def _any_or_all(self, name: str, dim: Axes, keepdim: bool) -> Tensor:
        self._check_computed(name)
        found = self._as(bool_)
        if dim is None or isinstance(dim, int) or len(dim):  # unlike in sum, () means no axis
            found = self._emit(name, found, axes=self._axes(dim, name), keepdim=bool(keepdim))
        return found._as(u8) if self.dtype == u8 else found

    def _scan(self, name: str, dim: int, dtype: DTypeLike | None) -> Tensor:
        self._check_computed(name)
        source = self._as(sum_result(self.dtype) if dtype is None else dtype)
        axis = self._axis(dim, method=name)
        if source.dtype.is_bool:
            raise self._fail(name, "dtype bool, expected an integer or a float", DTypeError)
        return self._emit(name, source, axis=axis) if self.ndim else source

    def _pair(self, name: str, dim: int, **attributes: object) -> ValuesAndIndices:
        self._check_computed(name)
        axis = self._axis(dim, method=name)
        source = self if self.ndim else self._emit("reshape", self, shape=(1,))
        values, indices = self.graph.emit(name, (source,), {"axis": axis, **attributes})
        if self.ndim:
            return ValuesAndIndices(values, indices)
        return ValuesAndIndices(*(one._emit("reshape", one, shape=()) for one in (values, indices)))

    def _softmax(self, name: str, dim: int, dtype: DTypeLike | None) -> Tensor:
        source = self._as(self.dtype if dtype is None else dtype)
        source._check_computed(name, float_only=True)
        axis = self._axis(dim, method=name)
        if self.ndim:
            return self._emit(name, source, axis=axis)
        row = source._emit("reshape", source, shape=(1,))
        return row._emit("reshape", row._emit(name, row, axis=0), shape=())

    def _normalised_axes(
        self, method: str, normalized_shape: DimLike | Sequence[DimLike], parameters: dict[str, Tensor | None]
    ) -> tuple[int, ...]:
        """The last axes, after a check that they and the parameters have the sizes of `normalized_shape`."""
        self._check_computed(method, float_only=True)
        given = normalized_shape if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
        sizes = [size_of(size, "a size of normalized_shape") for size in cast("Sequence[DimLike]", given)]
        if not sizes:
            raise self._fail(method, "normalized_shape is empty, expected at least one size", OptionError)
        axes = tuple(range(self.ndim - len(sizes), self.ndim))
        if axes[0] < 0 or not all(known_equal(self.shape[a], s) for a, s in zip(axes, sizes, strict=True)):
            raise self._fail(
                method, f"its last sizes are not normalized_shape {shape_text(sizes)}", ShapeError
            )
        for name, parameter in parameters.items():
            if parameter is None:
                continue
            self._promotable(parameter, method)
            if parameter.dtype != self.dtype:
                problem = f"{name} is {parameter.described()}, expected dtype {self.dtype.name}"
                raise self._fail(method, problem, DTypeError)
            if parameter.ndim != len(sizes) or not all(map(known_equal, parameter.shape, sizes)):
                problem = f"{name} is {parameter.described()}, expected shape {shape_text(sizes)}"
                raise self._fail(method, problem, ShapeError)
        return axes
