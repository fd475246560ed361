"""Decoding with Llama 3 8B: a plan moves hardly more than the weights and what is kept of each token."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks.gpu_traffic import MOST_TRAFFIC, moved
from luminal.plan.gpu_build import build_for_gpu
from luminal.runtimes.reference import graph_of
from tests.emit_triton.double import use_double
from tests.emit_triton.zoo import imported

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["q8_0", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("bf16", "fp8"))]
)
def test_little_more_than_must_be_is_moved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_double(monkeypatch, None)
    module = imported(f"llama-8b-decode-{name}").imported.module
    graph = graph_of(module)
    types = [*(value.type for value in graph.block.args), *(v.type for v in graph.block.last_op.operands)]
    least = sum(math.prod(size.constant for size in t.shape) * t.dtype.size_bytes for t in types)
    program = build_for_gpu(module, "h200")
    assert least <= moved(program) <= MOST_TRAFFIC * least
