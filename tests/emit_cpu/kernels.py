"""Loops around one elementwise piece of IR, for the tests of the vector library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from luminal.emit_cpu.jit import Library, Target, compile_object, load_object
from luminal.emit_cpu.text import Function, Module, Value, vector_of

HOST = Target.host()
X86 = HOST.triple.startswith("x86_64") and HOST.has("avx2") and HOST.has("fma")
TARGETS = [HOST] + ([Target.avx2()] if X86 else [])

Write = Callable[[Function, list[Value]], Value]


def loop_text(elements: list[str], result: str, lanes: int, write: Write) -> str:
    """`out[n] = write(in0[n], in1[n], ...)`, `lanes` at a time (0: scalars)."""
    module = Module()
    parameters = [("ptr", f"x{number}") for number in range(len(elements))] + [("ptr", "out"), ("i64", "n")]
    with module.function("loop", parameters) as f:
        *sources, out, count = f.parameters.values()
        with f.loop(0, count, max(lanes, 1)) as loop:
            pairs = zip(elements, sources, strict=True)
            loaded = [f.load(vector_of(e, lanes), f.offset(x, e, loop.index)) for e, x in pairs]
            value = write(f, loaded)
            assert value.type == vector_of(result, lanes)
            f.store(value, f.offset(out, result, loop.index))
        f.ret()
    return module.text()


class Loop:
    """A compiled loop over one elementwise piece of IR."""

    def __init__(self, elements: list[str], result: str, lanes: int, target: Target, write: Write) -> None:
        self.text, self.step = loop_text(elements, result, lanes, write), max(lanes, 1)
        self.library: Library = load_object(compile_object(self.text, target), ["loop"])
        types = [ctypes.c_void_p] * (len(elements) + 1) + [ctypes.c_int64]
        self.entry = ctypes.CFUNCTYPE(None, *types)(self.library["loop"])

    def __call__(self, *inputs: np.ndarray, dtype: np.dtype | type | None = None) -> np.ndarray:
        """Inputs of one length, which is padded to whole vectors."""
        count = len(inputs[0])
        padded = [np.concatenate([x, np.resize(x, -count % self.step)]) for x in inputs]
        out = np.empty(len(padded[0]), dtype or inputs[0].dtype)
        self.entry(*(x.ctypes.data for x in padded), out.ctypes.data, len(out))
        return out[:count]
