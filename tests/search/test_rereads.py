"""Passes over a row that does not fit the cache are counted; those over one that does cost no memory."""

from __future__ import annotations

import pytest

from luminal.dialects.kernel.terms import Region, Term
from luminal.search.forms import folding
from luminal.search.rereads import bytes_read_again
from luminal.search.shapes import Shapes
from tests.kernel.regions import Builder, Size

ROWS, LENGTH = 3, 1000
ROW_BYTES = 4 * LENGTH


def softmax(b: Builder, x: Term) -> Term:
    p = b.apply("exp2", b.minus(x, b.total(x, "j", monoid="max")), variant="e")
    return b.apply("recip", p, b.total(p, "j"), variant="none")


def logarithm(b: Builder, x: Term) -> Term:
    largest = b.total(x, "j", monoid="max")
    p = b.apply("exp2", b.minus(x, largest), variant="e")
    return b.apply("add", b.apply("log2", b.total(p, "j"), variant="e"), largest)


def squares(b: Builder, x: Term) -> Term:
    return b.total(b.apply("mul", x, x), "j")


def both(b: Builder, x: Term) -> Term:
    """Two reductions of one pass."""
    return b.apply("add", b.total(x, "j"), b.total(x, "j", monoid="max"))


def region_of(value: Term, b: Builder) -> Region:
    strides: dict[str, Size] = {"i": LENGTH, "j": 1} if "j" in value.free else {"i": 1}
    return b.region({"i": ROWS, "j": LENGTH}, [ROWS * LENGTH], [(value, strides)])


SPELLINGS = {softmax: 2, logarithm: 1, squares: 0, both: 0}


@pytest.mark.parametrize("spell", SPELLINGS)
def test_each_pass_after_the_first_reads_again(spell) -> None:  # pyright: ignore
    b = Builder()
    region = region_of(spell(b, b.read(0, {"i": LENGTH, "j": 1})), b)
    shapes = Shapes(region, {})
    assert bytes_read_again(shapes, ROW_BYTES - 1) == SPELLINGS[spell] * ROWS * ROW_BYTES
    assert bytes_read_again(shapes, ROW_BYTES) == 0


def test_a_fold_reads_once_what_its_region_reads_twice() -> None:
    b = Builder()
    region = region_of(logarithm(b, b.read(0, {"i": LENGTH, "j": 1})), b)
    loops = [form for form in folding(region, frozenset({"distribute"})) if "parts" not in form.name]
    assert loops
    for form in loops:
        assert bytes_read_again(Shapes(form.region, {}), 100) == 0
