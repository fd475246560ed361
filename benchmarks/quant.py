"""Suite `quant`: linear layers with quantised weights, one to 64 rows, against llama.cpp's kernels.

Every contender computes with the same weights: llama.cpp quantises them once, it and Luminal read the same blocks, and
peers without the format multiply by what the blocks hold, in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.formula import Formula, small
from benchmarks.gemm import linear
from luminal.bench.case import Case, LeftOutError, Program, Quantised, absent
from luminal.nn import QuantisedLinear
from luminal.quantised import format_of

BITS = {
    "Q8_0": 8.5, "Q4_0": 4.5, "Q4_K": 4.5, "Q6_K": 6.5625, "bf16": 16.0, "f16": 16.0, "f32": 32.0,
}  # fmt: skip
"""Stored bits of an element, scales among them."""
FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHAPES = ((4096, 4096), (5632, 2048))
"""Results and inputs of a layer: of a 7B Llama, and of a 1.1B one."""
BATCHES = (1, 2, 8, 32, 64)


def quantised_linear(held: Quantised) -> nn.Module:
    """Luminal's linear layer with a weight as its blocks hold it; rows are quantised too, as llama.cpp's are."""
    rows, columns = held.weight.shape
    if held.format in FLOATS:
        layer = nn.Linear(columns, rows, bias=False)
        layer.weight = nn.Parameter(held.weight, requires_grad=False)
        return layer if held.format == "f32" else Widened(layer.to(FLOATS[held.format]))
    made = QuantisedLinear(columns, rows, held.format, bias=False, activations="q8")
    planes = format_of(held.format).unpack(held.blocks, (rows, columns))
    made.take({name: torch.from_numpy(np.ascontiguousarray(plane)) for name, plane in planes.items()})
    return made


class Widened(nn.Module):
    """A layer in a narrow float on rows in f32."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(self.layer.weight.dtype)).float()


def stored(format: str, weight: Tensor) -> Quantised:
    """A weight f32 as the format holds it, with its blocks.  LeftOutError where what quantises is not installed."""
    if format in FLOATS:
        narrow = weight.to(FLOATS[format])
        return Quantised(format, narrow.float(), narrow.view(torch.uint8).numpy())
    if reason := absent("llama_cpp"):
        raise LeftOutError(f"weights are quantised by llama.cpp: {reason}")
    from benchmarks.ggml import dequantised, quantised

    blocks = quantised(format, weight.numpy())
    held = dequantised(format, blocks, weight.shape[1])
    return Quantised(format, torch.from_numpy(held), blocks)


def build(tiny: bool, format: str, batch: int, outputs: int, inputs: int) -> Program:
    # blocks of a K format have 256 elements
    outputs, inputs = (small(outputs), 512) if tiny else (outputs, inputs)
    held = stored(format, torch.randn(outputs, inputs) / inputs**0.5)
    x = torch.randn(batch, inputs)
    return Program(
        Formula(linear, [held.weight]).eval(),
        (x,),
        linear,
        (held.weight,),
        held,
        quantised_linear(held),
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
