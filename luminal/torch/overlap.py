"""Inputs that share memory with one that is written: what a compiled graph may not be given.

Dynamo guards against aliases that it saw when it traced, not against those that come later: a graph traced with
separate `x` and `y` is called with overlapping slices of one tensor without a word. Here such a call runs the traced
graph through eager PyTorch instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx


def guard_overlap(
    module: torch.fx.GraphModule,
    compiled: Callable[..., Any],
    written: frozenset[int],
    static: frozenset[int],
) -> Callable[..., Any]:
    """`compiled`, or `module` itself where an argument in `written` overlaps another one. Parameters (`static`) do not
    overlap each other."""
    if not written:
        return compiled
    count = sum(node.op == "placeholder" for node in module.graph.nodes)
    checked = [number for number in range(count) if number in written or number not in static]

    def call(*arguments: Any) -> Any:
        if _overlaps(arguments, checked, written):
            return module(*arguments)
        return compiled(*arguments)

    return torch._dynamo.disable(call, reason="calls a compiled graph")


def _overlaps(arguments: Sequence[Any], checked: Sequence[int], written: frozenset[int]) -> bool:
    storages: dict[int, list[int]] = {}
    for number in checked:
        argument = arguments[number]
        if isinstance(argument, torch.Tensor):
            storages.setdefault(argument.untyped_storage()._cdata, []).append(number)
    for members in storages.values():
        if len(members) > 1 and any(number in written for number in members):
            if _ranges_meet(
                [arguments[number] for number in members], [number in written for number in members]
            ):
                return True
    return False


def _ranges_meet(tensors: Sequence[torch.Tensor], writes: Sequence[bool]) -> bool:
    """Whether a written tensor's range of addresses meets another's."""
    ranges = [_range(tensor) for tensor in tensors]
    return any(
        writes[i] and i != j and ranges[i][0] < ranges[j][1] and ranges[j][0] < ranges[i][1]
        for i in range(len(ranges))
        for j in range(len(ranges))
    )


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()
