"""Both ends of a benchmark's processes: one JSON object a line, requests on standard input, replies on what was
standard output.  Whatever libraries print goes to standard error instead, which is kept as a log.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from luminal.bench.case import SUITES, BenchmarkError, LeftOutError

LAST_WORDS = 15
"""Lines of a failed process that are shown."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What errors of some libraries colour their words with."""
Message = dict[str, Any]


class Process:
    """The coordinator's end of one process, `python -m MODULE ARGUMENTS`, with a number of threads."""

    def __init__(
        self, module: str, arguments: Sequence[str], threads: int, log: Path, **environment: str
    ) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **_environment(threads), **environment},
            )

    def ask(self, request: Message, limit: float | None = None) -> Message:
        """Sends a request and waits for its reply, at most `limit` seconds.

        LeftOutError and BenchmarkError say what the process says; a process that ends, or takes too long and is ended,
        raises BenchmarkError.
        """
        late = threading.Event()
        timer = threading.Timer(limit or 0.0, lambda: (late.set(), self.process.kill()))
        if limit is not None:
            timer.start()
        try:
            _stream(self.process.stdin).write(json.dumps(request) + "\n")
            _stream(self.process.stdin).flush()
            line = _stream(self.process.stdout).readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            self.process.wait()
            raise BenchmarkError(f"took more than {limit:g} s")
        if not line:
            raise BenchmarkError(f"its process ended, status {self.process.wait()}:\n{self.last_words()}")
        reply: Message = json.loads(line)
        if "left_out" in reply:
            raise LeftOutError(reply["left_out"])
        if "error" in reply:
            raise BenchmarkError(reply["error"])
        return reply

    def lines(self) -> Iterator[Message]:
        """What a process says that is asked nothing, to its end."""
        for line in _stream(self.process.stdout):
            yield json.loads(line)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_WORDS:])

    def close(self) -> int:
        """Lets the process end, or ends it after ten seconds; its status."""
        _stream(self.process.stdin).close()
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _environment(threads: int) -> dict[str, str]:
    """Threads for every library that reads them here, and huge pages for all of C's and torch's memory."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "LUMINAL_THREADS": count,
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "THP_MEM_ALLOC_ENABLE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SUITES.parent), os.environ.get("PYTHONPATH", "")))),
    }


def speaker() -> Callable[[Mapping[str, Any]], None]:
    """Takes standard output for the protocol: writes one object a line."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")

    return say


def serve(actions: Mapping[str, Callable[[Message], Message]]) -> None:
    """The worker's end: answers each request by the action that it names under "do", errors as replies."""
    say = speaker()
    for line in sys.stdin:
        request: Message = json.loads(line)
        try:
            say(actions[request["do"]](request))
        except LeftOutError as error:
            say({"left_out": str(error)})
        except Exception as error:
            say({"error": COLOURS.sub("", f"{type(error).__name__}: {error}")})
