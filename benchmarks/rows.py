"""Suite `rows`: what works on rows: softmax and norms, losses, scans, sorting, gathers and scatters."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.formula import Data, Row

SQUARE = (2048, 2048)
SHAPES = ((128, 64), (512, 768), (2048, 2048), (8, 32000))
"""Of softmax and the norms: short rows, those of a small model, long ones, those of a vocabulary."""


def text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def softmax(o: Any, x: Any) -> Any:
    return o.softmax(x, -1)


def topk(o: Any, x: Any, count: int) -> Any:
    return o.topk(x, count)


def rms_norm(o: Any, x: Any, weight: Any) -> Any:
    return x * o.rsqrt(o.mean(x * x, (1,), True) + 1e-6) * weight


def naive_layer_norm(o: Any, x: Any, weight: Any, bias: Any) -> Any:
    """As one writes it."""
    centred = x - o.mean(x, (1,), True)
    return centred * o.rsqrt(o.mean(centred * centred, (1,), True) + 1e-5) * weight + bias


def naive_softmax(o: Any, x: Any) -> Any:
    powers = o.exp(x - o.largest(x, (1,), True))
    return powers / (o.mean(powers, (1,), True) * x.shape[1])


def added_norm(o: Any, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    """The sum is a result too, as in a transformer."""
    total = x + residual
    return total, o.layer_norm(total, weight, bias)


ROWS = [
    *(Row(f"softmax, {text(shape)}", softmax, [Data(shape)], quick=shape == SQUARE) for shape in SHAPES),
    *(Row(f"layer norm, {text(shape)}", lambda o, x, w, b: o.layer_norm(x, w, b),
          [Data(shape)], [Data(shape[-1:]), Data(shape[-1:])]) for shape in SHAPES[:3]),
    *(Row(f"RMS norm, {text(shape)}", rms_norm, [Data(shape)], [Data(shape[-1:])]) for shape in SHAPES[:3]),
    Row("softmax as one writes it, 2048x2048", naive_softmax, [Data(SQUARE)]),
    Row("layer norm as one writes it, 2048x2048", naive_layer_norm, [Data(SQUARE)], [Data((2048,)), Data((2048,))]),
    Row("residual and layer norm, 512x768", added_norm, [Data((512, 768))] * 2, [Data((768,))] * 2, quick=True),
    Row("RMS norm in bf16, 2048x2048", rms_norm, [Data(SQUARE, "bf16")], [Data((2048,), "bf16")], dtype="bf16"),
    Row("softmax in bf16, 2048x2048", softmax, [Data(SQUARE, "bf16")], dtype="bf16"),
    Row("softmax over columns, 2048x2048", lambda o, x: o.softmax(x, 0), [Data(SQUARE)]),
    Row("masked softmax, 2048x2048", lambda o, x, mask: o.softmax(o.where(mask > 0, x, x * 0.0 - 1e9), -1),
        [Data(SQUARE), Data(SQUARE, "i32", below=2)]),
    Row("log-softmax, 64x32000", lambda o, x: o.log_softmax(x, -1), [Data((64, 32000))]),
    Row("log-sum-exp, 2048x2048", lambda o, x: o.logsumexp(x, -1), [Data(SQUARE)]),
    Row("argmax, 2048x2048", lambda o, x: o.argmax(x, -1), [Data(SQUARE)]),
    Row("argmax, 1x32000", lambda o, x: o.argmax(x, -1), [Data((1, 32000))]),
    Row("cross-entropy, 512x32000", lambda o, x, t: o.cross_entropy(x, t),
        [Data((512, 32000)), Data((512,), "i64", below=32000)]),
    Row("cross-entropy, 128x10", lambda o, x, t: o.cross_entropy(x, t),
        [Data((128, 10)), Data((128,), "i64", below=10)]),
    Row("cumsum of rows, 2048x2048", lambda o, x: o.cumsum(x, 1), [Data(SQUARE)]),
    Row("cumsum of columns, 2048x2048", lambda o, x: o.cumsum(x, 0), [Data(SQUARE)]),
    Row("cumsum, 1M", lambda o, x: o.cumsum(x, 0), [Data((1 << 20,))]),
    Row("top-8, 128x64", partial(topk, count=8), [Data((128, 64))]),
    Row("top-4, 4x32000", partial(topk, count=4), [Data((4, 32000))]),
    Row("top-5, 512x1000", partial(topk, count=5), [Data((512, 1000))]),
    Row("sort, 512x1024", lambda o, x: o.sort(x), [Data((512, 1024))]),
    Row("sort, 1x65536", lambda o, x: o.sort(x), [Data((1, 65536))]),
    Row("scatter-add, 4096 rows to 1024x256", lambda o, x, i, s: o.scatter_add(x, i, s),
        [Data((1024, 256)), Data((4096,), "i64", below=1024), Data((4096, 256))]),
    Row("gather of columns, 2048x2048", lambda o, x, i: o.gather(x, 1, i),
        [Data(SQUARE), Data(SQUARE, "i64", below=2048)]),
    Row("gather of a target each, 512x32000", lambda o, x, i: o.gather(x, 1, i),
        [Data((512, 32000)), Data((512, 1), "i64", below=32000)], mbytes=512 * 16 / 1e6),
    Row("embedding, 512 of 32000x768", lambda o, i, table: o.take_rows(table, i),
        [Data((4, 128), "i64", below=32000)], [Data((32000, 768))], mbytes=2 * 512 * 768 * 4 / 1e6),
    Row("embedding, 1 of 32000x2048", lambda o, i, table: o.take_rows(table, i),
        [Data((1, 1), "i64", below=32000)], [Data((32000, 2048))], mbytes=2 * 2048 * 4 / 1e6),
]  # fmt: skip
CASES = [row.case() for row in ROWS]
