"""The seconds that the search of one compilation may take in all, spent by one part of it after another.

Contests with library kernels come first, then the long search of cuts and candidates, then what no cut decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from luminal.options import CompileOptions

LONG_SECONDS: Mapping[str, float] = {"default": 0.0, "max-autotune": 60.0}
"""What a compilation may spend where no option says so, by mode; 0: the model cuts, each region is searched alone, and
nothing limits them together."""
CONTESTS, FOLLOWING = 0.25, 0.1
"""The part that contests may take together, and the part that the long search leaves to what follows."""


class Purse:
    """So many seconds, infinite where nothing limits a search; `left` of them, less than nothing where what had begun
    took longer than it should."""

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> None:
        self.total = self.left = seconds
        self.clock = clock

    @staticmethod
    def of(options: CompileOptions) -> Purse:
        """What the options, or their mode, allow."""
        return Purse(options.budget or LONG_SECONDS[options.mode] or math.inf)

    @contextmanager
    def spending(self) -> Generator[None]:
        """What is done while this is open is paid for."""
        started = self.clock()
        try:
            yield
        finally:
            self.left -= self.clock() - started

    @property
    def for_contests(self) -> float:
        """What contests may still take."""
        return self._without(1 - CONTESTS)

    @property
    def for_cuts(self) -> float:
        """What the long search may still take."""
        return self._without(FOLLOWING)

    def _without(self, part: float) -> float:
        return math.inf if self.total == math.inf else self.left - part * self.total
