"""Suite `model`: whole networks with random weights, f32, batch 1: language, images, sound, and a recurrent one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import networks
from luminal.bench.case import Case, Program

Built = tuple[nn.Module, tuple[Tensor, ...]]


def tokens(length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (1, length))


def image(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, size, size),)


def gpt2(tiny: bool) -> Built:
    network = networks.of_transformers("GPT2", "LMHeadModel", tiny)
    return networks.First(network, "logits", use_cache=False), (tokens(8 if tiny else 128, 128),)


def prefill(tiny: bool, shape: dict[str, int]) -> Built:
    network = networks.of_transformers("Llama", "ForCausalLM", tiny, **shape)
    return networks.First(network, "logits", use_cache=False), (tokens(8 if tiny else 128, 256),)


def decode(tiny: bool, shape: dict[str, int]) -> Built:
    network = networks.of_transformers("Llama", "ForCausalLM", tiny, **shape)
    return networks.Decode(network, 8 if tiny else 128), (tokens(1, 256),)


def vit(tiny: bool) -> Built:
    network = networks.of_transformers("ViT", "Model", tiny, add_pooling_layer=False)
    return networks.First(network, "last_hidden_state"), image(32 if tiny else 224)


def resnet50(tiny: bool) -> Built:
    network = networks.of_transformers("ResNet", "ForImageClassification", tiny)
    return networks.First(network, "logits"), image(32 if tiny else 224)


def mobilenet_v2(tiny: bool) -> Built:
    network = networks.of_transformers("MobileNetV2", "ForImageClassification", tiny)
    return networks.First(network, "logits"), image(32 if tiny else 224)


def efficientnet_lite0(tiny: bool) -> Built:
    return networks.efficientnet_lite0(tiny), image(32 if tiny else 224)


def whisper_encoder(tiny: bool) -> Built:
    network = networks.of_transformers("Whisper", "Model", tiny)
    features = torch.randn(1, 80, 32 if tiny else 3000)
    return networks.First(network.get_submodule("encoder"), "last_hidden_state"), (features,)


def unet_block(tiny: bool) -> Built:
    channels, size = (16, 8) if tiny else (320, 32)
    return networks.UNetBlock(channels).eval(), (
        torch.randn(1, channels, size, size),
        torch.randn(1, 4 * channels),
    )


def lstm(tiny: bool) -> Built:
    inputs, width, layers, length = (8, 16, 1, 4) if tiny else (128, 256, 2, 64)
    return networks.Lstm(inputs, width, layers).eval(), (torch.randn(1, length, inputs),)


NETWORKS: dict[str, Callable[[bool], Built]] = {
    "GPT-2 small, 128 tokens": gpt2,
    "Llama 135M, prefill 128": partial(prefill, shape=networks.LLAMA_135M),
    "Llama 135M, decode after 128": partial(decode, shape=networks.LLAMA_135M),
    "Llama 1.1B, 2 of 22 layers, prefill 128": partial(prefill, shape=networks.LLAMA_1B),
    "Llama 1.1B, 2 of 22 layers, decode after 128": partial(decode, shape=networks.LLAMA_1B),
    "ViT-B, 224": vit,
    "ResNet-50, 224": resnet50,
    "MobileNetV2, 224": mobilenet_v2,
    "EfficientNet-Lite0, 224": efficientnet_lite0,
    "Whisper tiny, encoder, 30 s": whisper_encoder,
    "UNet block, 320x32x32": unet_block,
    "LSTM, 2 layers of 256, 64 steps": lstm,
}
QUICK = ("UNet block, 320x32x32", "EfficientNet-Lite0, 224")


def build(tiny: bool, network: str) -> Program:
    module, inputs = NETWORKS[network](tiny)
    return Program(module.requires_grad_(False), inputs)


CASES = [Case(name, "f32", partial(build, network=name), quick=name in QUICK) for name in NETWORKS]
