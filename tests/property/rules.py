"""For each operation, the interval that its result lies in, from the intervals of its operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from tests.property import intervals as iv
from tests.property.intervals import Interval, Tensor, compute_dtype, exact, settle, unknown


@dataclass(frozen=True)
class Context:
    """What a rule knows of its step: eager's operands and results, the attributes, and the step on any operands."""

    operands: Sequence[Tensor]
    results: Sequence[Tensor]
    values: Mapping[str, Any]
    apply: Callable[..., Any]

    @property
    def dtype(self) -> torch.dtype:
        return self.results[0].dtype


Rule = Callable[[Context, Sequence[Interval]], "Interval | Sequence[Interval]"]


# ---- shared ------------------------------------------------------------------------------------------------------


def composed(rule: Rule) -> Rule:
    """A rule of several steps."""

    @functools.wraps(rule)
    def run(c: Context, xs: Sequence[Interval]) -> Interval | Sequence[Interval]:
        with iv.inside():
            return rule(c, xs)

    return run


def wide(x: Interval) -> Interval:
    """The same values, computed with as f32 where they are narrower."""
    return Interval(x.low, x.high, x.may, compute_dtype(x.dtype))


def narrow(x: Interval, dtype: torch.dtype, ulps: float = 0.0, error: Tensor | float = 0.0) -> Interval:
    """The result of several steps in its dtype; with `ulps` the sign of a zero depends on how they are spelled."""
    found = settle(x.low, x.high, x.may, dtype, ulps=ulps, error=error)
    return unsigned(found) if ulps else found


def as_dtype(x: Interval, dtype: torch.dtype) -> Interval:
    """An operand in the common dtype; of rank 0 it may stay in f32 beside narrow floats."""
    made = iv.convert(x, dtype)
    if dtype in iv.WIDE and not x.shape and x.dtype != dtype:
        single = iv.convert(x, torch.float32)
        made = iv.join(made, Interval(single.low, single.high, single.may, dtype))
    return made


def number(value: Any, dtype: torch.dtype) -> Interval:
    """A Python number beside tensors of a dtype."""
    if dtype == torch.bool:
        return exact(torch.tensor(bool(value)))
    if not dtype.is_floating_point:
        return exact(torch.tensor(int(value)).to(dtype))
    made = exact(torch.tensor(float(value), dtype=torch.float64).to(dtype))
    if dtype in iv.WIDE:
        single = torch.tensor(float(value)).double()
        made = iv.join(made, Interval(single, single, torch.isnan(single), dtype))
    return made


def pair(c: Context, xs: Sequence[Interval]) -> tuple[Interval, Interval]:
    """Two operands in their common dtype; the second may be the number `other`, which `reverse` puts first."""
    given = list(c.operands)
    if "other" in c.values:
        given.append(c.values["other"])
    dtype = torch.result_type(*given)
    if c.dtype.is_floating_point and not dtype.is_floating_point:  # true division, atan2
        dtype = c.dtype
    found = [as_dtype(x, dtype) for x in xs]
    if "other" in c.values:
        found.append(number(c.values["other"], dtype))
    return found[0], found[1]


def broadcast_known(xs: Sequence[Interval], shape: Sequence[int]) -> Tensor:
    known = torch.ones(tuple(shape), dtype=torch.bool)
    for x in xs:
        known = known & x.is_point
    return known


def pointwise(c: Context, xs: Sequence[Interval]) -> Interval:
    """What eager gives where all operands are known, else nothing."""
    value = exact(c.results[0])
    if c.dtype in iv.WIDE:
        single = c.apply(*(x.float() if x.dtype in iv.WIDE else x for x in c.operands))
        if isinstance(single, Tensor) and single.dtype == torch.float32:
            low = single.double()
            value = iv.join(value, Interval(low, low, torch.isnan(low), c.dtype))
    return iv.choose(broadcast_known(xs, value.shape), value, unknown(value.shape, c.dtype))


def near_points(ulps: float, error: Callable[..., Tensor] | None = None) -> Rule:
    """A smooth function of several arguments: within `ulps` where all are known."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        wide_operands = [x.to(c.dtype).double() for x in c.operands]
        value = c.apply(*wide_operands).double()
        margin = 0.0 if error is None else error(c.dtype, *wide_operands)
        near = settle(value, value, torch.isnan(value), c.dtype, ulps=ulps, error=margin)
        return iv.choose(broadcast_known(xs, value.shape), near, unknown(value.shape, c.dtype))

    return rule


def floating(c: Context, x: Interval) -> Interval:
    """The operand of a function of real numbers: integers become f32."""
    return iv.convert(x, c.dtype)


def rises(function: Callable[[Tensor], Tensor], **facts: Any) -> Rule:
    return lambda c, xs: iv.monotone(floating(c, xs[0]), function, **facts)


def tiny(x: Interval) -> float:
    return torch.finfo(compute_dtype(x.dtype)).tiny


# ---- elementwise -------------------------------------------------------------------------------------------------


def sign(c: Context, xs: Sequence[Interval]) -> Interval:
    (x,) = xs
    low, high = torch.sign(x.low), torch.sign(x.high)
    if x.is_float:
        low = torch.where(x.may, torch.clamp(low, max=0.0), low)
        high = torch.where(x.may, torch.clamp(high, min=0.0), high)
        low, high = iv.hull([low, high])
    return Interval(low, high, torch.zeros_like(x.may), x.dtype)


def clamp(low: bool, high: bool) -> Rule:
    """Bounds that are tensors where `low` and `high` say so, else numbers or None."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        result = as_dtype(xs[0], c.dtype)
        bounds = list(xs[1:])
        for name, is_tensor, largest in (("min", low, True), ("max", high, False)):
            value = c.values.get(name)
            if is_tensor:
                result = iv.extremum(result, as_dtype(bounds.pop(0), c.dtype), largest)
            elif value is not None:
                result = iv.extremum(result, number(value, c.dtype), largest)
        return result

    return rule


def square(x: Interval) -> Interval:
    size = iv.absolute(x)
    return iv.multiply(size, size)


def power(c: Context, xs: Sequence[Interval]) -> Interval:
    """A number as exponent."""
    exponent = c.values["other"]
    if not c.dtype.is_floating_point:
        return pointwise(c, xs)
    x = as_dtype(xs[0], c.dtype)
    one = exact(torch.ones((), dtype=c.dtype))
    if exponent == 2:
        return square(x)
    if exponent == 3:
        return iv.monotone(x, lambda t: t * t * t, ulps=2)
    if abs(exponent) == 0.5 and c.dtype == torch.float16:
        return _half_power(x, exponent)
    if exponent == 0.5:
        return root(c, [x])
    if exponent == 1:
        return x
    if exponent == -1:
        return iv.divide(one, x)
    return near_points(6)(c, xs)


def _half_power(x: Interval, exponent: float) -> Interval:
    """f16 ** 0.5 is a power, for which (-inf) ** 0.5 is inf and (-0.0) ** 0.5 is 0.0."""
    with np.errstate(all="ignore"):
        value = torch.from_numpy(np.asarray(np.float_power(x.low.numpy(), exponent))).reshape(x.shape)
    near = settle(value, value, torch.isnan(value), x.dtype, ulps=4)
    return iv.choose(x.is_point, near, unknown(x.shape, x.dtype))


def powers(c: Context, xs: Sequence[Interval]) -> Interval:
    return (near_points(6) if c.dtype.is_floating_point else pointwise)(c, xs)


def _exact_root(t: Tensor) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(t.numpy()))).reshape(t.shape)


def root(c: Context, xs: Sequence[Interval]) -> Interval:
    return iv.monotone(floating(c, xs[0]), _exact_root, ulps=0.0, floor=-0.0)


def inverse_root(c: Context, xs: Sequence[Interval]) -> Interval:
    found = iv.divide(exact(torch.ones((), dtype=c.dtype)), root(c, xs))
    return narrow(found, c.dtype, ulps=2)


def tangent(c: Context, xs: Sequence[Interval]) -> Interval:
    return near_points(6)(c, xs)


def bounded(function: Callable[[Tensor], Tensor], slope: float, floor: float, ceiling: float) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        found = iv.lipschitz(floating(c, xs[0]), function, slope)
        low = torch.where(found.low < floor, floor, found.low)
        return Interval(low, torch.where(found.high > ceiling, ceiling, found.high), found.may, found.dtype)

    return rule


def gelu(c: Context, xs: Sequence[Interval]) -> Interval:
    """Eager's vector code gives NaN for inf, its scalar code inf."""

    def exactly(t: Tensor) -> Tensor:
        return t * (0.5 * (1 + torch.erf(t * math.sqrt(0.5))))

    def by_tanh(t: Tensor) -> Tensor:
        return t * (0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t * t * t))))

    return cancelling(1.13, exactly if c.values["approximate"] == "none" else by_tanh)(c, xs)


def cancelling(slope: float, function: Callable[[Tensor], Tensor] | None = None) -> Rule:
    """gelu and silu: an error that is relative to the argument, not to the result."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        (x,) = xs
        size = torch.maximum(x.low.abs(), x.high.abs())
        size = torch.where(torch.isfinite(size), size, 0.0)
        unit = iv.UNITS[compute_dtype(c.dtype)]
        return iv.lipschitz(x, function or c.apply, slope, error=size * (8 * unit + 2 * tiny(x)) + tiny(x))

    return rule


def remainder_rule(floor: bool) -> Rule:
    """Exact: eager's vectorised fmod is not, for huge quotients."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        if not c.dtype.is_floating_point:
            return pointwise(c, xs)
        a, b = pair(c, xs)
        if c.values.get("reverse"):
            a, b = b, a
        x, y = torch.broadcast_tensors(a.low, b.low)
        with np.errstate(all="ignore"):
            rest = torch.from_numpy(np.asarray(np.fmod(x.numpy(), y.numpy()))).reshape(x.shape)
        if floor:
            rest = torch.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)
        value = settle(rest, rest, torch.isnan(rest), c.dtype)
        return iv.choose(broadcast_known([a, b], x.shape), value, unknown(x.shape, c.dtype))

    return rule


def arithmetic(function: Callable[[Interval, Interval], Interval], logical: str | None = None) -> Rule:
    """A binary operation; integers only where known, bools through `logical`."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        if not c.dtype.is_floating_point:
            if c.dtype == torch.bool and logical is not None:
                return logic(logical)(c, xs)
            return pointwise(c, xs)
        a, b = pair(c, xs)
        if c.values.get("reverse"):
            a, b = b, a
        return function(a, b)

    return rule


def scaled(negate: bool) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        if not c.dtype.is_floating_point:
            return pointwise(c, xs)
        a, b = pair(c, xs)
        part = iv.multiply(b, number(c.values["alpha"], c.dtype))
        return iv.subtract(a, part) if negate else iv.add(a, part)

    return rule


def compare(predicate: str) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        a, b = pair(c, xs)
        match predicate:
            case "lt" | "le":
                return iv.less(a, b, predicate == "le")
            case "gt" | "ge":
                return iv.less(b, a, predicate == "ge")
            case "eq":
                return iv.equal(a, b)
            case _:
                return iv.invert(iv.equal(a, b))

    return rule


def logic(kind: str) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        found = [iv.convert(x, torch.bool) for x in xs]
        if "other" in c.values:
            found.append(exact(torch.tensor(bool(c.values["other"]))))
        a, b = found
        none = torch.zeros((), dtype=torch.bool)
        if kind == "and":
            low, high = a.low & b.low, a.high & b.high
        elif kind == "or":
            low, high = a.low | b.low, a.high | b.high
        else:
            known = a.is_point & b.is_point
            low, high = known & (a.low ^ b.low), ~known | (a.low ^ b.low)
        return Interval(low, high, none.expand(low.shape), torch.bool)

    return rule


def bitwise(kind: str) -> Rule:
    return lambda c, xs: logic(kind)(c, xs) if c.dtype == torch.bool else pointwise(c, xs)


def where(yes_tensor: bool, no_tensor: bool) -> Rule:
    """Branches that are tensors or numbers."""

    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        condition, values = iv.convert(xs[0], torch.bool), list(xs[1:])
        branches: list[Interval] = []
        for name, is_tensor in (("yes", yes_tensor), ("no", no_tensor)):
            branch = iv.convert(values.pop(0), c.dtype) if is_tensor else number(c.values[name], c.dtype)
            branches.append(branch.each(lambda t: t.expand(c.results[0].shape)))
        yes, no = branches
        known = iv.choose(condition.low, yes, no)
        return iv.choose(condition.is_point.expand(yes.shape), known, iv.join(yes, no))

    return rule


def masked_fill(c: Context, xs: Sequence[Interval]) -> Interval:
    x, mask = xs
    value = number(c.values["value"], c.dtype)
    shape = c.results[0].shape
    yes, no = value.each(lambda t: t.expand(shape)), x.each(lambda t: t.expand(shape))
    return iv.choose(mask.is_point.expand(shape), iv.choose(mask.low, yes, no), iv.join(yes, no))


def tests(kind: str) -> Rule:
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        (x,) = xs
        if not x.is_float:
            return exact(c.results[0])
        if kind == "nan":
            low, high = x.must, x.must | x.may
        else:
            certain = (x.low == x.high) & torch.isinf(x.low) & ~x.may
            low, high = certain, torch.isinf(x.low) | torch.isinf(x.high)
            if kind == "finite":
                finite = torch.isfinite(x.low) & torch.isfinite(x.high)
                within = (x.low < math.inf) & (x.high > -math.inf)
                low, high = finite & ~x.may, within
        return Interval(low, high, torch.zeros_like(low), torch.bool)

    return rule


def cast(c: Context, xs: Sequence[Interval]) -> Interval:
    return iv.convert(xs[0], c.dtype)


# ---- views and joins ---------------------------------------------------------------------------------------------


def view(c: Context, xs: Sequence[Interval]) -> Interval:
    return xs[0].each(lambda t: c.apply(t.double()) == 1.0 if t.dtype == torch.bool else c.apply(t))


def padded(c: Context, xs: Sequence[Interval]) -> Interval:
    (x,) = xs
    marked = c.apply(torch.zeros(x.shape, dtype=torch.float64))
    value = c.values["value"]
    inside = (marked == 0.0) if value != 0 else c.apply(torch.ones(x.shape, dtype=torch.float64)) == 1.0
    fill = number(value, c.dtype)
    fill = Interval(*(part.expand(inside.shape) for part in (fill.low, fill.high, fill.may)), c.dtype)
    low, high = (c.apply(part.double() if part.dtype == torch.bool else part) for part in (x.low, x.high))
    may = c.apply(x.may.double()) == 1.0
    moved = Interval(low.to(x.low.dtype), high.to(x.low.dtype), may, c.dtype)
    rounded = exact(fill.centre())
    return iv.choose(inside, moved, rounded)


def triangle(c: Context, xs: Sequence[Interval]) -> Interval:
    return xs[0].each(c.apply)


def joined(c: Context, xs: Sequence[Interval]) -> Interval:
    made = [iv.convert(x, c.dtype) for x in xs]
    parts = [c.apply(*(getattr(x, name) for x in made)) for name in ("low", "high", "may")]
    return Interval(parts[0], parts[1], parts[2].bool(), c.dtype)


def known(c: Context, xs: Sequence[Interval]) -> Interval:
    return exact(c.results[0])


def bits(c: Context, xs: Sequence[Interval]) -> Interval:
    (x,) = xs
    certain = x.is_point & ~x.must
    return iv.choose(certain, exact(c.results[0]), unknown(x.shape, c.dtype))


# ---- reductions --------------------------------------------------------------------------------------------------


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
    return iv.total(x, axes_of(c, len(x.shape)), keepdim(c))


def multiplied(c: Context, xs: Sequence[Interval]) -> Interval:
    x = iv.convert(xs[0], c.dtype)
    return iv.product(x, axes_of(c, len(x.shape)), keepdim(c))


def mean_of(x: Interval, axes: Sequence[int], keep: bool) -> Interval:
    count = exact(torch.tensor(float(count_of(x, axes)), dtype=x.dtype))
    return iv.divide(iv.total(x, axes, keep), count)


@composed
def mean(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(iv.convert(xs[0], c.dtype))
    return narrow(mean_of(x, axes_of(c, len(x.shape)), keepdim(c)), c.dtype)


def variance_of(x: Interval, axes: Sequence[int], correction: float, keep: bool) -> Interval:
    distance = iv.subtract(x, mean_of(x, axes, True))
    total = iv.total(square(distance), axes, keep)
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
    return narrow(iv.monotone(found, _exact_root, ulps=4, floor=-0.0), c.dtype)


def extremes(largest: bool) -> Rule:
    return lambda c, xs: iv.extreme(xs[0], axes_of(c, len(xs[0].shape)), largest, keepdim(c))


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
        return [iv.extreme(xs[0], axes, largest, keepdim(c)), where_]

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
        fold = iv.total if kind == "sum" else iv.product
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


# ---- composed ----------------------------------------------------------------------------------------------------


def exponential(x: Interval) -> Interval:
    return iv.monotone(x, torch.exp, floor=0.0)


def shifted(x: Interval, axes: Sequence[int]) -> Interval:
    """x minus its maximum, which is at most 0."""
    distance = iv.subtract(x, iv.extreme(x, axes, True, True))
    high = torch.where(distance.high > 0, 0.0, distance.high)
    return Interval(distance.low, high, distance.may, x.dtype)


def softmax_of(x: Interval, axes: Sequence[int]) -> Interval:
    if 0 in x.shape:
        return x
    parts = exponential(shifted(x, axes))
    made = iv.divide(parts, iv.total(parts, axes, True))
    high = torch.where(made.high > 1, 1.0 + 2.0**-20, made.high)
    return Interval(made.low, high, made.may, x.dtype)


@composed
def softmax(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(iv.convert(xs[0], c.dtype))
    return narrow(softmax_of(x, axes_of(c, len(x.shape))), c.dtype, ulps=4)


@composed
def log_softmax(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(iv.convert(xs[0], c.dtype))
    axes = axes_of(c, len(x.shape))
    if 0 in x.shape:
        return narrow(x, c.dtype)
    distance = shifted(x, axes)
    total = iv.total(exponential(distance), axes, True)
    # where the maximum is finite its own exponential is 1
    counts = torch.where(torch.isnan(total.low) | total.may, total.low, torch.clamp(total.low, min=1.0))
    total = Interval(counts, torch.maximum(total.high, counts), total.may, total.dtype)
    return narrow(iv.subtract(distance, iv.monotone(total, torch.log)), c.dtype, ulps=4)


@composed
def logsumexp(c: Context, xs: Sequence[Interval]) -> Interval:
    x = wide(iv.convert(xs[0], c.dtype))
    axes = axes_of(c, len(x.shape))
    if any(x.shape[axis] == 0 for axis in axes):
        return exact(c.results[0])
    peak = iv.extreme(x, axes, True, True)
    infinite = torch.isinf(peak.low) | torch.isinf(peak.high)
    certain = infinite & iv.same(peak.low, peak.high)
    base = Interval(
        torch.where(infinite, 0.0, peak.low), torch.where(infinite, 0.0, peak.high), peak.may, peak.dtype
    )
    total = iv.total(exponential(iv.subtract(x, base)), axes, True)
    made = narrow(iv.add(iv.monotone(total, torch.log), base), c.dtype, ulps=4)
    made = iv.choose(certain | ~infinite, made, unknown(made.shape, c.dtype))
    return made.each(lambda t: t.reshape(c.results[0].shape))


def unsigned(x: Interval) -> Interval:
    """Zeros of either sign."""
    low = torch.where(x.low == 0, -x.low.abs(), x.low)
    return Interval(low, torch.where(x.high == 0, x.high.abs(), x.high), x.may, x.dtype)


def affine(x: Interval, parameters: Sequence[Interval], has: Sequence[bool]) -> Interval:
    rest = list(parameters)
    if has[0]:
        x = iv.multiply(x, wide(rest.pop(0)))
    if has[1]:
        x = iv.add(x, wide(rest.pop(0)))
    return x


def _standardised(x: Interval, axes: Sequence[int], epsilon: float, centred: bool) -> Interval:
    distance = iv.subtract(x, mean_of(x, axes, True)) if centred else x
    spread = variance_of(x, axes, 0.0, True) if centred else mean_of(square(x), axes, True)
    low = torch.where(spread.low < 0, 0.0, spread.low)
    spread = Interval(low, spread.high, spread.may, x.dtype)
    shifted_ = iv.add(spread, exact(torch.tensor(epsilon, dtype=torch.float64).to(x.dtype)))
    scale = iv.monotone(shifted_, _exact_root, ulps=2, floor=0.0)
    made = narrow(iv.divide(distance, scale), x.dtype, ulps=4)
    # where a square overflows, what comes out depends on how the variance is spelled
    largest = torch.maximum(x.low.abs(), x.high.abs())
    wild = largest.amax(tuple(axes), keepdim=True) ** 2 * (4 * count_of(x, axes)) > torch.finfo(x.dtype).max
    certain = x.is_point & ~torch.isfinite(x.low)
    for axis in axes:
        certain = certain.any(axis, keepdim=True)
    wild &= ~certain
    return iv.choose(wild.expand(made.shape), unknown(made.shape, made.dtype), made)


def normalised(centred: bool, weight: bool, bias: bool) -> Rule:
    @composed
    def rule(c: Context, xs: Sequence[Interval]) -> Interval:
        x, parameters = wide(xs[0]), xs[1:]
        count = len(c.values["shape"])
        axes = tuple(range(len(x.shape) - count, len(x.shape)))
        if 0 in x.shape:
            return exact(c.results[0])
        epsilon = c.values["eps"]
        if epsilon is None:
            epsilon = torch.finfo(compute_dtype(c.dtype)).eps
        made = _standardised(x, axes, epsilon, centred)
        return unsigned(narrow(affine(made, parameters, (weight, bias)), c.dtype))

    return rule


@composed
def group_norm(c: Context, xs: Sequence[Interval]) -> Interval:
    x, groups = wide(xs[0]), c.values["groups"]
    if 0 in x.shape:
        return exact(c.results[0])
    shape = x.shape
    split = x.each(lambda t: t.reshape(shape[0], groups, -1))
    made = _standardised(split, (2,), c.values["eps"], True).each(lambda t: t.reshape(shape))
    parameters = [p.each(lambda t: t.reshape(-1, *[1] * (len(shape) - 2))) for p in xs[1:]]
    return unsigned(narrow(affine(made, parameters, (True, True)), c.dtype))


def matmul_of(a: Interval, b: Interval) -> Interval:
    rows = a.each(lambda t: t[None, :] if t.ndim == 1 else t)
    columns = b.each(lambda t: t[:, None] if t.ndim == 1 else t)
    left = rows.each(lambda t: t.unsqueeze(-1))
    right = columns.each(lambda t: t.unsqueeze(-3))
    parts = iv.multiply(left, right)
    found = iv.total(parts, (len(parts.shape) - 2,))
    if len(a.shape) == 1:
        found = found.each(lambda t: t.squeeze(-2))
    return found.each(lambda t: t.squeeze(-1)) if len(b.shape) == 1 else found


@composed
def matmul(c: Context, xs: Sequence[Interval]) -> Interval:
    """Eager adds some products to 0.0 and starts from others: the sign of a zero is not defined."""
    if c.dtype.is_floating_point:
        return unsigned(narrow(matmul_of(wide(xs[0]), wide(xs[1])), c.dtype))
    known_ = all(bool(x.is_point.all()) for x in xs)
    return exact(c.results[0]) if known_ else unknown(c.results[0].shape, c.dtype)


@composed
def attention(c: Context, xs: Sequence[Interval]) -> Interval:
    q, k, v = (wide(x) for x in xs[:3])
    scale = 1 / math.sqrt(max(q.shape[-1], 1))
    factor = narrow(exact(torch.tensor(scale, dtype=torch.float64)), q.dtype, ulps=1)
    scores = matmul_of(iv.multiply(q, factor), k.each(lambda t: t.transpose(-1, -2)))
    size = scores.low.abs().clamp(max=1e30) * 2.0**-20
    scores = settle(
        scores.low, scores.high, scores.may, q.dtype, ulps=4, error=torch.where(size == size, size, 0.0)
    )
    if len(xs) > 3:
        mask = xs[3]
        if mask.dtype == torch.bool:
            low, high = (torch.where(part, 0.0, -math.inf).double() for part in (mask.low, mask.high))
            mask = Interval(low, high, torch.zeros_like(mask.may), q.dtype)
        scores = iv.add(scores, wide(mask))
    if c.values.get("causal"):
        row, column = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
        hidden = exact(torch.full(scores.shape, -math.inf, dtype=q.dtype))
        # one of eager's kernels leaves these scores out, the other adds -inf to them, which keeps NaN
        hidden = iv.join(iv.add(scores, hidden), hidden)
        scores = iv.choose((column <= row).expand(scores.shape), scores, hidden)
    if not scores.shape[-1] or 0 in v.shape or 0 in scores.shape:
        return exact(c.results[0])
    peak = iv.extreme(scores, (len(scores.shape) - 1,), True, True)
    found = matmul_of(softmax_of(scores, (len(scores.shape) - 1,)), v)
    hidden = (peak.high == -math.inf) & ~peak.may
    nothing = exact(torch.zeros(found.shape, dtype=q.dtype))
    # kernels differ in whether they multiply what is not finite by the weight 0
    finite = (torch.isfinite(v.low) & torch.isfinite(v.high)).all(-2, keepdim=True).expand(found.shape)
    nothing = iv.choose(finite, nothing, unknown(found.shape, found.dtype))
    found = iv.choose(hidden.expand(found.shape), nothing, found)
    doubtful = (peak.low == -math.inf) & ~hidden
    found = iv.choose(doubtful.expand(found.shape), unknown(found.shape, found.dtype), found)
    # a sum of numbers that is divided afterwards may overflow
    largest = torch.maximum(v.low.abs(), v.high.abs()).amax(-2, keepdim=True) * v.shape[-2]
    wild = (largest > torch.finfo(q.dtype).max) & torch.isfinite(largest)
    found = iv.choose(wild.expand(found.shape), unknown(found.shape, found.dtype), found)
    size = v.low.abs().amax(-2, keepdim=True).clamp(max=1e30) * 2.0**-18
    return narrow(found, c.dtype, ulps=8, error=torch.where(size == size, size, 0.0).expand(found.shape))


def bilinear(c: Context, xs: Sequence[Interval]) -> Interval:
    return unsigned(_bilinear(c, xs))


def _bilinear(c: Context, xs: Sequence[Interval]) -> Interval:
    """A convolution: its value in f64, within (n + 1) u of the convolution of magnitudes."""
    if not all(bool((torch.isfinite(x.low) & torch.isfinite(x.high) & ~x.may).all()) for x in xs):
        return unknown(c.results[0].shape, c.dtype)
    middle = [x.low / 2 + x.high / 2 for x in xs]
    radius = [x.high / 2 - x.low / 2 for x in xs]
    sizes = [torch.maximum(x.low.abs(), x.high.abs()) for x in xs]
    value, magnitude = c.apply(*middle), c.apply(*sizes)
    spread = c.apply(radius[0], *sizes[1:]) + c.apply(sizes[0], radius[1], *sizes[2:])
    count = math.prod(xs[1].shape[1:]) * (xs[1].shape[0] if c.values["transposed"] else 1) + 2
    unit = iv.UNITS[compute_dtype(c.dtype)]
    still = all(bool(is_tame(x).all()) for x in xs) and count < 1 / unit / 2**24 * 2**24
    if still and all(bool(x.is_point.all()) for x in xs):
        granule = 2.0**-12
        if bool((magnitude.amax() if magnitude.numel() else torch.tensor(0.0)) <= granule / unit):
            return settle(value + 0.0, value + 0.0, torch.isnan(value), c.dtype)
    error = magnitude * (count * unit * 1.01) + spread * 1.01
    too_large = magnitude * 1.01 > torch.finfo(compute_dtype(c.dtype)).max
    made = settle(value, value, torch.isnan(value), c.dtype, error=error)
    return iv.choose(too_large, unknown(value.shape, c.dtype), made)


def is_tame(x: Interval) -> Tensor:
    """Multiples of 1/64 up to 64: products of two are multiples of 2^-12."""
    scaled_ = x.low * 64
    return (x.low.abs() <= 64) & (scaled_ == scaled_.round())


# ---- reading and writing at positions ----------------------------------------------------------------------------


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
            found = iv.total(row, (0,))
            if bool((row.low == 0).all()):  # no sum from +0.0: the sign may be that of all
                found = Interval(-found.low.abs(), found.high, found.may, found.dtype)
        elif combine == "mul":
            found = iv.product(row, (0,))
        else:
            found = iv.extreme(row, (0,), combine == "max")
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
    combine = "add" if c.values["accumulate"] else "set"
    return combine_at(x, tuple(places), part, combine)
