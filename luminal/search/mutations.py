"""Schedules that differ in one thing from one that is known to be good: a factor, the order of two loops, how many
loops are parallel, or whether packed constants are fetched ahead.

A generator enumerates what usually pays; this is what lies around it.  What comes of it need not be legal: the
placement pass says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage

LARGEST = 512


def mutations(schedule: Schedule, threads: int) -> Iterator[Schedule]:
    """Each once; with one thread, none in parallel loops; none at all of a schedule with carried loops, whose stages
    depend on each other's factors."""
    if schedule.loops:
        return
    depths = _other_depths(schedule) if threads > 1 else ()
    found = {schedule}
    for changed in (_other_fetching(schedule), *_other_extents(schedule), *_other_orders(schedule), *depths):
        if changed not in found:
            found.add(changed)
            yield changed


def _other_fetching(schedule: Schedule) -> Schedule:
    """Packed constants that are fetched ahead as they are needed, and all others ahead."""

    def other(buffer: Buffer) -> Buffer:
        return replace(buffer, ahead=buffer.home == "packed" and not buffer.ahead)

    return _each_stage(schedule, lambda stage: stage.with_buffers(other))


def _other_extents(schedule: Schedule) -> Iterator[Schedule]:
    """One factor of an index twice or half as large, wherever it occurs, in buffers too.

    The lanes of a vector stay, and so does an index that is summed up in parts: how far a sum errs depends on them.
    """
    factors = [factor for stage in (*schedule.roots, *schedule.kept) for factor in stage.factors]
    fixed = {factor.index for factor in factors if factor.role == "partial"}
    lanes = {(factor.index, factor.extent) for factor in factors if factor.role == "lane"}
    for factor in factors:
        extent = factor.extent
        if extent is None or factor.index in fixed or (factor.index, extent) in lanes:
            continue
        for other in (extent * 2, extent // 2):
            if 1 <= other <= LARGEST:
                yield _resized(schedule, factor.index, extent, other)


def _resized(schedule: Schedule, index: str, extent: int, other: int) -> Schedule:
    before, after = (index, extent), (index, other)

    def resized(stage: Stage) -> Stage:
        factors = (replace(f, extent=other) if (f.index, f.extent) == before else f for f in stage.factors)
        return replace(stage.with_buffers(with_digits), factors=tuple(factors))

    def with_digits(buffer: Buffer) -> Buffer:
        return replace(buffer, digits=tuple(after if digit == before else digit for digit in buffer.digits))

    return _each_stage(schedule, resized)


def _other_orders(schedule: Schedule) -> Iterator[Schedule]:
    """Two neighbouring loops of what is stored, of different indices, the other way round."""
    for number, stage in enumerate(schedule.roots):
        for position, (outer, inner) in enumerate(zip(stage.factors, stage.factors[1:], strict=False)):
            if _may_swap(outer, inner):
                factors = (*stage.factors[:position], inner, outer, *stage.factors[position + 2 :])
                roots = list(schedule.roots)
                roots[number] = replace(stage, factors=factors)
                yield replace(schedule, roots=tuple(roots))


def _other_depths(schedule: Schedule) -> Iterator[Schedule]:
    """One leading loop of what is stored fewer or more that is parallel."""
    for number, stage in enumerate(schedule.roots):
        parallel = [factor.index for factor in stage.factors if factor.role == "parallel"]
        depth = len(parallel)
        changes = [(depth - 1, "loop")] if parallel else []
        following = stage.factors[depth : depth + 1]
        if any(factor.role == "loop" and factor.index not in parallel for factor in following):
            changes.append((depth, "parallel"))
        for position, role in changes:
            factors = list(stage.factors)
            factors[position] = replace(factors[position], role=role)
            roots = list(schedule.roots)
            roots[number] = replace(stage, factors=tuple(factors))
            yield replace(schedule, roots=tuple(roots))


def _may_swap(outer: Factor, inner: Factor) -> bool:
    return outer.index != inner.index and outer.role == inner.role and outer.role in ("loop", "parallel")


def _each_stage(schedule: Schedule, change: Callable[[Stage], Stage]) -> Schedule:
    return Schedule(tuple(map(change, schedule.roots)), tuple(map(change, schedule.kept)))
