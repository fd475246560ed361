"""What the Tensor API stands on: a handle on one value of a graph, how it is described, and how ops are emitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.ir import SSAValue

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, DimLike, as_dim, known_less, known_less_equal, product
from luminal.dtype import DType, DTypeLike, dtype_of
from luminal.errors import (
    AxisError,
    DTypeError,
    GraphError,
    LuminalError,
    OptionError,
    ScalarError,
    ShapeError,
)
from luminal.promotion import Number, Operand, fill_number, is_small_float, wrap_number

if TYPE_CHECKING:
    from luminal.graph import Graph
    from luminal.tensor import Tensor


def shape_text(shape: Sequence[DimLike]) -> str:
    """`(s, 4096)`: a shape in a message, one-tuples as Python writes them."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


class TensorBase:
    """A value of a graph under construction. It holds no data; a runtime does."""

    __slots__ = ("graph", "name", "value")

    def __init__(self, graph: Graph, value: SSAValue, name: str) -> None:
        self.graph = graph
        self.value = value
        self.name = name

    @property
    def type(self) -> TensorType:
        return cast(TensorType, self.value.type)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes, ints as constant dims."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        """The rank, as `ndim`."""
        return self.ndim

    def size(self, dim: int | None = None) -> Dim | tuple[Dim, ...]:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[self._axis(dim)]

    def numel(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.described()})"

    def described(self) -> str:
        """`'x' f32 (s, 4096)`: how messages speak of the tensor."""
        return f"{self.name!r} {self.dtype.name} {shape_text(self.shape)}"

    # ---- for the methods -------------------------------------------------------------------------------------------

    def _emit(
        self, name: str, *operands: TensorBase | Sequence[TensorBase] | None, **attributes: Any
    ) -> Tensor:
        """One hlo op with one result; errors name all tensors in it."""
        return self.graph.emit(name, operands, attributes)[0]

    def _fail(self, method: str, problem: str, error: type[LuminalError] = ShapeError) -> LuminalError:
        """The error of a method on this tensor."""
        return error(f"{method} of {self.described()}: {problem}")

    def _axis(self, dim: int, rank: int | None = None, method: str = "an axis") -> int:
        """The axis counted from 0; AxisError outside [-rank, rank). A scalar has the axes -1 and 0, as in PyTorch."""
        limit = max(self.ndim if rank is None else rank, 1)
        axis = plain_int(dim, "dim")
        if not -limit <= axis < limit:
            raise self._fail(method, f"dim {axis} is not in [{-limit}, {limit - 1}]", AxisError)
        return axis % limit

    def _axes(self, dim: int | Sequence[int] | None, method: str) -> tuple[int, ...]:
        """The axes, sorted; None and () mean all. On a scalar the result is empty."""
        given = (dim,) if isinstance(dim, int) else tuple(dim or ())
        axes = [self._axis(one, method=method) for one in given]
        if len(set(axes)) != len(axes):
            raise self._fail(method, f"dim {given} names an axis twice", AxisError)
        if not self.ndim:
            return ()
        return tuple(sorted(axes)) if axes else tuple(range(self.ndim))

    def _as(self, dtype: DTypeLike) -> Tensor:
        """The tensor in another dtype; itself where it has it."""
        try:
            wanted = dtype_of(dtype)
        except DTypeError as error:
            raise self._fail("cast", str(error), DTypeError) from None
        if wanted == self.dtype:
            return cast("Tensor", self)
        return self._emit("cast", self, dtype=wanted)

    def _operand(self, other: object, dtype: DType, method: str) -> Tensor:
        """`other` as a tensor of `dtype`: a number becomes a scalar constant, a dim the value of that size."""
        if isinstance(other, TensorBase):
            return other._as(dtype)
        if isinstance(other, Dim):
            return self._emit("dim_value", dim=other)._as(dtype)
        return self.graph.scalar(wrap_number(self._number(other, method), dtype), dtype)

    def _fill(self, value: object, dtype: DType, method: str, checked_as: DType | None = None) -> Tensor:
        """A bound or fill value as a tensor: numbers that `dtype` cannot hold are errors, not wrapped."""
        if isinstance(value, (TensorBase, Dim)):
            self._promotable(value, method)
            return self._operand(value, dtype, method)
        number = self._fill_value(value, dtype, method, checked_as)
        return self.graph.scalar(0 if number is None else number, dtype)

    def _fill_value(
        self, value: object, dtype: DType, method: str, checked_as: DType | None = None
    ) -> Number | None:
        """A bound or fill value as a number; None stays None."""
        if value is None:
            return None
        try:
            return fill_number(self._number(value, method), dtype, checked_as)
        except ScalarError as error:
            raise self._fail(method, str(error), ScalarError) from None

    def _number(self, value: object, method: str) -> Number:
        """A Python number, or what NumPy gives as one."""
        plain = value.item() if hasattr(value, "item") and not isinstance(value, TensorBase) else value  # pyright: ignore
        if isinstance(plain, (bool, int, float)):
            return plain
        raise self._fail(
            method,
            f"an operand is a {type(value).__name__}, expected a Tensor, a number or a dim",
            DTypeError,
        )

    def _promotable(self, other: object, method: str) -> Operand:
        """`other` as promotion sees it; an error for what is no operand or lives in another graph."""
        if isinstance(other, TensorBase):
            if other.graph is not self.graph:
                raise self._fail(method, f"{other.described()} belongs to another graph", GraphError)
            return other.type
        return other if isinstance(other, Dim) else self._number(other, method)

    def _check_computed(self, method: str, *, float_only: bool = False, boolean: bool = True) -> None:
        """DTypeError for fp8 and fp4, with `float_only` for all but floats, without `boolean` for bool."""
        if is_small_float(self.dtype):
            raise self._fail(method, f"{self.dtype.name} is not computed with; cast to f32 first", DTypeError)
        if float_only and not self.dtype.is_float:
            raise self._fail(method, f"dtype is {self.dtype.name}, expected a float; cast first", DTypeError)
        if not boolean and self.dtype.is_bool:
            raise self._fail(method, "dtype is bool, expected an integer or a float; cast first", DTypeError)

    def _require(
        self, low: DimLike, high: DimLike, method: str, problem: str, error: type[LuminalError] = ShapeError
    ) -> None:
        """low <= high: proven now, refuted now with `error`, or noted in the graph and checked when it is executed."""
        if known_less_equal(low, high):
            return
        if known_less(high, low):
            raise self._fail(method, problem, error)
        failure = self._fail(method, problem, error)
        self.graph.require(as_dim(low), as_dim(high), error, str(failure))


def plain_int(value: object, what: str) -> int:
    """`value` as an int; OptionError for anything else, bool included."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, TensorBase):
        raise OptionError(f"{what} is {value!r}, expected a whole number")
    return value.__index__()  # pyright: ignore


def size_of(value: object, what: str) -> Dim:
    """`value` as a size: an int or a Dim."""
    return value if isinstance(value, Dim) else as_dim(plain_int(value, what))


def flat_arguments(values: tuple[Any, ...], named: Any, method: str, keyword: str) -> tuple[Any, ...]:
    """f(2, 3), f((2, 3)) and f(dims=(2, 3)) are the same in PyTorch's view methods; OptionError unless one is used."""
    if (named is None) == (not values):
        raise OptionError(f"{method}: expected either numbers or {keyword}=")
    given = values if named is None else (named,)
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        return tuple(cast("Sequence[Any]", given[0]))
    return given
