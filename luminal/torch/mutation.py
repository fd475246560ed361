"""Writes into a part of a buffer, put back together: what re-inplacing needs to see.

AOTAutograd turns `cache[layer][:, :, 4:5] = x` into a chain of functional updates, each of a whole tensor:

    view = select(cache, 0, layer)                     views, from the outside in
    part = slice_scatter(view, x, 2, 4, 5)             the innermost write
    new  = select_scatter(cache, part, 0, layer)       and the way back out

Before hlo this becomes one `write_part(cache, x, [("select", 0, layer, ...), ("slice", 2, 4, 5, 1)])`, an index_put
whose positions are known; where the cache is an input that is overwritten with it, only the part is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.fx

from luminal.dialects.hlo.shapes import broadcast_shapes
from luminal.dim import Dim, as_dim
from luminal.dtype import i64
from luminal.torch.aten_view import slice_bounds
from luminal.torch.lowering import Lowering, Value, dtype, rank, shape_of

aten = torch.ops.aten
VIEWS: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}
"""Each functional write and the view that it writes through."""
Step = tuple[Any, ...]


def write_part(
    base: torch.Tensor, source: torch.Tensor, steps: Sequence[Step], indices: Any, accumulate: bool
) -> Any:
    """A copy of `base` with `source` written where the views `steps`, and then `indices` of the last one, lead."""
    result = base.clone()
    view = result
    for kind, *arguments in steps:
        view = getattr(torch.ops.aten, kind)(view, *arguments)
    if indices is None:
        view.copy_(source)
    else:
        torch.ops.aten.index_put_(view, indices, source, accumulate)
    return result


def fuse_part_writes(graph: torch.fx.Graph) -> None:
    """Replace every chain of functional writes through views by one `write_part`, before and after as above."""
    for node in reversed(list(graph.nodes)):
        if node.target in VIEWS and node.users:
            _fuse(graph, node)
    graph.eliminate_dead_code()


def _fuse(graph: torch.fx.Graph, outer: torch.fx.Node) -> None:
    base = outer.args[0]
    steps: list[Step] = []
    write, view = outer, cast(torch.fx.Node, base)
    while True:
        steps.append(_step(write))
        inner = write.args[1]
        if not isinstance(inner, torch.fx.Node) or not _writes_through(inner, view, steps[-1]):
            break
        write, view = inner, cast(torch.fx.Node, inner.args[0])
        if write.target not in VIEWS:
            break
    if len(steps) == 1 and write is outer:
        return
    indexed = write.target not in VIEWS
    source = cast(Any, write.args[2] if indexed else write.args[1])
    indices = write.args[1] if indexed else None
    accumulate = bool(write.args[3]) if indexed and len(write.args) > 3 else False
    with graph.inserting_before(outer):
        fused = graph.call_function(write_part, (base, source, steps, indices, accumulate))
    fused.meta = dict(outer.meta)
    outer.replace_all_uses_with(fused)


def _step(write: torch.fx.Node) -> Step:
    kind = "slice" if write.target is aten.slice_scatter.default else "select"
    return (kind, *_full(write.args[2:], kind))


def _full(arguments: Sequence[Any], kind: str) -> tuple[Any, ...]:
    defaults = (0, None, None, 1) if kind == "slice" else (0, 0)
    return (*arguments, *defaults[len(arguments) :])


def _writes_through(node: torch.fx.Node, outside: torch.fx.Node, step: Step) -> bool:
    """Whether the node writes into the view of `outside` that the step takes."""
    if node.target not in VIEWS and not _writes_at_positions(node):
        return False
    view = node.args[0]
    if not isinstance(view, torch.fx.Node) or len(node.users) != 1:
        return False
    kind, *arguments = step
    wanted = aten.slice.Tensor if kind == "slice" else aten.select.int
    return (
        view.target is wanted and view.args[0] is outside and _full(view.args[1:], kind) == tuple(arguments)
    )


def _writes_at_positions(node: torch.fx.Node) -> bool:
    """Whether the node is an index_put whose indices are positions, not masks."""
    if node.target is not aten.index_put.default:
        return False
    indices = cast("Sequence[torch.fx.Node | None]", node.args[1])
    masks = (torch.bool, torch.uint8)
    return not any(index is not None and index.meta["val"].dtype in masks for index in indices)


# ---- lowering --------------------------------------------------------------------------------------------------


def lower_write_part(
    low: Lowering, base: Value, source: Value, steps: Sequence[Step], indices: Any, accumulate: bool
) -> Value:
    """One index_put at a position for every axis of the base."""
    kept, fixed = _compose(low, base, steps)
    region, along = _region(low, [size for _, _, _, size in kept], indices)
    positions: list[Value] = [low.number(0, i64)] * rank(base)
    for axis, start in fixed.items():
        positions[axis] = low.number(start, i64)
    for (axis, start, step, _), place in zip(kept, along, strict=True):
        if step != 1:
            place = low.b.mul(place, low.number(step, i64))
        positions[axis] = place if start == 0 else low.b.add(place, low.number(start, i64))
    value = low.broadcast(low.cast(source, dtype(base)), region)
    if not region:
        positions = [low.reshape(place, (1,)) for place in positions]
        value = low.reshape(value, (1,))
    return low.b.index_put(base, value, positions, axes=tuple(range(rank(base))), accumulate=accumulate)


def _compose(
    low: Lowering, base: Value, steps: Sequence[Step]
) -> tuple[list[tuple[int, Dim, int, Dim]], dict[int, Dim]]:
    """The axes that the last view keeps as (axis of the base, start, step, size), and the position of the others."""
    kept = [(axis, as_dim(0), 1, size) for axis, size in enumerate(shape_of(base))]
    fixed: dict[int, Dim] = {}
    for kind, dim, *arguments in steps:
        place = low.axis(dim, len(kept))
        axis, start, step, size = kept[place]
        if kind == "select":
            fixed[axis] = start + low.clamped(arguments[0], size, as_dim(0)) * step
            del kept[place]
            continue
        first, last = slice_bounds(low, size, arguments[0], arguments[1])
        by = cast(int, arguments[2])
        kept[place] = (axis, start + first * step, step * by, (last - first + by - 1) // by)
    return kept, fixed


def _region(low: Lowering, sizes: Sequence[Dim], indices: Any) -> tuple[list[Dim], list[Value]]:
    """The shape that is written, and for each axis of the view where in it each element goes."""
    given: dict[int, Value] = {}
    for axis, index in enumerate(indices or ()):
        if index is not None:
            given[axis] = low.wrapped(index, sizes[axis])
    if not given:
        return list(sizes), [low.positions(size, axis, len(sizes)) for axis, size in enumerate(sizes)]
    axes = sorted(given)
    rest = [axis for axis in range(len(sizes)) if axis not in given]
    # PyTorch puts the shared axes where the indexed ones were if those are neighbours, else in front
    position = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    shared = list(broadcast_shapes(*[shape_of(index) for index in given.values()]))
    region = [sizes[axis] for axis in rest]
    region[position:position] = shared
    places: list[Value] = []
    for axis, size in enumerate(sizes):
        if axis in given:
            behind = len(rest) - position
            index = given[axis]
            places.append(low.reshape(index, (*shape_of(index), *[as_dim(1)] * behind)))
            continue
        number = rest.index(axis)
        where = number if number < position else number + len(shared)
        places.append(low.positions(size, where, len(region)))
    return region, places


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {write_part: lower_write_part}
"""Lowerings of what is no ATen op: functions that passes over the FX graph put in."""
