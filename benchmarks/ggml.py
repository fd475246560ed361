"""The C library of llama.cpp's tensors, as the package llama-cpp-python ships it: quantisation and matrix products."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TYPES = {"f32": 0, "f16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "bf16": 30}
"""Numbers of enum ggml_type."""
CONTEXT_BYTES = 64 << 20
"""For the descriptions, activations and results of one product."""


class _ContextParameters(Structure):
    _fields_ = [("bytes", c_size_t), ("memory", c_void_p), ("describes_alone", c_bool)]


class _PoolParameters(Structure):
    _fields_ = [
        ("mask", c_bool * 512), ("threads", c_int), ("priority", c_int), ("poll", c_uint32),
        ("is_strict", c_bool), ("is_paused", c_bool),
    ]  # fmt: skip


class _Traits(Structure):
    _fields_ = [
        ("name", c_char_p), ("block", c_int64), ("interleaved", c_int64), ("block_bytes", c_size_t),
        ("is_quantised", c_bool), ("to_float", ctypes.CFUNCTYPE(None, c_void_p, POINTER(c_float), c_int64)),
    ]  # fmt: skip


SIGNATURES: dict[str, tuple[Any, ...]] = {
    # the result, then the arguments; all pointers are opaque
    "ggml_init": (c_void_p, _ContextParameters),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph": (c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_get_data": (c_void_p, c_void_p),
    "ggml_row_size": (c_size_t, c_int, c_int64),
    "ggml_quantize_chunk": (c_size_t, c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "ggml_get_type_traits": (POINTER(_Traits), c_int),
    "ggml_threadpool_params_default": (_PoolParameters, c_int),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_cpu_buffer_type": (c_void_p,),
    "ggml_backend_cpu_reg": (c_void_p,),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_cpu_set_threadpool": (None, c_void_p, c_void_p),
    "ggml_threadpool_new": (c_void_p, POINTER(_PoolParameters)),
}


class _Library:
    """The functions of SIGNATURES, without their prefix."""

    def __init__(self) -> None:
        spec = find_spec("llama_cpp")
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).parent / "lib"
        parts = [
            ctypes.CDLL(str(folder / f"libggml-{part}.so"), mode=ctypes.RTLD_GLOBAL)
            for part in ("base", "cpu")
        ]
        for name, (result, *arguments) in SIGNATURES.items():
            function = next(getattr(part, name) for part in parts if hasattr(part, name))
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@cache
def library() -> _Library:
    return _Library()


def quantised(format: str, weight: Array) -> Array:
    """The blocks of a weight, f32 [rows, columns], as bytes [rows, bytes of a row]."""
    ggml, number = library(), TYPES[format]
    rows, columns = weight.shape
    source = np.ascontiguousarray(weight, np.float32)
    blocks = np.empty((rows, ggml.row_size(number, columns)), np.uint8)
    ggml.quantize_chunk(number, source.ctypes.data, blocks.ctypes.data, 0, rows, columns, None)
    return blocks


def dequantised(format: str, blocks: Array, columns: int) -> Array:
    """What blocks hold, f32 [rows, columns]."""
    values = np.empty((len(blocks), columns), np.float32)
    traits = library().get_type_traits(TYPES[format]).contents
    traits.to_float(blocks.ctypes.data, values.ctypes.data_as(POINTER(c_float)), values.size)
    return values


def product(format: str, blocks: Array, x: Array, threads: int) -> Callable[[], Array]:
    """A function that gives x [batch, inputs] times the transposed weight that blocks hold, f32, in its own memory.

    The weight lies as llama.cpp lays it out when it loads a model: interleaved where its kernels want that.
    """
    ggml, number = library(), TYPES[format]
    backend = ggml.backend_cpu_init()
    pool = ggml.threadpool_params_default(threads)
    ggml.backend_cpu_set_n_threads(backend, threads)
    ggml.backend_cpu_set_threadpool(backend, ggml.threadpool_new(ctypes.byref(pool)))
    context = ggml.init(_ContextParameters(CONTEXT_BYTES, None, False))
    outputs, (batch, inputs) = len(blocks), x.shape
    right = ggml.new_tensor_2d(context, TYPES["f32"], inputs, batch)
    held, result = 0, 0
    for kind in (*_special_layouts(ggml), ggml.backend_cpu_buffer_type()):
        described = ggml.init(_ContextParameters(1 << 16, None, True))
        held = ggml.new_tensor_2d(described, number, inputs, outputs)
        ggml.backend_alloc_ctx_tensors_from_buft(described, kind)
        result = ggml.mul_mat(context, held, right)
        if ggml.backend_dev_supports_op(_device(ggml), result):
            break
    ggml.backend_tensor_set(held, blocks.ctypes.data, 0, blocks.nbytes)
    source = np.ascontiguousarray(x, np.float32)
    ctypes.memmove(ggml.get_data(right), source.ctypes.data, source.nbytes)
    graph = ggml.new_graph(context)
    ggml.build_forward_expand(graph, result)
    memory = ctypes.cast(ggml.get_data(result), POINTER(c_float))
    values = np.ctypeslib.as_array(memory, (batch, outputs))

    def call() -> Array:
        ggml.backend_graph_compute(backend, graph)
        return values

    return call


def _device(ggml: _Library) -> Any:
    return ggml.backend_reg_dev_get(ggml.backend_cpu_reg(), 0)


def _special_layouts(ggml: _Library) -> list[Any]:
    """The buffer types of the CPU backend that lay weights out for its kernels, the best first."""
    address = ggml.backend_reg_get_proc_address(ggml.backend_cpu_reg(), b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return []
    ask = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)
    found, place = ask(_device(ggml)), 0
    kinds: list[Any] = []
    while found and found[place]:
        kinds.append(found[place])
        place += 1
    return kinds
