"""Products of three matrices: which two are multiplied first.

Integers wrap, so any order gives the same.  Floats do not: with B = C = 1e30 and A = 1e-30, (A B) C is finite and
A (B C) is not; with an infinity in A the two differ even where nothing overflows.  So the operands must be bounded by
what is known when the graph is compiled, and small enough that neither order comes near the type's limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.dtype import bf16, f32, f64, i32
from luminal.passes.hlo_graph import VIEWS
from luminal.search.hlo_rules.rule import Example, Guard, HloRule, Site, View, made_by, tensor_of
from luminal.search.hlo_rules.sketch import Sketch

BOUNDED = frozenset({"hlo.softmax", "hlo.sigmoid", "hlo.tanh", "hlo.sin", "hlo.cos"})
"""Operations whose results lie between -1 and 1, or are NaN."""
LIMIT = float(np.finfo(np.float32).max)
MARGIN = 2.0
"""What a bound may be exceeded by in rounding, as a factor."""


def largest(value: SSAValue) -> float | None:
    """A bound of the magnitude of all elements that are not NaN; None where none is known."""
    op = value.owner
    if not isinstance(op, HloOp):
        return None
    if op.name in BOUNDED:
        return 1.0
    if op.name in VIEWS:
        return largest(op.operands[0])
    if op.name in ("hlo.constant", "hlo.full"):
        dtype = tensor_of(value).dtype
        values = op.values
        literal = (
            np.frombuffer(values["data"], dtype.numpy) if "data" in values else np.array(values["value"])
        )
        known = np.abs(literal[~np.isnan(literal)].astype(np.float64))
        bound = float(known.max(initial=0.0))
        return bound if math.isfinite(bound) else None
    return None


def _left_first(view: View) -> Iterator[Site]:
    """(a b) c, where nothing else reads a b."""
    for outer in view.ops("hlo.matmul"):
        inner = made_by(outer.operands[0], "hlo.matmul")
        if inner is not None and view.reader(inner.results[0]) is outer:
            yield _site(outer, (*inner.operands, outer.operands[1]))


def _right_first(view: View) -> Iterator[Site]:
    """a (b c), where nothing else reads b c."""
    for outer in view.ops("hlo.matmul"):
        inner = made_by(outer.operands[1], "hlo.matmul")
        if inner is not None and view.reader(inner.results[0]) is outer:
            yield _site(outer, (outer.operands[0], *inner.operands))


def _site(outer: HloOp, factors: Sequence[SSAValue]) -> Site:
    return Site((outer.results[0],), {name: (value,) for name, value in zip("abc", factors, strict=True)})


def _factors(site: Site) -> list[SSAValue]:
    return [site.named[name][0] for name in "abc"]


def _build_left_first(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    a, m, c = _factors(site)
    return [b.matmul(b.matmul(a, m), c)]


def _build_right_first(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    a, m, c = _factors(site)
    return [b.matmul(a, b.matmul(m, c))]


def _are_matrices(site: Site, view: View) -> bool:
    first, *others = (len(tensor_of(value).shape) for value in _factors(site))
    return first >= 2 and others == [2, 2]


def _are_integers(site: Site, view: View) -> bool:
    return tensor_of(site.replaced[0]).dtype.is_integer


def _are_wide(site: Site, view: View) -> bool:
    return tensor_of(site.replaced[0]).dtype in (f32, f64)


def _stay_finite(site: Site, view: View) -> bool:
    """Sizes are known and not 0, so that a NaN reaches the same elements in both orders."""
    bounds = [largest(value) for value in _factors(site)]
    sums = [size.constant for size in tensor_of(site.named["b"][0]).shape[-2:]]
    if None in bounds or not all(sums):
        return False
    a, b, c = (max(bound or 0.0, 1.0) for bound in bounds)
    k, m = (size or 0 for size in sums)
    return MARGIN * k * m * a * b * c < LIMIT


MATRICES = Guard("the second and third are matrices, the first one or several", _are_matrices)
INTEGERS = Guard("the elements are integers", _are_integers)
WIDE = Guard("the elements are f32 or f64", _are_wide)
FINITE = Guard("the operands are bounded, and so small that no order overflows", _stay_finite)
LITERAL = np.arange(1, 13).reshape(4, 3) / 8


def _integers(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    return s.input(2, s.rows, 4, dtype=i32), s.input(4, 3, dtype=i32), s.input(3, 6, dtype=i32)


def _batches(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    return s.input(2, s.rows, 4, dtype=i32), s.input(2, 4, 3, dtype=i32), s.input(2, 3, 6, dtype=i32)


def _floats(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    return s.input(s.rows, 4), s.input(4, 3), s.input(3, 6)


def _weighted(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    return s.b.softmax(s.input(s.rows, 4), axis=1), s.literal(LITERAL), s.literal(LITERAL.T)


def _weighted_batches(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    b, c = (s.literal(np.stack([x, -x])) for x in (LITERAL, LITERAL.T))
    return s.b.softmax(s.input(2, s.rows, 4), axis=2), b, c


def _infinite(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    return s.b.softmax(s.input(s.rows, 4), axis=1), s.literal(LITERAL * np.inf), s.literal(LITERAL.T)


def _narrow(s: Sketch) -> tuple[SSAValue, SSAValue, SSAValue]:
    a = s.b.softmax(s.input(s.rows, 4, dtype=bf16), axis=1)
    return a, s.literal(LITERAL, bf16), s.literal(LITERAL.T, bf16)


Factors = Callable[[Sketch], tuple[SSAValue, SSAValue, SSAValue]]


def _rule(
    name: str,
    licences: tuple[str, ...],
    to_the_right: bool,
    guards: tuple[Guard, ...],
    holds: str,
    matches: Factors,
    misses: dict[str, Factors],
) -> HloRule:
    left, right = "matmul(matmul(a, b), c)", "matmul(a, matmul(b, c))"

    def example(factors: Factors) -> Example:
        def build(s: Sketch) -> Sequence[SSAValue]:
            a, b, c = factors(s)
            return [
                s.b.matmul(s.b.matmul(a, b), c) if to_the_right else s.b.matmul(a, s.b.matmul(b, c)),
            ]

        return build

    return HloRule(
        f"{name}, {'last' if to_the_right else 'first'} two first",
        licences,
        before=left if to_the_right else right,
        after=right if to_the_right else left,
        holds=holds,
        find=_left_first if to_the_right else _right_first,
        build=_build_right_first if to_the_right else _build_left_first,
        guards=(MATRICES, *guards),
        matches=example(matches),
        misses={text: example(factors) for text, factors in misses.items()},
    )


def _both_ways(name: str, licences: tuple[str, ...], **row: Any) -> list[HloRule]:
    return [_rule(name, licences, to_the_right, **row) for to_the_right in (True, False)]


RULES = (
    *_both_ways(
        "a chain of integer products",
        (),
        guards=(INTEGERS,),
        holds="sums and products of integers that wrap are those of the numbers below 2^bits, which are a ring",
        matches=_integers,
        misses={INTEGERS.text: _floats, MATRICES.text: _batches},
    ),
    *_both_ways(
        "a chain of bounded products",
        ("reassociate", "distribute"),
        guards=(WIDE, FINITE),
        holds=(
            "each order is within (k + m) u |a||b||c| of the exact product, k and m the lengths of the two sums; no "
            "sum overflows in any order, and a NaN of an operand reaches the same elements"
        ),
        matches=_weighted,
        misses={
            FINITE.text: _floats,
            MATRICES.text: _weighted_batches,
            "an operand is infinite": _infinite,
            WIDE.text: _narrow,
        },
    ),
)
