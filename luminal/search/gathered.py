"""Variants that gather factors: what a batch reads in pieces is laid out for several batches in the order of memory.

    batch loops i, h          keep K[r, k] for each h: a piece of every row, in another page than the last
    batch loop i              keep K[h, r, k]: all rows from end to end, which hardware foresees; then h reads its part

That is so where the index of the innermost batch loop lies inside others, as heads do that stand side by side in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from luminal.dialects.kernel.schedule import LOOP_ROLES, Buffer, Factor, Schedule, Stage, Target
from luminal.dialects.kernel.terms import Term
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.roofline import FAR_BYTES
from luminal.search.shapes import Shapes
from luminal.search.stage import parallel_trips

PIECE_SECONDS = 28e-9
"""What it takes to reach a piece of a row in another page, from memory or the last cache, where some overlap."""
COPY_SECONDS = 0.4e-9
"""Of each element that is laid out though it would not be otherwise."""
PART = 0.5
"""What part of a core's share of the last cache the gathered factors have, at most."""


def gathered(candidate: Candidate, priced: Sequence[Shapes], machine: Machine) -> Iterator[Candidate]:
    """The candidate with all factors gathered that are read in pieces, if there are any."""
    root, *others = candidate.schedule.roots
    batches = [factor for factor in root.factors if (factor.name or "").startswith("batch_")]
    if others or len(batches) < 2:
        return
    *_, outer, inner = batches
    shapes = priced[0]
    outside = frozenset(factor.index for factor in batches[:-1])
    factors = [
        load for load in _factors(shapes) if _is_in_pieces(shapes, load, inner.index, outside, machine)
    ]
    size = sum(shapes.bytes_of(load, outside) for load in factors)
    if not factors or size * machine.threads > PART * machine.l3:
        return
    schedule, saved = candidate.schedule, [0.0] * len(priced)
    for load in factors:
        found = _gathered(schedule, shapes, load, (outside, outer, inner), machine)
        if found is None:
            return
        schedule, is_new = found
        for number, each in enumerate(priced):
            pieces = each.volume(load.free) / max(1, each.stride(load, inner.index) or 1)
            saved[number] += PIECE_SECONDS * pieces - is_new * COPY_SECONDS * each.volume(load.free)
    root = _on_outer_loops(schedule.roots[0], outer)
    estimates = tuple(
        replace(
            estimate, computing=max(0.0, estimate.computing - less), grid=parallel_trips(each, root.factors)
        )
        for estimate, less, each in zip(candidate.estimates, saved, priced, strict=True)
    )
    yield replace(candidate, schedule=replace(schedule, roots=(root,)), estimates=estimates)


def _factors(shapes: Shapes) -> list[Term]:
    """The loads that are factors of sums of products, in the order of terms."""
    products = (
        term.operands[0]
        for term in shapes.region.terms()
        if term.op == "reduce" and term.reduce.monoid == "sum"
    )
    read = (operand for product in products if product.op == "mul" for operand in product.operands)
    return list(dict.fromkeys(each for each in read if each.op == "load" and not each.load.dynamic))


def _is_in_pieces(shapes: Shapes, load: Term, batch: str, outside: frozenset[str], machine: Machine) -> bool:
    """Whether the elements of a batch lie apart in a memory that a core does not hold."""
    strides = {index: shapes.stride(load, index) or 0 for index in load.free - outside}
    piece = strides.get(batch, 0)
    is_apart = any(stride > piece for index, stride in strides.items() if shapes.sizes[index] > 1)
    is_near = 0 < piece * load.dtype.size_bytes < FAR_BYTES
    return is_apart and is_near and not load.load.guarded and shapes.bytes_of(load) > machine.l2


def _gathered(
    schedule: Schedule,
    shapes: Shapes,
    load: Term,
    around: tuple[frozenset[str], Factor, Factor],
    machine: Machine,
) -> tuple[Schedule, bool] | None:
    """The schedule with a load kept for all of the inner batch loop, and whether it was not kept at all; None where it
    is kept inside of other loops.  `around`: the indices of the outer batch loops, the last of them, and the inner."""
    outside, outer, inner = around
    number = shapes.region.numbering()[load]
    kept = [stage for stage in schedule.kept if stage.targets[0].term == number]
    if not kept:
        factors, digits = _as_it_lies(shapes, load, outside, inner.index, machine)
        target = Target(term=number, buffer=Buffer(digits, outer.name))
        made = Stage((target,), factors, outer.name)
        return replace(schedule, kept=(made, *schedule.kept)), True
    (stage,) = kept
    (target,) = stage.targets
    if stage.at not in (inner.name, "block") or target.buffer is None or target.buffer.home != "scratch":
        return None
    digits = ((inner.index, None), *target.buffer.digits)
    buffer = Buffer(digits, outer.name)
    factors = _inside_rows(shapes, load, stage.factors, inner.index)
    made = Stage((replace(target, buffer=buffer),), factors, outer.name)
    return replace(schedule, kept=tuple(made if each is stage else each for each in schedule.kept)), False


def _inside_rows(shapes: Shapes, load: Term, factors: Sequence[Factor], batch: str) -> tuple[Factor, ...]:
    """The factors with a loop over the batch inside those over what lies further apart."""
    piece = shapes.stride(load, batch) or 0
    far = [f.role in LOOP_ROLES and (shapes.stride(load, f.index) or 0) > piece for f in factors]
    rows = far.index(False) if False in far else len(far)
    return (*factors[:rows], Factor(batch, None), *factors[rows:])


def _as_it_lies(
    shapes: Shapes, load: Term, outside: frozenset[str], batch: str, machine: Machine
) -> tuple[tuple[Factor, ...], tuple[tuple[str, int | None], ...]]:
    """The loops of a copy in the order of memory, and the digits of its buffer: one inner batch after another."""
    order = sorted(load.free - outside, key=lambda index: (-(shapes.stride(load, index) or 0), index))
    loops, last = [Factor(index, None) for index in order], order[-1]
    if shapes.stride(load, last) == 1 and shapes.is_static(last) and shapes.sizes[last] % machine.lanes == 0:
        loops.append(Factor(last, machine.lanes, "lane"))
    digits = sorted(order, key=lambda index: index != batch)
    return tuple(loops), tuple((index, None) for index in digits)


def _on_outer_loops(root: Stage, outer: Factor) -> Stage:
    """The stage with no loop in parallel inside the one that what is gathered is kept for."""
    names = [factor.name for factor in root.factors]
    most = names.index(outer.name)
    factors = tuple(
        replace(factor, role="loop") if place > most and factor.role == "parallel" else factor
        for place, factor in enumerate(root.factors)
    )
    return replace(root, factors=factors)
