"""Elementwise primitives on NumPy arrays by name and variant, for terms and tiles.

The primitive interpreter's meaning is used, not written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
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


@cache
def _operation(op: str, variant: str | None, dtype: DType) -> PrimitiveOp:
    properties = {VARIANT[op]: ValueAttr(variant)} if op in VARIANT else {}
    return OPS[op].create(result_types=[tensor_type((), dtype)], properties=properties)


def evaluate_elementwise(
    op: str, variant: str | None, operands: Sequence[NDArray[Any]], dtype: DType
) -> NDArray[Any]:
    """The value of one elementwise primitive with result `dtype`; operands have one shape.

    Terms and tiles are evaluated at positions that no result takes too, and a check of its own has looked at the
    divisors: an integer divided by zero is 0 with the remainder it had, as in generated code.
    """
    if op in ("recip", "mod") and not dtype.is_float:
        return _divide(op, variant, operands, dtype)
    return _evaluate(op, variant, operands, dtype)


def _evaluate(op: str, variant: str | None, operands: Sequence[NDArray[Any]], dtype: DType) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        result = EVALUATE[f"primitive.{op}"](_operation(op, variant, dtype), list(operands), {})
    return np.asarray(result)


def _divide(op: str, variant: str | None, operands: Sequence[NDArray[Any]], dtype: DType) -> NDArray[Any]:
    x, y = operands
    zero = y == 0
    found = _evaluate(op, variant, [x, np.where(zero, y.dtype.type(1), y)], dtype)
    return np.where(zero, found.dtype.type(0) if op == "recip" else x, found)
