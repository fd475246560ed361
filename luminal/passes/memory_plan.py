"""Places values in one arena: blocks whose lifetimes meet never overlap, at any value of the symbolic sizes.

A block's offset is the largest end of the blocks that lie *below* it.  Which of two blocks that are alive together
lies below is fixed when compiling, from a best-fit packing at representative sizes; so offsets are a handful of
additions and maxima at run time, and hold for sizes that were never looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from luminal.dim import Dim, Symbol

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""
_TYPICAL = (1, 7, 32, 128, 512)
"""Sizes at which a symbol without a hint is tried, as far as its range allows."""
_TOLERANCE = 1.25
"""How much worse than the first sample's the excess over the live peak may be at the others."""
_GOOD = 1.02
"""An excess over the live peak with which the search for a better packing ends."""
_REPACKINGS = 12
"""How often a packing is tried again, for each sample and rank."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that is alive from step `first` to step `last`, both included; `size` in bytes."""

    size: Dim
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """`below[b]` numbers the blocks that block b lies on; `order` lists all blocks, lower ones first."""

    blocks: tuple[Block, ...]
    below: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Bytes of each block, rounded up to the alignment."""
        return tuple(rounded(block.size) for block in self.blocks)

    def offsets(self, dims: Mapping[str, int]) -> list[int]:
        """The first byte of each block at these sizes."""
        return _stack(self.order, self.below, _evaluate(self.blocks, dims))

    def total(self, dims: Mapping[str, int]) -> int:
        """Bytes of the arena at these sizes."""
        sizes = _evaluate(self.blocks, dims)
        return _top(_stack(self.order, self.below, sizes), sizes)

    def __str__(self) -> str:
        lines: list[str] = []
        for number in self.order:
            block = self.blocks[number]
            on = ", ".join(f"b{b}" for b in self.below[number]) or "the floor"
            when = f"steps {block.first} to {block.last}"
            lines.append(f"b{number}: {rounded(block.size)} bytes, {when}, on {on}")
        return "\n".join(lines)


def rounded(size: Dim) -> Dim:
    """`size` bytes rounded up to the alignment."""
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def live_peak(blocks: Sequence[Block], dims: Mapping[str, int]) -> int:
    """The largest sum of bytes alive at one step: no arena can be smaller."""
    return _live_peak(blocks, _evaluate(blocks, dims))


def plan_arena(blocks: Sequence[Block], samples: Sequence[Mapping[str, int]]) -> ArenaPlan:
    """An arena for `blocks`.  `samples` are sizes at which the arena shall be small; it is right at all."""
    meeting = [
        [other for other in range(len(blocks)) if other != number and blocks[other].meets(block)]
        for number, block in enumerate(blocks)
    ]
    evaluated = [_evaluate(blocks, dims) for dims in samples] or [[0] * len(blocks)]
    peaks = [max(1, _live_peak(blocks, sizes)) for sizes in evaluated]
    best: tuple[float, float] | None = None
    chosen: list[int] = []
    for order in _candidates(blocks, meeting, evaluated):
        below = _below(order, meeting)
        tops = [_top(_stack(order, below, sizes), sizes) for sizes in evaluated]
        excess = [top / peak for top, peak in zip(tops, peaks, strict=True)]
        # the first sample is what the caller expects most; the others may be somewhat worse for its sake
        score = (max([excess[0], *(ratio / _TOLERANCE for ratio in excess[1:])]), sum(excess))
        if best is None or score < best:
            best, chosen = score, order
        if max(excess) <= _GOOD:
            break
    return ArenaPlan(tuple(blocks), _reduced(chosen, _below(chosen, meeting)), tuple(chosen))


def sample_dims(symbols: Iterable[Symbol], hint: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes to plan for: the hint first, then typical ones, each symbol within its range."""
    listed = sorted(symbols, key=lambda symbol: symbol.name)
    first = {symbol.name: hint.get(symbol.name, symbol.clamp(_TYPICAL[2])) for symbol in listed}
    samples = [first]
    for size in _TYPICAL:
        samples.append({symbol.name: symbol.clamp(size) for symbol in listed})
    for symbol in listed[:4]:
        for size in (_TYPICAL[0], _TYPICAL[-1]):
            samples.append({**first, symbol.name: symbol.clamp(size)})
    unique = {tuple(sorted(sample.items())): sample for sample in samples}
    return list(unique.values())


def _evaluate(blocks: Sequence[Block], dims: Mapping[str, int]) -> list[int]:
    return [max(0, -(-block.size.evaluate(dims) // ALIGNMENT) * ALIGNMENT) for block in blocks]


def _live_peak(blocks: Sequence[Block], sizes: Sequence[int]) -> int:
    changes: dict[int, int] = {}
    for block, size in zip(blocks, sizes, strict=True):
        changes[block.first] = changes.get(block.first, 0) + size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - size
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)


# In which order blocks look for their place; blocks of one rank go in order of their first step.
_RANKS: tuple[Callable[[Block, int], tuple[int, ...]], ...] = (
    lambda block, size: (-size, block.first),
    lambda block, size: (-size * (block.last - block.first + 1), block.first),
    lambda block, size: (block.first - block.last, -size),
    lambda block, size: (block.first, -size),
)


def _candidates(
    blocks: Sequence[Block], meeting: list[list[int]], evaluated: list[list[int]]
) -> Iterator[list[int]]:
    """Stacking orders, lower blocks first: packed at each sample, again with what stuck out placed first."""
    for sizes, rank in itertools.product(evaluated, _RANKS):
        queue = sorted(range(len(blocks)), key=lambda n: (*rank(blocks[n], sizes[n]), n))
        for _ in range(_REPACKINGS):
            offsets = _packed(queue, meeting, sizes)
            yield sorted(range(len(blocks)), key=lambda n: (offsets[n], offsets[n] + sizes[n], n))
            top = _top(offsets, sizes)
            if top <= _live_peak(blocks, sizes):
                break
            highest = {number for number in queue if offsets[number] + sizes[number] == top}
            queue = [*(n for n in queue if n in highest), *(n for n in queue if n not in highest)]


def _packed(queue: Sequence[int], meeting: list[list[int]], sizes: list[int]) -> list[int]:
    """Offsets by best fit: each block in turn takes the tightest gap between placed blocks that it meets."""
    offsets = [-1] * len(sizes)
    for number in queue:
        placed = (other for other in meeting[number] if offsets[other] >= 0)
        taken = sorted((offsets[other], offsets[other] + sizes[other]) for other in placed)
        offsets[number] = _tightest_gap(taken, sizes[number])
    return offsets


def _top(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    best, best_waste, floor = -1, -1, 0
    for start, end in taken:
        waste = start - floor - size
        if waste >= 0 and (best < 0 or waste < best_waste):
            best, best_waste = floor, waste
        floor = max(floor, end)
    return best if best >= 0 else floor


def _below(order: Sequence[int], meeting: list[list[int]]) -> list[list[int]]:
    rank = {number: place for place, number in enumerate(order)}
    return [[o for o in others if rank[o] < rank[number]] for number, others in enumerate(meeting)]


def _reduced(order: Sequence[int], below: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Without the blocks that some other block below already lies on (directly or through more of them)."""
    reach: dict[int, set[int]] = {}
    kept: list[tuple[int, ...]] = [()] * len(below)
    for number in order:
        implied = set().union(*(reach[other] for other in below[number]))
        kept[number] = tuple(sorted(other for other in below[number] if other not in implied))
        reach[number] = implied.union(below[number])
    return tuple(kept)


def _stack(order: Sequence[int], below: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    offsets = [0] * len(sizes)
    for number in order:
        offsets[number] = max((offsets[other] + sizes[other] for other in below[number]), default=0)
    return offsets
