"""The live line of a search: regions, candidates, the best so far, time and budget left, on a terminal alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from luminal.options import progress_wanted
from luminal.search.profile import Budget
from luminal.search.record import Enumeration, RegionRecord, SearchRecord

PATIENCE = 1.0
"""Seconds after which a search that was not asked to be long shows that it goes on."""


@contextmanager
def shown(record: SearchRecord, regions: int, budget: Budget, at_once: bool) -> Generator[None]:
    """While open, the search of so many regions shows its line; `at_once`: without waiting whether it takes long.

    Nothing is shown where stderr is no terminal, nor with `LUMINAL_PROGRESS=0`.
    """
    if not progress_wanted(sys.stderr):
        yield
        return
    line = _Live(regions, budget, 0.0 if at_once else PATIENCE, sys.stderr)
    record.listeners.append(line)
    try:
        yield
    finally:
        record.listeners.remove(line)
        line.stop()


class ProgressLine:
    """The text of the line, from what a search tells it, for a terminal of 80 columns.

    Regions done, candidates timed and why others were rejected, the best of the last region that was timed, seconds
    that have passed, and the most that the budgets of what is left allow; before that, how the search of cuts goes on.
    """

    def __init__(self, regions: int, budget: Budget) -> None:
        self.regions, self.budget = regions, budget
        self.started = self.region_started = time.perf_counter()
        self.done = self.timed = self.illegal = self.slower = 0
        self.seen = Enumeration()
        self.best = self.outer = ""

    def begins(self, key: str, seen: Enumeration) -> None:
        self._expect(seen)

    def cuts(self, states: int, timed: int, seconds: float, left: float) -> None:
        self.outer = f"cuts {states} | {timed} timed | best {seconds * 1e6:.1f} us a call | {left:.0f} s left"

    def _expect(self, seen: Enumeration) -> None:
        self.outer = ""
        self.seen, self.region_started = seen, time.perf_counter()

    def ends(self, record: RegionRecord) -> None:
        self.done += 1
        self._expect(Enumeration())
        tried = record.considered.tried if record.source == "timed" else ()
        self.timed += len(tried)
        self.illegal += sum(count for _, count in record.considered.refused) if tried else 0
        times = [each.seconds for each in tried if each.seconds is not None]
        self.slower += max(0, len(times) - 1)
        if times:
            self.best = f"best {min(times) * 1e6:.1f} us"

    def text(self) -> str:
        if self.outer:
            return self.outer
        now = time.perf_counter()
        left = max(0.0, self.budget.seconds - (now - self.region_started))
        left += self.budget.seconds * max(0, self.regions - self.done - 1)
        illegal = self.illegal + len(self.seen.refused)
        parts = [
            f"search {self.done}/{self.regions}",
            f"{self.timed + self.seen.tried} timed, {self.slower} slower, {illegal} illegal",
            self.best,
            f"{now - self.started:.1f} s, {left if self.done < self.regions else 0:.0f} s left",
        ]
        return " | ".join(part for part in parts if part)


class _Live(ProgressLine):
    """The line on a terminal, once there is reason to show it."""

    def __init__(self, regions: int, budget: Budget, patience: float, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        super().__init__(regions, budget)
        self.patience = patience
        console = Console(file=stream)

        def rendered() -> Text:
            return Text(self.text(), no_wrap=True, overflow="ellipsis")

        self.live = Live(console=console, transient=True, refresh_per_second=8, get_renderable=rendered)

    def begins(self, key: str, seen: Enumeration) -> None:
        super().begins(key, seen)
        self._start()

    def cuts(self, states: int, timed: int, seconds: float, left: float) -> None:
        super().cuts(states, timed, seconds, left)
        self._start()

    def _start(self) -> None:
        if not self.live.is_started and time.perf_counter() - self.started >= self.patience:
            self.live.start()

    def stop(self) -> None:
        if self.live.is_started:
            self.live.stop()
