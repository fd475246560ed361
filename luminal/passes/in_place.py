"""Lets a kernel write into the memory of an argument that nothing reads any more.

    %7 = add(%5, %6), last read of %5  ->  %7 shares %5

Only where it is proven for every schedule: the argument is an intermediate value whose last reader this is, it is read
at the very address that is written, and in no reduction, scan or loop over the address's own indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import LoopAttribute, Output, ReduceAttribute, Region, ScanAttribute, Term
from luminal.dim import known_equal
from luminal.passes.region_graph import OpaqueStep, RegionGraph, RegionStep, RegionValue, Step


def share_memory(graph: RegionGraph, schedules: Mapping[str, Schedule]) -> tuple[RegionGraph, dict[str, str]]:
    """The graph with `shares` and aliases where a kernel may work in place, under these schedules of its regions.

    A region that works in place is another kernel, with a key of its own, but has the schedule of the region that it
    was: the second result gives the key of that for every key of the new graph.
    """
    origins: dict[str, str] = {}
    values = list(graph.values)
    roots = [_root(values, value.number) for value in values]
    last_read: dict[int, int] = {}
    for number, step in enumerate(graph.steps):
        for value in (*step.arguments, *step.outputs):
            last_read[roots[value]] = number
    kept = {roots[value] for value in graph.outputs}
    steps: list[Step] = []
    regions = dict(graph.regions)
    for number, step in enumerate(graph.steps):
        shared = _shared(step, number, values, roots, last_read, kept, schedules)
        if isinstance(step, RegionStep) and shared:
            outputs = tuple(
                replace(output, alias=shared.get(position, output.alias))
                for position, output in enumerate(step.region.outputs)
            )
            key = step.key + "".join(f" in place {o}:{a}" for o, a in sorted(shared.items()))
            region = regions.setdefault(key, replace(step.region, outputs=list(outputs)))
            origins[key] = step.key
            step = replace(step, region=region, key=key)
            for position, argument in shared.items():
                value, root = step.outputs[position], roots[step.arguments[argument]]
                values[value] = replace(values[value], shares=step.arguments[argument])
                last_read[root] = max(last_read[root], last_read[roots[value]])
                roots = [root if r == roots[value] else r for r in roots]
        steps.append(step)
    used = {step.key for step in steps if not isinstance(step, OpaqueStep)}
    regions = {key: region for key, region in regions.items() if key in used}
    shared_graph = replace(graph, values=values, steps=steps, regions=regions)
    return shared_graph, {key: origins.get(key, key) for key in regions}


def _root(values: list[RegionValue], number: int) -> int:
    while values[number].shares >= 0:
        number = values[number].shares
    return number


def _shared(
    step: Step,
    number: int,
    values: list[RegionValue],
    roots: list[int],
    last_read: Mapping[int, int],
    kept: set[int],
    schedules: Mapping[str, Schedule],
) -> dict[int, int]:
    """Output -> the argument whose memory it may take."""
    if not isinstance(step, RegionStep):
        return {}
    shared: dict[int, int] = {}
    for position, output in enumerate(step.region.outputs):
        value = values[step.outputs[position]]
        if value.kind != "intermediate" or value.shares >= 0 or output.alias >= 0 or output.combine != "set":
            continue
        if output.dynamic is not None or output.guard is not None:
            continue
        if any(target.home == f"out{position}" for target in _buffers(schedules[step.key])):
            continue
        for argument, given in enumerate(step.arguments):
            exclusive = (
                values[roots[given]].kind == "intermediate"
                and roots[given] not in kept
                and last_read[roots[given]] == number
                and [roots[other] for other in step.arguments].count(roots[given]) == 1
                and argument not in shared.values()
                and all(other.alias != argument for other in step.region.outputs)
            )
            same = values[given].dtype == value.dtype and known_equal(values[given].elements, value.elements)
            if exclusive and same and reads_where_it_writes(step.region, argument, output):
                shared[position] = argument
                break
    return shared


def _buffers(schedule: Schedule):
    return [target.buffer for stage in schedule.kept for target in stage.targets if target.buffer is not None]


def reads_where_it_writes(region: Region, argument: int, output: Output) -> bool:
    """Whether an argument is read at `output`'s own address only, each element for no other element's sake."""
    address, readers = output.address, 0
    for other in region.outputs:
        # (term, whether a reduction around it binds an index of the address)
        stack = [(term, False) for term in other.terms]
        seen: set[tuple[Term, bool]] = set()
        while stack:
            term, bound = stack.pop()
            if (term, bound) in seen:
                continue
            seen.add((term, bound))
            if term.op == "load" and term.load.argument == argument:
                direct = term.load.address == address and not term.load.dynamic and not term.load.guarded
                if other is not output or bound or not direct:
                    return False
                readers += 1
            inside = bound or bool(_bound_indices(term) & address.indices)
            stack += [(operand, inside) for operand in term.operands]
    return readers > 0 and address.indices == output.indices


def _bound_indices(term: Term) -> frozenset[str]:
    match term.attribute:
        case ReduceAttribute(indices=indices):
            return frozenset(indices)
        case ScanAttribute(index=index) | LoopAttribute(index=index):
            return frozenset({index})
        case _:
            return frozenset()
