"""Processes that compile and time candidates, which may crash or hang without harm to this one.

A worker is a Python that runs a module that serves (luminal/search/worker_loop.py), luminal.search.worker as a rule: it
imports neither the program's main module nor torch, so that it starts in half a second and needs no guard in the
program.  A job is a pickle through a socket pair; what a worker runs just
now stands in a small file that both have open.  Workers are kept for the process and die with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from functools import cache
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import IO, Any

from luminal.errors import LuminalError

MODULE = "luminal.search.worker"
BEGINNING = """
import runpy, sys
module, root, *paths = sys.argv.pop(1).split("\\n")
sys.path[:0] = [root]
sys.path += paths
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""How a worker starts: the program's folders come when Python's own modules are there, since a module of the program
may have the name of one of those, and before anything of Luminal's is imported, since packages may lie in them."""
START_SECONDS = 30.0
"""How long a worker may take to start."""
MOST_WORKERS = 8
_NOTE = 16
_LAST_WORDS = 2000


class WorkerDiedError(LuminalError, RuntimeError):
    """A worker has crashed, or was killed since it hung.

    `running` is the number of the kernel that it ran, -1 for none; `said` is what it wrote last.
    """

    def __init__(self, reason: str, running: int, said: str) -> None:
        super().__init__(f"a worker has {reason}")
        self.reason, self.running, self.said = reason, running, said


class WorkersUnavailableError(LuminalError, RuntimeError):
    """No worker can be started."""


def _file() -> IO[bytes]:
    """A file without a name, open as long as its worker lives."""
    return tempfile.TemporaryFile()


class Worker:
    """One process, which does one job at a time: `module` says which jobs there are."""

    def __init__(self, module: str) -> None:
        self._log, self._notes = _file(), _file()
        self.connection, theirs = Pipe()
        start = "\n".join([module, str(Path(__file__).parents[2]), *filter(None, sys.path)])
        files = (theirs.fileno(), self._notes.fileno())
        try:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-X", "faulthandler", "-c", BEGINNING, start),
                    *(str(os.getpid()), *map(str, files)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=files,
                start_new_session=True,  # an interrupt at the terminal is for the program alone
            )
        except (OSError, ValueError) as error:
            raise WorkersUnavailableError(f"no worker can be started: {error}") from error
        finally:
            theirs.close()
        self.is_ready = self.is_busy = False
        self._noted, self._refused = (b"", 0.0), ""

    @property
    def has_news(self) -> bool:
        """Whether it has said something, or cannot any more."""
        return bool(self._refused) or self.connection.poll()

    def await_ready(self) -> None:
        """Wait until it has started; WorkersUnavailableError where it does not."""
        if self.is_ready:
            return
        if not self._refused:
            with contextlib.suppress(EOFError, OSError):
                self.is_ready = self.connection.poll(START_SECONDS) and self.connection.recv() == "ready"
            if self.is_ready:
                return
            self._refused = self.said() or "it says nothing"
            self.stop()
        raise WorkersUnavailableError(f"a worker does not start: {self._refused}")

    def send(self, job: tuple[Any, ...]) -> None:
        """Give it a job: the name of a method of its module's `Desk`, and its arguments."""
        assert not self.is_busy
        self.is_busy = True
        self._noted = b"", time.monotonic()
        try:
            self.connection.send(job)
        except OSError:
            return  # it has died: receiving says so

    def receive(self, run_seconds: float, job_seconds: float) -> Any:
        """The result of its job, or the exception that it raised.

        Raises WorkerDiedError where the process ends, or has to be ended: one run of a kernel takes longer than
        `run_seconds`, or the whole job longer than `job_seconds`.
        """
        end = time.monotonic() + job_seconds
        while not self.connection.poll(min(0.2, run_seconds / 4)):
            if time.monotonic() > end or self.is_stuck(run_seconds):
                raise self._died("hung")
        try:
            succeeded, result = self.connection.recv()
        except (EOFError, OSError):
            raise self._died("crashed") from None
        self.is_busy = False
        if not succeeded:
            raise result
        return result

    def is_stuck(self, run_seconds: float) -> bool:
        """Whether one run of a kernel has been seen to take longer than so many seconds."""
        now, note = time.monotonic(), self._note()
        if note != self._noted[0]:
            self._noted = note, now
        is_running = bool(note) and int.from_bytes(note[:8], "little", signed=True) >= 0
        return is_running and now - self._noted[1] > run_seconds

    def call(self, job: tuple[Any, ...], run_seconds: float, job_seconds: float) -> Any:
        """Send a job and receive its result."""
        self.send(job)
        return self.receive(run_seconds, job_seconds)

    def said(self) -> str:
        """The end of what it wrote."""
        size = os.fstat(self._log.fileno()).st_size
        return (
            os.pread(self._log.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS))
            .decode(errors="replace")
            .strip()
        )

    def stop(self) -> None:
        """End the process and what it has started, whatever they do."""
        self._kill()
        self.connection.close()
        self._log.close()
        self._notes.close()

    def _kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # it leads a session of its own
            self.process.wait()

    def _note(self) -> bytes:
        return os.pread(self._notes.fileno(), _NOTE, 0)

    def _died(self, reason: str) -> WorkerDiedError:
        note = self._note()
        running = int.from_bytes(note[:8], "little", signed=True) if note else -1
        self._kill()
        error = WorkerDiedError(reason, running, self.said())
        self.stop()
        return error


class Crew:
    """The workers of this process. `lock` is held by whoever uses them."""

    def __init__(self, size: int) -> None:
        self.size, self.lock = size, threading.RLock()
        self.workers: list[Worker] = []
        self._owner = os.getpid()
        atexit.register(self.close)

    def start(self) -> None:
        """Start what is missing, without waiting; WorkersUnavailableError where that fails."""
        with self.lock:
            while len(self.workers) < self.size:
                self.workers.append(Worker(MODULE))

    def first(self) -> Worker:
        """The worker that times, ready; the first one started."""
        with self.lock:
            self.start()
            self.workers[0].await_ready()
            return self.workers[0]

    def idle(self) -> list[Worker]:
        """Those that have started and have no job."""
        for worker in self.workers:
            if not worker.is_ready and worker.has_news:
                worker.await_ready()
        return [worker for worker in self.workers if worker.is_ready and not worker.is_busy]

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_busy]

    def wait(self, workers: Collection[Worker], seconds: float) -> list[Worker]:
        """Those of some workers that have something to receive, waiting for one."""
        found = wait([worker.connection for worker in workers], seconds)
        return [worker for worker in workers if worker.connection in found]

    def replace(self, worker: Worker) -> Worker:
        """A new worker in the place of one that has died."""
        position = self.workers.index(worker)
        self.workers[position] = Worker(MODULE)
        return self.workers[position]

    def settle(self) -> None:
        """Replace those that still have a job: what used them has been broken off."""
        for worker in self.busy():
            worker.stop()
            self.workers.remove(worker)

    def close(self) -> None:
        """Stop all; a forked child leaves its parent's alone."""
        if self._owner == os.getpid():
            for worker in self.workers:
                worker.stop()
            self.workers.clear()


@cache
def _crew_of(process: int) -> Crew:
    del process
    return Crew(max(1, min(MOST_WORKERS, os.cpu_count() or 1)))


def process_crew() -> Crew:
    """The one crew of this process; a forked child has one of its own."""
    return _crew_of(os.getpid())
