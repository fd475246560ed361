"""What one running call holds: the slots that native code reads and fills in, and its arena.

Frames are leased, so that two threads may run one plan at once; a frame that comes back is used again.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from luminal.plan.native_entry import FrameLayout
from luminal.runtimes.memory import POOL, Block


class Frame:
    """Slots of one call. `fill` sets all that changes from call to call."""

    __slots__ = ("_arena", "_packer", "address", "bound", "slots")

    def __init__(self, layout: FrameLayout) -> None:
        self.slots = (ctypes.c_int64 * layout.slots)()
        self.address = ctypes.addressof(self.slots)
        self.bound: object = None
        self._arena: Block | None = None
        self._packer = struct.Struct(f"={layout.threads + 1}q")

    def fill(
        self, inputs: Sequence[int], outputs: Sequence[int], dims: Sequence[int], pool: int, threads: int
    ) -> None:
        arena = self._arena.address if self._arena is not None else 0
        self._packer.pack_into(self.slots, 0, *inputs, *outputs, *dims, arena, pool, threads)

    def take_arena(self, size: int) -> None:
        """Lease an arena of `size` bytes; it goes back in `drop_arena`."""
        self._arena = POOL.lease(size) if size else None

    def drop_arena(self) -> None:
        if self._arena is not None:
            POOL.give_back(self._arena)
            self._arena = None
