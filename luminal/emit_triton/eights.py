"""Floats of 8 bits and less where a target has them not: their patterns, held as u8, and how these are read."""

from __future__ import annotations

from collections.abc import Collection

from luminal.dtype import DType, f4e2m1, f8e4m3fn, f8e5m2, u8

# bits of the fraction, bias, the sign's bit, the first magnitude that is a NaN, the largest one, what a NaN becomes
LAYOUTS: dict[DType, tuple[int, int, int, int, int, int]] = {
    f8e4m3fn: (3, 7, 0x80, 0x7F, 0x7E, 0x7F),
    f8e5m2: (2, 15, 0x80, 0x100, 0x7C, 0x7E),  # f16 has its NaNs
    f4e2m1: (1, 1, 0x08, 0x100, 0x07, 0x08),
}


def held_as(dtype: DType, native: Collection[str]) -> DType:
    """The dtype in which a kernel holds numbers of another: u8 for short floats that are not `native`."""
    return u8 if dtype in LAYOUTS and dtype.name not in native else dtype


def decoding(dtype: DType) -> list[str]:
    """The arguments of `_decoded` behind the pattern."""
    return [str(number) for number in LAYOUTS[dtype][:4]]


def encoding(dtype: DType) -> list[str]:
    """The arguments of `_encoded` behind the number."""
    fraction, bias, sign, _, most, last = LAYOUTS[dtype]
    return [str(number) for number in (fraction, bias, sign, most, last)]
