"""How folds are placed.

Reductions share a nest, scans ride in loops, carried loops live in registers or memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.kernel.monoids import identity_bits
from luminal.dialects.kernel.placed import AccumulateOp, ApplyOp, ConstantOp, ContractOp, ReduceOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dialects.kernel.schedule import Target
from luminal.dialects.kernel.terms import Term, depends_on, widened
from luminal.dtype import bool_
from luminal.errors import ScheduleError
from luminal.passes.needed import NOTHING_KNOWN, Needed, needed_by_loop, needed_by_reduction
from luminal.passes.nest import OpenStage, PlacedFactor
from luminal.passes.placement_memory import MemoryPlacement
from luminal.passes.placement_state import Values

SHORT = 64
"""Reductions over fewer values, as of a window, run over all of them: their loops are better of known length."""
FOLDS = frozenset({"reduce", "scan", "carry", "loop", "project"})
"""Kinds of terms that are not elementwise, nor read from memory."""


class FoldPlacement(MemoryPlacement):
    """Reductions, scans and carried loops of the stage at hand."""

    def _identity(self, monoid: str, term: Term, operand: int) -> SSAValue:
        """What a fold starts from, where nothing is known that is added to it."""
        value = term.operands[operand]
        bits = identity_bits(monoid, value.dtype, operand)
        return self._add(ConstantOp.of(bits, value.dtype, self._folded_axes(term)))

    def _folded_axes(self, term: Term) -> tuple[TileAxis, ...]:
        """A partial result for each coordinate of the registers, those of reduced indices too, on which the operands
        need not depend; but not for those of a block, which are combined at once."""
        free = frozenset().union(*(part.free for part in term.operands))
        bound = frozenset[str]() if term.op == "scan" else frozenset(term.reduce.indices)
        axes = self._axes(free - {term.scan.index} if term.op == "scan" else free | bound)
        blocks = self._blocks(bound)
        return tuple(axis for axis in axes if axis not in blocks)

    def _addend(self, reduction: Term) -> Term | None:
        """What a sum of integers in groups starts from instead of 0: what its only user adds to it, where that is known
        before its loops."""
        indices = frozenset(reduction.reduce.indices)
        user = self.added.get(reduction)
        if user is None or self._stored(reduction) or not self._has_group(indices):
            return None
        other = next(operand for operand in user.operands if operand is not reduction)
        is_whole = not any(axis.index in indices for axis in self._folded_axes(reduction))
        is_known = other.free <= reduction.free and not self._folds([other])
        return other if is_whole and is_known and not self._is_target(reduction) else None

    def _with_addend(self, term: Term) -> SSAValue | None:
        """The value of an addition to a sum that starts from the other operand; None for other terms."""
        for operand in term.operands if term.op == "add" else ():
            if self.added.get(operand) is term and self._addend(operand) is not None:
                return self._value(operand)
        return None

    def _blocks(self, indices: frozenset[str]) -> frozenset[TileAxis]:
        """The axes of reduced indices that are blocks."""
        assert self.stage is not None
        return frozenset(
            f.axis for f in self.stage.registers if f.role in ("block", "group") and f.index in indices
        )

    def _factors(self, product: Term, indices: frozenset[str]) -> tuple[Term, Term]:
        """The factors of a product that is summed; those of a group as narrow as they are before they are widened."""
        left, right = product.operands
        narrow = widened(left), widened(right)
        if not self._has_group(indices) or narrow[0] is None or narrow[1] is None:
            return left, right
        return narrow[0], narrow[1]

    def _has_group(self, indices: frozenset[str]) -> bool:
        return any(axis.group for axis in self._blocks(indices))

    def _reduce(self, term: Term) -> SSAValue:
        """All pending reductions over one set of indices at one depth, independent of each other, in one nest."""
        assert self.stage is not None
        indices = frozenset(term.reduce.indices)
        if any(scope.factor is not None and scope.factor.index in indices for scope in self.path):
            raise ScheduleError(f"reduction {term} stands inside a loop over its own index")
        stage = self.stage
        group = self._reduction_group(term, indices)
        riders = self._riders(group, indices)
        is_short = all((self.region.extents[index].constant or SHORT) < SHORT for index in indices)
        needed = NOTHING_KNOWN if riders or is_short else _needed_by_all(group)

        addends = {reduction: self._addend(reduction) for reduction in group}

        def identities() -> Values:
            return [self._identity(r.reduce.monoid, r, n) for r in group for n in range(len(r.operands))]

        def starts() -> Values:
            found: Values = []
            for reduction, addend in addends.items():
                if addend is not None:
                    found.append(self._spread(self._value(addend), self._folded_axes(reduction)))
                    continue
                monoid, count = reduction.reduce.monoid, len(reduction.operands)
                found += [self._identity(monoid, reduction, n) for n in range(count)]
            return found

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

        def fold(factors: Sequence[PlacedFactor], inits: Values) -> Values:
            first = next((n for n, factor in enumerate(factors) if factor.role == "partial"), None)
            if first is None:
                return self._nest_carrying(factors, inits, body, needed)
            inner = [replace(factors[first], role="loop"), *factors[first + 1 :]]
            return self._nest_carrying(
                factors[:first],
                inits,
                lambda carries: self._combine(group, carries, fold(inner, identities())),
                needed,
            )

        results = fold(self._unbound(indices), starts())
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

    def _combine(self, group: Sequence[Term], carries: Values, partials: Values) -> Values:
        """What the loops around carry, and what one iteration of theirs has folded."""
        combined: Values = []
        for reduction in group:
            span = slice(len(combined), len(combined) + len(reduction.operands))
            op = AccumulateOp.of(reduction.reduce.monoid, carries[span], partials[span], None)
            self.block.add_op(op)
            combined += op.combined
        return combined

    def _accumulate(self, reduction: Term, indices: frozenset[str], carries: Values) -> Values:
        element = reduction.operands[0]
        wholes = {self.region.whole(index)[0] for index in indices}
        parts = frozenset(
            i for i in element.free if i in self.region.parents and self.region.whole(i)[0] in wholes
        )
        mask = self._guard(indices | parts)
        if (
            reduction.reduce.monoid == "sum"
            and element.op == "mul"
            and (element.dtype.is_float or self._has_group(indices))
            and not self._stored(element)
        ):
            factors = self._factors(element, indices)
            left, right = (self._value(factor) for factor in factors)
            known = {
                axis for value in (left, right, mask) if value is not None for axis in tile_of(value).axes
            }
            if not self._blocks(indices) <= known:
                left = self._spread(left, self._axes(factors[0].free | indices))
            return [self._add(ContractOp.of(carries[0], left, right, mask))]
        values = [self._value(operand) for operand in reduction.operands]
        if self._blocks(indices):
            values, mask = self._reduce_blocks(reduction, indices, values, mask), None
        op = AccumulateOp.of(reduction.reduce.monoid, carries, values, mask)
        self.block.add_op(op)
        return list(op.combined)

    def _reduce_blocks(
        self, reduction: Term, indices: frozenset[str], values: Values, mask: SSAValue | None
    ) -> Values:
        """The values of a reduction combined over its blocks; what is masked off counts as nothing."""
        monoid = reduction.reduce.monoid
        axes = self._axes(indices.union(*(operand.free for operand in reduction.operands)))
        whole: Values = []
        for position, value in enumerate(values):
            dtype = tile_of(value).dtype
            if mask is not None:
                nothing = self._add(ConstantOp.of(identity_bits(monoid, dtype, position), dtype))
                value = self._add(ApplyOp.of("select", None, [mask, value, nothing], dtype))
            whole.append(self._spread(value, axes))
        op = ReduceOp.of(monoid, whole, self._blocks(indices))
        self.block.add_op(op)
        return list(op.reduced)

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
            if target in self.stage.writing:
                continue
            key = ("written", target, id(self.stage))
            unbound = frozenset(factor.index for factor in self._unbound(self._target_indices(target)))
            if key in self.path[-1].memo or unbound != indices:
                continue
            if not indices <= self._target_indices(target):
                continue
            terms = self._target_terms(target)
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
            roots = [t for target in stage.stage.targets for t in self._target_terms(target)]
            found = [term for term in self._folds(roots) if term.op == "reduce"]
            stage.reductions = sorted(found, key=lambda term: self.ranks[term])
        return stage.reductions

    def _folds(self, roots: Sequence[Term]) -> list[Term]:
        """The folds that the open stage computes itself for some terms, in no order."""
        seen: set[Term] = set()
        stack = list(roots)
        while stack:
            term = stack.pop()
            if term in seen or self._stored(term) or term in self.memory_loops:
                continue
            seen.add(term)
            stack += term.operands
        return [term for term in seen if term.op in FOLDS]

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
            if term.op == "scan" and term.scan.index == factor.index:
                scans.append(term)
        for scan in scans:
            if any(scope.factor is not None and scope.factor.index == factor.index for scope in self.path):
                raise ScheduleError(f"{scan} stands inside a loop over its own index")
            others = self._unbound(scan.free - {factor.index})
            if others or any(f.index == factor.index for f in self.stage.registers):
                raise ScheduleError(
                    f"{scan}: its index {factor.index} is the innermost loop and has no tile or lane"
                )
        return sorted(scans, key=lambda term: self.ranks[term])

    def _scan(self, term: Term) -> SSAValue:
        attribute = term.scan
        for scope in reversed(self.path):
            if term in scope.scans:
                value = self._value(term.operands[0])
                op = AccumulateOp.of(
                    attribute.monoid, [scope.scans[term]], [value], self._guard(frozenset({attribute.index}))
                )
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
        stage = self.stage
        if any(scope.factor is not None and scope.factor.index == attribute.index for scope in self.path):
            raise ScheduleError(f"{body} stands inside a loop over its own index")
        if any(factor.index == attribute.index for factor in stage.registers):
            raise ScheduleError(f"{body}: its index {attribute.index} has a tile, block or lane")
        carries = [
            t
            for t in self.ranks
            if t.op == "carry" and cast(tuple[int, int], t.attribute)[0] == attribute.identifier
        ]
        inits = [
            self._spread(self._value(t), self._axes(free))
            for t, free in zip(body.inits, attribute.carries, strict=True)
        ]

        def step(values: Values) -> Values:
            self.stage = stage
            for carry in carries:
                position = cast(tuple[int, int], carry.attribute)[1]
                self.path[-1].memo[self._key(carry)] = values[position]
            following = [self._value(t) for t in body.nexts]
            mask = self._guard(frozenset({attribute.index}))
            spread = [self._spread(v, tile_of(old).axes) for v, old in zip(following, values, strict=True)]
            if mask is None:
                return spread
            return [
                self._add(ApplyOp.of("select", None, [mask, new, old], tile_of(old).dtype))
                for new, old in zip(spread, values, strict=True)
            ]

        factors, needed = self._unbound(frozenset({attribute.index})), self._needed_by_loop(body)
        results = self._nest_carrying(factors, inits, step, needed)
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
            steps = functools.partial(self._emit_stages, loop.body)
            self._nest(loop.factors.loops, steps, self._needed_by_loop(body))

    def _needed_by_loop(self, body: Term) -> Needed:
        """What a carried loop needs, as far as no stage of its body is of use outside of it."""
        return needed_by_loop(self.region.table, body)

    def _emit_stages(self, stages: Sequence[OpenStage]) -> None:
        for stage in stages:
            self._emit_stage(stage)
            stage.pending = False


def _needed_by_all(group: Sequence[Term]) -> Needed:
    """What reductions that share a loop need together."""
    first, *others = (needed_by_reduction(reduction).conditions for reduction in group)
    return Needed(tuple(each for each in first if all(each in other for other in others)))
