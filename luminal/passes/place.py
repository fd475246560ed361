"""The placement pass: a region and its schedule become explicit loops over tiles.

This is the one lowering of the compiler, shared by all targets, and it knows no operator by name.  Its heart is

    value(term):
        depth = the innermost open loop over a free index of the term, or the scope of a buffer that it reads
        if the term is not known at that depth: emit its code into that depth's block

Each open loop owns a block, which joins its parent's block when the loop closes.  So code that is placed at depth d
precedes the deeper loops that are open: hoisting, sibling reductions that share a loop, packing and buffers that are
filled once all follow, and have no place in the schedule.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, SSAValue

from luminal.dialects.kernel.placed import (
    AccumulateOp,
    AllocateOp,
    ApplyOp,
    ConstantOp,
    ContractOp,
    DimensionOp,
    ForOp,
    FunctionOp,
    GuardOp,
    IndexOp,
    LoadOp,
    ParallelOp,
    ReduceOp,
    StoreOp,
    YieldOp,
    tile_of,
)
from luminal.dialects.kernel.placed_types import Address, Loop, Reference, ReferenceType, TileAxis
from luminal.dialects.kernel.schedule import CarriedLoop, Schedule, Stage, Target
from luminal.dialects.kernel.terms import ELEMENTWISE, Affine, Output, Region, ScanAttribute, Term, depends_on
from luminal.dim import Dim, as_dim
from luminal.dtype import bool_
from luminal.errors import ScheduleError
from luminal.dialects.kernel.monoids import identity_bits
from luminal.passes.nest import MemoryLoop, OpenStage, PlacedBuffer, PlacedFactor, Scope

Values = list[SSAValue]


def place(
    region: Region, schedule: Schedule, name: str, licences: Sequence[str] = (), cost: int | None = None
) -> FunctionOp:
    """The placed function of a region under a schedule; `cost` is its nanoseconds for an iteration of its grid.

    Its references are the region's arguments, then its outputs.  Raises ScheduleError where the schedule is not legal
    for the region.
    """
    return _Placer(region, schedule).function(name, licences, cost)


class _Placer:
    def __init__(self, region: Region, schedule: Schedule) -> None:
        self.region = region
        self.schedule = schedule
        self.terms = region.terms()
        self.ranks = {term: rank for rank, term in enumerate(self.terms)}
        self.body = Block(arg_types=[ReferenceType(kind) for kind in _references(region)])
        self.path: list[Scope] = [Scope(None, None, self.body, function=True)]
        self.stage: OpenStage | None = None
        self.kept: dict[Term, PlacedBuffer] = {}
        self.memory_loops: dict[Term, MemoryLoop] = {}
        self.loop_carries: dict[tuple[int, int], PlacedBuffer] = {}
        self.allocations = 0
        self.scopes_read: dict[tuple[Term, int], frozenset[str | None]] = {}
        for stage in schedule.kept:
            self._keep(self._open_stage(stage))
        for loop in schedule.loops:
            self.memory_loops[self.terms[loop.term]] = self._memory_loop(loop)

    def _keep(self, stage: OpenStage) -> None:
        """Give each target of a stage its buffer, which readers of the term use instead of computing it."""
        for target in stage.stage.targets:
            if target.buffer is None:
                raise ScheduleError(f"stage {stage.stage}: term %{target.term} has no buffer")
            term = self.terms[target.term]
            buffer = self.kept.get(term)
            if buffer is None or buffer.stage is not None:
                buffer = self.kept[term] = PlacedBuffer(target.buffer, stage, term.dtype)
            buffer.stage = stage
            stage.destinations.append(buffer)

    def _memory_loop(self, loop: CarriedLoop) -> MemoryLoop:
        term = self.terms[loop.term]
        if term.op != "loop" or len(loop.buffers) != len(term.loop.carries):
            raise ScheduleError(f"{loop}: term %{loop.term} is no loop of {len(loop.buffers)} carries")
        count = len(loop.buffers)
        inits = [self._open_stage(stage) for stage in loop.inits]
        for position, buffer in enumerate(loop.buffers):
            placed = PlacedBuffer(buffer, None, term.operands[position].dtype)
            self.loop_carries[term.loop.identifier, position] = placed
            self.kept.setdefault(term.operands[count + position], placed)
            inits[position].destinations.append(placed)
        body = [self._open_stage(stage, placed=True) for stage in loop.body]
        for stage in body:
            self._keep(stage)
        factors = self._open_stage(Stage((), loop.factors, loop.at))
        return MemoryLoop(loop, factors, inits, body)

    def function(self, name: str, licences: Sequence[str], cost: int | None) -> FunctionOp:
        for stage in self.schedule.roots:
            self._emit_stage(self._open_stage(stage))
        self.body.add_op(YieldOp.of([]))
        symbols = {symbol.name: symbol for dim in self.region.dims() for symbol in dim.symbols()}
        return FunctionOp.build_function(name, [symbols[key] for key in sorted(symbols)], licences, self.body, cost)

    # ---- scopes

    @property
    def block(self) -> Block:
        return self.path[-1].block

    @contextlib.contextmanager
    def _at(self, depth: int) -> Iterator[None]:
        """Emit into an outer scope: what is emitted there lands before the loops that are open inside it."""
        path, stage = self.path, self.stage
        self.path = path[: depth + 1]
        try:
            yield
        finally:
            self.path, self.stage = path, stage

    def _scope_depth(self, name: str | None) -> int:
        if name is None:
            return 0
        for depth, scope in enumerate(self.path):
            if scope.factor is not None and scope.factor.name == name:
                return depth
        raise ScheduleError(f"a buffer of loop {name!r} is used outside of that loop")

    def _function_depth(self) -> int:
        return max(depth for depth, scope in enumerate(self.path) if scope.function)

    def _depth(self, term: Term) -> int:
        """Where a term's value belongs: the innermost scope that binds one of its indices or holds a buffer it reads."""
        depth = self._function_depth()
        for position, scope in enumerate(self.path):
            if scope.factor is not None and scope.factor.index in term.free:
                depth = max(depth, position)
        return max([depth, *(self._scope_depth(name) for name in self._buffer_scopes(term))])

    def _buffer_scopes(self, term: Term) -> frozenset[str | None]:
        """The scopes of the buffers that a term's value is read from or computed from."""
        key = (term, id(self.stage))
        found = self.scopes_read.get(key)
        if found is not None:
            return found
        if self._stored(term):
            buffer = self.kept[term]
            result: frozenset[str | None] = frozenset({buffer.stage.at if buffer.stage else None})
        elif term.op == "project" and term.operands[0] in self.memory_loops:
            result = frozenset({self.memory_loops[term.operands[0]].loop.at})
        else:
            result = frozenset().union(*(self._buffer_scopes(operand) for operand in term.operands))
        self.scopes_read[key] = result
        return result

    def _open_loops(self, index: str) -> list[Scope]:
        """The open loops over an index or over parts of the same whole, outermost first."""
        whole = self.region.whole(index)[0]
        return [s for s in self.path if s.factor is not None and self.region.whole(s.factor.index)[0] == whole]

    def _weight(self, factor: PlacedFactor) -> int:
        return factor.weight * self.region.whole(factor.index)[1]

    def _is_ragged(self, index: str) -> bool:
        """Whether the loops and registers over an index may run beyond its size."""
        whole = self.region.whole(index)[0]
        size = self.region.extents[whole]
        open_loops = self._open_loops(index)
        if open_loops:
            outermost = cast(PlacedFactor, open_loops[0].factor)
            weight = self._weight(outermost)
            if outermost.extent is None:
                return (size % weight).constant != 0
            return size.constant != outermost.extent * weight
        assert self.stage is not None
        covered = 1
        for factor in self.stage.registers:
            if self.region.whole(factor.index)[0] == whole:
                covered *= factor.size
        return size.constant != covered

    # ---- stages and loops

    def _open_stage(self, stage: Stage, placed: bool = False) -> OpenStage:
        for target in stage.targets:
            if target.term >= len(self.terms) or target.output >= len(self.region.outputs):
                raise ScheduleError(f"stage {stage}: the region has no such term or output")
        return OpenStage.of(stage, self.region, self.terms, placed)

    def _is_target(self, term: Term) -> bool:
        return self.stage is not None and term in self.stage.targets

    def _emit_stage(self, stage: OpenStage) -> None:
        """The nest that computes a stage's targets, in the current scope."""
        saved, self.stage = self.stage, stage
        outputs = [self._target_indices(target) for target in stage.stage.targets]
        shared = frozenset.intersection(*outputs)

        def write_all() -> None:
            for target, indices in zip(stage.stage.targets, outputs, strict=True):
                if ("written", target, id(stage)) in self.path[-1].memo:
                    continue
                self.stage = stage
                self._nest(self._unbound(indices), functools.partial(self._write, target))
            self.stage = stage

        self._nest(self._unbound(shared), write_all)
        self.stage = saved

    def _target_indices(self, target: Target) -> frozenset[str]:
        if target.output >= 0:
            return self.region.outputs[target.output].indices
        return self._target_term(target).free

    def _target_term(self, target: Target) -> Term:
        if target.output >= 0:
            return self.region.outputs[target.output].term
        return self.terms[target.term]

    def _unbound(self, indices: frozenset[str]) -> list[PlacedFactor]:
        """The stage's loops over some indices that are not open yet."""
        assert self.stage is not None
        open_factors = {id(scope.factor) for scope in self.path}
        return [f for f in self.stage.loops if f.index in indices and id(f) not in open_factors]

    def _nest(self, factors: Sequence[PlacedFactor], body: Callable[[], None]) -> None:
        """Open loops without carries, outermost first, around a body."""

        def no_carries(_: Values) -> Values:
            body()
            return []

        self._nest_carrying(factors, [], no_carries)

    def _nest_carrying(
        self, factors: Sequence[PlacedFactor], inits: Values, body: Callable[[Values], Values]
    ) -> Values:
        """Open loops that carry values around a body, which maps the carries to their next values."""
        if not factors:
            return body(inits)
        if factors[0].role == "parallel":
            self._parallel(factors, body)
            return []
        factor, inner = factors[0], factors[1:]
        scans = self._scans_over(factor) if not inits else []
        if scans:
            inits = [self._identity(cast(ScanAttribute, scan.attribute).monoid, scan, 0) for scan in scans]
        loop = self._loop(factor)
        outer = [cast(SSAValue, scope.variable) for scope in self._open_loops(factor.index)]
        types: list[Attribute] = [IndexType(), *(value.type for value in inits)]
        block = Block(arg_types=types)
        scope = Scope(factor, block.args[0], block)
        self.path = [*self.path, scope]
        carried: Values = list(block.args[1:])
        if scans:
            scope.scans = dict(zip(scans, carried, strict=True))
            self._nest_carrying(inner, [], body)
            following = [self._value(scan) for scan in scans]
        else:
            following = self._nest_carrying(inner, carried, body)
        block.add_op(YieldOp.of(following))
        self.path = self.path[:-1]
        op = ForOp.of(loop, outer, inits, block)
        self.block.add_op(op)
        return [] if scans else list(op.carried)

    def _loop(self, factor: PlacedFactor) -> Loop:
        outer = self._open_loops(factor.index)
        whole = self.region.whole(factor.index)[0]
        weight = self._weight(factor)
        extent = factor.extent
        if outer:
            around = self._weight(cast(PlacedFactor, outer[-1].factor))
            if extent is None and around % weight == 0:
                extent = around // weight
            if extent is None or extent * weight != around:
                raise ScheduleError(f"loop {factor} does not cover one iteration of the loop around it ({around})")
        else:
            size = self.region.extents[whole]
            if extent is not None and (size.constant is None or extent * weight < size.constant):
                raise ScheduleError(f"loop {factor} does not cover its index of size {size}")
        weights = tuple(self._weight(cast(PlacedFactor, scope.factor)) for scope in outer)
        # Raggedness is judged with this loop open.
        probe = Scope(factor, None, self.block)
        self.path = [*self.path, probe]
        ragged = self._is_ragged(factor.index)
        self.path = self.path[:-1]
        return Loop(whole, weight, extent, self.region.extents[whole], ragged, weights, factor.role, factor.masked)

    def _parallel(self, factors: Sequence[PlacedFactor], body: Callable[[Values], Values]) -> None:
        if len(self.path) != 1:
            raise ScheduleError(f"parallel loop {factors[0]} is not outermost")
        count = 0
        while count < len(factors) and factors[count].role == "parallel":
            count += 1
        loops: list[Loop] = []
        block = Block(arg_types=[IndexType()] * count)
        for position, factor in enumerate(factors[:count]):
            if any(other.index == factor.index for other in factors[:position]):
                raise ScheduleError(f"index {factor.index} has two parallel loops")
            loops.append(self._loop(factor))
            self.path = [*self.path, Scope(factor, block.args[position], block, function=position == 0)]
        rest = factors[count:]
        if any(factor.role == "parallel" for factor in rest):
            raise ScheduleError("a parallel loop stands inside a sequential one")
        self._nest_carrying(rest, [], body)
        block.add_op(YieldOp.of([]))
        self.path = self.path[:-count]
        self.block.add_op(ParallelOp.of(loops, block))

    # ---- values

    def _axes(self, indices: frozenset[str]) -> tuple[TileAxis, ...]:
        assert self.stage is not None
        return tuple(f.axis for f in self.stage.registers if f.index in indices)

    def _key(self, term: Term) -> object:
        return (term, id(self.stage)) if self._axes(term.free) else (term,)

    def _value(self, term: Term) -> SSAValue:
        """The value of a term, computed where the last of its indices is bound."""
        depth = self._depth(term)
        memo = self.path[depth].memo
        key = self._key(term)
        if key not in memo:
            with self._at(depth):
                self._check_bound(term)
                value = self._compute(term)
            memo.setdefault(key, value)
        return cast(SSAValue, memo[key])

    def _check_bound(self, term: Term) -> None:
        """Every free index of a term is covered by open loops and by the stage's registers, exactly."""
        assert self.stage is not None
        for index in term.free:
            registers = 1
            for factor in self.stage.registers:
                registers *= factor.size if factor.index == index else 1
            loops = [scope.factor for scope in self.path if scope.factor is not None and scope.factor.index == index]
            size = self.region.extents[index].constant
            covered = registers == loops[-1].weight if loops else size is not None and registers >= size
            if not covered:
                raise ScheduleError(f"{term}: index {index} is not covered where its value is needed")

    def _add(self, op: ConstantOp | DimensionOp | IndexOp | GuardOp | LoadOp | ApplyOp | ContractOp) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def _compute(self, term: Term) -> SSAValue:
        if self._stored(term):
            return self._read_kept(term)
        if term.op in ELEMENTWISE:
            operands = [self._value(operand) for operand in term.operands]
            return self._add(ApplyOp.of(term.op, cast("str | None", term.attribute), operands, term.dtype))
        match term.op:
            case "constant":
                return self._add(ConstantOp.of(cast(int, term.attribute), term.dtype))
            case "dimension":
                return self._add(DimensionOp.of(cast(Dim, term.attribute)))
            case "index":
                affine = cast(Affine, term.attribute)
                variables, address = self._address(affine, self._axes(term.free))
                return self._add(IndexOp.of(variables, address, self._axes(term.free)))
            case "load":
                return self._load(term)
            case "reduce":
                return self._reduce(term)
            case "scan":
                return self._scan(term)
            case "carry":
                return self._carry(term)
            case "project":
                return self._project(term)
            case _:
                raise ScheduleError(f"term {term} has no value of its own")

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
            scopes = self._open_loops(whole)
            axes = tuple(
                TileAxis(f.axis.index, f.axis.extent, f.axis.weight, f.axis.lane)
                for f in self.stage.registers
                if self.region.whole(f.index)[0] == whole
            )
            depth = max([self._function_depth(), *(d for d, s in enumerate(self.path) if s in scopes)])
            key = ("guard", whole, axes)
            memo = self.path[depth].memo
            if key not in memo:
                weights = [self._weight(cast(PlacedFactor, scope.factor)) for scope in scopes]
                variables = [cast(SSAValue, scope.variable) for scope in scopes]
                with self._at(depth):
                    memo[key] = self._add(GuardOp.of(whole, variables, weights, self.region.extents[whole], axes))
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
        return self._add(LoadOp.of(self.body.args[attribute.argument], variables, address, axes, dynamic, mask))

    # ---- buffers

    def _read_kept(self, term: Term) -> SSAValue:
        buffer = self.kept[term]
        if buffer.buffer.home != "packed":
            self._ensure_filled(buffer)
        return self._read_buffer(buffer, term)

    def _ensure_filled(self, buffer: PlacedBuffer) -> None:
        stage = buffer.stage
        assert stage is not None
        depth = self._scope_depth(stage.at)
        if stage.placed or ("filled", id(stage)) in self.path[depth].memo:
            return
        self.path[depth].memo["filled", id(stage)] = True
        with self._at(depth):
            self._emit_stage(stage)

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

    def _buffer_address(self, buffer: PlacedBuffer, free: frozenset[str]) -> tuple[Values, Address, tuple[TileAxis, ...]]:
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
        exposed = [i for i in sorted(free) if i in buffer.indices and not self._holds_padding(buffer, i)]
        return self._guard(frozenset(exposed)) if exposed else None

    def _holds_padding(self, buffer: PlacedBuffer, index: str) -> bool:
        """Whether a buffer holds all that the loops and registers over an index may touch, edges included."""
        start = self._settle(buffer)
        around = [s.factor for s in self.path[: start + 1] if s.factor is not None and s.factor.index == index]
        grain = buffer.grain(index)
        if around:
            if grain is None and buffer.coverage(index) < around[-1].weight:
                raise ScheduleError(f"buffer {buffer.buffer}: too small for one iteration of {around[-1]}")
            return True
        inside = [s.factor for s in self.path[start + 1 :] if s.factor is not None and s.factor.index == index]
        step = inside[0].weight if inside else 1
        assert self.stage is not None
        for factor in self.stage.registers:
            step *= factor.size if factor.index == index and not inside else 1
        if grain is not None:
            return grain % step == 0
        size = self.region.extents[index].constant
        if size is None or buffer.coverage(index) < size:
            raise ScheduleError(f"buffer {buffer.buffer}: its digits of {index} do not cover size {self.region.extents[index]}")
        return -(-size // step) * step <= buffer.coverage(index)

    def _read_buffer(self, buffer: PlacedBuffer, term: Term) -> SSAValue:
        memory = self._memory(buffer, term)
        variables, address, axes = self._buffer_address(buffer, term.free)
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
        variables, address, axes = self._buffer_address(buffer, term.free)
        buffer.overwritten = True
        mask = self._edge(buffer, term.free)
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

    # ---- reductions

    def _identity(self, monoid: str, term: Term, operand: int) -> SSAValue:
        value = term.operands[operand]
        bound = {term.attribute.index} if isinstance(term.attribute, ScanAttribute) else set[str]()
        axes = self._axes(frozenset().union(*(part.free for part in term.operands)) - bound)
        return self._add(ConstantOp.of(identity_bits(monoid, value.dtype, operand), value.dtype, axes))

    def _reduce(self, term: Term) -> SSAValue:
        """All pending reductions over one set of indices at one depth, independent of each other, in one nest."""
        assert self.stage is not None
        indices = frozenset(term.reduce.indices)
        if any(scope.factor is not None and scope.factor.index in indices for scope in self.path):
            raise ScheduleError(f"reduction {term} stands inside a loop over its own index")
        stage = self.stage
        group = self._reduction_group(term, indices)
        riders = self._riders(group, indices)
        inits = [self._identity(r.reduce.monoid, r, n) for r in group for n in range(len(r.operands))]

        def body(carries: Values) -> Values:
            self.stage = stage
            following: Values = []
            rest = list(carries)
            for reduction in group:
                count = len(reduction.operands)
                following += self._accumulate(reduction, indices, rest[:count])
                rest = rest[count:]
            for target in riders:
                self._write(target)
            return following

        results = self._nest_carrying(self._unbound(indices), inits, body)
        self.stage = stage
        found: SSAValue | None = None
        for reduction in group:
            count = len(reduction.operands)
            value = self._drop_axes(reduction, indices, results[:count])
            results = results[count:]
            self.path[-1].memo[self._key(reduction)] = value
            found = value if reduction is term else found
        assert found is not None
        return found

    def _accumulate(self, reduction: Term, indices: frozenset[str], carries: Values) -> Values:
        element = reduction.operands[0]
        mask = self._guard(indices)
        if reduction.reduce.monoid == "sum" and element.op == "mul" and element.dtype.is_float and not self._stored(element):
            left, right = (self._value(operand) for operand in element.operands)
            return [self._add(ContractOp.of(carries[0], left, right, mask))]
        values = [self._value(operand) for operand in reduction.operands]
        op = AccumulateOp.of(reduction.reduce.monoid, carries, values, mask)
        self.block.add_op(op)
        return list(op.combined)

    def _stored(self, term: Term) -> bool:
        """Whether a term is read from its buffer; a stage of a loop's body fills one only once it has run."""
        buffer = self.kept.get(term)
        if buffer is None or self._is_target(term):
            return False
        return buffer.stage is None or not (buffer.stage.placed and buffer.stage.pending)

    def _drop_axes(self, reduction: Term, indices: frozenset[str], values: Values) -> SSAValue:
        dropped = frozenset(axis for axis in self._axes(indices))
        if not any(axis in dropped for value in values for axis in tile_of(value).axes):
            return values[-1]
        op = ReduceOp.of(reduction.reduce.monoid, values, dropped)
        self.block.add_op(op)
        return op.reduced[-1]

    def _reduction_group(self, term: Term, indices: frozenset[str]) -> list[Term]:
        depth = len(self.path) - 1
        group = [term]
        for other in self._pending_reductions():
            if other in group or frozenset(other.reduce.indices) != indices or self._depth(other) != depth:
                continue
            if self._unbound(other.free) or self._key(other) in self.path[depth].memo:
                continue
            if any(depends_on(other, member) or depends_on(member, other) for member in group):
                continue
            group.append(other)
        return group

    def _riders(self, group: list[Term], indices: frozenset[str]) -> list[Target]:
        """Targets that are written over the same loops and need none of the group's results."""
        assert self.stage is not None
        riders: list[Target] = []
        for target in self.stage.stage.targets:
            key = ("written", target, id(self.stage))
            if key in self.path[-1].memo or {f.index for f in self._unbound(self._target_indices(target))} != indices:
                continue
            if not indices <= self._target_indices(target):
                continue
            terms = self.region.outputs[target.output].terms if target.output >= 0 else (self._target_term(target),)
            if any(depends_on(t, member) for t in terms for member in group) or self._reduces(terms, indices):
                continue
            self.path[-1].memo[key] = True
            riders.append(target)
        return riders

    def _reduces(self, terms: Sequence[Term], indices: frozenset[str]) -> bool:
        """Whether terms hold an unknown reduction over indices whose loops are about to open."""
        return any(
            set(r.reduce.indices) & indices and self._key(r) not in self.path[-1].memo
            for r in self._pending_reductions()
            if any(depends_on(t, r) for t in terms)
        )

    def _pending_reductions(self) -> list[Term]:
        """Reductions that the open stage computes itself, in canonical order."""
        assert self.stage is not None
        stage = self.stage
        if stage.reductions is None:
            seen: set[Term] = set()
            roots = [t for target in stage.stage.targets for t in self._target_terms(target)]
            stack = list(roots)
            while stack:
                term = stack.pop()
                if term in seen or self._stored(term) or term in self.memory_loops:
                    continue
                seen.add(term)
                stack += term.operands
            found = [term for term in seen if term.op == "reduce"]
            stage.reductions = sorted(found, key=lambda term: self.ranks[term])
        return stage.reductions

    def _target_terms(self, target: Target) -> tuple[Term, ...]:
        return self.region.outputs[target.output].terms if target.output >= 0 else (self._target_term(target),)

    # ---- scans and carried loops

    def _scans_over(self, factor: PlacedFactor) -> list[Term]:
        """Scans along a loop's index that the open stage computes: their running values ride in its loops."""
        assert self.stage is not None
        if any(scope.scans for scope in self.path if scope.factor and scope.factor.index == factor.index):
            return []
        seen: set[Term] = set()
        stack = [t for target in self.stage.stage.targets for t in self._target_terms(target)]
        scans: list[Term] = []
        while stack:
            term = stack.pop()
            if term in seen or self._stored(term):
                continue
            seen.add(term)
            stack += term.operands
            if term.op == "scan" and cast(ScanAttribute, term.attribute).index == factor.index:
                scans.append(term)
        for scan in scans:
            others = self._unbound(scan.free - {factor.index})
            if others or any(f.index == factor.index for f in self.stage.registers):
                raise ScheduleError(f"{scan}: its index {factor.index} is the innermost loop and has no tile or lane")
        return sorted(scans, key=lambda term: self.ranks[term])

    def _scan(self, term: Term) -> SSAValue:
        attribute = cast(ScanAttribute, term.attribute)
        for scope in reversed(self.path):
            if term in scope.scans:
                value = self._value(term.operands[0])
                op = AccumulateOp.of(attribute.monoid, [scope.scans[term]], [value], self._guard(frozenset({attribute.index})))
                self.block.add_op(op)
                return op.combined[0]
        raise ScheduleError(f"{term}: its index {attribute.index} is not looped over in order")

    def _carry(self, term: Term) -> SSAValue:
        identifier = cast(tuple[int, int], term.attribute)
        buffer = self.loop_carries.get(identifier)
        if buffer is None:
            raise ScheduleError(f"{term} is used outside of its loop")
        if buffer.overwritten:
            raise ScheduleError(f"{term} is read after its next value has been written")
        return self._read_buffer(buffer, term)

    def _project(self, term: Term) -> SSAValue:
        body = term.operands[0]
        if body in self.memory_loops:
            self._emit_memory_loop(body)
            return self._read_buffer(self.loop_carries[body.loop.identifier, cast(int, term.attribute)], term)
        results = self._register_loop(body)
        for other in self.terms:
            if other.op == "project" and other.operands[0] is body:
                self.path[-1].memo[self._key(other)] = results[cast(int, other.attribute)]
        return results[cast(int, term.attribute)]

    def _register_loop(self, body: Term) -> Values:
        """A carried loop whose carries live in registers."""
        assert self.stage is not None
        attribute = body.loop
        count = len(attribute.carries)
        stage = self.stage
        if any(scope.factor is not None and scope.factor.index == attribute.index for scope in self.path):
            raise ScheduleError(f"{body} stands inside a loop over its own index")
        if any(factor.index == attribute.index for factor in stage.registers):
            raise ScheduleError(f"{body}: its index {attribute.index} has a tile or lane")
        carries = [t for t in self.ranks if t.op == "carry" and cast(tuple[int, int], t.attribute)[0] == attribute.identifier]
        inits = [self._spread(self._value(t), self._axes(free)) for t, free in zip(body.operands[:count], attribute.carries, strict=True)]

        def step(values: Values) -> Values:
            self.stage = stage
            for carry in carries:
                position = cast(tuple[int, int], carry.attribute)[1]
                self.path[-1].memo[self._key(carry)] = values[position]
            following = [self._value(t) for t in body.operands[count:]]
            mask = self._guard(frozenset({attribute.index}))
            spread = [self._spread(v, tile_of(old).axes) for v, old in zip(following, values, strict=True)]
            if mask is None:
                return spread
            return [
                self._add(ApplyOp.of("select", None, [mask, new, old], tile_of(old).dtype))
                for new, old in zip(spread, values, strict=True)
            ]

        results = self._nest_carrying(self._unbound(frozenset({attribute.index})), inits, step)
        self.stage = stage
        return results

    def _spread(self, value: SSAValue, axes: tuple[TileAxis, ...]) -> SSAValue:
        """A value over more tile axes: a carry's type holds all of its loop's axes."""
        tile = tile_of(value)
        if tile.axes == axes:
            return value
        true = self._add(ConstantOp.of(1, bool_, axes))
        return self._add(ApplyOp.of("select", None, [true, value, value], tile.dtype))

    def _emit_memory_loop(self, body: Term) -> None:
        """A carried loop whose carries live in buffers: each iteration runs its stages in order."""
        loop = self.memory_loops[body]
        depth = self._scope_depth(loop.loop.at)
        if ("filled", id(loop)) in self.path[depth].memo:
            return
        self.path[depth].memo["filled", id(loop)] = True
        with self._at(depth):
            for stage in loop.inits:
                self._emit_stage(stage)
                stage.destinations[0].overwritten = False
            self.stage = loop.factors
            self._nest(loop.factors.loops, functools.partial(self._emit_stages, loop.body))

    def _emit_stages(self, stages: Sequence[OpenStage]) -> None:
        for stage in stages:
            self._emit_stage(stage)
            stage.pending = False


def _references(region: Region) -> list[Reference]:
    """Arguments then outputs; an output that is an argument's memory shares its alias class."""
    arguments = [Reference(a.dtype, a.elements, "argument", n) for n, a in enumerate(region.arguments)]
    outputs = [
        Reference(o.dtype, o.elements, "output", o.alias if o.alias >= 0 else len(arguments) + n)
        for n, o in enumerate(region.outputs)
    ]
    return arguments + outputs
