"""What measured times say of the model's: a ridge regression of log(measured / estimated seconds) on a few features.

Nothing of it is kept: the coefficients are a function of the timings in the database and of those of the search that
goes on.  The prior is that the model is right; it weighs as much as PRIOR timings, so a handful of them moves little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import Factor, Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import LuminalError
from luminal.search.database import Timing
from luminal.search.generate import Candidate
from luminal.search.shapes import Shapes

PRIOR = 8.0
"""How many timings the prior weighs."""
MOST_TIMINGS = 2000
"""The latest ones, which are learned from."""
FURTHEST = math.log(8)
"""Neither does one timing say more of the model, nor the regression of a candidate."""
FORM_FAMILIES = ("", "keeps", "in", "folds")
"""First words of the names of forms: a region's own, kept factors, sums and folds in parts, and folds of one pass."""

Features = NDArray[np.float64]


class LearnedModel:
    """The regression, which is added to and asked in turn; the same timings in the same order give the same answers."""

    def __init__(self, timings: Iterable[Timing] = ()) -> None:
        self._works: dict[tuple[str, tuple[tuple[str, int], ...]], _Work] = {}
        self._moments: Features | None = None
        self._right: Features | None = None
        self._coefficients: Features | None = None
        for timing in [each for each in timings if each.estimate][-MOST_TIMINGS:]:
            self._recall(timing)

    def add(
        self,
        region: Region,
        key: str,
        sizes: Mapping[str, int],
        candidate: Candidate,
        estimate: float,
        seconds: float,
    ) -> None:
        """Learn from a candidate of a region that took `seconds` where the model expects `estimate`."""
        self._learn(
            self._work(region, key, sizes).features(candidate.schedule, candidate.form), estimate, seconds
        )

    def factor(self, region: Region, key: str, sizes: Mapping[str, int], candidate: Candidate) -> float:
        """By how much the model's seconds of a candidate are to be multiplied: 1 where nothing is known."""
        if self._moments is None or self._right is None:
            return 1.0
        coefficients = self._coefficients
        if coefficients is None:
            prior = PRIOR * np.eye(len(self._right))
            coefficients = np.linalg.solve(self._moments + prior, self._right).astype(np.float64)
            self._coefficients = coefficients
        features = self._work(region, key, sizes).features(candidate.schedule, candidate.form)
        return math.exp(_within(float(features @ coefficients)))

    def _recall(self, timing: Timing) -> None:
        """Learn from a kept timing, where what it speaks of can still be read: another source may have kept it."""
        key = (timing.region, tuple(sorted(timing.sizes.items())))
        try:
            schedule = parse_schedule(timing.schedule)
            if key not in self._works:
                self._works[key] = _Work(Shapes(parse_region(timing.region), timing.sizes))
        except (LuminalError, ValueError, KeyError, TypeError):
            return
        self._learn(self._works[key].features(schedule, timing.form), timing.estimate or 0.0, timing.seconds)

    def _learn(self, features: Features, estimate: float, seconds: float) -> None:
        if estimate <= 0 or seconds <= 0:
            return
        if self._moments is None or self._right is None:
            self._moments, self._right = np.zeros((features.size, features.size)), np.zeros(features.size)
        self._moments += np.outer(features, features)
        self._right += features * _within(math.log(seconds / estimate))
        self._coefficients = None

    def _work(self, region: Region, key: str, sizes: Mapping[str, int]) -> _Work:
        named = (key, tuple(sorted(sizes.items())))
        if named not in self._works:
            self._works[named] = _Work(Shapes(region, sizes))
        return self._works[named]


class _Work:
    """What a region does at some sizes: the features that all its candidates share."""

    def __init__(self, shapes: Shapes) -> None:
        region = shapes.region
        self.sizes = shapes.sizes
        operations = sum(shapes.volume(term.free.union(term.reduced)) for term in region.terms())
        memory = (*region.arguments, *region.outputs)
        moved = sum(each.elements.evaluate(shapes.values) * each.dtype.size_bytes for each in memory)
        # about 0 for regions of middling size, 1 for those that are a thousand times larger
        self.scale = [math.log10(max(1, amount)) / 3 - 2 for amount in (operations, moved)]
        self.stages = min(1.0, len(region.inner) / 4)

    def features(self, schedule: Schedule, form: str) -> Features:
        """About from -1 to 1 each."""
        stages = (*schedule.roots, *schedule.kept)
        factors = [factor for stage in stages for factor in stage.factors]
        buffers = [t.buffer for stage in schedule.kept for t in stage.targets if t.buffer is not None]
        packed = sum(buffer.home == "packed" for buffer in buffers)
        families = [float(form.partition(" ")[0] == family) for family in FORM_FAMILIES]
        inner = [factor for factor in factors if factor.role in ("lane", "tile", "unroll")]
        return np.array(
            [
                1.0,
                *families,
                *self.scale,
                self.stages,
                min(1.0, (len(buffers) - packed) / 4),
                float(packed > 0),
                float(bool(schedule.loops)),
                *(_extents(factors, role) for role in ("lane", "tile", "unroll")),
                sum(factor.role == "parallel" for factor in factors) / 3,
                float(any(factor.role == "partial" for factor in factors)),
                float(any(factor.masked for factor in factors)),
                float(any(self._is_ragged(factor) for factor in inner)),
            ]
        )

    def _is_ragged(self, factor: Factor) -> bool:
        """Whether a factor does not divide its index, as far as the region itself has that index."""
        size = self.sizes.get(factor.index)
        return size is not None and factor.extent is not None and size % factor.extent != 0


def _extents(factors: Iterable[Factor], role: str) -> float:
    """The extents of one role together, in powers of 16."""
    product = math.prod(factor.extent or 1 for factor in factors if factor.role == role)
    return min(2.0, math.log2(product) / 4)


def _within(logarithm: float) -> float:
    return max(-FURTHEST, min(FURTHEST, logarithm))
