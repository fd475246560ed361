"""The protocol of all runtimes: data in, execution with the values of dims, results out, and every check on the way.

A backend subclasses `Runtime` and implements `compile`; nothing else of this file is its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from luminal.data import DataLike, array_of
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Symbol
from luminal.dtype import DTYPES, DType
from luminal.errors import (
    DataSizeError,
    DTypeError,
    GraphError,
    OutputError,
    UnknownDimError,
    UnsetDimError,
    UnsetInputError,
)
from luminal.quantised_graph import QuantisedTensor
from luminal.tensor_base import plain_int, shape_text

if TYPE_CHECKING:
    from luminal.graph import GraphInterface, SearchSpace
    from luminal.tensor import Tensor

Array = np.ndarray[Any, Any]


class Executable(Protocol):
    """A compiled graph."""

    @property
    def input_types(self) -> Sequence[TensorType]: ...
    @property
    def output_types(self) -> Sequence[TensorType]: ...
    @property
    def stats(self) -> Mapping[str, Any]: ...
    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]: ...


class Runtime(ABC):
    """Holds one compiled graph, the data of its inputs and the results of the last execution."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names that `Graph.build_search_space` takes for this runtime, beside `licences`."""

    def __init__(self) -> None:
        self.executable: Executable | None = None
        self._interface: GraphInterface | None = None
        self._data: dict[int, Array] = {}
        self._results: list[Array] | None = None
        self._checked: tuple[dict[str, int], dict[str, int], list[Array]] | None = None
        """The sizes that data was last checked with, as given and as checked, and the data in its shapes."""

    @abstractmethod
    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        """Compile a module of one hlo graph, timing at most `candidates` programs. The module may be changed."""

    def load(self, space: SearchSpace, candidates: int) -> None:
        """Compile a search space and take it in, without data. Called by `Graph.search`."""
        self.executable = self.compile(space.module.clone(), candidates, space.options)
        self._interface = space.interface
        self._data = {}
        self._results = self._checked = None

    @property
    def stats(self) -> Mapping[str, Any]:
        """What the backend says of the compiled graph."""
        return self._loaded()[1].stats

    # ---- data in ---------------------------------------------------------------------------------------------------

    def set_data(self, tensor: Tensor | QuantisedTensor, data: DataLike) -> None:
        """Copy the data of an input: numbers, (nested) lists, a NumPy array or a torch tensor; of a block-quantised one
        its stored bytes, its planes, or floats to be quantised.

        Data of one axis fills the tensor in row-major order; other data must have the tensor's shape. Sizes that
        depend on a dim are checked when the graph is executed. It stays until it is set again.
        Errors: DataSizeError, DTypeError, OutputError for what is no input of the graph.
        """
        interface, _ = self._loaded()
        if isinstance(tensor, QuantisedTensor):
            for name, plane in tensor.data_of(data).items():
                self.set_data(tensor.planes[name], plane)
            return
        position = _position(interface.inputs, tensor)
        if position is None:
            names = ", ".join(repr(one.name) for one in interface.inputs) or "none"
            raise GraphError(
                f"set_data: {_described(tensor)} is no input of the loaded graph; its inputs are {names}"
            )
        array, _ = array_of(data, tensor.dtype, tensor.name)
        shape = [size.constant for size in tensor.shape]
        if array.ndim == 1:
            known = [size for size in shape if size is not None]
            if len(known) == len(shape):
                _check_count(tensor, array, tuple(known))
        elif array.ndim != len(shape) or any(
            size is not None and size != given for size, given in zip(shape, array.shape, strict=True)
        ):
            raise DataSizeError(
                f"set_data: {tensor.described()} was given data of shape {shape_text(array.shape)}"
            )
        self._data[position] = array
        self._checked = None

    # ---- execution -------------------------------------------------------------------------------------------------

    def execute(self, dyn_map: Mapping[str, int] | None = None) -> None:
        """Run the graph with these values of its dims, normally `cx.dyn_map`.

        Errors: UnsetDimError, DimRangeError, UnknownDimError, UnsetInputError, DataSizeError, and those that the graph
        itself has for sizes that turn out not to fit.
        """
        interface, executable = self._loaded()
        self._results = None
        given = dyn_map or {}
        if self._checked is None or self._checked[0] != given:
            self._checked = (dict(given), *self._check(interface, given))
        self._results = self.run(executable, self._checked[2], self._checked[1])

    def _check(
        self, interface: GraphInterface, given: Mapping[str, int]
    ) -> tuple[dict[str, int], list[Array]]:
        """The sizes, and the data in the shapes that they say."""
        dims = self._check_dims(interface, given)
        missing = [
            one.described() for position, one in enumerate(interface.inputs) if position not in self._data
        ]
        if missing:
            raise UnsetInputError(f"execute: no data for {', '.join(missing)}; call set_data")
        inputs: list[Array] = []
        for position, tensor in enumerate(interface.inputs):
            shape = tuple(size.evaluate(dims) for size in tensor.shape)
            array = self._data[position]
            if array.ndim == 1:
                _check_count(tensor, array, shape)
            elif array.shape != shape:
                raise DataSizeError(
                    f"execute: {tensor.described()} is {shape_text(shape)} with {_dims_text(dims)}, "
                    f"but has data of shape {shape_text(array.shape)}"
                )
            inputs.append(array.reshape(shape))
        return dims, inputs

    def run(self, executable: Executable, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """Run on arrays that have been checked; `inputs` is the same list until data or sizes are others."""
        return list(executable.run(inputs, dims))

    def _check_dims(self, interface: GraphInterface, given: Mapping[str, int]) -> dict[str, int]:
        for name in given:
            if name not in interface.symbols:
                listed = ", ".join(interface.symbols) or "none"
                raise UnknownDimError(f"execute: the graph has no dim {name!r}; its dims are {listed}")
        dims: dict[str, int] = {}
        for name, symbol in interface.symbols.items():
            if name not in given:
                raise UnsetDimError(
                    f"execute: dim {name!r} of {_users(interface, symbol)} has no value; call set_dim"
                )
            dims[name] = symbol.check(plain_int(given[name], f"dim {name}"))
        for condition in interface.conditions:
            condition.check(dims)
        return dims

    # ---- results out -----------------------------------------------------------------------------------------------

    def get_numpy(self, output: Tensor) -> Array:
        """The value of an output after the last `execute`, with its shape and dtype (see `DType.numpy`)."""
        position = self.result_position(output)
        assert self._results is not None
        return self._results[position]

    def result_position(self, output: Tensor) -> int:
        """The number of an output that has a value; OutputError for others."""
        interface, _ = self._loaded()
        position = _position(interface.outputs, output)
        if position is None:
            names = ", ".join(repr(one.name) for one in interface.outputs)
            raise OutputError(
                f"{_described(output)} is no output of the loaded graph; its outputs are {names}"
            )
        if self._results is None:
            raise OutputError(f"{output.described()} has no value yet; call execute")
        return position

    def get_f64(self, output: Tensor) -> Array:
        """The elements of a f64 output, flat and row-major; so do the others for theirs. DTypeError."""
        return self._flat(output, "f64")

    def get_f32(self, output: Tensor) -> Array:
        return self._flat(output, "f32")

    def get_f16(self, output: Tensor) -> Array:
        return self._flat(output, "f16")

    def get_bf16(self, output: Tensor) -> Array:
        return self._flat(output, "bf16")

    def get_i64(self, output: Tensor) -> Array:
        return self._flat(output, "i64")

    def get_i32(self, output: Tensor) -> Array:
        return self._flat(output, "i32")

    def get_i16(self, output: Tensor) -> Array:
        return self._flat(output, "i16")

    def get_i8(self, output: Tensor) -> Array:
        return self._flat(output, "i8")

    def get_u8(self, output: Tensor) -> Array:
        return self._flat(output, "u8")

    def get_bool(self, output: Tensor) -> Array:
        return self._flat(output, "bool")

    def _flat(self, output: Tensor, name: str) -> Array:
        dtype: DType = DTYPES[name]
        array = self.get_numpy(output)
        if output.dtype != dtype:
            raise DTypeError(f"get_{name}: {output.described()}; use get_{output.dtype.name} or get_numpy")
        return array.reshape(-1)

    def _loaded(self) -> tuple[GraphInterface, Executable]:
        if self._interface is None or self.executable is None:
            raise GraphError(f"{type(self).__name__} has no graph yet; call cx.search(runtime, candidates)")
        return self._interface, self.executable


def _position(tensors: Sequence[Tensor], tensor: object) -> int | None:
    value = getattr(tensor, "value", None)
    return next((position for position, one in enumerate(tensors) if one.value is value), None)


def _described(tensor: object) -> str:
    return tensor.described() if hasattr(tensor, "described") else f"a {type(tensor).__name__}"  # pyright: ignore


def _check_count(tensor: Tensor, array: Array, shape: tuple[int, ...]) -> None:
    expected = int(np.prod(shape, dtype=np.int64))
    if array.size != expected:
        raise DataSizeError(
            f"{tensor.described()} has {expected} elements ({shape_text(shape)}), but its data has {array.size}"
        )


def _dims_text(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in dims.items()) or "no dims"


def _users(interface: GraphInterface, symbol: Symbol) -> str:
    users = [
        t.described()
        for t in (*interface.inputs, *interface.outputs)
        if symbol in {s for d in t.shape for s in d.symbols()}
    ]
    return users[0] if users else "the graph"
