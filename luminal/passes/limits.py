"""From what a fold needs to the limits of a loop: the union of what the tile at hand needs, over all its places.

needs i - j >= 0, eight rows i = 8 * x + ..., keys j in blocks of 64   ->   to 8 * x + 8, in steps of 64
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed_loops import UNBOUNDED, Bounds
from luminal.dialects.kernel.placed_types import Limit
from luminal.dialects.kernel.terms import Affine
from luminal.dim import Dim, as_dim
from luminal.passes.needed import Conditions
from luminal.passes.nest import PlacedFactor, Scope

Reach = tuple[dict[SSAValue, Dim], Dim]
"""The greatest value of an affine expression: a stride for each variable, and an offset."""


def bounds_of(
    needed: Conditions,
    guard: SSAValue | None,
    factor: PlacedFactor,
    path: Sequence[Scope],
    extents: Mapping[str, Dim],
) -> Bounds:
    """Those of the loop of a factor that is about to open in the scopes of a path; it is the outermost of its index."""
    if factor.role == "unroll" or any(scope.factor and scope.factor.index == factor.index for scope in path):
        return UNBOUNDED
    found: list[tuple[bool, int, Reach]] = []
    for condition in needed:
        step = (condition.stride(factor.index) * factor.weight).constant
        reach = _reach(condition, factor, path, extents)
        if step and reach is not None:
            found.append((step < 0, abs(step), reach))
    variables = list(dict.fromkeys(variable for *_, (strides, _) in found for variable in strides))
    limits: list[Limit] = []
    for is_upper, step, (strides, offset) in found:
        sign = 1 if is_upper else -1
        along = tuple(strides.get(variable, as_dim(0)) * sign for variable in variables)
        limits.append(Limit(is_upper, step, along, offset * sign + (1 if is_upper else step - 1)))
    return Bounds(variables, limits, guard) if limits else UNBOUNDED


def _reach(
    condition: Affine, factor: PlacedFactor, path: Sequence[Scope], extents: Mapping[str, Dim]
) -> Reach | None:
    """The greatest value of a condition, but for what the loop's own variable adds; None where a sign is not known."""
    strides: dict[SSAValue, Dim] = {}
    offset = condition.offset
    for index, stride in condition.strides:
        around = [scope for scope in path if scope.factor is not None and scope.factor.index == index]
        left = extents[index] - 1
        for scope in around:
            inside = cast(PlacedFactor, scope.factor)
            strides[cast(SSAValue, scope.variable)] = stride * inside.weight
            left = as_dim(inside.weight - 1)
        if index == factor.index:
            left = as_dim(factor.weight - 1)
        low, high = stride.bounds()
        if low is not None and low >= 0:
            offset = offset + stride * left
        elif high is None or high > 0:
            return None
    return strides, offset
