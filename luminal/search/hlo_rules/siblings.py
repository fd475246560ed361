"""Matrix products that read one left operand: query, key and value; gate and up projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import SSAValue

from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.dim import Dim, as_dim
from luminal.passes.hlo_graph import depends
from luminal.search.hlo_rules.rule import Guard, HloRule, Site, View, tensor_of
from luminal.search.hlo_rules.sketch import Sketch

Group = list[HloOp]


def _groups(view: View) -> Iterator[Group]:
    """Products of one left operand whose right ones may lie side by side: of a dtype and equal leading axes; those of
    constants together, others where their shapes are equal."""
    found: dict[object, Group] = {}
    for op in view.ops("hlo.matmul"):
        left, right = op.operands
        shape = tensor_of(right).shape
        if len(shape) >= 2:
            kind = "constant" if right in view.constants else shape
            found.setdefault((left, shape[:-1], kind), []).append(op)
    for group in found.values():
        if len(group) > 1:
            yield group


def bias_of(product: HloOp, view: View) -> tuple[HloOp, SSAValue] | None:
    """The sum that alone reads a product and adds a row to it, and the row."""
    total = view.reader(product.results[0])
    if total is None or total.name != "hlo.add":
        return None
    (row,) = [value for value in total.operands if value is not product.results[0]]
    fits = tensor_of(row).shape == tensor_of(product.results[0]).shape[-1:]
    return (total, row) if fits and total.results[0].type == product.results[0].type else None


def _products(view: View) -> Iterator[Site]:
    for group in _groups(view):
        if any(bias_of(product, view) is None for product in group):
            rights = tuple(product.operands[1] for product in group)
            replaced = tuple(product.results[0] for product in group)
            yield Site(replaced, {"left": (group[0].operands[0],), "rights": rights})


def _linears(view: View) -> Iterator[Site]:
    for group in _groups(view):
        pairs = [pair for product in group if (pair := bias_of(product, view)) is not None]
        if len(pairs) == len(group):
            rights = tuple(product.operands[1] for product in group)
            replaced = tuple(total.results[0] for total, _ in pairs)
            rows = tuple(row for _, row in pairs)
            yield Site(replaced, {"left": (group[0].operands[0],), "rights": rights, "rows": rows})


def _join(b: HloBuilder, site: Site) -> Sequence[SSAValue]:
    (left,), rights = site.named["left"], site.named["rights"]
    rank = len(tensor_of(rights[0]).shape)
    whole = b.matmul(left, b.cat(rights, axis=rank - 1))
    if "rows" in site.named:
        whole = b.add(whole, b.cat(site.named["rows"], axis=0))
    return _columns(b, whole, [tensor_of(right).shape[-1] for right in rights])


def _columns(b: HloBuilder, whole: SSAValue, counts: Sequence[Dim]) -> list[SSAValue]:
    """The columns of a tensor in parts of these sizes."""
    shape = tensor_of(whole).shape
    zeros, ones = [as_dim(0)] * (len(shape) - 1), [1] * len(shape)
    first, parts = as_dim(0), list[SSAValue]()
    for count in counts:
        stops = (*shape[:-1], first + count)
        parts.append(b.slice(whole, starts=(*zeros, first), stops=stops, steps=ones))
        first = first + count
    return parts


def _independent(site: Site, view: View) -> bool:
    named = [value for group in site.named.values() for value in group]
    return not depends(named, site.replaced, view.places)


INDEPENDENT = Guard("no operand is computed from one of the products", _independent)
HOLDS = (
    "a column of a product is computed from the left operand and one column of the right one, whatever the others are; "
    "every dtype, any sizes"
)


def _query_key_value(s: Sketch) -> Sequence[SSAValue]:
    x = s.input(s.rows, 4)
    return [s.b.matmul(x, s.parameter(4, n)) for n in (3, 2, 4)]


def _of_two_inputs(s: Sketch) -> Sequence[SSAValue]:
    return [s.b.matmul(s.input(s.rows, 4), s.parameter(4, 3)) for _ in range(2)]


def _one_from_the_other(s: Sketch) -> Sequence[SSAValue]:
    x, w = s.input(4, 4), s.input(4, 4)
    first = s.b.matmul(x, w)
    return [first, s.b.matmul(x, s.b.exp(first))]


def _biased(s: Sketch) -> Sequence[SSAValue]:
    x = s.input(s.rows, 4)
    return [s.b.add(s.b.matmul(x, s.parameter(4, n)), s.parameter(n)) for n in (3, 2)]


def _with_columns(s: Sketch) -> Sequence[SSAValue]:
    """What is added is a column or a row for each batch, no row of the product's columns."""
    x = s.input(s.rows, 4)
    return [s.b.add(s.b.matmul(x, s.parameter(4, n)), s.input(s.rows, 1)) for n in (3, 2)]


def _biased_by_the_other(s: Sketch) -> Sequence[SSAValue]:
    x, w = s.input(4), s.parameter(4, 4)
    first = s.b.add(s.b.matmul(x, w), s.parameter(4))
    return [first, s.b.add(s.b.matmul(x, s.parameter(4, 4)), first)]


RULES = (
    HloRule(
        "products of one left operand are one product",
        (),
        before="matmul(x, w1), matmul(x, w2) ...",
        after="y = matmul(x, cat(w1, w2 ...)): the columns of y, in parts",
        holds=HOLDS,
        find=_products,
        build=_join,
        guards=(INDEPENDENT,),
        matches=_query_key_value,
        misses={INDEPENDENT.text: _one_from_the_other, "the left operands differ": _of_two_inputs},
    ),
    HloRule(
        "linear layers of one input are one layer",
        (),
        before="add(matmul(x, w1), b1), add(matmul(x, w2), b2) ...",
        after="y = add(matmul(x, cat(w1, w2 ...)), cat(b1, b2 ...)): the columns of y, in parts",
        holds=f"{HOLDS}; a row is added column by column too",
        find=_linears,
        build=_join,
        guards=(INDEPENDENT,),
        matches=_biased,
        misses={INDEPENDENT.text: _biased_by_the_other, "no row is added": _with_columns},
    ),
)
