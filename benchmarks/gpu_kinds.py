"""Every kind of kernel once on the device, beside eager: the first section of `gpu_check.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.gpu_bench import Bench, Row, one_line, relative_error
from benchmarks.gpu_models import Q8, Fp8, attention, causal, grouped


def kinds(bench: Bench) -> Iterator[Row]:
    """Every kind of kernel once, one candidate of each, against eager."""
    n, m = bench.size(1000, 20), bench.size(513, 9)

    def f32(*shape: int) -> torch.Tensor:
        return bench.randn(*shape, dtype=torch.float32)

    def f64(*shape: int) -> torch.Tensor:
        return bench.randn(*shape, dtype=torch.float64)

    def eight(*shape: int) -> torch.Tensor:
        return f32(*shape).to(torch.float8_e4m3fn)

    def positions(count: int, below: int) -> torch.Tensor:
        return torch.randint(0, below, (count,), device=bench.device)

    half, narrow = torch.float16, torch.bfloat16
    x, y, square = f32(n, m), f32(n, m), bench.size(256, 16)
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
        "elementwise": (lambda a, b: torch.sin(a) * torch.exp(b) + torch.tanh(a).abs().sqrt(), (x, y), 1e-5),
        "integers": (lambda a: (a * 3 // 2 % 7, a >> 1, a ^ 5), (positions(n, 1000),), 0.0),
        "comparisons and select": (lambda a, b: torch.where(a > b, a, -b), (x, y), 0.0),
        "sum of rows": (lambda a: a.sum(1), (x,), 1e-5),
        "sum of columns": (lambda a: a.sum(0), (x,), 1e-5),
        "sum of everything": (lambda a: a.sum(), (x.abs(),), 1e-5),
        "maximum with NaN": (lambda a: a.amax(1), (x.index_fill(1, positions(1, m), float("nan")),), 0.0),
        "argmax": (lambda a: a.argmax(1), (x,), 0.0),
        "cumulative sum": (lambda a: a.cumsum(1), (x,), 1e-4),
        "softmax": (lambda a: a.softmax(1), (x,), 1e-5),
        "softmax with rows of -inf": (lambda a: a.softmax(1), (x.index_fill(0, positions(1, n), -float("inf")),), 1e-5),
        "layer norm": (lambda a: torch.nn.functional.layer_norm(a, (m,)), (x,), 1e-4),
        "rms norm": (lambda a: torch.nn.functional.rms_norm(a, (m,)), (x,), 1e-4),
        "product f32": (torch.matmul, (f32(square, m), f32(m, square)), 1e-4),
        "product f16": (torch.matmul, (bench.randn(square, 64, dtype=half), bench.randn(64, square, dtype=half)), 4e-3),
        "product bf16": (torch.matmul, (bench.randn(square, 64), bench.randn(64, square)), 2e-2),
        "product bf16, odd sizes": (torch.matmul, (bench.randn(7, 33), bench.randn(33, 5)), 2e-2),
        "batched product": (torch.matmul, (bench.randn(3, square, 32), bench.randn(3, 32, square)), 2e-2),
        "matrix and vector": (torch.matmul, (f32(n, m), f32(m)), 1e-4),
        "product and what follows": (
            lambda a, b, c: torch.nn.functional.gelu(a @ b + c),
            (bench.randn(square, 64), bench.randn(64, square), bench.randn(square)),
            2e-2,
        ),
        "product f64": (torch.matmul, (f64(40, 64), f64(64, 48)), 1e-12),
        "product e4m3": (lambda a, b: a.float() @ b.float().t(), (eight(square, 64), eight(square, 64)), 1e-3),
        "weights in e4m3": (Fp8(64, square).to(bench.device), (bench.randn(square, 64),), 2e-2),
        "weights in Q8_0": (Q8(64, square).to(bench.device), (bench.randn(square, 64),), 2e-2),
        "a vector and weights in Q8_0": (Q8(64, square).to(bench.device), (bench.randn(1, 64),), 2e-2),
        "grouped causal attention": (
            grouped,
            (bench.randn(1, 8, square, 64), bench.randn(1, 2, square, 64), bench.randn(1, 2, square, 64)),
            2e-2,
        ),
        "attention": (attention, tuple(bench.randn(2, 2, square, 64) for _ in range(3)), 2e-2),
        "causal attention f32": (causal, tuple(f32(1, 2, square, 32) for _ in range(3)), 1e-4),
        "convolution": (torch.nn.functional.conv2d, (f32(2, 3, 16, 16), f32(4, 3, 3, 3)), 1e-4),
        "embedding": (lambda w, i: w[i], (x, positions(17, n)), 0.0),
        "scatter": (lambda a, i, b: a.index_add(0, i, b), (x, positions(5, n), f32(5, m)), 1e-5),
        "views": (lambda a: (a.t()[1:, ::2].flip(0) + 1.0, torch.cat([a, a], 1)), (x,), 0.0),
        "sort": (lambda a: a.sort(1), (x,), 0.0),
        "casts": (lambda a: (a.to(half), a.to(narrow), a.to(torch.int32)), (x,), 0.0),
    }  # fmt: skip
    for case, (function, inputs, tolerance) in cases.items():
        torch._dynamo.reset()
        begin = time.perf_counter()
        try:
            run = bench.luminal(function, candidates=1)
            error = max(
                relative_error(run(*inputs), function(*inputs)) for _ in range(3)
            )  # launched, then replayed
            row: Row = {"error": error, "ok": error <= tolerance}
        except Exception as failure:
            row = {"ok": False, "failed": one_line(failure)}
            if "DriverError" in row["failed"]:
                yield {"case": case, "what": "luminal", **row}
                return  # the device is lost to this process
        yield {"case": case, "what": "luminal", **row, "compile_seconds": time.perf_counter() - begin}
    yield _index_error(bench, x)


def _index_error(bench: Bench, x: torch.Tensor) -> Row:
    run = bench.luminal(lambda a, i: a[i], candidates=1)
    row: Row = {"case": "an index out of range", "what": "luminal", "ok": False}
    try:
        run(x, torch.tensor([0, x.shape[0]], device=bench.device))
    except IndexError:
        return row | {"ok": True}
    except Exception as failure:
        return row | {"failed": one_line(failure)}
    return row | {"failed": "no error"}
