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


def aside(values: Tensor, amount: Tensor | float) -> Tensor:
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
    below, above = aside(low, -margin_low), aside(high, margin_high)
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
        low, high = aside(low, -low.abs() * margin), aside(high, high.abs() * margin)
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
    signed = holds_negative_zero(a) | holds_negative_zero(b)
    low = torch.where(signed & (low == 0), -torch.zeros_like(low), low)
    high = torch.where(signed & (high == 0), torch.zeros_like(high), high)
    return Interval(low, high, a.may | b.may, a.dtype)


def holds_negative_zero(a: Interval) -> Tensor:
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
        torch.where(infinite, -INF, aside(first, -radius)),
        torch.where(infinite, INF, aside(last, radius)),
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
