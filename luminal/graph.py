"""The Graph API: tensors and operations by hand, compiled by a search for the fastest program.

cx = Graph()
a = cx.tensor((3, 1)); b = cx.tensor((1, 4))
c = a.matmul(b).output()
cx.build_search_space(CPURuntime)
rt = cx.search(CPURuntime(), 10)
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from luminal.data import DataLike, array_of
from luminal.dialects.graph_op import DEFAULT_LICENCES, build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import Dim, DimLike, Symbol, as_dim, collect_symbols, dim, known_less_equal, parse_dim
from luminal.dtype import DType, DTypeLike, dtype_of, f32, f64, i64
from luminal.errors import (
    AxisError,
    DimRangeError,
    GraphError,
    LuminalError,
    OptionError,
    ScalarError,
    ShapeError,
    UnknownDimError,
)
from luminal.promotion import Number, fill_number, number_dtype
from luminal.quantised import FORMATS
from luminal.quantised_graph import FormatName, QuantisedTensor
from luminal.tensor import Tensor
from luminal.tensor_base import TensorBase, plain_int, size_of

if TYPE_CHECKING:
    from luminal.runtimes.protocol import Runtime

SizeLike = DimLike | str
R = TypeVar("R", bound="Runtime")

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class DimCondition:
    """`low <= high`, which could not be proven and is checked when the dims have values."""

    low: Dim
    high: Dim
    error: type[LuminalError]
    message: str

    def check(self, dims: Mapping[str, int]) -> None:
        """Raise the error where the condition does not hold."""
        if self.low.evaluate(dims) > self.high.evaluate(dims):
            used = collect_symbols((self.low, self.high))
            values = ", ".join(f"{name} = {dims[name]}" for name in used)
            raise self.error(f"{self.message} (with {values})")


@dataclass(frozen=True, slots=True)
class GraphInterface:
    """What a runtime knows of a graph: its inputs, outputs, symbols and conditions, as they were when it was built."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    symbols: Mapping[str, Symbol]
    conditions: tuple[DimCondition, ...]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A graph as it is handed to runtimes of one class."""

    runtime_class: type[Runtime]
    options: Mapping[str, Any]
    module: ModuleOp
    interface: GraphInterface
    revision: int


class Graph:
    """A graph under construction. `dyn_map` holds the values of its symbolic dims, set by `set_dim`."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.dyn_map: dict[str, int] = {}
        self._block = Block()
        self._builder = HloBuilder(self._block)
        self._inputs: list[Tensor] = []
        self._planes: set[SSAValue] = set()
        self._outputs: list[Tensor] = []
        self._symbols: dict[str, Symbol] = {}
        self._conditions: dict[tuple[Dim, Dim], DimCondition] = {}
        self._revision = 0
        self._space: SearchSpace | None = None

    # ---- inputs, constants, created tensors ------------------------------------------------------------------------

    @overload
    def tensor(  # pyright: ignore[reportOverlappingOverload]  (the names of block formats are texts, as those of dtypes)
        self, shape: SizeLike | Sequence[SizeLike], dtype: FormatName, name: str | None = None
    ) -> QuantisedTensor: ...
    @overload
    def tensor(
        self, shape: SizeLike | Sequence[SizeLike], dtype: DTypeLike = f32, name: str | None = None
    ) -> Tensor: ...
    def tensor(
        self, shape: SizeLike | Sequence[SizeLike], dtype: DTypeLike = f32, name: str | None = None
    ) -> Tensor | QuantisedTensor:
        """An input. Sizes are ints, dims, or text: "s" is a dim of any size, "2*s + 1" an expression over known ones.
        With the name of a block format as dtype it is a `QuantisedTensor`, which counts as constant
        where its size is fixed.

        Errors: DTypeError, ShapeError for a negative size, DimRangeError where a dim has two ranges, GraphError for a
        name that another input has.
        """
        taken = {known.name for known in self._inputs}
        label = name
        if label is None:
            label = next(text for n in itertools.count(len(taken)) if (text := f"input{n}") not in taken)
        if label in taken:
            raise GraphError(f"tensor: the graph already has an input named {label!r}")
        sizes = self._shape(shape, f"tensor {label!r}")
        if isinstance(dtype, str) and dtype in FORMATS:
            quantised = QuantisedTensor(self, FORMATS[dtype], sizes, label)
            fixed = [one for one in quantised.planes.values() if one.numel().constant is not None]
            self._planes.update(plane.value for plane in fixed)
            return quantised
        value = self._block.insert_arg(tensor_type(sizes, dtype), len(self._block.args))
        value.name_hint = label if SSAValue.is_valid_name(label) else None
        result = Tensor(self, value, label)
        self._inputs.append(result)
        self._revision += 1
        return result

    def constant(self, data: DataLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
        """A tensor that is part of the graph: from numbers, lists (floats give f32, ints i64), NumPy or torch."""
        array, found = array_of(data, None if dtype is None else dtype_of(dtype), name or "constant")
        if not array.size:
            return self._named(self.full(array.shape, 0, found), name)
        content = array.tobytes()
        return self._named(
            self.emit("constant", (), {"data": content, "shape": array.shape, "dtype": found})[0], name
        )

    def full(
        self, size: SizeLike | Sequence[SizeLike], fill_value: Number, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A tensor of one number: `torch.full`; the dtype is the number's (bool, i64, f32) unless given."""
        found = number_dtype(fill_value) if dtype is None else dtype_of(dtype)
        shape = self._shape(size, "full")
        try:
            value = fill_number(fill_value, found, f64 if found.is_float and found.bits < 32 else found)
        except ScalarError as error:
            raise ScalarError(f"full: {error}") from None
        return self.emit("full", (), {"value": value, "shape": shape, "dtype": found})[0]

    def zeros(self, *size: Any, dtype: DTypeLike = f32) -> Tensor:
        return self.full(size[0] if len(size) == 1 else size, 0, dtype)

    def ones(self, *size: Any, dtype: DTypeLike = f32) -> Tensor:
        return self.full(size[0] if len(size) == 1 else size, 1, dtype)

    def full_like(
        self, like: Tensor | TensorBase, fill_value: Number, dtype: DTypeLike | None = None
    ) -> Tensor:
        return self.full(like.shape, fill_value, like.dtype if dtype is None else dtype)

    def scalar(self, value: Number, dtype: DTypeLike) -> Tensor:
        """A constant of rank 0, the number converted as it is (see `promotion.wrap_number`)."""
        return self.emit("full", (), {"value": value, "shape": (), "dtype": dtype_of(dtype)})[0]

    def iota(self, shape: SizeLike | Sequence[SizeLike], dim: int = 0, dtype: DTypeLike = i64) -> Tensor:
        """The position along one axis, at every element."""
        sizes = self._shape(shape, "iota")
        rank = len(sizes)
        if not -rank <= plain_int(dim, "dim") < rank:
            raise AxisError(f"iota: dim {dim} is not in [{-rank}, {rank - 1}]")
        return self.emit("iota", (), {"shape": sizes, "axis": dim % rank, "dtype": i64})[0].cast(dtype)

    def arange(
        self,
        start: Number | Dim,
        end: Number | Dim | None = None,
        step: Number | Dim = 1,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """`torch.arange`: from start up to, without, end. Dims may stand for integers; floats give f32."""
        first, last = (0, start) if end is None else (start, end)
        parts = (first, last, step)
        found = (
            dtype_of(dtype) if dtype is not None else f32 if any(isinstance(p, float) for p in parts) else i64
        )
        if any(isinstance(part, float) for part in parts):
            count = self._float_count(parts)
        else:
            low, high, stride = (size_of(part, "arange") for part in parts)
            if stride == 0 or not (known_less_equal(0, stride) or known_less_equal(stride, 0)):
                raise OptionError(f"arange: the step {step} must be known to be positive or negative")
            between = (low, high) if known_less_equal(0, stride) else (high, low)
            self.require(*between, OptionError, f"arange: the step {step} leads away from {last}")
            count = -((low - high) // stride)
        working = i64 if not found.is_float and not any(isinstance(p, float) for p in parts) else f64
        positions = self.iota((count,), 0, i64).cast(working)
        scaled = positions if step == 1 else positions * self._as_scalar(step, working)
        return (scaled if first == 0 else scaled + self._as_scalar(first, working)).cast(found)

    def _float_count(self, parts: Sequence[Number | Dim]) -> Dim:
        if any(isinstance(part, Dim) and part.constant is None for part in parts):
            raise OptionError(f"arange: dims do not go with floats in {', '.join(map(str, parts))}")
        first, last, step = (float(part if not isinstance(part, Dim) else part.__index__()) for part in parts)
        if not step or not math.isfinite((last - first) / step) or (last - first) / step < 0:
            raise OptionError(f"arange: from {first} to {last} in steps of {step} there is no way")
        return as_dim(math.ceil((last - first) / step))

    def _as_scalar(self, value: Number | Dim, dtype: DType) -> Tensor:
        if isinstance(value, Dim):
            return self.emit("dim_value", (), {"dim": value})[0].cast(dtype)
        return self.scalar(float(value) if dtype.is_float else value, dtype)

    # ---- dims ------------------------------------------------------------------------------------------------------

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The symbolic dims of the graph by name."""
        return self._symbols

    def set_dim(self, dim: str | Dim, value: int) -> None:
        """Give a symbolic dim its value, for `execute(cx.dyn_map)`. UnknownDimError, DimRangeError."""
        name = str(dim)
        symbol = self._symbols.get(name)
        if symbol is None:
            raise UnknownDimError(
                f"set_dim: the graph has no dim {name!r}; it has {', '.join(self._symbols) or 'none'}"
            )
        self.dyn_map[name] = symbol.check(plain_int(value, f"dim {name}"))

    def require(self, low: Dim, high: Dim, error: type[LuminalError], message: str) -> None:
        """Note that low <= high must hold, unless that is proven; refuted, it is an error at once."""
        if known_less_equal(low, high):
            return
        if known_less_equal(high + 1, low):
            raise error(message)
        self._conditions.setdefault((low, high), DimCondition(low, high, error, message))

    def _shape(self, shape: object, what: str) -> tuple[Dim, ...]:
        given: Any = shape if isinstance(shape, (tuple, list)) else (shape,)
        known = dict(self._symbols)
        sizes: list[Dim] = []
        for one in given:
            sizes.append(self._size(one, known, what))
            known |= {symbol.name: symbol for symbol in sizes[-1].symbols()}
        self._note_symbols(sizes)
        for size in sizes:
            self.require(as_dim(0), size, ShapeError, f"{what}: the size {size} is negative")
        return tuple(sizes)

    def _size(self, size: object, known: Mapping[str, Symbol], what: str) -> Dim:
        if not isinstance(size, str):
            return size_of(size, f"a size of {what}")
        return dim(size) if size.isidentifier() and size not in known else parse_dim(size, known)

    def _note_symbols(self, sizes: Iterable[Dim]) -> None:
        for name, symbol in collect_symbols(sizes).items():
            known = self._symbols.setdefault(name, symbol)
            if known != symbol:
                raise DimRangeError(
                    f"one dim has two ranges: {known.declaration()}, and {symbol.declaration()}"
                )

    # ---- operations ------------------------------------------------------------------------------------------------

    def emit(self, name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> list[Tensor]:
        """Append one hlo op. Errors name the tensors that it was given."""
        self._builder.source = source = _callers_line()
        self._revision += 1
        try:
            op = self._builder.insert(name, [_values(operand) for operand in operands], dict(attributes))
        except LuminalError as error:
            given = [
                one for operand in operands for one in (operand if isinstance(operand, list) else [operand])
            ]
            described = ", ".join(one.described() for one in given if one is not None)
            raise type(error)(f"{error}{'; given ' + described if described else ''}") from None
        self._note_symbols(_dims_of(attributes.values()))
        label = f"{name} at {source}" if source else name
        results = [Tensor(self, value, label) for value in op.results]
        for result in results:
            self._note_symbols(result.shape)
            for size in result.shape:
                self.require(as_dim(0), size, ShapeError, f"{label}: the size {size} is negative")
        return results

    def _named(self, tensor: Tensor, name: str | None) -> Tensor:
        return tensor if name is None else tensor.named(name)

    def add_output(self, tensor: Tensor) -> None:
        """`Tensor.output()`: once or again."""
        if tensor.graph is not self:
            raise GraphError(f"output: {tensor.described()} belongs to another graph")
        if all(tensor.value is not known.value for known in self._outputs):
            self._outputs.append(tensor)
            self._revision += 1

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._outputs)

    def module(self, licences: Iterable[str] = DEFAULT_LICENCES) -> ModuleOp:
        """The graph as hlo: a new module with one `luminal.graph` of what the outputs need, and all inputs."""
        if not self._outputs:
            raise GraphError(f"graph {self.name!r} has no output; call .output() on a tensor")
        types = [tensor.type for tensor in self._inputs]
        names = [tensor.name for tensor in self._inputs]
        graph, block = build_graph(self.name, self._symbols.values(), types, licences, names)
        values: dict[SSAValue, SSAValue] = dict(zip(self._block.args, block.args, strict=True))
        for op in self._needed():
            block.add_op(op.clone(values))
        finish_graph(block, [values[tensor.value] for tensor in self._outputs])
        return ModuleOp([graph])

    def _needed(self) -> list[Operation]:
        """The operations that the outputs depend on, in order."""
        needed: set[SSAValue] = {tensor.value for tensor in self._outputs}
        kept: list[Operation] = []
        for op in reversed(list(self._block.ops)):
            if any(result in needed for result in op.results):
                needed.update(op.operands)
                kept.append(op)
        kept.reverse()
        return kept

    def __str__(self) -> str:
        """The hlo text of the graph."""
        return str(self.module())

    # ---- compilation -----------------------------------------------------------------------------------------------

    def build_search_space(self, runtime_class: type[Runtime], **options: Any) -> None:
        """Fix the graph as it is now for runtimes of a class. `licences=` names the licences that hold (see
        docs/semantics.md); other options are the runtime's own."""
        licences = options.pop("licences", DEFAULT_LICENCES)
        known = runtime_class.options
        for name in options:
            if name not in known:
                listed = ", ".join(("licences", *known))
                raise OptionError(
                    f"build_search_space: {runtime_class.__name__} has no option {name!r}; it has {listed}"
                )
        if "constants" in known and self._planes:
            planes = {n for n, one in enumerate(self._inputs) if one.value in self._planes}
            options["constants"] = sorted(planes.union(options.get("constants", ())))
        module = self.module(licences)
        module.verify()
        symbols = {symbol.name: symbol for symbol in self._symbols.values()}
        interface = GraphInterface(self.inputs, self.outputs, symbols, tuple(self._conditions.values()))
        self._space = SearchSpace(runtime_class, options, module, interface, self._revision)

    def search(self, runtime: R, candidates: int = 10) -> R:
        """Compile for `runtime`, timing at most so many candidates of each region, and load the winner into it.

        Errors: GraphError if `build_search_space` was not called for this class, or the graph has changed since.
        """
        space = self._space
        if space is None:
            raise GraphError(f"search: call build_search_space({type(runtime).__name__}) first")
        if not isinstance(runtime, space.runtime_class):
            wanted = space.runtime_class.__name__
            raise GraphError(
                f"search: the search space is for {wanted}, the runtime a {type(runtime).__name__}"
            )
        if space.revision != self._revision:
            raise GraphError("search: the graph has changed since build_search_space; call it again")
        count = plain_int(candidates, "candidates")
        if count < 1:
            raise OptionError(f"search: candidates is {count}, expected at least 1")
        runtime.load(space, count)
        return runtime


def _dims_of(values: Iterable[Any]) -> Iterator[Dim]:
    """The dims among the attributes of an op: a slice may start at one that no shape has."""
    for value in values:
        if isinstance(value, Dim):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _dims_of(cast("Sequence[Any]", value))


def _values(operand: Any) -> Any:
    if isinstance(operand, (list, tuple)):
        return [one.value for one in operand]
    return None if operand is None else operand.value


def _callers_line() -> str | None:
    """The line outside this package that is being executed: "model.py:12 in forward"."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    place = "" if code.co_name == "<module>" else f" in {code.co_name}"
    return f"{Path(code.co_filename).name}:{frame.f_lineno}{place}"
