"""Seconds in e-graphs while a transformer of one layer is compiled, and while one of 32 alike layers is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch

from benchmarks.search.llama import SHAPE, SMALL, llama, token_ids
from luminal.bench.report import Report, Settings, needed
from luminal.search.egraph import Budget, Classes, EGraph


def measure(report: Report, settings: Settings) -> None:
    needed("transformers")
    shape, many = (SMALL, 3) if settings.quick else (SHAPE, 32)
    counts: list[int] = []
    for number, layers in enumerate((1, many)):
        report.progress(number, 2)
        seconds = _saturations(layers, shape)
        counts.append(len(seconds))
        report.figure(
            f"{layers} layers", sum(seconds), "s", at_most=1.0, e_graphs=len(seconds), longest=max(seconds)
        )
    report.figure(
        f"e-graphs of {many} layers beyond those of one", counts[1] - counts[0], "e-graphs", at_most=0
    )


def _saturations(layers: int, shape: Mapping[str, Any]) -> list[float]:
    """The seconds of each e-graph."""
    found: list[float] = []
    saturate = EGraph.saturate

    def timed(graph: EGraph, budget: Budget) -> Classes:
        begun = time.perf_counter()
        try:
            return saturate(graph, budget)
        finally:
            found.append(time.perf_counter() - begun)

    torch._dynamo.reset()
    with torch.inference_mode(), mock.patch.object(EGraph, "saturate", timed):
        torch.compile(llama(layers, shape), backend="luminal")(token_ids(shape))
    return found
