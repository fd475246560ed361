"""Parameters that were laid out for kernels, shared by all plans that want the same layout of the same parameter; and
data of graphs, shared by all plans that have it.

A parameter is known by the object that owns its memory and a version that its owner counts up on change; an entry lives
as long as a plan holds it.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import Any

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


def invalidate() -> None:
    """Parameters may have changed in a way that nobody could see: every plan lays them out anew at its next call."""
    with _lock:
        Epoch.current += 1
        _shared.clear()


@dataclass(slots=True)
class _Entry:
    owner: weakref.ref[Any]
    array: weakref.ref[Array]


_lock = threading.Lock()
_shared: dict[tuple[int, int, int, Packing], _Entry] = {}
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
    key = (
        id(constant.owner),
        constant.address,
        constant.version,
        replace(packing, source=Storage("input", 0)),
    )
    with _lock:
        entry = _shared.get(key)
        if entry is not None and constant.owner is not None and entry.owner() is constant.owner:
            found = entry.array()
            if found is not None:
                return found
    array = allocate((packed_elements(packing),), source.dtype)
    pack(source, packing, array)
    if constant.owner is not None:
        with _lock:
            _shared[key] = _Entry(weakref.ref(constant.owner), weakref.ref(array))
            for stale in [k for k, e in _shared.items() if e.array() is None or e.owner() is None]:
                del _shared[stale]
    return array


def carrier(size_bytes: int) -> np.dtype[Any]:
    """The unsigned dtype that moves elements of this size without reading them."""
    return np.dtype(f"u{size_bytes}")
