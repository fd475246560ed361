"""Launches as the roofline takes them, of the kinds of kernels whose times are published (published_kernels.py)."""

from __future__ import annotations

from typing import Literal

from luminal.search.gpu_roofline import Launch

Kind = Literal["specialised", "asynchronous", "synchronous"]
"""How attention multiplies: warps with roles, or wgmma without, or mma.sync in two programs a multiprocessor."""
KEYS = 128
"""Keys of one step of attention."""
SCORE_OPERATIONS = 3.5
"""Of a lane for each score: scaled difference, maximum, sum, and half a conversion."""


def attention(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    width: int,
    causal: bool = False,
    kind: Kind = "specialised",
    rows: int = 128,
) -> Launch:
    """Flash attention in 16 bits; keys and values are read by every program, of `rows` queries."""
    part = 0.5 if causal else 1.0
    programs = batch * heads * -(-queries // rows)
    scores = batch * heads * queries * keys * part
    return Launch(
        programs=programs,
        memory_bytes=4.0 * batch * heads * (queries + keys) * width,
        cache_bytes=4.0 * (programs * keys * part + batch * heads * queries) * width,
        matrix_flops=4 * scores * width,
        is_asynchronous=kind != "synchronous",
        is_specialised=kind == "specialised",
        operations=SCORE_OPERATIONS * scores,
        exponentials=scores,
        steps=max(1, round(keys * part) // KEYS),
        stages=2,
        resident=2 if kind == "synchronous" else 1,
    )


def product(
    rows: int,
    columns: int,
    depth: int,
    dtype: str = "bf16",
    size: float = 2.0,
    tile: tuple[int, int] = (128, 256),
    cluster: int = 2,
) -> Launch:
    """A matrix product; `size`: bytes of an operand's element; `cluster`: programs that share their right operand."""
    high, wide = tile
    programs = -(-rows // high) * -(-columns // wide)
    read = depth * size * programs * (high + wide / cluster)
    return Launch(
        programs=programs,
        memory_bytes=size * depth * (rows + columns) + 2 * rows * columns,
        cache_bytes=read,
        matrix_flops=2 * rows * columns * depth,
        dtype=dtype,
        is_asynchronous=True,
        steps=depth // 64,
        stages=4,
    )


def vector_product(rows: int, columns: int, depth: int) -> Launch:
    """A product in f32 without matrix units."""
    programs = rows // 128 * (columns // 128)
    return Launch(
        programs=programs,
        memory_bytes=4.0 * (depth * (rows + columns) + rows * columns),
        cache_bytes=4.0 * depth * programs * 256,
        operations=rows * columns * depth,
        steps=depth // 16,
        stages=3,
        resident=2,
    )


def stream(count: float, programs: int, resident: int = 8) -> Launch:
    """Rows read and written once, by one program each; `count` bytes in all."""
    return Launch(programs=programs, memory_bytes=count, resident=resident)


def latent_decode(heads: int) -> Launch:
    """FlashMLA: 128 requests, one query each, 4096 keys of width 576 and 512 values, which are a part of them."""
    scores = 128.0 * heads * 4096
    return Launch(
        programs=264,
        memory_bytes=128 * (4096.0 * 576 + heads * 1088) * 2,
        matrix_flops=2 * scores * 1088,
        is_asynchronous=True,
        is_specialised=True,
        operations=SCORE_OPERATIONS * scores,
        exponentials=scores,
        steps=32,
        stages=2,
        resident=2,
    )
