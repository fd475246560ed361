"""The parts of a compilation: the primitive graph for each box of sizes, cut into regions.

There is one part for all sizes, one for each box that the dims' buckets make, or one for each of those that pay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from luminal.dialects.graph_op import GraphOp
from luminal.dim.buckets import Box, boxes, bucketed
from luminal.options import CompileOptions, thread_count
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.narrow import narrow
from luminal.passes.region_graph import RegionGraph
from luminal.plan.measure import host_machine
from luminal.search.buckets import BucketAdvice, expected_sizes
from luminal.search.config import SearchConfig, graph_digest
from luminal.search.cut_search import CutSearch
from luminal.search.forms import Forms
from luminal.search.long_search import LongSearch
from luminal.search.samples import Samples, sample_sizes
from luminal.stats import Stats

MOST_SPLIT = {"default": 1, "max-autotune": 2}
"""Of how many symbols the sizes are split between two programs where no buckets are declared, by mode."""


@dataclass(frozen=True)
class Part:
    """A primitive graph for the sizes of a box, its regions, and the sizes that they are searched for."""

    box: Box
    graph: GraphOp
    samples: Samples
    cuts: Cuts
    regions: RegionGraph


@dataclass(frozen=True)
class Divider:
    """Divides a primitive graph by sizes, and cuts what each gets: for interpreters (not `searched`) by the first cuts,
    for this machine by searched ones, and by those of a config where it has them."""

    searched: bool
    options: CompileOptions
    forms: Forms
    config: SearchConfig
    stats: Stats

    def parts(self, graph: GraphOp, partition: Partition, estimates: dict[str, list[float]]) -> list[Part]:
        """The graph, whose partition is given, for the sizes of each program; `estimates` are what some regions cost at
        the expected sizes."""
        hint = dict(self.options.hint)
        declared = bucketed(graph.symbols)
        if declared:
            return self._narrowed(graph, boxes(graph.symbols, declared), [hint])
        whole = self._part(graph, partition, {}, hint, estimates)
        if not self.searched or self.options.buckets == "declared":
            return [whole]
        with self.stats.stage("regions"):
            advice = BucketAdvice(whole.regions, host_machine(thread_count()), self.forms)
            advised = advice.buckets(graph.symbols, whole.samples, MOST_SPLIT[self.options.mode])
        if not advised:
            return [whole]
        return self._narrowed(graph, boxes(graph.symbols, advised), whole.samples.all)

    def recut(self, parts: list[Part], long: LongSearch) -> list[Part]:
        """The parts under cuts that a long search finds, but for those that a config has cut."""
        found: list[Part] = []
        with self.stats.stage("schedule"):
            for part in parts:
                digest, partition = graph_digest(part.graph), Partition.of(part.graph)
                if digest not in self.config.graphs:
                    cuts = long.cuts(digest, partition, part.samples, part.cuts, len(parts) - len(found))
                    part = replace(part, cuts=cuts, regions=form_regions(partition, cuts))
                found.append(part)
        return found

    def _narrowed(self, graph: GraphOp, wanted: list[Box], known: Sequence[Mapping[str, int]]) -> list[Part]:
        """The graph for each box; where it fails for all sizes of one, they are left to the general program."""
        with self.stats.stage("lower"):
            found = [(box, narrow(graph, box)) for box in wanted]
            if wanted[-1] and any(made is None for _, made in found):
                found.append(({}, narrow(graph, {})))
        return [
            self._part(made, Partition.of(made), box, expected_sizes(graph.symbols, box, known), {})
            for box, made in found
            if made is not None
        ]

    def _part(
        self,
        graph: GraphOp,
        partition: Partition,
        box: Box,
        expected: Mapping[str, int],
        estimates: dict[str, list[float]],
    ) -> Part:
        """The graph's regions for a box of sizes."""
        with self.stats.stage("regions"):
            samples = sample_sizes(graph.symbols, expected, partition.requirements)
            cuts = self.config.cuts(graph_digest(graph), partition) if self.config.graphs else None
            cuts = cuts or self._cut(partition, samples, estimates)
            regions = form_regions(partition, cuts)
        return Part(box, graph, samples, cuts, regions)

    def _cut(self, partition: Partition, samples: Samples, estimates: dict[str, list[float]]) -> Cuts:
        if not self.searched:
            return initial_cuts(partition)
        return CutSearch(partition, host_machine(thread_count()), samples, self.forms, estimates).run()
