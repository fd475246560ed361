"""ATen ops that reduce, scan or sort along axes, and the softmax and norm families."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from luminal.dim import Dim, as_dim, known_less, product
from luminal.dtype import DType, f64, i64
from luminal.torch.lowering import Lowering, Scalar, Value, dtype, lowers, rank, shape_of

Axes = int | Sequence[int] | None


@lowers("sum")
def sum_(low: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return low.b.sum(low.converted(x, low.dtype), axes=low.axes(dim, rank(x)), keepdim=keepdim)


@lowers("mean")
def mean(low: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    """Unlike a sum, a mean in f16 or bf16 does not round what it adds up."""
    wide = low.cast(x, low.dtype.accumulate)
    return low.cast(low.b.mean(wide, axes=low.axes(dim, rank(x)), keepdim=keepdim), low.dtype)


@lowers("prod")
def prod(low: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return low.b.prod(low.converted(x, low.dtype), axes=low.axes(dim, rank(x)), keepdim=keepdim)


@lowers("amax", "max.default")
def amax(low: Lowering, x: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return low.b.max(x, axes=low.axes(dim, rank(x)), keepdim=keepdim)


@lowers("amin", "min.default")
def amin(low: Lowering, x: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return low.b.min(x, axes=low.axes(dim, rank(x)), keepdim=keepdim)


def _extremum(hlo: str) -> Callable[..., tuple[Value, Value]]:
    def rule(low: Lowering, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if rank(x) == 0:
            return x, low.full(0, (), i64)
        axis = low.axis(dim, rank(x))
        values = low.b.emit(hlo, x, axes=(axis,), keepdim=keepdim)
        return values, low.b.emit(f"arg{hlo}", x, axis=axis, keepdim=keepdim)

    return rule


lowers("max.dim")(_extremum("max"))
lowers("min.dim")(_extremum("min"))


@lowers("aminmax")
def aminmax(low: Lowering, x: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    axes = low.axes(dim, rank(x))
    return low.b.min(x, axes=axes, keepdim=keepdim), low.b.max(x, axes=axes, keepdim=keepdim)


def _arg(hlo: str) -> Callable[..., Value]:
    def rule(low: Lowering, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if rank(x) == 0:
            return low.full(0, (), i64)
        axis = None if dim is None else low.axis(dim, rank(x))
        return low.b.emit(hlo, x, axis=axis, keepdim=keepdim)

    return rule


lowers("argmax")(_arg("argmax"))
lowers("argmin")(_arg("argmin"))


def _truth(hlo: str) -> Callable[..., Value]:
    def rule(low: Lowering, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        empty = isinstance(dim, (list, tuple)) and not dim
        axes = () if empty and low.shape == shape_of(x) and rank(x) else low.axes(dim, rank(x))
        return low.cast(low.b.emit(hlo, low.as_bool(x), axes=axes, keepdim=keepdim), low.dtype)

    return rule


lowers("any")(_truth("any"))
lowers("all")(_truth("all"))


def _moments(
    low: Lowering, x: Value, dim: Axes, correction: Any, keepdim: bool, result: Any
) -> tuple[Value, Value]:
    wide = low.cast(x, result.accumulate)
    axes = low.axes(dim, rank(x))
    by = 1.0 if correction is None else float(correction)
    return low.b.var(wide, axes=axes, correction=by, keepdim=keepdim), low.b.mean(
        wide, axes=axes, keepdim=keepdim
    )


@lowers("var")
def var(low: Lowering, x: Value, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return low.cast(_moments(low, x, dim, correction, keepdim, low.dtype)[0], low.dtype)


@lowers("std")
def std(low: Lowering, x: Value, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return low.cast(low.b.sqrt(_moments(low, x, dim, correction, keepdim, low.dtype)[0]), low.dtype)


@lowers("var_mean")
def var_mean(
    low: Lowering, x: Value, dim: Axes = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    kind = low.type(0).dtype
    variance, average = _moments(low, x, dim, correction, keepdim, kind)
    # eager's mean comes out of the algorithm of the variance, which subtracts infinities from each other
    size = low.b.abs(average)
    is_infinite = low.b.eq(size, low.number(math.inf, dtype(average)))
    average = low.b.where(is_infinite, low.number(math.nan, dtype(average)), average)
    return low.cast(variance, kind), low.cast(average, kind)


@lowers("linalg_vector_norm")
def vector_norm(
    low: Lowering, x: Value, order: Scalar = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    wide = low.cast(low.cast(x, low.dtype), low.dtype.accumulate)
    return low.cast(norm(low, wide, order, low.axes(dim, rank(x)), keepdim), low.dtype)


def norm(low: Lowering, x: Value, order: Scalar, axes: Sequence[int], keepdim: bool = False) -> Value:
    """The p-norm over some axes."""
    p, kind = low.plain_number(order), dtype(x)
    if p == 2:
        return low.b.sqrt(low.b.sum(low.b.square(x), axes=axes, keepdim=keepdim))
    if p == 0:
        nonzero = low.cast(low.b.ne(x, low.number(0, kind)), kind)
        return low.b.sum(nonzero, axes=axes, keepdim=keepdim)
    size = low.b.abs(x)
    if math.isinf(p):
        return low.b.emit("max" if p > 0 else "min", size, axes=axes, keepdim=keepdim)
    if p == 1:
        return low.b.sum(size, axes=axes, keepdim=keepdim)
    total = low.b.sum(low.b.pow(size, low.number(p, kind)), axes=axes, keepdim=keepdim)
    return low.b.pow(total, low.number(1.0 / p, kind))


@lowers("dist")
def dist(low: Lowering, x: Value, y: Value, p: Scalar = 2) -> Value:
    kind = low.promoted(x, y)
    return vector_norm(low, low.b.sub(low.cast(x, kind), low.cast(y, kind)), p)


@lowers("count_nonzero")
def count_nonzero(low: Lowering, x: Value, dim: Axes = None) -> Value:
    return low.b.sum(low.cast(low.as_bool(x), i64), axes=low.axes(dim, rank(x)))


@lowers("logsumexp")
def logsumexp(low: Lowering, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    return low.b.logsumexp(low.cast(x, low.dtype), axes=low.axes(dim, rank(x)), keepdim=keepdim)


# ---- scans and sorts -------------------------------------------------------------------------------------------


def _scan(hlo: str) -> Callable[..., Value]:
    def rule(low: Lowering, x: Value, dim: int, *, dtype: Any = None) -> Value:
        value = low.converted(x, low.dtype)
        return low.b.emit(hlo, value, axis=low.axis(dim, rank(x))) if rank(x) else value

    return rule


lowers("cumsum")(_scan("cumsum"))
lowers("cumprod")(_scan("cumprod"))


def _running(hlo: str) -> Callable[..., tuple[Value, Value]]:
    def rule(low: Lowering, x: Value, dim: int) -> tuple[Value, Value]:
        if rank(x) == 0:
            return x, low.full(0, (), i64)
        return low.b.emit(hlo, x, axis=low.axis(dim, rank(x)))

    return rule


lowers("cummax")(_running("cummax"))
lowers("cummin")(_running("cummin"))


@lowers("sort.default", "sort.stable")
def sort(
    low: Lowering, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    if rank(x) == 0:
        return x, low.full(0, (), i64)
    return low.b.sort(x, axis=low.axis(dim, rank(x)), descending=descending)


@lowers("topk")
def topk(
    low: Lowering, x: Value, k: int | Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if rank(x) == 0:
        return x, low.full(0, (), i64)
    return low.b.topk(x, axis=low.axis(dim, rank(x)), count=as_dim(k), largest=largest)


@lowers("kthvalue")
def kthvalue(
    low: Lowering, x: Value, k: int | Dim, dim: int = -1, keepdim: bool = False
) -> tuple[Value, Value]:
    if rank(x) == 0:
        return x, low.full(0, (), i64)
    axis = low.axis(dim, rank(x))
    ordered = low.b.sort(x, axis=axis, descending=False)
    picked = [low.slice(part, axis, as_dim(k) - 1, as_dim(k)) for part in ordered]
    return low.reshape(picked[0], low.type(0).shape), low.reshape(picked[1], low.type(1).shape)


@lowers("median.default", "nanmedian.default")
def median_all(low: Lowering, x: Value) -> Value:
    flat = low.reshape(x, (product(shape_of(x)),))
    return low.reshape(_median(low, flat, 0)[0], ())


@lowers("median.dim", "nanmedian.dim")
def median(low: Lowering, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if rank(x) == 0:
        return x, low.full(0, (), i64)
    values, places = _median(low, x, low.axis(dim, rank(x)))
    return low.reshape(values, low.type(0).shape), low.reshape(places, low.type(1).shape)


def _median(low: Lowering, x: Value, axis: int) -> tuple[Value, Value]:
    """The lower of the two middle values; with NaN in a row, NaN, or for nanmedian the median of the rest."""
    if known_less(shape_of(x)[axis], 1):
        raise low.refuse("the median of nothing")
    ordered, order = low.b.sort(x, axis=axis, descending=False)
    size = shape_of(x)[axis]
    if not dtype(x).is_float:
        middle = (size - 1) // 2
        return low.slice(ordered, axis, middle, middle + 1), low.slice(order, axis, middle, middle + 1)
    nans = low.b.sum(low.cast(low.b.isnan(x), i64), axes=(axis,), keepdim=True)
    numbers = low.b.sub(low.number(size, i64), nans)
    if "nanmedian" in low.name:
        last = low.b.maximum(low.b.sub(numbers, low.number(1, i64)), low.number(0, i64))
        place = low.b.trunc_divide(last, low.number(2, i64))
        return low.b.gather(ordered, place, axis=axis), low.b.gather(order, place, axis=axis)
    # NaNs sort to the end, so the first of them stands behind the numbers
    place = low.b.where(low.b.gt(nans, low.number(0, i64)), numbers, low.number((size - 1) // 2, i64))
    return low.b.gather(ordered, place, axis=axis), low.b.gather(order, place, axis=axis)


# ---- softmax and norms -----------------------------------------------------------------------------------------


def _normalised(hlo: str) -> Callable[..., Value]:
    def rule(low: Lowering, x: Value, dim: int, half_to_float: bool = False) -> Value:
        value = low.cast(x, low.dtype)
        if rank(x) == 0:
            one = low.reshape(value, (1,))
            return low.reshape(low.b.emit(hlo, one, axis=0), ())
        return low.b.emit(hlo, value, axis=low.axis(dim, rank(x)))

    return rule


lowers("_softmax")(_normalised("softmax"))
lowers("_log_softmax")(_normalised("log_softmax"))


@lowers("_safe_softmax")
def safe_softmax(low: Lowering, x: Value, dim: int, dtype: Any = None) -> Value:
    """Softmax that gives zeros where a whole row is -inf."""
    value = low.converted(x, low.dtype)
    axis = low.axis(dim, rank(x))
    masked = low.b.eq(value, low.number(-math.inf, low.dtype))
    everywhere = low.b.all(masked, axes=(axis,), keepdim=True)
    return low.b.where(everywhere, low.number(0, low.dtype), low.b.softmax(value, axis=axis))


@lowers("native_layer_norm")
def layer_norm(
    low: Lowering, x: Value, sizes: Sequence[Any], weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value | None, ...]:
    """The normalised tensor, and the mean and reciprocal deviation that the backward pass wants."""
    axes = tuple(range(rank(x) - len(sizes), rank(x)))
    value, weight, bias = _common(low, x, weight, bias)
    result = low.b.layer_norm(value, weight, bias, axes=axes, epsilon=epsilon)
    return (low.cast(result, low.type(0).dtype), *_statistics(low, x, axes, epsilon))


def _common(low: Lowering, *parts: Value | None) -> list[Any]:
    """The tensors in their common dtype: half-width data with f32 parameters is computed in f32."""
    kind = low.promoted(*[part for part in parts if part is not None])
    return [None if part is None else low.cast(part, kind) for part in parts]


def _statistics(
    low: Lowering, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value | None, Value | None]:
    if not low.uses_result(1) and not low.uses_result(2):
        return None, None
    wide = low.cast(x, dtype(x).accumulate)
    mean_ = low.b.mean(wide, axes=axes, keepdim=True)
    variance = low.b.var(wide, axes=axes, correction=0.0, keepdim=True)
    scale = low.b.rsqrt(low.b.add(variance, low.number(epsilon, dtype(wide))))
    first, second = low.type(1), low.type(2)
    return (
        low.reshape(low.cast(mean_, first.dtype), first.shape),
        low.reshape(low.cast(scale, second.dtype), second.shape),
    )


@lowers("rms_norm")
def rms_norm(
    low: Lowering, x: Value, sizes: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> Value:
    return low.cast(_rms(low, x, len(sizes), weight, eps), low.dtype)


def _rms(low: Lowering, x: Value, count: int, weight: Value | None, eps: float | None) -> Value:
    axes = tuple(range(rank(x) - count, rank(x)))
    kind = dtype(x) if weight is None else low.promoted(x, weight)
    weight = None if weight is None else low.cast(weight, kind)
    return low.b.rms_norm(low.cast(x, kind), weight, axes=axes, epsilon=_epsilon(eps, kind))


def _epsilon(stated: float | None, kind: DType) -> float:
    """What is added to a mean of squares; torch's own choice is that of the dtype in which it computes."""
    return torch.finfo(torch.float64 if kind == f64 else torch.float32).eps if stated is None else stated


@lowers("_fused_rms_norm")
def fused_rms_norm(
    low: Lowering, x: Value, sizes: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> tuple[Value | None, ...]:
    result = low.cast(_rms(low, x, len(sizes), weight, eps), low.type(0).dtype)
    if not low.uses_result(1):
        return result, None
    axes = tuple(range(rank(x) - len(sizes), rank(x)))
    wide = low.cast(x, dtype(x).accumulate)
    square = low.b.mean(low.b.square(wide), axes=axes, keepdim=True)
    scale = low.b.rsqrt(low.b.add(square, low.number(_epsilon(eps, dtype(wide)), dtype(wide))))
    return result, low.reshape(low.cast(scale, low.type(1).dtype), low.type(1).shape)


@lowers("native_group_norm")
def group_norm(
    low: Lowering, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, area: Any,
    groups: int, epsilon: float,
) -> tuple[Value | None, ...]:  # fmt: skip
    value, weight, bias = _common(low, x, weight, bias)
    result = low.cast(
        low.b.group_norm(value, weight, bias, groups=low.symbols.fixed(groups), epsilon=epsilon), dtype(x)
    )
    grouped = low.reshape(x, (as_dim(n), as_dim(groups), as_dim(c) // groups * as_dim(area)))
    return (result, *_statistics(low, grouped, (2,), epsilon))


@lowers("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    low: Lowering, x: Value, weight: Value | None, bias: Value | None, mean_: Value, variance: Value,
    momentum: float, epsilon: float,
) -> tuple[Value, ...]:  # fmt: skip
    """x * scale + shift, as torch computes it: both are constants where the statistics are."""
    value, mean_, variance, weight, bias = _common(low, x, mean_, variance, weight, bias)
    assert value is not None and mean_ is not None and variance is not None
    scale = low.b.rsqrt(low.b.add(variance, low.number(epsilon, dtype(value))))
    scale = scale if weight is None else low.b.mul(scale, weight)
    shift = low.b.neg(low.b.mul(mean_, scale))
    shift = shift if bias is None else low.b.add(shift, bias)
    scale, shift = (low.reshape(each, (*shape_of(each), *[1] * (rank(x) - 2))) for each in (scale, shift))
    result = low.cast(low.b.add(low.b.mul(value, scale), shift), low.type(0).dtype)
    nothing = [low.full(0, low.type(i).shape, low.type(i).dtype) for i in (1, 2)]
    return (result, *nothing)


@lowers("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional")
def batch_norm_training(
    low: Lowering, x: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_variance: Value, *rest: Any,
) -> tuple[Value, ...]:  # fmt: skip
    """Batch statistics in f32, the running ones moved towards them; results as the ATen op orders them."""
    training, momentum, epsilon = rest if len(rest) == 3 else (True, *rest)
    reserve = len(low.fake) == 6
    if not training:
        result = batch_norm_inference(low, x, weight, bias, running_mean, running_variance, momentum, epsilon)
        return _as_traced(low, *result, running_mean, running_variance)
    result, mean_, variance, scale = _batch_normalised(low, x, weight, bias, epsilon)
    kind, axes = dtype(variance), (0, *range(2, rank(x)))
    count = product(shape_of(x)[axis] for axis in axes)
    elements = low.cast(low.number(count, i64), kind)
    unbiased = low.b.mul(variance, low.b.div(elements, low.b.sub(elements, low.number(1, kind))))
    moved = [
        _moving(low, old, new, momentum) for old, new in ((running_mean, mean_), (running_variance, unbiased))
    ]
    nothing = [low.full(0, low.type(3).shape, low.type(3).dtype)] if reserve else []
    return _as_traced(low, result, mean_, scale, *nothing, *moved)


def _batch_normalised(
    low: Lowering, x: Value, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value, Value, Value, Value]:
    """The result by the batch's own statistics, these in f32 at least, and the reciprocal of the deviation."""
    axes = (0, *range(2, rank(x)))
    wide = low.cast(x, dtype(x).accumulate)
    mean_, variance = low.b.mean(wide, axes=axes), low.b.var(wide, axes=axes, correction=0.0)
    affine = [None if p is None else low.cast(p, dtype(wide)) for p in (weight, bias)]
    result = low.cast(low.b.batch_norm(wide, mean_, variance, *affine, epsilon=epsilon), dtype(x))
    scale = low.b.rsqrt(low.b.add(variance, low.number(epsilon, dtype(wide))))
    return result, mean_, variance, scale


def _as_traced(low: Lowering, *results: Value) -> tuple[Value, ...]:
    """The results in the dtypes that they were traced with."""
    return tuple(low.cast(result, low.type(number).dtype) for number, result in enumerate(results))


def _moving(low: Lowering, old: Value, new: Value, momentum: float) -> Value:
    kind = dtype(new)
    kept = low.b.mul(low.cast(old, kind), low.number(1.0 - momentum, kind))
    return low.cast(low.b.add(kept, low.b.mul(new, low.number(momentum, kind))), dtype(old))


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, ...]:
    result, mean_, _, scale = _batch_normalised(low, x, weight, bias, epsilon)
    return _as_traced(low, result, mean_, scale)
