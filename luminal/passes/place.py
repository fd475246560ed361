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

import functools
from collections.abc import Callable, Sequence
from typing import cast

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, SSAValue

from luminal.dialects.kernel.placed import ROUNDED, ApplyOp, ConstantOp, DimensionOp, IndexOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_loops import (
    UNBOUNDED,
    Bounds,
    ForOp,
    FunctionOp,
    ParallelOp,
    YieldOp,
)
from luminal.dialects.kernel.placed_types import Loop
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import ELEMENTWISE, Affine, Region, Term
from luminal.dim import Dim
from luminal.errors import ScheduleError
from luminal.passes.limits import bounds_of
from luminal.passes.needed import NOTHING_KNOWN, Needed
from luminal.passes.nest import OpenStage, PlacedFactor, Scope
from luminal.passes.placement_folds import FoldPlacement
from luminal.passes.placement_state import Values

DEEPEST = 64
"""Elementwise terms in a row that are computed by recursion."""


def place(
    region: Region, schedule: Schedule, name: str, licences: Sequence[str] = (), cost: int | None = None
) -> FunctionOp:
    """The placed function of a region under a schedule; `cost` is its nanoseconds for an iteration of its grid.

    Its references are the region's arguments, then its outputs.  Raises ScheduleError where the schedule is not legal
    for the region.
    """
    return _Placer(region, schedule).function(name, () if region.is_strict else licences, cost)


class _Placer(FoldPlacement):
    """Loops around values: the heart of the pass."""

    def function(self, name: str, licences: Sequence[str], cost: int | None) -> FunctionOp:
        computed = {target.output for stage in self.schedule.roots for target in stage.targets}
        missing = sorted(set(range(len(self.region.outputs))) - computed)
        if missing:
            raise ScheduleError(f"schedule {self.schedule}: no stage computes outputs {missing}")
        for stage in self.schedule.roots:
            self._emit_stage(self._open_stage(stage))
        self.body.add_op(YieldOp.of([]))
        symbols = {symbol.name: symbol for dim in self.region.dims() for symbol in dim.symbols()}
        return FunctionOp.build_function(
            name, [symbols[key] for key in sorted(symbols)], licences, self.body, cost
        )

    def _emit_stage(self, stage: OpenStage) -> None:
        """The nest that computes a stage's targets, in the current scope."""
        saved, self.stage = self.stage, stage
        outputs = [self._target_indices(target) for target in stage.stage.targets]
        shared = frozenset.intersection(*outputs)

        def write_all() -> None:
            targets = list(zip(stage.stage.targets, outputs, strict=True))
            stage.writing = frozenset(target for target, indices in targets if not self._unbound(indices))
            for target, indices in targets:
                if ("written", target, id(stage)) in self.path[-1].memo:
                    continue
                self.stage = stage
                self._nest(self._unbound(indices), functools.partial(self._write, target))
            self.stage, stage.writing = stage, frozenset()

        self._nest(self._unbound(shared), write_all)
        self.stage = saved

    def _nest(
        self,
        factors: Sequence[PlacedFactor],
        body: Callable[[], None],
        needed: Needed = NOTHING_KNOWN,
    ) -> None:
        """Open loops without carries, outermost first, around a body; they run over what is needed."""

        def no_carries(_: Values) -> Values:
            body()
            return []

        self._nest_carrying(factors, [], no_carries, needed)

    def _nest_carrying(
        self,
        factors: Sequence[PlacedFactor],
        inits: Values,
        body: Callable[[Values], Values],
        needed: Needed = NOTHING_KNOWN,
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
            inits = [self._identity(scan.scan.monoid, scan, 0) for scan in scans]
        loop, bounds = self._loop(factor), self._bounds(needed, factor)
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
            following = self._nest_carrying(inner, carried, body, needed)
        block.add_op(YieldOp.of(following))
        self.path = self.path[:-1]
        op = ForOp.of(loop, outer, inits, block, bounds)
        self.block.add_op(op)
        return [] if scans else list(op.carried)

    def _bounds(self, needed: Needed, factor: PlacedFactor) -> Bounds:
        """The bounds of a loop that is about to open; none where their guard differs within a tile."""
        guard = None if needed.guard is None else self._value(needed.guard)
        if guard is not None and tile_of(guard).axes:
            return UNBOUNDED
        return bounds_of(needed.conditions, guard, factor, self.path, self.region.extents)

    def _loop(self, factor: PlacedFactor) -> Loop:
        if factor.role == "partial":
            raise ScheduleError(f"loop {factor} is partial, but is not one of a reduction")
        outer = self._open_loops(factor.index)
        whole = self.region.whole(factor.index)[0]
        weight = self._weight(factor)
        extent = factor.extent
        assert self.stage is not None
        coarser = [self._weight(cast(PlacedFactor, scope.factor)) for scope in outer[-1:]]
        # another part of the index, of which several steps are tiles or lanes
        coarser += [
            self._weight(f)
            for f in self.stage.registers
            if f.index != factor.index
            and self.region.whole(f.index)[0] == whole
            and self._weight(f) >= weight
        ]
        if coarser:
            around = min(coarser)
            if extent is None and around % weight == 0:
                extent = around // weight
            if extent is None or extent * weight != around:
                raise ScheduleError(
                    f"loop {factor} does not cover one iteration of the loop around it ({around})"
                )
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
        return Loop(
            whole, weight, extent, self.region.extents[whole], ragged, weights, factor.role, factor.masked
        )

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

    def _value(self, term: Term) -> SSAValue:
        """The value of a term, computed where the last of its indices is bound."""
        depth = self._depth(term)
        memo = self.path[depth].memo
        key = self._key(term)
        if key not in memo:
            self.nested += 1
            if self.nested % DEEPEST == 0:
                self._value_operands(term)
            with self._at(depth):
                self._check_bound(term)
                value = self._compute(term)
            self.nested -= 1
            memo.setdefault(key, value)
        return cast(SSAValue, memo[key])

    def _value_operands(self, term: Term) -> None:
        """Compute what a chain of elementwise terms needs, operands first: Python's stack is shorter than a chain."""
        pending: list[Term] = []
        stack = [term]
        seen = {term}
        while stack:
            user = stack.pop()
            if user.op not in ELEMENTWISE or self._stored(user):
                continue
            pending.append(user)
            fresh = [
                o
                for o in user.operands
                if o not in seen and self._key(o) not in self.path[self._depth(o)].memo
            ]
            seen.update(fresh)
            stack += fresh
        for operand in sorted(pending[1:], key=lambda found: self.ranks[found]):
            self._value(operand)

    def _compute(self, term: Term) -> SSAValue:
        if self._stored(term):
            return self._read_kept(term)
        if term.op in ELEMENTWISE:
            summed = self._with_addend(term)
            if summed is not None:
                return summed
            operands = [self._value(operand) for operand in term.operands]
            variant = ROUNDED if term in self.compared else cast("str | None", term.attribute)
            return self._add(ApplyOp.of(term.op, variant, operands, term.dtype))
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
