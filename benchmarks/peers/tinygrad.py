"""tinygrad on its CPU device: the formula under TinyJit, which runs from the third call on what it has recorded."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from shutil import which
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from luminal.bench.case import Case, LeftOutError, Prepared, Program, absent
from luminal.bench.torch_program import array

RECORDING_CALLS = 2


def missing() -> str:
    return absent("tinygrad") or (
        "" if which("clang") else "tinygrad compiles with clang, which is not installed"
    )


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    if program.formula is None:
        raise LeftOutError("there is no formula of it, only a module of torch")
    os.environ.update(DEV="CPU", NUM_CPU_THREADS=str(threads))
    tinygrad: Any = importlib.import_module("tinygrad")
    formula, operations = program.formula, _operations(tinygrad)
    given = [_array(tinygrad, value) for value in (*program.inputs, *program.weights)]

    @tinygrad.TinyJit
    def function(*values: Any) -> Any:
        result = formula(operations, *values)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(part.contiguous().realize() for part in parts)

    device = tinygrad.Device["CPU"]

    def call() -> Any:
        result = function(*given)
        device.synchronize()
        return result

    for _ in range(RECORDING_CALLS):
        call()
    return Prepared(call, lambda parts: [_numpy(tinygrad, part) for part in parts])


def _array(tinygrad: Any, value: Tensor) -> Any:
    dtype = getattr(tinygrad.dtypes, str(value.dtype).removeprefix("torch."))
    return tinygrad.Tensor(array(value)).cast(dtype).contiguous().realize()


def _numpy(tinygrad: Any, part: Any) -> np.ndarray[Any, Any]:
    is_narrow = part.dtype in (tinygrad.dtypes.bfloat16, tinygrad.dtypes.float16)
    return (part.float() if is_narrow else part).numpy()


def _operations(tinygrad: Any) -> SimpleNamespace:
    """benchmarks/operations.py for arrays of tinygrad."""
    tensor, dtypes = tinygrad.Tensor, tinygrad.dtypes
    named = {
        "f64": dtypes.float64, "f32": dtypes.float32, "f16": dtypes.float16, "bf16": dtypes.bfloat16,
        "i64": dtypes.int64, "i32": dtypes.int32, "i8": dtypes.int8, "u8": dtypes.uint8, "bool": dtypes.bool,
    }  # fmt: skip

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        return x.layernorm(eps=1e-5) * weight + bias

    def scatter_add(x: Any, index: Any, source: Any) -> Any:
        return x.scatter_reduce(0, index.reshape(-1, 1).expand(source.shape), source, "sum")

    def conv2d(x: Any, weight: Any, bias: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        return x.conv2d(weight, bias, groups, stride, 1, padding)

    def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        is_grouped = q.shape[1] != k.shape[1]
        return q.scaled_dot_product_attention(k, v, is_causal=causal, enable_gqa=is_grouped)

    def mean(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
        return x.mean(tuple(axes), keepdim=keep)

    def largest(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
        return x.max(tuple(axes), keepdim=keep)

    return SimpleNamespace(
        exp=tensor.exp, log=tensor.log, sqrt=tensor.sqrt, rsqrt=tensor.rsqrt, sin=tensor.sin, erf=tensor.erf,
        tanh=tensor.tanh, sigmoid=tensor.sigmoid, relu=tensor.relu, absolute=tensor.abs, maximum=tensor.maximum,
        where=lambda condition, x, y: condition.where(x, y),
        gelu=lambda x: 0.5 * x * (1 + (x / 2**0.5).erf()), silu=tensor.silu,
        softmax=tensor.softmax, log_softmax=tensor.log_softmax, logsumexp=tensor.logsumexp, argmax=tensor.argmax,
        cumsum=tensor.cumsum, permute=tensor.permute, clamp=tensor.clamp,
        cast=lambda x, dtype: x.cast(named[dtype]), total=lambda x, axes: x.sum(tuple(axes)), mean=mean,
        largest=largest, concatenate=lambda parts, axis: parts[0].cat(*parts[1:], dim=axis),
        reshape=tensor.reshape, contiguous=tensor.contiguous, layer_norm=layer_norm,
        cross_entropy=lambda x, target: x.cross_entropy(target), topk=tensor.topk, sort=lambda x: x.sort()[0],
        gather=tensor.gather, scatter_add=scatter_add, take_rows=lambda table, index: table[index],
        conv2d=conv2d, attention=attention,
    )  # fmt: skip
