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


def first_best(monoid: str, value: Array, position: Array, axes: tuple[int, ...]) -> Array:
    """The least position of the largest (argmax) or least value; NaN before numbers; the last i64 for none."""
    none = np.int64(np.iinfo(np.int64).max)
    if not value.size:
        shape = [1 if axis in axes else size for axis, size in enumerate(value.shape)]
        return np.full(shape, none)
    wide = value if value.dtype != np.bool_ else value.astype(np.int64)
    best = (np.max if monoid == "argmax" else np.min)(wide, axis=axes, keepdims=True)
    chosen = (wide == best) | ((wide != wide) & (best != best))
    return np.min(np.where(chosen, position, none), axis=axes, keepdims=True)
