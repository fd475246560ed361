"""Suite `attention`: f32 and bf16, prefill and decode, causal, grouped heads, up to 16 thousand keys; and, from nothing
that is fast already, two products and a softmax as one writes them.

Inductor knows that spelling and calls torch's scaled_dot_product_attention; with a soft cap on the scores it does not
know it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.formula import Data, Formula, Row
from luminal.bench.case import Case

HEADS, WIDTH = 8, 64


def fused(o: Any, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    return o.attention(q, k, v, causal)


def naive(o: Any, q: Any, k: Any, v: Any, cap: float | None = None) -> Any:
    scores = q @ o.permute(k, (0, 1, 3, 2)) / WIDTH**0.5
    if cap is not None:
        scores = cap * o.tanh(scores / cap)
    return o.softmax(scores, -1) @ v


def model() -> nn.Module:
    """Attention as one writes it: q, k, v f32 [1, heads, length, width]."""
    return Formula(naive, []).eval()


def inputs(length: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randn((1, HEADS, length, WIDTH), generator=generator) for _ in range(3))


def row(
    name: str,
    queries: int,
    keys: int,
    heads: int = HEADS,
    groups: int = HEADS,
    width: int = WIDTH,
    causal: bool = False,
    dtype: str = "f32",
    batch: int = 1,
    quick: bool = False,
) -> Row:
    """`groups`: heads of keys and values."""
    part = 0.5 if causal else 1.0
    held = [Data((batch, groups, keys, width), dtype)] * 2
    return Row(
        name,
        partial(fused, causal=causal),
        [Data((batch, heads, queries, width), dtype), *held],
        dtype=dtype,
        quick=quick,
        gflop=4e-9 * batch * heads * queries * keys * width * part,
    )


def as_written(length: int, cap: float | None, dynamic: bool) -> Row:
    name = f"as one writes it, {'soft cap, ' if cap else ''}length {length}, {'dynamic' if dynamic else 'static'}"
    data = [Data((1, HEADS, length, WIDTH))] * 3
    return Row(
        name,
        partial(naive, cap=cap),
        data,
        gflop=4e-9 * HEADS * WIDTH * length**2,
        dynamic=dynamic,
        quick=length == 512 and cap is None,
    )


ROWS = [
    *(row(f"prefill {length}", length, length) for length in (128, 512, 2048)),
    *(row(f"causal prefill {length}", length, length, causal=True, quick=length == 512)
      for length in (128, 512, 2048, 4096)),
    row("causal prefill 16384, 2 heads", 16384, 16384, 2, 2, causal=True),
    row("causal prefill 512, 32 heads of 4 groups", 512, 512, 32, 4, causal=True),
    row("causal prefill 1024, width 128", 1024, 1024, width=128, causal=True),
    row("causal prefill 1024 in bf16", 1024, 1024, causal=True, dtype="bf16"),
    row("prefill 128, batch 8, 12 heads", 128, 128, 12, 12, batch=8),
    row("prefill 197, 12 heads", 197, 197, 12, 12),
    *(row(f"decode, {keys} keys", 1, keys, quick=keys == 2048) for keys in (128, 2048, 16384)),
    *(row(f"decode, {keys} keys, 32 heads of 4 groups", 1, keys, 32, 4) for keys in (128, 2048, 16384)),
    row("decode, 2048 keys in bf16", 1, 2048, dtype="bf16"),
    row("decode, 512 keys, batch 8", 1, 512, batch=8),
    *(as_written(length, cap, dynamic)
      for cap in (None, 30.0) for dynamic in (False, True) for length in (512, 2048)),
]  # fmt: skip
CASES: list[Case] = [each.case() for each in ROWS]
