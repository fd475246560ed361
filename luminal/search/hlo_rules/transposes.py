"""Transposes of matrix products.

A transpose of an operand is index arithmetic on the level below and needs no rule.  One of a result decides in which
order it is stored, so the two sides are different programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import SSAValue

from luminal.dialects.hlo import HloBuilder
from luminal.search.hlo_rules.rule import Guard, HloRule, Site, View, made_by, tensor_of
from luminal.search.hlo_rules.sketch import Sketch


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _find(view: View) -> Iterator[Site]:
    for op in view.ops("hlo.permute"):
        product = made_by(op.operands[0], "hlo.matmul")
        rank = len(tensor_of(op.results[0]).shape)
        if product is not None and rank >= 2 and tuple(op.values["order"]) == _swapped(rank):
            left, right = product.operands
            yield Site((op.results[0],), {"product": (op.operands[0],), "left": (left,), "right": (right,)})


def _build(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    left, right = (site.named[name][0] for name in ("left", "right"))
    turned = [b.permute(x, order=_swapped(len(tensor_of(x).shape))) for x in (right, left)]
    return [b.matmul(*turned)]


def _are_matrices(site: Site, view: View) -> bool:
    return all(len(tensor_of(site.named[name][0]).shape) >= 2 for name in ("left", "right"))


def _is_read_once(site: Site, view: View) -> bool:
    return view.reader(site.named["product"][0]) is not None


MATRICES = Guard("no operand is a vector", _are_matrices)
ONCE = Guard("nothing else reads the product", _is_read_once)


def _product(s: Sketch) -> Sequence[SSAValue]:
    return [s.b.permute(s.b.matmul(s.input(s.rows, 4), s.input(4, 3)), order=(1, 0))]


def _read_twice(s: Sketch) -> Sequence[SSAValue]:
    product = s.b.matmul(s.input(s.rows, 4), s.input(4, 3))
    return [s.b.permute(product, order=(1, 0)), s.b.exp(product)]


def _of_a_vector(s: Sketch) -> Sequence[SSAValue]:
    return [s.b.permute(s.b.matmul(s.input(4), s.input(2, s.rows, 4, 3)), order=(0, 2, 1))]


def _of_batches(s: Sketch) -> Sequence[SSAValue]:
    return [s.b.permute(s.b.matmul(s.input(2, s.rows, 4), s.input(2, 4, 3)), order=(1, 0, 2))]


RULES = (
    HloRule(
        "a transposed product is one of transposed operands",
        (),
        before="permute(matmul(a, b)), the last two axes",
        after="matmul(permute(b), permute(a))",
        holds="the same products are added in the same order; multiplication commutes, to the bit, in every dtype",
        find=_find,
        build=_build,
        guards=(MATRICES, ONCE),
        matches=_product,
        misses={MATRICES.text: _of_a_vector, ONCE.text: _read_twice, "batches change places": _of_batches},
    ),
)
