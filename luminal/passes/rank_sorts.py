"""Sorts of short rows as ranks, for targets whose kernels do not sort: each element counts those before it.

    rank[i] = #{j : x[j] comes before x[i]};   place[k] = sum_i (rank[i] = k) * i;   value[k] = x[place[k]]

That is stable, in parallel, and of n^2 comparisons.  Where only the first few are wanted, only their places are looked
for.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.primitive.build import PrimitiveBuilder, type_of
from luminal.dialects.primitive.ops import PrimitiveOp
from luminal.dim import as_dim, known_less_equal
from luminal.dtype import i32, i64

LONGEST = 512
"""Elements of a row that is ranked: longer ones, and those of unknown size, are left to a library."""


def rank_sorts(graph: GraphOp) -> None:
    """Replace every sort of short rows of a graph of primitives."""
    for op in list(graph.block.ops):
        if isinstance(op, PrimitiveOp) and op.name == "primitive.sort" and _is_short(op):
            found = _ranked(op)
            for old, new in zip(op.results, found, strict=True):
                old.replace_all_uses_with(new)
            op.detach()
            op.erase()


def _is_short(op: PrimitiveOp) -> bool:
    return known_less_equal(type_of(op.operands[0]).shape[op.integer("axis")], LONGEST)


def _ranked(op: PrimitiveOp) -> tuple[SSAValue, SSAValue]:
    """The sorted values and their places."""
    build = PrimitiveBuilder(Builder(InsertPoint.before(op)))
    axis, descending = op.integer("axis"), bool(op.value("descending"))
    source = op.operands[0]
    rank = type_of(source).rank
    order = [*(a for a in range(rank) if a != axis), axis]
    x = build.permute(source, order)
    *lead, size = type_of(x).shape
    square = (*lead, size, size)
    mine = build.expand(build.reshape(x, (*lead, size, as_dim(1))), square)
    other = build.expand(build.reshape(x, (*lead, as_dim(1), size)), square)
    first, last = (mine, other) if descending else (other, mine)
    before = _less(build, first, last)
    same = build.logical_not(build.bits(before, _less(build, last, first), "or"))
    places = (build.iota(square, rank), build.iota(square, rank - 1))
    earlier = build.bits(same, build.compare(*places, "lt"), "and")
    count = build.sum_reduce(build.cast(build.bits(before, earlier, "or"), i32), [rank])
    wanted = (*lead, type_of(op.results[0]).shape[axis], size)
    ranks = build.expand(build.reshape(count, (*lead, as_dim(1), size)), wanted)
    hit = build.compare(build.cast(ranks, i64), build.iota(wanted, rank - 1), "eq")
    place = build.sum_reduce(build.select(hit, build.iota(wanted, rank), build.full(0, wanted, i64)), [rank])
    shape = type_of(place).shape
    value = build.gather(x, [*(build.iota(shape, a) for a in range(rank - 1)), place], "assumed")
    back = [order.index(a) for a in range(rank)]
    return build.permute(value, back), build.permute(place, back)


def _less(build: PrimitiveBuilder, a: SSAValue, b: SSAValue) -> SSAValue:
    """a < b, where a NaN is larger than every number."""
    less = build.compare(a, b, "lt")
    if not type_of(a).dtype.is_float:
        return less
    to_nan = build.bits(build.compare(a, a, "eq"), build.compare(b, b, "ne"), "and")
    return build.bits(less, to_nan, "or")
