"""A plan that runs on a GPU: constants resident there, arenas leased by call, launches recorded where they come again.

A call whose addresses and sizes have all been seen before is recorded and from then on replayed as one graph of the
driver; a change of any of them is another graph, so none is ever stale.  Calls are asynchronous as those of torch are,
but where a check has to be read before anything is overwritten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.tensor_type import TensorType
from luminal.errors import DeviceError, LuminalError
from luminal.plan.bindings import Bindings, Bound
from luminal.plan.constants import Constant, Epoch
from luminal.plan.executable import check_error, checked_sizes, sizes_of, with_sources
from luminal.plan.gpu_calls import Part, SizedPlan, sized_plan, value_bytes
from luminal.plan.gpu_code import GpuCode
from luminal.plan.library import run_library
from luminal.plan.plan import LibraryStep, Plan
from luminal.plan.planned import Planned
from luminal.runtimes.gpu_device import Device, Recording, find_device
from luminal.runtimes.memory import size_class
from luminal.stats import Stats, note_arena

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
ALIGNMENT = 16
"""Bytes that kernels take every address to be a multiple of; what is not is copied."""
MOST_SIZES, MOST_GRAPHS, MOST_SEEN = 256, 64, 1024
"""Sizes whose launches are kept; recorded calls; calls that are remembered, to be recorded when they come again."""
Key = tuple[object, ...]


class GpuExecutable(Planned):
    """A compiled graph for a GPU.  It may be called from several threads and on several streams at once.

    `codes`: what each kernel of the plan launches.  The device is looked for when something is bound or run first;
    NoDeviceError where it is not there.
    """

    def __init__(
        self,
        plan: Plan,
        codes: Mapping[str, GpuCode],
        architecture: str,
        stats: Stats,
        device: Device | None = None,
    ) -> None:
        super().__init__(plan, stats)
        self.codes, self.architecture = codes, architecture
        self._found = device
        self._bindings = Bindings(self._constants, self._bind)
        self._functions: dict[str, list[Any]] = {}
        self._sized: OrderedDict[tuple[int, ...], SizedPlan] = OrderedDict()
        self._graphs: OrderedDict[Key, Recording] = OrderedDict()
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._arenas: dict[int, list[torch.Tensor]] = {}
        """Of each stream those that no running call has: work in a stream is in order, so it may take them over."""
        self._lock = threading.RLock()

    # ---- facts

    @property
    def device(self) -> Device:
        """Where it runs; all machine code is loaded when this is asked for first.  NoDeviceError, DriverError."""
        with self._lock:
            if self._found is None:
                self._found = find_device(self.architecture)
            if not self._functions:
                with self._found.active():
                    self._functions = {
                        name: [self._found.load(launch.code) for launch in self.codes[name].launches]
                        for name in self.plan.kernels
                    }
            return self._found

    # ---- constants

    def bind_constants(self, constants: Mapping[int, Constant]) -> None:
        """Take in constant inputs, by position, in the device's memory; what folds make of them is computed and kept
        there.  For the calls of this thread, and of threads that have bound none.  UnsetInputError."""
        with self.device.active():
            self._bindings.bind(constants)

    def forget_constants(self) -> None:
        """Keep no constants but those that were bound last."""
        self._bindings.forget()

    def _bind(self, constants: tuple[Constant, ...]) -> Bound:
        device, plan, epoch = self.device, self.plan, Epoch.current
        found = dict(zip(self._constants, constants, strict=True))
        kept: list[torch.Tensor] = []
        for position, array in self._folded(found):
            kept.append(device.upload(array))
            found[position] = Constant(kept[-1].data_ptr(), kept[-1])
        own = [device.upload(np.frombuffer(data, np.uint8)) for data in plan.data]
        slots = [found[position].address for position in plan.constants]
        slots += [tensor.data_ptr() for tensor in own]
        self._stats.packed_bytes = sum(tensor.numel() for tensor in kept)
        device.wait()  # calls on other streams may read it
        return Bound(constants, slots, own, kept, epoch)

    def _folded(self, constants: Mapping[int, Constant]) -> list[tuple[int, Array]]:
        """What the plan's folds compute from constants, on the host."""
        if not self.plan.folds:
            return []
        from luminal.plan.folding import folded_array

        host: dict[int, Constant] = {}

        def on_host(position: int) -> Constant:
            if position not in host:
                constant, type_ = constants[position], self.plan.inputs[position]
                size = type_.elements.evaluate({}) * type_.dtype.size_bytes
                array = self.device.download(self.device.view(constant.address, size))
                host[position] = Constant(array.ctypes.data, array)
            return host[position]

        folded: list[tuple[int, Array]] = []
        for position, fold in enumerate(self.plan.folds, self.plan.given):
            array = folded_array(fold, [on_host(source) for source in fold.sources])
            host[position] = Constant(array.ctypes.data, array)
            folded.append((position, array))
        return folded

    # ---- calls

    def run_pointers(self, inputs: Sequence[int], dims: Sequence[int], outputs: Sequence[int]) -> None:
        """Put a call in torch's stream; the memory is the caller's and the device's.

        `inputs` are the addresses of `call_inputs`, `dims` the values of `dim_names` and `outputs` the address of every
        output; that of an update is not looked at.  All memory is row-major.

        Raises NoDeviceError, DriverError, DimRangeError and ShapeError; IndexOutOfRangeError and DivisionByZeroError
        before anything is written that was there before the call, for which it waits for the stream.
        """
        device = self.device
        with device.active():
            bound, sized, stream = self._bindings.current(), self._sizes(tuple(dims)), device.stream()
            given, copied = self._aligned(inputs, sized)
            arena = self._lease(stream, sized.arena_bytes)
            try:
                varying = (*given, *outputs, 0 if arena is None else arena.data_ptr())
                for number, part in enumerate(sized.parts):
                    key = (number, bound.number, tuple(dims), varying)
                    self._run(part, key, [*varying, *bound.slots], sized, stream)
                self._give_back(copied, sized)
            finally:
                if arena is not None:
                    self._arenas[stream].append(arena)

    def _run(self, part: Part, key: Key, bases: Sequence[int], sized: SizedPlan, stream: int) -> None:
        device = self.device
        if part.library is not None:
            self._run_library(part.library, bases, sized)
            return

        def launch(where: int) -> None:
            for call in part.calls:
                device.launch(call.function, call.programs, call.arguments(bases), where)

        may_record = len(part.calls) > 1 and not device.is_recording()
        graph = self._graph(key) if may_record else None
        if graph is None and may_record and self._comes_again(key):
            graph = device.record(launch)
            self._keep_graph(key, graph)
        if graph is None:
            launch(stream)
        else:
            graph.replay(stream)
        if not part.flags:
            return
        if device.is_recording():
            raise DeviceError(
                "indices are checked while the call runs, so it cannot be recorded as a graph of torch's"
            )
        failed = device.read_bytes([place.address(bases) for place, _ in part.flags], stream)
        for flag, (_, step) in zip(failed, part.flags, strict=True):
            if flag:
                raise check_error(step)

    def _run_library(self, step: LibraryStep, bases: Sequence[int], sized: SizedPlan) -> None:
        def view(number: int) -> torch.Tensor:
            value = self.plan.values[number]
            address, size = sized.places(number).address(bases), value_bytes(value, sized.values)
            flat = self.device.view(address, size).view(value.dtype.torch)
            shape = [dim.evaluate(sized.values) for dim in value.shape]
            return flat.as_strided(shape, [dim.evaluate(sized.values) for dim in value.strides])

        try:
            operands, outputs = ([view(number) for number in side] for side in (step.arguments, step.outputs))
            run_library(step.op, dict(step.attributes), operands, outputs, sized.values)
        except LuminalError as error:
            raise type(error)(with_sources(str(error), step.sources)) from error

    def _sizes(self, dims: tuple[int, ...]) -> SizedPlan:
        """The launches for some sizes; those that are new are checked first."""
        with self._lock:
            found = self._sized.get(dims)
            if found is None:
                values = checked_sizes(self.plan, dims)
                found = self._sized[dims] = sized_plan(self.plan, self.codes, self._functions, values)
                note_arena(self._stats, found.arena_bytes)
            _keep_recent(self._sized, dims, MOST_SIZES)
            return found

    # ---- memory

    def _lease(self, stream: int, size: int) -> torch.Tensor | None:
        """An arena for one call on a stream: the smallest that waits and is large enough, or a new one."""
        if size == 0:
            return None
        with self._lock:
            waiting = self._arenas.setdefault(stream, [])
            fitting = [arena for arena in waiting if arena.numel() >= size]
            if fitting:
                arena = min(fitting, key=lambda each: each.numel())
                self._arenas[stream] = [each for each in waiting if each is not arena]
                return arena
            waiting.clear()  # a larger one takes their place
        return self.device.allocate(size_class(size))

    def _aligned(
        self, inputs: Sequence[int], sized: SizedPlan
    ) -> tuple[list[int], list[tuple[int, torch.Tensor, int]]]:
        """Addresses that kernels can take, and what was copied for that: its address, the copy, and its position."""
        found, copied = list(inputs), list[tuple[int, Any, int]]()
        for rank, address in enumerate(inputs):
            if address % ALIGNMENT:
                position = self.call_inputs[rank]
                type_ = self.plan.inputs[position]
                size = type_.elements.evaluate(sized.values) * type_.dtype.size_bytes
                copy = self.device.allocate(size)
                copy.copy_(self.device.view(address, size))
                found[rank] = copy.data_ptr()
                copied.append((address, copy, position))
        return found, copied

    def _give_back(self, copied: Sequence[tuple[int, torch.Tensor, int]], sized: SizedPlan) -> None:
        """Write updates of copied inputs where the caller wants them."""
        updated = {position for _, position in self.plan.updates}
        for address, copy, position in copied:
            if position in updated:
                self.device.view(address, copy.numel()).copy_(copy)

    # ---- recorded calls

    def _graph(self, key: Key) -> Recording | None:
        with self._lock:
            graph = self._graphs.get(key)
            if graph is not None:
                self._graphs.move_to_end(key)
            return graph

    def _comes_again(self, key: Key) -> bool:
        """Whether a call was seen before; it is remembered."""
        with self._lock:
            again = key in self._seen
            self._seen[key] = None
            _keep_recent(self._seen, key, MOST_SEEN)
            return again

    def _keep_graph(self, key: Key, graph: Recording) -> None:
        with self._lock:
            self._graphs[key] = graph
            _keep_recent(self._graphs, key, MOST_GRAPHS)

    # ---- arrays

    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]:
        """Run on arrays of the host, which are copied to the device and back; an update is written into its input's
        array.  Errors as `bind_inputs` and `run_pointers`."""
        values = sizes_of(self.input_types, self.dim_names, inputs, dims)
        device = self.device
        with device.active():
            tensors = [device.upload(np.ascontiguousarray(array)) for array in inputs]
            results = self.run_tensors(tensors, values)
            self.forget_constants()
            found = [
                device.download(result).view(type_.dtype.numpy).reshape(_shape(type_, values))
                for result, type_ in zip(results, self.plan.outputs, strict=True)
            ]
        for number, position in self.plan.updates:
            np.copyto(inputs[position], found[number])
        return found

    def run_tensors(self, inputs: Sequence[torch.Tensor], values: Mapping[str, int]) -> list[torch.Tensor]:
        """Run on bytes in the device's memory, one tensor for each of `input_types`; results are such bytes."""
        self.bind_constants({n: Constant(inputs[n].data_ptr(), inputs[n]) for n in self._constants})
        updated = dict(self.plan.updates)
        results = [
            inputs[updated[number]]
            if number in updated
            else self.device.allocate(type_.elements.evaluate(values) * type_.dtype.size_bytes)
            for number, type_ in enumerate(self.plan.outputs)
        ]
        with self.device.active():
            self.run_pointers(
                [inputs[position].data_ptr() for position in self.call_inputs],
                [values[name] for name in self.dim_names],
                [result.data_ptr() for result in results],
            )
        return results


def _shape(type_: TensorType, values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size.evaluate(values) for size in type_.shape)


def _keep_recent(entries: OrderedDict[Any, Any], key: object, most: int) -> None:
    """Note that an entry was used; those that were used longest ago go."""
    entries.move_to_end(key)
    while len(entries) > most:
        entries.popitem(last=False)
