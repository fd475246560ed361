"""A plan that runs: frames, native segments, library steps, constants bound, and errors with the user's lines."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.bind import bind_inputs
from luminal.dialects.tensor_type import TensorType
from luminal.errors import (
    CompileError,
    DataSizeError,
    DivisionByZeroError,
    IndexOutOfRangeError,
    LuminalError,
    ShapeError,
    UnsetDimError,
)
from luminal.options import thread_counter
from luminal.plan.bindings import Bindings, Bound
from luminal.plan.constants import Constant, Epoch, data_array, packed_array
from luminal.plan.frames import Frame
from luminal.plan.kernels import InterpretedKernel, Kernel, memory_view
from luminal.plan.library import View, run_library
from luminal.plan.native_entry import CHECK_FAILED, FrameLayout, segment_names, unpack_status
from luminal.plan.plan import KernelStep, LibraryStep, Plan, Storage
from luminal.plan.planned import Planned
from luminal.runtimes.memory import allocated
from luminal.stats import Stats, note_arena

Array = NDArray[Any]
_SEGMENT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_ARENA = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_CHECKS: dict[str, type[LuminalError]] = {"index": IndexOutOfRangeError, "division": DivisionByZeroError}
_NOTHING = np.empty(0, np.uint8)

REMEMBERED = 4096
"""Sizes whose arena is remembered, so that they need no checks again."""


class PlanExecutable(Planned):
    """A compiled graph. May be called from several threads at once; each running call has an arena of its own.

    `entry` gives the addresses of the functions that `native_entry.entry_text` writes, and `kernels` those of
    `plan.kernels`, by name. `pool` gives the handle of a thread pool for a number of threads.
    """

    def __init__(
        self,
        plan: Plan,
        entry: Mapping[str, int],
        kernels: Mapping[str, Kernel],
        pool: Callable[[int], int],
        stats: Stats,
        threads: Callable[[], int] | None = None,
        keep_alive: object = None,
    ) -> None:
        super().__init__(plan, stats)
        self.kernels, self._pool, self._threads = dict(kernels), pool, threads or thread_counter()
        self.layout = FrameLayout.of(plan)
        self._keep_alive = keep_alive
        self._table = (ctypes.c_int64 * max(1, len(plan.kernels)))(
            *(kernels[k].address for k in plan.kernels)
        )
        self._table_address = ctypes.addressof(self._table)
        self._arena_bytes = _ARENA(entry["arena_bytes"])
        self._segments = self._native_segments(entry)
        self._start = _SEGMENT(entry["start"])
        self._sizes: dict[tuple[tuple[int, ...], int], int] = {}
        self._views: dict[tuple[int, tuple[int, ...]], tuple[list[View], ...]] = {}
        """Of library steps, by step and sizes: operands and outputs."""
        self._frames: list[Frame] = []
        self._bindings = Bindings(self._constants, self._bind)
        self._bound = self._bindings.current
        if not self._constants:
            bound = self._bound()
            self._bound = lambda: bound

    def _native_segments(self, entry: Mapping[str, int]) -> list[tuple[Any, int]]:
        """What follows `start`: (function, -1) for native segments, (None, step) for library steps."""
        found: list[tuple[Any, int]] = []
        for name, (first, _) in zip(segment_names(self.plan), self.plan.segments, strict=True):
            if not self.plan.is_native(first):
                found.append((None, first))
            elif name != "start":
                found.append((_SEGMENT(entry[name]), -1))
        return found

    # ---- facts

    @property
    def packed(self) -> tuple[Array, ...]:
        """What is laid out anew of the constants that are bound."""
        return () if self._bindings.last is None else tuple(self._bindings.last.packed)

    # ---- constants

    def bind_constants(self, constants: Mapping[int, Constant]) -> None:
        """Take in the constant inputs, by position, and lay out those that kernels read packed.

        Their memory must stay where it is, and unchanged, until they are bound again.  They are for the calls of this
        thread, and of threads that have bound none.
        """
        self._bindings.bind(constants)

    def _bind(self, constants: tuple[Constant, ...]) -> Bound:
        plan = self.plan
        epoch = Epoch.current
        own = [data_array(data) for data in plan.data]
        by_position = dict(zip(self._constants, constants, strict=True))
        folded = self._fold(by_position)
        packed: list[Array] = []
        for packing in plan.packings:
            source, constant = self._source(packing.source, by_position, own)
            packed.append(packed_array(constant, source, packing))
        slots = [by_position[position].address for position in plan.constants]
        slots += [array.ctypes.data for array in (*own, *packed)]
        self._stats.packed_bytes = sum(array.nbytes for array in (*folded, *packed))
        return Bound(constants, slots, own, [*folded, *packed], epoch)

    def _fold(self, constants: dict[int, Constant]) -> list[Array]:
        """Compute the constants that are made of others, and put them beside those, by position."""
        if not self.plan.folds:
            return []
        # with the parser of IR, which a plan without folds needs not
        from luminal.plan.folding import folded_array

        folded: list[Array] = []
        for position, fold in enumerate(self.plan.folds, self.plan.given):
            folded.append(folded_array(fold, [constants[source] for source in fold.sources]))
            constants[position] = Constant(folded[-1].ctypes.data, folded[-1])
        return folded

    def _source(
        self, storage: Storage, constants: Mapping[int, Constant], own: Sequence[Array]
    ) -> tuple[Array, Constant]:
        """The flat memory of a constant, as unsigned numbers of its element's size."""
        if storage.kind == "data":
            array = own[storage.number]
            value = next(value for value in self.plan.values if value.storage == storage)
            return array.view(value.dtype.bit_carrier), Constant(array.ctypes.data, array)
        type_, constant = self.plan.inputs[storage.number], constants[storage.number]
        view = memory_view(constant.address, type_.elements.evaluate({}), type_.dtype)
        return view.view(type_.dtype.bit_carrier), constant

    # ---- calls

    def run_pointers(self, inputs: Sequence[int], dims: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on memory that the caller owns.

        `inputs` are the addresses of `call_inputs`, `dims` the values of `dim_names` and `outputs` the address of every
        output; that of an update is not looked at. All memory is row-major.

        Raises DimRangeError, ShapeError, IndexOutOfRangeError and DivisionByZeroError before anything is written that
        was there before the call.
        """
        call = (tuple(dims), self._threads(), self._bound())
        try:
            frame = self._frames.pop()  # in one step: another thread may take the last one
        except IndexError:
            frame = Frame(self.layout)
        try:
            if frame.filled_for != call:
                self._fill(frame, *call)
            if frame.leases:
                frame.take_arena(frame.leases)
            frame.write(frame.slots, 0, *inputs, *outputs)
            status = self._start(frame.address, self._table_address)
            if status:
                self._fail(status, call[0])
            for function, step in self._segments:
                if function is None:
                    self._run_library(step, frame, call[0])
                    continue
                status = function(frame.address, self._table_address)
                if status:
                    self._fail(status, call[0])
        finally:
            if frame.leases:
                frame.drop_arena()
            self._frames.append(frame)

    def _fill(self, frame: Frame, dims: tuple[int, ...], threads: int, bound: Bound) -> None:
        """Write what is the same in calls with these sizes, threads and constants. Errors as `checked_sizes`."""
        frame.filled_for = None
        size = self._sizes.get((dims, threads))
        if size is None:
            size = self._arena_for(frame, (dims, threads))
        first = self.layout
        frame.slots[first.dims : first.arena] = dims
        frame.slots[first.pool : first.threads + 1] = (self._pool(threads), threads)
        frame.slots[first.threads + 1 : first.threads + 1 + len(bound.slots)] = bound.slots
        frame.want_arena(size)
        frame.filled_for = (dims, threads, bound)

    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]:
        """Run on arrays; constants are bound anew where they are other arrays than before.

        An update is written into its input's array and is that array. Errors as `bind_inputs` and `run_pointers`.
        """
        return self.prepared(inputs, dims)()

    def prepared(
        self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None
    ) -> Callable[[], list[Array]]:
        """`run` on these arrays, as often as it is called: shapes and addresses are looked at once, and what is not
        row-major is copied once. Errors as `bind_inputs`."""
        values = sizes_of(self.input_types, self.dim_names, inputs, dims)
        arrays = [np.ascontiguousarray(array) for array in inputs]
        updated = dict(self.plan.updates)
        for number, position in updated.items():
            if not inputs[position].flags.writeable:
                raise DataSizeError(f"input {position} is updated by output {number}, but is read-only")
        new = [
            (number, tuple(size.evaluate(values) for size in type_.shape), type_.dtype.numpy)
            for number, type_ in enumerate(self.plan.outputs)
            if number not in updated
        ]
        addresses = [arrays[position].ctypes.data for position in self.call_inputs]
        sizes = tuple(values[name] for name in self.dim_names)

        def call() -> list[Array]:
            if self._constants:
                self._bind_arrays(arrays)
            outputs = [_NOTHING] * len(self.plan.outputs)
            places = [0] * len(outputs)
            for number, shape, dtype in new:
                outputs[number], places[number] = allocated(shape, dtype)
            self.run_pointers(addresses, sizes, places)
            for number, position in updated.items():
                outputs[number] = inputs[position]
                if arrays[position] is not inputs[position]:
                    np.copyto(inputs[position], arrays[position])
            return outputs

        return call

    def _bind_arrays(self, arrays: list[Array]) -> None:
        if not self._constants:
            return
        bound = self._bindings.in_use()
        given = [arrays[position] for position in self._constants]
        addresses = [array.ctypes.data for array in given]
        # what is bound is kept alive, so an equal address is the same memory
        if bound is not None and addresses == [constant.address for constant in bound.constants]:
            return
        found = zip(self._constants, addresses, given, strict=True)
        self.bind_constants({position: Constant(address, array) for position, address, array in found})

    def _arena_for(self, frame: Frame, key: tuple[tuple[int, ...], int]) -> int:
        """Bytes of the arena for sizes that are new: they are checked first."""
        dims, threads = key
        checked_sizes(self.plan, dims)
        slots = self.layout
        frame.slots[slots.dims : slots.dims + len(dims)] = list(dims)
        frame.slots[slots.threads] = threads
        size = self._arena_bytes(frame.address)
        if len(self._sizes) >= REMEMBERED:
            self._sizes.clear()
        self._sizes[key] = size
        note_arena(self._stats, size)
        return size

    def _run_library(self, number: int, frame: Frame, dims: tuple[int, ...]) -> None:
        step = self.plan.steps[number]
        assert isinstance(step, LibraryStep)
        values = dict(zip(self.dim_names, dims, strict=True))
        views = self._views.get((number, dims))
        if views is None:
            if len(self._views) >= REMEMBERED:
                self._views.clear()
            views = self._views[number, dims] = tuple(
                [self._view(value, values) for value in side] for side in (step.arguments, step.outputs)
            )
        operands, outputs = ([view.at(frame.slots[view.slot]) for view in side] for side in views)
        try:
            run_library(step.op, dict(step.attributes), operands, outputs, values)
        except LuminalError as error:
            raise type(error)(with_sources(str(error), step.sources)) from error

    def _view(self, value: int, values: Mapping[str, int]) -> View:
        fact = self.plan.values[value]
        return View(
            self.layout.exposed[value],
            fact.elements.evaluate(values) * fact.dtype.size_bytes,
            fact.dtype.torch,
            tuple(size.evaluate(values) for size in fact.shape),
            tuple(stride.evaluate(values) for stride in fact.strides),
        )

    def _fail(self, status: int, dims: tuple[int, ...]) -> None:
        """Raise what a nonzero status says."""
        number, code = unpack_status(status)
        step = self.plan.steps[number]
        assert isinstance(step, KernelStep)
        if code == CHECK_FAILED:
            raise check_error(step)
        kernel = self.kernels[step.kernel]
        if isinstance(kernel, InterpretedKernel) and kernel.error is not None:
            error, kernel.error = kernel.error, None
            raise error
        values = _dims_text(dict(zip(self.dim_names, dims, strict=True)))
        raise CompileError(
            with_sources(f"kernel {step.kernel} failed with status {code}, with {values}", step.sources)
        )


def checked_sizes(plan: Plan, dims: Sequence[int]) -> dict[str, int]:
    """The sizes of a call by name; UnsetDimError, DimRangeError, and ShapeError where they break a condition."""
    names = tuple(symbol.name for symbol in plan.symbols)
    if len(dims) != len(names):
        raise UnsetDimError(f"the graph has dims {names}; values given are {tuple(dims)}")
    for symbol, value in zip(plan.symbols, dims, strict=True):
        symbol.check(value)
    values = dict(zip(names, dims, strict=True))
    for condition in plan.conditions:
        excused = condition.unless is not None and condition.unless.evaluate(values) == 0
        if not excused and condition.least.evaluate(values) < 0:
            where = f" ({condition.source})" if condition.source else ""
            raise ShapeError(f"{condition.message}{where}, with {_dims_text(values)}")
    return values


def check_error(step: KernelStep) -> LuminalError:
    """What is raised where a check has failed."""
    return _CHECKS[step.check](with_sources(step.message, step.sources))


def sizes_of(
    types: Sequence[TensorType], names: Sequence[str], inputs: Sequence[Array], dims: Mapping[str, int] | None
) -> dict[str, int]:
    """The size of every symbol that is named, as given or as the inputs' shapes say. Errors as `bind_inputs`."""
    given = {name: size for name, size in (dims or {}).items() if name in names}
    values = bind_inputs(types, inputs, given)
    unset = [name for name in names if name not in values]
    if unset:
        raise UnsetDimError(f"dims {', '.join(unset)} have no value, and no input's shape says it")
    return values


def with_sources(message: str, sources: Sequence[str]) -> str:
    return f"{message} ({', '.join(sources)})" if sources else message


def _dims_text(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "no dims"
