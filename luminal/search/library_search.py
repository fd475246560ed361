"""Library kernels as candidates: where a row of the table matches, the library and the generated kernels are timed.

What is timed is the operation with the elementwise operations behind it, as a generated kernel would hold them, once
for all equal places.  The library is taken where it is faster by more than `GAIN`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.hlo.table import HloOp
from luminal.passes.hlo_graph import VIEWS, part_of
from luminal.passes.value_graph import Interface
from luminal.runtimes.reference import graph_of
from luminal.search.hlo_rules.apply import apply_sites
from luminal.search.hlo_rules.rule import Site, View
from luminal.search.library_table import LIBRARY, LibraryRow

GAIN = 0.05
"""A library step is taken where it takes that much less time, as a part of the generated kernels' time: it ends a
native segment, which costs more in a plan than alone."""
LONGEST_TAIL = 6
Contest = Callable[[ModuleOp, ModuleOp], "tuple[float, float] | str"]
"""Seconds of two equal modules on this machine, generated and with the library; or why they were not timed."""


@dataclass
class LibrarySearch:
    """The search for library kernels in one graph; `verdicts` say what became of each row that matched, by row and
    type of result.

    `contest` times a pair, None where nothing may be timed.
    """

    hlo: ModuleOp
    device: str = "cpu"
    contest: Contest | None = None
    table: tuple[LibraryRow, ...] = LIBRARY
    verdicts: dict[str, str] = field(default_factory=dict[str, str])

    def run(self) -> ModuleOp | None:
        """The graph with the library steps that were chosen; None where none was."""
        view, chosen = View(graph_of(self.hlo)), False
        for row in self.table:
            groups: dict[object, list[Site]] = {}
            for site in row.sites(view):
                groups.setdefault(site.key(view), []).append(site)
            for sites in groups.values():
                name = f"{row.name}: {len(sites)} x {sites[0].replaced[0].type}"
                self.verdicts[name], taken = self._verdict(row, sites[0], view)
                if taken:
                    apply_sites(view.graph, sites, row.write)
                    view, chosen = View(view.graph), True
        return self.hlo if chosen else None

    def _verdict(self, row: LibraryRow, site: Site, view: View) -> tuple[str, bool]:
        """What is said of a row at a place, and whether it is taken."""
        if row.device != self.device or row.build is None:
            return "not on this device", False
        if row.package not in sys.modules:
            return f"{row.package} is not loaded", False
        if self.contest is None:
            return 'not timed: mode "max-autotune" does', False
        times = self.contest(*pair_of(row, site, view))
        if isinstance(times, str):
            return f"not timed: {times}", False
        generated, library = times
        if library < generated * (1 - GAIN):
            return f"chosen: {generated / library:.2f} times as fast as what is generated", True
        return f"{library / generated:.2f} times the time of what is generated", False


def pair_of(row: LibraryRow, site: Site, view: View) -> tuple[ModuleOp, ModuleOp]:
    """A place and the elementwise operations behind it as a module of its own, generated and with the row's call."""
    chain = _chain(site.replaced[0], view)
    inputs = _inputs(chain, site)
    generated = part_of(view.graph, "contest", [chain[-1]], inputs, view.graph.symbols)
    constants = frozenset(n for n, value in enumerate(inputs) if value in view.constants)
    Interface(constants=constants).attach(graph_of(generated))
    library = generated.clone()
    own = View(graph_of(library))
    apply_sites(own.graph, row.sites(own)[:1], row.write)
    return generated, library


def _chain(value: SSAValue, view: View) -> list[SSAValue]:
    """A value and what elementwise operations make of it, as long as nothing else reads it."""
    chain = [value]
    while len(chain) <= LONGEST_TAIL:
        reader = view.reader(chain[-1])
        if reader is None or not (reader.row.elementwise or reader.name in VIEWS):
            break
        chain.append(reader.results[0])
    return chain


def _inputs(chain: Sequence[SSAValue], site: Site) -> list[SSAValue]:
    """What a place and its chain read, before views of it; literals stay where they are."""
    read = [value for group in site.named.values() for value in group]
    for made in chain[1:]:
        read += [operand for operand in cast(HloOp, made.owner).operands if operand not in chain]
    found: dict[SSAValue, None] = {}
    for value in read:
        while isinstance(value.owner, HloOp) and value.owner.name in VIEWS:
            value = value.owner.operands[0]
        if not isinstance(value.owner, HloOp) or value.owner.operands:
            found[value] = None
    return list(found)
