"""How often a placed kernel reads each argument, and the bytes that it moves, at given sizes.

Passes of an argument: elements that all loads of it read, over the elements that there are; a tile or a vector of one
element counts once.  Passes *from memory* leave out what is still in the cache, by this rule: a loop, or the body of
one, that touches no more bytes than the cache holds reads each of its elements from memory once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from luminal.dialects.kernel.placed import LoadOp, StoreOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import ForOp, FunctionOp, ParallelOp
from luminal.dialects.kernel.placed_types import Loop
from luminal.dialects.kernel.terms import Region, Term
from luminal.search.needed_trips import needed_trips

CACHE = 1 << 20
"""Bytes of the cache in which data of one kernel meet again: the second one of a core of today."""
OPERATIONS = frozenset(
    {"add", "mul", "recip", "mod", "max", "min", "exp2", "log2", "sin", "sqrt", "reduce", "scan"}
)
"""What counts as an operation on numbers."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Of one argument or output: how often its elements are read or written in all, how often in memory, and the bytes
    that this moves."""

    loops: float
    memory: float
    bytes: float


@dataclass(frozen=True, slots=True)
class _Access:
    """Elements of one reference that some code touches: different ones, in all, and from memory.  `varies`: the loop
    variables that the addresses depend on; None: all that are around."""

    distinct: float
    loops: float
    memory: float
    varies: frozenset[SSAValue] | None


_Accesses = dict[SSAValue, _Access]


def traffic(
    function: FunctionOp, region: Region, dims: Mapping[str, int], cache: int = CACHE
) -> list[Passes]:
    """The passes over each argument of a kernel, then over each output; of one that is both, once for each."""
    walk = _Walk(region, dims, cache)
    found = {kind: walk.block(function.body.block, kind) for kind in (LoadOp, StoreOp)}
    result: list[Passes] = []
    for number, argument in enumerate(function.body.block.args):
        reference = reference_of(argument)
        access = found[LoadOp if number < len(region.arguments) else StoreOp].get(argument)
        elements = max(1, reference.elements.evaluate(dims))
        size = reference.dtype.size_bytes
        if access is None:
            result.append(Passes(0.0, 0.0, 0.0))
        else:
            result.append(Passes(access.loops / elements, access.memory / elements, access.memory * size))
    return result


def operations(region: Region, dims: Mapping[str, int]) -> float:
    """Operations on numbers that a region asks for: each term once for every value of its indices, and a step of a
    reduction as one, whatever a schedule computes again."""
    total = 0.0
    for term in region.terms():
        if term.op in OPERATIONS:
            total += _volume(region, term, dims)
    return total


def _volume(region: Region, term: Term, dims: Mapping[str, int]) -> float:
    return math.prod((region.extents[i].evaluate(dims) for i in term.free.union(term.reduced)), start=1.0)


def grid_of(function: FunctionOp, region: Region, dims: Mapping[str, int]) -> float:
    """How many iterations the parallel loops of a kernel have, 1 without any."""
    walk = _Walk(region, dims, CACHE)
    total = 1.0
    for op in function.body.block.ops:
        if isinstance(op, ParallelOp):
            for loop in op.loops:
                total *= walk.steps(loop.data.index, loop.data.weight, loop.data.extent)
    return total


class _Walk:
    def __init__(self, region: Region, dims: Mapping[str, int], cache: int) -> None:
        self.sizes = {index: max(1, extent.evaluate(dims)) for index, extent in region.extents.items()}
        self.dims, self.cache = dims, cache

    def block(self, block: Block, kind: type[LoadOp | StoreOp]) -> _Accesses:
        """What the code of a block touches, by reference: its loads or its stores."""
        found: _Accesses = {}
        for op in block.ops:
            if isinstance(op, kind):
                _join(found, {op.reference: self.access(op)})
            elif isinstance(op, ForOp):
                inner = self.block(op.body.block, kind)
                _join(found, self.loop([op.loop.data], op.body.block.args[:1], inner, op))
            elif isinstance(op, ParallelOp):
                loops = [loop.data for loop in op.loops]
                _join(found, self.loop(loops, op.body.block.args, self.block(op.body.block, kind)))
        return self.cached(found)

    def access(self, op: LoadOp | StoreOp) -> _Access:
        elements = 1.0
        for axis in op.tile.axes:
            elements *= self.steps(axis.index, axis.weight, axis.extent)
        varies = None if op.dynamic is not None else frozenset(op.variables)
        distinct = 1.0
        for axis, stride in zip(op.tile.axes, op.address.data.axis_strides, strict=True):
            moves = op.dynamic is not None or stride.evaluate(self.dims) != 0
            distinct *= self.steps(axis.index, axis.weight, axis.extent) if moves else 1.0
        return _Access(distinct, elements, distinct, varies)

    def loop(
        self,
        loops: Iterable[Loop],
        variables: Iterable[SSAValue],
        body: _Accesses,
        op: ForOp | None = None,
    ) -> _Accesses:
        """What all iterations of some loops touch, the innermost last; `op`: their operation, which may have limits."""
        for loop, variable in reversed(list(zip(loops, variables, strict=True))):
            trips = self.steps(loop.index, loop.weight, loop.extent)
            trips = trips if op is None else needed_trips(op, trips, self.dims)
            fits = self.bytes(body) <= self.cache
            found: _Accesses = {}
            for reference, access in body.items():
                moves = access.varies is None or variable in access.varies
                again = trips if moves or not fits else 1.0
                most = float(max(1, reference_of(reference).elements.evaluate(self.dims)))
                distinct = min(most, access.distinct * (trips if moves else 1.0))
                found[reference] = _Access(
                    distinct, access.loops * trips, max(distinct, access.memory * again), access.varies
                )
            body = self.cached(found)
        return body

    def cached(self, accesses: _Accesses) -> _Accesses:
        """What fits the cache altogether is read from memory once."""
        if self.bytes(accesses) > self.cache:
            return accesses
        return {
            reference: _Access(access.distinct, access.loops, access.distinct, access.varies)
            for reference, access in accesses.items()
        }

    def bytes(self, accesses: _Accesses) -> float:
        return sum(
            access.distinct * reference_of(reference).dtype.size_bytes
            for reference, access in accesses.items()
        )

    def steps(self, index: str, weight: int, extent: int | None) -> float:
        """How often a loop or an axis of a tile steps, on the average over what is around it."""
        all_steps = -(-self.sizes[index] // weight)
        return all_steps if extent is None else all_steps / -(-self.sizes[index] // (weight * extent))


def _join(found: _Accesses, more: _Accesses) -> None:
    """Add what other code touches, which is taken to be the same elements."""
    for reference, access in more.items():
        known = found.get(reference)
        if known is None:
            found[reference] = access
            continue
        unknown = known.varies is None or access.varies is None
        found[reference] = _Access(
            max(known.distinct, access.distinct),
            known.loops + access.loops,
            known.memory + access.memory,
            None if unknown else frozenset[SSAValue]().union(known.varies or (), access.varies or ()),
        )
