"""Suite `gemm`: matrix products: square, skinny, tall, tiny, batched, of transposed operands, with epilogues."""

from __future__ import annotations

from typing import Any

from benchmarks.formula import Data, Row


def product(o: Any, x: Any, y: Any) -> Any:
    return x @ y


def linear(o: Any, x: Any, weight: Any) -> Any:
    """As linear layers store their weights: a row for each result."""
    return x @ o.permute(weight, (1, 0))


def gelu_linear(o: Any, x: Any, weight: Any, bias: Any) -> Any:
    return o.gelu(x @ o.permute(weight, (1, 0)) + bias)


def gated(o: Any, x: Any, gate: Any, up: Any) -> Any:
    return o.silu(x @ o.permute(gate, (1, 0))) * (x @ o.permute(up, (1, 0)))


def of_batch(o: Any, x: Any, y: Any) -> Any:
    return x @ o.permute(y, (0, 2, 1))


LINEAR = (
    (1, 768, 768), (1, 4096, 4096), (4, 4096, 4096), (16, 2048, 2048), (128, 768, 3072), (512, 768, 768),
    (512, 3072, 768), (4096, 64, 64), (8, 512, 32000),
)  # fmt: skip
"""Rows, depth and columns of products with a weight that stays: skinny, tall, and those of transformers."""

ROWS = [
    *(Row(f"square {n}", product, [Data((n, n))] * 2, quick=n == 256)
      for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
    *(Row(f"square {n} in bf16", product, [Data((n, n), "bf16")] * 2, dtype="bf16") for n in (64, 512, 1024)),
    *(Row(f"weight, {m}x{k}x{n}", linear, [Data((m, k))], [Data((n, k))], quick=m == 16) for m, k, n in LINEAR),
    *(Row(f"weight in bf16, {m}x{k}x{n}", linear, [Data((m, k), "bf16")], [Data((n, k), "bf16")], dtype="bf16")
      for m, k, n in ((1, 4096, 4096), (128, 768, 3072), (512, 768, 768))),
    Row("tall, 65536x64x64", product, [Data((65536, 64)), Data((64, 64))]),
    Row("deep, 64x65536x64", product, [Data((64, 65536)), Data((65536, 64))]),
    Row("outer, 1024x8x1024", product, [Data((1024, 8)), Data((8, 1024))]),
    Row("odd sizes, 509x1021x257", product, [Data((509, 1021)), Data((1021, 257))]),
    Row("left transposed, 512", lambda o, x, y: o.permute(x, (1, 0)) @ y, [Data((512, 512))] * 2),
    Row("right transposed, 512", lambda o, x, y: x @ o.permute(y, (1, 0)), [Data((512, 512))] * 2),
    Row("both transposed, 512", lambda o, x, y: o.permute(x, (1, 0)) @ o.permute(y, (1, 0)), [Data((512, 512))] * 2),
    Row("batch of 8, 256", product, [Data((8, 256, 256))] * 2),
    Row("batch of 64, 32", product, [Data((64, 32, 32))] * 2),
    Row("batch of 512, 8", product, [Data((512, 8, 8))] * 2),
    Row("batch of 12, 128x64x128, right transposed", of_batch, [Data((12, 128, 64))] * 2),
    Row("gelu(x w + b), 128x768x3072", gelu_linear, [Data((128, 768))], [Data((3072, 768)), Data((3072,))], quick=True),
    Row("gelu(x w + b), 1x768x3072", gelu_linear, [Data((1, 768))], [Data((3072, 768)), Data((3072,))]),
    Row("gelu(x w + b), 32x16x64", gelu_linear, [Data((32, 16))], [Data((64, 16)), Data((64,))]),
    Row("gelu(x w + b) in bf16, 128x768x3072", gelu_linear, [Data((128, 768), "bf16")],
        [Data((3072, 768), "bf16"), Data((3072,), "bf16")], dtype="bf16"),
    Row("silu(x g) * (x u), 128x576x1536", gated, [Data((128, 576))], [Data((1536, 576))] * 2),
    Row("softmax(x w), 512x768x1000", lambda o, x, w: o.softmax(linear(o, x, w), -1), [Data((512, 768))],
        [Data((1000, 768), scale=0.05)]),
]  # fmt: skip
CASES = [row.case() for row in ROWS]
