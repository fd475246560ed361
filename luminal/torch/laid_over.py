"""Results that AOTAutograd lays over an input that the graph updates.

    r = x.expand(2, 4); x.mul_(2); return r    ->    y = x * 2; x.copy_(y); return y.expand(2, 4)

What the caller gets is a view of `x` with the strides and the offset of what the graph returns.  Those of `y` are not
always those of `x`, which may have gaps and begin anywhere: such a result is the same views of `x`, and not computed.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta
from torch.fx.node import map_arg

INPUT = "luminal_laid_over"
"""In the `meta` of a result's node: the placeholder that it is laid over."""


def lay_over_inputs(graph: torch.fx.Graph, metadata: ViewAndMutationMeta) -> None:
    """Tell such results of a forward graph their input, and the traced tensor of a view of it (`meta["val"]`)."""
    copies = {
        copy.args[1]: copy.args[0] for copy in graph.nodes if copy.target is torch.ops.aten.copy_.default
    }
    (output,) = graph.find_nodes(op="output")
    entries = cast("list[Any]", output.args[0])[metadata.num_mutated_inp_runtime_indices :]
    for entry, info in zip(entries, metadata.output_info, strict=False):
        if info.output_type is OutputType.alias_of_input and isinstance(entry, torch.fx.Node):
            _lay_over(entry, copies)


def _lay_over(entry: torch.fx.Node, copies: dict[Any, Any]) -> None:
    views: list[torch.fx.Node] = []
    node = entry
    while node not in copies:
        source = node.args[0] if node.args else None
        if not isinstance(source, torch.fx.Node) or storage_of(source) != storage_of(node):
            return
        views.append(node)
        node = source
    target = cast(torch.fx.Node, copies[node])
    if target.op != "placeholder":
        return
    fake = target.meta["val"]
    with fake.fake_mode:
        for view in reversed(views):
            rest, named = (
                map_arg(given, lambda node: node.meta["val"]) for given in (view.args[1:], view.kwargs)
            )
            fake = cast(Any, view.target)(fake, *cast(Any, rest), **cast(Any, named))
    entry.meta |= {"val": fake, INPUT: target}


def storage_of(node: object) -> int:
    """The storage of a node's traced tensor; 0 of what is none."""
    fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return fake.untyped_storage()._cdata if isinstance(fake, torch.Tensor) else 0
