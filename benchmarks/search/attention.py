"""Attention as one writes it against torch's own and against eager: time, and the form that the search found."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention import inputs, model
from benchmarks.search.turns import TOLERANCE, check_equal, medians, turns
from luminal.bench.report import Report, Settings
from luminal.dump import collect

ROUNDS, SLICE = 9, 0.3


def measure(report: Report, settings: Settings) -> None:
    length = 256 if settings.quick else 2048
    q, k, v = inputs(length)
    naive = model()
    compiled = torch.compile(naive, backend="luminal", dynamic=False)
    with torch.inference_mode(), collect() as levels:
        wanted = naive(q, k, v)
        check_equal("luminal", compiled(q, k, v), wanted, TOLERANCE)
        check_equal("sdpa", scaled_dot_product_attention(q, k, v), wanted, TOLERANCE)
        functions = {
            "luminal": lambda: compiled(q, k, v),
            "sdpa": lambda: scaled_dot_product_attention(q, k, v),
            "eager": lambda: naive(q, k, v),
        }
        rounds, seconds = (2, 0.02) if settings.quick else (ROUNDS, SLICE)
        peers = medians(turns(functions, rounds, seconds))
    ours = peers.pop("luminal")
    report.times(f"length {length}", "f32", ours, peers)
    report.figure(f"length {length}, over sdpa", peers["sdpa"] / ours, "x", at_least=1.2)
    report.figure(f"length {length}, over eager", peers["eager"] / ours, "x", at_least=4.0)
    kernels = levels[-1].reports[-1].kernels
    report.figure("kernels", len(kernels), "kernels", at_most=1)
    report.figure(
        "kernels that fold over the keys in one pass",
        sum(kernel.form.startswith("folds") for kernel in kernels),
        "kernels",
        at_least=1,
        passes_in_memory=[round(each.memory, 2) for each in kernels[0].passes],
        form=kernels[0].form,
        schedule=kernels[0].schedule,
    )
