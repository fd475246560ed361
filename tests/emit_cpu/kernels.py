"""Loops around one elementwise piece of IR, for the tests of the vector library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import numpy as np

from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.emit_cpu.text import Function, Module
from luminal.emit_cpu.values import Value, vector_of
from tests.emit_cpu.arm import ARM, ArmLibrary
from tests.emit_cpu.native_kernel import NativeKernel, compile_function

HOST = Target.host()
X86 = HOST.triple.startswith("x86_64") and HOST.has("avx2") and HOST.has("fma")
TARGETS = [HOST] + ([Target.avx2()] if X86 else [])
EVERYWHERE = [*TARGETS, ARM]
"""The last of them is emulated."""

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


def kernel_for(function: FunctionOp, target: Target) -> NativeKernel:
    """A placed kernel, compiled for this machine or for the emulated one."""
    if target != ARM:
        return compile_function(function, target)
    emitted = emit_function(function, ARM)
    library = ArmLibrary(compile_object(emitted.text, ARM))
    kernel = NativeKernel(emitted, function.symbol_names, library)
    kernel.entry = partial(library.call, emitted.name)
    return kernel


class Loop:
    """A compiled loop over one elementwise piece of IR."""

    def __init__(self, elements: list[str], result: str, lanes: int, target: Target, write: Write) -> None:
        self.text, self.step = loop_text(elements, result, lanes, write), max(lanes, 1)
        image = compile_object(self.text, target)
        if target == ARM:
            self.entry = partial(ArmLibrary(image).call, "loop")
            return
        self.library = load_object(image, ["loop"])
        types = [ctypes.c_void_p] * (len(elements) + 1) + [ctypes.c_int64]
        self.entry = ctypes.CFUNCTYPE(None, *types)(self.library["loop"])

    def __call__(self, *inputs: np.ndarray, dtype: np.dtype | type | None = None) -> np.ndarray:
        """Inputs of one length, which is padded to whole vectors."""
        count = len(inputs[0])
        padded = [np.concatenate([x, np.resize(x, -count % self.step)]) for x in inputs]
        out = np.empty(len(padded[0]), dtype or inputs[0].dtype)
        self.entry(*(x.ctypes.data for x in padded), out.ctypes.data, len(out))
        return out[:count]
