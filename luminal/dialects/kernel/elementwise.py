"""Elementwise primitives on NumPy arrays by name and variant: the primitive interpreter's meaning, for terms and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.primitive.interpreter import EVALUATE
from luminal.dialects.primitive.ops import OPS, PrimitiveOp
from luminal.dialects.table_op import ValueAttr
from luminal.dialects.tensor_type import tensor_type
from luminal.dtype import DType

# The attribute of each primitive that a term calls its variant.
VARIANT = {
    "log2": "base", "exp2": "base", "sin": "phase", "recip": "rounding", "mod": "sign", "bits": "kind",
    "less_than": "predicate", "cast": "rounding",
}  # fmt: skip


@lru_cache(maxsize=None)
def _operation(op: str, variant: str | None, dtype: DType) -> PrimitiveOp:
    properties = {VARIANT[op]: ValueAttr(variant)} if op in VARIANT else {}
    return OPS[op].create(result_types=[tensor_type((), dtype)], properties=properties)


def evaluate_elementwise(
    op: str, variant: str | None, operands: Sequence[NDArray[Any]], dtype: DType
) -> NDArray[Any]:
    """The value of one elementwise primitive with result `dtype`; operands have one shape."""
    with np.errstate(all="ignore"):
        result = EVALUATE[f"primitive.{op}"](_operation(op, variant, dtype), list(operands), {})
    return np.asarray(result)
