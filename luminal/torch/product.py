"""`lm.load(folder)`: what `luminal build` left, as a callable.  Nothing is searched, and nothing is compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, Symbol, parse_dim
from luminal.errors import OptionError, ProductError, ShapeError
from luminal.plan.product_folder import ProductData, read_bytes, read_manifest
from luminal.torch.calling import CompiledGraph, Program, read_symbol, stored_view
from luminal.torch.extern import to_carrier
from luminal.torch.import_fx import ImportedGraph, InputSlot, OutputSlot
from luminal.torch.layout import Layout, plain_layout
from luminal.torch.signature import check_tensor, sizes_text
from luminal.torch.symbols import SymbolBinding


@dataclass(frozen=True)
class ProductCall:
    """How a graph is called.  `fixed`: of each argument the tensor behind it, None for what users give; `constants`:
    positions of the graph's inputs that never change; `structure`: those of arguments and results, "" for flat ones."""

    inputs: Sequence[InputSlot]
    outputs: Sequence[OutputSlot]
    updates: Sequence[tuple[int, int]]
    bindings: Sequence[SymbolBinding]
    fixed: Sequence[Any]
    constants: Sequence[int] = ()
    structure: tuple[str, str] = ("", "")
    conditions: Sequence[SymbolBinding] = ()

    @staticmethod
    def plain(inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> ProductCall:
        """That of a graph of row-major tensors; OptionError for a symbol that is the size of no input's axis."""
        slots = [InputSlot(number, plain_layout(type_)) for number, type_ in enumerate(inputs)]
        results = [
            OutputSlot("computed", number, plain_layout(type_)) for number, type_ in enumerate(outputs)
        ]
        places = [(s, n, axis) for n, type_ in enumerate(inputs) for axis, s in enumerate(type_.shape)]
        bindings = {
            size.symbol.name: SymbolBinding(size.symbol.name, n, axis)
            for size, n, axis in places
            if size.symbol
        }
        dims = [size for type_ in (*inputs, *outputs) for size in type_.shape]
        lost = sorted({symbol.name for size in dims for symbol in size.symbols()} - set(bindings))
        if lost:
            raise OptionError(
                f"dim {lost[0]} is the size of no input's axis: a product could not tell its value"
            )
        fixed = [None] * len(inputs)
        return ProductCall(slots, results, (), list(bindings.values()), fixed)

    def data(self) -> ProductData:
        """What a product keeps of it."""
        constants = {position: self._stored(self.inputs[position]) for position in self.constants}
        varying = {slot.argument for n, slot in enumerate(self.inputs) if n not in set(self.constants)}
        state = {n: value for n, value in enumerate(self.fixed) if n in varying and value is not None}
        described = {
            "inputs": [[slot.argument, _layout_data(slot.layout)] for slot in self.inputs],
            "outputs": [_output_data(slot) for slot in self.outputs],
            "updates": [list(pair) for pair in self.updates],
            "bindings": [_binding_data(binding) for binding in self.bindings],
            "conditions": [_binding_data(condition) for condition in self.conditions],
            "given": [n for n, value in enumerate(self.fixed) if value is None],
            "arguments": len(self.fixed),
            "constants": list(self.constants),
            "structure": list(self.structure),
            "state": {str(n): _tensor_data(_dense(value)) for n, value in state.items()},
        }
        return ProductData(described, constants, {n: _bytes(_dense(value)) for n, value in state.items()})

    def _stored(self, slot: InputSlot) -> Any:
        tensor = self.fixed[slot.argument] if slot.constant is None else slot.constant
        return _bytes(stored_view(to_carrier(tensor.detach()), slot.layout).contiguous()).view(
            slot.layout.stored.dtype.numpy
        )


class Product:
    """A program that was built: call it as the model that it was built of.

    Parameters are those of the build; buffers that the model updates begin as they were then, and stay with it.
    """

    def __init__(self, program: Program, manifest: Mapping[str, Any], folder: Path) -> None:
        call, weights = manifest["call"], manifest["weights"]
        self.program, self.manifest = program, manifest
        plan_inputs: Sequence[TensorType] = program.input_types  # pyright: ignore
        reader = _Reader(call["bindings"])
        slots = [InputSlot(argument, reader.layout(data)) for argument, data in call["inputs"]]
        self._given = [(n, slot) for n, slot in enumerate(slots) if slot.argument in set(call["given"])]
        for position in range(len(plan_inputs)):
            if position in call["constants"] or position >= len(slots):
                place = weights["constants"].get(str(position))
                slot = InputSlot(
                    -1, plain_layout(plan_inputs[position]), _constant(plan_inputs[position], folder, place)
                )
                slots[position : position + 1] = [slot]
        constants = [position for position, slot in enumerate(slots) if slot.constant is not None]
        bindings = [_read_binding(data) for data in call["bindings"]]
        self._outputs = [_read_output(data, reader) for data in call["outputs"]]
        updates = [(output, given) for output, given in call["updates"]]
        conditions = [_read_binding(data) for data in call["conditions"]]
        imported = ImportedGraph(
            ModuleOp([]), slots, self._outputs, [], updates, bindings, {}, cast(Any, {}), conditions
        )
        self._readers = {binding.name: read_symbol(binding) for binding in bindings}
        self._graph = CompiledGraph(imported, program, constants, True, checked=True)
        self._arguments: list[Any] = [None] * call["arguments"]
        for argument, data in call["state"].items():
            flat = torch.from_numpy(read_bytes(folder, weights["state"][argument])).view(
                getattr(torch, data["dtype"])
            )
            tensor = torch.empty_strided(
                data["shape"], data["strides"], dtype=flat.dtype, device=self._graph.place
            )
            tensor.as_strided((flat.numel(),), (1,)).copy_(flat)
            self._arguments[int(argument)] = tensor
        self._structure = [pytree.treespec_loads(text) if text else None for text in call["structure"]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result, or a tuple of those of a graph.

        OptionError for other arguments than the model has, DTypeError and ShapeError for tensors of another dtype or
        shape, and what the program itself raises.
        """
        expected, wanted = self._structure
        flat, structure = pytree.tree_flatten((args, kwargs)) if expected is not None else (list(args), None)
        given = self.manifest["call"]["given"]
        if structure != expected or len(flat) != len(given):
            raise OptionError(
                f"the arguments have the structure {structure or len(flat)}, expected {expected or len(given)}"
            )
        arguments = list(self._arguments)
        for number, value in zip(given, flat, strict=True):
            arguments[number] = value
        self._check(arguments)
        returned = self._graph(arguments)
        return tuple(returned) if wanted is None else pytree.tree_unflatten(returned, wanted)

    def _check(self, arguments: Sequence[Any]) -> None:
        for number, slot in self._given:
            layout = slot.layout
            check_tensor(arguments[slot.argument], f"argument {number}", layout.dtype, layout.shape)
        values = {name: read(arguments) for name, read in self._readers.items()}
        for number, slot in self._given:
            shape = [size.evaluate(values) for size in slot.layout.shape]
            if list(arguments[slot.argument].shape) != shape:
                raise ShapeError(
                    f"argument {number} has shape {list(arguments[slot.argument].shape)}, "
                    f"expected {sizes_text(slot.layout.shape)}, here {shape}"
                )


def load(folder: str | os.PathLike[str]) -> Product:
    """What `luminal build` wrote into a folder, ready to run; Triton is not needed.

    ProductError for a folder that is no product, or is damaged, or of another version; NoDeviceError where the device,
    or the processor, is not the one that it was built for.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    try:
        if manifest["target"]["name"] == "cpu":
            from luminal.plan.cpu_product import read_program
        else:
            from luminal.plan.gpu_program import read_program
        return Product(cast(Program, read_program(path, manifest)), manifest, path)
    except (KeyError, ValueError, TypeError) as error:
        if isinstance(error, (OptionError, ProductError)):
            raise
        raise ProductError(
            f"{path / 'manifest.json'} is damaged: {error!r}; build the product again"
        ) from error


# ---- tensors ---------------------------------------------------------------------------------------------------


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where its elements fill its memory, or a row-major copy."""
    plain = tensor.detach()
    return plain if torch.empty_like(plain).stride() == plain.stride() else plain.contiguous()


def _bytes(tensor: torch.Tensor) -> Any:
    """The memory of a dense tensor."""
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return flat.cpu().view(torch.uint8).numpy()


def _tensor_data(tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(tensor.shape), "strides": list(tensor.stride())}


def _constant(type_: TensorType, folder: Path, place: Mapping[str, int] | None) -> torch.Tensor:
    """A constant of the weights; nothing for one that no step reads."""
    if place is None:
        return torch.empty([0] * type_.rank, dtype=type_.dtype.torch)
    shape = [size.evaluate({}) for size in type_.shape]
    return torch.from_numpy(read_bytes(folder, place)).view(type_.dtype.torch).view(shape)


# ---- JSON ------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads dims over the symbols of some bindings."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self._symbols = {name: Symbol(name) for name, *_ in bindings}

    def dims(self, texts: Sequence[str]) -> tuple[Dim, ...]:
        return tuple(parse_dim(text, self._symbols) for text in texts)

    def layout(self, data: Sequence[Any]) -> Layout:
        shape, strides, order, (dtype, stored), dense, name = data
        type_ = tensor_type(self.dims(stored), dtype)
        return Layout(self.dims(shape), self.dims(strides), tuple(order), type_, dense, getattr(torch, name))


def _texts(dims: Sequence[Dim]) -> list[str]:
    return [str(dim) for dim in dims]


def _layout_data(layout: Layout) -> list[Any]:
    stored = [layout.stored.dtype.name, _texts(layout.stored.shape)]
    name = str(layout.dtype).removeprefix("torch.")
    return [_texts(layout.shape), _texts(layout.strides), list(layout.order), stored, layout.dense, name]


def _output_data(slot: OutputSlot) -> list[Any]:
    layout = None if slot.layout is None else _layout_data(slot.layout)
    offset, size = (None if dim is None else str(dim) for dim in (slot.offset, slot.size))
    return [slot.kind, slot.number, layout, offset, size]


def _read_output(data: Sequence[Any], reader: _Reader) -> OutputSlot:
    kind, number, layout, *rest = data
    offset, size = (None if text is None else reader.dims([text])[0] for text in rest)
    return OutputSlot(kind, number, None if layout is None else reader.layout(layout), offset, size)


def _binding_data(binding: SymbolBinding) -> list[Any]:
    uses = [_binding_data(used) for used in binding.uses]
    return [binding.name, binding.argument, binding.axis, binding.divisor, binding.code, uses]


def _read_binding(data: Sequence[Any]) -> SymbolBinding:
    name, argument, axis, divisor, code, uses = data
    return SymbolBinding(name, argument, axis, divisor, code, tuple(map(_read_binding, uses)))
