"""Regions as mathematics: what people read, and subscripts that are the address again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luminal.dialects.kernel.region_math import region_math
from luminal.dialects.kernel.subscripts import subscripts
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable, predicate
from luminal.dim import as_dim, dim
from luminal.dtype import bool_, f16, f32, i64, to_bits
from tests.kernel import regions

TEXTS = {
    "matmul": (
        regions.matmul(5, 7, 3),
        ["for i < 5, j < 7, k < 3:", "out0[i, j] = max(sum_k arg0[i, k] * arg1[k, j] + arg2[j], 0)"],
    ),
    "softmax": (
        regions.softmax(dim("m"), 8),
        [
            "for i < m, j < 8:",
            "t0[i, j] = exp(arg0[i, j] - max_j arg0[i, j])",
            "out0[i, j] = t0[i, j] / (sum_j t0[i, j])",
        ],
    ),
    "layer norm": (
        regions.layer_norm(4, 8),
        [
            "for i < 4, j < 8:",
            "t0[i, j] = arg0[i, j] - (sum_j arg0[i, j]) * 0.125",
            "out0[i, j] = t0[i, j] * (1 / sqrt((sum_j t0[i, j] * t0[i, j]) * 0.125 + 1e-05)) * arg1[j]",
        ],
    ),
    "two outputs": (
        regions.transposed_sum(3, 4),
        ["for i < 3, j < 4:", "out0[j, i] = arg0[i, j] + arg1[j, i]", "out1[j] = sum_i arg0[i, j]"],
    ),
    "scan": (
        regions.cumulative(3, 4),
        ["for i < 3, j < 4:", "out0[i, j] = (running_sum_j arg0[i, j]) * 2"],
    ),
    "argmax": (regions.argmax(3, 4), ["for i < 3, j < 4:", "out0[i] = argmax_j arg0[i, j]"]),
    "window": (
        regions.convolution(8, 3, 4),
        ["for n < 8, o < 4, r < 3, c < 3:", "out0[n, o] = sum_(c,r) arg0[n + r, c] * arg1[r, c, o]"],
    ),
    "loop": (
        regions.folded(4, 8),
        [
            "for i < 4, j < 8:",
            "for j < 8, carrying c0[i] = -1e+30, c1[i] = 0:",
            "    t0[i, j] = max(c0[i], arg0[i, j])",
            "    next c0[i] = t0[i, j]",
            "    next c1[i] = c1[i] * exp(c0[i] - t0[i, j]) + exp(arg0[i, j] - t0[i, j])",
            "out0[i] = c0[i] + log(c1[i])",
        ],
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_regions_read_as_mathematics(name: str) -> None:
    region, expected = TEXTS[name]
    assert region_math(region).splitlines() == expected


def test_arguments_have_the_names_that_are_given() -> None:
    assert "sum_k x[i, k] * w[k, j]" in region_math(regions.matmul(5, 7, 3), {0: "x", 1: "w"})


class Spelled:
    """One output over i < 4 of a term that a test makes of x[i]."""

    def __init__(self) -> None:
        self.b = regions.Builder()
        self.x = self.b.read(0, {"i": 1})

    def __call__(self, term: Term) -> str:
        region = Region(
            self.b.table,
            {"i": as_dim(4)},
            [Argument(f32, as_dim(4)), Argument(i64, as_dim(4)), Argument(f32, as_dim(40))],
            [Output(term, as_dim(4), Affine.of({"i": 1}), indices=frozenset("i"))],
        )
        return region_math(region).splitlines()[-1].removeprefix("out0[i] = ")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_select_by_its_own_operands_is_a_maximum_or_minimum(swapped: bool) -> None:
    say = Spelled()
    zero = say.b.number(0)
    less = predicate(say.b.table, say.x, zero)
    operands = (less, say.x, zero) if swapped else (less, zero, say.x)
    expected = "min(arg0[i], 0)" if swapped else "max(arg0[i], 0)"
    assert say(say.b.apply("select", *operands)) == expected


def test_other_spellings() -> None:
    say = Spelled()
    apply, number, x, table = say.b.apply, say.b.number, say.x, say.b.table
    other = predicate(table, x, number(2), "eq")
    assert say(apply("select", other, x, number(1))) == "arg0[i] if arg0[i] == 2 else 1"
    assert say(apply("add", x, number(-2.5))) == "arg0[i] - 2.5"
    assert say(apply("mul", apply("add", x, number(1)), x)) == "(arg0[i] + 1) * arg0[i]"
    assert say(apply("recip", number(1), apply("recip", x, x, variant="none"), variant="none")) == (
        "1 / (arg0[i] / arg0[i])"
    )
    assert say(table.apply("cast", (x,), "none", f16)) == "f16(arg0[i])"
    assert say(table.apply("cast", (x,), "floor", f32)) == "floor(arg0[i])"
    assert say(apply("sin", x, variant="cos")) == "cos(arg0[i])"
    both = table.apply("bits", (other, other), "and", bool_)
    assert say(table.apply("cast", (both,), "none", f32)).endswith("t0[i] and t0[i])")
    position = table.read(1, Affine.of({"i": 1}), i64)
    row = table.apply("mul", (position, table.constant(to_bits(10, i64), i64)), None, i64)
    guard = predicate(table, position, table.constant(to_bits(4, i64), i64))
    assert say(table.read(2, Affine.of({"i": 1}), f32, row)) == "arg2[arg1[i], i]"
    assert say(table.read(2, Affine.of({"i": 1}), f32, row, guard)) == (
        "arg2[arg1[i], i] if arg1[i] < 4 else 0"
    )


def test_what_is_long_has_lines_of_its_own() -> None:
    say = Spelled()
    term = say.x
    for number in range(40):
        term = say.b.apply("mul", say.b.apply("add", term, say.b.number(number)), say.b.number(0.5))
    region = say.b.region({"i": 4}, [4], [(term, {"i": 1})])
    lines = region_math(region).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) < 130


# ---- subscripts


def region_of(sizes: dict[str, int]) -> Region:
    return Region(TermTable(), {name: as_dim(size) for name, size in sizes.items()}, [], [])


@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.data())
def test_subscripts_of_a_row_major_tensor_are_its_indices(shape: list[int], data: st.DataObject) -> None:
    sizes = {f"i{axis}": data.draw(st.integers(2, size)) for axis, size in enumerate(shape)}
    starts = [data.draw(st.integers(0, size - sizes[f"i{axis}"])) for axis, size in enumerate(shape)]
    strides, offset, stride = dict[str, int](), 0, 1
    for axis in reversed(range(len(shape))):
        strides[f"i{axis}"] = stride
        offset += starts[axis] * stride
        stride *= shape[axis]
    found = subscripts(region_of(sizes), Affine.of(strides, offset))
    places = dict.fromkeys(sizes, 1)
    values = [eval(text, {}, dict(places)) for text in found.split(", ")]
    assert values == [1 + start for start in starts]


def test_addresses_that_are_no_subscripts_stay_addresses() -> None:
    region = region_of({"i": 5, "j": 5})
    assert subscripts(region, Affine.of({"i": 3, "j": 2})) == "3*i + 2*j"
    assert subscripts(region, Affine.of({"i": 5, "j": 1}), ("t0", 7)) == "5*i + j + 7*(t0)"


def test_places_before_the_first_and_steps() -> None:
    region = region_of({"i": 5, "j": 5})
    assert subscripts(region, Affine.of({"i": 5, "j": 1}, -1)) == "i, j - 1"
    assert subscripts(region, Affine.of({"i": 10, "j": 5}, -5)) == "10*i + 5*j - 5"
    assert subscripts(region, Affine.of({"i": 2, "j": 1}, -1)) == "j + 2*i - 1"
    assert subscripts(region, Affine.of({"i": 20, "j": 4})) == "i, j, 0"


def test_split_indices_are_one_subscript() -> None:
    region = region_of({"o": 4, "p": 64, "j": 256, "d": 8})
    region.parents = {"o": ("j", 64), "p": ("j", 1)}
    assert subscripts(region, Affine.of({"o": 512, "p": 8, "d": 1})) == "64*o + p, d"
