"""Which integers a value can be, as far as the operations that make it say: of terms, and of values of placed kernels.

A range is the least and the greatest value.  What nothing is said of has the range of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import ApplyOp, ConstantOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.terms import Term
from luminal.dtype import DType, from_bits

Range = tuple[int, int]


def _masked(a: Range, b: Range) -> Range | None:
    """A bit is set where it is in both, so that no sign is left where one of them has none."""
    highs = [high for low, high in (a, b) if low >= 0]
    return (0, min(highs)) if highs else None


def _united(a: Range, b: Range) -> Range | None:
    is_positive = a[0] >= 0 and b[0] >= 0
    return (0, (1 << max(a[1], b[1]).bit_length()) - 1) if is_positive else None


def _shifted_down(a: Range, b: Range) -> Range | None:
    """By an amount that may be too large, which leaves nothing."""
    if a[0] < 0:
        return None
    return 0 if b[0] != b[1] or b[0] < 0 else a[0] >> b[0], a[1] >> max(b[0], 0)


def _shifted_up(a: Range, b: Range) -> Range | None:
    return (a[0] << b[0], a[1] << b[0]) if b[0] == b[1] and 0 <= b[0] < 64 else None


def _products(a: Range, b: Range) -> Range:
    corners = [x * y for x, y in product(a, b)]
    return min(corners), max(corners)


_Rule = Callable[[Range, Range], Range | None]
BINARY: Mapping[tuple[str, str | None], _Rule] = {
    ("add", None): lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ("mul", None): _products,
    ("max", None): lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    ("min", None): lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ("bits", "and"): _masked,
    ("bits", "or"): _united,
    ("bits", "shr"): _shifted_down,
    ("bits", "shl"): _shifted_up,
}
"""What an operation makes of two ranges, before the dtype's width is asked for; None where that is not known."""


def range_of_dtype(dtype: DType) -> Range:
    """All integers that a dtype holds."""
    return (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    )


def range_of_result(op: str, variant: str | None, dtype: DType, operands: Sequence[Range | None]) -> Range:
    """That of an elementwise operation in an integer dtype, of those of its operands, which are None for floats; what
    may wrap can be anything."""
    whole = range_of_dtype(dtype)
    known = [each for each in operands if each is not None]
    found = None
    if len(known) == len(operands):
        rule = BINARY.get((op, variant))
        if op == "cast" and variant == "none":
            found = known[0]
        elif rule is not None:
            found = rule(known[0], known[1])
    return whole if found is None or found[0] < whole[0] or found[1] > whole[1] else found


def range_of_term(term: Term, known: dict[Term, Range | None] | None = None) -> Range | None:
    """That of a term; None where it is no integer.  `known`: those that have been asked for."""
    known = {} if known is None else known
    if term not in known:
        known[term] = _of_term(term, known) if term.dtype.is_integer else None
    return known[term]


def _of_term(term: Term, known: dict[Term, Range | None]) -> Range:
    if term.op == "constant":
        return _constant(cast(int, term.attribute), term.dtype)
    variant = term.attribute if isinstance(term.attribute, str) else None
    operands = [range_of_term(each, known) for each in term.operands]
    return range_of_result(term.op, variant, term.dtype, operands)


def range_of_value(value: SSAValue, known: dict[SSAValue, Range | None] | None = None) -> Range | None:
    """That of a value of a placed kernel; None where it is no integer.  `known`: those that have been asked for."""
    known = {} if known is None else known
    if value not in known:
        dtype = tile_of(value).dtype
        known[value] = _of_value(value, dtype, known) if dtype.is_integer else None
    return known[value]


def _of_value(value: SSAValue, dtype: DType, known: dict[SSAValue, Range | None]) -> Range:
    owner = value.owner
    if isinstance(owner, ConstantOp):
        return _constant(owner.bits.data, dtype)
    if not isinstance(owner, ApplyOp):
        return range_of_dtype(dtype)
    variant = None if owner.variant is None else owner.variant.data
    operands = [range_of_value(each, known) for each in owner.inputs]
    return range_of_result(owner.op.data, variant, dtype, operands)


def _constant(bits: int, dtype: DType) -> Range:
    value = int(from_bits(bits, dtype))
    return value, value


def largest_product(a: Range | None, b: Range | None) -> int | None:
    """The greatest magnitude of a product; None where a factor is no integer."""
    return None if a is None or b is None else max(map(abs, _products(a, b)))
