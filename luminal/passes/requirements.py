"""What the sizes of a graph must obey at run time, where shapes alone do not prove it."""

from __future__ import annotations

from collections.abc import Iterator

from luminal.dim import Dim, known_less_equal, product
from luminal.passes.region_graph import Requirement
from luminal.passes.value_graph import Value, ValueGraph


def requirements_of(graph: ValueGraph) -> list[Requirement]:
    """The conditions of slices, reshapes, pads, windows and sorts that are not proven; each once."""
    found: dict[tuple[Dim, Dim | None], Requirement] = {}
    for value in graph.values:
        for least, unless, message in _conditions(value):
            if not known_less_equal(0, least):
                found.setdefault((least, unless), Requirement(least, message, unless, value.source))
    return list(found.values())


def _conditions(value: Value) -> Iterator[tuple[Dim, Dim | None, str]]:
    """(what must be >= 0, unless this is 0, what is wrong otherwise)"""
    match value.op:
        case "slice":
            source = value.operands[0]
            starts, steps = value.dims("starts"), value.integers("steps")
            for start, step, size, extent in zip(starts, steps, value.shape, source.shape, strict=True):
                message = f"a slice from {start} by {step}, {size} elements, leaves an axis of {extent}"
                yield size, None, message
                yield start, size, message
                yield extent - (start + (size - 1) * step + 1), size, message
        case "reshape":
            have, want = product(value.operands[0].shape), product(value.shape)
            message = f"{have} elements cannot have the shape [{', '.join(map(str, value.shape))}]"
            if have != want:
                yield have - want, None, message
                yield want - have, None, message
            for size in value.shape:
                yield size, None, message
        case "pad":
            for amount in (*value.dims("low"), *value.dims("high")):
                yield amount, None, f"padding by {amount}; amounts cannot be negative"
        case "window":
            extent, size = value.operands[0].shape[value.integer("axis")], value.integer("size")
            yield extent - size, None, f"a window of {size} does not fit in an axis of {extent}"
        case "sort":
            axis, given = value.integer("axis"), value.operands[0].shape
            extent, count = given[axis], value.shape[axis]
            yield count, None, f"the first {count} elements of a sort"
            yield extent - count, None, f"the first {count} elements of a sort of {extent}"
        case _:
            return
