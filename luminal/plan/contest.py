"""Contests with library kernels: two graphs that should do the same are compiled, on made-up data of the expected sizes
compared, then timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from luminal.dtype import DType, f32, f64
from luminal.errors import LuminalError, SoundnessError
from luminal.plan.executable import PlanExecutable
from luminal.search.purse import Purse
from luminal.search.samples import sample_sizes

if TYPE_CHECKING:
    from luminal.runtimes.protocol import Executable

Array = NDArray[Any]
Compile = Callable[[ModuleOp, Purse], "Executable"]
"""Compiles a part of a graph, for no more than a purse holds."""
SECONDS = 0.2
"""Of timing, for both together."""
AT_ONCE = 0.5
"""What part of that which is left for contests the next one may take."""
TOLERANCE: Mapping[DType, float] = {f64: 1e-9, f32: 1e-3}
"""Differences of rounding that two orders of a sum may have, as a part of the largest result; others: 5 %."""


@dataclass(frozen=True)
class Contests:
    """Times pairs of modules, as long as a purse allows that; `hint` are expected sizes."""

    compile: Compile
    purse: Purse
    hint: Mapping[str, int]

    def __call__(self, generated: ModuleOp, library: ModuleOp) -> tuple[float, float] | str:
        """Median seconds of a call of each, or why there are none."""
        allowed = AT_ONCE * self.purse.for_contests
        if allowed < SECONDS:
            return "no part of the budget is left for contests"
        with self.purse.spending():
            pair = [self.compile(m, Purse(allowed / 2, self.purse.clock)) for m in (generated, library)]
            first, second = pair
            if not isinstance(first, PlanExecutable) or not isinstance(second, PlanExecutable):
                return "its sizes are in buckets"
            sizes = sample_sizes(first.plan.symbols, self.hint).expected
            return timed_pair(first, second, sizes) or "the graph cannot be run on data that is made up"


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
