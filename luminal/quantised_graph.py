"""Block-quantised tensors of the Graph API: an input that is several, its planes.

w = cx.tensor((4096, 1024), dtype="q8_0")
y = x.matmul(w.T)            decoded where the product uses it
y = w.linear(x, "q8")        the same with x quantised too: sums of integers
h = w[ids]                   rows, decoded
rt.set_data(w, data)         stored bytes, planes, or floats to be quantised
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from luminal.dim import Dim, DimLike
from luminal.dtype import DTypeLike, dtype_of, f16, f32, i8, i16, i32, u8
from luminal.errors import DataSizeError, OptionError, ShapeError
from luminal.quantised import Array, BlockFormat, integer_product
from luminal.quantised_encode import quantise
from luminal.tensor import Tensor, where
from luminal.tensor_base import shape_text

if TYPE_CHECKING:
    from luminal.graph import Graph

FormatName = Literal["q8_0", "q4_0", "q4_k", "q6_k", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"]


class GraphOps:
    """What decoding needs of graph tensors (see `luminal.quantised.Ops`)."""

    f32, f16, i32, i16, i8 = f32, f16, i32, i16, i8

    def arange(self, count: int, like: Tensor) -> Tensor:
        return like.graph.arange(count, dtype=u8)

    def where(self, condition: Tensor, chosen: Any, other: Any) -> Tensor:
        return where(condition, chosen, other)


OPS = GraphOps()


class QuantisedTensor:
    """An input of a graph in a block format. `planes` are the inputs that hold it; made by `Graph.tensor`."""

    def __init__(self, graph: Graph, row: BlockFormat, shape: tuple[Dim, ...], name: str) -> None:
        self.graph, self.row, self.shape, self.name = graph, row, shape, name
        self.planes: dict[str, Tensor] = {
            plane: graph.tensor(type_.shape, type_.dtype, f"{name}.{plane}")
            for plane, type_ in row.plane_types(shape).items()
        }

    def __repr__(self) -> str:
        return f"QuantisedTensor({self.described()})"

    def described(self) -> str:
        """`'w' q8_0 (64, 1024)`: how messages speak of it."""
        return f"{self.name!r} {self.row.name} {shape_text(self.shape)}"

    def cast(self, dtype: DTypeLike) -> Tensor:
        """The decoded tensor."""
        return cast(Tensor, self.row.dequantise(self.planes, OPS)).cast(dtype)

    @property
    def T(self) -> Tensor:
        """The decoded tensor f32, transposed."""
        return self.cast(f32).T

    def __getitem__(self, ids: Tensor) -> Tensor:
        """The rows [*ids.shape, n] that a tensor of positions names, f32: those alone are decoded."""
        rows = {
            plane.name: self.planes[plane.name] if plane.tail is None else self.planes[plane.name][ids]
            for plane in self.row.planes
        }
        return self.row.dequantise(rows, OPS)

    def linear(self, x: Tensor, activations: Literal["q8"] | None = None) -> Tensor:
        """x [..., k] times the transpose of this matrix [n, k], in x's dtype. `activations="q8"` quantises x by blocks
        of 32, which changes results. ShapeError, OptionError."""
        if len(self.shape) != 2 or x.ndim < 1 or x.shape[-1] != self.shape[1]:
            raise ShapeError(f"linear: {x.described()} does not go with {self.described()}")
        if activations is None:
            return x.matmul(self.cast(x.dtype).T)
        if activations != "q8" or not self.row.has_integers:
            raise OptionError(
                f"linear: activations is {activations!r} for {self.row.name}; 'q8' goes with formats of integers"
            )
        rows = x.cast(f32).reshape(1, *x.shape).flatten(0, -2)
        product = integer_product(rows, self.row.read(self.planes, OPS), OPS)
        return cast(Tensor, product).cast(x.dtype).reshape(*x.shape[:-1], self.shape[0])

    def data_of(self, data: Any) -> dict[str, Array]:
        """The planes of data that is given as stored bytes, as a mapping of planes, or as floats to be quantised.

        Raises OptionError and ShapeError for planes of something else, DataSizeError for data of another size.
        """
        if isinstance(data, Mapping):
            planes = {str(key): np.asarray(plane) for key, plane in cast("Mapping[Any, Any]", data).items()}
            self._check(
                self.row.check({key: (plane.shape, dtype_of(plane.dtype)) for key, plane in planes.items()})
            )
            return planes
        sizes = [size.constant for size in self.shape]
        if isinstance(data, (bytes, memoryview)):
            if None in sizes:
                raise DataSizeError(
                    f"set_data: {self.described()} has a symbolic size; give planes or an array"
                )
            return self.row.unpack(bytes(data), [size for size in sizes if size is not None])
        array = np.asarray(data, np.float32)
        self._check(array.shape)
        return quantise(array, self.row.name)

    def _check(self, given: tuple[DimLike, ...]) -> None:
        sizes = [size.constant for size in self.shape]
        if len(given) != len(sizes) or any(
            size is not None and size != one for size, one in zip(sizes, given, strict=True)
        ):
            raise DataSizeError(f"set_data: {self.described()} was given data of shape {shape_text(given)}")
