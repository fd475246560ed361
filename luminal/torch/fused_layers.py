"""Whole layers that torch.nn calls as one op where no gradient is wanted, in terms of the ops they consist of.

`nn.MultiheadAttention` and `nn.TransformerEncoderLayer` do so; what they hide, whole rows too, has weights as a softmax
over -inf gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

_aten = torch.ops.aten

_VIEWS: dict[int, Callable[[Any], Any]] = {
    0: lambda mask: mask,  # queries by keys
    1: lambda mask: mask[:, None, None, :],  # keys of each sequence
    2: lambda mask: mask,  # sequences by heads by queries by keys
}
"""A mask over scores of (sequences, heads, queries, keys), by its type. What is not 0 in it hides, -inf too."""


def _hidden(mask: Any, kind: int | None) -> Any:
    """Where scores are hidden, to be broadcast over them; NotImplemented for a mask of no known type."""
    return _VIEWS[kind](mask.to(torch.bool)) if kind in _VIEWS else NotImplemented


def _attention(
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any,
    proj_weight: Any, proj_bias: Any, mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """(sequences, length, embed_dim), and the weights where they are wanted: (sequences, heads, queries, keys), or
    their means over heads."""
    hidden = None if mask is None else _hidden(mask, mask_type)
    if hidden is NotImplemented:
        return NotImplemented
    if query.numel() == 0:  # weights of no shape, as torch has them
        return query.new_empty(query.shape), query.new_empty((0,))
    size = embed_dim // num_head
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        F.linear(x, w, b).unflatten(-1, (num_head, size)).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q / math.sqrt(size)) @ k.mT
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    shares = scores.softmax(-1)
    result = F.linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, query.new_empty((0,))  # as torch traces it
    return result, shares.mean(1) if average_attn_weights else shares


def _encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any, norm_weight_2: Any,
    norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any, ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    def attend(x: Any) -> Any:
        return _attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, False, mask_type
        )  # fmt: skip

    def feed_forward(x: Any) -> Any:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else inner.relu(), ffn_weight_2, ffn_bias_2)

    def first_norm(x: Any) -> Any:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Any) -> Any:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    attended = attend(first_norm(src) if norm_first else src)
    if attended is NotImplemented:
        return NotImplemented
    x = src + attended[0]
    if norm_first:
        return x + feed_forward(second_norm(x))
    x = first_norm(x)
    return second_norm(x + feed_forward(x))


FUSED_LAYERS: dict[Any, Callable[..., Any]] = {
    _aten._native_multi_head_attention.default: _attention,
    _aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}
"""By op; NotImplemented, which leaves an op whole, for masks of no known type."""
