"""The pass that gives every region of a module a schedule, from the model alone: nothing is timed."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr

from luminal.dialects.kernel.region_ops import RegionOp, region_of
from luminal.dialects.kernel.region_text import region_key
from luminal.dim import Symbol, collect_symbols
from luminal.search.chooser import ModelChooser
from luminal.search.machine import Machine

MACHINE = Machine(lanes=8, registers=16)
"""256-bit vectors: what the schedules are for, the same on every machine."""
SIZE = 64
"""What a symbol is taken to be, as far as its range allows."""


def schedule_regions(module: ModuleOp) -> None:
    """Set the schedule of each kernel.region that has none; ScheduleError where none is legal."""
    for op in module.body.block.ops:
        if isinstance(op, RegionOp) and op.schedule is None:
            region = region_of(op)
            hint = {symbol.name: _size(symbol) for symbol in collect_symbols(region.dims()).values()}
            choice = ModelChooser(MACHINE).choose(region, region_key(region), hint)
            op.properties["schedule"] = StringAttr(str(choice.schedule))


def _size(symbol: Symbol) -> int:
    size = max(symbol.minimum, SIZE)
    return size if symbol.maximum is None else min(size, symbol.maximum)
