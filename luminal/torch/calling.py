"""A compiled graph as what AOTAutograd calls: one list of arguments in, a list of results out.

Tensors go in and out as addresses. The only copies are of inputs whose memory is not that of a permuted row-major
tensor, and of results that must have such strides; `copied_bytes` counts them.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

from luminal.dim import Dim
from luminal.errors import DeviceError, ShapeError
from luminal.plan.constants import Constant, Epoch
from luminal.runtimes.memory import HUGE_PAGE, leased_buffer
from luminal.torch import report
from luminal.torch.extern import CARRIERS, from_carrier, to_carrier
from luminal.torch.fused_steps import count_fused_steps
from luminal.torch.import_fx import ImportedGraph, InputSlot, OutputSlot
from luminal.torch.layout import Layout
from luminal.torch.symbols import SymbolBinding

POOLED_BYTES = HUGE_PAGE
"""Results from this size on come from Luminal's own memory pool, on huge pages; smaller ones from torch, which is
quicker."""
CPU = torch.device("cpu")
_empty: Callable[[Sizes, Sizes, torch.dtype], torch.Tensor] = cast(
    Any, torch._C
)._dynamo.guards._empty_strided_cpu
"""`torch.empty_strided` without its dispatcher, as code of torch's own compiler calls it."""
_laid_out: Callable[[torch.Tensor, Sizes, Sizes, int], torch.Tensor] = cast(
    Any, torch._C
)._dynamo.guards._reinterpret_tensor
"""The memory of a tensor under another shape, strides and offset, as a tensor that is no view; also from there."""
Sizes = tuple[int, ...]
FixedResult = tuple[Sizes, Sizes, int, torch.dtype]
"""Shape, strides, how many elements lie in memory, and dtype."""
Copies = list[tuple[torch.Tensor, torch.Tensor]]
_uncounted = itertools.count()
"""What stands for the version of a tensor that has none: another number each time."""


class Program(Protocol):
    """What the call path needs of a compiled module: that of `luminal.plan.executable.PlanExecutable`.

    Updates are written into the memory of their inputs.
    """

    @property
    def dim_names(self) -> tuple[str, ...]: ...
    @property
    def call_inputs(self) -> tuple[int, ...]: ...
    def bind_constants(self, constants: Mapping[int, Constant]) -> None: ...
    def run_pointers(self, inputs: Sequence[int], dims: Sequence[int], outputs: Sequence[int]) -> None: ...


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """While open, a GPU is torch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def size_function(dims: Sequence[Sequence[Dim]], names: Sequence[str]) -> Callable[..., tuple[Sizes, ...]]:
    """A Python function from the symbols' values, in the order of `names`, to the values of tuples of dims.

    >>> s = luminal.dim("s")
    >>> size_function([(s, 2 * s)], ["s"])(3)
    ((3, 6),)
    """
    rows = "".join(f"({''.join(f'{d}, ' for d in row)}), " for row in dims)
    scope: dict[str, Any] = {"min": min, "max": max, "__builtins__": {}}
    return cast(Callable[..., Any], eval(f"lambda {', '.join(names)}: ({rows})", scope))


def fixed_call(
    inputs: Sequence[int], results: Sequence[FixedResult], updates: int, run: Callable[..., None]
) -> Callable[[list[Any]], list[Any]]:
    """A Python function for calls in which nothing but addresses is new: small graphs cost what their call costs.

    It takes the list of arguments, which it empties, and gives the list of results. `inputs` are the numbers of the
    arguments that the program reads; addresses of updates are not looked at.
    """
    names = [f"result{number}" for number in range(len(results))]
    scope: dict[str, Any] = {"run": run, "empty": _empty, "pooled": _pooled}
    lines = ["def call(given):"]
    for name, (shape, strides, elements, dtype) in zip(names, results, strict=True):
        scope[f"{name}_dtype"] = dtype
        new = "empty(" if _is_small(elements, dtype) else f"pooled({elements}, "
        lines.append(f"    {name} = {new}{shape}, {strides}, {name}_dtype)")
    read = "".join(f"given[{number}].data_ptr(), " for number in inputs)
    written = "".join(f"{name}.data_ptr(), " for name in names) + "0, " * updates
    lines += [f"    run(({read}), (), ({written}))", "    given.clear()", f"    return [{', '.join(names)}]"]
    exec("\n".join(lines), scope)
    return scope["call"]


@dataclass
class _Bound:
    """The parameters that a program holds laid out anew, and how they looked when it did so."""

    tensors: list[torch.Tensor]
    versions: list[int]
    addresses: list[int]
    epoch: int
    kept: list[torch.Tensor]

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether it is of these parameters, not of those of another instance."""
        return all(map(operator.is_, tensors, self.tensors))

    def is_unchanged(self) -> bool:
        return (
            _versions(self.tensors) == self.versions
            and [tensor.data_ptr() for tensor in self.tensors] == self.addresses
        )


class CompiledGraph:
    """Callable with one list of arguments, which it empties, as AOTAutograd's compiled graphs are."""

    def __init__(
        self,
        imported: ImportedGraph,
        program: Program,
        constants: Sequence[int],
        freeze: bool,
        checked: bool = False,
        device: torch.device = CPU,
    ) -> None:
        """`constants` are positions of graph inputs that are bound once. `freeze`: they never change after the first
        call. `checked`: strides of arguments are compared with the traced ones, since no guard has done so. `device`:
        that of the traced inputs, on which a program for a GPU runs."""
        self._boxed_call = True  # of the instance: Dynamo's wrappers copy its attributes
        self.imported, self.program, self.freeze, self.checked = imported, program, freeze, checked
        self._run_program = program.run_pointers
        self._traced_on, self._is_gpu = device, hasattr(type(program), "device")
        slots = imported.inputs
        self._constants = [(position, slots[position]) for position in constants]
        count_fused_steps()
        self._parameters = sorted({s.argument for _, s in self._constants if s.constant is None})
        self._of_thread = threading.local()
        """What this thread has bound: instances of one model may share a compiled graph."""
        self._slots = [slots[position] for position in program.call_inputs]
        self._direct = (
            None
            if checked or self._is_gpu or any(map(_is_indirect, self._slots))
            else [s.argument for s in self._slots]
        )
        self._results = self._result_layouts()
        self._updates = [(number, slots[position]) for number, position in imported.updates]
        self._unseen = [0] * len(self._updates)
        """Addresses of updates, which are those of their inputs."""
        names = [binding.name for binding in imported.bindings]
        rows = [
            row for layout in self._results for row in (layout.shape, layout.strides, layout.stored.shape)
        ]
        self._offsets: dict[int, int] = {}
        """By result: the row of the sizes that gives its offset, where that is not always 0."""
        for slot in imported.outputs:
            if slot.kind == "computed" and slot.offset is not None and slot.offset.constant != 0:
                self._offsets[slot.number] = len(rows)
            rows += _extra_rows(slot)
        self._sizes = size_function(rows, names)
        self._readers = [read_symbol(binding) for binding in imported.bindings]
        self._conditions = [(condition.name, read_symbol(condition)) for condition in imported.conditions]
        self._dim_order = [names.index(name) for name in program.dim_names]
        if not names:
            fixed = self._sizes()
            self._sizes = lambda: fixed
        outputs = [(slot.kind, slot.number) for slot in imported.outputs]
        gives_results = outputs == [("computed", number) for number in range(len(self._results))]
        is_plain = not names and not self._conditions and self._direct is not None and gives_results
        layouts = self._fixed_results(self._sizes()) if is_plain else None
        self._fixed = (
            None
            if layouts is None or self._direct is None
            else fixed_call(self._direct, layouts, len(self._updates), self._run_program)
        )

    def _fixed_results(self, sizes: tuple[Sizes, ...]) -> list[FixedResult] | None:
        """What memory is asked for in every call, where all results are dense; None where not."""
        found: list[FixedResult] = []
        for number, layout in enumerate(self._results):
            shape, strides, stored = sizes[3 * number : 3 * number + 3]
            if self._is_gpu or number in self._offsets or not layout.dense:
                return None
            found.append((shape, strides, math.prod(stored), layout.dtype))
        return found

    def _result_layouts(self) -> list[Layout]:
        """How each hlo result that is no update lies in memory."""
        found = {
            s.number: cast(Layout, s.layout)
            for s in self.imported.outputs
            if s.kind in ("computed", "hidden")
        }
        return [found[number] for number in sorted(found)]

    @property
    def place(self) -> torch.device:
        """Where tensors go in and out; NoDeviceError for a program of a GPU that is not there."""
        return self.program.device.torch if self._is_gpu else CPU  # pyright: ignore

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._fixed is not None:
            if self._constants:
                self._bind(arguments)
            return self._fixed(arguments)
        given = list(arguments)
        arguments.clear()
        if not self._is_gpu:
            return self._run(given)
        with on_device(self._traced_on):
            return self._run(given)

    def _run(self, given: list[Any]) -> list[Any]:
        if self._constants:
            self._bind(given)
        for text, holds in self._conditions:
            if not _is_met(holds, given):
                raise ShapeError(f"the program was traced for sizes with {text}; those given are others")
        values = [read(given) for read in self._readers]
        sizes = self._sizes(*values)
        kept: list[torch.Tensor] = []
        before: Copies = []
        if self._direct is not None:
            inputs = [given[number].data_ptr() for number in self._direct]
        else:
            inputs = [self._address(given[slot.argument], slot, kept, before) for slot in self._slots]
        results, outputs, after = self._allocate(sizes)
        self._run_program(inputs, [values[i] for i in self._dim_order], outputs)
        for target, source in (*before, *after):
            target.copy_(source)
            report.count_copy(source)
        return self._collect(given, results, sizes)

    # ---- inputs ------------------------------------------------------------------------------------------------

    def _bind(self, given: Sequence[Any]) -> None:
        """Have the program lay out the parameters where they are not those of the last call."""
        bound: _Bound | None = getattr(self._of_thread, "bound", None)
        tensors = [given[number] for number in self._parameters]
        if bound is not None and bound.epoch == Epoch.current:
            if bound.is_of(tensors) and (self.freeze or bound.is_unchanged()):
                return
        constants: dict[int, Constant] = {}
        kept: list[torch.Tensor] = []
        for position, slot in self._constants:
            tensor = given[slot.argument] if slot.constant is None else slot.constant
            address = self._address(tensor, slot, kept, [])
            constants[position] = Constant(address, tensor, _versions([tensor])[0])
        self.program.bind_constants(constants)
        addresses = [tensor.data_ptr() for tensor in tensors]
        self._of_thread.bound = _Bound(tensors, _versions(tensors), addresses, Epoch.current, kept)

    def _address(
        self,
        tensor: torch.Tensor,
        slot: InputSlot,
        kept: list[torch.Tensor],
        back: Copies,
    ) -> int:
        """Where the row-major tensor that the graph takes lies: in the argument's own memory, or in a copy, which goes
        into `kept`, and into `back` if the graph updates it.  Constants of the graph, and numbers, are copied from the
        host to where the program runs; DeviceError for others."""
        if self._is_gpu and tensor.device != self.place:
            if tensor.ndim and slot.constant is None:
                raise DeviceError(
                    f"argument {slot.argument} is on {tensor.device}; the program is for {self.place}"
                )
            there = tensor.to(self.place)
            kept.append(there)
            if any(slot is updated for _, updated in self._updates):
                back.append((tensor, there))
            tensor = there
        if not (self.checked or _is_indirect(slot)):
            return tensor.data_ptr()
        own = stored_view(to_carrier(tensor.detach()), slot.layout)
        if own.is_contiguous():
            kept.append(own)
            return own.data_ptr()
        copy = own.contiguous()
        report.count_copy(copy)
        kept.append(copy)
        if any(slot is updated for _, updated in self._updates):
            back.append((own, copy))
        return copy.data_ptr()

    # ---- results -----------------------------------------------------------------------------------------------

    def _allocate(self, sizes: tuple[Sizes, ...]) -> tuple[list[torch.Tensor], list[int], Copies]:
        """Results as the user gets them, the addresses that the program writes to, and copies to make after it."""
        results: list[torch.Tensor] = []
        outputs: list[int] = [0] * len(self._results) + self._unseen
        copies: Copies = []
        for number, layout in enumerate(self._results):
            shape, strides, stored = sizes[3 * number : 3 * number + 3]
            offset = sizes[self._offsets[number]][0] if number in self._offsets else 0
            if layout.dense and not offset:
                result = _new_tensor(shape, strides, stored, layout.dtype, self.place)
                outputs[number] = result.data_ptr()
            else:  # programs write what is row-major and begins on a cache line
                result = _at_offset(shape, strides, layout.dtype, offset, self.place)
                temporary = torch.empty(stored, dtype=layout.stored.dtype.torch, device=self.place)
                outputs[number] = temporary.data_ptr()
                source = from_carrier(temporary, layout.dtype)
                copies.append(_once(result.permute(layout.order), source))
            results.append(result)
        return results, outputs, copies

    def _collect(
        self, given: Sequence[Any], results: list[torch.Tensor], sizes: tuple[Sizes, ...]
    ) -> list[Any]:
        collected: list[Any] = []
        row = 3 * len(self._results)
        for slot in self.imported.outputs:
            if slot.kind == "computed":
                collected.append(results[slot.number])
            elif slot.kind == "argument":
                collected.append(given[slot.number])
            elif slot.kind in ("view", "part"):
                shape, strides, (offset,) = sizes[row : row + 3]
                base = given[slot.number] if slot.kind == "view" else results[slot.number]
                collected.append(_view_of(base, cast(Layout, slot.layout).dtype, shape, strides, offset))
            elif slot.kind == "size":
                collected.append(sizes[row][0])
            elif slot.kind == "none":
                collected.append(None)
            row += len(_extra_rows(slot))
        return collected


def _once(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is copied where, each element of the target's memory once: expanded axes narrowed to one element."""
    for axis, (size, step) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if step == 0 and size > 1:
            target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
    return target, source


def stored_view(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The tensor with its axes in the order of memory; expanded ones narrowed to one element."""
    turned = tensor.permute(layout.order)
    for axis, size in enumerate(layout.stored.shape):
        if size.constant == 1 and turned.size(axis) > 1:
            turned = turned.narrow(axis, 0, 1)
    return turned


def _view_of(
    base: torch.Tensor, dtype: torch.dtype, shape: Sizes, strides: Sizes, offset: int
) -> torch.Tensor:
    """A view of another dtype, perhaps, into the storage of a tensor; strides and offset count its own elements."""
    if base.dtype == dtype:
        return base.as_strided(shape, strides, offset)
    if base.itemsize == dtype.itemsize:
        return base.as_strided(shape, strides, offset).view(dtype)
    count = base.untyped_storage().nbytes() // base.itemsize
    count -= count % max(1, dtype.itemsize // base.itemsize)
    return base.as_strided((count,), (1,), 0).view(dtype).as_strided(shape, strides, offset)


def _is_indirect(slot: InputSlot) -> bool:
    """Whether an argument's address alone is not enough."""
    return not slot.layout.dense or slot.layout.dtype in CARRIERS


def read_symbol(binding: SymbolBinding) -> Callable[[Sequence[Any]], int]:
    """The function that reads a symbol's value off the arguments."""
    number, axis, divisor = binding.argument, binding.axis, binding.divisor
    if binding.code:
        scope: dict[str, Any] = {"math": math, "torch": torch}
        function = eval(f"lambda {', '.join(used.name for used in binding.uses)}: {binding.code}", scope)
        readers = [read_symbol(used) for used in binding.uses]
        return lambda given: int(function(*[read(given) for read in readers])) // divisor
    if axis is not None:
        return lambda given: given[number].size(axis) // divisor
    if divisor != 1:
        return lambda given: given[number] // divisor
    return operator.itemgetter(number)


def _is_met(holds: Callable[[Sequence[Any]], int], given: Sequence[Any]) -> bool:
    try:
        return bool(holds(given))
    except ZeroDivisionError:  # no size that was traced is zero
        return False


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor was written to. Those of inference mode do not count: each time a number that no version
    is, so that they pass for changed."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return [~next(_uncounted) if tensor.is_inference() else tensor._version for tensor in tensors]


def _is_small(elements: int, dtype: torch.dtype) -> bool:
    return elements * dtype.itemsize < POOLED_BYTES


def _at_offset(
    shape: Sizes, strides: Sizes, dtype: torch.dtype, offset: int, place: torch.device
) -> torch.Tensor:
    """A new tensor with an offset in its storage."""
    if not offset or not math.prod(shape):
        return torch.empty_strided(shape, strides, dtype=dtype, device=place)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.empty(offset + reach, dtype=dtype, device=place).as_strided(shape, strides, offset)


def _new_tensor(
    shape: Sizes, strides: Sizes, stored: Sizes, dtype: torch.dtype, place: torch.device
) -> torch.Tensor:
    if place.type != "cpu":
        return torch.empty_strided(shape, strides, dtype=dtype, device=place)
    elements = math.prod(stored)
    if _is_small(elements, dtype):
        return _empty(shape, strides, dtype)
    return _pooled(elements, shape, strides, dtype)


def _pooled(elements: int, shape: Sizes, strides: Sizes, dtype: torch.dtype) -> torch.Tensor:
    """A new tensor of so many elements in Luminal's own memory."""
    memory = torch.frombuffer(leased_buffer(elements * dtype.itemsize), dtype=dtype)
    return _laid_out(memory, shape, strides, 0)


def _extra_rows(slot: OutputSlot) -> list[Sequence[Dim]]:
    offset: list[Sequence[Dim]] = [] if slot.offset is None else [(slot.offset,)]
    if slot.kind in ("view", "part"):
        layout = cast(Layout, slot.layout)
        return [layout.shape, layout.strides, *offset]
    return offset if slot.size is None else [(slot.size,)]
