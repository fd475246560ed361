"""All lowerings: importing this module fills the table."""

from __future__ import annotations

from luminal.torch import aten_index, aten_matmul, aten_pointwise, aten_pool, aten_reduce, aten_view
from luminal.torch.lowering import LOWERINGS
from luminal.torch.mutation import FUNCTIONS

MODULES = (aten_index, aten_matmul, aten_pointwise, aten_pool, aten_reduce, aten_view)

__all__ = ["FUNCTIONS", "LOWERINGS", "MODULES"]
