"""One contender of a benchmark in its own process: compiles, checks and times what the coordinator asks for.

The protocol is one JSON object a line: requests on standard input, replies on what was standard output.
Whatever libraries print goes to standard error instead. Started by luminal/bench.py as
`python -m luminal.bench_worker CONTENDER THREADS SUITE_FILE`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from luminal.bench import CONTENDERS, load_suite

Request = dict[str, Any]
Reply = dict[str, Any]
MINIMUM_CALLS = 3


def compile_for(contender: str, model: nn.Module, dynamic: bool) -> Callable[..., Tensor]:
    if contender == "eager":
        return model
    if contender == "inductor":
        from torch._inductor import config

        config.freezing = True
        return torch.compile(model, backend="inductor", dynamic=dynamic)
    return torch.compile(model, backend="luminal", dynamic=dynamic, options={"freeze": True})


class Worker:
    """Holds the model and the case at hand. Times are in seconds here; the coordinator turns them into ms."""

    def __init__(self, contender: str, threads: int, suite_file: str) -> None:
        torch.set_num_threads(threads)
        # Each static size is a compilation of its own: more of them than Dynamo's default limit.
        torch._dynamo.config.recompile_limit = 64
        self.contender = contender
        self.suite = load_suite(suite_file)
        self.model = self.suite.model()
        self.compiled: Callable[..., Tensor] = self.model
        self.dynamic: bool | None = None
        self.inputs: tuple[Tensor, ...] = ()

    def prepare(self, request: Request) -> Reply:
        """Compiles for the case by its first call; the cases of one dynamic setting share a model."""
        if request["dynamic"] != self.dynamic:
            torch._dynamo.reset()
            self.dynamic = bool(request["dynamic"])
            self.compiled = compile_for(self.contender, self.model, self.dynamic)
        self.inputs = self.suite.inputs(request["sizes"])
        began = time.perf_counter()
        result = self.compiled(*self.inputs)
        seconds = time.perf_counter() - began
        np.save(request["result_file"], result.double().numpy())
        return {"first_call_seconds": seconds}

    def reference(self, request: Request) -> Reply:
        """The same case in f64."""
        inputs = [value.double() if value.is_floating_point() else value for value in self.inputs]
        np.save(request["result_file"], deepcopy(self.model).double()(*inputs).numpy())
        return {}

    def slice(self, request: Request) -> Reply:
        """Calls for about so many seconds, at least three; the first, which wakes caches, is not counted."""
        self.compiled(*self.inputs)
        times: list[float] = []
        until = time.perf_counter() + float(request["seconds"])
        while len(times) < MINIMUM_CALLS or time.perf_counter() < until:
            began = time.perf_counter()
            self.compiled(*self.inputs)
            times.append(time.perf_counter() - began)
        return {"median_seconds": statistics.median(times), "calls": len(times)}


def main(arguments: list[str]) -> int:
    contender, threads, suite_file = arguments
    if contender not in CONTENDERS:
        raise SystemExit(f"unknown contender {contender!r}; known: {', '.join(CONTENDERS)}")
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(contender, int(threads), suite_file)
    actions: dict[str, Callable[[Request], Reply]] = {
        "prepare": worker.prepare,
        "reference": worker.reference,
        "slice": worker.slice,
    }
    with torch.inference_mode():
        for line in sys.stdin:
            request: Request = json.loads(line)
            try:
                reply = actions[request["do"]](request)
            except Exception as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            replies.write(json.dumps(reply) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
