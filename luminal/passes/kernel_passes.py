"""Passes over modules that hold kernels: the regions of graphs as IR, and the placement of scheduled regions."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import DEFAULT_LICENCES, GraphOp
from luminal.dialects.kernel.region_ops import RegionOp, region_of, region_operation
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.errors import CompileError, ScheduleError
from luminal.passes.form_regions import form_regions
from luminal.passes.place import place


def add_regions(module: ModuleOp) -> None:
    """After every graph of primitives, the different regions of its first cut, each once, as kernel.region.

    CompileError for a graph that is not of primitives alone.
    """
    for graph in list(module.body.block.ops):
        if isinstance(graph, GraphOp):
            others = [op.name for op in graph.block.ops if op.name.startswith("hlo.")]
            if others:
                raise CompileError(f"{others[0]} is no primitive: lower-hlo comes before add-regions")
            regions = form_regions(graph).regions.values()
            made = [region_operation(region, f"{graph.graph_name}_{n}") for n, region in enumerate(regions)]
            module.body.block.insert_ops_after(made, graph)


def require_regions(module: ModuleOp, name: str) -> None:
    """CompileError for a module without a kernel.region, on which the pass would do nothing."""
    if not any(isinstance(op, RegionOp) for op in module.body.block.ops):
        raise CompileError(f"there is no kernel.region to {name}: add-regions makes them")


def place_regions(module: ModuleOp) -> None:
    """Replace each scheduled kernel.region by its placed kernel.function; ScheduleError where a schedule is missing,
    CompileError where there is no region."""
    require_regions(module, "place")
    for op in list(module.body.block.ops):
        if not isinstance(op, RegionOp):
            continue
        if op.schedule is None:
            raise ScheduleError(f"kernel.region {op.sym_name.data} has no schedule")
        function = place(region_of(op), parse_schedule(op.schedule.data), op.sym_name.data, DEFAULT_LICENCES)
        module.body.block.insert_op_before(function, op)
        op.detach()
        op.erase()
