"""Suite `elementwise`: chains of 1 to 12 operations, broadcasts, reductions, transposes, strided views, casts."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.formula import Data, Row

SQUARE, LONG = (2048, 2048), (1 << 22,)
STEPS = ("exp", "sin", "sigmoid", "tanh", "silu", "absolute")
"""What chains take turns with, each after a multiply-add."""


def chain(o: Any, x: Any, length: int) -> Any:
    """So many operations, all elementwise: multiply-adds and, in turn, the functions of STEPS."""
    for place in range(length):
        x = getattr(o, STEPS[place // 2 % len(STEPS)])(x) if place % 2 else x * 0.5 + 0.25
    return x


def polynomial(o: Any, x: Any) -> Any:
    return ((((x * 0.1 + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x + 0.6


def total(o: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return o.total(x, axes)


def rotated(o: Any, x: Any) -> Any:
    """As rotary embeddings do it."""
    half = x.shape[1] // 2
    return o.concatenate([-x[:, half:], x[:, :half]], 1)


def moments(o: Any, x: Any) -> Any:
    """Mean and variance of all elements."""
    mean = o.mean(x, (0, 1))
    return mean, o.mean((x - mean) * (x - mean), (0, 1))


CUBE = (64, 256, 256)
SUMS = (
    ("rows", SQUARE, (1,)), ("columns", SQUARE, (0,)), ("all", SQUARE, (0, 1)), ("the first axis", CUBE, (0,)),
    ("the middle axis", CUBE, (1,)), ("both ends", CUBE, (0, 2)),
)  # fmt: skip
ROWS = [
    Row("add, 2048x2048", lambda o, x, y: x + y, [Data(SQUARE), Data(SQUARE)]),
    Row("x * 2, 64 elements", lambda o, x: x * 2.0, [Data((64,))]),
    Row("gelu(x * w + b) + r, 2048x2048", lambda o, x, w, b, r: o.gelu(x * w + b) + r,
        [Data(SQUARE), Data((2048,)), Data((2048,)), Data(SQUARE)], quick=True),
    *(Row(f"chain of {length}, 4M", partial(chain, length=length), [Data(LONG)]) for length in (1, 2, 4, 8, 12)),
    Row("chain of 12, 4096", partial(chain, length=12), [Data((4096,))]),
    Row("polynomial of degree 5, 4M", polynomial, [Data(LONG)]),
    Row("where and clamp, 4M", lambda o, x, y: o.clamp(o.where(x > y, x, y * 0.5), -1.0, 1.0), [Data(LONG)] * 2),
    Row("silu(x) * y, 128x5632", lambda o, x, y: o.silu(x) * y, [Data((128, 5632))] * 2),
    Row("row + column, 2048x2048", lambda o, x, y: o.tanh(x + y), [Data((2048, 1)), Data((1, 2048))]),
    Row("broadcast of the middle axis, 64x512x128", lambda o, x, y: o.relu(x * y),
        [Data((64, 512, 128)), Data((64, 1, 128))]),
    Row("channels, 8x64x56x56", lambda o, x, w, b: o.relu(x * w + b),
        [Data((8, 64, 56, 56)), Data((64, 1, 1)), Data((64, 1, 1))]),
    *(Row(f"sum over {name}, {'x'.join(map(str, shape))}", partial(total, axes=axes), [Data(shape)])
      for name, shape, axes in SUMS),
    Row("sum of exp over rows, 2048x2048", lambda o, x: o.total(o.exp(x), (1,)), [Data(SQUARE)]),
    Row("maximum over columns, 2048x2048", lambda o, x: o.largest(x, (0,)), [Data(SQUARE)]),
    Row("mean and variance of all, 2048x2048", moments, [Data(SQUARE)], quick=True),
    Row("mean over the image, 32x256x14x14", lambda o, x: o.mean(x, (2, 3)), [Data((32, 256, 14, 14))]),
    Row("transpose, 2048x2048", lambda o, x: o.contiguous(o.permute(x, (1, 0))), [Data(SQUARE)]),
    Row("x + transposed, 2048x2048", lambda o, x, y: x + o.permute(y, (1, 0)), [Data(SQUARE)] * 2, quick=True),
    Row("permute 0213, 8x512x12x64", lambda o, x: o.contiguous(o.permute(x, (0, 2, 1, 3))), [Data((8, 512, 12, 64))]),
    Row("image to channels last, 8x64x56x56", lambda o, x: o.contiguous(o.permute(x, (0, 2, 3, 1))),
        [Data((8, 64, 56, 56))]),
    Row("of a permuted view, 2048x2048", lambda o, x: o.exp(x), [Data(SQUARE, order=(1, 0))]),
    Row("every second column, 2048x2048", lambda o, x: o.tanh(x), [Data(SQUARE, step=2)]),
    Row("every second row, 2048x2048", lambda o, x: x[::2] * 2.0 + x[1::2], [Data(SQUARE)]),
    Row("rotated halves, 2048x2048", rotated, [Data(SQUARE)]),
    Row("concatenate, 3 of 2048x1024", lambda o, x, y, z: o.concatenate([x, y, z], 1), [Data((2048, 1024))] * 3),
    Row("shifted difference, 4M", lambda o, x: x[1:] - x[:-1], [Data(LONG)]),
    Row("cast f32 to bf16, 4M", lambda o, x: o.cast(x, "bf16"), [Data(LONG)], dtype="bf16"),
    Row("cast bf16 to f32, 4M", lambda o, x: o.cast(x, "f32"), [Data(LONG, "bf16")], dtype="bf16"),
    Row("cast f32 to i8, 4M", lambda o, x: o.cast(o.clamp(x * 30.0, -127.0, 127.0), "i8"), [Data(LONG)]),
    Row("cast i32 to f32 and scale, 4M", lambda o, x: o.cast(x, "f32") * 0.01, [Data(LONG, "i32", below=1000)]),
    Row("gelu in bf16, 4M", lambda o, x: o.gelu(x), [Data(LONG, "bf16")], dtype="bf16"),
    Row("add in f16, 4M", lambda o, x, y: x + y, [Data(LONG, "f16")] * 2, dtype="f16"),
    Row("i64 arithmetic, 1M", lambda o, x, y: x * 3 + y, [Data((1 << 20,), "i64", below=1000)] * 2),
]  # fmt: skip
CASES = [row.case() for row in ROWS]
