"""Variants of candidates: the same loops and tiles, with one thing of another kind.

Stores past the cache: where a kernel touches more than its part of the last cache, what it has written is driven out
before the next kernel reads it.  A plain store reads each line before it writes it; one past the cache only writes.

Constants fetched ahead: while a panel of a packed constant is used, memory gives what is read next of it
(luminal/passes/ahead.py).

Fewer parallel loops: the generator makes leading loops parallel until there are many parts for every core.  A small
region may do better on one core, which wakes no other; and one with a part for each core needs no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from luminal.dialects.kernel.schedule import LOOP_ROLES, Buffer, Schedule, Stage, Target
from luminal.search.gathered import gathered
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.roofline import bytes_touched
from luminal.search.shapes import Shapes
from luminal.search.stage import parallel_trips

LEADING = 8
"""So many candidates that the model puts first have variants: the list must not grow by a factor."""
WORTHWHILE = 0.95
"""What part of the model's seconds a variant with stores past the cache takes at most."""
CLOSE = 1.5
"""How many times as long as all cores one core takes at most, by the model, where it is worth a candidate."""
CACHE_PART = 0.5
"""What part of the last cache a kernel has, beside others that share it."""
LARGE_PART = 0.25
"""What part of the bytes that a kernel touches an output is, at least, to be stored past the cache."""
WORTH_FETCHING = 0.98
"""What part of the model's seconds a variant that fetches constants ahead takes at most."""
WIDEST_STORE = 64
"""Bytes of a store past the cache, at most: a wider vector is several."""


def variants(
    candidates: Iterable[tuple[Candidate, Sequence[Shapes]]], machine: Machine
) -> Iterator[Candidate]:
    """Those of some candidates, each with its form's shapes at the sizes that it is priced for, expected ones first."""
    for candidate, priced in candidates:
        yield from _past_cache(candidate, priced, machine)
        for other in gathered(candidate, priced, machine):
            yield other
            yield from _past_cache(other, priced, machine)
        yield from _fewer_parallel_loops(candidate, priced, machine)


def behind_variants(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates in their order, but the plain one right behind its variant with stores past the cache: what the
    cache is worth to it depends on the kernel around, so that both are timed."""
    named = {(each.form, each.schedule): each for each in candidates}
    found: dict[tuple[str, Schedule], Candidate] = {}
    for candidate in candidates:
        plain = _with_stores(candidate.schedule, frozenset())
        for schedule in (candidate.schedule, plain):
            name = (candidate.form, schedule)
            if name in named:
                found.setdefault(name, named[name])
    return list(found.values())


# ---- fewer parallel loops


def _fewer_parallel_loops(
    candidate: Candidate, priced: Sequence[Shapes], machine: Machine
) -> Iterator[Candidate]:
    estimate = candidate.estimate
    wakes = estimate.core_seconds >= 2 * machine.waking
    if not wakes or machine.threads == 1 or "parallel" not in str(candidate.schedule):
        return
    alone = tuple(replace(each, grid=1, before=()) for each in candidate.estimates)
    if alone[0].seconds(machine) <= CLOSE * estimate.seconds(machine):
        yield replace(candidate, schedule=_on_one_core(candidate.schedule), estimates=alone)
    root, *others = candidate.schedule.roots
    if others:
        return
    parallel = sum(factor.role == "parallel" for factor in root.factors)
    for count in range(1, parallel):
        some = [parallel_trips(shapes, root.factors, count) for shapes in priced]
        if machine.threads <= some[0] < parallel_trips(priced[0], root.factors):
            schedule = replace(candidate.schedule, roots=(_with_parallel(root, count),))
            grids = zip(candidate.estimates, some, strict=True)
            yield replace(
                candidate,
                schedule=schedule,
                estimates=tuple(replace(each, grid=grid) for each, grid in grids),
            )
            return


def _on_one_core(schedule: Schedule) -> Schedule:
    roots, kept = (
        tuple(_with_parallel(stage, 0) for stage in stages) for stages in (schedule.roots, schedule.kept)
    )
    return replace(schedule, roots=roots, kept=kept)


def _with_parallel(stage: Stage, count: int) -> Stage:
    """The stage with the first so many of its parallel loops; the others run in turn."""
    order = itertools.count()
    factors = tuple(
        replace(factor, role="loop") if factor.role == "parallel" and next(order) >= count else factor
        for factor in stage.factors
    )
    return replace(stage, factors=factors)


# ---- constants fetched ahead


def fetching_ahead(candidate: Candidate, priced: Sequence[Shapes], machine: Machine) -> Iterator[Candidate]:
    """The variant of a candidate that fetches constants ahead, where it has any and the model sees a gain."""
    schedule = candidate.schedule
    wanted = frozenset(
        target.buffer
        for target in _kept(schedule)
        if target.buffer is not None and target.buffer.home == "packed"
        if any(_is_fetched(stage, target.buffer) for stage in (*schedule.roots, *schedule.kept))
    )
    if not wanted:
        return
    terms = {target.term for target in _kept(schedule) if target.buffer in wanted}
    estimates = tuple(
        replace(estimate, ahead=_bytes_of(shapes, terms) / machine.bandwidth)
        for estimate, shapes in zip(candidate.estimates, priced, strict=True)
    )
    if estimates[0].seconds(machine) > WORTH_FETCHING * candidate.estimate.seconds(machine):
        return

    def ahead(buffer: Buffer) -> Buffer:
        return replace(buffer, ahead=buffer in wanted)

    kept = tuple(stage.with_buffers(ahead) for stage in schedule.kept)
    yield replace(candidate, schedule=replace(schedule, kept=kept), estimates=estimates)


def _is_fetched(stage: Stage, buffer: Buffer) -> bool:
    """Whether a stage's loops read a buffer once, or each panel of it again in every turn of a loop inside."""
    digits = {index for index, _ in buffer.digits}
    loops = [factor for factor in stage.factors if factor.role in LOOP_ROLES and factor.role != "unroll"]
    is_panel = [factor.index in digits for factor in loops]
    if all(is_panel):
        return bool(is_panel)
    turn = max(number for number, found in enumerate(is_panel) if not found)
    return any(is_panel[:turn]) and any(is_panel[turn + 1 :])


def _bytes_of(shapes: Shapes, numbers: Iterable[int]) -> int:
    terms = shapes.region.terms()
    return sum(shapes.bytes_of(terms[number]) for number in numbers)


# ---- stores past the cache


def _past_cache(candidate: Candidate, priced: Sequence[Shapes], machine: Machine) -> Iterator[Candidate]:
    schedule = other_stores(candidate.schedule, priced[0], machine)
    if schedule is None:
        return
    written = {target.output for stage in schedule.roots for target in stage.targets if target.nontemporal}
    estimates = tuple(
        replace(
            estimate, traffic=estimate.traffic - _large_bytes(shapes, written, machine) / machine.bandwidth
        )
        for estimate, shapes in zip(candidate.estimates, priced, strict=True)
    )
    varied = replace(candidate, schedule=schedule, estimates=estimates)
    if varied.estimate.seconds(machine) <= WORTHWHILE * candidate.estimate.seconds(machine):
        yield varied


def other_stores(schedule: Schedule, shapes: Shapes, machine: Machine) -> Schedule | None:
    """The schedule with stores past the cache where it has none, and plain ones where it has; None where no output is
    large and is stored in whole vectors."""
    plain = _with_stores(schedule, frozenset())
    if plain != schedule:
        return plain
    written = frozenset(
        target.output
        for stage in schedule.roots
        for target in stage.targets
        if _large_bytes(shapes, {target.output}, machine)
        and _is_in_whole_vectors(shapes, stage, target.output)
        and not any(kept.buffer and kept.buffer.home == f"out{target.output}" for kept in _kept(schedule))
    )
    return _with_stores(schedule, written) if written else None


def _kept(schedule: Schedule) -> Iterator[Target]:
    return (target for stage in schedule.kept for target in stage.targets)


def _with_stores(schedule: Schedule, past_cache: frozenset[int]) -> Schedule:
    """The schedule with stores past the cache to these outputs, and to no others."""
    roots = tuple(
        replace(
            stage,
            targets=tuple(replace(each, nontemporal=each.output in past_cache) for each in stage.targets),
        )
        for stage in schedule.roots
    )
    return replace(schedule, roots=roots)


def _large_bytes(shapes: Shapes, outputs: Iterable[int], machine: Machine) -> int:
    """Bytes of those outputs that are large, where the kernel touches more than its part of the last cache."""
    touched = sum(bytes_touched(shapes))
    written = (shapes.region.outputs[number] for number in outputs)
    sizes = (each.elements.evaluate(shapes.values) * each.dtype.size_bytes for each in written)
    return sum(size for size in sizes if size > LARGE_PART * touched and touched > CACHE_PART * machine.l3)


def _is_in_whole_vectors(shapes: Shapes, stage: Stage, number: int) -> bool:
    """Whether an output is only written, in vectors that lie on the size of a store whatever the sizes."""
    output = shapes.region.outputs[number]
    lane = next((factor for factor in stage.factors if factor.role == "lane"), None)
    if lane is None or lane.extent is None or output.alias >= 0 or output.combine != "set":
        return False
    if output.dynamic is not None or output.guard is not None:
        return False
    width = min(lane.extent * output.dtype.size_bytes, WIDEST_STORE)
    strides = dict(output.address.strides)
    along = strides.pop(lane.index, None)
    steps = (step * output.dtype.size_bytes % width for step in (*strides.values(), output.address.offset))
    return along is not None and along.constant == 1 and all(step.constant == 0 for step in steps)
