"""What the placement pass knows while it works: open scopes, the stage at hand, which terms are kept where."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import cast

from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.kernel.placed_types import Reference, ReferenceType, TileAxis
from luminal.dialects.kernel.schedule import CarriedLoop, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Region, Term
from luminal.errors import ScheduleError
from luminal.passes.needed import NOTHING_KNOWN, Needed
from luminal.passes.nest import MemoryLoop, OpenStage, PlacedBuffer, PlacedFactor, Scope
from luminal.passes.packed_loads import PackedLoad, packed_loads

Values = list[SSAValue]
COMPARING = frozenset({"max", "min", "argmax", "argmin", "less_than"})
"""Elementwise operations and monoids that compare what they read."""


class PlacementState(ABC):
    """Scopes, stages and buffers of one placement."""

    def __init__(self, region: Region, schedule: Schedule) -> None:
        self.region = region
        self.schedule = schedule
        self.terms = region.terms()
        self.ranks = {term: rank for rank, term in enumerate(self.terms)}
        self.compared = _compared_products(self.terms)
        self.added = _added_sums(region, self.terms)
        packed = packed_loads(region, schedule)  # which must be legal
        self.body = Block(arg_types=[ReferenceType(kind) for kind in _references(region, packed)])
        self.path: list[Scope] = [Scope(None, None, self.body, function=True)]
        self.stage: OpenStage | None = None
        self.kept: dict[Term, PlacedBuffer] = {}
        self.memory_loops: dict[Term, MemoryLoop] = {}
        self.loop_carries: dict[tuple[int, int], PlacedBuffer] = {}
        self.allocations = 0
        self.nested = 0
        self.scopes_read: dict[int, dict[Term, frozenset[str | None]]] = {}
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
            if any(index not in term.free for index, _ in target.buffer.digits):
                raise ScheduleError(
                    f"buffer {target.buffer}: %{target.term} varies with {sorted(term.free)} alone"
                )
            buffer = self.kept.get(term)
            if buffer is None or buffer.stage is not None:
                buffer = self.kept[term] = PlacedBuffer(target.buffer, stage, term.dtype)
            buffer.stage = stage
            stage.destinations.append(buffer)

    def _memory_loop(self, loop: CarriedLoop) -> MemoryLoop:
        term = self.terms[loop.term]
        if term.op != "loop" or len(loop.buffers) != len(term.loop.carries):
            raise ScheduleError(f"{loop}: term %{loop.term} is no loop of {len(loop.buffers)} carries")
        inits = [self._open_stage(stage) for stage in loop.inits]
        for position, buffer in enumerate(loop.buffers):
            spans = term.loop.carries[position]
            placed = PlacedBuffer(buffer, None, term.operands[position].dtype, spans=spans)
            self.loop_carries[term.loop.identifier, position] = placed
            self.kept.setdefault(term.nexts[position], placed)
            inits[position].destinations.append(placed)
            inits[position].spans = spans
        body = [self._open_stage(stage, placed=True) for stage in loop.body]
        for stage in body:
            self._keep(stage)
        factors = self._open_stage(Stage((), loop.factors, loop.at))
        return MemoryLoop(loop, factors, inits, body)

    @property
    def block(self) -> Block:
        return self.path[-1].block

    @contextlib.contextmanager
    def _at(self, depth: int) -> Generator[None]:
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

    def _is_open(self, name: str | None) -> bool:
        """Whether the loop with a name is open; the kernel always is."""
        return name is None or any(
            scope.factor is not None and scope.factor.name == name for scope in self.path
        )

    def _function_depth(self) -> int:
        return max(depth for depth, scope in enumerate(self.path) if scope.function)

    def _depth(self, term: Term) -> int:
        """Where a term's value belongs: the innermost scope that binds an index of it or holds a buffer it reads."""
        depth = self._function_depth()
        for position, scope in enumerate(self.path):
            if scope.factor is not None and scope.factor.index in term.free:
                depth = max(depth, position)
        return max([depth, *(self._scope_depth(name) for name in self._buffer_scopes(term))])

    def _buffer_scopes(self, term: Term) -> frozenset[str | None]:
        """The scopes of the buffers that a term's value is read from or computed from."""
        known = self.scopes_read.setdefault(id(self.stage), {})
        stack = [term]
        while stack:
            found = stack[-1]
            own = self._own_scope(found)
            missing = [o for o in found.operands if o not in known] if own is None else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if own is None:
                own = frozenset[str | None]().union(*(known[operand] for operand in found.operands))
            known[found] = own
        return known[term]

    def _own_scope(self, term: Term) -> frozenset[str | None] | None:
        """The scope of the buffer that holds a term itself; None where it is computed."""
        if self._stored(term):
            buffer = self.kept[term]
            if buffer.stage is None:
                return frozenset({None})
            return frozenset({buffer.stage.at if self._is_open(buffer.stage.at) else buffer.buffer.at})
        if term.op == "project" and term.operands[0] in self.memory_loops:
            return frozenset({self.memory_loops[term.operands[0]].loop.at})
        return None

    def _stored(self, term: Term) -> bool:
        """Whether a term is read from its buffer; a stage of a loop's body fills one only once it has run."""
        buffer = self.kept.get(term)
        if buffer is None or self._is_target(term):
            return False
        return buffer.stage is None or not (buffer.stage.placed and buffer.stage.pending)

    def _open_loops(self, index: str) -> list[Scope]:
        """The open loops over an index or over parts of the same whole, outermost first."""
        whole = self.region.whole(index)[0]
        return [
            s for s in self.path if s.factor is not None and self.region.whole(s.factor.index)[0] == whole
        ]

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
        registers = [f for f in self.stage.registers if self.region.whole(f.index)[0] == whole]
        return size.constant != max((f.size * self._weight(f) for f in registers), default=1)

    def _open_stage(self, stage: Stage, placed: bool = False) -> OpenStage:
        for target in stage.targets:
            if target.term >= len(self.terms) or target.output >= len(self.region.outputs):
                raise ScheduleError(f"stage {stage}: the region has no such term or output")
        return OpenStage.of(stage, self.region, self.terms, placed)

    def _is_target(self, term: Term) -> bool:
        return self.stage is not None and term in self.stage.targets

    def _target_indices(self, target: Target) -> frozenset[str]:
        if target.output >= 0:
            return self.region.outputs[target.output].indices
        spans = self.stage.spans if self.stage is not None else None
        return self._target_term(target).free if spans is None else spans

    def _target_term(self, target: Target) -> Term:
        if target.output >= 0:
            return self.region.outputs[target.output].term
        return self.terms[target.term]

    def _target_terms(self, target: Target) -> tuple[Term, ...]:
        return (
            self.region.outputs[target.output].terms if target.output >= 0 else (self._target_term(target),)
        )

    def _unbound(self, indices: frozenset[str]) -> list[PlacedFactor]:
        """The stage's loops over some indices that are not open yet."""
        assert self.stage is not None
        open_factors = {id(scope.factor) for scope in self.path}
        return [f for f in self.stage.loops if f.index in indices and id(f) not in open_factors]

    def _axes(self, indices: frozenset[str]) -> tuple[TileAxis, ...]:
        assert self.stage is not None
        return tuple(f.axis for f in self.stage.registers if f.index in indices)

    def _key(self, term: Term) -> object:
        return (term, id(self.stage)) if self._axes(term.free) else (term,)

    def _check_bound(self, term: Term) -> None:
        """Every free index of a term is covered by open loops and by the stage's registers, exactly."""
        assert self.stage is not None
        for index in term.free:
            registers = 1
            for factor in self.stage.registers:
                registers *= factor.size if factor.index == index else 1
            loops = [
                scope.factor
                for scope in self.path
                if scope.factor is not None and scope.factor.index == index
            ]
            size = self.region.extents[index].constant
            covered = registers == loops[-1].weight if loops else size is not None and registers >= size
            if not covered:
                raise ScheduleError(f"{term}: index {index} is not covered where its value is needed")

    def _add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    # What the later parts of the pass define.

    @abstractmethod
    def _value(self, term: Term) -> SSAValue: ...

    @abstractmethod
    def _nest(
        self, factors: Sequence[PlacedFactor], body: Callable[[], None], needed: Needed = NOTHING_KNOWN
    ) -> None: ...

    @abstractmethod
    def _emit_stage(self, stage: OpenStage) -> None: ...

    @abstractmethod
    def _nest_carrying(
        self,
        factors: Sequence[PlacedFactor],
        inits: Values,
        body: Callable[[Values], Values],
        needed: Needed = NOTHING_KNOWN,
    ) -> Values: ...


def _compared_products(terms: Sequence[Term]) -> frozenset[Term]:
    """Products that a comparison or an extremum reads: one number in all uses, so that x - max(x) is at most 0."""

    def compares(user: Term) -> bool:
        if user.op == "reduce":
            return user.reduce.monoid in COMPARING
        return user.op in COMPARING or (user.op == "scan" and user.scan.monoid in COMPARING)

    return frozenset(
        x for user in terms if compares(user) for x in user.operands if x.op == "mul" and x.dtype.is_float
    )


def _added_sums(region: Region, terms: Sequence[Term]) -> dict[Term, Term]:
    """Sums of integers that are used once, in an addition to something else: each with the addition."""
    users: dict[Term, list[Term]] = {}
    for term in terms:
        for operand in term.operands:
            users.setdefault(operand, []).append(term)
    results = {term for output in region.outputs for term in output.terms}
    return {
        term: using[0]
        for term, using in users.items()
        if term.op == "reduce" and term.reduce.monoid == "sum" and term.dtype.is_integer
        if len(using) == 1 and using[0].op == "add" and term not in results
    }


def _references(region: Region, packed: Mapping[int, PackedLoad]) -> list[Reference]:
    """Arguments then outputs; an output that is an argument's memory shares its alias class.  What is packed has the
    elements of its layout, padding included."""
    layouts = {n: PlacedBuffer(each.buffer, None, each.load.dtype) for n, each in packed.items()}
    arguments = [
        Reference(a.dtype, layouts[n].elements(region) if n in layouts else a.elements, "argument", n)
        for n, a in enumerate(region.arguments)
    ]
    outputs = [
        Reference(o.dtype, o.elements, "output", o.alias if o.alias >= 0 else len(arguments) + n)
        for n, o in enumerate(region.outputs)
    ]
    return arguments + outputs
