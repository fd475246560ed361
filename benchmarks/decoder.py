"""Suite `decoder`: whole Llamas with quantised weights from a GGUF file, one token and a prompt, against llama.cpp.

Both read the same file.  Eager multiplies decoded weights by activations in f32; Luminal and llama.cpp quantise
activations to 8 bits.  All keep keys and values in f16.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.llama_file import LLAMA_1B, TINY, llama_file
from luminal import load_gguf
from luminal.bench.case import Case, Program, StoredModel
from luminal.nn import Decoder, QuantisedEmbedding, QuantisedLinear

LENGTH = 128
"""Tokens of a prompt."""


class Last(nn.Module):
    """Token ids i64 [1, t] from a position on to the logits of the last one, [1, 1, vocabulary]; each call writes the
    same places of the caches."""

    positions: Tensor

    def __init__(self, decoder: Decoder, start: int, length: int) -> None:
        super().__init__()
        self.decoder, self.filled = decoder, start + length
        self.register_buffer("positions", torch.arange(start, start + length), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Last:
        """The dtype of what the embedding gives is no tensor of the module, but must be that of the others."""
        super()._apply(fn, recurse)
        table = self.decoder.token_embd
        if isinstance(table, QuantisedEmbedding):
            table.dtype = fn(torch.empty(0, dtype=table.dtype)).dtype
        return self

    def forward(self, ids: Tensor) -> Tensor:
        return self.decoder(ids, self.positions, 1, self.filled)


def with_bytes(decoder: Decoder) -> Decoder:
    """The decoder, its tensors shared, with activations in 8 bits."""
    shared = {id(each): each for each in (*decoder.parameters(), *decoder.buffers())}
    twin = deepcopy(decoder, shared)
    for layer in twin.modules():
        if isinstance(layer, QuantisedLinear):
            layer.activations = "q8"
    return twin


def build(tiny: bool, format: str, before: int, length: int) -> Program:
    before, length = (before // 16, max(1, length // 16)) if tiny else (before, length)
    shape = TINY if tiny else LLAMA_1B
    path, context = llama_file(shape, format), 2 * (before + length)
    model = load_gguf(path, activations=None, cache="f16").model(context)
    ids = torch.randint(0, shape.vocabulary, (1, before + length))
    if before:
        with torch.no_grad():
            model(ids[:, :before], torch.arange(before), 1)
    module, own = (Last(each, before, length).eval() for each in (model, with_bytes(model)))
    tokens: list[int] = ids[0].tolist()
    stored = StoredModel(path, tuple(tokens[:before]), tuple(tokens[before:]), context)
    return Program(module, (ids[:, before:],), luminal=own, stored=stored)


CASES = [
    Case(
        f"Llama 1.1B, {format}, {what}",
        "quantised model",
        partial(build, format=format, before=before, length=length),
        quick=format == "Q4_0" and length == 1,
    )
    for format in ("Q8_0", "Q4_0")
    for what, before, length in (
        (f"decode after {LENGTH}", LENGTH, 1),
        (f"prefill {LENGTH}", 0, LENGTH),
    )
]
