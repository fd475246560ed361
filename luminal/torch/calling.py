"""A compiled graph as what AOTAutograd calls: one list of arguments in, a list of results out.

Tensors go in and out as addresses. The only copies are of inputs whose memory is not that of a permuted row-major
tensor, of results that must have such strides, and of updates that could not be made in place; `copied_bytes` in
`luminal.stats()` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.torch import report
from luminal.torch.extern import CARRIERS, from_carrier, to_carrier
from luminal.torch.import_fx import ImportedGraph, InputSlot, OutputSlot
from luminal.torch.layout import Layout

Sizes = tuple[int, ...]


class Program(Protocol):
    """What the call path needs of a compiled module. `in_place` are the updates that are made in the input's memory:
    their output pointer is the input's."""

    @property
    def in_place(self) -> frozenset[int]: ...
    def set_constants(self, tensors: Mapping[int, torch.Tensor]) -> None: ...
    def run_tensors(
        self, inputs: Sequence[torch.Tensor | None], dims: Mapping[str, int], outputs: Sequence[torch.Tensor]
    ) -> None: ...


def size_function(dims: Sequence[Sequence[Dim]], names: Sequence[str]) -> Callable[..., tuple[Sizes, ...]]:
    """A Python function from the symbols' values, in the order of `names`, to the values of tuples of dims.

    >>> s = luminal.dim("s")
    >>> size_function([(s, 2 * s)], ["s"])(3)
    ((3, 6),)
    """
    rows = "".join(f"({''.join(f'{d}, ' for d in row)}), " for row in dims)
    scope: dict[str, Any] = {"min": min, "max": max, "__builtins__": {}}
    return cast(Callable[..., Any], eval(f"lambda {', '.join(names)}: ({rows})", scope))


@dataclass
class _Constants:
    """The parameters that a program has laid out anew, and how they looked when it did."""

    tensors: list[torch.Tensor]
    versions: list[int]
    pointers: list[int]
    epoch: int

    def fresh(self, tensors: Sequence[torch.Tensor], epoch: int) -> bool:
        if epoch != self.epoch:
            return False
        for given, known, version, pointer in zip(
            tensors, self.tensors, self.versions, self.pointers, strict=True
        ):
            if given is not known or given._version != version or given.data_ptr() != pointer:
                return False
        return True


class CompiledGraph:
    """Callable with one list of arguments, which it empties, as AOTAutograd's compiled graphs are."""

    _boxed_call = True

    def __init__(
        self,
        imported: ImportedGraph,
        program: Program,
        constants: Sequence[int],
        freeze: bool,
        checked: bool = False,
    ) -> None:
        """`constants` are positions of graph inputs that are parameters. `freeze`: they never change after the first
        call. `checked`: strides of the arguments are compared with the traced ones, since no guard has done so."""
        self.imported, self.program, self.freeze, self.checked = imported, program, freeze, checked
        self._constants: _Constants | None = None
        self._constant_slots = [
            (position, imported.inputs[position]) for position in constants
            if imported.inputs[position].constant is None
        ]  # fmt: skip
        self._fixed = {
            position: slot.constant
            for position, slot in enumerate(imported.inputs)
            if slot.constant is not None
        }
        self._varying = [
            (position, slot) for position, slot in enumerate(imported.inputs)
            if position not in set(constants) and slot.constant is None
        ]  # fmt: skip
        names = [binding.name for binding in imported.bindings]
        self._names = names
        self._updated = dict(imported.updates)
        self._layouts = self._result_layouts()
        self._sizes = size_function(
            [row for layout in self._layouts for row in (layout.shape, layout.strides)]
            + [row for slot in imported.outputs for row in _view_rows(slot)],
            names,
        )
        self._stored = size_function([t.shape for t in imported.result_types], names)

    def _result_layouts(self) -> list[Layout]:
        """How each hlo result that is no update lies in memory, by its number."""
        found: dict[int, Layout] = {}
        for slot in self.imported.outputs:
            if slot.kind == "computed":
                found[slot.number] = cast(Layout, slot.layout)
        return [found[number] for number in range(len(self.imported.result_types) - len(self._updated))]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        values = [self._value(given, binding) for binding in self.imported.bindings]
        dims = dict(zip(self._names, values, strict=True))
        self._bind_constants(given)
        inputs: list[torch.Tensor | None] = [None] * len(self.imported.inputs)
        for position, slot in self._varying:
            inputs[position] = self._stored_input(given[slot.argument], slot, values)
        sizes = self._sizes(*values)
        results, outputs, copies = self._allocate(sizes, values, inputs, given)
        self.program.run_tensors(inputs, dims, outputs)
        for target, source in copies:
            report.count_copy(source)
            target.copy_(source)
        return self._collect(given, results, sizes, values)

    def _value(self, given: Sequence[Any], binding: Any) -> int:
        argument = given[binding.argument]
        value = argument if binding.axis is None else argument.size(binding.axis)
        return value // binding.divisor

    def _bind_constants(self, given: Sequence[Any]) -> None:
        known = self._constants
        if known is not None and self.freeze and known.epoch == report.epoch():
            return
        tensors = [given[slot.argument] for _, slot in self._constant_slots]
        if known is not None and known.fresh(tensors, report.epoch()):
            return
        stored = dict(self._fixed)
        for (position, slot), tensor in zip(self._constant_slots, tensors, strict=True):
            stored[position] = self._stored_input(tensor, slot, ())
        self.program.set_constants(cast("dict[int, torch.Tensor]", stored))
        versions = [tensor._version if not tensor.is_inference() else 0 for tensor in tensors]
        pointers = [tensor.data_ptr() for tensor in tensors]
        self._constants = _Constants(tensors, versions, pointers, report.epoch())

    def _stored_input(self, tensor: torch.Tensor, slot: InputSlot, values: Sequence[int]) -> torch.Tensor:
        """The row-major tensor that the graph takes, over the argument's own memory where that fits."""
        layout = slot.layout
        plain = tensor.detach()
        if layout.dtype in CARRIERS or not layout.dense:
            plain = to_carrier(plain)
        if layout.dense and not self.checked:
            return _permuted(plain, layout)
        stored = _permuted(plain, layout)
        if stored.is_contiguous():
            return stored
        report.count_copy(stored)
        return stored.contiguous()

    def _allocate(
        self,
        sizes: Sequence[Sizes],
        values: Sequence[int],
        inputs: Sequence[torch.Tensor | None],
        given: Sequence[Any],
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]]:
        """Results as the user gets them, the row-major tensors that the program writes, and copies to make after."""
        results: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        stored = self._stored(*values)
        for number, layout in enumerate(self._layouts):
            size, stride = sizes[2 * number], sizes[2 * number + 1]
            result = torch.empty_strided(size, stride, dtype=layout.dtype)
            results.append(result)
            if layout.dense:
                outputs.append(_permuted(to_carrier(result), layout))
                continue
            temporary = torch.empty(stored[number], dtype=layout.stored.dtype.torch)
            outputs.append(temporary)
            copies.append((result, from_carrier(temporary, layout.dtype)))
        for number in range(len(self._layouts), len(stored)):
            position = self._updated[number]
            slot = self.imported.inputs[position]
            target = cast(torch.Tensor, inputs[position])
            original = given[slot.argument]
            if number in self.program.in_place:
                outputs.append(target)
                if target.data_ptr() != original.data_ptr():
                    copies.append((_permuted(to_carrier(original.detach()), slot.layout), target))
                continue
            temporary = torch.empty_like(target)
            outputs.append(temporary)
            copies.append((_permuted(to_carrier(original.detach()), slot.layout), temporary))
        return results, outputs, copies

    def _collect(
        self,
        given: Sequence[Any],
        results: Sequence[torch.Tensor],
        sizes: Sequence[Sizes],
        values: Sequence[int],
    ) -> list[Any]:
        collected: list[Any] = []
        row = 2 * len(self._layouts)
        for slot in self.imported.outputs:
            if slot.kind == "computed":
                collected.append(results[slot.number])
            elif slot.kind == "argument":
                collected.append(given[slot.number])
            elif slot.kind == "view":
                size, stride, (offset,) = sizes[row : row + 3]
                collected.append(given[slot.number].as_strided(size, stride, offset))
            elif slot.kind == "size":
                collected.append(sizes[row][0])
            else:
                collected.append(None)
            row += len(_view_rows(slot))
        return collected


def _view_rows(slot: OutputSlot) -> list[Sequence[Dim]]:
    if slot.kind == "view":
        layout = cast(Layout, slot.layout)
        return [layout.shape, layout.strides, (cast(Dim, slot.offset),)]
    return [(cast(Dim, slot.size),)] if slot.kind == "size" else []


def _permuted(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The row-major tensor over the same memory; expanded axes are narrowed to one element."""
    if layout.row_major and tuple(layout.shape) == layout.stored.shape[: len(layout.shape)]:
        return tensor
    turned = tensor.permute(layout.order)
    for axis, size in enumerate(layout.stored.shape):
        if size.constant == 1 and turned.size(axis) > 1:
            turned = turned.narrow(axis, 0, 1)
    return turned


_ = np, TensorType
