"""Sums of products of 8-bit integers that are spelled in f32, as integer sums: block-quantised products, mostly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.ir import SSAValue

from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.dtype import f32, i8, i32, u8
from luminal.passes.hlo_graph import VIEWS
from luminal.search.hlo_rules.rule import Guard, HloRule, Site, View, made_by, tensor_of
from luminal.search.hlo_rules.sketch import Sketch

EXACT = 1 << 24
"""Whole numbers up to here are f32 numbers, and so is every partial sum of products that stays below."""
LARGEST = {i8: 128, u8: 255}


def _bytes_of(value: SSAValue) -> SSAValue | None:
    """The 8-bit integers that a value is a view of, cast to f32; None where it is none."""
    while isinstance(value.owner, HloOp) and value.owner.name in VIEWS:
        value = value.owner.operands[0]
    op = made_by(value, "hlo.cast")
    if op is None or tensor_of(value).dtype is not f32 or tensor_of(op.operands[0]).dtype not in LARGEST:
        return None
    return op.operands[0]


def _site(result: SSAValue, factors: Sequence[SSAValue]) -> Iterator[Site]:
    if all(_bytes_of(factor) is not None for factor in factors):
        yield Site((result,), {"a": (factors[0],), "b": (factors[1],)})


def _matmuls(view: View) -> Iterator[Site]:
    for op in view.ops("hlo.matmul"):
        yield from _site(op.results[0], op.operands)


def _sums(view: View) -> Iterator[Site]:
    for op in view.ops("hlo.sum"):
        product = made_by(op.operands[0], "hlo.mul")
        if product is not None:
            yield from _site(op.results[0], product.operands)


def _addends(site: Site) -> int | None:
    op = site.replaced[0].owner
    assert isinstance(op, HloOp)
    shape = tensor_of(op.operands[0]).shape
    axes = op.given["axes"] if op.name == "hlo.sum" else [len(shape) - 1]
    sizes = [shape[axis].constant for axis in axes]  # pyright: ignore
    return None if None in sizes else prod(size or 0 for size in sizes)


def _is_exact(site: Site, view: View) -> bool:
    count, limit = _addends(site), 1
    for (factor,) in site.named.values():
        source = _bytes_of(factor)
        assert source is not None
        limit *= LARGEST[tensor_of(source).dtype]
    return count is not None and count * limit < EXACT


def _as_integers(b: HloBuilder, value: SSAValue) -> SSAValue:
    """The value in i32, through the same views."""
    op = value.owner
    assert isinstance(op, HloOp)
    if op.name == "hlo.cast":
        return b.cast(op.operands[0], dtype=i32)
    return b.insert(op.name.removeprefix("hlo."), [_as_integers(b, op.operands[0])], op.given).results[0]


def _build_matmul(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    left, right = (_as_integers(b, factor) for (factor,) in site.named.values())
    return [b.cast(b.matmul(left, right), dtype=f32)]


def _build_sum(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    op = site.replaced[0].owner
    assert isinstance(op, HloOp)
    left, right = (_as_integers(b, factor) for (factor,) in site.named.values())
    return [b.cast(b.insert("sum", [b.mul(left, right)], op.given).results[0], dtype=f32)]


SMALL = Guard("the number of addends is known, and so small that every partial sum is below 2^24", _is_exact)
HOLDS = (
    "products of 8-bit integers are whole numbers, and so are their sums; below 2^24 in magnitude f32 holds each of "
    "them, in any order of adding, and a sum starts from +0.0"
)


def _wide(s: Sketch, *shape: int) -> SSAValue:
    return s.b.cast(s.input(*shape, dtype=i8), dtype=f32)


def _product(s: Sketch, addends: int = 6) -> Sequence[SSAValue]:
    right = s.b.permute(s.b.cast(s.parameter(3, addends, dtype=u8), dtype=f32), order=(1, 0))
    return [s.b.matmul(s.b.cast(s.input(s.rows, addends, dtype=i8), dtype=f32), right)]


def _summed(s: Sketch, addends: int = 6) -> Sequence[SSAValue]:
    return [s.b.sum(s.b.mul(_wide(s, 3, addends), _wide(s, 3, addends)), axes=(1,), keepdim=False)]


RULES = (
    HloRule(
        "a product of bytes is one of integers",
        (),
        before="matmul(cast(a) : f32, cast(b) : f32)",
        after="cast(matmul(cast(a) : i32, cast(b) : i32)) : f32",
        holds=HOLDS,
        find=_matmuls,
        build=_build_matmul,
        guards=(SMALL,),
        matches=_product,
        misses={
            SMALL.text: lambda s: _product(s, 600),
            "one side is no byte": lambda s: [s.b.matmul(s.input(3, 4), _wide(s, 4, 2))],
        },
    ),
    HloRule(
        "a sum of products of bytes is one of integers",
        (),
        before="sum(mul(cast(a) : f32, cast(b) : f32))",
        after="cast(sum(mul(cast(a) : i32, cast(b) : i32))) : f32",
        holds=HOLDS,
        find=_sums,
        build=_build_sum,
        guards=(SMALL,),
        matches=_summed,
        misses={
            SMALL.text: lambda s: _summed(s, 1024),
            "nothing is multiplied": lambda s: [s.b.sum(_wide(s, 3, 6), axes=(1,), keepdim=False)],
        },
    ),
)
