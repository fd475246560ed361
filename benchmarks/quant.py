"""Suite `quant`: linear layers with quantised weights, one to 64 rows, against llama.cpp's kernels.

Every contender computes with the same weights, those that the format can hold.  Peers without the format multiply by
them in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.formula import Formula, small
from benchmarks.gemm import linear
from luminal import quantise
from luminal.bench.case import Case, LeftOutError, Program, Quantised, absent

BITS = {"Q8_0": 8.5, "Q4_0": 4.5, "Q4_K": 4.5, "Q6_K": 6.5625, "bf16": 16.0, "f32": 32.0}
"""Stored bits of an element, scales among them."""
SHAPES = ((4096, 4096), (5632, 2048))
"""Results and inputs of a layer: of a 7B Llama, and of a 1.1B one."""
BATCHES = (1, 2, 8, 32, 64)


def quantised_linear(format: str, weight: Tensor) -> nn.Module:
    """Luminal's linear layer with a weight f32 [outputs, inputs] in a format; rows are quantised too, as llama.cpp's
    are."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if format == "f32":
        return layer
    if format == "bf16":
        return Widened(layer.to(torch.bfloat16))
    return quantise(nn.Sequential(layer), format.lower(), activations="q8")


class Widened(nn.Module):
    """A layer in bf16 on rows in f32."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(torch.bfloat16)).float()


def rounded(format: str, weight: Tensor) -> Tensor:
    """A weight as the format holds it, f32.  LeftOutError where its package is missing."""
    if format == "f32":
        return weight
    if format == "bf16":
        return weight.to(torch.bfloat16).float()
    if reason := absent("llama_cpp"):
        raise LeftOutError(f"weights are quantised by llama.cpp: {reason}")
    from benchmarks.ggml import roundtrip

    return torch.from_numpy(roundtrip(format, weight.numpy()))


def build(tiny: bool, format: str, batch: int, outputs: int, inputs: int) -> Program:
    # blocks of a K format have 256 elements
    outputs, inputs = (small(outputs), 512) if tiny else (outputs, inputs)
    weight = rounded(format, torch.randn(outputs, inputs) / inputs**0.5)
    x = torch.randn(batch, inputs)
    own = quantised_linear(format, weight)
    return Program(
        Formula(linear, [weight]).eval(),
        (x,),
        linear,
        (weight,),
        Quantised(format, weight),
        own,
        gflop=2e-9 * batch * outputs * inputs,
        mbytes=outputs * inputs * BITS[format] / 8e6,
    )


def builder(format: str, batch: int, outputs: int, inputs: int) -> Callable[[bool], Program]:
    return partial(build, format=format, batch=batch, outputs=outputs, inputs=inputs)


CASES = [
    Case(
        f"{format}, {batch} x {inputs} x {outputs}",
        "f32" if format == "f32" else "quantised",
        builder(format, batch, outputs, inputs),
        quick=batch == 1 and format in ("Q8_0", "Q4_0") and inputs == 2048,
    )
    for format in BITS
    for outputs, inputs in SHAPES
    for batch in BATCHES
]
