"""Nests of loops for a sum of products, from index sets alone: register tiles, panels, and groups of neighbours.

Nothing here knows what is computed.  Lanes run along an index of one side, the columns; rows are indices of the other.
How the factors reach the registers is enumerated too (luminal/search/factors.py): as they are, kept in panels; narrow
and made wider where they are used; or narrow and in groups, for an instruction that sums up the products of neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from luminal.dialects.kernel.schedule import Buffer, Factor, Stage, Target
from luminal.dialects.kernel.terms import ELEMENTWISE, Term, is_narrow_product, widened
from luminal.search.factors import ODD_TILES, FactorReader
from luminal.search.kept_panels import across, kept_panel, rows_laid_out, written_out
from luminal.search.roofline import (
    PICKED_COST,
    contraction_seconds,
    kept_seconds,
)
from luminal.search.shapes import Contraction, reduced_indices
from luminal.search.stage import Nest, Seconds, StageView, add_seconds
from luminal.search.steps import Steps
from luminal.search.streams import Streams
from luminal.search.tiling import Tiling, Way

PARTIAL_STEPS = (256, 192, 320, 128, 160, 96)
"""Addends of a short sum, of which a long one is made up: the error of n then grows as that of n / 256 does."""


Panels = tuple[tuple[Stage, ...], Seconds]
"""What lays the lane side of a sum of products out, and what that costs."""


@dataclass(frozen=True, eq=False)
class _Sum:
    """The factors over the indices of a sum, and what its steps cost at each of the sizes."""

    factors: tuple[Factor, ...]
    steps: list[Steps]


@dataclass(frozen=True, eq=False)
class _Product:
    """A sum of products of a stage, one way to read its factors, and what all of its register tiles have in common.

    `sums`: its indices in order; `loops` over them, and `written` those where the last few steps are written out;
    `batch`, `rows` and `columns`: the loops around; `panels`: by vectors of a panel, and by the loop that
    fills them, None where they cannot be.
    """

    view: StageView
    contraction: Contraction
    way: Way
    sums: list[str]
    loops: _Sum
    written: _Sum
    batch: list[Factor]
    rows: list[Factor]
    columns: list[Factor]
    streams: list[Streams]
    panels: dict[tuple[int, str | None], Panels | None] = field(
        default_factory=dict[tuple[int, "str | None"], "Panels | None"]
    )


class ContractionGenerator(FactorReader):
    """Enumerates schedules of sums of products of one region."""

    def _contractions(self, view: StageView, found: Contraction) -> Iterator[Nest]:
        lanes = self.machine.lanes
        for contraction in (found, found.swapped()):
            columns = [i for i in contraction.columns if self.shapes.sizes[i] >= lanes // 2]
            if not columns:
                continue
            lane = min(columns, key=lambda index: (view.strides.get(index, 1 << 60), index))
            row = max(
                contraction.rows,
                key=lambda index: (self.shapes.sizes[index], -view.strides.get(index, 1 << 60), index),
                default=None,
            )
            stops = view.stops | {contraction.reduction}
            others = tuple(root for root in view.roots if root is not contraction.reduction)
            extra = self._row_seconds(replace(view, roots=others), stops, lane, 1)
            for way in self._ways(contraction, lane):
                if not contraction.rows and way.group == 1 and not way.sources:
                    continue  # a product of a vector gains nothing by panels that are not narrow
                shifts = way.shifts
                around = tuple(sorted(contraction.around, key=lambda index: index in shifts))
                ordered = replace(contraction, around=around)
                sums = self._sum_order(ordered, way)
                if self.shapes.sizes[sums[-1]] < way.group:
                    continue
                product = self._product(view, ordered, way, sums, lane, row)
                for tiling in self._tilings(view, contraction, way, lane, row):
                    nest = self._contraction(product, tiling, extra)
                    if nest is not None:
                        yield nest

    def _product(
        self, view: StageView, contraction: Contraction, way: Way, sums: list[str], lane: str, row: str | None
    ) -> _Product:
        prefix = view.prefix
        every = [
            self._sum_factors(contraction, way, sums, out) for out in ((), written_out(self.region, sums))
        ]
        loops, written = (
            _Sum(over, [Steps(shapes, contraction, self.machine, over) for shapes in self.priced])
            for over in every
        )
        rows = [Factor(i, None, name=prefix + i) for i in contraction.rows if i != row]
        columns = [Factor(i, None, name=prefix + i) for i in contraction.columns if i != lane]
        return _Product(
            view,
            contraction,
            way,
            sums,
            loops,
            written,
            [Factor(i, None, name=prefix + i) for i in contraction.batch],
            [*rows, *([Factor(row, None, name=prefix + "rows")] if row else [])],
            [*columns, Factor(lane, None, name=prefix + "panel")],
            [Streams(shapes, contraction, self.machine, way) for shapes in self.priced],
        )

    def _tilings(
        self, view: StageView, contraction: Contraction, way: Way, lane: str, row: str | None
    ) -> Iterator[Tiling]:
        lanes = self.machine.lanes
        outer = self.tiles[2:]
        if view.at is not None:  # rows are blocked around the stage already
            outer = ((1,), (not _is_plain(way.left, view),), self.tiles[4])
        sums = 2 if contraction.around else 1
        tiles = (1,)
        if row is not None:
            exact = [t for t in ODD_TILES if self.shapes.is_static(row) and self._fits(row, t)]
            tiles = (*exact, *self.tiles[1])
        is_kept = row is not None and not self.coarse and self._is_kept(view, contraction, way, lane)
        is_laid_out = row is not None and self._is_laid_out(way.left, view, contraction)
        for vectors, tile in itertools.product(self.tiles[0], tiles):
            if not self._has_registers(vectors, tile, sums):
                continue
            if tile == 3 and self._has_registers(vectors, 4, sums):
                continue
            width = vectors * lanes
            if is_kept:
                for beside in across(self.shapes, contraction, lane, vectors, lanes):
                    yield Tiling(lane, row, vectors, tile, 1, is_laid_out, True, beside, kept=True)
            if vectors > 1 and not self._fits(lane, width) and self.shapes.sizes[lane] < width:
                continue
            for block, pack_rows, swap in itertools.product(*outer):
                if row is None and (block > 1 or swap):
                    continue
                if pack_rows and (row is None or contraction.around):
                    continue
                if swap and (block > 1 or pack_rows):
                    continue  # rows pass by whole, as they lie
                if row is not None and block > 1 and block * tile > 2 * self.shapes.sizes[row]:
                    continue
                yield Tiling(lane, row, vectors, tile, block, pack_rows, swap, lane)

    def _is_kept(self, view: StageView, contraction: Contraction, way: Way, lane: str) -> bool:
        """Whether what the lane side reads may be kept for a panel, while all rows pass by."""
        is_read = way.right.op == "load" and not way.sources and way.group == 1
        if not is_read or self.shapes.stride(way.right, lane) not in (1, *PICKED_COST):
            return False
        if self.shapes.bytes_of(way.right) <= self.machine.l1 and not way.right.load.guarded:
            return False  # it is near as it lies
        return not self._is_constant(way.right) and view.at is None and not contraction.around

    def _has_registers(self, vectors: int, tile: int, sums: int) -> bool:
        """Whether the sums of a register tile have registers, beside the fewer of a step's vectors and rows, and one of
        the others."""
        return sums * tile * vectors + min(tile, vectors) + 1 <= self.machine.registers

    # The nest

    def _contraction(self, product: _Product, tiling: Tiling, extra: Seconds) -> Nest | None:
        """The nest of a register tile, `extra` being what is computed beside; None where there is none."""
        view, contraction, way, sums = product.view, product.contraction, product.way, product.sums
        lane, row, vectors, tile = tiling.lane, tiling.row, tiling.vectors, tiling.tile
        lanes, prefix = self.machine.lanes, view.prefix
        batch, rows, columns = product.batch, product.rows, product.columns
        inner = [Factor(row, tiling.block)] if row and tiling.block > 1 else []
        outer = [*columns, *rows] if tiling.swap else [*rows, *columns]
        of_rows = [Factor(row, tile, "tile")] if row and tile > 1 else []
        of_columns = [Factor(tiling.across, vectors, "tile")] if vectors > 1 else []
        # the fewer stay in registers for a step, while each of the others comes and goes
        registers = [*of_columns, *of_rows] if vectors > tile else [*of_rows, *of_columns]
        registers.append(Factor(lane, lanes, "lane"))
        registers += [Factor(sums[-1], way.group, "group")] if way.group > 1 else []
        over = product.written if tiling.kept else product.loops
        factors = (*batch, *outer, *inner, *over.factors, *registers)
        last_batch = prefix + contraction.batch[-1] if batch else view.at
        kept: list[Stage] = []
        filling: list[Seconds] = []
        if tiling.kept:
            number = self.numbers[way.right]
            kept.append(kept_panel(self.region, number, sums, tiling, lanes, prefix + "panel"))
            filling.append(self._kept_seconds(view, way.right, lane))
        elif way.right not in view.stops:
            is_computed = tiling.swap and way.right.op != "load"
            at = prefix + "panel" if is_computed else last_batch
            if (vectors, at) not in product.panels:
                product.panels[vectors, at] = self._panel(product, tiling, at)
            panels = product.panels[vectors, at]
            if panels is None:
                return None
            kept += panels[0]
            filling += [panels[1]] * len(kept)
        if row and tiling.pack_rows and tiling.kept:
            kept.append(rows_laid_out(self.numbers[way.left], contraction.rows, sums, tiling))
            filling.append(self.no_seconds)
        elif row and tiling.pack_rows and not tiling.swap and way.left not in view.stops:
            kept.append(self._packed_rows(product, tiling))
            along = self._contiguous(way.left, contraction) or row
            filling.append(self._packing(view, way.left, along, along is not row))
        elif not _is_plain(way.left if row else widened(way.left) or way.left, view):
            return None
        if is_narrow_product(contraction.reduction):
            beside = [
                *self._rows_beside(view, contraction),
                *self._loads_beside(view, contraction, way, tiling),
            ]
            kept += beside
            filling += [self.no_seconds] * len(beside)
        # where rows are blocked around the stage, panels come back soon
        read = tiling if view.at is None else replace(tiling, swap=True)
        is_partial = any(factor.role == "partial" for factor in over.factors)

        covered = tiling.covered(lanes)

        def price(at: Streams, steps: Steps) -> float:
            panel = at.panel_cycles(read)
            products = contraction_seconds(
                at.shapes, contraction, self.machine, tiling, covered, way, panel, is_partial
            ) + steps.seconds(tiling, covered)
            return products if view.at is not None else products + at.row_seconds(tiling)

        products = add_seconds([tuple(map(price, product.streams, over.steps)), *filling])
        seconds = add_seconds([products, extra])
        return Nest(factors, tuple(kept), seconds, "contraction", tuple(filling))

    def _sum_order(self, contraction: Contraction, way: Way) -> list[str]:
        """The indices of the sum; a group runs along one in which rows are contiguous, which comes last."""
        sums = list(contraction.sums)
        along = self._contiguous(way.left, contraction)
        if way.group > 1 and along is not None:
            sums.append(sums.pop(sums.index(along)))
        return sums

    def _sum_factors(
        self, contraction: Contraction, way: Way, sums: list[str], written: Sequence[str] = ()
    ) -> tuple[Factor, ...]:
        group = way.group
        steps = (8, 4, 2) if way.is_chained else (4, 2)
        unroll = next((u for u in steps if self._fits(sums[-1], u * group)), 1)
        factors: list[Factor] = []
        for index in (*contraction.around, *sums[:-1]):
            size = self.region.extents[index].constant
            is_short = group > 1 and size is not None and size <= group
            is_unrolled = index in written or (is_short and (index in sums or index in way.shifts))
            factors.append(Factor(index, size if is_unrolled else None, "unroll" if is_unrolled else "loop"))
        if written:
            return (*factors, Factor(sums[-1], self.region.extents[sums[-1]].constant, "unroll"))
        factors.append(Factor(sums[-1], None))
        if contraction.reduction.dtype.is_float:
            factors += self._partial(sums[-1], unroll * group)
        if unroll > 1:
            factors.append(Factor(sums[-1], unroll, "unroll"))
        return tuple(factors)

    def _partial(self, index: str, covered: int) -> list[Factor]:
        """A loop that adds up short sums where a sum is long, which rounds less; none where it is short. `covered`: the
        addends of one step."""
        for steps in PARTIAL_STEPS:
            if self.shapes.sizes[index] >= 2 * steps and self._fits(index, steps):
                return [Factor(index, steps // covered, "partial")]
        return []

    def _packed_rows(self, product: _Product, tiling: Tiling) -> Stage:
        """A block of rows laid out as its register tiles read it."""
        view, contraction, way, sums = product.view, product.contraction, product.way, product.sums
        row, tile, lanes = tiling.row, tiling.tile, self.machine.lanes
        assert row is not None
        at, left = view.prefix + "rows", way.left
        block = [Factor(row, tiling.block)] if tiling.block > 1 else []
        tail = [Factor(row, tile, "tile")] if tile > 1 else []
        group = [Factor(sums[-1], way.group, "group")] if way.group > 1 else []
        digits = [*block, *(Factor(i, None) for i in sums), *tail, *group]
        buffer = Buffer(tuple((factor.index, factor.extent) for factor in digits), at)
        along = self._contiguous(left, contraction)
        own = [i for i in reduced_indices((left,), view.stops) if i not in contraction.sums]
        fill = [*block, *(Factor(i, None) for i in (*(i for i in sums if i != along), *own))]
        if along is not None and self._fits(along, lanes * way.group):
            fill += [Factor(along, None), *tail, Factor(along, lanes, "lane"), *group]
        else:
            fill += [Factor(i, None) for i in sums if i == along] + tail + group
        return Stage((Target(term=self.numbers[left], buffer=buffer),), tuple(fill), at)

    def _panel(self, product: _Product, tiling: Tiling, at: str | None) -> Panels | None:
        """Lay the lane side out in panels, where it is not contiguous along the lane, and what that costs; None if it
        cannot be. `at`: the loop in which panels are filled; where that is the one over panels, one at a time."""
        view, contraction, way, sums = product.view, product.contraction, product.way, product.sums
        lane, vectors, lanes = tiling.lane, tiling.vectors, self.machine.lanes
        loads = way.sources or (way.right,)
        group = [(sums[-1], way.group)] if way.group > 1 else []
        width = vectors * lanes
        outside = [*(i for i in contraction.columns if i != lane), lane]

        def digits(term: Term) -> tuple[tuple[str, int | None], ...]:
            inside = [*contraction.around, *sums]
            every = [*outside, *inside]
            return tuple(
                (index, extent)
                for index, extent in (*((i, None) for i in every), (lane, width), *group)
                if index in term.free
            )

        bound = view.bound | set(contraction.batch)
        if all(load.op == "load" and self._is_packable(load) and not load.free & bound for load in loads):
            buffers = {load: Buffer(digits(load), None, "packed") for load in loads}
            packed = (Target(term=self.numbers[load], buffer=buffer) for load, buffer in buffers.items())
            return tuple(Stage((target,), (), None) for target in packed), self.no_seconds
        is_contiguous = all(load.op == "load" and self.shapes.stride(load, lane) == 1 for load in loads)
        if is_contiguous and vectors <= 4 and (way.group == 1 or tiling.row is None):
            return (), self.no_seconds
        right = way.right
        if way.sources or right.free & set(contraction.around) or self._is_constant_load(right):
            return None
        outside = outside if at != view.prefix + "panel" else []
        fill = [Factor(i, None) for i in outside]
        along = self._contiguous(self._largest_load(right, view.stops), contraction)
        if way.group == 1 and along is not None and self._fits(along, lanes):
            fill += [Factor(i, None) for i in sums]
            fill += [Factor(lane, vectors), Factor(lane, lanes, "tile"), Factor(along, lanes, "lane")]
        else:
            own = [i for i in reduced_indices((right,), view.stops) if i not in contraction.sums]
            fill += [Factor(i, None) for i in (*sums, *own)]
            fill += [Factor(lane, vectors, "tile")] if vectors > 1 else []
            fill += [Factor(lane, lanes, "lane"), *(Factor(i, extent, "group") for i, extent in group)]
        target = Target(term=self.numbers[right], buffer=Buffer(digits(right), at))
        kept = (Stage((target,), tuple(fill), at),)
        seconds = self._packing(view, right, lane if along is None else along, along is None)
        if at != view.prefix + "panel":
            seconds = add_seconds(
                [seconds, self._each(lambda shapes: kept_seconds(shapes, right, self.machine))]
            )
        return kept, seconds

    def _rows_beside(self, view: StageView, contraction: Contraction) -> Iterator[Stage]:
        """What no column varies with, but is computed for each step of the sums around, or is a sum itself, as that of
        the rows' numbers: known before the first column."""
        lanes = self.machine.lanes
        inside = {*contraction.rows, *contraction.around}
        terms = self.shapes.below(view.roots, view.stops)
        computed = [
            term
            for term in terms
            if term.op in (*ELEMENTWISE, "reduce") and term.free and term.free <= inside
            if term not in view.stops and self._is_beside(term, view, contraction)
        ]
        found = {*computed}
        used = {operand for term in terms if term not in found for operand in term.operands}
        for term in (each for each in computed if each in used):
            sums = reduced_indices((term,), view.stops)
            load = self._largest_load(term, view.stops)
            along = next((i for i in (sums or sorted(term.free)) if self.shapes.stride(load, i) == 1), None)
            free = sorted(term.free, key=lambda index: (index == along, index))
            loops = [Factor(i, None) for i in (*free, *sums) if i != along]
            if along is not None:
                loops.append(Factor(along, None))
                loops += [Factor(along, lanes, "lane")] if self._fits(along, lanes) else []
            buffer = Buffer(tuple((i, None) for i in free), view.at)
            yield Stage((Target(term=self.numbers[term], buffer=buffer),), tuple(loops), view.at)

    def _is_beside(self, term: Term, view: StageView, contraction: Contraction) -> bool:
        """Whether a value is computed of what is read, with sums or for each step of those around; shifts, which differ
        by step too, are computed of indices alone."""
        ops = {each.op for each in self.shapes.below((term,), view.stops)}
        is_plain = "load" in ops and ops <= {*ELEMENTWISE, "reduce", "load", "constant", "index"}
        return is_plain and (bool(term.free & {*contraction.around}) or "reduce" in ops)

    def _loads_beside(
        self, view: StageView, contraction: Contraction, way: Way, tiling: Tiling
    ) -> Iterator[Stage]:
        """Other constants that are read along the lane, but do not lie so: laid out like the panels."""
        lane = tiling.lane
        inside = {*contraction.columns, *contraction.around}
        factors = {*self.shapes.below((way.left, way.right), frozenset())}
        for load in self.shapes.below(view.roots, view.stops):
            if load.op != "load" or load in factors or lane not in load.free:
                continue
            is_wanted = self.shapes.stride(load, lane) != 1 and load.free <= inside
            if not is_wanted or not self._is_packable(load):
                continue
            order = [*(i for i in contraction.columns if i != lane), lane, *contraction.around]
            digits = [(i, None) for i in order if i in load.free]
            buffer = Buffer((*digits, (lane, tiling.vectors * self.machine.lanes)), None, "packed")
            yield Stage((Target(term=self.numbers[load], buffer=buffer),), (), None)


def _is_plain(operand: Term, view: StageView) -> bool:
    """Whether an operand of a contraction is only read, and need not be computed for it."""
    return operand.op == "load" or operand in view.stops
