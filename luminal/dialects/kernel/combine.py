"""How the monoids of reductions and the combines of stores join two values, in NumPy with PyTorch's meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def combine(monoid: str, old: Any, new: Any) -> Array:
    """One step of sum, prod, max or min (add and mul are their names in stores); NaN wins in max and min."""
    old, new = np.asarray(old), np.asarray(new)
    with np.errstate(all="ignore"):
        match monoid:
            case "sum" | "add":
                result = old | new if old.dtype == np.bool_ else old + new
            case "prod" | "mul":
                result = old & new if old.dtype == np.bool_ else old * new
            case "max":
                result = np.maximum(old, new)
            case "min":
                result = np.minimum(old, new)
            case _:
                raise ValueError(f"no monoid {monoid!r} of one value")
    return result.astype(old.dtype)


def combine_pair(monoid: str, old: Sequence[Any], new: Sequence[Any]) -> tuple[Array, Array]:
    """One step of argmax or argmin on (value, position): the first position wins a tie, NaN wins over numbers."""
    (value, position), (other, place) = old, new
    value, position, other, place = map(np.asarray, (value, position, other, place))
    better = other > value if monoid == "argmax" else other < value
    old_nan, new_nan = value != value, other != other
    tie = (other == value) | (old_nan & new_nan)
    take = (better & ~old_nan) | (new_nan & ~old_nan) | (tie & (place < position))
    return np.where(take, other, value).astype(value.dtype), np.where(take, place, position).astype(
        position.dtype
    )
