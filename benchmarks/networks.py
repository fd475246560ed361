"""Networks of the suites `model` and `training` with random weights: those of transformers from configs, and three that
it has not, written out.  `tiny` makes them small enough for tests.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from luminal.bench.case import LeftOutError, absent

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LLAMA_135M = {
    "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
    "vocab_size": 49152, "num_hidden_layers": 30, "tie_word_embeddings": True,
}  # fmt: skip
LLAMA_1B = {
    "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632,
    "vocab_size": 32000, "num_hidden_layers": 2,
}  # fmt: skip
"""Two of the 22 layers, so that every contender's copy fits in memory beside the others'."""
TINY_LLAMA = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "vocab_size": 256, "num_hidden_layers": 1,
}  # fmt: skip
TINY: Mapping[str, Mapping[str, Any]] = {
    "Llama": TINY_LLAMA,
    "GPT2": {"n_embd": 32, "n_head": 2, "n_layer": 1, "vocab_size": 128},
    "ViT": {
        "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64,
        "image_size": 32,
    },
    "ResNet": {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "MobileNetV2": {"depth_multiplier": 0.25},
    "Whisper": {
        "d_model": 32, "encoder_attention_heads": 2, "encoder_layers": 1, "encoder_ffn_dim": 64,
        "max_source_positions": 16, "decoder_attention_heads": 2, "decoder_layers": 1, "decoder_ffn_dim": 64,
    },
}  # fmt: skip


def of_transformers(name: str, head: str, tiny: bool, **config: Any) -> nn.Module:
    """The network `name` with a head ("Model", "ForCausalLM", ...) and random weights; LeftOutError without the
    package."""
    if reason := absent("transformers"):
        raise LeftOutError(reason)
    transformers = importlib.import_module("transformers")
    settings = {**config, **TINY[name]} if tiny else config
    model: nn.Module = getattr(transformers, name + head)(getattr(transformers, f"{name}Config")(**settings))
    return _kept_alive(model).eval()


def _kept_alive(model: nn.Module) -> nn.Module:
    """The model with other values in its convolutions: their own initial ones shrink an image to nothing."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return model


class First(nn.Module):
    """The field of a transformers network's output that a case compares."""

    def __init__(self, network: nn.Module, field: str, **given: Any) -> None:
        super().__init__()
        self.network, self.field, self.given = network, field, given

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.network(x, **self.given), self.field)


class Decode(nn.Module):
    """One token, i64 [1, 1], of a Llama after `length` others, to logits: keys and values lie in a static cache, and
    every call writes the same place of it, as the next one."""

    def __init__(self, network: nn.Module, length: int) -> None:
        super().__init__()
        transformers = importlib.import_module("transformers")
        self.network = network
        self.length = length
        self.cache = transformers.StaticCache(config=network.config, max_cache_len=length + 8)
        self.register_buffer("place", torch.tensor([[length]]), persistent=False)
        with torch.no_grad():
            network(torch.zeros((1, length), dtype=torch.int64), past_key_values=self.cache)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Decode:
        """The cache is no buffer of the module, but must have its dtype."""
        super()._apply(fn, recurse)
        for layer in self.cache.layers:
            layer.keys, layer.values = fn(layer.keys), fn(layer.values)
        return self

    def forward(self, token: Tensor) -> Tensor:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.length)
        found = self.network(token, past_key_values=self.cache, position_ids=self.place)
        return found.logits


class Norm(nn.Sequential):
    """A convolution without bias, its batch norm, and ReLU6 where it is activated."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), *([nn.ReLU6()] if act else []))


class Inverted(nn.Module):
    """EfficientNet's block without squeeze and excitation: expand, depthwise, project, and a residual."""

    def __init__(self, inputs: int, outputs: int, expand: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expand
        self.layers = nn.Sequential(
            *([Norm(inputs, inner, 1)] if expand > 1 else []),
            Norm(inner, inner, kernel, stride, inner),
            Norm(inner, outputs, 1, act=False),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


EFFICIENTNET = (
    # expansion, channels, blocks, stride, kernel
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def efficientnet_lite0(tiny: bool) -> nn.Module:
    """Images f32 [batch, 3, n, n] to 1000 logits."""
    stages = EFFICIENTNET[:2] if tiny else EFFICIENTNET
    layers: list[nn.Module] = [Norm(3, 32, 3, 2)]
    channels = 32
    for expand, outputs, blocks, stride, kernel in stages:
        for place in range(blocks):
            layers.append(Inverted(channels, outputs, expand, kernel, stride if place == 0 else 1))
            channels = outputs
    layers += [Norm(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return _kept_alive(nn.Sequential(*layers)).eval()


class UNetBlock(nn.Module):
    """A block of a diffusion network: two convolutions behind group norms with a step's embedding between them, then
    attention over the image.  x: f32 [1, channels, n, n]; step: f32 [1, 4 channels]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels) for _ in range(3)])
        self.convolutions = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])
        self.embed = nn.Linear(4 * channels, channels)
        self.project, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.heads = channels // 40 if channels % 40 == 0 else 2

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        inner = self.convolutions[0](functional.silu(self.norms[0](x)))
        inner = inner + self.embed(functional.silu(step))[:, :, None, None]
        x = x + self.convolutions[1](functional.silu(self.norms[1](inner)))
        batch, channels, high, wide = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(tokens).chunk(3, -1)
        )
        found = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(found).transpose(1, 2).reshape(batch, channels, high, wide)


class Lstm(nn.Module):
    """Features f32 [batch, length, inputs] to the last hidden states."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(inputs, width, layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0][:, -1]


class Loss(nn.Module):
    """Cross-entropy of a network's logits [rows, classes], the last input being the classes [rows]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *given: Tensor) -> Tensor:
        logits = self.network(*given[:-1])
        return functional.cross_entropy(logits.flatten(0, -2), given[-1].flatten())


def perceptron(widths: Sequence[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.GELU()]
    return nn.Sequential(*layers[:-1])
