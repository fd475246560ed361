"""Ranges of integers: what operations say of a value, and what they leave open."""

from __future__ import annotations

import itertools

import pytest

from luminal.dialects.kernel.placed import ContractOp
from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.dialects.kernel.ranges import (
    BINARY,
    Range,
    largest_product,
    range_of_dtype,
    range_of_result,
    range_of_term,
    range_of_value,
)
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Term, TermTable
from luminal.dtype import DType, f32, i8, i16, i32, u8
from luminal.passes.place import place
from tests.kernel.products import fields, product


def byte(table: TermTable, dtype: DType = u8) -> Term:
    return table.read(0, Affine.of({"i": 1}), dtype)


@pytest.mark.parametrize(
    ("variant", "constant", "expected"),
    [
        ("and", 15, (0, 15)),
        ("shr", 6, (0, 3)),
        ("shr", 200, (0, 0)),
        ("or", 1, (0, 255)),
        ("shl", 1, (0, 255)),
    ],
)
def test_of_bits(variant: str, constant: int, expected: tuple[int, int]) -> None:
    table = TermTable()
    term = table.apply("bits", (byte(table), table.constant(constant, u8)), variant, u8)
    assert range_of_term(term) == expected


def test_of_fields_put_together_and_made_wider() -> None:
    """Four bits, and two above them: at most 63, which a wider integer leaves, and a sign takes no part of."""
    table = TermTable()
    low, high = (table.apply("bits", (byte(table), table.constant(mask, u8)), "and", u8) for mask in (15, 3))
    above = table.apply("bits", (high, table.constant(4, u8)), "shl", u8)
    both = table.apply("bits", (low, above), "or", u8)
    assert range_of_term(both) == (0, 63)
    wide = table.apply("cast", (both,), "none", i16)
    assert range_of_term(table.apply("add", (wide, table.constant(-32 & 0xFFFF, i16)), None, i16)) == (
        -32,
        31,
    )


def test_what_may_wrap_can_be_anything() -> None:
    table = TermTable()
    signed = table.apply("cast", (byte(table),), "none", i8)
    assert range_of_term(signed) == (-128, 127)
    doubled = table.apply("mul", (byte(table), table.constant(2, u8)), None, u8)
    assert range_of_term(doubled) == (0, 255)
    masked = table.apply("bits", (byte(table, i8), byte(table, i8)), "and", i8)
    assert range_of_term(masked) == (-128, 127)


def test_floats_have_none_and_what_is_cast_from_them_has_the_dtypes() -> None:
    table = TermTable()
    assert range_of_term(byte(table, f32)) is None
    assert range_of_term(table.apply("cast", (byte(table, f32),), "none", i8)) == (-128, 127)
    assert largest_product(None, (0, 1)) is None
    assert largest_product((-128, 127), (-128, 15)) == 16384


@pytest.mark.parametrize(("op", "variant"), BINARY, ids=str)
def test_ranges_hold_all_results(op: str, variant: str | None) -> None:
    """Of all numbers in some ranges of four bits' worth, by brute force; shifts by too much leave nothing."""

    def result(x: int, y: int) -> int:
        match variant or op:
            case "add":
                return x + y
            case "mul":
                return x * y
            case "max":
                return max(x, y)
            case "min":
                return min(x, y)
            case "and":
                return x & y
            case "or":
                return x | y
            case "shr":
                return x >> y if 0 <= y < 32 else 0
            case _:
                return (x << y) % 2**32 if 0 <= y < 32 else 0

    some = [(0, 0), (3, 3), (0, 5), (2, 9), (-4, 6), (-7, -2), (40, 41)]
    for a, b in itertools.product(some, some):
        low, high = range_of_result(op, variant, i32, [a, b])
        found = [result(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        whole = range_of_dtype(i32)
        assert all(low <= each <= high for each in found if whole[0] <= each <= whole[1]), (a, b)


def ranges_of_factors(function: FunctionOp) -> set[Range | None]:
    """Those of the one sum of products of integers."""
    (found,) = [op for op in function.walk() if isinstance(op, ContractOp) and op.tile.dtype is i32]
    return {range_of_value(found.left), range_of_value(found.right)}


def test_of_placed_values_as_of_their_terms() -> None:
    region = fields(2, 8, 1, 16)
    function = place(region, parse_schedule("out0: i:* b:* g:* h:* l:* j:8:lane l:4:group"), "kernel")
    assert ranges_of_factors(function) == {(0, 63), (-128, 127)}
    plain = place(
        product(2, 8, 16, (u8, i8), i32), parse_schedule("out0: i:* k:* j:8:lane k:4:group"), "kernel"
    )
    assert ranges_of_factors(plain) == {(0, 255), (-128, 127)}
