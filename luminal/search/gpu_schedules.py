"""Schedules of a region for a GPU, from index sets and sizes alone: which indices are the grid, which are blocks.

Of each index a program has one step (the grid has the rest), a block of a power of two, a loop, or a loop over blocks.
What every output has and nothing reduces may be grid; what is reduced, or both, stays in the program; a carried loop's
index is a loop.  The blocks of sums of products are tiles for the matrix units, those of other regions whole rows or
pieces of what lies together in memory.  Nothing here knows what is computed: a GPU's roofline orders
(`gpu_candidates.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Region, Term, postorder
from luminal.search.generate import Generator, reads_of
from luminal.search.machine import Machine
from luminal.search.shapes import (
    Contraction,
    Shapes,
    find_contraction,
    looped_indices,
    reduced_indices,
    scanned_indices,
)

TILES = (
    (128, 256, 64), (128, 128, 64), (128, 128, 128), (128, 128, 32), (128, 64, 64), (64, 128, 64),
    (64, 64, 64), (64, 64, 32), (32, 128, 64), (32, 64, 64), (32, 32, 64), (16, 128, 128),
    (16, 64, 64), (16, 32, 128), (16, 16, 64),
)  # fmt: skip
"""Rows, columns and summed indices of a product of blocks."""
LEAST = 16
"""The least extent of a side that the matrix units take: smaller sides are padded, down to PADDED."""
PADDED = 4
VECTOR_TILES = ((1, 16, 256), (1, 32, 128), (1, 64, 64), (1, 8, 512), (4, 32, 64), (1, 4, 1024))
"""The same where a side is too short for the matrix units."""
ROW_BLOCKS = (1, 2, 4, 8, 16)
ROW_ELEMENTS = (1024, 4096)
"""Elements of a program that goes over rows, and the most of a row that is one block."""
LONGEST_ROW = 8192
FLAT = (256, 512, 1024, 2048)
"""Elements of a program without reductions."""
SQUARES = (16, 32, 64)
"""Sides of a block whose reads and writes run along two indices."""
OPTIONS = ((2, 1), (4, 1), (8, 1), (4, 2), (4, 3), (8, 2), (8, 3), (4, 4))
"""Warps of a program and stages of its loops."""
MOST_BLOCK = 1 << 17
"""Elements of a program's blocks together, but for summed ones: more do not fit any registers."""


def power_above(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Split:
    """How an index is split in a program: over the grid or in a loop, or neither, around a block; 1: no block."""

    around: str
    block: int = 1

    def factors(self, index: str) -> tuple[list[Factor], list[Factor]]:
        """The factor outside, and that of the block."""
        outside = [Factor(index, None, self.around)] if self.around else []
        return outside, [Factor(index, self.block, "block")] if self.block > 1 else []


Splits = dict[str, Split]


@dataclass
class _Group:
    """Outputs over the same indices, which one nest computes; or terms that are kept for another launch.

    `free`: its own indices, outermost first; `sums`: those reduced alone; `both`: free ones that are reduced too;
    `common`: those that all of its targets have.
    """

    shapes: Shapes
    roots: tuple[Term, ...]
    free: list[str]
    stops: frozenset[Term]
    targets: tuple[Target, ...]
    sums: list[str] = field(init=False)
    both: list[str] = field(init=False)
    common: frozenset[str] = field(init=False)
    carried: set[str] = field(init=False)
    product: Contraction | None = field(init=False)

    def __post_init__(self) -> None:
        reduced = reduced_indices(self.roots, self.stops)
        self.carried = looped_indices(self.roots, self.stops) | {*scanned_indices(self.roots, self.stops)}
        self.both = [index for index in self.free if index in reduced or index in self.carried]
        self.sums = [index for index in reduced if index not in self.free]
        is_kept = self.targets[0].output < 0
        self.common = (
            frozenset.intersection(*(r.free for r in self.roots)) if is_kept else frozenset(self.free)
        )
        product = find_contraction(self.roots, self.free, frozenset([*self.sums]), self.stops)
        self.product = product if product is not None and product.reduction.dtype.is_float else None

    @property
    def grid(self) -> list[str]:
        return [index for index in self.free if index not in self.both and index in self.common]

    def size(self, index: str) -> int:
        return self.shapes.sizes[index]

    def whole(self, index: str) -> Split:
        """All of an index that stays in the program: one block where its size is known and small, else a loop."""
        if index in self.carried:
            return Split("loop")
        block = power_above(self.size(index))
        if self.shapes.is_static(index) and block <= LONGEST_ROW:
            return Split("", block)
        return Split("loop", min(block, ROW_ELEMENTS[0]))

    def blocked(self, index: str, block: int) -> Split:
        """A split with a block, not larger than the index."""
        if index in self.carried:
            return Split("loop")
        if (
            index in self.sums and index in self.shapes.region.parents
        ):  # a loop goes over its whole in blocks already
            return self.whole(index)
        block = min(block, power_above(self.size(index)))
        if self.shapes.is_static(index) and block >= self.size(index):
            return Split("", block)
        return Split("parallel" if index in self.grid else "loop", block)

    def spread(self, indices: Sequence[str], block: int) -> Splits:
        """A block of so many elements over some indices, from the last on: an earlier one has a part of it where the
        later ones are whole powers of two."""
        found: Splits = {}
        for index in reversed(indices):
            found[index] = self.blocked(index, block)
            exact = self.shapes.is_static(index) and found[index].block == self.size(index)
            block = block // found[index].block if exact else 1
        return found

    def splits(self) -> Iterator[Splits]:
        """Ways to split the indices, each once."""
        seen: set[tuple[tuple[str, Split], ...]] = set()
        for found in self._splits():
            every = {index: found.get(index) or self.rest(index) for index in (*self.free, *self.sums)}
            key = tuple(sorted(every.items()))
            held = math.prod(split.block for index, split in every.items() if index not in self.sums)
            if key not in seen and held <= MOST_BLOCK:
                seen.add(key)
                yield every

    def rest(self, index: str) -> Split:
        return Split("parallel") if index in self.grid else self.whole(index)

    def _splits(self) -> Iterator[Splits]:
        if self.product is not None:
            yield from self._products(self.product)
        if self.sums or self.both:
            yield from self._rows()
        else:
            yield from self._flat()

    def _products(self, product: Contraction) -> Iterator[Splits]:
        """Tiles of the largest sum of products; what other products of the region need stays whole."""
        rows, columns = (self._own(side) for side in (product.rows, product.columns))
        sums = sorted((i for i in product.sums if i not in self.carried), key=self._reach, reverse=True)
        shortest = min(self.shapes.volume(set(side)) for side in (product.rows, product.columns))
        tiles = TILES if shortest >= PADDED else VECTOR_TILES
        flip = self.shapes.volume(set(product.rows)) > self.shapes.volume(set(product.columns))
        for one, other, depth in tiles:
            if tiles is VECTOR_TILES and flip:
                one, other = other, one
            found = self._tile(rows, one, tiles is TILES) | self._tile(columns, other, tiles is TILES)
            yield found | self._tile(sums, depth, tiles is TILES)

    def _reach(self, index: str) -> int:
        """The longest step that an index takes through what is loaded."""
        loads = [term for term in self.shapes.below(self.roots, self.stops) if term.op == "load"]
        return max((abs(self.shapes.stride(load, index) or 0) for load in loads), default=0)

    def _own(self, side: Sequence[str]) -> list[str]:
        """The indices of a side that a program may have blocks of."""
        return [index for index in self.free if index in side and index not in self.carried]

    def _tile(self, indices: list[str], block: int, pads: bool) -> Splits:
        if not indices:
            return {}
        found = self.spread(indices, block)
        have = math.prod(split.block for split in found.values())
        last = indices[-1]
        if pads and have < LEAST and len(indices) == 1:
            found[last] = Split(found[last].around, LEAST)
        return found

    def _rows(self) -> Iterator[Splits]:
        """Whole rows, or loops over their pieces, a few rows to a program; or columns that lie together."""
        inside = [*self.both, *self.sums]
        lasts = [i for i in inside if i not in self.carried]
        for rows in ROW_BLOCKS:
            found = self.spread(self.grid, rows)
            yield found
            for elements in ROW_ELEMENTS:
                if lasts:
                    yield found | self.spread(lasts, max(2, elements // rows))
        for side, depth in itertools.product(SQUARES, (1, 16, 64)):
            if self.grid:
                yield self.spread(self.grid, side) | self.spread(lasts, depth)

    def _flat(self) -> Iterator[Splits]:
        """Pieces of what lies together where it is written, and squares over what lies together where it is read."""
        for elements in FLAT:
            yield self.spread(self.grid, elements)
        if not self.grid:
            return
        last = self.grid[-1]
        loads = [term for term in self.shapes.below(self.roots, self.stops) if term.op == "load"]
        read = [i for i in self.grid[:-1] if any(self.shapes.stride(load, i) == 1 for load in loads)]
        for other, side in itertools.product(read, SQUARES):
            yield {last: self.blocked(last, side), other: self.blocked(other, side)}

    def stage(self, splits: Splits) -> Stage:
        """The nest of a split: grid, loops, then blocks, summed ones between rows and columns."""
        order = [*self.free, *self.sums]
        if self.product is not None:
            columns = [index for index in self.product.columns if index in self.free]
            order = [*(i for i in self.free if i not in columns), *self.sums, *columns]
        outside = {index: splits[index].factors(index) for index in (*self.free, *self.sums)}
        grid = [f for i in self.free for f in outside[i][0] if f.role == "parallel"]
        loops = [f for i in (*self.free, *self.sums) for f in outside[i][0] if f.role != "parallel"]
        blocks = [f for index in order for f in outside[index][1]]
        return Stage(self.targets, (*grid, *loops, *blocks))


class GpuSchedules:
    """The schedules of one region, or of one of its forms, for representative sizes."""

    def __init__(self, region: Region, shapes: Shapes) -> None:
        self.region, self.shapes = region, shapes

    def every(self, most: int) -> Iterator[Schedule]:
        """Schedules with blocks, `most` at most for each way to keep terms between launches."""
        if any(self.region.is_ordered(output) for output in self.region.outputs):
            yield from itertools.islice(dict.fromkeys(self._meeting()), most)
            return
        loops = [term for term in self.region.terms() if term.op == "loop"]
        guards = tuple(dict.fromkeys((part,) for loop in loops for part in _launches_before(loop)))
        yield from itertools.islice(dict.fromkeys(self._schedules(guards)), most)
        kept = tuple(dict.fromkeys((term,) for term in self.region.inner))
        if not kept or loops:
            return
        yield from itertools.islice(dict.fromkeys(self._schedules(kept)), most)
        states = self._states()
        if len(states) > 1:
            yield from itertools.islice(dict.fromkeys(self._schedules((states,))), most)

    def _states(self) -> tuple[Term, ...]:
        """What folds of parts leave for what combines them, where one launch can compute all of it: terms that have
        the same parts."""
        roots = tuple(term for output in self.region.outputs for term in output.terms)
        states = reads_of(roots, frozenset(self.region.inner))
        common = frozenset(self.region.parents).intersection(*(term.free for term in states))
        return states if common else ()

    def _meeting(self) -> Iterator[Schedule]:
        """Schedules for writes that may meet: in pieces, where atomic operations combine them; with a program that owns
        its columns and goes over the rest in order, where the order decides."""
        if len(self.region.outputs) != 1:
            return
        (output,) = self.region.outputs
        moved = output.dynamic.free if output.dynamic is not None else frozenset[str]()
        owned = [i for i in sorted(output.indices, key=natural_key) if i in output.address.indices - moved]
        rest = [i for i in sorted(output.indices, key=natural_key) if i not in owned]
        (group,) = self._outputs(frozenset())
        sums = {index: group.rest(index) for index in group.sums}
        in_order = {index: Split("loop") for index in rest}
        for elements in FLAT:
            yield Schedule((group.stage(sums | group.spread([*rest, *owned], elements)),))
        for elements in FLAT if owned else ():
            yield Schedule((group.stage(sums | in_order | group.spread(owned, elements)),))

    def plain(self) -> list[Schedule]:
        """Plain loops, of which one is legal for every region."""
        machine = Machine(lanes=1, registers=16)
        return [each.schedule for each in Generator(self.region, machine, self.shapes).fallbacks()]

    def _schedules(self, kept: tuple[tuple[Term, ...], ...]) -> Iterator[Schedule]:
        """Each group's splits side by side: with several groups, the n-th of each; `kept`: what each launch keeps that
        runs before that of the results."""
        numbers = self.region.numbering()
        stops = frozenset(itertools.chain.from_iterable(kept))
        groups = [*self._outputs(stops)]
        before = [self._kept(terms, stops, numbers) for terms in kept]
        found = [[group.stage(splits) for splits in group.splits()] for group in (*groups, *before)]
        if not all(found):
            return
        for number in range(max(map(len, found))):
            stages = [options[min(number, len(options) - 1)] for options in found]
            yield Schedule(tuple(stages[: len(groups)]), tuple(stages[len(groups) :]))

    def _kept(self, terms: tuple[Term, ...], stops: frozenset[Term], numbers: Mapping[Term, int]) -> _Group:
        """The terms that one launch keeps; what all of them have is outermost in their buffers."""
        common = frozenset.intersection(*(term.free for term in terms))
        free = sorted(
            frozenset[str]().union(*(term.free for term in terms)), key=lambda i: (i not in common, i)
        )
        targets = tuple(
            Target(term=numbers[term], buffer=Buffer(tuple((i, None) for i in free if i in term.free)))
            for term in terms
        )
        return _Group(self.shapes, terms, free, stops - {*terms}, targets)

    def _outputs(self, stops: frozenset[Term]) -> Iterator[_Group]:
        """The outputs by their indices."""
        alike: dict[frozenset[str], list[int]] = {}
        for position, output in enumerate(self.region.outputs):
            alike.setdefault(output.indices, []).append(position)
        for positions in alike.values():
            strides = self.shapes.output_strides(positions[0])
            free = sorted(strides, key=lambda index: (-abs(strides[index]), index))
            roots = tuple(term for n in positions for term in self.region.outputs[n].terms)
            yield _Group(self.shapes, roots, free, stops, tuple(Target(output=n) for n in positions))


def _launches_before(loop: Term) -> Iterator[Term]:
    """The guard of a loop, and what it reduces: first all blocks are looked at, then what was found of them."""
    if loop.guard is not None:
        yield from (term for term in postorder([loop.guard]) if term.op == "reduce" and term.dtype.is_bool)
        yield loop.guard
