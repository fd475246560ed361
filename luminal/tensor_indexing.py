"""Methods that read and write at computed positions, and the triangles of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from luminal.dtype import i32, i64
from luminal.errors import DTypeError, OptionError, ShapeError
from luminal.promotion import Number
from luminal.tensor_base import TensorBase, plain_int

if TYPE_CHECKING:
    from luminal.tensor import Tensor

# PyTorch's names of what scatter and scatter_reduce do with the value that is there.
SCATTER = {"add": "add", "multiply": "mul"}
SCATTER_REDUCE = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


class IndexingMethods(TensorBase):
    """Indices are i64 or i32, from 0; one out of range is an error when the graph runs."""

    __slots__ = ()

    def gather(self, dim: int, index: Tensor) -> Tensor:
        """out[i, j] = self[index[i, j], j] for dim 0, and so on; the result has the shape of `index`."""
        axis = self._axis(dim, method="gather")
        if self.ndim:
            return self._emit("gather", self, self._index(index, "gather"), axis=axis)
        return self._as_row("gather", index)._emit(
            "reshape", self._as_row("gather", index), shape=index.shape
        )

    def scatter(
        self,
        dim: int,
        index: Tensor,
        src: Tensor | Number | None = None,
        *,
        value: Number | None = None,
        reduce: Literal["add", "multiply"] | None = None,
    ) -> Tensor:
        """self with self[index[i, j], j] = src[i, j] (or += or *=); of several to one place the last one stays."""
        if reduce is not None and reduce not in SCATTER:
            raise self._fail(
                "scatter", f"reduce is {reduce!r}, expected None, 'add' or 'multiply'", OptionError
            )
        if (src is None) == (value is None):
            raise self._fail("scatter", "expected either src or value", OptionError)
        given = value if src is None else src
        return self._scatter("scatter", dim, index, given, "set" if reduce is None else SCATTER[reduce])

    def scatter_add(self, dim: int, index: Tensor, src: Tensor) -> Tensor:
        return self._scatter("scatter_add", dim, index, src, "add")

    def scatter_reduce(
        self,
        dim: int,
        index: Tensor,
        src: Tensor,
        reduce: Literal["sum", "prod", "amax", "amin"],
        *,
        include_self: bool = True,
    ) -> Tensor:
        """`src` combined into self; without `include_self` what it meets there does not count."""
        if reduce not in SCATTER_REDUCE:
            expected = ", ".join(SCATTER_REDUCE)
            raise self._fail(
                "scatter_reduce", f"reduce is {reduce!r}, expected one of {expected}", OptionError
            )
        base = cast("Tensor", self)
        if not include_self:
            neutral = {"sum": 0, "prod": 1, "amax": self.dtype.lowest, "amin": self.dtype.highest}[reduce]
            base = self._scatter("scatter_reduce", dim, index, neutral, "set")
        return base._scatter("scatter_reduce", dim, index, src, SCATTER_REDUCE[reduce])

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The slices of an axis that a vector of positions names."""
        axis = self._axis(dim, method="index_select")
        source = self if self.ndim else self._emit("reshape", self, shape=(1,))
        positions = self._index(index, "index_select")
        if positions.ndim > 1:
            raise self._fail("index_select", f"the index is {index.described()}, expected a vector")
        found = source._emit("index_select", source, positions, axis=axis)
        return found if self.ndim else found._emit("reshape", found, shape=())

    def embedding(self, weight: Tensor) -> Tensor:
        """The rows of `weight` that self, a tensor of positions, names: `torch.nn.functional.embedding`."""
        self._promotable(weight, "embedding")
        if weight.ndim != 2:
            raise self._fail("embedding", f"weight is {weight.described()}, expected a matrix")
        return self._emit("embedding", weight, weight._index(cast("Tensor", self), "embedding"))

    def tril(self, diagonal: int = 0) -> Tensor:
        """The lower triangle of the last two axes, up to `diagonal` above the main one; the rest is 0."""
        return self._triangle("tril", diagonal)

    def triu(self, diagonal: int = 0) -> Tensor:
        """The upper triangle, from `diagonal` above the main one; the rest is 0."""
        return self._triangle("triu", diagonal)

    def _triangle(self, method: str, diagonal: int) -> Tensor:
        offset = plain_int(diagonal, "diagonal")
        if self.ndim < 2:
            raise self._fail(method, "expected at least two axes", ShapeError)
        rows = self.graph.iota(self.shape[-2:], 0, i64)
        columns = self.graph.iota(self.shape[-2:], 1, i64)
        kept = columns <= rows + offset if method == "tril" else columns >= rows + offset
        return self._emit("where", kept, self, self.graph.scalar(0, self.dtype))

    def _index(self, index: Tensor, method: str) -> Tensor:
        if not isinstance(index, TensorBase):
            raise self._fail(method, f"the index is a {type(index).__name__}, expected a Tensor", DTypeError)
        self._promotable(index, method)
        if index.dtype not in (i64, i32):
            raise self._fail(
                method, f"the index is {index.described()}, expected dtype i64 or i32", DTypeError
            )
        return index._as(i64)

    def _as_row(self, method: str, index: Tensor) -> Tensor:
        row = self._emit("reshape", self, shape=(1,))
        positions = self._index(index, method)
        return row._emit(
            "gather", row, positions._emit("reshape", positions, shape=(positions.numel(),)), axis=0
        )

    def _scatter(
        self, method: str, dim: int, index: Tensor, src: Tensor | Number | None, combine: str
    ) -> Tensor:
        axis = self._axis(dim, method=method)
        positions = self._index(index, method)
        if isinstance(src, TensorBase):
            self._promotable(src, method)
            if src.dtype != self.dtype:
                raise self._fail(
                    method, f"src is {src.described()}, expected dtype {self.dtype.name}", DTypeError
                )
            value = src
        else:
            value = self._fill(src, self.dtype, method)._emit(
                "expand", self._fill(src, self.dtype, method), shape=index.shape
            )
        if self.ndim:
            return self._emit("scatter", self, positions, value, axis=axis, combine=combine)
        rows = [one._emit("reshape", one, shape=(one.numel(),)) for one in (self, positions, value)]
        result = self._emit("scatter", *rows, axis=0, combine=combine)
        return result._emit("reshape", result, shape=())
