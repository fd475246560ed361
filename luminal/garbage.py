"""Compiling makes many small objects that live as long as it does: the garbage collector need not look often."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

RARELY = (100_000, 20, 20)
"""New objects before a collection of the youngest, and collections of one generation before one of the next."""

_lock = threading.Lock()
_open = 0
_usual: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def rare_collections() -> Generator[None]:
    """Collect rarely while this is open in any thread, and as before when it no longer is; a user who has turned the
    collector off finds it off."""
    global _open, _usual
    with _lock:
        if _open == 0:
            _usual = gc.get_threshold()
            gc.set_threshold(*RARELY)
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                gc.set_threshold(*_usual)
