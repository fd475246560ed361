"""Intervals of tensors: what an element may be under the licences of docs/semantics.md.

An `Interval` holds for each element the least and the largest value that a correct program may give, and whether it may
be NaN. `low` and `high` are both NaN where it must be. Floats of every dtype are bounded in f64; integers are i64,
bools
bool. The order of numbers is total: -0.0 lies below 0.0, so equal bits of both ends mean one bit pattern, and
[-0.0, 0.0] a zero of either sign.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
_INSIDE: list[bool] = []
"""Whether what is computed is a part of one operation, which some levels compute in higher precision."""


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Where bounds of every step hold its value before it is rounded too."""
    _INSIDE.append(True)
    try:
        yield
    finally:
        _INSIDE.pop()


INF = math.inf
WIDE: dict[torch.dtype, torch.dtype] = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
UNITS: dict[torch.dtype, float] = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""Half the distance from 1 to the next number."""
LEAST: dict[torch.dtype, float] = {torch.float64: 5e-324, torch.float32: 2.0**-149}
"""The least subnormal."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return WIDE.get(dtype, dtype)


@dataclass(frozen=True)
class Interval:
    low: Tensor
    high: Tensor
    may: Tensor
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:
        return self.low.shape

    @property
    def must(self) -> Tensor:
        """Where the value is NaN for certain."""
        return torch.isnan(self.low) if self.is_float else torch.zeros_like(self.may)

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def is_point(self) -> Tensor:
        """Where one value alone is right: one bit pattern, or NaN."""
        return (same(self.low, self.high) & ~self.may) | self.must

    def each(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """The same view of all that is known."""
        return Interval(function(self.low), function(self.high), function(self.may), self.dtype)

    def centre(self) -> Tensor:
        """The value where it is a point, in its own dtype."""
        return self.low.to(self.dtype)

    def contains(self, values: Tensor) -> Tensor:
        """Where values of the dtype lie within; bounds between two numbers of the dtype are rounded to it."""
        if not self.is_float:
            return (self.low <= values) & (values <= self.high)
        found, low, high = values.double(), round_to(self.low, self.dtype), round_to(self.high, self.dtype)
        inside = at_most(low, found) & at_most(found, high)
        return torch.where(torch.isnan(found), self.may | self.must, inside)


def exact(values: Tensor) -> Interval:
    """The interval of known values."""
    if values.dtype.is_floating_point:
        wide = values.double()
        return Interval(wide, wide, torch.isnan(wide), values.dtype)
    kept = values.clone() if values.dtype == torch.bool else values.long()
    return Interval(kept, kept, torch.zeros(values.shape, dtype=torch.bool), values.dtype)


def unknown(shape: Sequence[int], dtype: torch.dtype) -> Interval:
    """Nothing is known."""
    if dtype.is_floating_point:
        low, high = torch.full(shape, -INF, dtype=torch.float64), torch.full(shape, INF, dtype=torch.float64)
        return Interval(low, high, torch.ones(shape, dtype=torch.bool), dtype)
    if dtype == torch.bool:
        none = torch.zeros(shape, dtype=torch.bool)
        return Interval(none, ~none, none, dtype)
    info = torch.iinfo(dtype)
    low, high = torch.full(shape, info.min), torch.full(shape, info.max)
    return Interval(low, high, torch.zeros(shape, dtype=torch.bool), dtype)


def choose(condition: Tensor, yes: Interval, no: Interval) -> Interval:
    """One interval where the condition holds, else the other."""
    return Interval(
        torch.where(condition, yes.low, no.low),
        torch.where(condition, yes.high, no.high),
        torch.where(condition, yes.may, no.may),
        yes.dtype,
    )


# ---- numbers in total order --------------------------------------------------------------------------------------


def same(a: Tensor, b: Tensor) -> Tensor:
    """Equal bit patterns, every NaN alike."""
    if not a.is_floating_point():
        return a == b
    return ((a == b) & (torch.signbit(a) == torch.signbit(b))) | (torch.isnan(a) & torch.isnan(b))


def at_most(a: Tensor, b: Tensor) -> Tensor:
    """a <= b in the total order; False with a NaN."""
    return (a < b) | ((a == b) & (torch.signbit(a) | ~torch.signbit(b)))


def least(a: Tensor, b: Tensor) -> Tensor:
    """The lower of two, NaN if both are, else the number."""
    if not a.is_floating_point():
        return torch.minimum(a, b)
    return torch.where(at_most(a, b) | torch.isnan(b), a, b)


def most(a: Tensor, b: Tensor) -> Tensor:
    if not a.is_floating_point():
        return torch.maximum(a, b)
    return torch.where(at_most(b, a) | torch.isnan(b), a, b)


def hull(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    low = high = parts[0]
    for part in parts[1:]:
        low, high = least(low, part), most(high, part)
    return low, high


def join(a: Interval, b: Interval) -> Interval:
    """The least interval that holds both."""
    low, high = least(a.low, b.low), most(a.high, b.high)
    return Interval(low, high, a.may | b.may | a.must | b.must, a.dtype)


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded to a dtype, narrow ones by way of f32."""
    if dtype == torch.float64:
        return values
    single = values.to(torch.float32)
    return (single if dtype == torch.float32 else single.to(dtype)).double()


def _aside(values: Tensor, amount: Tensor | float) -> Tensor:
    """values + amount, infinities and zeros moved by nothing left as they are."""
    moved = values + amount
    return torch.where(torch.isfinite(values) & (moved != values), moved, values)


def settle(
    low: Tensor,
    high: Tensor,
    may: Tensor,
    dtype: torch.dtype,
    *,
    ulps: float = 0.0,
    error: Tensor | float = 0.0,
    unrounded: bool = False,
    floor: float = -INF,
    ceiling: float = INF,
) -> Interval:
    """Bounds of exact results made bounds of what a program may give in `dtype`.

    `ulps` units in the last place of the dtype in which it is computed and an absolute `error` are added. Bounds are
    rounded; for narrow dtypes they hold the value before its last rounding too (*keep-wide*), and with `unrounded`
    (a product, under *contract*) that before any.
    """
    wide = compute_dtype(dtype)
    spread = not isinstance(error, float) or error > 0 or ulps > 0
    margin_low, margin_high = (
        torch.as_tensor(error, dtype=torch.float64),
        torch.as_tensor(error, dtype=torch.float64),
    )
    if ulps:
        margin_low = margin_low + 2 * ulps * UNITS[wide] * low.abs() + ulps * LEAST[wide]
        margin_high = margin_high + 2 * ulps * UNITS[wide] * high.abs() + ulps * LEAST[wide]
        # what is zero for certain stays zero: log(1), sin(0)
        margin_low = torch.where(
            (low == 0) & (high == 0), torch.as_tensor(error, dtype=torch.float64), margin_low
        )
        margin_high = torch.where(
            (low == 0) & (high == 0), torch.as_tensor(error, dtype=torch.float64), margin_high
        )
    if not spread:
        loose = ~same(low, high) & (dtype != torch.float64)
        margin_low = torch.where(loose, 2.0**-50 * low.abs(), margin_low)
        margin_high = torch.where(loose, 2.0**-50 * high.abs(), margin_high)
    below, above = _aside(low, -margin_low), _aside(high, margin_high)
    below = torch.where(below < floor, torch.full_like(below, floor), below)
    above = torch.where(above > ceiling, torch.full_like(above, ceiling), above)
    low_parts, high_parts = [round_to(below, dtype)], [round_to(above, dtype)]
    if dtype != wide:
        low_parts.append(round_to(below, wide))
        high_parts.append(round_to(above, wide))
    if unrounded or _INSIDE:
        low_parts.append(below)
        high_parts.append(above)
    result_low, result_high = hull(low_parts)[0], hull(high_parts)[1]
    return Interval(result_low, result_high, may | torch.isnan(low), dtype)


def corners(
    function: Callable[[Tensor, Tensor], Tensor], a: Interval, b: Interval
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of a function that is monotone in each argument on either side of 0, and where it may be NaN."""
    parts = [function(x, y) for x in points_of(a) for y in points_of(b)]
    nans = torch.stack([torch.isnan(part) for part in parts])
    some, every = nans.any(0), nans.all(0)
    low, high = hull(parts)
    low, high = torch.where(some & ~every, -INF, low), torch.where(some & ~every, INF, high)
    return low, high, some | a.may | b.may


def points_of(a: Interval) -> tuple[Tensor, ...]:
    """Both ends, and the point between them that is nearest to 0."""
    between = torch.clamp(torch.zeros_like(a.low), a.low, a.high)
    return a.low, a.high, torch.where(torch.isnan(a.low), a.low, between)


# ---- arithmetic of floats ----------------------------------------------------------------------------------------


def add(a: Interval, b: Interval) -> Interval:
    return settle(*corners(torch.add, a, b), a.dtype)


def negative(a: Interval) -> Interval:
    return Interval(-a.high, -a.low, a.may, a.dtype)


def subtract(a: Interval, b: Interval) -> Interval:
    return add(a, negative(b))


def is_small(a: Interval) -> Tensor:
    """Points that are few enough bits for exact products and sums in f64."""
    scaled = a.low * 4096
    return a.is_point & (a.low.abs() <= 4096) & (scaled == scaled.round())


def multiply(a: Interval, b: Interval) -> Interval:
    low, high, may = corners(torch.mul, a, b)
    if a.dtype == torch.float64:
        loose = ~(is_small(a) & is_small(b))
        margin = torch.where(loose, 1.0, 0.0) * 2.0**-53
        low, high = _aside(low, -low.abs() * margin), _aside(high, high.abs() * margin)
        # a product that overflows is finite before it is rounded
        finite = (
            torch.isfinite(a.low) & torch.isfinite(a.high) & torch.isfinite(b.low) & torch.isfinite(b.high)
        )
        largest = torch.finfo(torch.float64).max
        low = torch.where(finite & (low == INF), largest, low)
        high = torch.where(finite & (high == -INF), -largest, high)
    return settle(low, high, may, a.dtype, unrounded=True)


def divide(a: Interval, b: Interval) -> Interval:
    low, high, may = corners(torch.div, a, b)
    across = (b.low <= 0) & (b.high >= 0) & ~same(b.low, b.high)
    low, high = torch.where(across, -INF, low), torch.where(across, INF, high)
    zero = (a.low <= 0) & (a.high >= 0)
    large = (torch.isinf(a.low) | torch.isinf(a.high)) & (torch.isinf(b.low) | torch.isinf(b.high))
    return settle(low, high, may | (across & zero) | (large & ~a.must & ~b.must), a.dtype)


def extremum(a: Interval, b: Interval, largest: bool) -> Interval:
    """max or min: NaN wins, and of zeros of two signs either."""
    function = torch.maximum if largest else torch.minimum
    low, high = function(a.low, b.low), function(a.high, b.high)
    if not a.is_float:
        return Interval(low, high, a.may | b.may, a.dtype)
    signed = _holds_negative_zero(a) | _holds_negative_zero(b)
    low = torch.where(signed & (low == 0), -torch.zeros_like(low), low)
    high = torch.where(signed & (high == 0), torch.zeros_like(high), high)
    return Interval(low, high, a.may | b.may, a.dtype)


def _holds_negative_zero(a: Interval) -> Tensor:
    return (a.low <= 0) & (a.high >= 0) & torch.signbit(a.low)


def absolute(a: Interval) -> Interval:
    inner = torch.where((a.low <= 0) & (a.high >= 0), 0.0, torch.minimum(a.low.abs(), a.high.abs()))
    low = torch.where(torch.isnan(a.low), a.low, inner)
    return Interval(low, torch.maximum(a.low.abs(), a.high.abs()), a.may, a.dtype)


def monotone(
    a: Interval,
    function: Callable[[Tensor], Tensor],
    *,
    ulps: float = 4.0,
    falling: bool = False,
    floor: float = -INF,
    ceiling: float = INF,
    error: Tensor | float = 0.0,
) -> Interval:
    """A function that rises (or falls) on its domain and is NaN outside."""
    first, last = function(a.low), function(a.high)
    first_nan, last_nan = torch.isnan(first), torch.isnan(last)
    must = a.must | (first_nan & last_nan & same(a.low, a.high))
    some = (first_nan | last_nan) & ~must
    low, high = (last, first) if falling else (first, last)
    low = torch.where(some, floor, low)
    high = torch.where(some, ceiling, high)
    return settle(
        low, high, a.may | some | must, a.dtype, ulps=ulps, floor=floor, ceiling=ceiling, error=error
    )


def lipschitz(
    a: Interval,
    function: Callable[[Tensor], Tensor],
    slope: float,
    *,
    ulps: float = 4.0,
    error: Tensor | float = 0.0,
) -> Interval:
    """A smooth function whose slope nowhere exceeds `slope`, bounded through its value at the middle."""
    middle = torch.where(a.low == a.high, a.low, a.low / 2 + a.high / 2)
    radius = torch.where(same(a.low, a.high), 0.0, (a.high / 2 - a.low / 2) * slope * 1.000001)
    value = function(middle)
    zeros = (a.low == 0) & (a.high == 0) & ~same(a.low, a.high)
    first, last = hull([value, torch.where(zeros, function(-middle), value)])
    infinite = ~same(a.low, a.high) & (torch.isinf(a.low) | torch.isinf(a.high))
    low, high = (
        torch.where(infinite, -INF, _aside(first, -radius)),
        torch.where(infinite, INF, _aside(last, radius)),
    )
    return settle(low, high, a.may | torch.isnan(value) | infinite, a.dtype, ulps=ulps, error=error)


def less(a: Interval, b: Interval, or_equal: bool) -> Interval:
    compare = torch.le if or_equal else torch.lt
    maybe_nan = a.may | b.may
    certain, possible = compare(a.high, b.low) & ~maybe_nan, compare(a.low, b.high)
    return Interval(certain, possible, torch.zeros_like(certain), torch.bool)


def equal(a: Interval, b: Interval) -> Interval:
    certain = (a.low == a.high) & (b.low == b.high) & (a.low == b.low) & ~a.may & ~b.may
    possible = (a.low <= b.high) & (b.low <= a.high)
    return Interval(certain, possible, torch.zeros_like(certain), torch.bool)


def invert(a: Interval) -> Interval:
    """Not, of bools."""
    return Interval(~a.high, ~a.low, a.may, torch.bool)


# ---- sums and products along axes --------------------------------------------------------------------------------


def total(a: Interval, axes: Sequence[int], keepdim: bool = False) -> Interval:
    """A sum in any order: exact where all bits fit, else within (n - 1) u of the sum of magnitudes."""
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
    overflow = (magnitude * (1 + count * UNITS[wide]) > torch.finfo(wide).max) & ~must
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
            low, high, may = corners(torch.mul, running, factor)
            running = Interval(low, high, may, torch.float64)
            lossless &= same(round_to(low, wide), low) & is_small(factor) & same(low, high)
        lossless &= is_small(flat.each(lambda t: t[..., 0]))
        margin = torch.where(lossless, 0.0, 1.0) * (count * UNITS[wide] * 1.0001)
        low, high = (
            _aside(running.low, -running.low.abs() * margin),
            _aside(running.high, running.high.abs() * margin),
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
        signed = _any(_holds_negative_zero(a), axes, keepdim)
        low = torch.where(signed & (low == 0), -torch.zeros_like(low), low)
        high = torch.where(signed & (high == 0), torch.zeros_like(high), high)
    return Interval(low, high, may, a.dtype)


def convert(a: Interval, dtype: torch.dtype) -> Interval:
    """What `.to(dtype)` gives: a cast that is written rounds."""
    if dtype == a.dtype:
        return a
    if dtype == torch.bool:
        if not a.is_float:
            return invert(equal(a, exact(torch.zeros((), dtype=a.dtype))))
        return invert(equal(a, exact(torch.zeros((), dtype=a.dtype))))
    if dtype.is_floating_point:
        if a.is_float:
            return Interval(round_to(a.low, dtype), round_to(a.high, dtype), a.may, dtype)
        low, high = (
            x.to(torch.float32).to(dtype).double() if dtype in WIDE else x.to(dtype).double()
            for x in (a.low, a.high)
        )
        return Interval(low, high, a.may, dtype)
    value = exact(a.centre().to(dtype))
    if not a.is_float:
        info = torch.iinfo(dtype)
        inside = (a.low.long() >= info.min) & (a.high.long() <= info.max)
        bounds = Interval(a.low.long(), a.high.long(), a.may, dtype)
        return choose(a.is_point, value, choose(inside, bounds, unknown(a.shape, dtype)))
    info = torch.iinfo(dtype)
    inside = (a.low > max(info.min, -(2.0**31))) & (a.high < min(info.max, 2.0**31)) & ~a.may
    safe = [torch.where(inside, x, 0.0).trunc().long() for x in (a.low, a.high)]
    bounds = Interval(safe[0], safe[1], torch.zeros_like(a.may), dtype)
    return choose(a.is_point, value, choose(inside, bounds, unknown(a.shape, dtype)))
