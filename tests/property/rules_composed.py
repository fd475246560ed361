"""The intervals of operations of several steps: softmax, norms, products of matrices, attention, convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tests.property import interval_folds as folds
from tests.property import intervals as iv
from tests.property.intervals import Interval, Tensor, aside, compute_dtype, exact, settle, unknown
from tests.property.rules import Context, Rule, composed, exact_root, narrow, square, unsigned, wide
from tests.property.rules_reduction import axes_of, count_of, mean_of, variance_of


def exponential(x: Interval) -> Interval:
    return iv.monotone(x, torch.exp, floor=0.0)


def shifted(x: Interval, axes: Sequence[int]) -> Interval:
    """x minus its maximum, at most 0: both are of one x, also where that is a product, under contract."""
    distance = iv.subtract(x, folds.extreme(x, axes, True, True))
    return Interval(distance.low, torch.where(distance.high > 0, 0.0, distance.high), distance.may, x.dtype)


def softmax_of(x: Interval, axes: Sequence[int]) -> Interval:
    if 0 in x.shape:
        return x
    parts = exponential(shifted(x, axes))
    made = iv.divide(parts, folds.total(parts, axes, True))
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
    total = folds.total(exponential(distance), axes, True)
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
    peak = folds.extreme(x, axes, True, True)
    infinite = torch.isinf(peak.low) | torch.isinf(peak.high)
    certain = infinite & iv.same(peak.low, peak.high)
    base = Interval(
        torch.where(infinite, 0.0, peak.low), torch.where(infinite, 0.0, peak.high), peak.may, peak.dtype
    )
    total = folds.total(exponential(iv.subtract(x, base)), axes, True)
    made = narrow(iv.add(iv.monotone(total, torch.log), base), c.dtype, ulps=4)
    made = iv.choose(certain | ~infinite, made, unknown(made.shape, c.dtype))
    return made.each(lambda t: t.reshape(c.results[0].shape))


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
    scale = iv.monotone(shifted_, exact_root, ulps=2, floor=0.0)
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
    found = folds.total(parts, (len(parts.shape) - 2,))
    if len(a.shape) == 1:
        found = found.each(lambda t: t.squeeze(-2))
    return found.each(lambda t: t.squeeze(-1)) if len(b.shape) == 1 else found


@composed
def matmul(c: Context, xs: Sequence[Interval]) -> Interval:
    """Eager adds some products to 0.0 and starts from others: the sign of a zero is not defined."""
    if c.dtype.is_floating_point:
        found = matmul_of(wide(xs[0]), wide(xs[1]))
        return unsigned(narrow(_flushed(found, *xs) if c.dtype == torch.bfloat16 else found, c.dtype))
    known_ = all(bool(x.is_point.all()) for x in xs)
    return exact(c.results[0]) if known_ else unknown(c.results[0].shape, c.dtype)


def _flushed(found: Interval, a: Interval, b: Interval) -> Interval:
    """A product of matrices of bf16 as an instruction for it may give it: subnormal factors are 0, and so are subnormal
    partial sums (docs/semantics.md)."""
    if bool(is_tame(a).all()) and bool(is_tame(b).all()):
        return found
    tiny = torch.finfo(torch.bfloat16).smallest_normal
    zero = [(x.low == 0) & (x.high == 0) for x in (a, b)]
    few = [(x.low < tiny) & (x.high > -tiny) & ~none for x, none in zip((a, b), zero, strict=True)]
    sizes = [torch.maximum(x.low.abs(), x.high.abs()) for x in (a, b)]
    large = [torch.nan_to_num(x, 0.0, posinf=0.0) for x in sizes]
    products = (~zero[0]).double() @ (~zero[1]).double()
    error = tiny * (products + few[0].double() @ large[1] + large[0] @ few[1].double())
    infinite = [torch.isinf(x).double() for x in sizes]
    lost = few[0].double() @ infinite[1] + infinite[0] @ few[1].double() > 0
    return Interval(aside(found.low, -error), aside(found.high, error), found.may | lost, found.dtype)


def _rounded(weights: Interval, dtype: torch.dtype) -> Interval:
    """Weights as far as rounding their exponentials to a narrow dtype may move them: a level does so or not. One that
    is 0 or 1 stays, and its divisor is no less than 1."""
    info = torch.finfo(dtype)
    unit, least = info.eps / 2, info.smallest_normal * info.eps / 2
    low, high = weights.low * (1 - unit) - least, weights.high * (1 + unit) + least
    moved = Interval(torch.clamp(low, min=0.0), high, weights.may, weights.dtype)
    return iv.choose(weights.is_point & ((weights.low == 0) | (weights.low == 1)), weights, moved)


@composed
def attention(c: Context, xs: Sequence[Interval]) -> Interval:
    q, k, v = (wide(x) for x in xs[:3])
    scale = 1 / math.sqrt(max(q.shape[-1], 1))
    factor = narrow(exact(torch.tensor(scale, dtype=torch.float64)), q.dtype, ulps=1)
    keys = k.each(lambda t: t.transpose(-1, -2))
    is_flushed = c.dtype == torch.bfloat16
    # scaled before or after they are summed: what overflows in one order may not in the other
    scores = iv.join(matmul_of(iv.multiply(q, factor), keys), iv.multiply(matmul_of(q, keys), factor))
    scores = _flushed(scores, q, keys) if is_flushed else scores
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
    peak = folds.extreme(scores, (len(scores.shape) - 1,), True, True)
    weights = softmax_of(scores, (len(scores.shape) - 1,))
    weights = _rounded(weights, c.dtype) if c.dtype in iv.WIDE else weights
    found = matmul_of(weights, v)
    found = _flushed(found, weights, v) if is_flushed else found
    hidden = (peak.high == -math.inf) & ~peak.may
    nothing = exact(torch.zeros(found.shape, dtype=q.dtype))
    # kernels differ in whether they multiply what is not finite by the weight 0
    finite = (torch.isfinite(v.low) & torch.isfinite(v.high)).all(-2, keepdim=True).expand(found.shape)
    nothing = iv.choose(finite, nothing, unknown(found.shape, found.dtype))
    found = iv.choose(hidden.expand(found.shape), nothing, found)
    doubtful = (peak.low == -math.inf) & ~hidden
    found = iv.choose(doubtful.expand(found.shape), unknown(found.shape, found.dtype), found)
    # a sum of numbers that is divided afterwards may overflow
    largest = torch.maximum(v.low.abs(), v.high.abs()).amax(-2, keepdim=True)
    wild = (largest > torch.finfo(q.dtype).max / v.shape[-2]) & torch.isfinite(largest)
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
