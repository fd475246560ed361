"""Nests of loops for one stage of a region, from index sets alone: a row form and a contraction form.

Nothing here knows what is computed.  Which index is the lane, tile sizes, blocks, what is packed and what is kept are
enumerated, each with the roofline's estimate for each of the representative sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from luminal.dialects.kernel.schedule import LOOP_ROLES, Buffer, Factor, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.search.contractions import PARTIAL_STEPS, ContractionGenerator
from luminal.search.roofline import LINE_BYTES, hop_seconds, row_seconds
from luminal.search.shapes import Shapes, below, find_contraction, looped_indices
from luminal.search.stage import Nest, Seconds, StageView, add_seconds

VECTORS = (16, 8, 6, 4, 3, 2, 1)
"""Vectors of a register tile that are computed side by side."""
WIDE = 4
"""Vectors of a register tile above which several rows, from as many pages, are added up before they join a sum."""
SQUARES = (8, 4, 2)
"""Squares in a row that are transposed one after the other, where they divide it."""
LONG = 64
"""So many blocks of an index hide what the edge of the last one costs."""
LONG_SUM = 4
"""Short sums that a long one is at least made up of, in rows."""
MOST_ADDENDS, MOST_WRITTEN = 64, 200
"""Of a sum that is written out, and of all those of a tile of rows: more make long code."""
ROWS = (14, 8, 7, 4, 2, 1)
"""Rows of a tile of sums that are written out."""
STEP_SECONDS = 1e-9
"""What a step of a loop over a short sum, or of a scan, costs beside its work: the loop, and waiting for the step
before."""
ROWS_AT_ONCE, SUMS_AT_ONCE = 4, 8
"""Rows of a block, and vectors of all of them, that are summed up along their lanes at once: none waits for another."""
SUMMED_CYCLES = 30.0
"""What the end of such sums takes, lane by lane, of all rows at once."""
PAGE_BYTES, PAGE_SECONDS = 4096, 80e-9
"""What a stream from memory waits for at the end of a page, where hardware stops looking ahead: several at once."""
SCANNED, SCANNED_ROWS = (8, 4, 2, 1), (4, 2, 1)
"""Running values of a scan that are carried at once, so that they do not wait for each other: vectors, and single ones
of several rows, of which more would be in one set of the first cache where rows are a power of two apart."""


class NestGenerator(ContractionGenerator):
    """Enumerates nests of a stage: of its sum of products where it has one, else rows."""

    def _nests(self, view: StageView) -> list[Nest]:
        contraction = find_contraction(view.roots, view.free, view.bound, view.stops)
        found = [] if contraction is None else list(self._contractions(view, contraction))
        if found and contraction is not None and contraction.rows and contraction.columns:
            return found
        return [*found, *self._rows(view)]

    def _lane_choices(self, view: StageView, wanted: list[str]) -> list[str]:
        """Indices worth being the lane: those along which most accesses are contiguous."""
        score: dict[str, float] = dict.fromkeys(wanted, 0.0)
        read = [term for term in below(view.roots, view.stops) if term.op == "load" or term in view.stops]
        most = max((self.shapes.volume(term.free) for term in read), default=1)
        for term in read:
            for index in wanted:
                if (term.op == "load" and self.shapes.stride(term, index) == 1) or (
                    term in view.stops and index in term.free
                ):
                    # what is read once for many results, as a channel's parameters, says little
                    score[index] += self.shapes.volume(term.free) / most
        for index, stride in view.strides.items():
            if index in score and stride == 1:
                score[index] += 1.5
        ranked = sorted(wanted, key=lambda index: (-score[index], -self.shapes.sizes[index], index))
        return [index for index in ranked if self.shapes.sizes[index] > 1][:2]

    def _rows(self, view: StageView) -> Iterator[Nest]:
        lanes = self.machine.lanes
        sums = [i for i in self.shapes.reduced(view.roots, view.stops) if i not in view.bound]
        sequential = looped_indices(view.roots, view.stops)
        wanted = [*view.free, *(i for i in sums if i not in view.free and i not in sequential)]
        for lane in self._lane_choices(view, wanted):
            outer = [i for i in view.free if i != lane and i not in sums]
            late = [Factor(i, None) for i in view.free if i != lane and i in sums]
            between = [i for i in sums if i not in view.free and i != lane]
            between.sort(key=lambda index: -self.region.whole(index)[1])  # blocks, then the places in them
            is_short = between == sums and not sequential and self._is_short(sums)
            if is_short:
                yield from self._written_out(view, lane, outer, sums)
            unrolls = (4, 1) if lane not in sums and sums else (1,)
            for order, (rows, registers, covered), unroll in itertools.product(
                self._orders(view, outer, sums), self._registers(view, lane, outer, sums), unrolls
            ):
                is_wide = covered[lane] > WIDE * lanes
                whole = [factor.index for factor in rows if factor.extent is None]
                factors = [Factor(i, None, name=view.prefix + i) for i in order if i not in whole]
                along = [Factor(lane, None, name=None if factors else view.prefix + lane), *rows]
                if not outer and not sums and self.shapes.sizes[lane] > 64 * covered[lane]:
                    along.append(Factor(lane, 64))
                    along[0] = Factor(lane, None, name=view.prefix + lane)
                if lane in sums and lane not in view.free:
                    along += self._short_sums(lane, covered[lane])
                inner = [Factor(index, None) for index in between]
                if inner and inner[-1].index not in sequential:
                    inner += self._short_sums(inner[-1].index, unroll)
                if unroll > 1 and inner and self._fits(inner[-1].index, unroll):
                    inner.append(Factor(inner[-1].index, unroll, "block" if is_wide else "unroll"))
                elif unroll > 1:
                    continue
                tail = [*inner, *late, *along] if lane in sums else [*along, *late, *inner]
                all_factors = (*factors, *tail, *registers)
                seconds = self._nest_seconds(view, lane, covered, all_factors)
                if is_short:
                    seconds = add_seconds([seconds, self._stepping(view, sums, covered[lane] * unroll)])
                for kept in self._keep_choices(view, lane, (*along, *registers), outer, sums):
                    yield Nest(all_factors, kept, seconds, "rows", (self.no_seconds,) * len(kept))

    def _orders(self, view: StageView, outer: list[str], sums: list[str]) -> list[list[str]]:
        """Orders of the outer loops: that of what is written, and those in which something is read from end to end."""
        orders = [outer]
        for load in below(view.roots, view.stops):
            strides = [self.shapes.stride(load, index) for index in outer if index in load.free]
            if load.op != "load" or sums or len(strides) < len(outer) or None in strides:
                continue
            order = sorted(outer, key=lambda index: -(self.shapes.stride(load, index) or 0))
            if order not in orders:
                orders.append(order)
        return orders

    def _nest_seconds(
        self, view: StageView, lane: str, covered: Mapping[str, int], factors: Sequence[Factor]
    ) -> Seconds:
        """Of a nest with register tiles that cover so much."""
        loops = [factor for factor in reversed(factors) if factor.role in LOOP_ROLES]
        is_summed = lane in self.shapes.reduced(view.roots, view.stops)

        def hops(shapes: Shapes) -> float:
            inside, trips = dict(covered), list[tuple[str, int]]()
            for index, extent in ((factor.index, factor.extent) for factor in loops):
                trips.append((index, extent or -(-shapes.sizes[index] // inside.get(index, 1))))
                inside[index] = inside.get(index, 1) * trips[-1][1]
            return hop_seconds(shapes, view, self.machine, covered, trips) + ends(shapes)

        def ends(shapes: Shapes) -> float:
            """Of the sums along the lane, and of the pages that they read."""
            if not is_summed:
                return 0.0
            rows = math.prod(-(-shapes.sizes[i] // covered.get(i, 1)) for i in view.free if i != lane)
            waiting = sum(self._waiting(shapes, load, lane, covered) for load in self._loads(view))
            return rows * SUMMED_CYCLES / self.machine.cycles_a_second + waiting

        tiled = [index for index, count in covered.items() if count >= self.machine.lanes]
        vectors = self._row_seconds(view, view.stops, lane, covered[lane], tiled)
        return add_seconds([vectors, self._each(hops)])

    def _loads(self, view: StageView) -> list[Term]:
        return [term for term in self.shapes.below(view.roots, view.stops) if term.op == "load"]

    def _waiting(self, shapes: Shapes, load: Term, lane: str, covered: Mapping[str, int]) -> float:
        """At the ends of the pages of what is read from memory along the lane, as so many streams as lie apart."""
        if shapes.stride(load, lane) != 1 or shapes.bytes_of(load) <= self.machine.l3:
            return 0.0
        streams = math.prod(covered.get(i, 1) for i in load.free if self._lies_apart(shapes, load, i))
        return shapes.bytes_of(load) / PAGE_BYTES * PAGE_SECONDS / streams

    def _lies_apart(self, shapes: Shapes, load: Term, index: str) -> bool:
        """Whether what a load reads for one value of an index is in another page than what it reads for the next."""
        return (shapes.stride(load, index) or 0) * load.dtype.size_bytes >= PAGE_BYTES

    def _registers(
        self, view: StageView, lane: str, outer: list[str], sums: list[str]
    ) -> list[tuple[list[Factor], list[Factor], dict[str, int]]]:
        """Register tiles, each with the loops between that of the lane and the tile, and with the elements that it
        covers of its indices: vectors along the lane; or a square, where something is contiguous along another index,
        so that it is transposed in registers.

        What is summed up over rows is read in wide pieces of each.
        """
        lanes = self.machine.lanes
        across = lane not in sums and bool(sums)
        most = 4 if not across else 16 if self.machine.registers >= 32 else 8
        tiles = [tile for tile in VECTORS if tile <= most and self._is_tile(view, lane, tile)]
        vector, found = Factor(lane, lanes, "lane"), list[tuple[list[Factor], list[Factor], dict[str, int]]]()
        for tile in tiles:
            registers = [Factor(lane, tile, "tile"), vector] if tile > 1 else [vector]
            several = min(ROWS_AT_ONCE, SUMS_AT_ONCE // tile)
            for index in self._rows_at_once(view, outer, several) if lane in sums else ():
                rows = [Factor(index, several, "tile"), *registers]
                found.append(([], rows, {lane: tile * lanes, index: several}))
            found.append(([], registers, {lane: tile * lanes}))
        for index in self._turned(view, lane, sums):
            # wide pieces of rows, each of which is in other pages; or rows from end to end, as many as there are lanes
            wide = (count for count in SQUARES if self._fits(index, count * lanes))
            for squares in dict.fromkeys((next(wide, None), None)):
                square = {lane: lanes, index: lanes}
                loops = [Factor(index, squares), *self._lines(view, lane)]
                found.append((loops, [Factor(index, lanes, "tile"), vector], square))
        return found

    def _rows_at_once(self, view: StageView, outer: list[str], several: int) -> list[str]:
        """Indices of which several values are summed up at once: rows beside each other, and those that lie in other
        pages, since memory gives several streams faster than one."""
        if view.at is not None:
            return [index for index in outer[-1:] if self.shapes.sizes[index] % several == 0]
        if self.coarse:
            return []
        apart = [
            i for i in outer if any(self._lies_apart(self.shapes, load, i) for load in self._loads(view))
        ]
        return [i for i in dict.fromkeys((*outer[-1:], *apart[-1:])) if self._fits_long(i, several)]

    def _lines(self, view: StageView, lane: str) -> list[Factor]:
        """A loop over the vectors of a cache line, where it has several: what is left of a line may be gone when it is
        wanted behind those of many other rows."""
        vectors = LINE_BYTES // (self.machine.lanes * view.roots[0].dtype.size_bytes)
        has_several = vectors > 1 and self._fits(lane, vectors * self.machine.lanes)
        return [Factor(lane, vectors)] if has_several else []

    def _is_tile(self, view: StageView, lane: str, vectors: int) -> bool:
        """Whether register tiles may have so many vectors of an index; blocks around a stage may be multiples of 3."""
        if vectors % 3 == 0:
            return view.at is not None and self.shapes.sizes[lane] % (vectors * self.machine.lanes) == 0
        return vectors == 1 or self._fits_long(lane, vectors * self.machine.lanes)

    def _fits_long(self, index: str, block: int) -> bool:
        """Whether a block divides an index, or is so small beside it that its edge does not matter."""
        return self._fits(index, block) or self.shapes.sizes[index] >= LONG * block

    def _turned(self, view: StageView, lane: str, sums: list[str]) -> list[str]:
        """Indices along which a load is contiguous that is not so along the lane."""
        strided = [load for load in below(view.roots, view.stops) if self._is_strided(load, lane)]
        others = (
            i for i in view.free if i != lane and i not in sums and self.shapes.sizes[i] >= self.machine.lanes
        )
        return [i for i in others if any(self.shapes.stride(load, i) == 1 for load in strided)]

    def _is_strided(self, term: Term, index: str) -> bool:
        return term.op == "load" and index in term.free and self.shapes.stride(term, index) not in (None, 1)

    def _is_short(self, sums: Sequence[str]) -> bool:
        """Whether there are sums, all together of a few addends."""
        is_static = sums and all(map(self.shapes.is_static, sums))
        return bool(is_static) and self.shapes.volume({*sums}) <= MOST_ADDENDS

    def _stepping(self, view: StageView, sums: Sequence[str], covered: int) -> Seconds:
        """Of loops over short sums, of which a step covers so many addends of all."""
        return self._each(lambda shapes: STEP_SECONDS * shapes.volume({*view.free, *sums}) / covered)

    def _written_out(
        self, view: StageView, lane: str, outer: Sequence[str], sums: Sequence[str]
    ) -> Iterator[Nest]:
        """Short sums without loops, of several rows at once: what the rows have in common, as windows of an image do,
        is read once."""
        addends, lanes = self.shapes.volume({*sums}), self.machine.lanes
        tiles = [
            t for t in ROWS if t == 1 or (outer and t * addends <= MOST_WRITTEN and self._fits(outer[-1], t))
        ]
        for rows in (*tiles[:1], 1) if self.coarse and len(tiles) > 1 else tiles:
            written = {index: self.shapes.sizes[index] for index in sums}
            around = [Factor(index, None, name=view.prefix + index) for index in outer]
            along = Factor(lane, None, name=None if outer else view.prefix + lane)
            steps = [f for i, size in written.items() for f in (Factor(i, None), Factor(i, size, "unroll"))]
            registers = [Factor(outer[-1], rows, "tile")] if rows > 1 else []
            if rows > 1:
                written[outer[-1]] = rows
            seconds = self._row_seconds(view, view.stops, lane, lanes, written=written)
            yield Nest((*around, along, *steps, *registers, Factor(lane, lanes, "lane")), (), seconds, "rows")

    def _scanned(self, view: StageView, scanned: Sequence[str]) -> Iterator[Nest]:
        """A scan in the order of its index, of several rows at once, or of vectors along what is contiguous."""
        others = [index for index in view.free if index not in scanned]
        if len(scanned) > 1 or not others or self.shapes.reduced(view.roots, view.stops):
            return
        around = [Factor(index, None, name=view.prefix + index) for index in others]
        beside, lanes = others[-1], self.machine.lanes
        is_along = view.strides.get(beside) == 1
        vector = [Factor(beside, lanes, "lane")] if is_along else []
        for tile in SCANNED if is_along else SCANNED_ROWS:
            covered = tile * lanes if is_along else tile
            if tile > 1 and not self._fits_long(beside, covered):
                continue
            rows = [Factor(beside, tile, "tile")] if tile > 1 else []
            factors = (*around, Factor(scanned[0], None), *rows, *vector)
            if is_along:
                seconds = self._nest_seconds(view, beside, {beside: covered}, factors)
            else:
                seconds = self._each(
                    lambda shapes: row_seconds(shapes, view.roots, view.stops, self.machine, "", 1.0)
                )
            yield Nest(factors, (), add_seconds([seconds, self._stepping(view, (), covered)]), "rows")

    def _short_sums(self, index: str, covered: int) -> list[Factor]:
        """As `_partial`, for sums of vectors, of which one step covers so much: where an edge is ragged too."""
        steps = PARTIAL_STEPS[0]
        is_long = self.shapes.sizes[index] >= LONG_SUM * steps * covered
        return [Factor(index, steps, "partial")] if is_long else []

    def _keep_choices(
        self, view: StageView, lane: str, along: tuple[Factor, ...], outer: list[str], sums: list[str]
    ) -> list[tuple[Stage, ...]]:
        """Values along the lane that a reduction and the result both need: computed again, or kept for the row."""
        choices: list[tuple[Stage, ...]] = [()]
        is_row = not outer or all(factor.index != outer[-1] for factor in along)
        if lane not in sums or lane not in view.free or not is_row:
            return choices
        at = view.prefix + outer[-1] if outer else view.at
        for term in self._shared(view, lane)[:1]:
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
