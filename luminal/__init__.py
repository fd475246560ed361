"""Luminal: a tensor compiler that lets search decide.

cx = luminal.Graph()                                        graphs by hand
model = torch.compile(model, backend="luminal")             PyTorch models
luminal.explain(model, *inputs)                             every level of what was compiled
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from luminal.dim import Dim, dim
from luminal.dtype import (
    DType,
    bf16,
    bool_,
    dtype_of,
    f4e2m1,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
)
from luminal.errors import LuminalError
from luminal.stats import stats

if TYPE_CHECKING:
    from luminal import nn
    from luminal.explanation import explain
    from luminal.gguf_file import load_gguf
    from luminal.graph import Graph
    from luminal.nn.quantised import quantise
    from luminal.plan.constants import invalidate
    from luminal.runtimes.cpu import CPURuntime, NativeRuntime
    from luminal.runtimes.gpu import CUDARuntime, GPURuntime, ROCmRuntime
    from luminal.runtimes.reference import ReferenceRuntime
    from luminal.tensor import Tensor, cat, stack, where
    from luminal.torch.backend import luminal_cpu, luminal_cuda
    from luminal.torch.export import compile_exported as compile
    from luminal.torch.product import load
    from luminal.torch.report import fallbacks, reset_fallbacks

# Names whose modules bring in LLVM or torch are imported when they are first used.
_LAZY = {
    "CPURuntime": "luminal.runtimes.cpu",
    "CUDARuntime": "luminal.runtimes.gpu",
    "GPURuntime": "luminal.runtimes.gpu",
    "Graph": "luminal.graph",
    "NativeRuntime": "luminal.runtimes.cpu",
    "ROCmRuntime": "luminal.runtimes.gpu",
    "ReferenceRuntime": "luminal.runtimes.reference",
    "Tensor": "luminal.tensor",
    "cat": "luminal.tensor",
    "compile": "luminal.torch.export:compile_exported",
    "explain": "luminal.explanation",
    "fallbacks": "luminal.torch.report",
    "invalidate": "luminal.plan.constants",
    "load": "luminal.torch.product",
    "load_gguf": "luminal.gguf_file",
    "luminal_cpu": "luminal.torch.backend",
    "luminal_cuda": "luminal.torch.backend",
    "quantise": "luminal.nn.quantised",
    "reset_fallbacks": "luminal.torch.report",
    "stack": "luminal.tensor",
    "where": "luminal.tensor",
}


def __getattr__(name: str) -> object:
    if name == "nn":  # needs torch
        return import_module("luminal.nn")
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module 'luminal' has no attribute {name!r}")
    module, _, attribute = place.partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "CPURuntime", "CUDARuntime", "DType", "Dim", "GPURuntime", "Graph", "LuminalError", "NativeRuntime",
    "ROCmRuntime", "ReferenceRuntime", "Tensor",
    "bf16", "bool_", "cat", "compile", "dim", "dtype_of", "explain", "f16", "f32", "f4e2m1", "f64", "f8e4m3fn",
    "f8e5m2", "fallbacks", "i16", "i32", "i64", "i8", "invalidate", "load", "load_gguf", "luminal_cpu", "luminal_cuda",
    "nn", "quantise",
    "reset_fallbacks", "stack", "stats", "u8", "where",
]  # fmt: skip
