"""Intervals of sums, products and extrema along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tests.property.intervals import (
    INF,
    UNITS,
    Interval,
    Tensor,
    aside,
    choose,
    compute_dtype,
    corners,
    exact,
    holds_negative_zero,
    is_small,
    round_to,
    same,
    settle,
    unknown,
)


def total(a: Interval, axes: Sequence[int], keepdim: bool = False) -> Interval:
    """A sum in any order: exact where all bits fit, else within (n - 1) u of the sum of magnitudes.

    It may overflow where n times of it would: the divisor of a softmax, of n addends, leaves a sum under distribute.
    """
    axes = tuple(axes)
    if not a.is_float:
        return _whole_sum(a, axes, keepdim)
    if not axes:
        return Interval(a.low + 0.0, a.high + 0.0, a.may, a.dtype)
    wide = compute_dtype(a.dtype)
    count = math.prod(a.shape[axis] for axis in axes)
    low, high = a.low.sum(axes, keepdim), a.high.sum(axes, keepdim)
    size = torch.maximum(a.low.abs(), a.high.abs())
    finite = torch.where(torch.isfinite(size), size, 0.0)
    magnitude = finite.sum(axes, keepdim)
    rises = _any(a.high == INF, axes, keepdim)
    falls = _any(a.low == -INF, axes, keepdim)
    must = _any(a.must, axes, keepdim) | (
        _any(a.low == INF, axes, keepdim) & _any(a.high == -INF, axes, keepdim)
    )
    may = _any(a.may, axes, keepdim) | (rises & falls)
    low = torch.where(falls, -INF, torch.where(_any(a.low == INF, axes, keepdim), INF, low))
    high = torch.where(rises, INF, torch.where(_any(a.high == -INF, axes, keepdim), -INF, high))
    low, high = torch.where(must, math.nan, low), torch.where(must, math.nan, high)
    granule = _granule(a, axes, keepdim)
    fits = (magnitude <= granule * UNITS[wide] ** -1) & _all(a.is_point, axes, keepdim)
    error = torch.where(
        fits, 0.0, (max(count - 1, 0) + 1) * UNITS[wide] * magnitude + 2.0**-52 * count * magnitude
    )
    if count <= 1:
        error = torch.zeros_like(error)
    overflow = (magnitude > torch.finfo(wide).max / max(count, 2)) & ~must
    low, high = torch.where(overflow, -INF, low), torch.where(overflow, INF, high)
    return settle(low + 0.0, high + 0.0, may | overflow, a.dtype, error=error)


def _granule(a: Interval, axes: Sequence[int], keepdim: bool) -> Tensor:
    """The lowest bit that any summand has."""
    pattern = a.low.contiguous().view(torch.int64)
    exponent = ((pattern >> 52) & 0x7FF) - 1075
    mantissa = (pattern & 0xFFFFFFFFFFFFF) | (1 << 52)
    trailing = (mantissa & -mantissa).double()
    unit = torch.where(
        torch.isfinite(a.low) & (a.low != 0), torch.ldexp(trailing, exponent.clamp(-1000)), INF
    )
    return _fold(torch.amin, unit, axes, keepdim, INF)


def _fold(
    function: Callable[..., Tensor], values: Tensor, axes: Sequence[int], keepdim: bool, empty: float
) -> Tensor:
    if any(values.shape[axis] == 0 for axis in axes):
        shape = [
            1 if axis in axes else size
            for axis, size in enumerate(values.shape)
            if keepdim or axis not in axes
        ]
        return torch.full(shape, empty, dtype=values.dtype)
    return function(values, tuple(axes), keepdim) if axes else values


def _any(values: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    return values.any(tuple(axes), keepdim) if axes else values


def _all(values: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    return values.all(tuple(axes), keepdim) if axes else values


def _whole_sum(a: Interval, axes: Sequence[int], keepdim: bool) -> Interval:
    """Integers wrap: known where all are."""
    known = _all(a.is_point, axes, keepdim)
    value = exact((a.centre().sum(tuple(axes), keepdim, dtype=a.dtype)) if axes else a.centre())
    size = torch.maximum(a.low.abs(), a.high.abs()).double()
    fits = (size.sum(tuple(axes), keepdim) if axes else size) < torch.iinfo(a.dtype).max / 2
    low, high = (
        (a.low.sum(tuple(axes), keepdim), a.high.sum(tuple(axes), keepdim)) if axes else (a.low, a.high)
    )
    bounds = Interval(low, high, torch.zeros_like(known), a.dtype)
    return choose(known, value, choose(fits, bounds, unknown(known.shape, a.dtype)))


def significant_bits(value: torch.Tensor) -> torch.Tensor:
    """Bits from the highest to the lowest that is set; 0 of what is 0 or not finite."""
    mantissa, _ = torch.frexp(torch.where(torch.isfinite(value), value, 0.0))
    whole = (mantissa * 2.0**53).long()
    lowest = torch.log2((whole & -whole).double())
    return torch.where(whole == 0, 0.0, 53 - lowest)


def product(a: Interval, axes: Sequence[int], keepdim: bool = False) -> Interval:
    """A product in any order; where a part may overflow or vanish on the way, nothing is known."""
    axes = tuple(axes)
    kept = [axis for axis in range(len(a.shape)) if axis not in axes]
    count = math.prod(a.shape[axis] for axis in axes)
    order = (*kept, *axes)
    flat = a.each(lambda t: t.permute(order).reshape([*(t.shape[axis] for axis in kept), count]))
    shape = flat.shape[:-1]
    result = exact(torch.ones(shape, dtype=a.dtype))
    if not a.is_float:
        known = flat.is_point.all(-1)
        value = exact(flat.centre().prod(-1, dtype=a.dtype))
        result = choose(known, value, unknown(shape, a.dtype))
    elif count:
        wide = compute_dtype(a.dtype)
        running = flat.each(lambda t: t[..., 0])
        size = torch.maximum(flat.low.abs(), flat.high.abs())
        largest = torch.where(torch.isfinite(size), size, 1.0).clamp(min=1.0).prod(-1)
        inner = torch.minimum(flat.low.abs(), flat.high.abs())
        smallest = torch.where(inner > 0, inner, 1.0).clamp(max=1.0).prod(-1)
        lossless = torch.ones(shape, dtype=torch.bool)
        for position in range(1, count):
            factor = flat.each(lambda t, p=position: t[..., p])
            if wide == torch.float64:
                lossless &= significant_bits(running.low) + significant_bits(factor.low) <= 53
            low, high, may = corners(torch.mul, running, factor)
            running = Interval(low, high, may, torch.float64)
            lossless &= same(round_to(low, wide), low) & is_small(factor) & same(low, high)
        lossless &= is_small(flat.each(lambda t: t[..., 0]))
        margin = torch.where(lossless, 0.0, 1.0) * (count * UNITS[wide] * 1.0001)
        low, high = (
            aside(running.low, -running.low.abs() * margin),
            aside(running.high, running.high.abs() * margin),
        )
        result = settle(low, high, running.may, a.dtype)
        info = torch.finfo(wide)
        wild = (largest > info.max / 4) | (smallest < info.tiny * 4)
        result = choose(wild & ~flat.must.any(-1), unknown(shape, a.dtype), result)
    if not keepdim:
        return result
    shape = [1 if axis in axes else size for axis, size in enumerate(a.shape)]
    return result.each(lambda t: t.reshape(shape))


def extreme(a: Interval, axes: Sequence[int], largest: bool, keepdim: bool = False) -> Interval:
    """The maximum or minimum along axes; NaN wins."""
    axes = tuple(axes)
    if not axes:
        return a
    function = torch.amax if largest else torch.amin
    low, high = function(a.low, axes, keepdim), function(a.high, axes, keepdim)
    may = _any(a.may, axes, keepdim)
    if a.is_float:
        signed = _any(holds_negative_zero(a), axes, keepdim)
        low = torch.where(signed & (low == 0), -torch.zeros_like(low), low)
        high = torch.where(signed & (high == 0), torch.zeros_like(high), high)
    return Interval(low, high, may, a.dtype)
