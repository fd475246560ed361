"""Sorts of a plan: native where they can be, else through torch; the first elements by a selection, ties and NaN
included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.dim import as_dim
from luminal.dtype import f8e4m3fn, i64
from luminal.passes.region_graph import OpaqueStep, RegionGraph
from luminal.plan.assemble import sort_sizes
from luminal.plan.library import run_library
from luminal.plan.plan import KernelStep
from tests.plan.helpers import S, graph_of, value

KINDS = {
    "random": lambda x: x,
    "ties": lambda x: (x * 3).round() / 3,
    "equal": torch.zeros_like,
    "nan": lambda x: torch.where(torch.rand_like(x) < 0.1, float("nan"), x),
    "signed zeros": lambda x: torch.where(x > 1.5, x, x.sign() * 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("axis, count", [(1, 1), (1, 7), (1, 100), (0, 2), (1, 0)])
def test_the_first_are_those_of_a_stable_sort(kind: str, descending: bool, axis: int, count: int) -> None:
    torch.manual_seed(count)
    x = KINDS[kind](torch.randn(16, 100))
    shape = [count if a == axis else size for a, size in enumerate(x.shape)]
    found = torch.empty(shape), torch.empty(shape, dtype=torch.int64)
    run_library("sort", {"axis": axis, "descending": descending, "count": count}, [x], found, {})
    wanted = torch.sort(x, dim=axis, descending=descending, stable=True)
    for mine, whole in zip(found, wanted, strict=True):
        expected = whole.narrow(axis, 0, count)
        torch.testing.assert_close(mine, expected, rtol=0, atol=0, equal_nan=True)


def sorting() -> RegionGraph:
    values = [value(0, "input", position=0), value(1, "output", position=0)]
    values += [value(2, "output", position=1, dtype=i64)]
    return graph_of(values, [OpaqueStep("sort", (0,), (1, 2), {"axis": 0, "descending": False})], (1, 2))


def test_row_major_sorts_are_native() -> None:
    graph = sorting()
    sizes = {"outer": as_dim(1), "size": S, "inner": as_dim(1), "count": S}
    assert sort_sizes(graph.steps[0], graph) == sizes
    assert sort_sizes(OpaqueStep("extern", (0,), (1, 2), {}), graph) is None
    for changed in (replace(graph.values[0], strides=(as_dim(2),)), replace(graph.values[0], dtype=f8e4m3fn)):
        assert sort_sizes(graph.steps[0], replace(graph, values=[changed, *graph.values[1:]])) is None


def test_a_native_sort_between_kernels_is_in_their_segment() -> None:
    cx = lm.Graph()
    s = lm.dim("s", 1, 64)
    x = cx.tensor((s, 3, 4))
    values, places = (x * 2.0).sort(1)
    results = [(values + 1.0).output(), places.output()]
    cx.build_search_space(lm.CPURuntime, buckets="declared")
    runtime = cx.search(lm.CPURuntime(), 1)
    plan = runtime.executable.plan  # pyright: ignore
    assert all(isinstance(step, KernelStep) for step in plan.steps) and len(plan.segments) == 1
    for size in (1, 5, 64):
        data = np.random.default_rng(size).standard_normal((size, 3, 4), np.float32)
        runtime.set_data(x, data)
        runtime.execute({"s": size})
        assert np.array_equal(runtime.get_numpy(results[0]), np.sort(data * 2, 1) + 1)
        assert np.array_equal(runtime.get_numpy(results[1]), np.argsort(data, 1, kind="stable"))
