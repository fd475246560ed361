"""Two compiled graphs that should do the same, on made-up data of the expected sizes: compared, then timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dtype import DType, f32, f64
from luminal.errors import LuminalError, SoundnessError
from luminal.plan.executable import PlanExecutable

Array = NDArray[Any]
SECONDS = 0.2
"""Of timing, for both together."""
TOLERANCE: Mapping[DType, float] = {f64: 1e-9, f32: 1e-3}
"""Differences of rounding that two orders of a sum may have, as a part of the largest result; others: 5 %."""


def timed_pair(
    first: PlanExecutable, second: PlanExecutable, dims: Mapping[str, int]
) -> tuple[float, float] | None:
    """Median seconds of a call of each; None where the graph does not run on such data.

    Raises SoundnessError where their results differ by more than rounding.
    """
    pair = (first, second)
    names = first.dim_names
    inputs = [_data(n, type_, dims) for n, type_ in enumerate(first.input_types)]
    try:
        results = [one.run(inputs, {name: dims[name] for name in names}) for one in pair]
    except LuminalError:
        return None
    _compare(first, *results)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(times[0]) < 3 or time.perf_counter() < end:
        for one, samples in zip(pair, times, strict=True):
            begun = time.perf_counter()
            one.run(inputs, {name: dims[name] for name in names})
            samples.append(time.perf_counter() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


def _data(position: int, type_: Any, dims: Mapping[str, int]) -> Array:
    """Values near one; zeros where they may be indices."""
    shape = tuple(size.evaluate(dims) for size in type_.shape)
    if not type_.dtype.is_float:
        return np.zeros(shape, type_.dtype.numpy)
    return np.random.default_rng(position).uniform(0.5, 1.5, shape).astype(type_.dtype.numpy)


def _compare(executable: PlanExecutable, wanted: Sequence[Array], found: Sequence[Array]) -> None:
    for number, (type_, old, new) in enumerate(zip(executable.output_types, wanted, found, strict=True)):
        left, right = old.astype(np.float64), new.astype(np.float64)
        if not np.array_equal(np.isnan(left), np.isnan(right)):
            raise SoundnessError(
                f"output {number} of a library kernel and of the generated one differ in NaN"
            )
        if left.size == 0:
            continue
        limit = TOLERANCE.get(type_.dtype, 0.05) * np.nanmax(np.abs(left), initial=0.0)
        with np.errstate(invalid="ignore"):
            worst = np.nanmax(np.where(left == right, 0.0, np.abs(left - right)), initial=0.0)
        if worst > limit:
            raise SoundnessError(
                f"output {number} of a library kernel differs from the generated one by {worst}, more than {limit}"
            )
