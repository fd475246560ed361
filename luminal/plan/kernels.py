"""Kernels that a plan calls: native functions, or a Python function behind the same address and arguments.

Every kernel is `i32 kernel(ptr arguments, ptr sizes, ptr workspace, ptr pool, i32 threads)`: pointers to its references
in order, its symbols' values in order, and 0 as the status of success.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luminal.dim import Dim
from luminal.dtype import DType

Array = NDArray[Any]
SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
)


class Kernel(Protocol):
    """Anything with the address of a function of the kernel ABI; it stays callable while the object lives."""

    @property
    def address(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel's address; its code stays while the library does."""

    address: int
    library: object


def memory_view(address: int, elements: int, dtype: DType) -> Array:
    """Flat memory as an array; nothing keeps it alive."""
    size = elements * dtype.size_bytes
    if size == 0:
        return np.empty(0, dtype.numpy)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8).view(
        dtype.numpy
    )


class InterpretedKernel:
    """A kernel that runs in Python: `run(arrays, dims)` works in place on one flat array for each reference.

    An exception inside is kept in `error`, and the status is 1.
    """

    def __init__(
        self,
        references: Sequence[tuple[DType, Dim]],
        symbols: Sequence[str],
        run: Callable[[list[Array], Mapping[str, int]], None],
    ) -> None:
        self.references, self.symbols, self.run = tuple(references), tuple(symbols), run
        self.error: BaseException | None = None
        self._callback = SIGNATURE(self._call)
        self.address: int = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _call(self, arguments: int, sizes: int, workspace: int, pool: int, threads: int) -> int:
        del workspace, pool, threads
        try:
            values = (ctypes.c_int64 * len(self.symbols)).from_address(sizes)
            dims = dict(zip(self.symbols, values, strict=True))
            pointers = (ctypes.c_int64 * len(self.references)).from_address(arguments)
            arrays = [
                memory_view(pointer, elements.evaluate(dims), dtype)
                for pointer, (dtype, elements) in zip(pointers, self.references, strict=True)
            ]
            self.run(arrays, dims)
        except BaseException as error:  # no exception may cross the native caller
            self.error = error
            return 1
        return 0
