"""Timing kernels in turn, and when one of two is faster for certain.

Turns meet the same slow moments of the machine.  A challenger beats the incumbent if its best half is out of reach of
the incumbent's best run, or by the rank test of Mann and Whitney (1947), one-sided, at five percent: with three runs of
each, all of its own are faster than all of the other's.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

HOPELESS = 1.5
"""How many times the best run of all a kernel's best may take, before it is not run again."""
HOPELESS_AT_ONCE = 3.0
"""The same after its first run, which something else may have slowed."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 25
CERTAIN = statistics.NormalDist().inv_cdf(0.95)


def interleave(
    runs: Sequence[Callable[[], object]], seconds: float, note: Callable[[int], object]
) -> list[tuple[float, ...]]:
    """The seconds of each run of each, measured in turn for about `seconds`; what is hopeless is not run again.

    `note` is told the position of each before it runs.
    """
    samples: list[list[float]] = [[] for _ in runs]
    best = math.inf
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < LEAST_ROUNDS or (time.perf_counter() < end and rounds < MOST_ROUNDS):
        for position, (taken, run) in enumerate(zip(samples, runs, strict=True)):
            limit = HOPELESS_AT_ONCE if len(taken) == 1 else HOPELESS
            if taken and min(taken) > limit * best:
                continue
            note(position)
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
            best = min(best, taken[-1])
        rounds += 1
    return [tuple(taken) for taken in samples]


def is_faster(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    """Whether some runs are faster than others for certain, in seconds each."""
    if statistics.median(challenger) * HOPELESS < min(incumbent):
        return True
    pairs = len(challenger) * len(incumbent)
    wins = sum((mine < other) + (mine == other) / 2 for mine in challenger for other in incumbent)
    deviation = math.sqrt(pairs * (len(challenger) + len(incumbent) + 1) / 12)
    return (wins - pairs / 2 - 0.5) / deviation > CERTAIN
