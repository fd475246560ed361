"""How placed code reaches memory: addresses, guards of ragged edges, loads, buffers and stores."""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import ApplyOp, GuardOp, LoadOp, StoreOp
from luminal.dialects.kernel.placed_loops import AllocateOp
from luminal.dialects.kernel.placed_types import Address, TileAxis
from luminal.dialects.kernel.schedule import Target
from luminal.dialects.kernel.terms import Affine, Output, Term
from luminal.dim import Dim, as_dim
from luminal.dtype import bool_
from luminal.errors import ScheduleError
from luminal.passes.ahead import fetch_ahead
from luminal.passes.nest import OpenStage, PlacedBuffer, PlacedFactor
from luminal.passes.placement_state import PlacementState, Values


class MemoryPlacement(PlacementState):
    """Reads and writes of the stage at hand."""

    def _address(self, affine: Affine, axes: tuple[TileAxis, ...]) -> tuple[Values, Address]:
        """An affine expression as strides of the open loops' variables and of tile axes."""
        variables: Values = []
        strides: list[Dim] = []
        for scope in self.path:
            if scope.factor is None or scope.factor.index not in affine.indices:
                continue
            variables.append(cast(SSAValue, scope.variable))
            strides.append(affine.stride(scope.factor.index) * scope.factor.weight)
        axis_strides = tuple(affine.stride(axis.index) * axis.weight for axis in axes)
        return variables, Address(tuple(strides), axis_strides, affine.offset)

    def _guard(self, indices: frozenset[str], extra: SSAValue | None = None) -> SSAValue | None:
        """A predicate that holds where every ragged index among some lies below its size; None where all do."""
        assert self.stage is not None
        mask = extra
        for whole in sorted({self.region.whole(index)[0] for index in indices}):
            parts = frozenset(i for i in indices if self.region.whole(i)[0] == whole)
            if not self._is_ragged(next(iter(sorted(parts)))):
                continue
            scopes = [s for s in self._open_loops(whole) if s.factor is not None and s.factor.index in parts]
            registers = [f for f in self.stage.registers if f.index in parts]
            axes, steps = tuple(f.axis for f in registers), [self._weight(f) for f in registers]
            depth = max([self._function_depth(), *(d for d, s in enumerate(self.path) if s in scopes)])
            key = ("guard", parts, axes)
            memo = self.path[depth].memo
            if key not in memo:
                weights = [self._weight(cast(PlacedFactor, scope.factor)) for scope in scopes]
                variables = [cast(SSAValue, scope.variable) for scope in scopes]
                with self._at(depth):
                    memo[key] = self._add(
                        GuardOp.of(whole, variables, weights, self.region.extents[whole], axes, steps)
                    )
            guard = cast(SSAValue, memo[key])
            mask = guard if mask is None else self._add(ApplyOp.of("bits", "and", [mask, guard], bool_))
        return mask

    def _load(self, term: Term) -> SSAValue:
        attribute = term.load
        operands = [self._value(operand) for operand in term.operands]
        dynamic = operands[0] if attribute.dynamic else None
        mask = self._guard(term.free, operands[-1] if attribute.guarded else None)
        axes = self._axes(term.free)
        variables, address = self._address(attribute.address, axes)
        return self._add(
            LoadOp.of(self.body.args[attribute.argument], variables, address, axes, dynamic, mask)
        )

    def _read_kept(self, term: Term) -> SSAValue:
        buffer = self.kept[term]
        if buffer.buffer.home != "packed":
            self._ensure_filled(buffer)
        return self._read_buffer(buffer, term)

    def _ensure_filled(self, buffer: PlacedBuffer) -> None:
        """Fill a buffer where its stage stands; one that outlives the loop there is filled once that loop has run, as
        part of what it computes."""
        stage = buffer.stage
        assert stage is not None
        if not self._is_open(stage.at):
            around = self._around(stage)
            if around is not None:
                self._ensure_filled(around)
            if around is None or stage.pending:
                raise ScheduleError(f"a buffer of loop {stage.at!r} is used outside of that loop")
            return
        depth = self._scope_depth(stage.at)
        if stage.placed or ("filled", id(stage)) in self.path[depth].memo:
            return
        self.path[depth].memo["filled", id(stage)] = True
        with self._at(depth):
            self._emit_stage(stage)
            stage.pending = False

    def _around(self, stage: OpenStage) -> PlacedBuffer | None:
        """A buffer whose filling opens the loop in which a stage stands, once for every place of what that fills."""
        for buffer in self.kept.values():
            names = [] if buffer.stage is None else [loop.name for loop in buffer.stage.loops]
            if buffer.stage is None or stage.at not in names:
                continue
            loops = buffer.stage.loops[: names.index(stage.at) + 1]
            shared = frozenset.intersection(*(term.free for term in (*buffer.stage.targets, *stage.targets)))
            return buffer if shared.issuperset(loop.index for loop in loops) else None
        return None

    def _settle(self, buffer: PlacedBuffer) -> int:
        """The depth of a buffer's scope; notes how much of each index the loops around it leave."""
        if buffer.buffer.home == "packed":
            return 0
        depth = self._scope_depth(buffer.buffer.at)
        for scope in self.path[: depth + 1]:
            if scope.factor is not None and scope.factor.index in buffer.indices:
                buffer.blocks[scope.factor.index] = scope.factor.weight
        return depth

    def _memory(self, buffer: PlacedBuffer, term: Term) -> SSAValue:
        """The reference that a buffer's contents lie in, allocated at its scope on first use."""
        home = buffer.buffer.home
        if home == "packed":
            return self.body.args[term.load.argument]
        if home != "scratch":
            return self.body.args[len(self.region.arguments) + buffer.output_number()]
        depth = self._settle(buffer)
        memo = self.path[depth].memo
        key = ("memory", id(buffer))
        if key not in memo:
            self.allocations += 1
            op = AllocateOp.of(buffer.dtype, buffer.elements(self.region), self.allocations)
            with self._at(depth):
                self.block.add_op(op)
            memo[key] = op.reference
        return cast(SSAValue, memo[key])

    def _buffer_address(
        self, buffer: PlacedBuffer, free: frozenset[str]
    ) -> tuple[Values, Address, tuple[TileAxis, ...]]:
        """Strides of a buffer's digits for the loops open inside its scope and for the tile axes."""
        axes = self._axes(free)
        if buffer.buffer.home not in ("scratch", "packed"):
            output = self.region.outputs[buffer.output_number()]
            variables, address = self._address(output.address, axes)
            return variables, address, axes
        start = self._settle(buffer)
        variables: Values = []
        strides: list[Dim] = []
        for scope in self.path[start + 1 :]:
            if scope.factor is None:
                continue
            stride = buffer.stride(self.region, scope.factor.index, scope.factor.weight, scope.factor.extent)
            if stride.constant == 0:
                continue
            variables.append(cast(SSAValue, scope.variable))
            strides.append(stride)
        axis_strides = tuple(buffer.stride(self.region, a.index, a.weight, a.extent) for a in axes)
        return variables, Address(tuple(strides), axis_strides, as_dim(0)), axes

    def _edge(self, buffer: PlacedBuffer, free: frozenset[str]) -> SSAValue | None:
        """The guard that an access to a buffer needs: for indices whose padded range the buffer does not hold."""
        if buffer.buffer.home not in ("scratch", "packed"):
            return self._guard(free)
        self._check_digits(buffer, free)
        exposed = [i for i in sorted(free) if i in buffer.indices and not self._holds_padding(buffer, i)]
        return self._guard(frozenset(exposed)) if exposed else None

    def _check_digits(self, buffer: PlacedBuffer, free: frozenset[str]) -> None:
        """A digit holds every index of what is kept, unless the loops around the buffer leave one value of it."""
        around = {s.factor.index: s.factor for s in self.path[: self._settle(buffer) + 1] if s.factor}
        kept = free if buffer.spans is None else free & buffer.spans
        for index in sorted(kept - buffer.indices):
            is_one = (
                around[index].weight == 1 if index in around else self.region.extents[index].constant == 1
            )
            if not is_one:
                raise ScheduleError(
                    f"buffer {buffer.buffer}: no digit holds index {index} of what is kept there"
                )

    def _holds_padding(self, buffer: PlacedBuffer, index: str) -> bool:
        """Whether a buffer holds all that the loops and registers over an index may touch, edges included."""
        start = self._settle(buffer)
        around = [
            s.factor for s in self.path[: start + 1] if s.factor is not None and s.factor.index == index
        ]
        grain = buffer.grain(index)
        if around:
            if grain is None and buffer.coverage(index) < around[-1].weight:
                raise ScheduleError(f"buffer {buffer.buffer}: too small for one iteration of {around[-1]}")
            return True
        inside = [
            s.factor for s in self.path[start + 1 :] if s.factor is not None and s.factor.index == index
        ]
        step = inside[0].weight if inside else 1
        assert self.stage is not None
        for factor in self.stage.registers:
            step *= factor.size if factor.index == index and not inside else 1
        if grain is not None:
            return grain % step == 0
        size = self.region.extents[index].constant
        if size is None or buffer.coverage(index) < size:
            raise ScheduleError(
                f"buffer {buffer.buffer}: its digits of {index} do not cover size {self.region.extents[index]}"
            )
        return -(-size // step) * step <= buffer.coverage(index)

    def _read_buffer(self, buffer: PlacedBuffer, term: Term) -> SSAValue:
        memory = self._memory(buffer, term)
        variables, address, axes = self._buffer_address(buffer, term.free)
        if buffer.buffer.ahead:
            fetch_ahead(self.region, self.path, buffer, memory)
        return self._add(LoadOp.of(memory, variables, address, axes, None, self._edge(buffer, term.free)))

    def _write(self, target: Target) -> None:
        """Store a target's value for the tile at hand."""
        term = self._target_term(target)
        value = self._value(term)
        if target.output >= 0:
            self._store_output(target, self.region.outputs[target.output], value)
            return
        assert self.stage is not None
        buffer = self.stage.destinations[self.stage.stage.targets.index(target)]
        memory = self._memory(buffer, term)
        indices = self._target_indices(target)
        variables, address, axes = self._buffer_address(buffer, indices)
        buffer.overwritten = True
        mask = self._edge(buffer, indices)
        self.block.add_op(StoreOp.of(memory, value, variables, address, axes, None, mask))

    def _store_output(self, target: Target, output: Output, value: SSAValue) -> None:
        reference = self.body.args[len(self.region.arguments) + target.output]
        dynamic = self._value(output.dynamic) if output.dynamic is not None else None
        extra = self._value(output.guard) if output.guard is not None else None
        mask = self._guard(output.indices, extra)
        axes = self._axes(output.indices)
        variables, address = self._address(output.address, axes)
        self.block.add_op(
            StoreOp.of(
                reference, value, variables, address, axes, dynamic, mask, output.combine, target.nontemporal
            )
        )
