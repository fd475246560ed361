"""The kernel dialect: both of its forms."""

from __future__ import annotations

from xdsl.ir import Dialect

from luminal.dialects.kernel.placed import PLACED_ATTRIBUTES, PLACED_OPERATIONS
from luminal.dialects.kernel.region_ops import REGION_ATTRIBUTES, REGION_OPERATIONS

KERNEL = Dialect("kernel", [*PLACED_OPERATIONS, *REGION_OPERATIONS], [*PLACED_ATTRIBUTES, *REGION_ATTRIBUTES])
