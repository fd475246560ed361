"""The operations that formulas of the suites are written in, as torch has them.

A formula is a function of a module like this one and of arrays, and uses besides only what arrays of torch, jax and
tinygrad understand alike: arithmetic, `@`, comparisons, indexing by slices.  benchmarks/peers/jax.py and tinygrad.py
have the same names for their arrays, with the same arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
exp, log, sqrt, rsqrt, sin, erf = torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.sin, torch.erf
tanh, sigmoid, relu, absolute = torch.tanh, torch.sigmoid, torch.relu, torch.abs
maximum, where = torch.maximum, torch.where
gelu, silu = functional.gelu, functional.silu
softmax, log_softmax, logsumexp = torch.softmax, torch.log_softmax, torch.logsumexp
argmax, cumsum = torch.argmax, torch.cumsum
permute = torch.permute


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    return torch.clamp(x, low, high)


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.to(DTYPES[dtype])


def total(x: Tensor, axes: Sequence[int]) -> Tensor:
    return torch.sum(x, tuple(axes))


def mean(x: Tensor, axes: Sequence[int], keep: bool = False) -> Tensor:
    return torch.mean(x, tuple(axes), keepdim=keep)


def largest(x: Tensor, axes: Sequence[int], keep: bool = False) -> Tensor:
    return torch.amax(x, tuple(axes), keepdim=keep)


def concatenate(parts: Sequence[Tensor], axis: int) -> Tensor:
    return torch.cat(list(parts), axis)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.reshape(tuple(shape))


def contiguous(x: Tensor) -> Tensor:
    """A result in row-major order, where torch would return a view."""
    return x.contiguous()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(x, target)


def topk(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of each row, sorted, and where they are."""
    return torch.topk(x, count)


def sort(x: Tensor) -> Tensor:
    return torch.sort(x).values


def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    return torch.gather(x, axis, index)


def scatter_add(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """`source` [n, width] added to rows of `x` [rows, width] that `index` [n] names."""
    return torch.index_add(x, 0, index, source)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    return functional.embedding(index, table)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1, padding: int = 0, groups: int = 1
) -> Tensor:
    return functional.conv2d(x, weight, bias, stride, padding, 1, groups)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Any:
    """[batch, heads, length, width]; keys and values may have fewer heads."""
    is_grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=is_grouped)
