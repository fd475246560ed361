"""Schedules of a region, from index sets alone: a scalar form, a row form and a contraction form for each stage.

Nothing here knows what is computed.  Every choice (which index is the lane, tile sizes, blocks, what is packed, what is
kept, how many loops run in parallel) is enumerated; the roofline orders and the machine decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.terms import Region, ScanAttribute, Term, postorder
from luminal.search.machine import Machine
from luminal.search.roofline import (
    STRIDED_SECONDS,
    Estimate,
    contraction_seconds,
    row_seconds,
    traffic_seconds,
    with_traffic,
)
from luminal.search.shapes import (
    Contraction,
    Shapes,
    below,
    find_contraction,
    looped_indices,
    reduced_indices,
    scanned_indices,
)


# Vectors of lanes, rows of a register tile, tiles of a block; whether rows are packed; whether columns stand outside.
TILES = ((4, 3, 2, 1), (12, 8, 6, 4, 2, 1), (1, 4, 16), (False, True), (False, True))
COARSE_TILES = ((4, 2, 1), (8, 4, 1), (4, 1), (False, True), (False,))


NEAR = 1.2
"""Estimates within this factor of the best are taken as equal."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule with the roofline's estimate of its seconds on one core, the grid that may run in parallel, and its form."""

    schedule: Schedule
    estimate: Estimate
    form: str


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage's factors, the stages that it keeps, and the estimate."""

    factors: tuple[Factor, ...]
    kept: tuple[Stage, ...]
    estimate: Estimate
    form: str


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


class Generator:
    """Enumerates schedules of one region for one machine and representative sizes.

    `coarse` leaves most tile sizes out: enough to tell what a region costs, not which schedule is best.
    """

    def __init__(self, region: Region, machine: Machine, shapes: Shapes, coarse: bool = False) -> None:
        self.tiles = COARSE_TILES if coarse else TILES
        self.blocks = (64,) if coarse else (64, 32, 16, 128)
        self.region = region
        self.machine = machine
        self.shapes = shapes
        self.numbers = region.numbering()

    def candidates(self) -> list[Candidate]:
        """All schedules of the region's forms, the promising first; never empty."""
        found: list[Candidate] = []
        if self.region.inner:
            found += self._merged()
        else:
            found += self._single()
        found.sort(key=lambda candidate: candidate.estimate.seconds(self.machine))
        return [*self._varied(found), *self.fallbacks()]

    def _varied(self, ordered: list[Candidate]) -> list[Candidate]:
        """The same candidates, families of register tiles in turn where the model hardly tells them apart: those that
        are timed first should differ in what the model knows least."""
        if not ordered:
            return []
        limit = NEAR * ordered[0].estimate.seconds(self.machine)
        families: dict[tuple[str, ...], list[Candidate]] = {}
        for candidate in ordered:
            if candidate.estimate.seconds(self.machine) <= limit:
                families.setdefault(_registers(candidate.schedule), []).append(candidate)
        rounds = itertools.zip_longest(*families.values())
        near = [candidate for turn in rounds for candidate in turn if candidate is not None]
        return near + ordered[len(near) :]

    def fallbacks(self) -> list[Candidate]:
        """Slow schedules of plain loops, of which one is legal for every region: all in one nest for each output; or
        every reduction and scan kept in memory of its own first, where none can stand inside another's loops."""
        seconds = self.shapes.volume(set(self.shapes.sizes)) * 2e-9
        kept = tuple(self._kept_plainly())
        stops = frozenset(self.region.terms()[stage.targets[0].term] for stage in kept)
        return [
            Candidate(Schedule(tuple(self._plain_roots(frozenset()))), Estimate(seconds, 1), "scalar"),
            Candidate(Schedule(tuple(self._plain_roots(stops)), kept), Estimate(2 * seconds, 1), "scalar"),
        ]

    def _plain_roots(self, stops: frozenset[Term]) -> Iterator[Stage]:
        for position, output in enumerate(self.region.outputs):
            strides = self.shapes.output_strides(position)
            ordered = self.region.is_ordered(output)
            free = sorted(output.indices, key=natural_key if ordered else lambda index: (-strides[index], index))
            below_stops = tuple(term for term in output.terms if term not in stops)
            scans = scanned_indices(below_stops, stops)
            sums = reduced_indices(below_stops, stops)
            late = [] if ordered else [i for i in free if i in sums and i not in scans] + scans
            early = [i for i in free if i not in late]
            factors = [Factor(index, None) for index in (*early, *late)]
            if early and not ordered:
                factors[0] = Factor(early[0], None, "parallel")
            factors += [Factor(index, None) for index in sums if index not in output.indices]
            yield Stage((Target(output=position),), tuple(factors))

    def _kept_plainly(self) -> Iterator[Stage]:
        """A stage for each reduction, scan and carried loop that stands outside of other loops, operands before users."""
        open_loops: dict[Term, frozenset[int]] = {}
        for term, number in self.numbers.items():
            around = frozenset[int]().union(*(open_loops[operand] for operand in term.operands))
            if term.op == "carry":
                around = frozenset({cast("tuple[int, int]", term.attribute)[0]})
            elif term.op == "loop":
                around -= {term.loop.identifier}
            open_loops[term] = around
            if term.op not in ("reduce", "scan", "project") or around:
                continue
            along = _along(term)
            free = sorted(term.free - set(along), key=natural_key)
            held = free + along if term.op == "scan" else free
            target = Target(term=number, buffer=Buffer(tuple((index, None) for index in held)))
            yield Stage((target,), tuple(Factor(index, None) for index in (*free, *along)))

    # ---- regions of one stage

    def _single(self) -> list[Candidate]:
        outputs = self.region.outputs
        if any(map(self.region.is_ordered, outputs)) or len({o.indices for o in outputs}) != 1:
            return []
        roots = tuple(term for output in outputs for term in output.terms)
        if scanned_indices(roots, frozenset()):
            return []
        strides = self.shapes.output_strides(0)
        free = sorted(outputs[0].indices, key=lambda index: (-strides[index], index))
        view = StageView(roots, free, strides, frozenset(), None, frozenset(), "")
        found: list[Candidate] = []
        traffic = traffic_seconds(self.shapes, self.machine)
        for nest in self._nests(view):
            for nontemporal in self._store_choices():
                targets = tuple(Target(output=n, nontemporal=nontemporal) for n in range(len(outputs)))
                factors, grid = self._parallel(nest.factors, view)
                root = Stage(targets, factors)
                estimate = Estimate(with_traffic(nest.estimate.core_seconds, traffic), grid)
                found.append(Candidate(Schedule((root,), nest.kept), estimate, nest.form))
        return found

    def _store_choices(self) -> tuple[bool, ...]:
        return (False,)

    def _nests(self, view: StageView) -> list[Nest]:
        contraction = find_contraction(view.roots, view.free, view.bound, view.stops)
        if contraction is not None and contraction.rows and contraction.columns:
            found = list(self._contractions(view, contraction))
            if found:
                return found
        return list(self._rows(view))

    def _parallel(self, factors: tuple[Factor, ...], view: StageView) -> tuple[tuple[Factor, ...], int]:
        """Make leading loops over free indices parallel until there is work for every core."""
        wanted = 8 * self.machine.threads
        sums = reduced_indices(view.roots, frozenset())
        grid = 1
        result = list(factors)
        seen: set[str] = set()
        for position, factor in enumerate(factors):
            stop = factor.role != "loop" or factor.index in seen or factor.index in sums
            if stop or factor.index not in view.free or grid >= wanted:
                break
            seen.add(factor.index)
            result[position] = Factor(factor.index, factor.extent, "parallel", factor.name)
            grid *= self._trips(factors, position)
        return tuple(result), grid

    def _trips(self, factors: tuple[Factor, ...], position: int) -> int:
        factor = factors[position]
        if factor.extent is not None:
            return factor.extent
        inner = 1
        for other in factors[position + 1 :]:
            inner *= other.extent if other.index == factor.index and other.extent is not None else 1
        return -(-self.shapes.sizes[factor.index] // inner)

    # ---- rows: no contraction; a lane along one index, tiles of vectors along it, everything else a loop

    def _lane_choices(self, view: StageView, wanted: list[str]) -> list[str]:
        """Indices worth being the lane: those along which most accesses are contiguous."""
        score: dict[str, float] = {index: 0.0 for index in wanted}
        for term in below(view.roots, view.stops):
            for index in wanted:
                if term.op == "load" and self.shapes.stride(term, index) == 1:
                    score[index] += 1
                elif term in view.stops and index in term.free:
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
            size = self.shapes.sizes[lane]
            tiles = [t for t in (4, 2, 1) if t == 1 or self._fits(lane, t * lanes)]
            outer = [i for i in view.free if i != lane and i not in sums]
            late = [Factor(i, None) for i in view.free if i != lane and i in sums]
            between = [i for i in sums if i not in view.free and i != lane]
            for tile, unroll in itertools.product(tiles, (1, 4) if lane not in sums and sums else (1,)):
                factors = [Factor(index, None, name=view.prefix + index) for index in outer]
                along = [Factor(lane, None, name=None if outer else view.prefix + lane)]
                if not outer and not sums and size > 64 * tile * lanes:
                    along.append(Factor(lane, 64))
                    along[0] = Factor(lane, None, name=view.prefix + lane)
                registers = [Factor(lane, tile, "tile")] if tile > 1 else []
                registers.append(Factor(lane, lanes, "lane"))
                inner = [Factor(index, None) for index in between]
                if unroll > 1 and inner and self._fits(inner[-1].index, unroll):
                    inner.append(Factor(inner[-1].index, unroll, "unroll"))
                elif unroll > 1:
                    continue
                tail = [*inner, *late, *along] if lane in sums else [*along, *late, *inner]
                all_factors = (*factors, *tail, *registers)
                waste = -(-size // (tile * lanes)) * tile * lanes / size
                estimate = Estimate(row_seconds(self.shapes, view.roots, view.stops, self.machine, lane, waste), 1)
                for kept in self._keep_choices(view, lane, tuple([*along, *registers]), outer, sums):
                    yield Nest(all_factors, kept, estimate, "rows")

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
        return [t for t in terms if t.op in costly and lane in t.free and users.get(t, 0) > 1 and t not in view.roots]

    # ---- contractions: register tiles, panels, blocks

    def _contractions(self, view: StageView, found: Contraction) -> Iterator[Nest]:
        lanes = self.machine.lanes
        for contraction in (found, found.swapped()):
            columns = [i for i in contraction.columns if self.shapes.sizes[i] >= lanes // 2]
            if not columns or not contraction.rows:
                continue
            lane = min(columns, key=lambda index: (view.strides.get(index, 1 << 60), index))
            row = max(contraction.rows, key=lambda index: self.shapes.sizes[index])
            stops = view.stops | {contraction.reduction}
            extra = row_seconds(self.shapes, view.roots, stops, self.machine, lane, 1.0)
            for vectors, tile in itertools.product(*self.tiles[:2]):
                if tile * vectors + vectors + 1 > self.machine.registers:
                    continue
                if vectors > 1 and not self._fits(lane, vectors * lanes) and self.shapes.sizes[lane] < vectors * lanes:
                    continue
                for block, pack_rows, swap in itertools.product(*self.tiles[2:]):
                    if block > 1 and block * tile > 2 * self.shapes.sizes[row]:
                        continue
                    nest = self._contraction(view, contraction, lane, row, vectors, tile, block, pack_rows, swap)
                    if nest is not None:
                        estimate = Estimate(nest.estimate.core_seconds + extra, 1)
                        yield Nest(nest.factors, nest.kept, estimate, nest.form)

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
        if unroll > 1:
            sums.append(Factor(sums[-1].index, unroll, "unroll"))
        registers = [Factor(row, tile, "tile")] if tile > 1 else []
        registers += [Factor(lane, vectors, "tile")] if vectors > 1 else []
        registers.append(Factor(lane, lanes, "lane"))
        outer = [*columns, *rows] if swap else [*rows, *columns]
        factors = (*batch, *outer, *inner, *sums, *registers)
        last_batch = prefix + contraction.batch[-1] if batch else view.at
        kept: list[Stage] = []
        packs: list[tuple[Term, int, bool]] = []
        right = contraction.right
        if right not in view.stops and not self._panel(view, contraction, lane, vectors, last_batch, kept, packs):
            return None
        left = contraction.left
        plain = left.op == "load" or left in view.stops
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
            kept.append(Stage((Target(term=self.numbers[left], buffer=Buffer(tuple(order), at)),), tuple(fill), at))
            packs.append((left, 1, bool(contiguous)))
        elif not plain:
            return None
        estimate = contraction_seconds(
            self.shapes, contraction, self.machine, lane, row, vectors, tile, packs, bool(pack_rows)
        )
        return Nest(factors, tuple(kept), Estimate(estimate, 1), "contraction")

    def _panel(
        self,
        view: StageView,
        contraction: Contraction,
        lane: str,
        vectors: int,
        last_batch: str | None,
        kept: list[Stage],
        packs: list[tuple[Term, int, bool]],
    ) -> bool:
        """Lay the lane side out in panels, where it is not contiguous along the lane; False if it cannot be."""
        right, lanes = contraction.right, self.machine.lanes
        digits = [(i, None) for i in contraction.columns if i != lane]
        width = vectors * lanes
        digits += [(lane, None), *((i, None) for i in contraction.sums), (lane, width)]
        bound = view.bound | set(contraction.batch)
        if right.op == "load" and self.region.arguments[right.load.argument].constant and not right.load.dynamic:
            if right.free & bound or right.load.guarded:
                return False
            buffer = Buffer(tuple(digits), None, "packed")
            kept.append(Stage((Target(term=self.numbers[right], buffer=buffer),), (), None))
            return True
        if right.op == "load" and self.shapes.stride(right, lane) == 1 and vectors <= 4:
            return True
        at = last_batch
        contiguous = next((i for i in contraction.sums if self.shapes.stride(right, i) == 1), None)
        fill = [Factor(i, None) for i in contraction.columns if i != lane]
        fill += [Factor(lane, None)]
        if contiguous is not None and self._fits(contiguous, lanes):
            fill += [Factor(i, None) for i in contraction.sums]
            fill += [Factor(lane, width), Factor(contiguous, lanes, "lane")]
        else:
            own = [i for i in _own_sums(right, view.stops) if i not in contraction.sums]
            fill += [Factor(i, None) for i in (*contraction.sums, *own)]
            fill += [Factor(lane, vectors, "tile")] if vectors > 1 else []
            fill.append(Factor(lane, lanes, "lane"))
        kept.append(Stage((Target(term=self.numbers[right], buffer=Buffer(tuple(digits), at)),), tuple(fill), at))
        packs.append((right, 1, contiguous is None))
        return True

    # ---- merged regions: inner roots become stages at shared loops

    def _merged(self) -> list[Candidate]:
        output = self.region.outputs[0]
        if len(self.region.outputs) != 1 or self.region.is_ordered(output) or output.guard is not None:
            return []
        inner = self.region.inner
        strides = self.shapes.output_strides(0)
        free = sorted(output.indices, key=lambda index: (-strides[index], index))
        bound_by_reductions = set(reduced_indices(output.terms, frozenset()))
        common = [i for i in free if all(i in term.free for term in inner) and i not in bound_by_reductions]
        stops = frozenset(inner)
        batch = list(common)
        for term in (*inner, output.term):
            contraction = find_contraction((term,), sorted(term.free), frozenset(), stops - {term})
            if contraction is not None:
                batch = [i for i in batch if i in contraction.left.free and i in contraction.right.free]
        row = max((i for i in common if i not in batch), key=lambda i: self.shapes.sizes[i], default=None)
        found: list[Candidate] = []
        smallest = min(self.blocks)
        for block in self.blocks if row is not None else (0,):
            if row is not None and block > max(smallest, 2 * self.shapes.sizes[row]):
                continue
            found += self._merged_at(output.term, free, strides, batch, row, block, stops)
        return found

    def _merged_at(
        self, root: Term, free: list[str], strides: dict[str, int], batch: list[str], row: str | None, block: int,
        stops: frozenset[Term],
    ) -> list[Candidate]:
        shared = [Factor(i, None, name=f"batch_{i}") for i in batch]
        if row is not None:
            shared.append(Factor(row, None, name="block"))
        if not shared:
            return []
        at = shared[-1].name
        last_batch = shared[len(batch) - 1].name if batch else None
        bound = frozenset(batch)
        saved = dict(self.shapes.sizes)
        self.shapes.sizes.update(dict.fromkeys(batch, 1))
        if row is not None:
            self.shapes.sizes[row] = block
        try:
            stages: list[list[tuple[Nest, Stage]]] = []
            for position, term in enumerate(self.region.inner):
                own = sorted(term.free - bound)
                view = StageView((term,), own, {}, bound, at, stops - {term}, f"s{position}_")
                options = self._stage_options(view, term, own, row, block, at, last_batch)
                if not options:
                    return []
                stages.append(options)
            outer = [i for i in free if i not in bound]
            final = StageView((root,), outer, strides, bound, at, stops - {root}, "")
            finals = self._block_row(self._nests(final), row, block)[:4]
        finally:
            self.shapes.sizes.update(saved)
        repeats = self.shapes.volume(set(batch))
        if row is not None:
            repeats *= -(-self.shapes.sizes[row] // block)
        found: list[Candidate] = []
        for nest, *choice in itertools.product(finals, *(options[: 3 if len(stages) < 3 else 2 if len(stages) < 5 else 1] for options in stages)):
            core = nest.estimate.core_seconds + sum(option[0].estimate.core_seconds for option in choice)
            core += self._crossing(root, nest, choice) / repeats
            factors, grid = self._parallel((*shared, *nest.factors), StageView((root,), [*batch, *([row] if row else [])], strides, frozenset(), None, stops, ""))
            kept = tuple(stage for option in choice for stage in (*option[0].kept, option[1])) + nest.kept
            schedule = Schedule((Stage((Target(output=0),), factors),), kept)
            seconds = with_traffic(core * repeats, traffic_seconds(self.shapes, self.machine))
            found.append(Candidate(schedule, Estimate(seconds, grid), "merged"))
        return found

    def _crossing(self, root: Term, final: Nest, choice: list[tuple[Nest, Stage]]) -> float:
        """Seconds of reading buffers along another index than they were written along, in the whole region."""
        lanes = {term: _lane(nest) for term, (nest, _) in zip(self.region.inner, choice, strict=True)}
        total = 0.0
        for consumer, lane in [*lanes.items(), (root, _lane(final))]:
            for term in below((consumer,), frozenset(self.region.inner)):
                if term in lanes and term is not consumer and lane in term.free and lanes[term] != lane:
                    total += STRIDED_SECONDS * self.shapes.volume(set(term.free))
        return total

    def _stage_options(
        self, view: StageView, term: Term, own: list[str], row: str | None, block: int, at: str | None, last_batch: str | None
    ) -> list[tuple[Nest, Stage]]:
        nests = self._block_row(self._nests(view), row, block)
        options: list[tuple[Nest, Stage]] = []
        for nest in sorted(nests, key=lambda nest: nest.estimate.core_seconds)[:6]:
            lane = _lane(nest)
            digits = [(i, block if i == row else None) for i in own if i != lane]
            if lane is not None:
                digits.append((lane, block if lane == row else None))
            target = Target(term=self.numbers[term], buffer=Buffer(tuple(digits), at))
            lifted = tuple(self._lift(stage, row, last_batch, at) for stage in nest.kept)
            options.append((Nest(nest.factors, lifted, nest.estimate, nest.form), Stage((target,), nest.factors, at)))
        return options

    def _lift(self, stage: Stage, row: str | None, last_batch: str | None, at: str | None) -> Stage:
        """A panel that does not depend on the row block is filled once per batch, not once per block."""
        if stage.at != at or row is None:
            return stage
        terms = self.region.terms()
        if any(row in terms[target.term].free for target in stage.targets):
            return stage
        targets = tuple(
            Target(term=t.term, buffer=Buffer(t.buffer.digits, last_batch, t.buffer.home)) for t in stage.targets if t.buffer
        )
        return Stage(targets, stage.factors, last_batch)

    def _block_row(self, nests: list[Nest], row: str | None, block: int) -> list[Nest]:
        """Nests whose open factor of the row index is set to what fills one block; others are left out."""
        if row is None:
            return nests
        result: list[Nest] = []
        for nest in nests:
            covered = 1
            for factor in nest.factors:
                covered *= factor.extent if factor.index == row and factor.extent is not None else 1
            if block % covered == 0:
                factors = tuple(_filled(factor, row, block // covered) for factor in nest.factors)
                result.append(Nest(factors, nest.kept, nest.estimate, nest.form))
        return sorted(result, key=lambda nest: nest.estimate.core_seconds)


def _filled(factor: Factor, index: str, extent: int) -> Factor:
    """The factor, with `extent` where it is an open one of `index`."""
    if factor.index != index or factor.extent is not None:
        return factor
    return Factor(index, extent, factor.role, factor.name, factor.masked)


def _registers(schedule: Schedule) -> tuple[str, ...]:
    return tuple(str(f) for stage in schedule.roots for f in stage.factors if f.role in ("tile", "lane"))


def _lane(nest: Nest) -> str | None:
    return next((factor.index for factor in nest.factors if factor.role == "lane"), None)


def _along(term: Term) -> list[str]:
    """The indices that a reduction, a scan or a carried loop, loops inside its steps included, runs over."""
    if term.op == "scan":
        return [cast(ScanAttribute, term.attribute).index]
    if term.op == "reduce":
        return list(term.reduce.indices)
    return [t.loop.index for t in reversed(list(postorder([term]))) if t.op == "loop" and t.loop.index not in term.free]


def _own_sums(term: Term, stops: frozenset[Term]) -> list[str]:
    return reduced_indices((term,), stops)
