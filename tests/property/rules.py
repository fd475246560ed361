"""The interval that a result lies in, from those of its operands: what rules share, elementwise operations, views."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


def unsigned(x: Interval) -> Interval:
    """Zeros of either sign."""
    low = torch.where(x.low == 0, -x.low.abs(), x.low)
    return Interval(low, torch.where(x.high == 0, x.high.abs(), x.high), x.may, x.dtype)


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


def exact_root(t: Tensor) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(t.numpy()))).reshape(t.shape)


def root(c: Context, xs: Sequence[Interval]) -> Interval:
    return iv.monotone(floating(c, xs[0]), exact_root, ulps=0.0, floor=-0.0)


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
        if "other" in c.values:
            found = [iv.convert(xs[0], torch.bool), exact(torch.tensor(bool(c.values["other"])))]
        else:  # each counts as true where it is not 0 in the common dtype
            common = torch.result_type(*c.operands)
            found = [iv.convert(iv.convert(x, common), torch.bool) for x in xs]
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
