"""Memory for arenas, outputs and packed parameters: private, on huge pages, aligned, and used again.

Fresh pages cost more than most kernels, so a block that comes back waits for the next caller. Blocks are of a few size
classes; what waits is bounded.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
HUGE_PAGE = 2 * 1024 * 1024
PADDING = 64
"""Bytes behind every block that vector code may read."""
Array = NDArray[Any]


class Block:
    """Private memory of `size` bytes at `address`, aligned to a huge page where it is large."""

    __slots__ = ("_export", "_mapping", "address", "size")

    def __init__(self, size: int) -> None:
        large = size >= HUGE_PAGE
        alignment = HUGE_PAGE if large else ALIGNMENT
        length = size + PADDING + alignment
        # Python's default is memory shared with forked children, which must never see an arena
        self._mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if large and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._export = ctypes.c_char.from_buffer(self._mapping)
        self.address = -(-ctypes.addressof(self._export) // alignment) * alignment
        self.size = size


class Pool:
    """Blocks that wait for use. `lease` and `give_back` may be called from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.RLock()  # a finalizer may give a block back while one is being leased
        self._waiting: dict[int, list[Block]] = {}
        self._waiting_bytes = 0

    def lease(self, size: int) -> Block:
        """A block of at least `size` bytes: one that waits and is not twice too large, or a new one."""
        wanted = size_class(size)
        with self._lock:
            found = wanted if self._waiting.get(wanted) else self._next_class(wanted)
            if found:
                self._waiting_bytes -= found
                return self._waiting[found].pop()
        return Block(wanted)

    def give_back(self, block: Block) -> None:
        """The next lease of its size takes the block that came back last, which may still be in a cache."""
        with self._lock:
            self._waiting.setdefault(block.size, []).append(block)
            self._waiting_bytes += block.size
            while self._waiting_bytes > self.limit:
                largest = max(size for size, blocks in self._waiting.items() if blocks)
                self._waiting[largest].pop(0)
                self._waiting_bytes -= largest

    def clear(self) -> None:
        """Return all that waits to the system."""
        with self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def _next_class(self, wanted: int) -> int:
        fitting = (size for size, blocks in self._waiting.items() if blocks and wanted <= size <= 2 * wanted)
        return min(fitting, default=0)


def size_class(size: int) -> int:
    """`size` rounded up so that at most an eighth is wasted: 8 classes to a power of two, 4 KiB at least."""
    if size <= 4096:
        return 4096
    step = 1 << max(12, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def _default_limit() -> int:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        physical = 4 << 30
    return max(256 << 20, physical // 8)


POOL = Pool(_default_limit())


class _Holder:
    """What an array of the pool keeps alive; the block goes back when the last view of the array is gone."""

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: Block, size: int) -> None:
        self._block = block
        self.__array_interface__ = {
            "data": (block.address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self, pool: Pool = POOL) -> None:
        pool.give_back(self._block)


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array from the pool, which takes the memory back when the array and its views are gone."""
    return allocated(shape, dtype)[0]


def allocated(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, int]:
    """As `allocate`, with the array's address, which NumPy is slow to tell."""
    count = math.prod(shape) * dtype.itemsize
    if count < 4096:  # small ones are NumPy's own, aligned
        raw = np.empty(count + ALIGNMENT, np.uint8)
        address = raw.__array_interface__["data"][0]
        start = -address % ALIGNMENT
        return np.ndarray(shape, dtype, raw, start), address + start
    block = POOL.lease(count)
    return np.asarray(_Holder(block, count)).view(dtype).reshape(shape), block.address


@functools.lru_cache(maxsize=256)
def _buffer_type(size: int) -> type[Any]:
    """Of buffers that hold a block, which goes back to the pool with them."""

    def release(buffer: Any, pool: Pool = POOL) -> None:
        pool.give_back(buffer.block)

    return type("Buffer", (ctypes.c_char * size,), {"__slots__": ("block",), "__del__": release})


def leased_buffer(size: int) -> Any:
    """Uninitialised memory of `size` bytes from the pool as an object with Python's buffer protocol, which is cheaper
    to make than an array; the pool takes it back when the object is gone."""
    block = POOL.lease(size)
    buffer = _buffer_type(size).from_address(block.address)
    buffer.block = block
    return buffer
