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

COMPLEX: dict[str, Any] = {
    name: lambda low, x: x
    for name in ("view_as_real.default", "view_as_complex.default", "clone.default", "alias.default")
}
"""The ops that are lowered on complex numbers, which pass through a graph as pairs: those that change nothing."""
MODULES = (aten_index, aten_matmul, aten_pointwise, aten_pool, aten_reduce, aten_upsample, aten_view)

__all__ = ["COMPLEX", "FUNCTIONS", "LOWERINGS", "MODULES"]
