"""The search of cuts with a GPU's prices: a region costs what the roofline says of its first legal candidate."""

from __future__ import annotations

from luminal.passes.cuts import Partition
from luminal.passes.region_former import Formed
from luminal.search.cut_search import CutSearch
from luminal.search.forms import Forms
from luminal.search.gpu_candidates import GpuPricer
from luminal.search.machine import Machine
from luminal.search.samples import Samples


class GpuCutSearch(CutSearch):
    """Prices cuts of one graph for one GPU."""

    def __init__(self, partition: Partition, pricer: GpuPricer, samples: Samples, forms: Forms) -> None:
        # of the machine, what is the same for every region asks for the bandwidth alone
        machine = Machine(lanes=1, registers=16, bandwidth=pricer.machine.bandwidth)
        super().__init__(partition, machine, samples, forms)
        self.pricer = pricer

    def _seconds(self, formed: Formed) -> list[float]:
        if formed.key not in self._estimates:
            samples, forms = self.samples.of(formed.symbols), self.forms.of(formed.region, formed.key)
            first = next(self.pricer.candidates(formed.region, samples, forms, coarse=True))
            found = list(first.seconds)
            self._estimates[formed.key] = found if len(found) > 1 else found * len(self._weights)
        return self._estimates[formed.key]
