"""A decoder of the Llama family: RMS norms, rotary positions, grouped queries, gated feed-forward, caches in place.

model = lm.load_gguf("model.gguf").model()
step = torch.compile(model, backend="luminal")
logits = step(ids, positions)        the prompt, then one token after the other

Modules are named as the tensors of a GGUF file are. Keys and values are buffers, which each call updates in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from luminal.errors import ModelFileError, OptionError
from luminal.nn.quantised import QuantisedEmbedding, QuantisedLinear

Formats = Mapping[str, str | None]
"""The block format of each weight by its name without `.weight`; None for floats."""
CACHES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
"""What keys and values are kept as."""


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder. `context`: positions that its caches hold; `rotated`: elements of a head that turn."""

    vocabulary: int
    layers: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    head_width: int
    rotated: int
    context: int
    epsilon: float = 1e-5
    base: float = 10000.0
    is_tied: bool = False

    @staticmethod
    def of(metadata: Mapping[str, Any], vocabulary: int, is_tied: bool, context: int | None) -> DecoderShape:
        """The sizes that GGUF metadata state. ModelFileError for another architecture, or where a size is missing."""
        name = metadata.get("general.architecture")
        if name != "llama":
            raise ModelFileError(f"the architecture is {name!r}; there is a decoder for 'llama'")

        def value(key: str, default: Any = None) -> Any:
            found = metadata.get(f"llama.{key}", default)
            if found is None:
                raise ModelFileError(f"the metadata lack llama.{key}")
            return found

        width, heads = value("embedding_length"), value("attention.head_count")
        head_width = value("attention.key_length", width // heads)
        return DecoderShape(
            vocabulary,
            value("block_count"),
            width,
            value("feed_forward_length"),
            heads,
            value("attention.head_count_kv", heads),
            head_width,
            value("rope.dimension_count", head_width),
            context or value("context_length"),
            value("attention.layer_norm_rms_epsilon", 1e-5),
            value("rope.freq_base", 10000.0),
            is_tied,
        )


@dataclass(frozen=True)
class _Layers:
    """Makes linear layers by the format of their weights."""

    formats: Formats
    activations: str | None

    def linear(self, name: str, columns: int, rows: int) -> nn.Module:
        format = self.formats.get(name)
        if format is None:
            return nn.Linear(columns, rows, bias=False)
        return QuantisedLinear(columns, rows, format, False, self.activations)


class DecoderBlock(nn.Module):
    """One layer, [b, t, width] to the same; keys and values of all positions so far are its buffers."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, shape: DecoderShape, make: _Layers, name: str, batch: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape = shape
        rows, key_rows = shape.heads * shape.head_width, shape.key_heads * shape.head_width
        self.attn_norm = nn.RMSNorm(shape.width, shape.epsilon)
        self.attn_q = make.linear(f"{name}.attn_q", shape.width, rows)
        self.attn_k = make.linear(f"{name}.attn_k", shape.width, key_rows)
        self.attn_v = make.linear(f"{name}.attn_v", shape.width, key_rows)
        self.attn_output = make.linear(f"{name}.attn_output", rows, shape.width)
        self.ffn_norm = nn.RMSNorm(shape.width, shape.epsilon)
        self.ffn_gate = make.linear(f"{name}.ffn_gate", shape.width, shape.hidden)
        self.ffn_up = make.linear(f"{name}.ffn_up", shape.width, shape.hidden)
        self.ffn_down = make.linear(f"{name}.ffn_down", shape.hidden, shape.width)
        cache = (batch, shape.key_heads, shape.context, shape.head_width)
        self.register_buffer("keys", torch.zeros(cache, dtype=dtype), persistent=False)
        self.register_buffer("values", torch.zeros(cache, dtype=dtype), persistent=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, turn: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = x + self.attn_output(self._attention(self.attn_norm(x), positions, turn, mask))
        y = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(y)) * self.ffn_up(y))

    def _attention(
        self, x: torch.Tensor, positions: torch.Tensor, turn: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        batch, length, _ = x.shape
        shape = self.shape
        group = shape.heads // shape.key_heads

        def heads(y: torch.Tensor, count: int) -> torch.Tensor:
            return y.reshape(batch, length, count, shape.head_width).transpose(1, 2)

        q = _turned(heads(self.attn_q(x), shape.heads), turn)
        keys = _turned(heads(self.attn_k(x), shape.key_heads), turn)
        self.keys[:, :, positions] = keys.to(self.keys.dtype)
        self.values[:, :, positions] = heads(self.attn_v(x), shape.key_heads).to(self.values.dtype)
        read = mask.shape[-1]
        read_keys, read_values = (each[:, :, :read].to(x.dtype) for each in (self.keys, self.values))
        # the queries that share keys are rows of one product
        rows = q.reshape(batch, shape.key_heads, group * length, shape.head_width)
        mixed = functional.scaled_dot_product_attention(
            rows, read_keys, read_values, attn_mask=mask.repeat(group, 1)
        )
        return mixed.reshape(batch, shape.heads, length, -1).transpose(1, 2).reshape(batch, length, -1)


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Neighbouring elements (a, b) of [..., t, d] turned by the angles whose cosines and sines `turn` has, [2, t, r/2];
    elements from r on stay."""
    cosine, sine = turn[0], turn[1]
    rotated = 2 * cosine.shape[-1]
    pairs = x[..., :rotated].unflatten(-1, (-1, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    result = torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)
    return result if rotated == x.shape[-1] else torch.cat([result, x[..., rotated:]], -1)


class Decoder(nn.Module):
    """Token ids i64 [b, t] at positions i64 [t] to logits [b, t, vocabulary], or those of the last `count` tokens.
    Positions go up from 0; what they have written into the caches is read by later calls, until they are written
    again. `count`: the last tokens of which logits are wanted; `filled`: the first positions of the caches, beyond
    which nothing is read, at least one more than the largest position.

    `cache`: the dtype that keys and values are rounded to there, "f32", "f16" or "bf16"; OptionError for another."""

    frequencies: torch.Tensor

    def __init__(
        self,
        shape: DecoderShape,
        formats: Formats,
        activations: str | None = None,
        batch: int = 1,
        cache: str = "f32",
    ) -> None:
        super().__init__()
        if cache not in CACHES:
            raise OptionError(f"cache is {cache!r}, expected {', '.join(CACHES)}")
        self.shape = shape
        make = _Layers(formats, activations)
        table = formats.get("token_embd")
        self.token_embd = (
            nn.Embedding(shape.vocabulary, shape.width)
            if table is None
            else QuantisedEmbedding(shape.vocabulary, shape.width, table)
        )
        self.blk = nn.ModuleList(
            DecoderBlock(shape, make, f"blk.{number}", batch, CACHES[cache]) for number in range(shape.layers)
        )
        self.output_norm = nn.RMSNorm(shape.width, shape.epsilon)
        name = "token_embd" if shape.is_tied else "output"
        self.output = make.linear(name, shape.width, shape.vocabulary)
        powers = torch.arange(0, shape.rotated, 2, dtype=torch.float32) / shape.rotated
        self.register_buffer("frequencies", shape.base**-powers, persistent=False)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        count: int | None = None,
        filled: int | None = None,
    ) -> torch.Tensor:
        angles = positions[:, None] * self.frequencies
        turn = torch.stack([angles.cos(), angles.sin()])
        read = self.shape.context if filled is None else filled
        mask = torch.arange(read, device=ids.device) <= positions[:, None]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, positions, turn, mask)
        if count is not None:
            x = x[:, -count:]
        return self.output(self.output_norm(x))
