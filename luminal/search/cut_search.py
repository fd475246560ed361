"""Choosing the cuts between regions: from the first cuts, every merge that the roofline says pays is made, then every
join of reductions that read the same memory.

The model prices a region by the best of a few schedules, and each launch; regions of one signature are priced once, so
that the layers of a model cost one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.kernel.terms import Region
from luminal.dim import product
from luminal.passes.cut_choices import initial_cuts, instances
from luminal.passes.cut_moves import neighbours
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.region_former import Formed, Instance
from luminal.passes.region_terms import RegionTooLargeError
from luminal.search.candidates import coarse_candidates
from luminal.search.forms import Form, Forms
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.samples import Samples

LAUNCH_SECONDS = 1.5e-6
GAIN = 0.12
"""A move is made where the regions that it changes cost that much less, as a part of what they did: the model is not
trusted with smaller differences, and merged regions take longer to compile."""
STAGE_COST = 0.05
"""What a stage of a merged region costs beside its work, as a part of the region: stages contend for caches, and the
kernel takes longer to compile.  Stages of a fold do not: what they keep is a block, whatever the sizes."""
MOVES = ("merge",)
LONGEST_CHAIN = 4
MOST_STAGES = 3
"""Stages of one region beside its result: with each of them the model errs more, and the kernel takes longer to search
and to compile."""


@dataclass(frozen=True)
class Priced:
    """Cuts with the regions that they make, by key, and the seconds of all of them."""

    cuts: Cuts
    regions: Counter[str]
    seconds: float


class CutSearch:
    """Prices cuts of one graph for one machine, with sizes for the graph's symbols.

    `leading`: by which candidate each of the regions is priced that `estimates` did not know.
    """

    def __init__(
        self,
        partition: Partition,
        machine: Machine,
        samples: Samples,
        forms: Forms | None = None,
        estimates: dict[str, list[float]] | None = None,
    ) -> None:
        """`estimates`: what the regions of another graph cost, for the same machine and sizes; added to."""
        # what a kernel costs beside its work is the launch
        self.machine = replace(machine, waking=0.0)
        self.partition, self.samples = partition, samples
        self.forms = forms or Forms()
        self.leading: dict[str, tuple[Formed, Candidate]] = {}
        self._prices: dict[str, float] = {}
        self._estimates: dict[str, list[float]] = {} if estimates is None else estimates
        self._weights = [1.0] * len(samples.all)

    def run(self, most: int = 64) -> Cuts:
        """The cuts that no chain of moves improves, or that `most` chains have led to."""
        first = self.first_cuts()
        self.weigh(first)
        current = self.price(first)
        tried: set[frozenset[int]] = set()
        for _ in range(most):
            better = self._step(current, tried)
            if better is None:
                break
            current = better
        joins: set[frozenset[tuple[int, ...]]] = set()
        while (joined := self._join(current, joins)) is not None:
            current = joined
        return current.cuts

    def first_cuts(self) -> Cuts:
        """Where the search begins."""
        return initial_cuts(self.partition)

    def _join(self, current: Priced, tried: set[frozenset[tuple[int, ...]]]) -> Priced | None:
        """The join of reductions that saves most, where it pays; what did not is not tried again."""
        best: Priced | None = None
        homes = {group.roots: found for group, found in instances(self.partition, current.cuts)}
        for what, changed in neighbours(self.partition, current.cuts):
            fresh = changed.joined - current.cuts.joined
            if not what.startswith("join") or fresh in tried:
                continue
            tried.add(fresh)
            pairs = [[found for roots, found in homes.items() if {*roots} <= {*group}] for group in fresh]
            most = sum(self._shared_seconds(pair) for pair in pairs)
            if most <= GAIN * sum(self._prices[found.formed.key] for pair in pairs for found in pair):
                continue
            found = self.price(changed)
            if self._pays(current, found) and (best is None or found.seconds < best.seconds):
                best = found
        return best

    def _shared_seconds(self, made: Sequence[Instance]) -> float:
        """What reading memory once for several reductions with results of the same sizes can save, or not reading what
        one region makes for another, a launch included; nothing for other regions."""
        shared = frozenset.intersection(*(frozenset(found.arguments) for found in made))
        passed = frozenset(n for found in made for n in found.arguments if any(n in o.computed for o in made))
        if passed:
            is_alike = len(frozenset().union(*(self._elements(found.formed) for found in made))) == 1
        else:
            is_alike = len({_result_sizes(found.formed.region) for found in made}) == 1
            is_alike &= all(found.formed.reductions for found in made)
        if not is_alike:
            return 0.0
        shared |= passed
        values = [self.partition.graph.values[number] for number in shared]
        seconds = LAUNCH_SECONDS
        for weight, sizes in zip(self._weights, self.samples.all, strict=True):
            for value in values:
                size = product(value.shape).evaluate(sizes) * value.dtype.size_bytes
                seconds += weight * size / self.machine.bandwidth
        return seconds

    def _elements(self, formed: Formed) -> frozenset[int]:
        """How many elements the results of a region have, at the expected sizes."""
        sizes = self.samples.of(formed.symbols).expected
        return frozenset(output.elements.evaluate(sizes) for output in formed.region.outputs)

    def estimates(self, cuts: Cuts) -> list[tuple[str, list[float]]]:
        """Key, and seconds at each of the sizes, of every region."""
        made = self.formed_regions(cuts)
        return [(formed.key, self._seconds(formed)) for formed in made]

    def weigh(self, cuts: Cuts) -> None:
        """Set the weights by which these cuts cost as much at each of the sizes."""
        totals = [0.0] * len(self._weights)
        for _, estimates in self.estimates(cuts):
            for number, seconds in enumerate(estimates):
                totals[number] += seconds
        if all(totals):
            self._weights = [totals[0] / total / len(totals) for total in totals]

    def seconds(self, key: str) -> float:
        """Seconds of a region of cuts that have been priced, its launch included."""
        return self._prices[key]

    def _step(self, current: Priced, tried: set[frozenset[int]]) -> Priced | None:
        """The chain of merges that saves most, cut off where it is cheapest; what did not pay is not tried again."""
        best: Priced | None = None
        homes = {
            number: (group.roots[-1], self._prices[instance.formed.key])
            for group, instance in instances(self.partition, current.cuts)
            for number in (*group.roots, *group.inner)
        }
        for what, changed in neighbours(self.partition, current.cuts):
            fresh = changed.merged - current.cuts.merged
            if not what.startswith(MOVES) or fresh in tried:
                continue
            if not self._is_promising(current.cuts, changed, homes):
                tried.add(fresh)
                continue
            found = self.chain(current, changed)
            if found is None or not self._pays(current, found):
                tried.add(fresh)
                continue
            if best is None or found.seconds < best.seconds:
                best = found
        return best

    def _is_promising(self, cuts: Cuts, changed: Cuts, homes: Mapping[int, tuple[int, float]]) -> bool:
        """Whether a merge, with all that may follow it, could save enough of what its own regions cost."""
        fresh = changed.merged - cuts.merged
        following = frozenset[int]().union(*self._following(changed, fresh))
        own = {homes[number] for number in fresh}
        saved = self.most_gained(cuts, _merging(changed, following))
        return saved > GAIN * sum(price for _, price in own)

    def _pays(self, before: Priced, after: Priced) -> bool:
        changed = sum(count * self._prices[key] for key, count in (before.regions - after.regions).items())
        return before.seconds - after.seconds > GAIN * changed

    def chain(self, current: Priced, first: Cuts) -> Priced | None:
        """The cheapest of a merge and of what follows it: merges into the same regions that it makes possible.

        The scores, their maximum and the numerator of a softmax pay together, not each alone.
        """
        best: Priced | None = None
        last = first
        fresh = first.merged - current.cuts.merged
        for _ in range(LONGEST_CHAIN):
            found = self.price(last)
            if best is None or found.seconds < best.seconds:
                best = found
            options = [_merging(last, option) for option in self._following(last, fresh)]
            if not options or not self._may_pay(current, found, options):
                return best
            last = min((self.price(option) for option in options), key=lambda priced: priced.seconds).cuts
        return best

    def _may_pay(self, current: Priced, found: Priced, options: list[Cuts]) -> bool:
        """Whether merging further could save enough: no more than the launches and the traffic of what it merges."""
        everything = frozenset().union(*(option.merged for option in options))
        changed = sum(count * self._prices[key] for key, count in (current.regions - found.regions).items())
        return self.most_gained(current.cuts, _merging(current.cuts, everything)) > GAIN * changed

    def _following(self, cuts: Cuts, fresh: frozenset[int]) -> list[frozenset[int]]:
        """Values that could be merged next into the regions that hold `fresh`; alike ones together."""
        made = self.partition.groups(cuts)
        home = {number: group.roots for group in made for number in (*group.roots, *group.inner)}
        homes = {group.roots for group in made if group.inner & fresh}
        readers = self.partition.readers(self.partition.roots(cuts))
        alike: dict[object, set[int]] = {}
        for number in sorted(cuts.kept - cuts.merged - self.partition.required):
            owners = {home.get(reader) for reader in readers.get(number, {-1})}
            if len(owners) == 1 and owners <= homes:
                value = self.partition.graph.values[number]
                alike.setdefault((value.op, value.shape, len(readers[number])), set()).add(number)
        return [frozenset(numbers) for numbers in alike.values()]

    def most_gained(self, cuts: Cuts, changed: Cuts) -> float:
        """What a move can save at best: the launches, and the traffic, of the values that are no longer stored."""
        gone = (changed.merged - cuts.merged) | (cuts.kept - changed.kept)
        seconds = 0.0
        for number in gone:
            value = self.partition.graph.values[number]
            size = product(value.shape)
            traffic = 3 * value.dtype.size_bytes / self.machine.bandwidth
            for weight, sizes in zip(self._weights, self.samples.all, strict=True):
                seconds += weight * (size.evaluate(sizes) * traffic + LAUNCH_SECONDS)
        return seconds

    def price(self, cuts: Cuts) -> Priced:
        """Seconds of all regions by the model, those at other sizes scaled to the expected ones; infinite where one of
        them cannot be."""
        groups = self.partition.groups(cuts)
        if any(len(group.inner) > MOST_STAGES for group in groups):
            return Priced(cuts, Counter(), float("inf"))
        try:
            made = self.formed_regions(cuts)
        except RegionTooLargeError:
            return Priced(cuts, Counter(), float("inf"))
        regions = Counter(formed.key for formed in made)
        for formed in made:
            if formed.key not in self._prices:
                seconds = self._seconds(formed)
                self._prices[formed.key] = sum(w * s for w, s in zip(self._weights, seconds, strict=True))
        return Priced(cuts, regions, sum(count * self._prices[key] for key, count in regions.items()))

    def formed_regions(self, cuts: Cuts) -> list[Formed]:
        """The regions of some cuts."""
        return [instance.formed for instance in self.partition.instances(cuts)]

    def _seconds(self, formed: Formed) -> list[float]:
        """Seconds of a region under its first candidate, and of its launch, at each of the sizes."""
        if formed.key not in self._estimates:
            forms = self.forms.of(formed.region, formed.key)
            found = self.estimated(formed, self.samples.of(formed.symbols), forms)
            # a region whose own sizes are the same for all of the graph's has one estimate
            self._estimates[formed.key] = found if len(found) > 1 else found * len(self._weights)
        return self._estimates[formed.key]

    def estimated(self, formed: Formed, samples: Samples, forms: Sequence[Form]) -> list[float]:
        """Seconds of a region by its first candidate, at each of its own sizes."""
        region = formed.region
        candidate = coarse_candidates(region, self.machine, samples, forms)[0]
        self.leading[formed.key] = formed, candidate
        factor = 1 + STAGE_COST * len(region.inner) * (not candidate.form)
        return [factor * e.seconds(self.machine) + LAUNCH_SECONDS for e in candidate.estimates]


def _result_sizes(region: Region) -> tuple[tuple[str, ...], ...]:
    """The sizes of the indices of each result that a region has, each once, in no order that says which is which."""
    found = {tuple(sorted(str(region.extents[index]) for index in o.indices)) for o in region.outputs}
    return tuple(sorted(found))


def _merging(cuts: Cuts, numbers: frozenset[int]) -> Cuts:
    return Cuts(cuts.kept, cuts.merged | numbers, cuts.joined)
