"""Choosing the cuts between regions: from the first cuts, every move that the roofline says pays is made.

The model prices a region by its best legal schedule, and each launch; regions of one signature are priced once, so that
the layers of a model cost one.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.dialects.kernel.terms import Region
from luminal.dim import product
from luminal.passes.cut_choices import initial_cuts, instances, neighbours
from luminal.passes.cuts import Cuts, Partition
from luminal.search.chooser import legal_candidates
from luminal.search.machine import Machine

LAUNCH_SECONDS = 1.5e-6
GAIN = 0.99
"""A move is made where it brings the price below this part of what it was."""
MOVES = ("merge",)
LONGEST_CHAIN = 4


class CutSearch:
    """Prices cuts of one graph for one machine, with sizes for the graph's symbols."""

    def __init__(self, partition: Partition, machine: Machine, hints: Mapping[str, int]) -> None:
        self.partition, self.machine, self.hints = partition, machine, hints
        self._prices: dict[str, float] = {}

    def run(self, most: int = 64) -> Cuts:
        """The cuts that no single move improves, or that `most` moves have led to."""
        cuts = initial_cuts(self.partition)
        price = self.price(cuts)
        tried: set[str] = set()
        for _ in range(most):
            better = self._step(cuts, price, tried)
            if better is None:
                return cuts
            cuts, price = better
        return cuts

    def _step(self, cuts: Cuts, price: float, tried: set[str]) -> tuple[Cuts, float] | None:
        """The first chain of merges that pays, cut off where it is cheapest; what did not pay is not tried again."""
        for what, changed in neighbours(self.partition, cuts):
            text = str(changed)
            if not what.startswith(MOVES) or text in tried:
                continue
            tried.add(text)
            best = self._chain(cuts, changed, price)
            if best is not None and best[1] < price * GAIN:
                return best
        return None

    def _chain(self, cuts: Cuts, first: Cuts, price: float) -> tuple[Cuts, float] | None:
        """The cheapest of a merge and of what follows it: merges into the same regions that it makes possible.

        The scores, their maximum and the numerator of a softmax pay together, not each alone.
        """
        best: tuple[Cuts, float] | None = None
        last = first
        fresh = first.merged - cuts.merged
        for _ in range(LONGEST_CHAIN):
            found = (last, self.price(last, 2 * price))
            if best is None or found[1] < best[1]:
                best = found
            options = self._following(last, fresh)
            if not options or self._most_gained(cuts, _merging(last, frozenset().union(*options))) < price * (1 - GAIN):
                return best
            priced = [(self.price(_merging(last, option), 2 * price), _merging(last, option)) for option in options]
            last = min(priced, key=lambda pair: pair[0])[1]
        return best

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

    def _most_gained(self, cuts: Cuts, changed: Cuts) -> float:
        """What a move can save at best: the launches, and the traffic, of the values that are no longer stored."""
        gone = (changed.merged - cuts.merged) | (cuts.kept - changed.kept)
        seconds = 0.0
        for number in gone:
            value = self.partition.graph.values[number]
            elements = product(value.shape).evaluate(self.hints)
            seconds += 3 * elements * value.dtype.size_bytes / self.machine.bandwidth + LAUNCH_SECONDS
        return seconds

    def price(self, cuts: Cuts, limit: float = float("inf")) -> float:
        """Seconds of all regions by the model; a number above `limit` as soon as they exceed it."""
        total = 0.0
        for _, instance in instances(self.partition, cuts):
            formed = instance.formed
            if formed.key not in self._prices:
                sizes = {name: size.evaluate(self.hints) for name, size in formed.symbols.items()}
                self._prices[formed.key] = self._region_price(formed.region, sizes)
            total += self._prices[formed.key] + LAUNCH_SECONDS
            if total > limit:
                return total
        return total

    def _region_price(self, region: Region, sizes: Mapping[str, int]) -> float:
        for candidate in legal_candidates(region, self.machine, sizes, coarse=True):
            return candidate.estimate.seconds(self.machine)
        return float("inf")


def _merging(cuts: Cuts, numbers: frozenset[int]) -> Cuts:
    return Cuts(cuts.kept, cuts.merged | numbers, cuts.joined)
