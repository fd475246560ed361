"""Sizes in Triton's text: dims as expressions over the kernel's symbols, in 32 bits where that is enough."""

from __future__ import annotations

from luminal.dim import Call, Dim, Symbol
from luminal.dim.core import from_terms
from luminal.emit_triton.text import atom, call

LARGEST = 2**31 - 1
FLOORED = {"//": "_floor_divide", "%": "_floor_modulo"}


def fits_32(dim: Dim) -> bool:
    """Whether every value of a dim is proven to be an i32."""
    low, high = dim.bounds()
    return low is not None and high is not None and low >= -LARGEST and high <= LARGEST


def size_text(dim: Dim, helpers: set[str]) -> str:
    """A dim as an expression, an i32 or, where its values may not fit, an i64; `helpers` collects what it calls."""
    if dim.constant is not None:
        return str(dim.constant)
    wide = not fits_32(dim)
    text = ""
    for monomial, coefficient in dim.terms:
        factors = [_atom_text(part, helpers) for part in monomial]
        if wide and all(fits_32(atom_dim(part)) for part in monomial) and factors:
            factors[0] = call("tl.cast", factors[0], "tl.int64")
        if abs(coefficient) != 1 or not monomial:
            factors.append(str(abs(coefficient)))
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        text += sign + " * ".join(map(atom, factors))
    return text


def atom_dim(part: Symbol | Call) -> Dim:
    """The dim that is one atom."""
    return from_terms({(part,): 1})


def _atom_text(part: Symbol | Call, helpers: set[str]) -> str:
    if isinstance(part, Symbol):
        return part.name
    values = [size_text(argument, helpers) for argument in part.arguments]
    if part.kind in ("min", "max"):
        total = values[0]
        for value in values[1:]:
            total = call("tl.minimum" if part.kind == "min" else "tl.maximum", total, value)
        return total
    low, divisor = (argument.bounds()[0] for argument in part.arguments)
    if low is not None and low >= 0 and divisor is not None and divisor > 0:
        return f"({atom(values[0])} {part.kind} {atom(values[1])})"
    helpers.add(FLOORED[part.kind])
    return call(FLOORED[part.kind], *values)
