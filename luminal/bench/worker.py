"""One contender of a benchmark in its own process: prepares, checks and times what the coordinator asks for.

Started by luminal/bench/turns.py as `python -m luminal.bench.worker PEER_FILE THREADS`; luminal/bench/process.py has
the protocol.
"""

from __future__ import annotations

import statistics
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import torch

from luminal.bench.case import BenchmarkError, Prepared, Program, load_peer, load_suite
from luminal.bench.process import Message, serve
from luminal.bench.torch_program import Array, exact, least_mbytes

MINIMUM_CALLS = 3


class Worker:
    """Holds the program at hand. Times are in seconds here; the coordinator turns them into ms."""

    def __init__(self, peer_file: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.threads = threads
        self.peer = load_peer(Path(peer_file))
        self.suite_file = ""
        self.program: Program
        self.prepared: Prepared

    def prepare(self, request: Message) -> Message:
        """Builds, translates and compiles the case, and runs it once."""
        if self.suite_file != request["suite"]:
            self.suite_file = request["suite"]
            self.suite = load_suite(self.suite_file)
        case = next(case for case in self.suite.CASES if case.name == request["case"])
        torch.manual_seed(zlib.crc32(case.name.encode()))
        self.program = case.build(request["tiny"])
        with self._mode():
            began = time.perf_counter()
            self.prepared = self.peer.prepare(self.program, case, self.threads)
            result = self.prepared.call()
            seconds = time.perf_counter() - began
            self.results = self.prepared.results(result)
        _save(request["result_file"], self.results)
        return {"first_call_seconds": seconds, "note": self.prepared.note()}

    def reference(self, request: Message) -> Message:
        """The same case in f64, and the work that it cannot do without."""
        with self._mode():
            results, counted = exact(self.program)
        _save(request["result_file"], results)
        gflop, mbytes = self.program.gflop, self.program.mbytes
        return {
            "gflop": counted if gflop is None else gflop,
            "mbytes": least_mbytes(self.program, self.results) if mbytes is None else mbytes,
        }

    def slice(self, request: Message) -> Message:
        """Calls for about so many seconds, at least three; the first, which wakes caches, is not counted."""
        call = self.prepared.call
        with self._mode():
            call()
            times: list[float] = []
            used = time.process_time()
            until = time.perf_counter() + float(request["seconds"])
            while len(times) < MINIMUM_CALLS or time.perf_counter() < until:
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
            used = (time.process_time() - used) / len(times)
        return {"median_seconds": statistics.median(times), "cpu_seconds": used}

    def _mode(self) -> torch.inference_mode:
        return torch.inference_mode(not self.program.training)


def _save(file: str, results: list[Array]) -> None:
    if not results:
        raise BenchmarkError("it gave no result")
    np.savez(file, *results)


def main(arguments: list[str]) -> int:
    peer_file, threads = arguments
    worker = Worker(peer_file, int(threads))
    actions = {"prepare": worker.prepare, "reference": worker.reference, "slice": worker.slice}
    serve({"start": lambda _: {}, **actions})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
