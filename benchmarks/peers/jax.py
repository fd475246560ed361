"""JAX: the formula under jit, XLA's CPU defaults; weights are arguments, inputs lie on the device."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from luminal.bench.case import Case, LeftOutError, Prepared, Program, absent
from luminal.bench.torch_program import array


def missing() -> str:
    return absent("jax", "jaxlib")


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    if program.formula is None:
        raise LeftOutError("there is no formula of it, only a module of torch")
    jax, operations = _started(threads)
    formula = program.formula
    given = [_array(jax, value) for value in (*program.inputs, *program.weights)]
    function = jax.jit(lambda *values: formula(operations, *values))

    def call() -> Any:
        return jax.block_until_ready(function(*given))

    def results(values: Any) -> list[np.ndarray[Any, Any]]:
        return [_widened(np.asarray(value)) for value in jax.tree.leaves(values)]

    return Prepared(call, results)


def _started(threads: int) -> tuple[Any, SimpleNamespace]:
    """JAX with so many threads: its pool is as large as the processors that it may use when it starts."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everywhere)[:threads])
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.devices()
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), everywhere)
    return jax, _operations(jax)


def _array(jax: Any, value: Tensor) -> Any:
    name = str(value.dtype).removeprefix("torch.")
    return jax.numpy.asarray(array(value)).astype(name)


def _widened(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.astype(np.float32) if value.dtype.itemsize == 2 and value.dtype.kind in "fV" else value


def _operations(jax: Any) -> SimpleNamespace:
    """benchmarks/operations.py for arrays of JAX."""
    jnp, nn, lax = jax.numpy, jax.nn, jax.lax
    dtypes = {
        "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
        "i8": "int8", "u8": "uint8", "bool": "bool",
    }  # fmt: skip

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * lax.rsqrt(variance + 1e-5) * weight + bias

    def cross_entropy(x: Any, target: Any) -> Any:
        return -jnp.take_along_axis(nn.log_softmax(x, -1), target[:, None], 1).mean()

    def conv2d(x: Any, weight: Any, bias: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        around = [(padding, padding)] * 2
        result = lax.conv_general_dilated(x, weight, (stride, stride), around, feature_group_count=groups)
        return result + bias[:, None, None]

    def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        # JAX has heads behind lengths
        q, k, v = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
        return jnp.swapaxes(nn.dot_product_attention(q, k, v, is_causal=causal), 1, 2)

    def mean(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
        return jnp.mean(x, tuple(axes), keepdims=keep)

    def largest(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
        return jnp.max(x, tuple(axes), keepdims=keep)

    return SimpleNamespace(
        exp=jnp.exp, log=jnp.log, sqrt=jnp.sqrt, rsqrt=lax.rsqrt, sin=jnp.sin, erf=lax.erf, tanh=jnp.tanh,
        sigmoid=nn.sigmoid, relu=nn.relu, absolute=jnp.abs, maximum=jnp.maximum, where=jnp.where,
        gelu=lambda x: nn.gelu(x, approximate=False), silu=nn.silu,
        softmax=nn.softmax, log_softmax=nn.log_softmax, logsumexp=nn.logsumexp, argmax=jnp.argmax,
        cumsum=jnp.cumsum, permute=jnp.transpose, clamp=jnp.clip, cast=lambda x, dtype: x.astype(dtypes[dtype]),
        total=lambda x, axes: jnp.sum(x, tuple(axes)), mean=mean, largest=largest, concatenate=jnp.concatenate,
        reshape=jnp.reshape, contiguous=lambda x: x, layer_norm=layer_norm, cross_entropy=cross_entropy,
        topk=lax.top_k, sort=jnp.sort, gather=lambda x, axis, index: jnp.take_along_axis(x, index, axis),
        scatter_add=lambda x, index, source: x.at[index].add(source),
        take_rows=lambda table, index: table[index], conv2d=conv2d, attention=attention,
    )  # fmt: skip
