"""ATen ops that contract: matrix products, convolutions and attention, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from luminal.dim import as_dim, known_equal
from luminal.dtype import bool_
from luminal.torch.lowering import Lowering, Scalar, Value, dtype, lowers, rank, shape_of


@lowers("mm", "bmm", "mv", "dot", "vdot", "matmul")
def matmul(low: Lowering, a: Value, b: Value, out_dtype: Any = None) -> Value:
    return low.cast(low.b.matmul(low.cast(a, low.dtype), low.cast(b, low.dtype)), low.dtype)


@lowers("addmm", "addmv", "baddbmm", "addr")
def add_product(
    low: Lowering, base: Value, a: Value, b: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """beta * base + alpha * (a @ b); beta 0 leaves the base out, NaN and all."""
    return scaled_sum(low, base, _wide_product(low, a, b), beta, alpha)


@lowers("addbmm")
def add_batch_product(
    low: Lowering, base: Value, a: Value, b: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    return scaled_sum(low, base, low.b.sum(_wide_product(low, a, b), axes=(0,)), beta, alpha)


def _wide_product(low: Lowering, a: Value, b: Value) -> Value:
    """The matrix product before it is rounded to half width: what is added to it comes first."""
    kind = dtype(a).accumulate
    return low.b.matmul(low.cast(a, kind), low.cast(b, kind))


def scaled_sum(low: Lowering, base: Value, product: Value, beta: Scalar, alpha: Scalar) -> Value:
    kind = dtype(product)
    if alpha != 1:
        product = low.b.mul(product, low.number(alpha, kind))
    if beta == 0:
        return low.cast(low.broadcast(product, low.shape), low.dtype)
    base = low.cast(base, kind)
    if beta != 1:
        base = low.b.mul(base, low.number(beta, kind))
    return low.cast(low.b.add(product, base), low.dtype)


@lowers("_trilinear")
def trilinear(
    low: Lowering, a: Value, b: Value, c: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], summed: Sequence[int], unroll: int = 1,
) -> Value:  # fmt: skip
    """The sum over `summed` of a * b * c, each with its missing axes put in."""
    count = rank(a) + len(expand1)
    parts: list[Value] = []
    for part, added in ((a, expand1), (b, expand2), (c, expand3)):
        shape = list(shape_of(part))
        for axis in sorted(low.axis(axis, count) for axis in added):
            shape.insert(axis, as_dim(1))
        parts.append(low.reshape(part, shape))
    product = low.b.mul(low.b.mul(parts[0], parts[1]), parts[2])
    return low.b.sum(product, axes=low.axes(list(summed), count)) if summed else product


# ---- convolution -----------------------------------------------------------------------------------------------


@lowers("convolution")
def convolution(
    low: Lowering, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    count = rank(weight) - 2
    weight = low.fixed_sizes(weight, range(rank(weight)))
    single = rank(x) == count + 1
    x = low.fixed_sizes(x, (rank(x) - count - 1,))
    batch = low.reshape(x, (1, *shape_of(x))) if single else x
    result = low.b.conv(
        batch, weight, bias, stride=low.each(stride, count), padding=low.each(padding, count),
        dilation=low.each(dilation, count), groups=low.symbols.fixed(groups), transposed=transposed,
        output_padding=low.each(output_padding, count),
    )  # fmt: skip
    return low.reshape(result, low.shape) if single else result


@lowers("convolution_backward")
def convolution_backward(
    low: Lowering, grad: Value, x: Value, weight: Value, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int, mask: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    """The input's gradient is the convolution of the other kind; the weight's swaps batch with channels, and stride
    with dilation."""
    count = rank(weight) - 2
    weight, groups = low.fixed_sizes(weight, range(rank(weight))), low.symbols.fixed(groups)
    stride, padding, dilation = low.each(stride, count), low.each(padding, count), low.each(dilation, count)
    grad_x = grad_weight = grad_bias = None
    if mask[0]:
        grad_x = _input_gradient(low, grad, x, weight, stride, padding, dilation, transposed, groups)
    if mask[1]:
        data, gradient = (grad, x) if transposed else (x, grad)
        grad_weight = _weight_gradient(low, data, gradient, weight, stride, padding, dilation, groups)
    if mask[2]:
        grad_bias = low.b.sum(grad, axes=(0, *range(2, rank(grad))))
    return grad_x, grad_weight, grad_bias


def _input_gradient(
    low: Lowering, grad: Value, x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, groups: int,
) -> Value:  # fmt: skip
    extra: list[int] = []
    for i in range(rank(weight) - 2):
        reach = dilation[i] * (cast(int, shape_of(weight)[2 + i].constant) - 1) + 1
        covered = (shape_of(grad)[2 + i] - 1) * stride[i] - 2 * padding[i] + reach
        rest = (shape_of(x)[2 + i] - covered).constant
        if not transposed and rest is None:
            raise low.refuse("the gradient of a strided convolution of symbolic size")
        extra.append(0 if transposed or rest is None else rest)
    return low.b.conv(
        grad, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups,
        transposed=not transposed, output_padding=extra,
    )  # fmt: skip


def _weight_gradient(
    low: Lowering, x: Value, grad: Value, weight: Value, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """sum over batch and positions of windows of x times grad: one matrix product for each group."""
    count = rank(weight) - 2
    extents = [cast(int, size.constant) for size in shape_of(weight)[2:]]
    zeros = [as_dim(0), as_dim(0)]
    padded = x
    if any(padding):
        amounts = [*zeros, *[as_dim(p) for p in padding]]
        padded = low.b.pad(x, low=amounts, high=amounts, value=0)
    windows = padded
    for i, extent in enumerate(extents):
        windows = low.b.window(windows, axis=2 + i, size=extent, step=stride[i], dilation=dilation[i])
        size = shape_of(grad)[2 + i]
        if not known_equal(shape_of(windows)[2 + i], size):
            windows = low.slice(windows, 2 + i, 0, size)
    n, c = shape_of(x)[:2]
    o, sizes = shape_of(grad)[1], shape_of(grad)[2:]
    spatial = list(range(2, 2 + count))
    kernel = list(range(2 + count, 2 + 2 * count))
    parts = low.reshape(windows, (n, as_dim(groups), c // groups, *sizes, *map(as_dim, extents)))
    order = [1, 0, *[s + 1 for s in spatial], 2, *[k + 1 for k in kernel]]
    rows = n
    for size in sizes:
        rows = rows * size
    columns = c // groups * math.prod(extents)
    data = low.reshape(low.permute(parts, order), (as_dim(groups), rows, columns))
    gradient = low.reshape(grad, (n, as_dim(groups), o // groups, *sizes))
    gradient = low.reshape(
        low.permute(gradient, [1, 2, 0, *range(3, 3 + count)]), (as_dim(groups), o // groups, rows)
    )
    product = low.b.matmul(gradient, data)
    return low.reshape(product, (o, c // groups, *map(as_dim, extents)))


# ---- attention -------------------------------------------------------------------------------------------------


@lowers("scaled_dot_product_attention")
def attention(
    low: Lowering, q: Value, k: Value, v: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise low.refuse("dropout inside attention")
    v = low.with_sizes(v, {rank(v) - 2: shape_of(k)[-2]})
    return low.b.attention(q, k, v, _mask(low, attn_mask, q), causal=is_causal, scale=scale)


def _mask(low: Lowering, mask: Value | None, q: Value) -> Value | None:
    if mask is None or dtype(mask) == bool_:
        return mask
    return low.cast(mask, dtype(q))


@lowers("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    low: Lowering, q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value | None]:  # fmt: skip
    """The result, and the logarithm of each row's sum of exponentials where the backward pass wants it."""
    result = attention(low, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    if not low.uses_result(1):
        return result, None
    scores = _scores(low, q, k, attn_mask, is_causal, scale)
    return result, low.b.logsumexp(scores, axes=(rank(q) - 1,))


@lowers("_scaled_dot_product_attention_math_for_mps", "_scaled_dot_product_attention_math")
def math_attention(
    low: Lowering, q: Value, k: Value, v: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, dropout_mask: Value | None = None, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Value, Value | None]:  # fmt: skip
    if low.uses_result(1):
        raise low.refuse("the weights of attention as a result")
    return attention(low, q, k, v, attn_mask, dropout_p, is_causal, scale=scale), None


@lowers("_scaled_dot_product_flash_attention")
def flash_attention_on_gpu(
    low: Lowering, q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Value | None, ...]:  # fmt: skip
    """As torch spells attention on CUDA; what it returns for the backward pass nobody may want."""
    del return_debug_mask
    return _result_alone(low, attention(low, q, k, v, None, dropout_p, is_causal, scale=scale))


@lowers("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")
def biased_attention_on_gpu(
    low: Lowering, q: Value, k: Value, v: Value, attn_bias: Value | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
    scale: float | None = None,
) -> tuple[Value | None, ...]:  # fmt: skip
    del compute_log_sumexp, return_debug_mask
    return _result_alone(low, attention(low, q, k, v, attn_bias, dropout_p, is_causal, scale=scale))


def _result_alone(low: Lowering, result: Value) -> tuple[Value | None, ...]:
    count = len(low.node.meta["val"])
    if any(low.uses_result(number) for number in range(1, count)):
        raise low.refuse("more of attention than its result")
    return (result, *[None] * (count - 1))


def _scores(
    low: Lowering, q: Value, k: Value, mask: Value | None, causal: bool, scale: float | None
) -> Value:
    """Scaled and masked scores in f32 (f64 stays)."""
    kind = dtype(q).accumulate
    count = rank(q)
    factor = scale if scale is not None else 1.0 / math.sqrt(cast(int, shape_of(q)[-1].constant))
    turned = low.permute(low.cast(k, kind), [*range(count - 2), count - 1, count - 2])
    scores = low.b.mul(low.b.matmul(low.cast(q, kind), turned), low.number(factor, kind))
    nothing = low.number(-math.inf, kind)
    if causal:
        shape = shape_of(scores)[-2:]
        allowed = low.b.ge(low.iota(shape, 0), low.iota(shape, 1))
        scores = low.b.where(allowed, scores, nothing)
    if mask is not None and dtype(mask) == bool_:
        scores = low.b.where(mask, scores, nothing)
    elif mask is not None:
        scores = low.b.add(scores, low.cast(mask, kind))
    return scores


@lowers("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    low: Lowering, grad: Value, q: Value, k: Value, v: Value, out: Value, logsumexp: Value, dropout_p: float,
    is_causal: bool, *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    if dropout_p:
        raise low.refuse("dropout inside attention")
    kind = dtype(q).accumulate
    count = rank(q)
    swap = [*range(count - 2), count - 1, count - 2]
    factor = scale if scale is not None else 1.0 / math.sqrt(cast(int, shape_of(q)[-1].constant))
    scores = _scores(low, q, k, attn_mask, is_causal, scale)
    total = low.cast(low.reshape(logsumexp, (*shape_of(logsumexp), 1)), kind)
    dead = low.b.eq(total, low.number(-math.inf, kind))
    weights = low.b.exp(low.b.sub(scores, low.b.where(dead, low.number(0, kind), total)))
    gradient, value, result = (low.cast(x, kind) for x in (grad, v, out))
    grad_v = low.b.matmul(low.permute(weights, swap), gradient)
    delta = low.b.sum(low.b.mul(gradient, result), axes=(count - 1,), keepdim=True)
    inner = low.b.sub(low.b.matmul(gradient, low.permute(value, swap)), delta)
    grad_scores = low.b.mul(low.b.mul(weights, inner), low.number(factor, kind))
    grad_q = low.b.matmul(grad_scores, low.cast(k, kind))
    grad_k = low.b.matmul(low.permute(grad_scores, swap), low.cast(q, kind))
    return tuple(low.cast(x, dtype(q)) for x in (grad_q, grad_k, grad_v))
