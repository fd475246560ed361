"""The names that programs use: one set for PyTorch, one for the Graph API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as functional

from luminal import tensor as graph_tensor
from luminal.dim import dim_max, dim_min
from luminal.dtype import dtype_of
from luminal.graph import Graph

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool_": torch.bool,
}
FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
_NUMBERS = {"inf": math.inf, "nan": math.nan}


def _index_put(x: Any, indices: Any, value: Any, accumulate: bool) -> Any:
    return torch.index_put(x, tuple(indices), value, accumulate)


def _arange(count: Any, dtype: Any) -> Any:
    return torch.arange(count, dtype=dtype)


@cache
def torch_names() -> Mapping[str, Any]:
    return {
        **DTYPES,
        **_NUMBERS,
        "where": torch.where,
        "cat": torch.cat,
        "stack": torch.stack,
        "pad": functional.pad,
        "gelu": functional.gelu,
        "silu": functional.silu,
        "softplus": functional.softplus,
        "layer_norm": functional.layer_norm,
        "rms_norm": functional.rms_norm,
        "group_norm": functional.group_norm,
        "embedding": functional.embedding,
        "attention": functional.scaled_dot_product_attention,
        "convolution": torch.convolution,
        "full": torch.full,
        "arange": _arange,
        "index_put": _index_put,
        "sort": lambda x, dim, descending: torch.sort(x, stable=True, dim=dim, descending=descending),
        "argsort": lambda x, dim, descending: torch.argsort(x, stable=True, dim=dim, descending=descending),
        "bits": lambda x, dtype: x.view(dtype),
    }


def graph_names(graph: Graph) -> Mapping[str, Any]:
    def norm(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
        return graph.emit("group_norm", (x, weight, bias), {"groups": groups, "epsilon": eps})[0]

    def attention(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
        return graph.emit("attention", (q, k, v, mask), {"causal": is_causal})[0]

    def convolution(
        x: Any,
        w: Any,
        b: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: Any,
        extra: Any,
        groups: Any,
    ) -> Any:
        values = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        shape = {"transposed": transposed, "output_padding": tuple(extra)}
        return graph.emit("conv", (x, w, b), {**values, **shape})[0]

    def index_put(x: Any, indices: Any, value: Any, accumulate: bool) -> Any:
        axes = tuple(range(len(indices)))
        return graph.emit("index_put", (x, value, list(indices)), {"axes": axes, "accumulate": accumulate})[0]

    return {
        **{name: dtype_of(dtype) for name, dtype in DTYPES.items()},
        **_NUMBERS,
        "min": dim_min,
        "max": dim_max,
        "where": graph_tensor.where,
        "cat": graph_tensor.cat,
        "stack": graph_tensor.stack,
        "pad": lambda x, *given, **named: x.pad(*given, **named),
        "gelu": lambda x, **named: x.gelu(**named),
        "silu": lambda x: x.silu(),
        "softplus": lambda x: graph.emit("softplus", (x,), {})[0],
        "layer_norm": lambda x, *given, **named: x.layer_norm(*given, **named),
        "rms_norm": lambda x, *given, **named: x.rms_norm(*given, **named),
        "group_norm": norm,
        "embedding": lambda index, weight: index.embedding(weight),
        "attention": attention,
        "convolution": convolution,
        "full": graph.full,
        "arange": lambda count, dtype: graph.arange(count, dtype=dtype),
        "index_put": index_put,
        "sort": lambda x, dim, descending: x.sort(dim, descending),
        "argsort": lambda x, dim, descending: x.argsort(dim, descending),
        "bits": lambda x, dtype: graph.emit("bitcast", (x,), {"dtype": dtype})[0],
    }
