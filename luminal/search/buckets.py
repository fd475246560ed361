"""Sizes that stand for a program's bucket, and the buckets that the roofline advises where none are declared.

One program runs all sizes under schedules that lose little at each of the representative ones.  Where programs of their
own would be faster there by more than a margin, a symbol is split between two of its representative sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.dim import Range, Symbol
from luminal.dim.buckets import Box, bucketed, gaps, holds
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep
from luminal.search.candidates import coarse_generators, suggested
from luminal.search.cut_search import LAUNCH_SECONDS
from luminal.search.forms import Forms
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.ordering import ordered
from luminal.search.samples import Samples, Sizes

MARGIN = 0.05
"""What programs of their own must save of the whole graph's time, as a mean over the representative sizes."""
LARGEST = 1024
"""A larger size than a bucket need have is not priced: it takes long to time, and says the same."""


def middle(range_: Range) -> int:
    """The geometric middle of a range, as far as it is no more than LARGEST or the range's first size."""
    low, high = range_
    found = LARGEST if high is None else min(LARGEST, math.isqrt(max(1, low) * max(0, high)))
    return max(low, found)


def expected_sizes(symbols: Sequence[Symbol], box: Box, known: Sequence[Mapping[str, int]]) -> Sizes:
    """A size of each symbol that is likely in a program's box: the first that is known and lies there, else the middle.

    A symbol without buckets is left out where nothing is known of it.  One that a box leaves open is taken where no
    bucket is.
    """
    declared = bucketed(symbols)
    found: Sizes = {}
    for symbol in symbols:
        likely = [sizes[symbol.name] for sizes in known if symbol.name in sizes]
        ranges = [box[symbol.name]] if symbol.name in box else gaps(symbol, declared.get(symbol.name, ()))
        inside = [size for size in likely if any(holds({"": each}, {"": size}) for each in ranges)]
        if inside:
            found[symbol.name] = inside[0]
        elif ranges and (symbol.name in box or symbol.name in declared):
            found[symbol.name] = middle(ranges[-1])
        elif likely:
            found[symbol.name] = likely[0]
    return found


Seconds = tuple[float, ...]
"""At each of the representative sizes."""


class BucketAdvice:
    """Prices schedules for one size alone against those for all sizes, for the regions of one graph."""

    def __init__(self, regions: RegionGraph, machine: Machine, forms: Forms) -> None:
        self.steps = [step for step in regions.steps if not isinstance(step, OpaqueStep)]
        # what a kernel costs beside its work is the launch
        self.machine, self.forms = replace(machine, waking=0.0), forms
        self._priced: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}

    def buckets(
        self, symbols: Sequence[Symbol], samples: Samples, most: int
    ) -> dict[str, tuple[Range, Range]]:
        """Buckets of at most so many symbols: of those that save most, each more than MARGIN by itself."""
        if not samples.is_valid or not samples.others or self.saving(samples) <= MARGIN:
            return {}
        found: list[tuple[float, Symbol, int]] = []
        for symbol in symbols:
            near, far = samples.expected[symbol.name], samples.others[0][symbol.name]
            if near == far:
                continue
            saving = self.saving(Samples(samples.expected, ({**samples.expected, symbol.name: far},)))
            if saving > MARGIN:
                found.append((saving, symbol, math.isqrt(near * far)))
        found.sort(key=lambda each: (-each[0], each[1].name))
        return {
            symbol.name: ((symbol.minimum, last), (last + 1, symbol.maximum))
            for _, symbol, last in found[:most]
        }

    def saving(self, samples: Samples) -> float:
        """What schedules for each of the sizes alone save of the graph's time, as a mean over the sizes."""
        common, alone = ([0.0] * len(samples.all) for _ in range(2))
        for step in self.steps:
            for total, seconds in zip((common, alone), self._seconds(step, samples), strict=True):
                for number in range(len(total)):
                    # a region whose own sizes are the same for all of the graph's has one estimate
                    total[number] += seconds[min(number, len(seconds) - 1)] + LAUNCH_SECONDS
        savings = [1 - own / shared for own, shared in zip(alone, common, strict=True) if shared]
        return sum(savings) / len(samples.all)

    def _seconds(self, step: RegionStep | CheckStep, samples: Samples) -> tuple[Seconds, Seconds]:
        """Of a region: under the best schedule for all sizes, and under the best for each."""
        sizes = samples.of(step.symbols)
        key = (step.key, str(sizes))
        if key not in self._priced:
            self._priced[key] = self._price(step, sizes)
        return self._priced[key]

    def _price(self, step: RegionStep | CheckStep, samples: Samples) -> tuple[Seconds, Seconds]:
        forms = self.forms.of(step.region, step.key)
        every, generators = coarse_generators(step.region, self.machine, samples, forms)
        found = suggested(every, generators)
        if not found:  # plain loops, whatever the sizes
            plain = self._seconds_of(generators[0].fallbacks()[0])
            return plain, plain
        common = self._seconds_of(ordered(found, self.machine)[0])
        alone = zip(*map(self._seconds_of, found), strict=True)
        return common, tuple(map(min, alone))

    def _seconds_of(self, candidate: Candidate) -> Seconds:
        return tuple(estimate.seconds(self.machine) for estimate in candidate.estimates)
