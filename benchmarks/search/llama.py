"""Llamas of transformers with random weights, from a config alone: in the shape of SmolLM-135M, or small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from luminal.bench.report import needed

SHAPE: Mapping[str, Any] = {
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
SMALL: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
}
LENGTH = 64


class Llama(nn.Module):
    """Token ids, i64 [batch, length], to logits; without a cache of keys and values."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.transformer(input_ids=token_ids, use_cache=False).logits


def llama(layers: int, shape: Mapping[str, Any]) -> Llama:
    """LeftOutError where transformers is not installed."""
    needed("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**shape, num_hidden_layers=layers, max_position_embeddings=2048)
    return Llama(LlamaForCausalLM(config)).eval()


def token_ids(shape: Mapping[str, Any], batch: int = 1, length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(batch * length)
    return torch.randint(3, shape["vocab_size"], (batch, length), generator=generator)
