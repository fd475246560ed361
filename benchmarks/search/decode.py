"""One query against many keys: the part of this machine's bandwidth, and the passes over keys and values.

What reads takes turns with what is measured, and reads the same bytes where they lie, so that both find as much of
them in a cache.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention import inputs, model
from benchmarks.search.turns import TOLERANCE, check_equal, medians, turns
from luminal.bench.peak import READS, reader
from luminal.bench.report import Report, Settings
from luminal.dump import collect

ROUNDS, SLICE = 15, 0.15


def measure(report: Report, settings: Settings) -> None:
    keys = 1024 if settings.quick else 8192
    q, k, v = inputs(keys)
    q = q[:, :, :1].contiguous()
    naive = model()
    compiled = torch.compile(naive, backend="luminal", dynamic=False)
    read = reader([k.numpy(), v.numpy()], settings.threads)
    with torch.inference_mode(), collect() as levels:
        wanted = naive(q, k, v)
        check_equal("luminal", compiled(q, k, v), wanted, TOLERANCE)
        functions = {
            "luminal": lambda: compiled(q, k, v),
            "sdpa": lambda: scaled_dot_product_attention(q, k, v),
            "eager": lambda: naive(q, k, v),
            "read": read,
        }
        rounds, seconds = (2, 0.02) if settings.quick else (ROUNDS, SLICE)
        times = turns(functions, rounds, seconds)
    times["read"] = [each / READS for each in times["read"]]
    peers = medians(times)
    ours, reading = peers.pop("luminal"), peers.pop("read")
    case, size = f"1 query, {keys} keys", k.nbytes + v.nbytes
    report.times(case, "f32", ours, peers, read_ms=reading)
    report.figure(
        f"{case}, of read bandwidth",
        reading / ours,
        "x",
        at_least=0.85,
        read_gbytes=round(size / reading / 1e6, 1),
        luminal_gbytes=round(size / ours / 1e6, 1),
    )
    passes: dict[str, float] = {}
    for kernel in levels[-1].reports[-1].kernels:
        for (name, type_), each in zip(kernel.memory, kernel.passes, strict=True):
            if type_ == f"f32 [{k.numel()}]":
                passes[name] = passes.get(name, 0.0) + each.loops
    report.figure(
        "passes over keys or values, the most", max(passes.values()), "passes", at_most=1.0, **passes
    )
