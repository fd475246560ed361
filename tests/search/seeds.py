"""What a program prints under different hash seeds of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def outputs_of_seeds(code: str, seeds: tuple[str, ...] = ("1", "77")) -> list[str]:
    """The standard output for each seed; CalledProcessError where the program fails."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    found = [process.communicate(timeout=300)[0] for process in running]
    for process in running:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, code)
    return found
