"""What the user may ask of the torch backend: fallbacks, copies, and that parameters be looked at again."""

from __future__ import annotations

from collections import Counter

import torch

from luminal.stats import TOTALS, note_copy
from luminal.torch.extern import FALLBACKS


def fallbacks() -> Counter[str]:
    """How often each ATen op was compiled as a call of torch, by name, since the process began or `reset_fallbacks`."""
    return Counter(FALLBACKS)


def reset_fallbacks() -> None:
    FALLBACKS.clear()


def count_copy(tensor: torch.Tensor) -> None:
    note_copy(tensor.numel() * tensor.element_size())


def copied_bytes() -> int:
    """Bytes that the call path has copied between a user's tensors and row-major ones, or into updated inputs."""
    return TOTALS.copied_bytes
