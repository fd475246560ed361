"""Threads that compile for the first time at once, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, torch
import luminal as lm

BACKEND = {backend}
sys.setswitchinterval(1e-6)
barrier, found = threading.Barrier(3), []

def first(factor):
    barrier.wait()
    compiled = torch.compile(lambda x: x * factor, backend=BACKEND)
    found.append(compiled(torch.ones(2)).tolist() == [factor] * 2)

threads = [threading.Thread(target=first, args=(factor,)) for factor in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(found != [True] * 3)
"""


@pytest.mark.parametrize(
    "backend", ["lm.luminal_cpu", 'torch._dynamo.lookup_backend("luminal") and "luminal"']
)
def test_first_compilations_at_once(backend: str) -> None:
    """By its bare name torch would load the backend in each thread, and refuse all but the first (README)."""
    program = PROGRAM.format(backend=backend)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
