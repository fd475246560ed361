"""Suite `training`: forward, backward and a step of SGD of small networks, f32; the step itself is torch's for all.

What is compared are the loss and the gradients of the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import networks
from luminal.bench.case import Case, Program

Built = tuple[nn.Module, tuple[Tensor, ...]]


def classes(rows: int, count: int) -> Tensor:
    return torch.randint(0, count, (rows,))


def perceptron(tiny: bool) -> Built:
    rows, widths = (4, (16, 32, 10)) if tiny else (128, (784, 1024, 1024, 10))
    return networks.perceptron(widths), (torch.randn(rows, widths[0]), classes(rows, 10))


def llama(tiny: bool) -> Built:
    shape = {**networks.LLAMA_135M, "num_hidden_layers": 2, "vocab_size": 4096}
    network = networks.of_transformers("Llama", "ForCausalLM", tiny, **shape)
    length, vocabulary = (8, 256) if tiny else (128, 4096)
    ids = torch.randint(0, vocabulary, (1, length))
    return networks.First(network, "logits", use_cache=False), (ids, classes(length, vocabulary))


def gpt2(tiny: bool) -> Built:
    network = networks.of_transformers("GPT2", "LMHeadModel", tiny, n_layer=2, vocab_size=4096)
    length, vocabulary = (8, 128) if tiny else (128, 4096)
    ids = torch.randint(0, vocabulary, (1, length))
    return networks.First(network, "logits", use_cache=False), (ids, classes(length, vocabulary))


def resnet(tiny: bool) -> Built:
    """A ResNet of basic blocks on 32x32 images, statistics of batches as in training."""
    network = networks.of_transformers(
        "ResNet", "ForImageClassification", tiny, depths=[2, 2], hidden_sizes=[32, 64], embedding_size=32,
        layer_type="basic", num_labels=10,
    )  # fmt: skip
    rows, size, count = (2, 32, 2) if tiny else (16, 64, 10)
    return networks.First(network.train(), "logits"), (
        torch.randn(rows, 3, size, size),
        classes(rows, 2 if tiny else count),
    )


def lstm(tiny: bool) -> Built:
    inputs, width, length, rows = (8, 16, 4, 2) if tiny else (64, 128, 32, 16)
    network = nn.Sequential(networks.Lstm(inputs, width, 1), nn.Linear(width, 10))
    return network, (torch.randn(rows, length, inputs), classes(rows, 10))


NETWORKS: dict[str, Callable[[bool], Built]] = {
    "perceptron 784-1024-1024-10, batch 128": perceptron,
    "Llama, 2 layers of the 135M, 128 tokens": llama,
    "GPT-2, 2 layers, 128 tokens": gpt2,
    "ResNet of 8 convolutions, batch 16, 64": resnet,
    "LSTM of 128, 32 steps, batch 16": lstm,
}


def build(tiny: bool, network: str) -> Program:
    module, inputs = NETWORKS[network](tiny)
    loss = networks.Loss(module)
    return Program(loss, inputs, training=True)


CASES = [
    Case(name, "f32", partial(build, network=name), quick=name.startswith("perceptron")) for name in NETWORKS
]
