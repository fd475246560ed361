"""The search of cuts with a GPU's prices: a region costs what the roofline says of its first legal candidate.

Where the first cuts keep a narrow float as a wide one, they keep the narrow one here: matrix units multiply narrow
operands, and the conversion is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.passes.cuts import Cuts, Partition
from luminal.passes.region_former import Formed
from luminal.passes.region_terms import RegionTooLargeError
from luminal.passes.value_graph import VIEWS
from luminal.search.cut_search import CutSearch
from luminal.search.forms import Form, Forms
from luminal.search.gpu_candidates import GpuPricer
from luminal.search.machine import Machine
from luminal.search.samples import Samples


class GpuCutSearch(CutSearch):
    """Prices cuts of one graph for one GPU."""

    def __init__(
        self,
        partition: Partition,
        pricer: GpuPricer,
        samples: Samples,
        forms: Forms,
        estimates: dict[str, list[float]] | None = None,
    ) -> None:
        # of the machine, what is the same for every region asks for the bandwidth alone
        machine = Machine(lanes=1, registers=16, bandwidth=pricer.machine.bandwidth)
        super().__init__(partition, machine, samples, forms, estimates)
        self.pricer = pricer

    def first_cuts(self) -> Cuts:
        cuts = super().first_cuts()
        narrowed = Cuts(frozenset(map(self._narrow, cuts.kept)))
        try:
            self.formed_regions(narrowed)
        except RegionTooLargeError:
            return cuts
        return narrowed

    def _narrow(self, number: int) -> int:
        """The value that a value is a view of a wider conversion of, or itself."""
        value = self.partition.graph.values[number]
        while value.op in VIEWS:
            value = value.operands[0]
        if value.op != "cast" or not value.dtype.is_float:
            return number
        source = value.operands[0]
        return source.number if source.dtype.is_float and source.dtype.bits < value.dtype.bits else number

    def estimated(self, formed: Formed, samples: Samples, forms: Sequence[Form]) -> list[float]:
        return list(next(self.pricer.candidates(formed.region, samples, forms, coarse=True)).seconds)
