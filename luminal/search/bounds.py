"""Whether a region may be run on some data at some sizes: what it reads and writes lies inside its memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.terms import Affine, Region, Term, postorder
from luminal.errors import DimRangeError
from luminal.search.reference import Arithmetic, Evaluator

Array = NDArray[Any]
MOST_ADDRESSES = 2_000_000
"""Computed addresses that are looked at."""


def addresses_are_valid(region: Region, arguments: Sequence[Array], dims: Mapping[str, int]) -> bool:
    """Whether all that is read and written at computed addresses lies inside its memory, for this data; False too
    where that is not to be told cheaply."""
    return address_room(region, arguments, dims) is not None


def address_room(region: Region, arguments: Sequence[Array], dims: Mapping[str, int]) -> int | None:
    """By how many elements computed addresses may grow before one lies outside its memory, at most MOST_ADDRESSES; None
    where one does, or where that is not to be told cheaply."""
    sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
    computed = [
        (
            t.load.address,
            t.operands[0],
            t.operands[-1] if t.load.guarded else None,
            arguments[t.load.argument].size,
        )
        for t in region.terms()
        if t.op == "load" and t.load.dynamic
    ]
    for output in region.outputs:
        if output.dynamic is not None:
            computed.append((output.address, output.dynamic, output.guard, output.elements.evaluate(dims)))
    if any(t.op in ("carry", "loop") for t in postorder(_parts(computed))):
        return None
    room, held = MOST_ADDRESSES, 0
    # one for all addresses: those of an unrolled recurrence have most of their terms in common
    evaluator = Evaluator(region, arguments, dims, sizes, {}, Arithmetic(wide=False))
    evaluator.env = {index: evaluator.along(index) for index in sizes}
    for address, dynamic, guard, elements in computed:
        free = address.indices.union(*(part.free for part in (dynamic, guard) if part is not None))
        count = math.prod(sizes[index] for index in free)
        if count > MOST_ADDRESSES:
            return None
        if held > MOST_ADDRESSES:
            evaluator.memo.clear()
            held = 0
        known = len(evaluator.memo)
        where = evaluator.address(address) + evaluator.value(dynamic)
        if guard is not None:
            inside, where = np.broadcast_arrays(evaluator.value(guard).astype(np.bool_), where)
            where = where[inside]
        held += count * (len(evaluator.memo) - known)
        if where.size and (where.min() < 0 or where.max() >= elements):
            return None
        if where.size:
            room = min(room, elements - 1 - int(where.max()))
    return room


def _parts(computed: Iterable[tuple[Affine, Term, Term | None, int]]) -> Iterator[Term]:
    """What addresses are computed of: what is added to them, and whether they are used at all."""
    for _, dynamic, guard, _ in computed:
        yield from (dynamic,) if guard is None else (dynamic, guard)


def fits(region: Region, dims: Mapping[str, int]) -> bool:
    """Whether all that is read and written at plain addresses lies inside its memory at these sizes, and whatever the
    region divides by is not zero there."""
    try:
        for value in region.dims():
            value.evaluate(dims)
        sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
        memory = [argument.elements.evaluate(dims) for argument in region.arguments]
        reached = [
            (term.load.address, term.free, memory[term.load.argument])
            for term in region.terms()
            if term.op == "load" and not term.load.dynamic and not term.load.guarded
        ]
        reached += [
            (output.address, output.indices, output.elements.evaluate(dims))
            for output in region.outputs
            if output.dynamic is None and output.guard is None
        ]
        if min((*sizes.values(), *memory), default=0) < 0:
            return False
        return all(_is_inside(address, free, sizes, dims, elements) for address, free, elements in reached)
    except DimRangeError:
        return False


def _is_inside(
    address: Affine, free: Iterable[str], sizes: Mapping[str, int], dims: Mapping[str, int], elements: int
) -> bool:
    if any(sizes[index] == 0 for index in free):
        return True
    low = high = address.offset.evaluate(dims)
    for index, stride in address.strides:
        reach = stride.evaluate(dims) * (sizes[index] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return low >= 0 and high < elements
