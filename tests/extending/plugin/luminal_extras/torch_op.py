"""An operator of torch with the meaning of `wave.hann_frames`, and its lowering, so that models can call it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from luminal.torch.aten_table import FUNCTIONS
from luminal.torch.lowering import Lowering, Value


@torch.library.custom_op("wave::hann_frames", mutates_args=())
def hann_frames(x: Tensor, size: int, step: int) -> Tensor:
    """What runs without Luminal."""
    window = torch.hann_window(size, periodic=True, dtype=torch.float64).to(x.dtype)
    return x.unfold(-1, size, step) * window


@hann_frames.register_fake
def _(x: Tensor, size: int, step: int) -> Tensor:
    return x.unfold(-1, size, step).contiguous()


def lower(low: Lowering, x: Value, size: int, step: int) -> Any:
    """One hlo-level operation, which brings its decomposition along."""
    return low.b.emit("wave.hann_frames", x, size=size, step=step)


FUNCTIONS[torch.ops.wave.hann_frames.default] = lower
