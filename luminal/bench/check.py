"""Whether a contender's results are right: against eager's and those in f64, with a tolerance by dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TOLERANCE: Mapping[str, float] = {
    "f32": 2e-5,
    "f16": 4e-3,
    "bf16": 3e-2,
    "quantised": 3e-2,
    "quantised model": 0.1,
}
"""Largest error over the largest magnitude of a result, by the dtype of a case: rounding, not what is wrong.
A quantised case may round its activations to 8 bits, a model those of every layer."""
EAGER_FACTOR = 2.0
"""Where eager itself errs by more than the tolerance, others may by this many times eager's error."""


@dataclass(frozen=True)
class Comparison:
    """`error`: the largest against f64, over the largest magnitude of each result; `rms`: the root of the mean square,
    which one ill-conditioned element does not decide; `wrong`: a reason, or ""."""

    error: float
    rms: float
    wrong: str = ""


def compare(result: Path, eager: Path, exact: Path, dtype: str) -> Comparison:
    """The results of one contender, as files of NumPy."""
    found, plain, wanted = _read(result), _read(eager), _read(exact)
    if [each.shape for each in found] != [each.shape for each in plain]:
        return Comparison(
            math.inf, math.inf, f"its results are {_shapes(found)}, eager's are {_shapes(plain)}"
        )
    worst, rms, wrong = 0.0, 0.0, ""
    for mine, theirs, true in zip(found, plain, wanted, strict=True):
        error, allowed = error_of(mine, theirs, true, TOLERANCE[dtype])
        worst, rms = max(worst, error), max(rms, rms_of(mine, true))
        if error > allowed and not wrong:
            wrong = f"wrong: it errs by {error:.2e} of the largest magnitude, {allowed:.0e} is allowed"
    return Comparison(worst, rms, wrong)


def error_of(mine: Array, eager: Array, exact: Array, tolerance: float) -> tuple[float, float]:
    """The error of a result, and the one that is allowed, both over the largest finite magnitude of the result in f64.

    Integers must be eager's; NaN and infinities must be where eager has them.
    """
    if not np.issubdtype(eager.dtype, np.floating):
        return float(np.count_nonzero(mine != eager)), 0.0
    is_finite = np.isfinite(eager) & np.isfinite(exact)
    unlike = ~np.isfinite(eager) & ~((mine == eager) | (np.isnan(mine) & np.isnan(eager)))
    if unlike.any() or not np.isfinite(mine[is_finite]).all():
        return math.inf, 0.0
    scale = float(np.max(np.abs(exact[is_finite]), initial=0.0)) or 1.0

    def largest(values: Array) -> float:
        return float(np.max(np.abs(values[is_finite] - exact[is_finite]), initial=0.0)) / scale

    return largest(mine), max(tolerance, EAGER_FACTOR * largest(eager))


def rms_of(mine: Array, exact: Array) -> float:
    """The root of the mean square of the error, over the largest finite magnitude of the result in f64."""
    is_finite = np.isfinite(exact) & np.isfinite(mine)
    if not is_finite.any():
        return 0.0
    errors = mine[is_finite].astype(np.float64) - exact[is_finite]
    scale = float(np.max(np.abs(exact[is_finite]))) or 1.0
    return math.sqrt(float(np.mean(errors * errors))) / scale


def _read(file: Path) -> list[Array]:
    with np.load(file) as content:
        return [content[name] for name in content.files]


def _shapes(arrays: list[Array]) -> str:
    return ", ".join(str(list(each.shape)) for each in arrays)
