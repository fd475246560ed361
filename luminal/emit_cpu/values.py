"""Values of LLVM IR as text: types and what is said of them, and constants."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class Value(NamedTuple):
    """An SSA value, parameter or constant: its LLVM type and its text as an operand."""

    type: str
    text: str


Operand = Value | int | float


@cache
def lanes_of(type_: str) -> int:
    """Number of lanes of a vector type; 0 for a scalar."""
    return int(type_[1:].split()[0]) if type_.startswith("<") else 0


@cache
def element_of(type_: str) -> str:
    """`<8 x float>` -> `float`; a scalar is its own element."""
    return type_[1:-1].split(" x ")[1] if type_.startswith("<") else type_


def vector_of(element: str, lanes: int) -> str:
    """`float`, 8 -> `<8 x float>`; 0 lanes is the scalar."""
    return f"<{lanes} x {element}>" if lanes else element


def with_element(type_: str, element: str) -> str:
    """The type of as many lanes with another element."""
    return vector_of(element, lanes_of(type_))


def bits_of(type_: str) -> int:
    """Bits of one element."""
    element = element_of(type_)
    return FLOAT_BITS[element] if element in FLOAT_BITS else 64 if element == "ptr" else int(element[1:])


def is_float(type_: str) -> bool:
    return element_of(type_) in FLOAT_BITS


def suffix_of(type_: str) -> str:
    """The mangling of an overloaded intrinsic: `<8 x float>` -> `v8f32`."""
    element, lanes = element_of(type_), lanes_of(type_)
    return (f"v{lanes}" if lanes else "") + SUFFIXES.get(element, element)


def constant_bits(type_: str, bits: int) -> Value:
    """A constant from its bit pattern, the same in every lane; exact for NaN payloads and -0.0."""
    element = element_of(type_)
    if element == "float":
        # LLVM spells an f32 as the f64 of the same value; a NaN payload is moved, not converted.
        sign, exponent, fraction = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
        if exponent == 0xFF:
            wide = sign << 63 | 0x7FF << 52 | fraction << 29
        else:
            wide = struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", bits))[0]))[0]
        text = f"0x{wide:016X}"
    elif element in FLOAT_BITS:
        text = {"double": "0x{:016X}", "half": "0xH{:04X}", "bfloat": "0xR{:04X}"}[element].format(bits)
    elif element == "i1":
        text = "true" if bits & 1 else "false"
    else:
        width = bits_of(element)
        bits &= (1 << width) - 1
        text = str(bits - (1 << width) if bits >> (width - 1) else bits)
    return Value(type_, f"splat ({element} {text})" if lanes_of(type_) else text)


def constant(type_: str, value: float) -> Value:
    """A constant of a Python number: f32 and f64 round to nearest, integers wrap (narrower floats: by
    bits)."""
    element = element_of(type_)
    if element == "double":
        return constant_bits(type_, struct.unpack("<Q", struct.pack("<d", value))[0])
    if element == "float":
        return constant_bits(type_, struct.unpack("<I", struct.pack("<f", value))[0])
    assert isinstance(value, int), f"{element} constant from {value!r}"
    return constant_bits(type_, value)


def lane_constants(element: str, values: Sequence[float]) -> Value:
    """A vector constant of one number a lane."""
    items = ", ".join(f"{element} {constant(element, value).text}" for value in values)
    return Value(vector_of(element, len(values)), f"<{items}>")


def poison(type_: str) -> Value:
    return Value(type_, "poison")


def zero(type_: str) -> Value:
    return Value(type_, "zeroinitializer")
