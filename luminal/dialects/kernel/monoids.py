"""The closed table of monoids: the identity of each for a dtype."""

from __future__ import annotations

from luminal.dtype import DType, to_bits

POSITION_IDENTITY = 2**63 - 1


def identity_bits(monoid: str, dtype: DType, operand: int = 0) -> int:
    """Bits of the value that changes nothing when combined.

    `operand` 1 is the position carried by argmax and argmin: it loses every tie.  max and min of no elements are
    -inf and inf, or the limits of a type that has no infinities.
    """
    if operand == 1:
        return POSITION_IDENTITY
    match monoid:
        case "sum":
            return to_bits(0, dtype)
        case "prod":
            return to_bits(1, dtype)
        case "max" | "argmax":
            return to_bits(float("-inf"), dtype) if dtype.has_infinity else to_bits(dtype.lowest, dtype)
        case "min" | "argmin":
            return to_bits(float("inf"), dtype) if dtype.has_infinity else to_bits(dtype.highest, dtype)
        case _:
            raise ValueError(f"no monoid {monoid!r}")
