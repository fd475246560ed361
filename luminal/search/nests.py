"""Nests of loops for one stage of a region, from index sets alone: a row form and a contraction form.

Nothing here knows what is computed.  Which index is the lane, tile sizes, blocks, what is packed and what is kept are
enumerated, each with the roofline's estimate for each of the representative sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.schedule import Buffer, Factor, Stage, Target
from luminal.dialects.kernel.terms import Region, Term
from luminal.passes.packed_loads import is_only_load
from luminal.search.machine import Machine
from luminal.search.roofline import contraction_seconds, packing_seconds, row_seconds, traffic_seconds
from luminal.search.shapes import (
    Contraction,
    Shapes,
    below,
    find_contraction,
    looped_indices,
    reduced_indices,
)

# Vectors of lanes, rows of a register tile, tiles of a block; whether rows are packed; whether columns stand outside.
TILES = ((4, 3, 2, 1), (12, 8, 6, 4, 2, 1), (1, 4, 16), (False, True), (False, True))
COARSE_TILES = ((4, 2, 1), (8, 4, 1), (4, 1), (False, True), (False,))

PARTIAL_STEPS = (256, 192, 320, 128, 160, 96)
"""Addends of a short sum, of which a long one is made up: the error of n then grows as that of n / 256 does."""


CAST_OPERATIONS = 2
"""Vector operations of a cast, to widen and to shift or convert."""
LONG_SUM = 4
"""Short sums that a long one is at least made up of, in rows."""

Seconds = tuple[float, ...]
"""Of one core, at each of the sizes that schedules are priced for."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage's factors, the stages that it keeps, and the estimate.

    `filling`: the part of `seconds` that fills each of what is kept, and could stand further out.
    """

    factors: tuple[Factor, ...]
    kept: tuple[Stage, ...]
    seconds: Seconds
    kind: str
    filling: tuple[Seconds, ...] = ()

    def filled(self, elsewhere: Sequence[Stage]) -> Sequence[tuple[Stage, Seconds]]:
        """Of the stages that the nest keeps, given in the same order as they stand now: those that stand elsewhere."""
        return [
            (stage, seconds)
            for stage, own, seconds in zip(elsewhere, self.kept, self.filling, strict=True)
            if stage != own
        ]


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage to be scheduled: its roots, the indices that it must factor (by falling stride), what is bound already.

    `strides` are those of where the result is written.
    """

    roots: tuple[Term, ...]
    free: list[str]
    strides: dict[str, int]
    bound: frozenset[str]
    at: str | None
    stops: frozenset[Term]
    prefix: str


class NestGenerator:
    """Enumerates schedules of one region for one machine and representative sizes.

    `shapes` decide what is enumerated; it is priced for them and for the `others`. `coarse` leaves most tile sizes out:
    enough to tell what a region costs, not which schedule is best.
    """

    def __init__(
        self,
        region: Region,
        machine: Machine,
        shapes: Shapes,
        coarse: bool = False,
        others: Sequence[Shapes] = (),
    ) -> None:
        self.coarse = coarse
        self.tiles = COARSE_TILES if coarse else TILES
        self.blocks = (64, 16) if coarse else (64, 32, 16, 128)
        self.region = region
        self.machine = machine
        self.shapes = shapes
        self.priced = (shapes, *others)
        self.no_seconds = self._each(lambda _: 0.0)
        self.traffic = self._each(lambda shapes: traffic_seconds(shapes, machine))
        self.numbers = region.numbering()
        self.loads = [term for term in self.numbers if term.op == "load"]

    def _each(self, price: Callable[[Shapes], float]) -> Seconds:
        """A price at each of the sizes."""
        return tuple(price(shapes) for shapes in self.priced)

    def _nests(self, view: StageView) -> list[Nest]:
        contraction = find_contraction(view.roots, view.free, view.bound, view.stops)
        if contraction is not None and contraction.rows and contraction.columns:
            found = list(self._contractions(view, contraction))
            if found:
                return found
        return list(self._rows(view))

    def _lane_choices(self, view: StageView, wanted: list[str]) -> list[str]:
        """Indices worth being the lane: those along which most accesses are contiguous."""
        score: dict[str, float] = dict.fromkeys(wanted, 0.0)
        for term in below(view.roots, view.stops):
            for index in wanted:
                if (term.op == "load" and self.shapes.stride(term, index) == 1) or (
                    term in view.stops and index in term.free
                ):
                    score[index] += 1
        for index, stride in view.strides.items():
            if index in score and stride == 1:
                score[index] += 1.5
        ranked = sorted(wanted, key=lambda index: (-score[index], -self.shapes.sizes[index], index))
        return [index for index in ranked if self.shapes.sizes[index] > 1][:2]

    def _rows(self, view: StageView) -> Iterator[Nest]:
        lanes = self.machine.lanes
        sums = [i for i in reduced_indices(view.roots, view.stops) if i not in view.bound]
        sequential = looped_indices(view.roots, view.stops)
        wanted = [*view.free, *(i for i in sums if i not in view.free and i not in sequential)]
        for lane in self._lane_choices(view, wanted):
            tiles = [t for t in (4, 2, 1) if t == 1 or self._fits(lane, t * lanes)]
            outer = [i for i in view.free if i != lane and i not in sums]
            late = [Factor(i, None) for i in view.free if i != lane and i in sums]
            between = [i for i in sums if i not in view.free and i != lane]
            for tile, unroll in itertools.product(tiles, (1, 4) if lane not in sums and sums else (1,)):
                factors = [Factor(index, None, name=view.prefix + index) for index in outer]
                along = [Factor(lane, None, name=None if outer else view.prefix + lane)]
                if not outer and not sums and self.shapes.sizes[lane] > 64 * tile * lanes:
                    along.append(Factor(lane, 64))
                    along[0] = Factor(lane, None, name=view.prefix + lane)
                registers = [Factor(lane, tile, "tile")] if tile > 1 else []
                registers.append(Factor(lane, lanes, "lane"))
                if lane in sums and lane not in view.free:
                    along += self._short_sums(lane, tile * lanes)
                inner = [Factor(index, None) for index in between]
                if inner and inner[-1].index not in sequential:
                    inner += self._short_sums(inner[-1].index, unroll)
                if unroll > 1 and inner and self._fits(inner[-1].index, unroll):
                    inner.append(Factor(inner[-1].index, unroll, "unroll"))
                elif unroll > 1:
                    continue
                tail = [*inner, *late, *along] if lane in sums else [*along, *late, *inner]
                all_factors = (*factors, *tail, *registers)
                seconds = self._row_seconds(view, view.stops, lane, tile * lanes)
                for kept in self._keep_choices(view, lane, (*along, *registers), outer, sums):
                    yield Nest(all_factors, kept, seconds, "rows", (self.no_seconds,) * len(kept))

    def _short_sums(self, index: str, covered: int) -> list[Factor]:
        """As `_partial`, for sums of vectors, of which one step covers so much: where an edge is ragged too."""
        steps = PARTIAL_STEPS[0]
        is_long = self.shapes.sizes[index] >= LONG_SUM * steps * covered
        return [Factor(index, steps, "partial")] if is_long else []

    def _row_seconds(self, view: StageView, stops: frozenset[Term], lane: str, step: int) -> Seconds:
        """Of a stage computed in vectors along the lane, `step` elements at a time."""

        def price(shapes: Shapes) -> float:
            size = shapes.sizes[lane]
            waste = -(-size // step) * step / size
            return row_seconds(shapes, view.roots, stops, self.machine, lane, waste)

        return self._each(price)

    def _fits(self, index: str, block: int) -> bool:
        """Whether a block divides an index, or is small beside a size that is not known."""
        if self.shapes.is_static(index):
            return self.shapes.sizes[index] % block == 0
        return block * 4 <= self.shapes.sizes[index]

    def _keep_choices(
        self, view: StageView, lane: str, along: tuple[Factor, ...], outer: list[str], sums: list[str]
    ) -> list[tuple[Stage, ...]]:
        """Values along the lane that a reduction and the result both need: computed again, or kept for the row."""
        choices: list[tuple[Stage, ...]] = [()]
        if lane not in sums or lane not in view.free:
            return choices
        at = view.prefix + outer[-1] if outer else view.at
        shared = [term for term in self._shared(view, lane) if term.dtype == view.roots[0].dtype]
        for term in shared[:1]:
            stage = Stage((Target(term=self.numbers[term], buffer=Buffer(((lane, None),), at)),), along, at)
            choices.insert(0, (stage,))
        return choices

    def _shared(self, view: StageView, lane: str) -> list[Term]:
        """Costly terms under a reduction over the lane that the result needs outside of it too."""
        terms = list(below(view.roots, view.stops))
        users: dict[Term, int] = {}
        for term in terms:
            for operand in set(term.operands):
                users[operand] = users.get(operand, 0) + 1
        costly = {"exp2", "log2", "sin", "sqrt", "recip"}
        return [
            t
            for t in terms
            if t.op in costly and lane in t.free and users.get(t, 0) > 1 and t not in view.roots
        ]

    def _contractions(self, view: StageView, found: Contraction) -> Iterator[Nest]:
        lanes = self.machine.lanes
        for contraction in (found, found.swapped()):
            columns = [i for i in contraction.columns if self.shapes.sizes[i] >= lanes // 2]
            if not columns or not contraction.rows:
                continue
            lane = min(columns, key=lambda index: (view.strides.get(index, 1 << 60), index))
            row = max(contraction.rows, key=lambda index: self.shapes.sizes[index])
            stops = view.stops | {contraction.reduction}
            others = tuple(root for root in view.roots if root is not contraction.reduction)
            extra = self._row_seconds(replace(view, roots=others), stops, lane, 1)
            outer = self.tiles[2:]
            if view.at is not None:  # rows are blocked around the stage already
                outer = ((1,), (not _is_plain(contraction.left, view),), self.tiles[4])
            for vectors, tile in itertools.product(*self.tiles[:2]):
                if tile * vectors + vectors + 1 > self.machine.registers:
                    continue
                if (
                    vectors > 1
                    and not self._fits(lane, vectors * lanes)
                    and self.shapes.sizes[lane] < vectors * lanes
                ):
                    continue
                casts = self._casts(contraction.right, lane) if vectors <= 4 else 0
                for block, pack_rows, swap, computed in itertools.product(*outer, {0, casts}):
                    if block > 1 and block * tile > 2 * self.shapes.sizes[row]:
                        continue
                    nest = self._contraction(
                        view, contraction, lane, row, vectors, tile, block, pack_rows, swap, computed
                    )
                    if nest is not None:
                        yield replace(nest, seconds=add_seconds([nest.seconds, extra]))

    def _contraction(
        self,
        view: StageView,
        contraction: Contraction,
        lane: str,
        row: str,
        vectors: int,
        tile: int,
        block: int,
        pack_rows: bool,
        swap: bool,
        computed: int,
    ) -> Nest | None:
        lanes, prefix = self.machine.lanes, view.prefix
        batch = [Factor(i, None, name=prefix + i) for i in contraction.batch]
        other_rows = [Factor(i, None, name=prefix + i) for i in contraction.rows if i != row]
        other_columns = [Factor(i, None, name=prefix + i) for i in contraction.columns if i != lane]
        row_block, column_panel = prefix + "rows", prefix + "panel"
        rows = [*other_rows, Factor(row, None, name=row_block)]
        columns = [*other_columns, Factor(lane, None, name=column_panel)]
        inner = [Factor(row, block)] if block > 1 else []
        sums = [Factor(i, None) for i in contraction.sums]
        unroll = next((u for u in (4, 2) if self._fits(sums[-1].index, u)), 1)
        sums += self._partial(sums[-1].index, unroll)
        if unroll > 1:
            sums.append(Factor(sums[-1].index, unroll, "unroll"))
        registers = [Factor(row, tile, "tile")] if tile > 1 else []
        registers += [Factor(lane, vectors, "tile")] if vectors > 1 else []
        registers.append(Factor(lane, lanes, "lane"))
        outer = [*columns, *rows] if swap else [*rows, *columns]
        factors = (*batch, *outer, *inner, *sums, *registers)
        last_batch = prefix + contraction.batch[-1] if batch else view.at
        kept: list[Stage] = []
        filling: list[Seconds] = []
        left = contraction.left
        if contraction.right not in view.stops and not computed:
            at = column_panel if swap and contraction.right.op != "load" else last_batch
            panels = self._panel(view, contraction, lane, vectors, at, kept)
            if panels is None:
                return None
            filling += [panels] * len(kept)
        if pack_rows and not swap and left not in view.stops:
            at = row_block
            span = tuple((i, None) for i in contraction.sums)
            order = ([(row, block)] if block > 1 else []) + list(span) + ([(row, tile)] if tile > 1 else [])
            contiguous = [i for i in contraction.sums if self.shapes.stride(left, i) == 1]
            fill = [Factor(row, block)] if block > 1 else []
            fill += [Factor(i, None) for i in contraction.sums if i not in contiguous[:1]]
            own = [i for i in _own_sums(left, view.stops) if i not in contraction.sums]
            fill += [Factor(i, None) for i in own]
            tail = [Factor(row, tile, "tile")] if tile > 1 else []
            if contiguous and self._fits(contiguous[0], lanes):
                fill += [Factor(contiguous[0], None), *tail, Factor(contiguous[0], lanes, "lane")]
            else:
                fill += [Factor(i, None) for i in contiguous[:1]] + tail
            kept.append(
                Stage((Target(term=self.numbers[left], buffer=Buffer(tuple(order), at)),), tuple(fill), at)
            )
            along = contiguous[0] if contiguous else row
            filling.append(self._packing(view, left, along, bool(contiguous)))
        elif not _is_plain(left, view):
            return None
        seconds = self._each(
            lambda shapes: contraction_seconds(
                shapes, contraction, self.machine, lane, row, vectors, tile, pack_rows, computed
            )
        )
        seconds = add_seconds([seconds, *filling])
        return Nest(factors, tuple(kept), seconds, "contraction", tuple(filling))

    def _casts(self, operand: Term, lane: str) -> int:
        """Vector operations that cast an operand where it is used, if that is all and it lies contiguous along the
        lane; 0 if not."""
        if operand.op != "cast" or self.shapes.stride(operand, lane) != 1:
            return 0
        return CAST_OPERATIONS * sum(term.op == "cast" for term in below((operand,), frozenset()))

    def _partial(self, index: str, unroll: int) -> list[Factor]:
        """A loop that adds up short sums where a sum is long, which rounds less; none where it is short."""
        for steps in PARTIAL_STEPS:
            if self.shapes.sizes[index] >= 2 * steps and self._fits(index, steps):
                return [Factor(index, steps // unroll, "partial")]
        return []

    def _panel(
        self,
        view: StageView,
        contraction: Contraction,
        lane: str,
        vectors: int,
        at: str | None,
        kept: list[Stage],
    ) -> Seconds | None:
        """Lay the lane side out in panels, where it is not contiguous along the lane, and what that costs; None if it
        cannot be. `at`: the loop in which panels are filled; where that is the one over panels, one at a time."""
        right, lanes = contraction.right, self.machine.lanes
        width = vectors * lanes
        outer = [] if at == view.prefix + "panel" else [i for i in contraction.columns if i != lane] + [lane]
        digits = [*((i, None) for i in (*outer, *contraction.sums)), (lane, width)]
        bound = view.bound | set(contraction.batch)
        if (
            right.op == "load"
            and self.region.arguments[right.load.argument].constant
            and not right.load.dynamic
            and is_only_load(right, self.loads)
            and not right.free & bound
        ):
            if right.load.guarded:
                return None
            buffer = Buffer(tuple(digits), None, "packed")
            kept.append(Stage((Target(term=self.numbers[right], buffer=buffer),), (), None))
            return self.no_seconds
        if right.op == "load" and self.shapes.stride(right, lane) == 1 and vectors <= 4:
            return self.no_seconds
        read = self._largest_load(right, view.stops)
        contiguous = next((i for i in contraction.sums if self.shapes.stride(read, i) == 1), None)
        fill = [Factor(i, None) for i in outer]
        if contiguous is not None and self._fits(contiguous, lanes):
            fill += [Factor(i, None) for i in contraction.sums]
            fill += [Factor(lane, width), Factor(contiguous, lanes, "lane")]
        else:
            own = [i for i in _own_sums(right, view.stops) if i not in contraction.sums]
            fill += [Factor(i, None) for i in (*contraction.sums, *own)]
            fill += [Factor(lane, vectors, "tile")] if vectors > 1 else []
            fill.append(Factor(lane, lanes, "lane"))
        kept.append(
            Stage((Target(term=self.numbers[right], buffer=Buffer(tuple(digits), at)),), tuple(fill), at)
        )
        return self._packing(view, right, lane if contiguous is None else contiguous, contiguous is None)

    def _largest_load(self, operand: Term, stops: frozenset[Term]) -> Term:
        """What most of an operand's memory is read by; the operand itself where it reads none."""
        loads = [t for t in below((operand,), stops) if t.op == "load"]
        return max(loads, key=lambda load: self.shapes.volume(load.free), default=operand)

    def _packing(self, view: StageView, packed: Term, lane: str, contiguous: bool) -> Seconds:
        return self._each(
            lambda shapes: packing_seconds(shapes, packed, view.stops, self.machine, lane, contiguous)
        )


def add_seconds(columns: Sequence[Seconds]) -> Seconds:
    return tuple(sum(column) for column in zip(*columns, strict=True))


def less_seconds(all_of_it: Seconds, part: Seconds) -> Seconds:
    return tuple(whole - each for whole, each in zip(all_of_it, part, strict=True))


def _is_plain(operand: Term, view: StageView) -> bool:
    """Whether an operand of a contraction is only read, and need not be computed for it."""
    return operand.op == "load" or operand in view.stops


def _own_sums(term: Term, stops: frozenset[Term]) -> list[str]:
    return reduced_indices((term,), stops)
