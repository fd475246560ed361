"""Applying a rule at places of a graph, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.errors import CompileError
from luminal.passes.hlo_graph import drop_unused, sort_block
from luminal.search.hlo_rules.rule import Site


def apply_sites(
    graph: GraphOp, sites: Sequence[Site], build: Callable[[HloBuilder, Site], Sequence[SSAValue]]
) -> None:
    """Replace every place by what `build` writes for it, whose operations take over the source of what they replace.

    Raises CompileError where the two sides have different types: a mistake of the rule.
    """
    changed: dict[SSAValue, SSAValue] = {}
    for site in sites:
        builder = HloBuilder(InsertPoint.before(graph.return_op))
        first = site.replaced[0].owner
        builder.source = first.source if isinstance(first, HloOp) else None
        named = {
            name: tuple(changed.get(value, value) for value in group) for name, group in site.named.items()
        }
        made = build(builder, Site(site.replaced, named))
        for old, new in zip(site.replaced, made, strict=True):
            if old.type != new.type:
                raise CompileError(f"a rewrite replaces {old.type} by {new.type}")
            old.replace_all_uses_with(new)
            changed[old] = new
    sort_block(graph.block)
    drop_unused(graph.block)
