"""What `gpu_check.py` compiles: attention as one writes it, weights as they are kept, a layer of Llama 3 at a token."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SPREAD = 0.02
"""Of weights."""


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As one writes it."""
    scores = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1).to(q.dtype).float() @ v.float()).to(q.dtype)


def plain_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal, with several heads of queries to one of keys."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Plain(nn.Module):
    """y = x w^T, of weights as they are."""

    weight: Tensor

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("weight", SPREAD * torch.randn(outer, inner, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Fp8(nn.Module):
    """The same of weights in e4m3 with one scale for each output."""

    weight: Tensor
    scale: Tensor

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(outer, inner).to(torch.float8_e4m3fn))
        self.register_buffer("scale", torch.full((outer,), SPREAD, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class Q8(nn.Module):
    """The same of weights in blocks of 32 bytes with a scale, as Q8_0 has them."""

    quants: Tensor
    scales: Tensor

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("quants", torch.randint(-127, 128, (outer, inner // 32, 32), dtype=torch.int8))
        self.register_buffer("scales", torch.full((outer, inner // 32, 1), SPREAD / 64, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.scales.float() * self.quants.float()
        return F.linear(x, weight.flatten(1).to(x.dtype))


Linear = Callable[[int, int], nn.Module]
WEIGHTS: dict[str, Linear] = {"bf16": Plain, "fp8": Fp8, "Q8_0": Q8}


class DecoderLayer(nn.Module):
    """A layer of Llama 3 at one token: grouped queries, rotary positions, a cache that is written in place."""

    def __init__(self, linear: Linear, width: int, hidden: int, heads: int, kept: int, longest: int) -> None:
        super().__init__()
        self.heads, self.kept, self.size = heads, kept, width // heads
        self.qkv, self.out = linear(width, (heads + 2 * kept) * self.size), linear(width, width)
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)
        self.first, self.second = (nn.RMSNorm(width, dtype=torch.bfloat16) for _ in range(2))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(1, kept, longest, self.size, dtype=torch.bfloat16))
        self.requires_grad_(False)

    @property
    def bytes(self) -> int:
        """Of weights and of what is kept of the tokens before."""
        return sum(each.numel() * each.itemsize for each in (*self.parameters(), *self.buffers()))

    def forward(self, x: torch.Tensor, position: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.first(x)).view(1, 1, -1, self.size).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.kept, self.kept], 1)
        q, k = self._turned(q, turn), self._turned(k, turn)
        keys: torch.Tensor = self.keys.index_copy_(2, position, k)  # pyright: ignore
        values: torch.Tensor = self.values.index_copy_(2, position, v)  # pyright: ignore
        group = self.heads // self.kept
        q = q.reshape(1, self.kept, group, self.size)
        scores = (q @ keys.transpose(-1, -2)) * self.size**-0.5
        seen = torch.arange(keys.shape[2], device=x.device) <= position
        mixed = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ values
        x = x + self.out(mixed.reshape(1, 1, -1))
        h = self.second(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))

    @staticmethod
    def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * turn[0] + torch.cat([-second, first], -1) * turn[1]


LLAMA = 4096, 14336, 32, 8, 2048
"""Of Llama 3 8B: numbers of a token's state and of the middle layer, heads of queries and of keys, tokens kept."""


def token(width: int, hidden: int, heads: int, kept: int, longest: int) -> tuple[Tensor, ...]:
    """What a layer of such sizes takes for one token: its state, its place, and how far each number is turned."""
    state, turn = torch.randn(1, 1, width), torch.randn(2, width // heads)
    return state.bfloat16(), torch.tensor([longest - 2]), turn.bfloat16()
