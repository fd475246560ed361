"""What the factors of a sum of products are conversions of: matrix units multiply the narrowest numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import ApplyOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dtype import DType, bf16, f8e4m3fn, f8e5m2, f16

EIGHTS = (f8e4m3fn, f8e5m2)
LEAST_EIGHTS = 32
"""The least extent of what is summed, where numbers of 8 bits are multiplied."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Two factors as they are multiplied: values, each of which is converted to `dtype` first where it has another."""

    left: SSAValue
    right: SSAValue
    dtype: DType


def narrowest(left: SSAValue, right: SSAValue, summed: int, eights: Collection[str]) -> Factors:
    """The factors, or what both are exact conversions of: of one dtype of 8 bits where the target multiplies it
    (`eights`) and enough is summed, else of 16 where that holds both."""
    chains = [_chain(left), _chain(right)]
    allowed = [dtype for dtype in EIGHTS if dtype.name in eights and summed >= LEAST_EIGHTS]
    for dtype in (*allowed, bf16, f16):
        if all(dtype in chain for chain in chains):
            return Factors(chains[0][dtype], chains[1][dtype], dtype)
    ends = [min(chain, key=lambda dtype: dtype.bits) for chain in chains]
    wides = {dtype for dtype in ends if dtype.bits == 16}
    if any(dtype.bits > 16 for dtype in ends) or len(wides) > 1:
        return Factors(left, right, tile_of(left).dtype)
    return Factors(chains[0][ends[0]], chains[1][ends[1]], wides.pop() if wides else bf16)


def _chain(value: SSAValue) -> dict[DType, SSAValue]:
    """A value and what it is an exact conversion of, by dtype."""
    found = {tile_of(value).dtype: value}
    while isinstance(value.owner, ApplyOp) and value.owner.op.data == "cast":
        owner = value.owner
        value = owner.inputs[0]
        dtype = tile_of(value).dtype
        variant = owner.variant.data if owner.variant is not None else "none"
        if variant not in ("none", "soft") or not dtype.is_float or dtype.bits >= owner.tile.dtype.bits:
            break
        found[dtype] = value
    return found
