"""Schedules of a region, from index sets alone: a scalar form, a row form and a contraction form for each stage.

Nothing here knows what is computed.  Every choice (which index is the lane, tile sizes, blocks, what is packed, what is
kept, how many loops run in parallel) is enumerated; the roofline orders and the machine decides.
"""

from __future__ import annotations

import collections.abc
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.passes.ordered_writes import columns_of
from luminal.search.nests import NestGenerator
from luminal.search.ordering import best, ordered
from luminal.search.roofline import STRIDED_SECONDS, Estimate
from luminal.search.shapes import Shapes, below, find_contraction, reduced_indices, scanned_indices
from luminal.search.stage import (
    Nest,
    Seconds,
    StageView,
    add_seconds,
    digits_of,
    each_lane_first,
    lane_of,
    less_seconds,
    moved,
    parallel_trips,
    trips,
)

Element = TypeVar("Element")

PHASE_NESTS = 3
"""Nests of each phase that are combined with each other."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule, the roofline's estimates at the representative sizes, the kind of its nests, and the form of the
    region that it is for, "" for the region's own."""

    schedule: Schedule
    estimates: tuple[Estimate, ...]
    kind: str
    form: str = ""

    @property
    def estimate(self) -> Estimate:
        """At the expected sizes."""
        return self.estimates[0]

    @property
    def cost(self) -> int:
        """The nanoseconds that one iteration of its parallel loops is expected to take."""
        grid = max(1, self.estimate.grid)
        return max(1, int(self.estimate.core_seconds * 1e9 / grid))

    @property
    def family(self) -> tuple[str, ...]:
        """Its form, and the register tiles of what it stores: candidates that share them differ in little else."""
        stages = self.schedule.roots
        return self.form, *(str(f) for s in stages for f in s.factors if f.role in ("tile", "lane"))


class Generator(NestGenerator):
    """Enumerates schedules of one region for one machine and representative sizes."""

    def candidates(self) -> list[Candidate]:
        """All schedules that any of the sizes suggests, the promising first, then plain ones; never empty.

        Those come first that lose least against the best for each of the sizes.
        """
        return [*ordered(self.suggested(), self.machine), *self.fallbacks()]

    def suggested(self, for_all: bool = True) -> list[Candidate]:
        """The schedules that any of the sizes suggests, or the first alone, in no order; there may be none."""
        formed = self._formed()
        for number in range(1, len(self.priced) if for_all else 1):
            for candidate in self._leading(number)._formed().values():
                estimates = _rotated(candidate.estimates, -number)
                formed.setdefault(candidate.schedule, replace(candidate, estimates=estimates))
        return list(formed.values())

    def _leading(self, number: int) -> Generator:
        """A generator that enumerates what another one of the sizes suggests."""
        first, *others = _rotated(self.priced, number)
        return type(self)(self.region, self.machine, first, self.coarse, others)

    def _formed(self) -> dict[Schedule, Candidate]:
        """The schedules that the first of the sizes suggests, each with its lowest estimate."""
        best: dict[Schedule, Candidate] = {}
        for candidate in self._shaped():
            known = best.setdefault(candidate.schedule, candidate)
            if self._seconds(candidate.estimate) < self._seconds(known.estimate):
                best[candidate.schedule] = candidate
        return best

    def _shaped(self) -> list[Candidate]:
        """The schedules of the kind that the region is of."""
        return self._merged() if self.region.inner else self._single()

    def _seconds(self, estimate: Estimate) -> float:
        return estimate.seconds(self.machine)

    def fallbacks(self) -> list[Candidate]:
        """Slow schedules of plain loops, of which one is legal for every region: all in one nest for each output; or
        every reduction and scan kept in memory of its own first, where none can stand inside another's loops."""
        seconds = self._each(lambda shapes: shapes.volume(set(shapes.sizes)) * 2e-9)
        once, twice = (tuple(Estimate(factor * each, 1) for each in seconds) for factor in (1, 2))
        kept = tuple(self._kept_plainly())
        stops = frozenset(self.region.terms()[stage.targets[0].term] for stage in kept)
        return [
            Candidate(Schedule(tuple(self._plain_roots(frozenset()))), once, "scalar"),
            Candidate(Schedule(tuple(self._plain_roots(stops)), kept), twice, "scalar"),
        ]

    def _outermost_first(self, position: int) -> list[str]:
        """The indices of an output by falling stride."""
        strides = self.shapes.output_strides(position)
        return sorted(self.region.outputs[position].indices, key=lambda index: (-strides[index], index))

    def _plain_roots(self, stops: frozenset[Term]) -> Iterator[Stage]:
        for position, output in enumerate(self.region.outputs):
            ordered = self.region.is_ordered(output)
            free = sorted(output.indices, key=natural_key) if ordered else self._outermost_first(position)
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
        """A stage for each reduction, scan and carried loop outside of other loops, operands before users."""
        open_loops: dict[Term, frozenset[int]] = {}
        kept: frozenset[Term] = frozenset()
        for term, number in self.numbers.items():
            around = frozenset[int]().union(*(open_loops[operand] for operand in term.operands))
            if term.op == "carry":
                around = frozenset({cast("tuple[int, int]", term.attribute)[0]})
            elif term.op == "loop":
                around -= {term.loop.identifier}
            open_loops[term] = around
            if term.op not in ("reduce", "scan", "project") or around:
                continue
            along = _along(term, kept)
            kept |= {term}
            free = sorted(term.free - set(along), key=natural_key)
            held = free + along if term.op == "scan" else free
            target = Target(term=number, buffer=Buffer(tuple((index, None) for index in held)))
            yield Stage((target,), tuple(Factor(index, None) for index in (*free, *along)))

    def _single(self) -> list[Candidate]:
        outputs = self.region.outputs
        if any(map(self.region.is_ordered, outputs)):
            return self._meeting()
        if len({o.indices for o in outputs}) != 1:
            return []
        roots = tuple(term for output in outputs for term in output.terms)
        scanned = scanned_indices(roots, frozenset())
        strides = self.shapes.output_strides(0)
        free = self._outermost_first(0)
        view = StageView(roots, free, strides, frozenset(), None, frozenset(), "")
        found: list[Candidate] = []
        for nest in self._scanned(view, scanned) if scanned else self._nests(view):
            factors = self._parallel(nest.factors, view, nest.kept)
            root = Stage(tuple(Target(output=n) for n in range(len(outputs))), factors)
            estimates = self._estimates(nest.seconds, factors)
            found.append(Candidate(Schedule((root,), nest.kept), estimates, nest.kind))
        return found

    def _meeting(self) -> list[Candidate]:
        """Schedules of writes that may meet: in their order, and for each of them all columns, in vectors; the columns
        inside, or outside, where threads may share them."""
        (output, *others) = self.region.outputs
        columns = columns_of(self.region, output) & frozenset(self.shapes.output_strides(0))
        lane = next((i for i in sorted(columns) if self.shapes.output_strides(0)[i] == 1), None)
        if others or lane is None or reduced_indices(output.terms, frozenset()):
            return []
        lanes = self.machine.lanes
        view = StageView(output.terms, sorted(output.indices), {}, frozenset(), None, frozenset(), "")
        rest = [Factor(i, None) for i in sorted(output.indices - columns, key=natural_key)]
        beside = [Factor(i, None) for i in self._outermost_first(0) if i in columns and i != lane]
        found: list[Candidate] = []
        for tile in (t for t in (4, 2, 1) if t == 1 or self._fits(lane, t * lanes)):
            registers = [Factor(lane, tile, "tile")] if tile > 1 else []
            registers.append(Factor(lane, lanes, "lane"))
            seconds = self._row_seconds(view, frozenset(), lane, tile * lanes)
            for outside in (False, True):
                along = [*beside, Factor(lane, None)]
                order = [*along, *rest] if outside else [*rest, *along]
                factors = (*order, *registers)
                if outside:
                    factors = (Factor(order[0].index, None, "parallel"), *factors[1:])
                schedule = Schedule((Stage((Target(output=0),), factors),))
                found.append(Candidate(schedule, self._estimates(seconds, factors), "rows"))
        return found

    def _estimates(self, seconds: Seconds, factors: tuple[Factor, ...]) -> tuple[Estimate, ...]:
        """Those of a region that takes one core so long, its traffic aside, and has the outermost factors."""
        grids = self._grids(factors)
        return tuple(
            Estimate(core, grid, traffic=traffic)
            for core, traffic, grid in zip(seconds, self.traffic, grids, strict=True)
        )

    def _grids(self, factors: tuple[Factor, ...]) -> tuple[int, ...]:
        """How many independent parts the parallel loops of a nest have, at each of the sizes."""
        return tuple(parallel_trips(shapes, factors) for shapes in self.priced)

    def _phased_estimates(self, phases: Sequence[tuple[Seconds, tuple[Factor, ...]]]) -> tuple[Estimate, ...]:
        """Those of a region of several nests that wait for each other."""
        seconds = add_seconds([each for each, _ in phases])
        last = self._estimates(seconds, phases[-1][1])
        grids = [self._grids(factors) for _, factors in phases[:-1]]
        return tuple(
            replace(
                estimate,
                before=tuple(
                    (part[number] / whole, grid[number])
                    for (part, _), grid in zip(phases[:-1], grids, strict=True)
                    if whole
                ),
            )
            for number, (estimate, whole) in enumerate(zip(last, seconds, strict=True))
        )

    def _parallel(
        self, factors: tuple[Factor, ...], view: StageView, kept: Sequence[Stage] = ()
    ) -> tuple[Factor, ...]:
        """Make leading loops over free indices parallel until all cores have work, or one fills what is kept for
        those inside."""
        wanted = 8 * self.machine.threads
        filling = {stage.at for stage in kept} - {None}
        in_order = self.shapes.in_order(view.roots, view.stops)
        grid = 1
        result = list(factors)
        seen: set[str] = set()
        for position, factor in enumerate(factors):
            stop = factor.role != "loop" or factor.index in seen or factor.index in in_order
            if stop or factor.index not in view.free or grid >= wanted:
                break
            seen.add(factor.index)
            result[position] = Factor(factor.index, factor.extent, "parallel", factor.name)
            grid *= trips(self.shapes, factors, position)
            if factor.name in filling:
                break
        return tuple(result)

    def _merged(self) -> list[Candidate]:
        output = self.region.outputs[0]
        if len(self.region.outputs) != 1 or self.region.is_ordered(output) or output.guard is not None:
            return []
        inner = self.region.inner
        strides = self.shapes.output_strides(0)
        free = self._outermost_first(0)
        bound_by_reductions = set(reduced_indices(output.terms, frozenset()))
        common = [i for i in free if all(i in term.free for term in inner) and i not in bound_by_reductions]
        stops = frozenset(inner)
        batch, row = self._batch_and_row(common, (*inner, output.term), stops)
        apart = not batch and row is None
        # parts of an index, unlike other stages, are there to be computed by all cores
        found = self._phases(output.term, free, strides, stops) if apart or self.region.parents else []
        if apart:
            return found
        for block in (0,) if row is None else self._row_blocks(row):
            found += self._merged_at(output.term, free, strides, batch, row, block, stops)
        return found

    def _batch_and_row(
        self, common: Sequence[str], terms: Iterable[Term], kept: frozenset[Term]
    ) -> tuple[list[str], str | None]:
        """Of the indices that all stages have: those that both sides of every contraction among the terms have, and the
        largest of the others, if there is one, along which the stages are computed in blocks."""
        batch = list(common)
        for term in terms:
            found = find_contraction((term,), sorted(term.free), frozenset(), kept - {term})
            if found is not None:
                batch = [i for i in batch if i in found.left.free and i in found.right.free]
        rows = (i for i in common if i not in batch)
        return batch, max(rows, key=lambda i: self.shapes.sizes[i], default=None)

    def _row_blocks(self, row: str) -> list[int]:
        """Sizes of blocks of rows that are not much larger than all rows, the smallest in any case."""
        most = max(min(self.blocks), 2 * self.shapes.sizes[row])
        return [block for block in self.blocks if block <= most]

    def _merged_at(
        self,
        root: Term,
        free: list[str],
        strides: dict[str, int],
        batch: list[str],
        row: str | None,
        block: int,
        stops: frozenset[Term],
    ) -> list[Candidate]:
        shared = [Factor(i, None, name=f"batch_{i}") for i in batch]
        if row is not None:
            shared.append(Factor(row, None, name="block"))
        at = shared[-1].name
        last_batch = shared[len(batch) - 1].name if batch else None
        bound = frozenset(batch)
        with self._within(dict.fromkeys(batch, 1) | ({} if row is None else {row: block})):
            sums = self._sums_beside(root, stops)
            stops = stops.union(*sums.values())
            stages: list[list[tuple[Nest, Stage, Seconds]]] = []
            for position, term in enumerate(self.region.inner):
                roots = sums.get(term, (term,))
                own = sorted(roots[0].free - bound)
                view = StageView(roots, own, {}, bound, at, stops - {*roots, term}, f"s{position}_")
                options = self._stage_options(view, term, row, block, last_batch)
                if not options:
                    return []
                stages.append(options)
            outer = [i for i in free if i not in bound]
            final = StageView((root,), outer, strides, bound, at, stops - {root}, "")
            finals = each_lane_first(self._block_row(self._nests(final), row, block))[:4]
        readers = {term: reads_of((*sums.get(term, ()), term), stops) for term in (*self.region.inner, root)}
        found: list[Candidate] = []
        most = 3 if len(stages) < 3 else 2 if len(stages) < 5 else 1
        for nest, choice in itertools.product(
            finals, list(itertools.product(*(options[:most] for options in stages)))
        ):
            lanes = {
                term: lane_of(option) for term, (option, _, _) in zip(self.region.inner, choice, strict=True)
            }
            reading = [(readers[term], lane) for term, lane in (*lanes.items(), (root, lane_of(nest)))]
            lanes |= {each: lanes[term] for term, beside in sums.items() for each in beside}
            parts = add_seconds([nest.seconds, *(option.seconds for option, _, _ in choice)])
            once = add_seconds([self.no_seconds, *(panels for _, _, panels in choice)])
            seconds = tuple(
                part * blocks_of(shapes, batch, row, block) + panels * shapes.volume(set(batch)) + strided
                for shapes, part, panels, strided in zip(
                    self.priced, parts, once, self._crossing(lanes, reading), strict=True
                )
            )
            factors = self._parallel(
                (*shared, *nest.factors),
                StageView((root,), [*batch, *([row] if row else [])], strides, frozenset(), None, stops, ""),
            )
            kept = tuple(stage for option, last, _ in choice for stage in (*option.kept, last)) + nest.kept
            schedule = Schedule((Stage((Target(output=0),), factors),), kept)
            found.append(Candidate(schedule, self._estimates(seconds, factors), "merged"))
        return found

    def _phases(
        self, root: Term, free: list[str], strides: dict[str, int], stops: frozenset[Term]
    ) -> list[Candidate]:
        """Schedules of stages that have no index in common: one after the other, each with all cores."""
        options: list[list[tuple[Nest, tuple[Factor, ...]]]] = []
        for position, term in enumerate((*self.region.inner, root)):
            name, own = ("", free) if term is root else (f"s{position}_", sorted(term.free))
            view = StageView(
                (term,), own, strides if term is root else {}, frozenset(), None, stops - {term}, name
            )
            nests = each_lane_first(self._ranked(self._nests(view)))[:PHASE_NESTS]
            options.append([(nest, self._parallel(nest.factors, view)) for nest in nests])
        found: list[Candidate] = []
        for choice in itertools.product(*options):
            *stages, (last, factors) = choice
            kept: list[Stage] = []
            for term, (nest, around) in zip(self.region.inner, stages, strict=True):
                buffer = Buffer(digits_of(sorted(term.free), lane_of(nest), None, 0), None)
                kept += [*nest.kept, Stage((Target(term=self.numbers[term], buffer=buffer),), around, None)]
            schedule = Schedule((Stage((Target(output=0),), factors),), (*kept, *last.kept))
            phases = [(nest.seconds, around) for nest, around in choice]
            found.append(Candidate(schedule, self._phased_estimates(phases), "phases"))
        return found

    def _crossing(
        self, lanes: Mapping[Term, str | None], readers: Iterable[tuple[Sequence[Term], str | None]]
    ) -> Seconds:
        """Reading kept values along another index than they were written along; `lanes` are those along which each is
        written, `readers` what each stage reads and along which."""
        crossing = [
            read for reads, lane in readers for read in reads if lane in read.free and lanes[read] != lane
        ]
        return self._each(lambda shapes: STRIDED_SECONDS * sum(shapes.volume(term.free) for term in crossing))

    def _stage_options(
        self,
        view: StageView,
        term: Term,
        row: str | None,
        block: int,
        last_batch: str | None,
    ) -> list[tuple[Nest, Stage, Seconds]]:
        """The nests of a stage, the best of each lane first: each with the stage, and the seconds of panels that are
        filled once for a batch.  It keeps the roots of the view and what they are made of, a term."""
        kept = tuple(dict.fromkeys((*view.roots, term)))
        nests = self._block_row(self._nests(view), row, block)
        options: list[tuple[Nest, Stage, Seconds]] = []
        for nest in each_lane_first([nest for nest in nests if len(kept) == 1 or not nest.kept])[:6]:
            own = (sorted(each.free - view.bound) for each in kept)
            buffers = (Buffer(digits_of(each, lane_of(nest), row, block), view.at) for each in own)
            targets = tuple(
                Target(term=self.numbers[each], buffer=buffer)
                for each, buffer in zip(kept, buffers, strict=True)
            )
            lifted = tuple(self._lift(stage, row, last_batch, view.at) for stage in nest.kept)
            panels = add_seconds([self.no_seconds, *(seconds for _, seconds in nest.filled(lifted))])
            inside = replace(nest, kept=lifted, seconds=less_seconds(nest.seconds, panels))
            options.append((inside, Stage(targets, nest.factors, view.at), panels))
        return options

    def _sums_beside(self, root: Term, stops: frozenset[Term]) -> dict[Term, tuple[Term, ...]]:
        """The reductions of what a stage keeps that stand in the nest that computes it, where it is not read again for
        them: those that the result needs, of elementwise values."""
        found: dict[Term, tuple[Term, ...]] = {}
        for term in below((root,), stops):
            if term is root or term.op != "reduce" or term.operands[0] not in stops:
                continue
            (of,) = term.operands
            beside = found.get(of, ())
            if not reduced_indices((of,), stops - {of}) and all(term.free == each.free for each in beside):
                found[of] = (*beside, term)
        return found

    def _lift(self, stage: Stage, row: str | None, last_batch: str | None, at: str | None) -> Stage:
        """A panel that does not depend on the row block is filled once per batch, not once per block."""
        if stage.at != at or row is None:
            return stage
        terms = self.region.terms()
        if any(row in terms[target.term].free for target in stage.targets):
            return stage
        return moved(stage, last_batch)

    def _block_row(self, nests: list[Nest], row: str | None, block: int) -> list[Nest]:
        """Nests whose open factor of the row index is set to what fills one block; others are left out."""
        if row is None:
            return self._ranked(nests)
        result: list[Nest] = []
        for nest in nests:
            covered = 1
            for factor in nest.factors:
                covered *= factor.extent if factor.index == row and factor.extent is not None else 1
            if block % covered == 0:
                factors = tuple(_filled(factor, row, block // covered) for factor in nest.factors)
                result.append(replace(nest, factors=factors))
        return self._ranked(result)

    def _ranked(self, nests: list[Nest]) -> list[Nest]:
        """Those first that lose least against the best for each of the sizes."""
        return [nests[number] for number in best([nest.seconds for nest in nests], len(nests))]

    @contextmanager
    def _within(self, sizes: Mapping[str, int]) -> collections.abc.Generator[None]:
        """Enumerate and price what is inside loops that leave so much of some indices."""
        saved = [dict(shapes.sizes) for shapes in self.priced]
        for shapes in self.priced:
            shapes.resize(sizes)
        try:
            yield
        finally:
            for shapes, before in zip(self.priced, saved, strict=True):
                shapes.resize(before)


def _rotated(values: Sequence[Element], number: int) -> tuple[Element, ...]:
    return (*values[number:], *values[:number])


def reads_of(roots: tuple[Term, ...], stops: frozenset[Term]) -> tuple[Term, ...]:
    """What a stage reads of what others keep."""
    return tuple(term for term in below(roots, stops) if term in stops and term not in roots)


def blocks_of(shapes: Shapes, batch: Sequence[str], row: str | None, block: int) -> int:
    """How often the stages of a merged region run: for each element of a batch and each block of rows."""
    rows = 1 if row is None else -(-shapes.sizes[row] // block)
    return shapes.volume(set(batch)) * rows


def _filled(factor: Factor, index: str, extent: int) -> Factor:
    """The factor, with `extent` where it is an open one of `index`."""
    if factor.index != index or factor.extent is not None:
        return factor
    return Factor(index, extent, factor.role, factor.name, factor.masked)


def _along(term: Term, kept: frozenset[Term]) -> list[str]:
    """The indices that a reduction, a scan or a carried loop runs over, with loops inside its steps, but not with those
    that its steps read as kept values."""
    if term.op == "scan":
        return [term.scan.index]
    if term.op == "reduce":
        return list(term.reduce.indices)
    loops = [t.loop.index for t in below((term,), kept) if t.op == "loop" and t.loop.index not in term.free]
    return list(dict.fromkeys(loops))
