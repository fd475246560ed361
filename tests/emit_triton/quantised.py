"""Products with block-quantised weights as graphs, and planes of random numbers for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from luminal import Graph, Tensor
from luminal.dialects.hlo.interpreter import interpret
from luminal.dtype import DType, bf16
from luminal.quantised import format_of

Array = np.ndarray[Any, Any]


def product(name: str, rows: int, inner: int, columns: int, left: str = "") -> ModuleOp:
    """x w^T in bf16, of x [rows, inner] and w [columns, inner] in a format; `left`: the format of x, if it has one."""
    cx = Graph()
    x = cx.tensor((rows, inner), dtype=format_of(left).name if left else bf16)
    w = cx.tensor((columns, inner), dtype=format_of(name).name)
    wide = x if isinstance(x, Tensor) else x.cast(bf16)
    wide.matmul(w.cast(bf16).T).output()
    return cx.module()


def numbers(name: str, rows: int, inner: int, seed: int = 0) -> list[Array]:
    """Planes of a tensor of moderate size; without a format, the tensor in bf16."""
    rng = np.random.default_rng(seed)
    if not name:
        return [rng.standard_normal((rows, inner)).astype(bf16.numpy)]
    found: list[Array] = []
    for plane, type_ in format_of(name).plane_types((rows, inner)).items():
        shape = [size.constant or 0 for size in type_.shape]
        found.append(_plane(plane, type_.dtype, shape, name, rng))
    return found


def _plane(plane: str, dtype: DType, shape: list[int], name: str, rng: np.random.Generator) -> Array:
    if dtype.is_float:
        return (rng.random(shape) / 64 + 0.01).astype(dtype.numpy)
    if plane == "scales" and "fp" in name:  # e8m0 around 1, or e4m3
        return rng.integers(*((122, 128) if name != "nvfp4" else (40, 64)), size=shape, dtype=np.uint8)
    if plane in ("scales", "mins"):
        return rng.integers(1, 32, size=shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    found = rng.integers(limits.min, limits.max + 1, size=shape).astype(dtype.numpy)
    return (
        np.where((found & 0x7C) >= 0x78, found & 0x3F, found).astype(dtype.numpy) if "fp8" in name else found
    )


def wanted(module: ModuleOp, inputs: list[Array]) -> Array:
    """What the graph means, in f64."""
    graph: Any = module.body.block.first_op
    return interpret(graph, inputs, {})[0].astype(np.float64)
