"""Schedules of an index in parts whose terms are computed part by part, in one nest: then what combines the parts.

    batch loops, one part: each term that has parts, in order; those that later phases read outlive the nest
    the result

As in generate.py, nothing here knows what is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.search.generate import Candidate, Generator, reads_of
from luminal.search.ordering import best
from luminal.search.stage import Nest, StageView, add_seconds, digits_of, each_lane_first, lane_of

PART = "part"
"""The name of the loop over parts."""
OPTIONS, COMBINATIONS, COARSE_COMBINATIONS = 2, 6, 1
"""Nests of each stage that are combined with each other, and combinations that are schedules."""


@dataclass(frozen=True)
class _Parts:
    """The terms that have parts: `shared` loops around all of them, the last one over the parts, and the stages inside,
    the terms of one nest together; the last stage has the loops."""

    shared: tuple[Factor, ...]
    stages: tuple[tuple[Term, ...], ...]

    @property
    def bound(self) -> frozenset[str]:
        return frozenset(factor.index for factor in self.shared)


class PartGenerator(Generator):
    """Schedules of a region one index of which is in parts."""

    def _phases(
        self, root: Term, free: list[str], strides: dict[str, int], stops: frozenset[Term]
    ) -> list[Candidate]:
        found = super()._phases(root, free, strides, stops)
        parts = self._parts()
        return found if parts is None else [*found, *self._together(parts, root, free, strides, stops)]

    def _parts(self) -> _Parts | None:
        """None where the terms that are kept do not all have the same parts."""
        inner = self.region.inner
        common = frozenset.intersection(*(term.free for term in inner))
        parts = [index for index in self.region.parents if index in common]
        if len(inner) < 2 or len(parts) != 1:
            return None
        (part,) = parts
        stages = _stages(inner)
        if stages is None:
            return None
        batch, _ = self._batch_and_row(sorted(common - {part}), inner, frozenset(inner))
        return _Parts((*(Factor(index, None) for index in batch), Factor(part, None, name=PART)), stages)

    def _together(
        self, parts: _Parts, root: Term, free: list[str], strides: dict[str, int], stops: frozenset[Term]
    ) -> list[Candidate]:
        options: list[list[tuple[Nest, tuple[Stage, ...]]]] = []
        outside = frozenset(reads_of((root,), stops))
        last = parts.stages[-1]
        with self._within(dict.fromkeys(parts.bound, 1)):
            for position, terms in enumerate(parts.stages):
                own = sorted(frozenset.intersection(*(term.free for term in terms)) - parts.bound)
                roots = tuple(term for term in terms if term.free <= parts.bound | {*own})
                view = StageView(roots, own, {}, parts.bound, PART, stops - {*terms}, f"s{position}_")
                nests = each_lane_first(self._ranked(self._nests(view)))[:OPTIONS]
                at = None if terms is last else PART
                options.append([(nest, self._kept(terms, nest, parts.bound, outside, at)) for nest in nests])
        view = StageView((root,), free, strides, frozenset(), None, stops, "result_")
        finals = self._ranked(self._nests(view))[:OPTIONS]
        around = self._parallel(
            parts.shared, StageView(last, [*parts.bound], {}, frozenset(), None, stops, "")
        )
        times = self._each(lambda shapes: shapes.volume({*parts.bound}))
        combined = list(itertools.product(*options))
        inside = [
            tuple(
                seconds * count
                for seconds, count in zip(
                    add_seconds([nest.seconds for nest, _ in choice]), times, strict=True
                )
            )
            for choice in combined
        ]
        found: list[Candidate] = []
        for number in best(inside, COARSE_COMBINATIONS if self.coarse else COMBINATIONS):
            *kept, nest = itertools.chain.from_iterable(stages for _, stages in combined[number])
            nest = Stage(nest.targets, (*around, *nest.factors))
            for final in finals:
                factors = self._parallel(final.factors, view)
                schedule = Schedule((Stage((Target(output=0),), factors),), (*kept, nest, *final.kept))
                phases = [(inside[number], around), (final.seconds, factors)]
                found.append(Candidate(schedule, self._phased_estimates(phases), "parts"))
        return found

    def _kept(
        self,
        terms: Sequence[Term],
        nest: Nest,
        bound: frozenset[str],
        outside: frozenset[Term],
        at: str | None,
    ) -> tuple[Stage, ...]:
        """What a nest keeps, and its stage: what is read outside of the nest has every part."""
        targets: list[Target] = []
        for term in terms:
            own = digits_of(sorted(term.free - bound), lane_of(nest), None, 0)
            every = (*((index, None) for index in sorted(term.free & bound)), *own)
            buffer = Buffer(every) if term in outside else Buffer(own, PART)
            targets.append(Target(term=self.numbers[term], buffer=buffer))
        return *nest.kept, Stage(tuple(targets), nest.factors, at)


def _stages(inner: Sequence[Term]) -> tuple[tuple[Term, ...], ...] | None:
    """The terms by nests, those last that need the others: a sum of a kept term is in the nest that computes the term.
    None where there would be several last nests."""
    read = frozenset(operand for term in inner for operand in reads_of(term.operands, frozenset(inner)))
    stages = {term: [term] for term in inner if term in read}
    ends: list[Term] = []
    for term in inner:
        operand = term.operands[0] if len(term.operands) == 1 else term
        if term not in read and operand in stages and operand.free >= term.free:
            stages[operand].insert(0, term)
        elif term not in read:
            ends.append(term)
    if len({term.free for term in ends}) != 1:
        return None
    return *map(tuple, stages.values()), tuple(ends)
