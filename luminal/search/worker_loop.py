"""How a worker process serves: jobs that arrive, one after the other, until its parent is gone."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from luminal.errors import CompileError

LOOK_SECONDS = 0.5
"""Between two looks whether the parent still lives."""


def serve(parent: int, jobs: int, make: Callable[[], object]) -> None:
    """Do the jobs that arrive at the file `jobs`, while the process `parent` lives.

    `make` imports what jobs need and gives the object whose methods they name.
    """
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    connection, desk = Connection(jobs), make()
    connection.send("ready")
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:
            return
        try:
            reply = (True, getattr(desk, name)(*arguments))
        except Exception as error:
            reply = (False, _portable(error))
        connection.send(reply)


def _portable(error: Exception) -> Exception:
    """An exception that survives pickling."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return CompileError(f"{type(error).__name__}: {error}")


def _die_with(parent: int) -> None:
    """A parent that is killed closes nothing that its own forked children hold open."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(0)
