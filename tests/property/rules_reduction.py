"""The intervals of reductions, scans and sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tests.property import interval_folds as folds
from tests.property import intervals as iv
from tests.property.intervals import Interval, Tensor, exact, unknown
from tests.property.rules import Context, Rule, composed, exact_root, narrow, square, wide


def axes_of(c: Context, rank: int) -> tuple[int, ...]:
    dim = c.values.get("dim")
    given = range(rank) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    return tuple(sorted({axis % max(rank, 1) for axis in given})) if rank else ()


def keepdim(c: Context) -> bool:
    return bool(c.values.get("keepdim", False))


def count_of(x: Interval, axes: Sequence[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def summed(c: Context, xs: Sequence[Interval]) -> Interval:
    x = iv.convert(xs[0], c.dtype)
    axes = axes_of(c, len(x.shape))
    found = folds.total(x, axes, keepdim(c))
    if c.dtype.is_floating_point or c.dtype == torch.bool or not axes:
        return found
    # a sum of integers that are not known may wrap around, and is then anything
    reach = torch.maximum(x.low.double().abs(), x.high.double().abs())
    wraps = reach.sum(axes, keepdim(c)) >= torch.iinfo(c.dtype).max
    known = (~x.is_point).sum(axes, keepdim(c)) == 0
    return iv.choose(wraps & ~known, unknown(found.shape, c.dtype), found)


def multiplied(c: Context, xs: Sequence[Interval]) -> Interval:
    x = iv.convert(xs[0], c.dtype)
    return folds.product(x, axes_of(c, len(x.shape)), keepdim(c))


def mean_of(x: Interval, axes: Sequence[int], keep: bool) -> Interval:
    count = exact(torch.tensor(float(count_of(x, axes)), dtype=x.dtype))
    return iv.divide(folds.total(x, axes, keep), count)


@composed
def mean(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(iv.convert(xs[0], c.dtype))
    return narrow(mean_of(x, axes_of(c, len(x.shape)), keepdim(c)), c.dtype)


def variance_of(x: Interval, axes: Sequence[int], correction: float, keep: bool) -> Interval:
    distance = iv.subtract(x, mean_of(x, axes, True))
    total = folds.total(square(distance), axes, keep)
    divisor = max(count_of(x, axes) - correction, 0.0)
    return iv.divide(total, exact(torch.tensor(divisor, dtype=x.dtype)))


@composed
def variance(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(xs[0])
    found = variance_of(x, axes_of(c, len(x.shape)), c.values["correction"], keepdim(c))
    return narrow(found, c.dtype, ulps=4)


@composed
def deviation(c: Context, xs: Sequence[Interval]) -> Interval:
    """The root of the variance; eager keeps squares in f64, where they do not overflow."""
    x = wide(xs[0])
    axes = axes_of(c, len(x.shape))
    found = variance_of(x, axes, c.values["correction"], keepdim(c))
    return narrow(iv.monotone(found, exact_root, ulps=4, floor=-0.0), c.dtype)


def extremes(largest: bool) -> Rule:
    return lambda c, xs: folds.extreme(xs[0], axes_of(c, len(xs[0].shape)), largest, keepdim(c))


def position_of(x: Interval, largest: bool) -> Interval:
    """argmax along the last axis: known where one candidate, or the first of equal points, must win."""
    size = x.shape[-1]
    low, high = (x.low, x.high) if largest else (_flip(x.high), _flip(x.low))
    places = torch.arange(size)
    if x.is_float:
        low, high = (torch.where(torch.isnan(t), torch.inf, t) for t in (low, high))
        nans = x.must.any(-1)
        first_nan = torch.where(x.must, places, size).amin(-1)
        loose = (x.may & ~x.must).any(-1)
    best = low.amax(-1, keepdim=True)
    candidates = high >= best
    first, last = torch.where(candidates, places, size).amin(-1), torch.where(candidates, places, -1).amax(-1)
    tied = (candidates & ((low != high) | (low != best))).any(-1)
    result_last = torch.where(tied, last, first)
    if x.is_float:
        first, result_last = torch.where(nans, first_nan, first), torch.where(nans, first_nan, result_last)
        first = torch.where(loose, 0, first)
        result_last = torch.where(loose, size - 1, result_last)
    return Interval(first, result_last, torch.zeros(first.shape, dtype=torch.bool), torch.int64)


def _flip(t: Tensor) -> Tensor:
    return ~t if t.dtype == torch.bool else -t - 1 if not t.is_floating_point() else -t


def _arrange(x: Interval, axes: Sequence[int]) -> Interval:
    """The reduced axes as one last axis."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    shape = [x.shape[axis] for axis in kept]
    count = math.prod(x.shape[axis] for axis in axes)
    return x.each(lambda t: t.permute(*kept, *axes).reshape(*shape, count) if t.ndim else t.reshape(1))


def position(largest: bool) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        x = xs[0]
        if x.dtype == torch.bool:
            x = iv.convert(x, torch.uint8)
        found = position_of(_arrange(x, axes_of(c, len(x.shape))), largest)
        return found.each(lambda t: t.reshape(c.results[0].shape))

    return rule


def extreme_pair(largest: bool) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> list[Interval]:
        axes = axes_of(c, len(xs[0].shape))
        x = iv.convert(xs[0], torch.uint8) if xs[0].dtype == torch.bool else xs[0]
        where_ = position_of(_arrange(x, axes), largest).each(lambda t: t.reshape(c.results[1].shape))
        return [folds.extreme(xs[0], axes, largest, keepdim(c)), where_]

    return rule


def any_or_all(c: Context, xs: Sequence[Interval]) -> Interval:
    x = iv.convert(xs[0], torch.bool)
    low, high = c.apply(x.low), c.apply(x.high)
    made = Interval(low, high, torch.zeros(low.shape, dtype=torch.bool), torch.bool)
    return iv.convert(made, c.dtype) if c.dtype != torch.bool else made


def _axis(c: Context, x: Interval) -> int:
    return c.values["dim"] % max(len(x.shape), 1)


def running(kind: str) -> Rule:
    """cumsum and cumprod, by sums of ever longer parts."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        x = iv.convert(xs[0], c.dtype)
        if not x.shape:
            return x
        axis = _axis(c, x)
        if not x.shape[axis]:
            return exact(c.results[0])
        fold = folds.total if kind == "sum" else folds.product
        parts = [
            fold(x.each(lambda t, n=n: t.narrow(axis, 0, n + 1)), (axis,), True) for n in range(x.shape[axis])
        ]
        names = ("low", "high", "may")
        low, high, may = (torch.cat([getattr(part, name) for part in parts], axis) for name in names)
        return Interval(low, high, may, c.dtype)

    return rule


def running_extreme(largest: bool) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> list[Interval]:
        x = xs[0]
        known_row = x.is_point
        if x.shape:
            axis = _axis(c, x)
            known_row = known_row.cumprod(axis).bool() if x.shape[axis] else known_row
        parts = [t if t.dtype == torch.float64 else t.long() for t in (x.low, x.high)]
        function = torch.cummax if largest else torch.cummin
        low, high = (function(t, c.values["dim"]).values.to(p.dtype) for t, p in zip(parts, (x.low, x.high)))
        may = x.may.long().cummax(axis).values.bool() if x.shape and x.shape[axis] else x.may
        if x.is_float:
            low, high = torch.where(low == 0, -low.abs(), low), torch.where(high == 0, high.abs(), high)
        values = Interval(low, high, may, x.dtype)
        where_ = iv.choose(known_row, exact(c.results[1]), unknown(x.shape, torch.int64))
        return [values, where_]

    return rule


def _rows(known_: Tensor, axis: int) -> Tensor:
    return known_.all(axis, keepdim=True).expand(known_.shape) if known_.ndim else known_


def sorted_values(x: Interval, axis: int, descending: bool) -> Interval:
    if x.is_float:
        low = torch.sort(x.low, dim=axis, stable=True, descending=descending).values
        high = torch.sort(x.high, dim=axis, stable=True, descending=descending).values
        loose = (x.may & ~x.must).any(axis, keepdim=True).expand(low.shape) if low.ndim else x.may & ~x.must
        rows = _rows(x.is_point, axis)
        zeros_low = torch.where((low == 0) & ~rows, -low.abs(), low)
        zeros_high = torch.where((high == 0) & ~rows, high.abs(), high)
        made = Interval(zeros_low, zeros_high, torch.isnan(low), x.dtype)
        return iv.choose(loose, unknown(low.shape, x.dtype), made)
    low, high = (torch.sort(t, dim=axis, stable=True, descending=descending).values for t in (x.low, x.high))
    return Interval(low, high, x.may, x.dtype)


def sort(c: Context, xs: Sequence[Interval]) -> list[Interval]:
    x, axis = xs[0], _axis(c, xs[0])
    rows = _rows(x.is_point, axis)
    where_ = iv.choose(rows, exact(c.results[1]), unknown(x.shape, torch.int64))
    return [sorted_values(x, axis, c.values["descending"]), where_]


def argsort(c: Context, xs: Sequence[Interval]) -> Interval:
    x, axis = xs[0], _axis(c, xs[0])
    return iv.choose(_rows(x.is_point, axis), exact(c.results[0]), unknown(x.shape, torch.int64))


def top(c: Context, xs: Sequence[Interval]) -> list[Interval]:
    """Of equal values PyTorch may take any: their indices, and the sign of zeros, are not defined."""
    x, axis = xs[0], _axis(c, xs[0])
    count = c.results[0].shape[axis] if x.shape else 1
    values = sorted_values(x, axis, c.values["largest"])
    values = values.each(lambda t: t.narrow(axis, 0, count) if t.ndim else t)
    if x.is_float:
        low = torch.where(values.low == 0, -values.low.abs(), values.low)
        values = Interval(
            low, torch.where(values.high == 0, values.high.abs(), values.high), values.may, x.dtype
        )
    given = c.operands[0]
    data = given.double() if given.is_floating_point() else given.long()
    data = torch.where(torch.isnan(data), torch.inf, data) if given.is_floating_point() else data
    if x.shape:
        ordered = data.sort(axis).values
        size = ordered.shape[axis]
        ties = ordered.narrow(axis, 1, size - 1) == ordered.narrow(axis, 0, size - 1) if size else ordered
        clear = _rows(x.is_point, axis) & ~ties.any(axis, keepdim=True).expand(x.shape)
        clear = clear.narrow(axis, 0, count)
    else:
        clear = x.is_point
    return [values, iv.choose(clear, exact(c.results[1]), unknown(c.results[1].shape, torch.int64))]
