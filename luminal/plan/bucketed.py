"""Programs of one graph for different sizes behind one executable: each call runs the program that its sizes belong to.

Parameters and data of the graph are laid out once for all programs that want the same layout, and when a program first
needs them. A call leases an arena of the size that its own program needs from the pool that all share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Symbol
from luminal.dim.buckets import Box, box_text, holds
from luminal.errors import UnsetDimError
from luminal.plan.bindings import require_constants
from luminal.plan.constants import Constant
from luminal.plan.executable import REMEMBERED, PlanExecutable, sizes_of
from luminal.stats import Stats

Array = NDArray[Any]


@dataclass
class _Bindings:
    """Constants, the programs that have not yet taken them in, and those that have, by sizes that were checked."""

    constants: Mapping[int, Constant]
    unbound: set[PlanExecutable]
    ready: dict[tuple[int, ...], PlanExecutable] = field(
        default_factory=dict[tuple[int, ...], PlanExecutable]
    )


class BucketedExecutable:
    """A compiled graph of several programs; sizes belong to the first whose box holds them, and one holds each.

    `symbols` are the graph's with their whole ranges, `input_types` and `output_types` those of the graph. May be
    called from several threads at once, as `PlanExecutable` may.
    """

    def __init__(
        self,
        symbols: Sequence[Symbol],
        input_types: Sequence[TensorType],
        output_types: Sequence[TensorType],
        programs: Sequence[tuple[Box, PlanExecutable]],
        stats: Stats,
    ) -> None:
        self.symbols, self.programs, self._stats = tuple(symbols), tuple(programs), stats
        self.input_types, self.output_types = tuple(input_types), tuple(output_types)
        self.dim_names = tuple(symbol.name for symbol in symbols)
        first = programs[0][1]
        self.call_inputs, self.updates = first.call_inputs, first.updates
        self._positions = [position for position in first.plan.constants if position < first.plan.given]
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self._last = _Bindings({}, set())

    @property
    def stats(self) -> dict[str, Any]:
        return self._stats.as_dict()

    def program_of(self, dims: Sequence[int]) -> tuple[str, PlanExecutable]:
        """The name and the program of sizes, in the order of `dim_names`. UnsetDimError, DimRangeError."""
        if len(dims) != len(self.dim_names):
            raise UnsetDimError(f"the graph has dims {self.dim_names}; values given are {tuple(dims)}")
        sizes = {symbol.name: symbol.check(size) for symbol, size in zip(self.symbols, dims, strict=True)}
        return next((box_text(box), program) for box, program in self.programs if holds(box, sizes))

    def bind_constants(self, constants: Mapping[int, Constant]) -> None:
        """As `PlanExecutable.bind_constants`, for all programs; each lays them out when it is first called."""
        require_constants(self._positions, constants)
        self._of_thread.bound = self._last = _Bindings(constants, {program for _, program in self.programs})

    def run_pointers(self, inputs: Sequence[int], dims: Sequence[int], outputs: Sequence[int]) -> None:
        """As `PlanExecutable.run_pointers`."""
        bindings: _Bindings = getattr(self._of_thread, "bound", self._last)
        program = bindings.ready.get(tuple(dims))
        if program is None:
            program = self._prepare(tuple(dims), bindings)
        program.run_pointers(inputs, dims, outputs)

    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]:
        """As `PlanExecutable.run`."""
        return self.prepared(inputs, dims)()

    def prepared(
        self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None
    ) -> Callable[[], list[Array]]:
        """As `PlanExecutable.prepared`."""
        values = sizes_of(self.input_types, self.dim_names, inputs, dims)
        _, program = self.program_of([values[name] for name in self.dim_names])
        run = program.prepared(inputs, values)

        def call() -> list[Array]:
            results = run()
            self._note_packed()
            return results

        return call

    def _prepare(self, dims: tuple[int, ...], bindings: _Bindings) -> PlanExecutable:
        """The program of sizes that are new, bound."""
        _, program = self.program_of(dims)
        with self._lock:
            if program in bindings.unbound:
                program.bind_constants(bindings.constants)
                bindings.unbound.discard(program)
                self._note_packed()
            if len(bindings.ready) >= REMEMBERED:
                bindings.ready.clear()
            bindings.ready[dims] = program
        return program

    def _note_packed(self) -> None:
        """Count what programs share once."""
        packed = {id(array): array.nbytes for _, program in self.programs for array in program.packed}
        self._stats.packed_bytes = sum(packed.values())
