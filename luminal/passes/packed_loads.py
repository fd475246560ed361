"""The constants that a schedule wants laid out anew by the host, and when that is legal.

The kernel is given the new layout in place of the argument, so the load must be the only one of that argument: in
x @ x, where x is a constant, the other factor would be read from the wrong places.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from luminal.dialects.kernel.schedule import Buffer, Schedule
from luminal.dialects.kernel.terms import Region, Term
from luminal.errors import ScheduleError


class PackedLoad(NamedTuple):
    """A load of a constant that a kernel reads from a layout of its own."""

    buffer: Buffer
    load: Term


def packed_loads(region: Region, schedule: Schedule) -> dict[int, PackedLoad]:
    """The arguments that a schedule wants packed: argument -> its layout and the load that says what goes where.

    ScheduleError where a load cannot be packed.
    """
    wanted = [
        target
        for stage in schedule.kept
        for target in stage.targets
        if target.buffer is not None and target.buffer.home == "packed"
    ]
    if not wanted:
        return {}
    found: dict[int, PackedLoad] = {}
    terms = region.terms()
    for target in wanted:
        load = terms[target.term]
        if load.op != "load" or not region.arguments[load.load.argument].constant:
            raise ScheduleError(f"%{target.term} is packed by the host, but is no load of a constant")
        if load.load.dynamic or load.load.guarded or not is_only_load(load, terms):
            raise ScheduleError(f"%{target.term} cannot be packed: it is guarded, or read in two ways")
        assert target.buffer is not None
        found[load.load.argument] = PackedLoad(target.buffer, load)
    return found


def is_only_load(load: Term, terms: Iterable[Term]) -> bool:
    """Whether no other load reads the same argument."""
    return all(t is load or t.op != "load" or t.load.argument != load.load.argument for t in terms)
