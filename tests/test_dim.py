"""Symbolic dims: the canonical form agrees with evaluation, bounds are sound, text parses back."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dim import (
    Dim,
    Symbol,
    as_dim,
    collect_symbols,
    dim,
    dim_max,
    dim_min,
    divide_exact,
    ir_text,
    known_equal,
    known_less,
    known_less_equal,
    known_unequal,
    parse_dim,
    product,
)
from luminal.errors import DimRangeError, UnsetDimError

S, B, H, N = dim("s", 1, 4096), dim("b"), dim("h", 2, 9), dim("n", -5, 5)
SYMBOLS = {d.symbol.name: d.symbol for d in (S, B, H, N) if d.symbol is not None}
RANGES = {"s": (1, 40), "b": (0, 30), "h": (2, 9), "n": (-5, 5)}

Tree = Any
OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (lambda a, b: a // b, lambda a, b: a // b),
    "%": (lambda a, b: a % b, lambda a, b: a % b),
    "min": (dim_min, min),
    "max": (dim_max, max),
}
LEAVES = st.one_of(st.sampled_from(["s", "b", "h", "n"]), st.integers(-6, 12))
TREES = st.recursive(LEAVES, lambda t: st.tuples(st.sampled_from(sorted(OPERATORS)), t, t), max_leaves=9)
VALUES = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in RANGES.items()})


def build(tree: Tree) -> Dim:
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]][0](build(tree[1]), build(tree[2]))
    return as_dim(tree) if isinstance(tree, int) else {"s": S, "b": B, "h": H, "n": N}[tree]


def plain(tree: Tree, values: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]][1](plain(tree[1], values), plain(tree[2], values))
    return tree if isinstance(tree, int) else values[tree]


def attempt(function: Callable[[], Any]) -> Any:
    """The result, or None where a divisor is zero."""
    try:
        return function()
    except (ZeroDivisionError, DimRangeError):
        return None


@settings(max_examples=600, deadline=None)
@given(TREES, VALUES)
def test_canonical_form_agrees_with_evaluation(tree: Tree, values: dict[str, int]) -> None:
    expected = attempt(lambda: plain(tree, values))
    found = attempt(lambda: build(tree))
    if found is None:  # a divisor that is the constant zero
        assert expected is None
        return
    if expected is None:  # the canonical form may have a value where the original divides by zero
        return
    assert found.evaluate(values) == expected
    low, high = found.bounds()
    assert low is None or low <= expected
    assert high is None or expected <= high
    assert all(symbol in SYMBOLS.values() for symbol in found.symbols())


@settings(max_examples=400, deadline=None)
@given(TREES)
def test_text_parses_back(tree: Tree) -> None:
    found = attempt(lambda: build(tree))
    if found is None:
        return
    for text in (str(found), ir_text(found)):
        again = parse_dim(text, SYMBOLS)
        assert again == found and hash(again) == hash(found) and str(again) == str(found), text
    assert pickle.loads(pickle.dumps(found)) == found


@settings(max_examples=400, deadline=None)
@given(TREES, TREES, VALUES)
def test_what_is_known_holds(left: Tree, right: Tree, values: dict[str, int]) -> None:
    a, b = attempt(lambda: build(left)), attempt(lambda: build(right))
    x, y = attempt(lambda: plain(left, values)), attempt(lambda: plain(right, values))
    if a is None or b is None or x is None or y is None:
        return
    assert not known_equal(a, b) or x == y
    assert not known_unequal(a, b) or x != y
    assert not known_less(a, b) or x < y
    assert not known_less_equal(a, b) or x <= y
    quotient = divide_exact(a, b)
    assert quotient is None or (quotient * b == a and quotient.evaluate(values) * y == x)
    exact = attempt(lambda: divide_exact(a * b, b))
    assert b == 0 or exact is None or exact * b == a * b


@settings(max_examples=200, deadline=None)
@given(TREES, VALUES)
def test_substitution_agrees_with_evaluation(tree: Tree, values: dict[str, int]) -> None:
    found, expected = attempt(lambda: build(tree)), attempt(lambda: plain(tree, values))
    if found is None or expected is None:
        return
    assert found.substitute(values) == expected
    partial = attempt(lambda: found.substitute({"s": values["s"], "b": H + values["b"] - 2}))
    moved = {**values, "h": 2}
    again = attempt(lambda: plain(tree, moved))
    assert partial is None or again is None or partial.evaluate(moved) == again


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (S + S, "2*s"),
        (3 + 2 * S, "2*s + 3"),
        (S // 2, "s // 2"),
        (B * S % 4, "(b*s) % 4"),
        (dim_min(16, S), "min(s, 16)"),
        (-(-S // 4), "-((-s) // 4)"),
        ((S - 3) // 2 + 1, "(s + 1) // 2 - 1"),
        ((4 * S + 3) // 8, "s // 2"),
        ((4 * S + 3) % 8, "4*(s % 2) + 3"),
        (4 * (S // 4) + S % 4, "s"),
        (S * B // S, "b"),
        (B * S // B, "(b*s) // b"),  # b may be 0
        (S % S, "0"),
        (S // 2 // 3, "s // 6"),
        ((B % 12) % 4, "b % 4"),
        ((B + 4 * S) % 4, "b % 4"),
        (H // 10, "0"),
        (H % 10, "h"),
        (dim_min(S, S + 1), "s"),
        (dim_max(S, 0), "s"),
        (dim_max(B, dim_max(S, B)), "max(b, s)"),
        (S // -3, "(-s) // 3"),
        (S * S - S * S, "0"),
        (2 * (S // 2) * 3, "6*(s // 2)"),
        (5 - S, "-s + 5"),
    ],
)
def test_rules(found: Dim, text: str) -> None:
    assert str(found) == text


def test_bounds_and_proofs() -> None:
    assert (2 * S + 3).bounds() == (5, 8195)
    assert (B + 1).bounds() == (1, None)
    assert (S - S // 2).bounds() == (1, 2048)
    assert known_less_equal(S, B * S + S)
    assert known_less_equal(S // 2, S) and not known_less(S // 2, B)
    assert known_less_equal(S - (S % 4), S)
    assert known_less(dim_min(S, B) - 1, S)
    assert known_unequal(2 * S, 3) and known_unequal(S, 0)
    assert not known_unequal(B, S) and not known_equal(B, S)


def test_constants_behave_as_ints() -> None:
    assert as_dim(3) == 3 and hash(as_dim(3)) == hash(3) and as_dim(3) in {3: "x"}
    assert (S - S + 7).constant == 7 and S.constant is None
    assert list(range(as_dim(2))) == [0, 1]
    assert product([]) == 1 and product([S, 2, B]) == 2 * S * B
    assert bool(S) and not as_dim(0)


def test_divide_exact() -> None:
    assert divide_exact(S * S - 1, S - 1) == S + 1
    assert divide_exact(4 * S * B, 2 * B) == 2 * S
    assert divide_exact(S + 1, 2) is None and divide_exact(S, B) is None and divide_exact(S, 0) is None
    assert divide_exact(0, B) == 0


def test_errors() -> None:
    with pytest.raises(UnsetDimError, match="dim b is not set; set are: s"):
        (S + B).evaluate({"s": 1})
    with pytest.raises(DimRangeError, match="dim s in 1 to 4096 was given 0"):
        S.evaluate({"s": 0})
    with pytest.raises(DimRangeError, match="was given 5000"):
        (2 * S).substitute({"s": 5000})
    with pytest.raises(DimRangeError, match="divides by zero"):
        (S // B).evaluate({"s": 1, "b": 0})
    with pytest.raises(DimRangeError, match="divided by zero"):
        S // 0
    with pytest.raises(DimRangeError, match="two ranges"):
        S + dim("s")
    with pytest.raises(DimRangeError, match="two ranges"):
        collect_symbols([S, dim("s", 2)])
    with pytest.raises(DimRangeError, match="no name for a dim"):
        dim("f32")
    with pytest.raises(DimRangeError, match="no name for a dim"):
        dim("s t")
    with pytest.raises(DimRangeError, match="empty"):
        dim("s", 3, 2)
    with pytest.raises(UnsetDimError, match="needed here"):
        range(S)  # type: ignore[call-overload]
    with pytest.raises(DimRangeError, match="whether dim b is zero"):
        bool(B)
    with pytest.raises(UnsetDimError, match="q is not declared"):
        parse_dim("q + 1", SYMBOLS)
    for text in ("s +", "s ** 2", "f(s)", "1.5", "s < 2", "True"):
        with pytest.raises(DimRangeError, match="no dim expression"):
            parse_dim(text, SYMBOLS)
    with pytest.raises(DimRangeError, match="no dims"):
        dim_min()


def test_symbols_of_one_name_and_other_range_differ() -> None:
    assert Symbol("s", 0, 3) != Symbol("s", 0, 4) and dim("s", 0, 3) != dim("s", 0, 4)
    assert dim("s", 1, 4096) == S and (dim("s", 1, 4096) + 1).terms == (S + 1).terms


def test_hashes_are_the_same_in_every_process() -> None:
    code = (
        "from luminal.dim import dim, dim_min; s, b = dim('s', 1), dim('b');"
        "print([hash(d) for d in (s, s*b + 2, dim_min(b, s // 3), s % 5)], sorted(map(str, {s, b, s * b, s // 2})))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_buckets_are_kept_in_order() -> None:
    (symbol,) = dim("s", 1, 8192, buckets=[(2, 64), 1]).symbols()
    assert symbol.buckets == ((1, 1), (2, 64))
    assert symbol.declaration() == "s in 1 to 8192 buckets [1, 2 to 64]"
    (unbounded,) = dim("s", buckets=[(65, None), 0]).symbols()
    assert unbounded.declaration() == "s in 0 to inf buckets [0, 65 to inf]"


def test_dims_with_and_without_buckets_differ() -> None:
    with pytest.raises(DimRangeError, match=r"s in 0 to 9, and s in 0 to 9 buckets \[1\]"):
        dim("s", 0, 9) + dim("s", 0, 9, buckets=[1])
    value = 2 * dim("s", 0, 9, buckets=[1]) + 1
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    ("bucket", "message"),
    [
        ([(1, 4), (4, 8)], r"buckets of dim s overlap at 4: \[1 to 4, 4 to 8\]"),
        ([3, 3], "overlap at 3"),
        ([(2, None), 3], "bucket 2 to inf of dim s in 1 to 16 is empty or leaves the dim's range"),
        ([0], "bucket 0 to 0 of dim s in 1 to 16 is empty or leaves"),
        ([(8, 17)], "bucket 8 to 17"),
        ([(8, 7)], "bucket 8 to 7"),
        ([(1, 2, 3)], r"a bucket of dim s is \(1, 2, 3\), expected a size or a pair \(first, last\)"),
        (["1"], "a bucket of dim s is '1'"),
        ([True], "a bucket of dim s is True"),
        ([(1, 2.5)], r"a bucket of dim s is \(1, 2.5\)"),
    ],
)
def test_wrong_buckets(bucket: Any, message: str) -> None:
    with pytest.raises(DimRangeError, match=message):
        dim("s", 1, 16, buckets=bucket)
