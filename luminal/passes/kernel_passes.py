"""Passes over modules of kernels: give every region a schedule, and place scheduled regions."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import DEFAULT_LICENCES
from luminal.dialects.kernel.region_ops import RegionOp, region_of
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.errors import ScheduleError
from luminal.passes.place import place


def place_regions(module: ModuleOp) -> None:
    """Replace each scheduled kernel.region by its placed kernel.function; ScheduleError where a schedule is missing."""
    for op in list(module.body.block.ops):
        if not isinstance(op, RegionOp):
            continue
        if op.schedule is None:
            raise ScheduleError(f"kernel.region {op.sym_name.data} has no schedule")
        function = place(region_of(op), parse_schedule(op.schedule.data), op.sym_name.data, DEFAULT_LICENCES)
        module.body.block.insert_op_before(function, op)
        op.detach()
        op.erase()


