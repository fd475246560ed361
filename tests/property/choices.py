"""Sizes and numbers that random programs take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from luminal.dim import Dim
from tests.property.maker import Maker, Value
from tests.property.program import Size

Proposal = Callable[[Maker], object]
FLOAT_NUMBERS = (0.5, -1.5, 2.0, 0.25, 3.0, -1.0, 0.0, -0.0, 1.0)
ODD_NUMBERS = (0.1, math.inf, -math.inf, math.nan, 1e-40, 1e30, 1e-8)
WHOLE_NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7)
EXPONENTS = (2, 3, 0.5, -0.5, -1, -2, 1, 0, 2.5, -1.5, 4, 0.25)
SHAPE_SIZES = (
    "0", "1", "1", "2", "2", "3", "3", "4", "4", "5", "6", "7", "8", "8", "12", "16", "17", "24", "33", "40", "64",
    "130",
)  # fmt: skip


def size(value: Dim | int) -> Size:
    return Size(str(value))


def sizes(shape: Sequence[Dim | int]) -> tuple[Size, ...]:
    return tuple(size(one) for one in shape)


def number_for(m: Maker, value: Value) -> bool | int | float:
    if value.is_float:
        odd = m.kind in ("float", "torch") and m.chose(0.15)
        return m.chance.choice(ODD_NUMBERS if odd else FLOAT_NUMBERS)
    if value.dtype == "bool_":
        return m.chose(0.5)
    return m.chance.choice(WHOLE_NUMBERS)


def positive(value: Dim) -> bool:
    return (value.bounds()[0] or 0) >= 1
