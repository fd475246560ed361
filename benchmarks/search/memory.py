"""Peak memory of attention as one writes it, by length: compiled once for all, run in a process for each length.

The peak of a process less what was resident before its inputs were made.  `python -m benchmarks.search.memory N` is
such a process; the first one compiles, all others find the program on disk.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from luminal.bench.report import Report, Settings

LENGTHS, QUICK_LENGTHS = (8192, 16384, 32768), (1024, 2048)
COMPILED_FOR = 1024
MOST_GROWTH = 2.2
"""Of the memory when the length doubles: two, and what does not depend on it."""


def measure(report: Report, settings: Settings) -> None:
    lengths = QUICK_LENGTHS if settings.quick else LENGTHS
    _run(COMPILED_FOR)
    found: list[float] = []
    for number, length in enumerate(lengths):
        report.progress(number, len(lengths))
        used = _run(length)
        found.append(used["megabytes"])
        is_last = length == lengths[-1]
        report.figure(f"{length} keys", used["megabytes"], "MB", at_most=1000.0 if is_last else None, **used)
    growth = max(later / before for before, later in itertools.pairwise(found))
    report.figure("twice the keys, the most", growth, "x", at_most=MOST_GROWTH)


def _run(length: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.search.memory", str(length)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main(length: int) -> None:
    import torch

    import luminal as lm
    from benchmarks.attention import inputs, model

    compiled = torch.compile(model(), backend="luminal", dynamic=True)
    with torch.inference_mode():
        compiled(*inputs(COMPILED_FOR))
        before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        given = inputs(length)
        result = compiled(*given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    inherent = sum(x.nbytes for x in given) + result.nbytes
    used = {
        "megabytes": (peak - before) / 1e6,
        "whole_process": peak / 1e6,
        "inputs_and_output": inherent / 1e6,
        "arena": lm.stats()["arena_bytes"] / 1e6,
    }
    print(json.dumps(used))


if __name__ == "__main__":
    main(int(sys.argv[1]))
