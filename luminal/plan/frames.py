"""What one running call holds: the slots that native code reads and fills in, and its arena.

Frames are leased, so that two threads may run one plan at once; a frame that comes back is used again, and a call
like the one before writes nothing but addresses.
"""

from __future__ import annotations

import ctypes
import struct

from luminal.plan.native_entry import FrameLayout
from luminal.runtimes.memory import POOL, Block

KEPT_BYTES = 1 << 16
"""An arena of so many bytes stays with its frame; larger ones go back to the pool after each call."""


class Frame:
    """Slots of one call, and what they are filled in for: sizes, threads and constants.

    `write` puts addresses of inputs and outputs, which are new in every call, into the first slots.
    """

    __slots__ = ("_arena", "_arena_slot", "address", "filled_for", "leases", "slots", "write")

    def __init__(self, layout: FrameLayout) -> None:
        self.slots = (ctypes.c_int64 * layout.slots)()
        self.address = ctypes.addressof(self.slots)
        self.write = struct.Struct(f"={layout.dims}q").pack_into
        self.filled_for: object = None
        self.leases = 0
        """Bytes that every call leases."""
        self._arena: Block | None = None
        self._arena_slot = layout.arena

    def want_arena(self, size: int) -> None:
        """The next calls need so many bytes."""
        self.drop_arena()
        self.leases = size if size > KEPT_BYTES else 0
        if 0 < size <= KEPT_BYTES:
            self.take_arena(size)

    def take_arena(self, size: int) -> None:
        """Lease an arena of `size` bytes; it goes back in `drop_arena`."""
        self._arena = POOL.lease(size)
        self.slots[self._arena_slot] = self._arena.address

    def drop_arena(self) -> None:
        if self._arena is not None:
            POOL.give_back(self._arena)
            self._arena = None
