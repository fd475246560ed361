"""Decoding with Llama 3 8B: a plan moves hardly more than the weights and what is kept of each token."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.emit_triton.targets import target_named
from luminal.passes.form_regions import form_regions
from luminal.passes.region_graph import OpaqueStep
from luminal.runtimes.reference import graph_of
from luminal.search.forms import Forms
from luminal.search.gpu_candidates import GpuPricer
from luminal.search.gpu_cuts import GpuCutSearch
from luminal.search.gpu_launches import works_of
from luminal.search.hlo_search import Lowered
from luminal.search.samples import sample_sizes
from tests.emit_triton.zoo import imported

pytestmark = pytest.mark.slow


def moved(module: object, target: str) -> tuple[float, list[tuple[float, str]]]:
    """Bytes that the launches of a plan move, by the first candidate of each region, and by launch."""
    machine = target_named(target).machine
    lowered = Lowered.of(module, ranks=True)
    graph = graph_of(lowered.module)
    samples = sample_sizes(lowered.graph.symbols, {}, lowered.partition.requirements)
    pricer, forms = GpuPricer(machine, graph.licences), Forms(graph.licences)
    cuts = GpuCutSearch(lowered.partition, pricer, samples, forms).run()
    found: list[tuple[float, str]] = []
    for step in form_regions(lowered.partition, cuts).steps:
        assert not isinstance(step, OpaqueStep)
        first = next(
            pricer.candidates(step.region, samples.of(step.symbols), forms.of(step.region, step.key))
        )
        launches = [work.launch.memory_bytes for work in works_of(first.function, {}, machine)]
        found += [(each, str(first)) for each in launches]
    return sum(each for each, _ in found), found


@pytest.mark.parametrize("name", ["bf16", "q8_0"])
def test_little_more_than_must_be_is_moved(name: str) -> None:
    module = imported(f"llama-8b-decode-{name}").imported.module
    graph = graph_of(module)
    types = [*(value.type for value in graph.block.args), *(v.type for v in graph.block.last_op.operands)]
    least = sum(math.prod(size.constant for size in t.shape) * t.dtype.size_bytes for t in types)
    total, launches = moved(module, "h200")
    assert total <= 1.05 * least, [(round(each / least, 4), schedule) for each, schedule in launches]
