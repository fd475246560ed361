"""Writes that may meet, as those of a scatter: which schedules keep their order.

    out[i1 + 256 * row[i0]] += x[i0, i1]   for i0 in order; the columns i1 never meet, and may come in any order

Where two writes may fall on one place, they run in the natural order of the output's indices, the last one fastest.
An index that moves the address by less than all that the rest of it is a multiple of is a column: writes of different
columns never meet.
"""

from __future__ import annotations

from typing import cast

from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.schedule import Factor, Schedule
from luminal.dialects.kernel.terms import Output, Region, Term
from luminal.dim import Dim, as_dim, divide_exact, known_less, typical
from luminal.errors import ScheduleError

REGISTERS = frozenset({"tile", "block", "lane", "group"})


def check_order(region: Region, schedule: Schedule) -> None:
    """ScheduleError where a schedule may change the order of writes that meet."""
    for stage in schedule.roots:
        for target in stage.targets:
            output = region.outputs[target.output]
            if region.is_ordered(output):
                _check(output, columns_of(region, output), stage.factors)


def _check(output: Output, columns: frozenset[str], factors: tuple[Factor, ...]) -> None:
    meeting = sorted(output.indices - columns, key=natural_key)
    found = [factor for factor in factors if factor.index in meeting]
    for factor in found:
        if factor.role == "parallel":
            raise ScheduleError(f"loop {factor} is parallel, but writes along {factor.index} may meet")
    if [meeting.index(factor.index) for factor in found] != sorted(meeting.index(f.index) for f in found):
        raise ScheduleError(f"writes along {', '.join(meeting)} may meet: they run in that order")
    held = [factor for factor in found if factor.role in REGISTERS]
    if len(held) > 1 or (held and held[0] is not found[-1]):
        raise ScheduleError(f"{held[0]} holds writes that may meet in registers, out of their order")


def columns_of(region: Region, output: Output) -> frozenset[str]:
    """The indices of an output along which writes never meet."""
    moved = output.dynamic.free if output.dynamic is not None else frozenset[str]()
    strides = {i: stride for i, stride in output.address.strides if i not in moved}
    fixed = [stride for i, stride in output.address.strides if i in moved]
    multiples = [*fixed, *([] if output.dynamic is None else [_multiple(output.dynamic)])]
    columns = {index for index in output.indices if region.extents[index] == 1}
    reach = as_dim(0)
    for index, stride in sorted(strides.items(), key=lambda item: typical(item[1])):
        if not known_less(reach, stride):
            break
        reach = reach + stride * (region.extents[index] - 1)
        if not all(known_less(reach, multiple) for multiple in multiples):
            break
        columns.add(index)
    return frozenset(columns)


def _multiple(term: Term) -> Dim:
    """A number that every value of an i64 term is a multiple of."""
    match term.op:
        case "constant":
            bits = cast(int, term.attribute)
            return as_dim(abs(bits - (bits >> 63 << 64)))
        case "dimension":
            return cast(Dim, term.attribute)
        case "mul":
            left, right = map(_multiple, term.operands)
            return left * right
        case "add":
            left, right = map(_multiple, term.operands)
            if left == 0 or right == 0:  # which is a multiple of everything
                return left + right
            if divide_exact(left, right) is not None:
                return right
            return left if divide_exact(right, left) is not None else as_dim(1)
        case _:
            return as_dim(1)
