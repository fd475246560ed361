"""Attention as torch spells it on CUDA, for training: in terms of the ops that it has on CPUs.

The kernels of CUDA keep the state of a random generator, and positions of sequences, for their backward passes; without
dropout nobody reads them.  What the two passes share is the result and the logarithms of the rows' sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
_forward = _aten._scaled_dot_product_flash_attention_for_cpu
_backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward


def _nothing(q: Any) -> Any:
    """In place of a tensor that nobody reads."""
    return q.new_empty((0,), dtype=torch.int64)


def _flash(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    return _cudnn(q, k, v, None, True, dropout_p, is_causal, return_debug_mask, scale=scale)


def _flash_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, total: Any, first_q: Any, first_k: Any, most_q: Any,
    most_k: Any, dropout_p: float, is_causal: bool, seed: Any, offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return _cudnn_backward(
        grad, q, k, v, out, total, seed, offset, None, first_q, first_k, most_q, most_k, dropout_p, is_causal,
        scale=scale,
    )  # fmt: skip


def _efficient(
    q: Any, k: Any, v: Any, bias: Any, wants_total: bool, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    del wants_total
    if dropout_p:
        return NotImplemented
    result, total = _forward(q, k, v, 0.0, is_causal, attn_mask=bias, scale=scale)
    return result, total, _nothing(q), _nothing(q)


def _efficient_backward(
    grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, total: Any, seed: Any, offset: Any,
    dropout_p: float, wanted: list[bool], is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    del seed, offset
    if dropout_p:
        return NotImplemented
    found = _backward(grad, q, k, v, out, total, 0.0, is_causal, attn_mask=bias, scale=scale)
    wants_bias = bias is not None and wanted[3]
    return *found, _bias_gradient(grad, q, k, v, bias, out, total, is_causal, scale) if wants_bias else None


def _bias_gradient(
    grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, total: Any, is_causal: bool, scale: float | None
) -> Any:
    """The gradient of what is added to the scores, of the bias's own shape."""
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    grad, q, k, v, out = (x.float() for x in (grad, q, k, v, out))
    scores = q @ k.mT * factor + bias
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    total = total.unsqueeze(-1)
    weights = (scores - total.masked_fill(total == -math.inf, 0.0)).exp()
    inner = grad @ v.mT - (grad * out).sum(-1, keepdim=True)
    return (weights * inner).sum_to_size(bias.shape).to(bias.dtype)


def _cudnn(
    q: Any, k: Any, v: Any, bias: Any, wants_total: bool, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    del wants_total, return_debug_mask
    if dropout_p:
        return NotImplemented
    result, total = _forward(q, k, v, 0.0, is_causal, attn_mask=bias, scale=scale)
    rest = (_nothing(q), _nothing(q), q.shape[-2], k.shape[-2], _nothing(q), _nothing(q), _nothing(q))
    return result, total, *rest


def _cudnn_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, total: Any, seed: Any, offset: Any, bias: Any, first_q: Any,
    first_k: Any, most_q: Any, most_k: Any, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    del seed, offset, first_q, first_k, most_q, most_k
    if dropout_p:
        return NotImplemented
    return _backward(grad, q, k, v, out, total, 0.0, is_causal, attn_mask=bias, scale=scale)


ATTENTION: dict[Any, Callable[..., Any]] = {
    _aten._scaled_dot_product_flash_attention.default: _flash,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._scaled_dot_product_efficient_attention.default: _efficient,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten._scaled_dot_product_cudnn_attention.default: _cudnn,
    _aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_backward,
}
"""By op; NotImplemented, which leaves an op whole, where there is dropout."""
