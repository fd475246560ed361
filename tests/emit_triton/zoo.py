"""Models that GPU builds are tried on, small and at full size: of their tensors there are sizes alone, no memory.

Each entry of MODELS makes a module and its inputs under torch's fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from benchmarks.gpu_models import Q8, Fp8, Linear, Plain
from luminal.torch.export import ImportedProgram, import_exported
from luminal.torch.options import TorchOptions

Made = tuple[nn.Module, tuple[Tensor, ...]]
HIDDEN, HEADS, GROUPS, WIDTH, INNER = 4096, 32, 8, 128, 14336
"""Of Llama 3 8B: numbers in a token's state, query heads, key heads, numbers of a head, and of the middle layer."""
SMALL: dict[str, Any] = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 128,
}  # fmt: skip
CONTEXT = 8192


class Q4(nn.Module):
    """Weights in blocks of 32 half bytes with a scale: the low halves first."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("quants", torch.empty(outer, inner // 32, 1, 16, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(outer, inner // 32, 1, 1, dtype=torch.float16))
        self.register_buffer("shifts", torch.empty(2, 1, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        halves = (self.quants >> self.shifts) & 15
        weight = self.scales.float() * (halves.float() - 8)
        return F.linear(x, weight.flatten(1).to(x.dtype))


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class LlamaLayer(nn.Module):
    """One layer of Llama 3 8B over tokens, or over one token and what is kept of those before it."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.query, self.out = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN)
        self.key, self.value = linear(HIDDEN, GROUPS * WIDTH), linear(HIDDEN, GROUPS * WIDTH)
        self.gate, self.up, self.down = linear(HIDDEN, INNER), linear(HIDDEN, INNER), linear(INNER, HIDDEN)
        for name in ("first", "second"):
            self.register_buffer(name, torch.empty(HIDDEN, dtype=torch.bfloat16))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, *past: Tensor) -> Any:
        batch, length, _ = x.shape
        state = _norm(x, self.first)
        query, key, value = (
            linear(state).view(batch, length, -1, WIDTH).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        query, key = _turned(query, cosine, sine), _turned(key, cosine, sine)
        kept = (key, value)
        if past:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=not past, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, HIDDEN))
        state = _norm(x, self.second)
        return x + self.down(F.silu(self.gate(state)) * self.up(state)), *kept


def _llama_layer(linear: Linear, length: int, past: int) -> Made:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.bfloat16)

    angles = (empty(length, WIDTH), empty(length, WIDTH))
    kept = [empty(1, GROUPS, past, WIDTH) for _ in range(2)] if past else []
    return LlamaLayer(linear), (empty(1, length, HIDDEN), *angles, *kept)


class Experts(nn.Module):
    """A layer of experts as Mixtral's: each token goes to the best 2 of 8."""

    def __init__(self, hidden: int, inner: int, count: int = 8) -> None:
        super().__init__()
        self.router = Plain(hidden, count)
        for name, shape in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
            self.register_buffer(name, torch.empty(count, *shape, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        scores = F.softmax(self.router(x).float(), -1)
        best, chosen = torch.topk(scores, 2)
        best = (best / best.sum(-1, keepdim=True)).to(x.dtype)
        weights = torch.zeros_like(scores, dtype=x.dtype).scatter(1, chosen, best)
        middle = F.silu(torch.einsum("td,eid->eti", x, self.gate)) * torch.einsum("td,eid->eti", x, self.up)
        return torch.einsum("eti,edi,te->td", middle, self.down, weights)


class First(nn.Module):
    """The first result of a model that takes its tensors by name."""

    def __init__(self, model: nn.Module, *names: str, **rest: Any) -> None:
        super().__init__()
        self.model, self.names, self.rest = model, names, rest

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, tensors)), **self.rest, return_dict=False)[0]


def _ids(rows: int = 3, length: int = 7) -> Tensor:
    return torch.zeros(rows, length, dtype=torch.int64)


def _bert(**sizes: Any) -> Made:
    model = transformers.BertModel(transformers.BertConfig(**sizes))
    return First(model, "input_ids", "attention_mask"), (_ids(8, 128), _ids(8, 128))


def _gpt2() -> Made:
    config = transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    return First(transformers.GPT2LMHeadModel(config), "input_ids", use_cache=False), (_ids(),)


def _llama() -> Made:
    config = transformers.LlamaConfig(
        **SMALL, vocab_size=256, num_key_value_heads=2, max_position_embeddings=128
    )
    return First(transformers.LlamaForCausalLM(config), "input_ids", use_cache=False), (_ids(),)


def _vit(size: int, **sizes: Any) -> Made:
    with unset_fake_temporarily():  # it reads numbers of tensors while it is made
        model = transformers.ViTModel(transformers.ViTConfig(image_size=size, **sizes))
    return First(model, "pixel_values"), (torch.empty(8, 3, size, size),)


def _resnet() -> Made:
    model = transformers.ResNetModel(transformers.ResNetConfig())
    return First(model, "pixel_values"), (torch.empty(8, 3, 224, 224),)


class Whisper(nn.Module):
    """An encoder's layer, and a decoder's that looks at what it gives."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.WhisperConfig(d_model=512, encoder_attention_heads=8, decoder_attention_heads=8)
        self.encoder = transformers.models.whisper.modeling_whisper.WhisperEncoderLayer(config)
        self.decoder = transformers.models.whisper.modeling_whisper.WhisperDecoderLayer(config, 0)

    def forward(self, sound: Tensor, text: Tensor) -> Tensor:
        heard = self.encoder(sound, None)
        heard = heard[0] if isinstance(heard, tuple) else heard
        said = self.decoder(text, encoder_hidden_states=heard, use_cache=False)
        return said[0] if isinstance(said, tuple) else said


def _whisper() -> Made:
    return Whisper(), (torch.empty(1, 1500, 512), torch.empty(1, 64, 512))


LINEARS: dict[str, Linear] = {"bf16": Plain, "fp8": Fp8, "q8_0": Q8, "q4_0": Q4}
MODELS: dict[str, Callable[[], Made]] = {
    "bert": lambda: _bert(**SMALL, vocab_size=256),
    "gpt2": _gpt2,
    "llama": _llama,
    "vit": lambda: _vit(32, **SMALL, patch_size=8),
    **{
        f"llama-8b-{kind}-{name}": lambda linear=linear, length=length, past=past: _llama_layer(
            linear, length, past
        )
        for name, linear in LINEARS.items()
        for kind, length, past in (("prefill", 2048, 0), ("decode", 1, CONTEXT - 1))
    },
    "mixtral-experts": lambda: (Experts(1024, 3584), (torch.empty(64, 1024, dtype=torch.bfloat16),)),
    "whisper": _whisper,
    "encoder": lambda: _bert(
        num_hidden_layers=6, num_attention_heads=12, hidden_size=384, intermediate_size=1536
    ),
    "vit-b": lambda: _vit(224),
    "resnet-50": _resnet,
}
SMALL_MODELS = ("bert", "gpt2", "llama", "vit")


def imported(name: str) -> ImportedProgram:
    """A model's program, exported without memory."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        model, inputs = MODELS[name]()
        program = torch.export.export(model.eval(), inputs, strict=False)
        return import_exported(program, TorchOptions(strict=True))
