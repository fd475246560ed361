"""What became of each kernel of a graph, as plain data: its mathematics, traffic, time and rivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.kernel.region_math import region_math
from luminal.dialects.kernel.terms import Region
from luminal.passes.place import place
from luminal.passes.region_graph import OpaqueStep, RegionGraph
from luminal.search.chooser import Choice
from luminal.search.forms import EGraphSize, Forms
from luminal.search.machine import Machine
from luminal.search.record import Considered, OuterRecord, SearchRecord
from luminal.search.samples import Samples
from luminal.search.traffic import Passes, grid_of, operations, traffic

INPUTS = ("input", "constant")
"""Kinds of values that the graph is given."""


@dataclass(frozen=True)
class KernelReport:
    """One kernel.

    `key`: of its region; `launches`: how many steps of a call run it; `sizes`: of its symbols, for all figures;
    `math`: what it computes, under its chosen form; `source`: where its schedule comes from (`RegionRecord`), "" where
    nothing recorded it; `seconds`: of one run, measured or by the model; `passes`: over each of `memory`, arguments and
    outputs by name and type; `operations`: on numbers; `bound`: seconds that no kernel with this traffic falls below.
    """

    key: str
    launches: int
    sizes: Mapping[str, int]
    math: str
    schedule: str
    form: str
    source: str
    seconds: float
    is_measured: bool
    memory: tuple[tuple[str, str], ...]
    passes: tuple[Passes, ...]
    operations: float
    bound: float
    considered: Considered
    egraph: EGraphSize | None
    lines: tuple[str, ...]

    @property
    def bytes(self) -> float:
        return sum(passes.bytes for passes in self.passes)

    @property
    def intensity(self) -> float:
        """Operations for each byte that is moved."""
        return self.operations / max(1.0, self.bytes)


@dataclass(frozen=True)
class SearchReport:
    """The kernels of a graph in the order of their first use, with the cuts and the machine of the model (operations
    and bytes per second of all its threads together), and what a long search of the cuts did."""

    name: str
    kernels: tuple[KernelReport, ...]
    cuts: str
    digest: str
    threads: int
    flops: float
    bandwidth: float
    config: str
    outer: OuterRecord | None = None


def report_of(
    graph: GraphOp,
    digest: str,
    regions: RegionGraph,
    choices: Mapping[str, Choice],
    origins: Mapping[str, str],
    record: SearchRecord,
    forms: Forms,
    machine: Machine,
    samples: Samples,
) -> SearchReport:
    """The report of a compiled graph with its digest; `origins` gives the key that each region was searched under."""
    flops, bandwidth = machine.flops * machine.threads, machine.bandwidth * machine.threads
    steps = [step for step in regions.steps if not isinstance(step, OpaqueStep)]
    launches = Counter(step.key for step in steps)
    first = {step.key: step for step in reversed(steps)}
    kernels: list[KernelReport] = []
    for key in dict.fromkeys(step.key for step in steps):
        step, choice, found = first[key], choices[key], record.regions.get(origins[key])
        sizes = samples.of(step.symbols).expected
        function = place(step.region, choice.schedule, "report")
        passes = traffic(function, step.region, sizes)
        names = _names(graph, regions, step.arguments)
        work, moved = operations(step.region, sizes), sum(each.bytes for each in passes)
        considered = found.considered if found is not None else Considered()
        measured = _measured(considered, choice)
        grid = grid_of(function, step.region, sizes)
        modelled = choice.cost * 1e-9 * grid / max(1.0, min(machine.threads, grid))
        kernels.append(
            KernelReport(
                key,
                launches[key],
                sizes,
                region_math(step.region, names),
                str(choice.schedule),
                choice.form,
                found.source if found is not None else "",
                modelled if measured is None else measured,
                measured is not None,
                _memory(step.region, names),
                tuple(passes),
                work,
                max(work / flops, moved / bandwidth),
                considered,
                forms.size(origins[key]),
                step.sources,
            )
        )
    return SearchReport(
        graph.graph_name,
        tuple(kernels),
        record.graphs[digest],
        digest,
        machine.threads,
        flops,
        bandwidth,
        record.config(),
        record.outer.get(digest),
    )


def _measured(considered: Considered, choice: Choice) -> float | None:
    """The seconds that were measured of a choice."""
    for tried in considered.tried:
        if (tried.form, tried.schedule) == (choice.form, str(choice.schedule)):
            return tried.seconds
    return None


def _names(graph: GraphOp, regions: RegionGraph, arguments: tuple[int, ...]) -> dict[int, str]:
    """Names of arguments by position: those of the graph's inputs, v and a number for other values."""
    found: dict[int, str] = {}
    for position, number in enumerate(arguments):
        value = regions.values[number]
        hint = (
            graph.block.args[value.position].name_hint
            if value.position >= 0 and value.kind in INPUTS
            else None
        )
        name = hint if hint is not None and hint.isidentifier() else f"v{number}"
        while name in found.values():
            name += "_"
        found[position] = name
    return found


def _memory(region: Region, names: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    arguments = [
        (names.get(number, f"arg{number}"), f"{a.dtype} [{a.elements}]")
        for number, a in enumerate(region.arguments)
    ]
    outputs = [(f"out{number}", f"{o.dtype} [{o.elements}]") for number, o in enumerate(region.outputs)]
    return (*arguments, *outputs)
