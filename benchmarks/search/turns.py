"""Functions that take turns in short slices, so that a slow moment of the machine hits them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from luminal.bench.case import BenchmarkError

LEAST_CALLS = 3
TOLERANCE = 1e-5
"""Of attention in f32 on normal data."""


def turns(
    functions: Mapping[str, Callable[[], object]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """The median seconds of a call in each slice of each function; the first call of a slice does not count."""
    names = list(functions)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for number in range(len(names)):
            name = names[(turn + number) % len(names)]
            found[name].append(_slice(functions[name], seconds))
    return found


def _slice(function: Callable[[], object], seconds: float) -> float:
    function()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < LEAST_CALLS or time.perf_counter() < until:
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """Milliseconds of each."""
    return {name: round(1e3 * statistics.median(values), 4) for name, values in times.items()}


def check_equal(name: str, found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """BenchmarkError where a result is not eager's."""
    difference = float((found - wanted).abs().max())
    if not difference <= tolerance:  # NaN too
        raise BenchmarkError(f"{name} differs from eager by {difference:.2e}; {tolerance:.0e} is allowed")
    assert torch.isfinite(wanted).all()
