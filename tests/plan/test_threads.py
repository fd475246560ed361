"""Threads around and inside of calls: pools of a user's own, forks, small works, and Python threads beside a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

import luminal as lm
from luminal.plan.programs import Compiled

Array = np.ndarray[Any, Any]

PROGRAM = """
import os, sys
import numpy as np
import luminal as lm
from luminal.emit_cpu.pool import process_pool

def built(rows, width):
    cx = lm.Graph()
    x, w = cx.tensor((rows, width)), cx.tensor((width, width))
    y = x.matmul(w).relu().output()
    cx.build_search_space(lm.CPURuntime)
    runtime = cx.search(lm.CPURuntime(), 1)
    numbers = np.random.default_rng(0)
    runtime.set_data(x, numbers.standard_normal((rows, width), np.float32))
    runtime.set_data(w, numbers.standard_normal((width, width), np.float32))
    def run():
        runtime.execute(cx.dyn_map)
        return runtime.get_numpy(y).copy()
    return run

small, large = built(8, 32), built(512, 256)
small()
assert process_pool().started == 0, "a small work was given to a second thread"
wanted = large()
assert process_pool().started == 1
child = os.fork()
if child == 0:
    same = np.array_equal(large(), wanted) and process_pool().started == 1
    os._exit(0 if same else 3)
assert os.waitpid(child, 0)[1] == 0, "the forked child"
assert np.array_equal(large(), wanted)
"""


def test_small_works_stay_on_one_thread_and_a_forked_child_has_threads_of_its_own() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "LUMINAL_THREADS": "2", "LUMINAL_PROFILE": "workers"},
    )
    assert ran.returncode == 0, ran.stderr


def _compiled(build: Callable[[lm.Graph], Any]) -> Compiled:
    cx = lm.Graph()
    build(cx)
    cx.build_search_space(lm.CPURuntime)
    return cast("Compiled", cx.search(lm.CPURuntime(), 1).executable)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """A product and a softmax over rows, with two threads each."""
    monkeypatch.setenv("LUMINAL_THREADS", "2")
    s = lm.dim("s", 1, 512)
    return [
        _compiled(lambda cx: cx.tensor((s, 128)).matmul(cx.tensor((128, 128))).relu().output()),
        _compiled(lambda cx: cx.tensor((s, 128)).softmax(-1).output()),
    ]


def _calls(models: list[Compiled]) -> list[tuple[Compiled, list[Array]]]:
    numbers = np.random.default_rng(0)
    w = numbers.standard_normal((128, 128), np.float32)
    calls: list[tuple[Compiled, list[Array]]] = []
    for rows in (1, 33, 512, 200):
        x = numbers.standard_normal((rows, 128), np.float32)
        calls += [(models[0], [x, w]), (models[1], [x])]
    return calls


@pytest.mark.parametrize("used", [1, 2])
def test_models_in_a_thread_pool_of_the_user(models: list[Compiled], used: int) -> None:
    calls = [call for call in _calls(models) if call[0] in models[:used]]
    wanted = [model.run(inputs)[0] for model, inputs in calls]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda call: call[0].run(call[1])[0], calls * 4))
            for result, expected in zip(found, wanted * 4, strict=True):
                assert np.array_equal(result, expected)


def test_python_runs_beside_a_kernel(models: list[Compiled]) -> None:
    """Where nothing gives the interpreter away unasked, another thread gets on because the call does."""
    model, (x, w) = models[0], _calls(models)[4][1]
    turns, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0)

    call = model.prepared([x, w])
    call()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    counter = threading.Thread(target=count)
    counter.start()
    try:
        before, end = turns[0], time.monotonic() + 20
        while turns[0] == before and time.monotonic() < end:  # the system may have other things to do
            call()
        assert turns[0] > before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        counter.join()
