"""The pass that gives every region of a module a schedule, from the model alone: nothing is timed."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr

from luminal.dialects.kernel.region_ops import RegionOp, region_of
from luminal.dialects.kernel.region_text import region_key
from luminal.dim import collect_symbols
from luminal.passes.kernel_passes import require_regions
from luminal.search.chooser import ModelChooser
from luminal.search.machine import Machine
from luminal.search.samples import sample_sizes

MACHINE = Machine(lanes=8, registers=16)
"""256-bit vectors: what the schedules are for, the same on every machine."""


def schedule_regions(module: ModuleOp) -> None:
    """Set the schedule of each kernel.region that has none; ScheduleError where none is legal, CompileError where there
    is no region."""
    require_regions(module, "schedule")
    for op in module.body.block.ops:
        if isinstance(op, RegionOp) and op.schedule is None:
            region = region_of(op)
            samples = sample_sizes(list(collect_symbols(region.dims()).values()), {})
            choice = ModelChooser(MACHINE).choose(region, region_key(region), samples)
            op.properties["schedule"] = StringAttr(str(choice.schedule))
