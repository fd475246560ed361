"""What is made of parameters, laid out or folded, shared by all plans that want the same of the same parameters; and
data of graphs, shared by all plans that have it.

A parameter is known by the object that owns its memory and a version that its owner counts up on change; an entry lives
as long as a plan holds it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from luminal.plan.packing import pack, packed_elements
from luminal.plan.plan import Packing, Storage
from luminal.runtimes.memory import allocate

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Constant:
    """The memory of a constant input: its address, the object that owns it (or None) and that object's version."""

    address: int
    owner: object = None
    version: int = 0


class Epoch:
    """Counts calls of `invalidate`; a plan that has seen fewer binds its constants again."""

    current = 0


_lock = threading.Lock()


class Shared:
    """Arrays made of constants, by those constants and what was made of them; each as long as somebody holds it."""

    every: ClassVar[list[Shared]] = []

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[list[weakref.ref[Any]], weakref.ref[Array]]] = {}
        self.every.append(self)

    def find(self, constants: Sequence[Constant], what: Hashable, make: Callable[[], Array]) -> Array:
        """The array that is known for these constants, or a new one; constants without an owner share none."""
        owners = [constant.owner for constant in constants]
        if any(owner is None for owner in owners):
            return make()
        key = (what, *((id(c.owner), c.address, c.version) for c in constants))
        with _lock:
            entry = self._entries.get(key)
            if entry is not None and all(o() is owner for o, owner in zip(entry[0], owners, strict=True)):
                found = entry[1]()
                if found is not None:
                    return found
        array = make()
        with _lock:
            self._entries[key] = [weakref.ref(owner) for owner in owners], weakref.ref(array)
            stale = [k for k, (held, made) in self._entries.items() if not _all_live([*held, made])]
            for old in stale:
                del self._entries[old]
        return array

    def clear(self) -> None:
        self._entries.clear()


def _all_live(references: Sequence[weakref.ref[Any]]) -> bool:
    return all(reference() is not None for reference in references)


def invalidate() -> None:
    """Parameters may have changed in a way that nobody could see: every plan folds them and lays them out anew at its
    next call."""
    with _lock:
        Epoch.current += 1
        for shared in Shared.every:
            shared.clear()


_PACKED = Shared()
_data: weakref.WeakValueDictionary[bytes, Array] = weakref.WeakValueDictionary()


def data_array(data: bytes) -> Array:
    """Data of a graph in aligned memory, which all plans with equal data share; nobody may write to it."""
    found = _data.get(data)
    if found is None:
        found = allocate((len(data),), np.dtype(np.uint8))
        found[...] = np.frombuffer(data, np.uint8)
        with _lock:
            found = _data.setdefault(data, found)
    return found


def packed_array(constant: Constant, source: Array, packing: Packing) -> Array:
    """The layout of a constant whose flat memory is `source`: the one that another plan holds, or a new one."""

    def make() -> Array:
        array = allocate((packed_elements(packing),), source.dtype)
        pack(source, packing, array)
        return array

    return _PACKED.find([constant], replace(packing, source=Storage("input", 0)), make)
