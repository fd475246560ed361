"""Charts of a search as inline SVG: points under a roofline, and what was best after so many candidates or seconds.

Colours come from the page's style sheet, so that a chart fits light and dark pages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from luminal.search.record import OuterRecord
from luminal.search.report import KernelReport, SearchReport
from luminal.search.report_text import time_text

WIDTH, HEIGHT, LEFT, BOTTOM, MARGIN = 640, 320, 64, 36, 14


class _Axis:
    """Maps values from `low` to `high` to places from `start` to `end`, through a function."""

    def __init__(
        self, low: float, high: float, start: float, end: float, through: Callable[[float], float]
    ) -> None:
        self.low, self.high, self.start, self.end, self.through = low, high, start, end, through

    def __call__(self, value: float) -> float:
        low, high = self.through(self.low), self.through(self.high)
        return self.start + (self.end - self.start) * (self.through(value) - low) / (high - low)

    @staticmethod
    def of_powers(values: Sequence[float], start: float, end: float) -> _Axis:
        """An axis over whole powers of ten that hold some values."""
        low, high = (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))
        return _Axis(10.0**low, 10.0 ** max(high, low + 1), start, end, math.log10)

    def powers(self) -> range:
        """The exponents of its powers of ten."""
        return range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)


def roofline(kernels: Sequence[KernelReport], flops: float, bandwidth: float) -> str:
    """Each kernel at its FLOP a byte and its FLOP a second, under the peak and the bandwidth of the machine."""
    points = [
        (number, kernel, kernel.intensity, kernel.operations / kernel.seconds)
        for number, kernel in enumerate(kernels, 1)
        if kernel.operations and kernel.bytes and kernel.seconds
    ]
    ridge = flops / bandwidth
    across = _Axis.of_powers([ridge / 8, ridge * 8, *(x for _, _, x, _ in points)], LEFT, WIDTH - MARGIN)
    up = _Axis.of_powers([flops / 100, flops, *(y for _, _, _, y in points)], HEIGHT - BOTTOM, MARGIN)
    first = max(across.low, up.low / bandwidth)
    roof = [(first, first * bandwidth), (ridge, flops), (across.high, flops)]
    line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in roof)
    parts = [*_grid(across, up), f'<polyline class="roof" points="{line}"/>']
    for number, kernel, x, y in points:
        title = f"kernel {number}: {x:.3g} FLOP/byte, {y / 1e9:.3g} GFLOP/s, {time_text(kernel.seconds)}"
        kind = "measured" if kernel.is_measured else "modelled"
        parts.append(
            f'<g class="point {kind}"><title>{escape(title)}</title>'
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="5"/>'
            f'<text x="{across(x) + 8:.1f}" y="{up(y) + 4:.1f}">{number}</text></g>'
        )
    return _svg("roofline: FLOP/s over FLOP per byte; a ring is no measurement, but the model's time", parts)


def search_curve(report: SearchReport) -> str:
    """The time of one call after so many timed candidates, by the best so far of every kernel; "" where none was."""
    values = list(_best_times(report.kernels))
    return _steps(values, values, "time of one call by the best so far, over candidates timed")


def outer_curve(outer: OuterRecord) -> str:
    """The time of a call by the best plan that the search of the cuts knew, over its seconds; "" where it found no
    better one than its first."""
    if len(outer.curve) < 2:
        return ""
    seconds, values = zip(*outer.curve, strict=True)
    title = "time of one call by the best cuts and candidates so far, over seconds of searching"
    values = (*values, outer.best)
    return _drawn([*seconds, outer.spent], values, values, title, f"{outer.spent:.1f} s")


def kernel_curve(kernel: KernelReport) -> str:
    """The best time of one kernel after so many candidates; "" where fewer than two were timed."""
    times = _times(kernel)
    best = [min(times[: count + 1]) for count in range(len(times))]
    return _steps(best, times, "best so far, over candidates timed")


def _times(kernel: KernelReport) -> list[float]:
    return [each.seconds for each in kernel.considered.tried if each.seconds is not None]


def _best_times(kernels: Sequence[KernelReport]) -> Iterator[float]:
    rows = [_times(kernel) for kernel in kernels]
    best = [row[0] if row else kernel.seconds for row, kernel in zip(rows, kernels, strict=True)]
    for number, row in enumerate(rows):
        for seconds in row:
            best[number] = min(best[number], seconds)
            yield sum(kernel.launches * each for kernel, each in zip(kernels, best, strict=True))


def _steps(values: Sequence[float], points: Sequence[float], title: str) -> str:
    """A curve of steps through some values, with a dot for each of the points; "" for fewer than two."""
    if len(values) < 2:
        return ""
    return _drawn(range(1, len(values) + 1), values, points, title, f"{len(values)} candidates")


def _drawn(
    at: Sequence[float], values: Sequence[float], points: Sequence[float], title: str, end: str
) -> str:
    """A curve of steps through some values at some places, with a dot for each of the points; `end` names the last
    place."""
    shown = [*values, *points]
    up = _Axis(min(shown) * 0.95, max(shown) * 1.02, HEIGHT - BOTTOM, MARGIN, math.log)
    room = (at[-1] - at[0]) / (2 * len(at))
    across = _Axis(at[0] - room, at[-1] + room, LEFT, WIDTH - MARGIN, float)
    places = [f"{across(at[0]):.1f},{up(values[0]):.1f}"]
    for (before, value), place in zip(itertools.pairwise(values), at[1:], strict=True):
        places += [f"{across(place):.1f},{up(before):.1f}", f"{across(place):.1f},{up(value):.1f}"]
    parts = [f'<polyline class="curve" points="{" ".join(places)}"/>']
    for place, value in zip(at, points, strict=True):
        dot = f'<circle class="dot" cx="{across(place):.1f}" cy="{up(value):.1f}" r="3">'
        parts.append(f"{dot}<title>{time_text(value)}</title></circle>")
    for value in (max(shown), min(shown)):
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{up(value) + 4:.1f}">{time_text(value)}</text>')
    last = f'<text class="end" x="{WIDTH - MARGIN}" y="{HEIGHT - 10}">{end}</text>'
    return _svg(title, [*parts, last])


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    for power in across.powers():
        x = across(10.0**power)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{10.0**power:g}</text>'
    for power in up.powers():
        y = up(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 4:.1f}">{10.0**power / 1e9:g} G</text>'


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg><figcaption>{escape(title)}</figcaption></figure>"
    )
