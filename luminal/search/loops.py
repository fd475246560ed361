"""Schedules of a region whose results come out of a carried loop: carries in memory, a nest for each stage of its body.

    batch loops, a block of rows
        the carries' initial values
        loop over blocks of the folded index: each inner term in order, then the next value of each carry
        the results

As in generate.py, nothing here knows what is computed: what is a batch, rows and lanes follows from index sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.schedule import Buffer, CarriedLoop, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.passes.needed import Conditions, needed_by_loop, part_needed
from luminal.search.generate import Candidate, Generator, blocks_of, reads_of
from luminal.search.ordering import best
from luminal.search.roofline import Estimate, row_seconds
from luminal.search.shapes import Shapes, below, reduced_indices
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
)

COMBINATIONS, COARSE_COMBINATIONS = 12, 2
"""As many combinations of nests are schedules, for each block of rows: those that lose least by the model."""
OPTIONS = {"rows": 2, "contraction": 3}
"""Nests of each stage that are combined with each other, by their kind; lanes in turn."""


@dataclass(frozen=True)
class _Body:
    """The loop of a region: its outer index is the loop's, its inner one the place in a block; `stages` are the terms
    that one iteration computes, those of one nest together, in order."""

    loop: Term
    outer: str
    inner: str
    stages: tuple[tuple[Term, ...], ...]

    @property
    def guard(self) -> frozenset[Term]:
        """The guard of the loop, which is known before it, if there is one."""
        return frozenset() if self.loop.guard is None else frozenset({self.loop.guard})

    @property
    def inits(self) -> tuple[Term, ...]:
        return self.loop.inits

    @property
    def nexts(self) -> tuple[Term, ...]:
        return self.loop.nexts

    @property
    def targets(self) -> frozenset[Term]:
        """All terms that the stages of an iteration leave in memory."""
        return frozenset(term for stage in self.stages for term in stage)


@dataclass(frozen=True)
class _Option:
    """One way to compute a stage: its nest, with the stage and the stages that it keeps.

    `inside`: seconds of an iteration; `once`: those that a block of rows costs beside them; `whole`: those that a batch
    does, for each iteration, where panels are filled for all of them.  `terms`: what it computes; `reads`: what it
    reads of what the stages keep.
    """

    nest: Nest
    stage: Stage | None
    kept: tuple[Stage, ...]
    inside: Seconds
    once: Seconds
    whole: Seconds
    terms: tuple[Term, ...]
    reads: tuple[Term, ...]
    lane: str | None


class LoopGenerator(Generator):
    """Schedules of a region with one carried loop over the blocks of an index."""

    def _shaped(self) -> list[Candidate]:
        body = self._body()
        outputs = self.region.outputs
        if body is None or len({output.indices for output in outputs}) != 1:
            return []
        if any(self.region.is_ordered(output) or output.guard for output in outputs):
            return []
        carries = body.loop.loop.carries
        common = [i for i in self._outermost_first(0) if all(i in free for free in carries)]
        batch, row = self._batch_and_row(common, body.targets, body.targets)
        if row is None and not batch:
            return []
        is_alone = row is None and any(self.shapes.stride(load, body.inner) == 1 for load in self.loads)
        if row is None:  # nothing tells the common indices apart
            row = max(batch, key=lambda index: self.shapes.sizes[index])
            batch.remove(row)
        before = self._before(body)
        found: list[Candidate] = []
        # rows that share nothing are best read one by one, from end to end
        for block in (1,) if is_alone else self._row_blocks(row):
            found += self._blocked(body, batch, row, block, before)
        return found

    def _before(self, body: _Body) -> tuple[Nest, tuple[Factor, ...]] | None:
        """How the guard of the loop is computed before it, with all cores: a nest with its factors."""
        for guard in body.guard:
            view = StageView((guard,), sorted(guard.free), {}, frozenset(), None, frozenset(), "guard_")
            nest = self._ranked(self._nests(view))[0]
            return nest, self._parallel(nest.factors, view)
        return None

    def _body(self) -> _Body | None:
        loops = [term for term in self.region.terms() if term.op == "loop"]
        if len(loops) != 1:
            return None
        (loop,) = loops
        outer = loop.loop.index
        whole = self.region.whole(outer)[0]
        parts = [part for part, (of, _) in self.region.parents.items() if of == whole and part != outer]
        if len(parts) != 1:
            return None
        nexts = loop.nexts
        first, *rest = nexts
        # what reads a carry is computed in the nest that overwrites it, before it does
        early = tuple(term for term in self.region.inner if _reads_carry(term, nexts))
        stages: list[tuple[Term, ...]] = []
        for term in self.region.inner:
            if term not in early:
                stages.append((term,))
            elif term is early[0]:
                stages.append((*early, first))
        done = {term for stage in stages for term in stage}
        stages += [(term,) for term in (first, *rest) if term not in done]
        return _Body(loop, outer, parts[0], tuple(_joined(stages, rest, parts[0])))

    def _blocked(
        self,
        body: _Body,
        batch: list[str],
        row: str,
        block: int,
        before: tuple[Nest, tuple[Factor, ...]] | None,
    ) -> list[Candidate]:
        results = tuple(output.term for output in self.region.outputs)
        shared = [*(Factor(i, None, name=f"batch_{i}") for i in batch), Factor(row, None, name="block")]
        last_batch = shared[-2].name if batch else None
        bound = frozenset([*batch, row] if block == 1 else batch)
        projects = frozenset(term for term in self.region.terms() if term.op == "project")
        computed = tuple(term for term in results if term not in projects)
        options: list[list[_Option]] = []
        with self._within(dict.fromkeys(batch, 1) | {row: block}):
            outer = [i for i in self._outermost_first(0) if i not in bound]
            view = StageView(computed, outer, self.shapes.output_strides(0), bound, "block", projects, "")
            reads = tuple(
                term for term in reads_of(results, body.targets | body.guard) if term not in body.guard
            )
            finals = [
                _Option(
                    nest,
                    None,
                    nest.kept,
                    self.no_seconds,
                    nest.seconds,
                    self.no_seconds,
                    (),
                    reads,
                    lane_of(nest),
                )
                for nest in self._block_row(self._nests(view), row, block)[:2]
            ]
            with self._within({body.outer: 1}):
                for position, terms in enumerate(body.stages):
                    found = self._options(body, position, terms, bound, row, block, last_batch)
                    if not found:
                        return []
                    options.append(found[: OPTIONS[found[0].nest.kind]])
        combined = list(itertools.product(finals, *options))
        needed = needed_by_loop(self.region.table, body.loop).conditions
        parts = [_part(shapes, needed, body, row, block) for shapes in self.priced]
        priced = [self._priced(body, final, choice, batch, row, block, parts) for final, *choice in combined]
        candidates: list[Candidate] = []
        for number in best(priced, COARSE_COMBINATIONS if self.coarse else COMBINATIONS):
            final, *choice = combined[number]
            schedule, factors = self._schedule(body, shared, final.nest, choice)
            estimates = self._estimates(priced[number], factors)
            if before is not None:
                schedule, estimates = self._guarded(body, schedule, before, (priced[number], factors))
            candidates.append(Candidate(schedule, estimates, "loop"))
        return candidates

    def _guarded(
        self,
        body: _Body,
        schedule: Schedule,
        before: tuple[Nest, tuple[Factor, ...]],
        after: tuple[Seconds, tuple[Factor, ...]],
    ) -> tuple[Schedule, tuple[Estimate, ...]]:
        """A schedule that computes the guard of the loop in a phase before it."""
        nest, factors = before
        targets = tuple(
            Target(term=self.numbers[guard], buffer=Buffer(tuple((i, None) for i in sorted(guard.free))))
            for guard in body.guard
        )
        kept = (*nest.kept, Stage(targets, factors), *schedule.kept)
        return replace(schedule, kept=kept), self._phased_estimates([(nest.seconds, factors), after])

    def _priced(
        self,
        body: _Body,
        final: _Option,
        choice: Sequence[_Option],
        batch: Sequence[str],
        row: str,
        block: int,
        parts: Sequence[float],
    ) -> Seconds:
        """Of one core for the whole region; `parts` of all iterations are needed, at each of the sizes."""
        inside = add_seconds([option.inside for option in choice])
        around = add_seconds([option.once for option in (final, *choice)])
        whole = add_seconds([option.whole for option in choice])
        lanes = {term: option.lane for option in choice for term in option.terms}
        crossing = self._crossing(lanes, ((option.reads, option.lane) for option in (final, *choice)))
        return tuple(
            (within * shapes.sizes[body.outer] * part + once) * blocks_of(shapes, batch, row, block)
            + panels * shapes.sizes[body.outer] * shapes.volume(set(batch))
            + strided
            for shapes, part, within, once, panels, strided in zip(
                self.priced, parts, inside, around, whole, crossing, strict=True
            )
        )

    def _options(
        self,
        body: _Body,
        position: int,
        terms: tuple[Term, ...],
        bound: frozenset[str],
        row: str,
        block: int,
        last_batch: str | None,
    ) -> list[_Option]:
        """The nests of a stage, the best of each lane first."""
        around = bound | {body.outer}
        own = sorted(frozenset.intersection(*(term.free for term in terms)) - around)
        roots = tuple(term for term in terms if term.free <= around | {*own})
        view = StageView(roots, own, {}, around, "loop", body.targets - set(terms), f"s{position}_")
        options: list[_Option] = []
        reads = reads_of(terms, view.stops)
        nests = self._block_row(self._nests(view), row, block)
        for nest in each_lane_first([nest for nest in nests if len(terms) == 1 or not nest.kept]):
            targets = tuple(
                Target(
                    term=self.numbers[term],
                    buffer=Buffer(
                        digits_of(sorted(term.free - around), lane_of(nest), row, block),
                        "block" if term in body.nexts else "loop",
                    ),
                )
                for term in terms
            )
            stage = Stage(targets, nest.factors, "loop")
            near = tuple(self._lifted(body, kept, row, last_batch) for kept in nest.kept)
            far = tuple(
                self._for_all(body, kept, nest, row, last_batch) or near[n]
                for n, kept in enumerate(nest.kept)
            )
            for kept in dict.fromkeys((near, far)):
                moved_out = nest.filled(kept)
                once, whole = (
                    add_seconds(
                        [self.no_seconds, *(s for other, s in moved_out if (other in near) == is_near)]
                    )
                    for is_near in (True, False)
                )
                inside = less_seconds(nest.seconds, add_seconds([once, whole]))
                options.append(_Option(nest, stage, kept, inside, once, whole, terms, reads, lane_of(nest)))
        return options

    def _for_all(
        self, body: _Body, stage: Stage, nest: Nest, row: str, last_batch: str | None
    ) -> Stage | None:
        """A panel that differs between iterations, but not between blocks of rows, filled for all iterations, once for
        a batch; None for others."""
        term = self.region.terms()[stage.targets[0].term]
        needed = set(below((term,), frozenset()))
        depends = term.free & {body.outer, body.inner} and row not in term.free
        if not depends or needed & body.targets or any(each.op == "carry" for each in needed):
            return None
        names = [factor.name for factor in nest.factors]
        around = nest.factors[: names.index(stage.at) + 1] if stage.at in names else ()
        loops = [
            Factor(body.outer, None),
            *(Factor(f.index, f.extent) for f in around if f.index in term.free),
        ]
        (target,) = stage.targets
        assert target.buffer is not None
        digits = (*((factor.index, factor.extent) for factor in loops), *target.buffer.digits)
        buffer = Buffer(digits, last_batch)
        return Stage((replace(target, buffer=buffer),), (*loops, *stage.factors), last_batch)

    def _lifted(self, body: _Body, stage: Stage, row: str, last_batch: str | None) -> Stage:
        """A panel is filled where it first may be: once for a batch, for a block of rows, or in every iteration."""
        if stage.at != "loop":
            return stage
        terms = self.region.terms()
        free = frozenset().union(*(terms[target.term].free for target in stage.targets))
        if free & {body.outer, body.inner}:
            return stage
        return moved(stage, "block" if row in free else last_batch)

    def _schedule(
        self, body: _Body, shared: Sequence[Factor], final: Nest, choice: Sequence[_Option]
    ) -> tuple[Schedule, tuple[Factor, ...]]:
        """The schedule of a combination, and its outermost factors."""
        stages = tuple(option.stage for option in choice if option.stage is not None)
        buffers = {target.term: target.buffer for stage in stages for target in stage.targets}
        carried = tuple(buffers[self.numbers[term]] or Buffer() for term in body.nexts)
        inits = tuple(
            Stage((Target(term=self.numbers[init], buffer=buffer),), self._filling(buffer), "block")
            for init, buffer in zip(body.inits, carried, strict=True)
        )
        over = (Factor(body.outer, None, name="loop"),)
        loop = CarriedLoop(self.numbers[body.loop], carried, inits, over, stages, "block")
        outputs = self.region.outputs
        indices = [factor.index for factor in shared]
        view = StageView(
            tuple(output.term for output in outputs), indices, {}, frozenset(), None, frozenset(), ""
        )
        factors = self._parallel((*shared, *final.factors), view)
        kept = tuple(stage for option in choice for stage in option.kept) + final.kept
        root = Stage(tuple(Target(output=number) for number in range(len(outputs))), factors)
        return Schedule((root,), kept, (loop,)), factors

    def _rows(self, view: StageView) -> Iterator[Nest]:
        """As for any region; what has no index left is computed as it is."""
        if view.free or reduced_indices(view.roots, view.stops):
            yield from super()._rows(view)
            return
        seconds = self._each(
            lambda shapes: row_seconds(shapes, view.roots, view.stops, self.machine, "", 1.0)
        )
        yield Nest((), (), seconds, "rows")

    def _filling(self, buffer: Buffer) -> tuple[Factor, ...]:
        """Loops over a buffer, the last of its digits in vectors where they divide it."""
        if not buffer.digits:
            return ()
        *outer, (last, extent) = buffer.digits
        factors = [Factor(index, size) for index, size in outer]
        size = extent if extent is not None else self.region.extents[last].constant
        lanes = self.machine.lanes
        if size is None or size % lanes:
            return (*factors, Factor(last, extent))
        return (
            *factors,
            Factor(last, None if extent is None else size // lanes),
            Factor(last, lanes, "lane"),
        )


def _part(shapes: Shapes, needed: Conditions, body: _Body, row: str, block: int) -> float:
    """How many iterations a block of rows needs, of all, on the average."""
    if not needed:
        return 1.0
    inside = shapes.sizes[body.inner]
    blocks = {row: block, body.inner: inside}
    return part_needed(needed, body.outer, shapes.sizes, blocks, shapes.values)


def _joined(stages: Sequence[tuple[Term, ...]], rest: Sequence[Term], inner: str) -> list[tuple[Term, ...]]:
    """The stages, but the sum of a kept term over the places of a block stands in the nest that computes the term:

    keep w; ... next l = l * c + sum_i w   ->   keep w, next l: w is not read again for its sum
    """
    found = list(stages)
    kept = frozenset(term for stage in stages for term in stage)
    for following in rest:
        sums = [each for each in below((following,), kept) if each.op == "reduce"]
        for term in dict.fromkeys(operand for each in sums for operand in each.operands):
            if term.free - {inner} == following.free and {(term,), (following,)} <= {*found}:
                found[found.index((term,))] = (following, term)
                found.remove((following,))
    return found


def _reads_carry(term: Term, nexts: Sequence[Term]) -> bool:
    """Whether a term reads a carry other than through next values: it must be known before that is overwritten."""
    return any(found.op == "carry" for found in below((term,), frozenset(nexts)))
