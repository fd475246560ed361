"""The intervals of what is read or written at positions that tensors give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tests.property import interval_folds as folds
from tests.property.intervals import Interval, Tensor, choose, exact, unknown
from tests.property.rules import Context, Rule, number


def picked(data: int) -> Rule:
    """Elements of the operand of that number at positions that the others give."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        if not all(bool(index.is_point.all()) for n, index in enumerate(xs) if n != data):
            return unknown(c.results[0].shape, c.dtype)
        parts = [
            c.apply(*(part if n == data else c.operands[n] for n in range(len(xs))))
            for part in (xs[data].low, xs[data].high, xs[data].may)
        ]
        return Interval(parts[0], parts[1], parts[2], c.dtype)

    return rule


def scattered(combine: str) -> Rule:
    return partial(_scattered, combine)


def _scattered(combine: str, c: Context, xs: Sequence[Interval]) -> Interval:
    """In row-major order; the last of several to one place stays, sums are within n u of the sum of magnitudes."""
    x, index = xs[0], xs[1]
    value = xs[2] if len(xs) > 2 else number(c.values["value"], c.dtype).each(lambda t: t.expand(index.shape))
    if not bool(index.is_point.all()):
        return unknown(x.shape, c.dtype)
    axis = c.values["dim"] % max(len(x.shape), 1)
    base = x.each(lambda t: t.reshape(t.shape or (1,)))
    positions = index.low.reshape(index.shape or (1,))
    part = value.each(lambda t: t.reshape(t.shape or (1,))[tuple(slice(0, n) for n in positions.shape)])
    grid = list(np.indices(tuple(positions.shape), sparse=False).reshape(positions.ndim, -1))
    grid[axis] = positions.numpy().reshape(-1)
    made = combine_at(base, tuple(grid), part.each(lambda t: t.reshape(-1)), combine)
    return made.each(lambda t: t.reshape(x.shape))


def combine_at(base: Interval, places: tuple[Any, ...], part: Interval, combine: str) -> Interval:
    """The interval after `part`, flat, was combined in at places, one after the other."""
    if not base.is_float and combine not in ("set", "max", "min"):
        return _whole_combined(base, places, part, combine)
    if combine == "set":
        parts: list[Tensor] = []
        for old, new in ((base.low, part.low), (base.high, part.high), (base.may, part.may)):
            kept = old.numpy().copy()
            kept[places] = new.numpy()
            parts.append(torch.from_numpy(kept))
        return Interval(parts[0], parts[1], parts[2], base.dtype)
    groups: dict[tuple[int, ...], list[int]] = {}
    for number_, place in enumerate(zip(*(axis.tolist() for axis in places), strict=True)):
        groups.setdefault(place, []).append(number_)
    low, high, may = base.low.clone(), base.high.clone(), base.may.clone()
    for place, members in groups.items():
        row = Interval(
            *(
                torch.cat([old[place].reshape(1), new[members]])
                for old, new in ((base.low, part.low), (base.high, part.high), (base.may, part.may))
            ),
            base.dtype,
        )
        if combine == "add":
            found = folds.total(row, (0,))
            if bool((row.low == 0).all()):  # no sum from +0.0: the sign may be that of all
                found = Interval(-found.low.abs(), found.high, found.may, found.dtype)
        elif combine == "mul":
            found = folds.product(row, (0,))
        else:
            found = folds.extreme(row, (0,), combine == "max")
        low[place], high[place], may[place] = found.low, found.high, found.may
    return Interval(low, high, may, base.dtype)


def _whole_combined(base: Interval, places: tuple[Any, ...], part: Interval, combine: str) -> Interval:
    if not bool(part.is_point.all()) or not bool(base.is_point.all()):
        return unknown(base.shape, base.dtype)
    kept = base.centre().numpy().copy()
    with np.errstate(all="ignore"):
        function = {"add": np.add, "mul": np.multiply}[combine]
        if base.dtype == torch.bool:
            function = {"add": np.logical_or, "mul": np.logical_and}[combine]
        function.at(kept, places, part.centre().numpy())
    return exact(torch.from_numpy(kept))


def index_put(c: Context, xs: Sequence[Interval]) -> Interval:
    x, value, indices = xs[0], xs[1], xs[2:]
    if not all(bool(index.is_point.all()) for index in indices):
        return unknown(x.shape, c.dtype)
    grid = torch.arange(x.low.numel()).reshape(x.shape)
    wrapped = tuple(index.low for index in indices)
    flat = grid[wrapped]
    part = value.each(lambda t: t.expand(flat.shape).reshape(-1))
    places = np.unravel_index(flat.reshape(-1).numpy(), tuple(x.shape)) if x.low.numel() else ()
    if not flat.numel():
        return x
    if c.values["accumulate"]:
        return combine_at(x, tuple(places), part, "add")
    # which of several writes to one place is the last, torch leaves open
    writes = torch.zeros(x.low.numel(), dtype=torch.int64).index_add(
        0, flat.reshape(-1), torch.ones(flat.numel(), dtype=torch.int64)
    )
    several = (writes > 1).reshape(x.shape)
    return choose(several, unknown(x.shape, c.dtype), combine_at(x, tuple(places), part, "set"))
