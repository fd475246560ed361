"""Suite `attention`: softmax(q k' / sqrt(d)) v as one writes it, f32, 8 heads of width 64.

Nothing is called that is fast already: two products and a softmax. Inductor knows the pattern and calls torch's
scaled_dot_product_attention; with a soft cap on the scores it does not know it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from luminal.bench import Case

TOLERANCE = 1e-5
HEADS, WIDTH = 8, 64

CASES = [
    Case(f"{'soft cap, ' if cap else ''}length {length}", dynamic, "f32", {"length": length, "cap": cap})
    for cap in (0, 1)
    for dynamic in (False, True)
    for length in (512, 2048)
]
QUICK_CASES = [case for case in CASES if case.sizes == {"length": 512, "cap": 0}]


def gflop(sizes: dict[str, int]) -> float:
    """Scores, and their weighted sums of values."""
    return 4e-9 * HEADS * WIDTH * sizes["length"] ** 2


class Attention(nn.Module):
    """q, k, v: [1, heads, length, width]; `capped`, of any size, where the scores are to lie between -30 and 30."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, capped: Tensor | None = None) -> Tensor:
        scores = q @ k.transpose(-2, -1) / WIDTH**0.5
        if capped is not None:
            scores = 30.0 * torch.tanh(scores / 30.0)
        return torch.softmax(scores, -1) @ v


def model() -> nn.Module:
    return Attention().eval()


def inputs(sizes: dict[str, int]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(sizes["length"])
    shape = (1, HEADS, sizes["length"], WIDTH)
    tensors = tuple(torch.randn(shape, generator=generator) for _ in range(3))
    return (*tensors, torch.ones(1)) if sizes["cap"] else tensors
