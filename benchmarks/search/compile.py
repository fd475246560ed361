"""Seconds of compiling a Llama of 30 layers with 135 M parameters, by default options: cold, and in a second process.

`python -m benchmarks.search.compile LAYERS SHAPE` is one of the processes; they share the measurement's cache folder,
which is empty at first.  torch's tracing is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from luminal.bench.report import Report, Settings, needed


def measure(report: Report, settings: Settings) -> None:
    needed("transformers")
    layers, shape = ("2", "small") if settings.quick else ("30", "whole")
    command = [sys.executable, "-m", "benchmarks.search.compile", layers, shape]
    for number, (name, most) in enumerate((("cold", 30.0), ("warm", 1.0))):
        report.progress(number, 2)
        reply = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found: dict[str, Any] = json.loads(reply)
        seconds = sum(found["compile_seconds"].values())
        report.figure(f"Llama, {layers} layers, {name}", seconds, "s", at_most=most, **found)


def main(layers: int, small: bool) -> None:
    import torch

    import luminal as lm
    from benchmarks.search.llama import SHAPE, SMALL, llama, token_ids

    shape = SMALL if small else SHAPE
    model = llama(layers, shape)
    compiled = torch.compile(model, backend="luminal")
    ids = token_ids(shape)
    with torch.inference_mode():
        begun = time.perf_counter()
        compiled(ids)
        first_call = time.perf_counter() - begun
    stats = lm.stats()
    found = {
        "compile_seconds": stats["compile_seconds"],
        "first_call_seconds": first_call,
        "kernels": stats["kernels"],
        "launches": stats["launches"],
        "from_disk": stats["cached"],
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "small")
