"""Whole models by llama.cpp, through the C library in the package llama-cpp-python."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np

from luminal.bench.case import StoredModel

Array = np.ndarray[Any, Any]


@cache
def library() -> Any:
    """The package's description of the C interface, without its `__init__`, which needs packages for serving models."""
    if "llama_cpp" not in sys.modules:
        spec = find_spec("llama_cpp")
        assert spec is not None
        sys.modules["llama_cpp"] = module_from_spec(spec)
    found: Any = import_module("llama_cpp.llama_cpp")
    found.llama_backend_init()
    silent = found.llama_log_callback(lambda level, text, data: None)
    found.llama_log_set(silent, None)
    found.silent = silent  # the C library keeps no reference to it
    return found


def runner(stored: StoredModel, threads: int) -> Callable[[], Array]:
    """A function that runs the last tokens of a model and gives the logits of the last one, f32 [1, 1, vocabulary];
    what comes before them is run once, and lies in the cache of keys and values."""
    llama = library()
    model = llama.llama_model_load_from_file(str(stored.path).encode(), llama.llama_model_default_params())
    wanted = llama.llama_context_default_params()
    wanted.n_ctx = wanted.n_batch = wanted.n_ubatch = stored.context
    wanted.n_threads = wanted.n_threads_batch = threads
    context = llama.llama_init_from_model(model, wanted)
    memory = llama.llama_get_memory(context)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    if stored.before:
        _run(llama, context, _batch(llama, stored.before, 0))
    start = len(stored.before)
    batch = _batch(llama, stored.ids, start)

    def call() -> Array:
        llama.llama_memory_seq_rm(memory, 0, start, -1)
        _run(llama, context, batch)
        logits = llama.llama_get_logits_ith(context, -1)
        return np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (1, 1, vocabulary))

    return call


def _batch(llama: Any, ids: Sequence[int], start: int) -> Any:
    """Tokens of one sequence, of which the last gives logits."""
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place] = token, start + place
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        batch.logits[place] = place == len(ids) - 1
    return batch


def _run(llama: Any, context: Any, batch: Any) -> None:
    status = llama.llama_decode(context, batch)
    if status:
        raise RuntimeError(f"llama_decode gave {status}")
