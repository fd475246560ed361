"""A placed kernel compiled and loaded on this machine, to be called on flat memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.emit_cpu.emit import ALIGNMENT, Emitted, emit_function
from luminal.emit_cpu.jit import Library, Target, compile_object, load_object


class NativeKernel:
    """A loaded kernel. `run` leases no memory between calls, so that threads may call it at once."""

    def __init__(self, emitted: Emitted, symbols: Sequence[str], library: Library) -> None:
        self.emitted, self.symbols, self.library = emitted, list(symbols), library
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int32)
        self.entry = prototype(library[emitted.name])

    def run(self, pointers: Sequence[int], dims: Mapping[str, int], threads: int = 1, pool: int = 0) -> int:
        """Call it on the addresses of its references; the status. `pool` is a handle where threads > 1."""
        shared, private = (
            size.evaluate(dims) for size in (self.emitted.shared_bytes, self.emitted.private_bytes)
        )
        workspace = np.empty(shared + threads * private + ALIGNMENT, np.uint8)
        base = -(-workspace.ctypes.data // ALIGNMENT) * ALIGNMENT
        arguments = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        sizes = (ctypes.c_int64 * max(len(self.symbols), 1))(*(dims[name] for name in self.symbols))
        return self.entry(ctypes.addressof(arguments), ctypes.addressof(sizes), base, pool, threads)


def compile_function(op: FunctionOp, target: Target | None = None) -> NativeKernel:
    """Compile and load a placed kernel for this machine (or a lesser target that this machine can run)."""
    target = target or Target.host()
    emitted = emit_function(op, target)
    library = load_object(compile_object(emitted.text, target), [emitted.name])
    return NativeKernel(emitted, op.symbol_names, library)
