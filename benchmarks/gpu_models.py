"""What `gpu_check.py` compiles: attention as one writes it, and a layer of Llama 3 at one token."""

from __future__ import annotations

import torch


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


class DecoderLayer(torch.nn.Module):
    """A layer of Llama 3 at one token: grouped queries, rotary positions, a cache that is written in place."""

    def __init__(self, width: int, hidden: int, heads: int, kept: int, longest: int) -> None:
        super().__init__()
        self.heads, self.kept, self.size = heads, kept, width // heads
        self.qkv = torch.nn.Linear(width, (heads + 2 * kept) * self.size, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.gate, self.up = (torch.nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(hidden, width, bias=False)
        self.first, self.second = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(1, kept, longest, self.size))

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
