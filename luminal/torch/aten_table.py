"""All lowerings: importing this module fills the table."""

from __future__ import annotations

from typing import Any

from luminal.torch import (
    aten_index,
    aten_matmul,
    aten_pointwise,
    aten_pool,
    aten_reduce,
    aten_upsample,
    aten_view,
)
from luminal.torch.lowering import LOWERINGS
from luminal.torch.mutation import FUNCTIONS

UNCHANGING = ("view_as_real", "view_as_complex", "clone", "alias")
ATTENTION = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention")
COMPLEX: dict[str, Any] = {f"{name}.default": lambda low, x: x for name in UNCHANGING} | {
    f"{name}.default": LOWERINGS[name] for name in ATTENTION
}
"""The ops that are lowered on complex numbers, which pass through a graph as pairs: those that change nothing.  And
attention as CUDA has it, whose state of the random generator is unsigned: nobody reads it."""
MODULES = (aten_index, aten_matmul, aten_pointwise, aten_pool, aten_reduce, aten_upsample, aten_view)

__all__ = ["COMPLEX", "FUNCTIONS", "LOWERINGS", "MODULES"]
