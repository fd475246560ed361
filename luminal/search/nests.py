"""Nests of loops for one stage of a region, from index sets alone: a row form and a contraction form.

Nothing here knows what is computed.  Which index is the lane, tile sizes, blocks, what is packed and what is kept are
enumerated, each with the roofline's estimate for each of the representative sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from luminal.dialects.kernel.schedule import Buffer, Factor, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.search.contractions import PARTIAL_STEPS, ContractionGenerator
from luminal.search.shapes import below, find_contraction, looped_indices, reduced_indices
from luminal.search.stage import Nest, Seconds, StageView, add_seconds

LONG_SUM = 4
"""Short sums that a long one is at least made up of, in rows."""
MOST_ADDENDS, MOST_WRITTEN = 64, 200
"""Of a sum that is written out, and of all those of a tile of rows: more make long code."""
ROWS = (14, 8, 7, 4, 2, 1)
"""Rows of a tile of sums that are written out."""
STEP_SECONDS = 1e-9
"""What a step of a loop over a short sum costs beside its work: the loop, and waiting for the step before."""


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
        sums = [i for i in reduced_indices(view.roots, view.stops) if i not in view.bound]
        sequential = looped_indices(view.roots, view.stops)
        wanted = [*view.free, *(i for i in sums if i not in view.free and i not in sequential)]
        for lane in self._lane_choices(view, wanted):
            tiles = [t for t in (4, 2, 1) if t == 1 or self._fits(lane, t * lanes)]
            outer = [i for i in view.free if i != lane and i not in sums]
            late = [Factor(i, None) for i in view.free if i != lane and i in sums]
            between = [i for i in sums if i not in view.free and i != lane]
            is_short = between == sums and not sequential and self._is_short(sums)
            if is_short:
                yield from self._written_out(view, lane, outer, sums)
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
                if is_short:
                    seconds = add_seconds([seconds, self._stepping(view, sums, tile * lanes * unroll)])
                for kept in self._keep_choices(view, lane, (*along, *registers), outer, sums):
                    yield Nest(all_factors, kept, seconds, "rows", (self.no_seconds,) * len(kept))

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
            seconds = self._row_seconds(view, view.stops, lane, lanes, written)
            yield Nest((*around, along, *steps, *registers, Factor(lane, lanes, "lane")), (), seconds, "rows")

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
