"""The thread pool under load: every chunk once, worker numbers exclusive, callers and forks at any time."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import numpy as np
import pytest

from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.emit_cpu.pool import Pool, pool_text, process_pool
from luminal.emit_cpu.text import Module
from luminal.emit_cpu.values import Value

HOST = Target.host()


def _functions() -> dict[str, int]:
    """count: ++context[chunk]. own: marks context[chunk] with its worker, and fails a worker that is in use twice.
    nested: runs `count` on the pool from inside a chunk."""
    module = Module()
    parameters = [("ptr", "context"), ("i64", "chunk"), ("i32", "worker")]
    with module.function("count", parameters) as f:
        place = f.offset(f.parameters["context"], "i64", f.parameters["chunk"])
        f.store(f.op("add", f.load("i64", place), 1), place)
        f.ret()
    with module.function("own", parameters) as f:
        context, chunk, worker = f.parameters.values()
        flag = f.offset(context, "i64", f.convert("zext", worker, "i64"))
        before = f.define("i64", f"atomicrmw add ptr {flag.text}, i64 1 seq_cst")
        with f.loop(0, 300):
            f.line("fence seq_cst")
        clash = f.convert("zext", f.compare("icmp ne", before, 0), "i64")
        mark = f.op("add", f.op("mul", clash, 1000), f.op("add", f.convert("zext", worker, "i64"), 1))
        f.store(mark, f.offset(f.offset(context, "i64", 16), "i64", chunk))
        f.define("i64", f"atomicrmw sub ptr {flag.text}, i64 1 seq_cst")
        f.ret()
    with module.function("nested", parameters) as f:
        context, chunk, _ = f.parameters.values()
        pool = f.load("ptr", context)
        run = f.load("ptr", pool)
        mine = f.offset(context, "i64", f.op("add", f.op("mul", chunk, 4), 1))
        f.call("void", run.text, [pool, Value("ptr", "@count"), mine, Value("i64", "4"), Value("i32", "3")])
        f.ret()
    library = load_object(compile_object(module.text(), HOST), ["count", "own", "nested"])
    KEEP.append(library)
    return library.addresses


KEEP: list[object] = []
FUNCTIONS = _functions()


def run(pool: Pool, name: str, context: np.ndarray, chunks: int, threads: int) -> None:
    types = [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.c_int32]
    entry = ctypes.CFUNCTYPE(None, *types)(pool.library["luminal_pool_run"])
    entry(pool.handle, FUNCTIONS[name], context.ctypes.data, chunks, threads)


def count_many(pool: Pool, turns: int, chunks: int, threads: int) -> None:
    counters = np.zeros(max(chunks, 1), np.int64)
    for _ in range(turns):
        run(pool, "count", counters, chunks, threads)
    assert (counters[:chunks] == turns).all()


@pytest.mark.parametrize("chunks", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 4])
def test_every_chunk_runs_once(chunks: int, threads: int) -> None:
    count_many(process_pool(), 300, chunks, threads)


def test_threads_start_when_they_are_first_wanted() -> None:
    pool = Pool()
    assert pool.started == 0
    count_many(pool, 5, 8, 2)
    assert pool.started == 1
    count_many(pool, 5, 8, 4)
    assert pool.started == 3
    count_many(pool, 5, 8, 2)
    assert pool.started == 3


def test_worker_numbers_are_below_the_count_and_never_shared() -> None:
    pool = process_pool()
    count_many(pool, 1, 8, 6)
    for threads in (2, 3, 2, 6):
        for _ in range(200):
            context = np.zeros(16 + 9, np.int64)
            run(pool, "own", context, 9, threads)
            marks = context[16:]
            assert (marks >= 1).all() and (marks <= threads).all()


def test_workers_wake_from_sleep() -> None:
    pool = process_pool()
    for _ in range(20):
        time.sleep(0.003)
        count_many(pool, 2, 5, 3)


def test_several_callers_at_once() -> None:
    pool = process_pool()
    failures: list[BaseException] = []

    def caller() -> None:
        try:
            count_many(pool, 3000, 7, 3)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not failures


def test_a_call_from_inside_a_chunk() -> None:
    pool = process_pool()
    for _ in range(200):
        context = np.zeros(1 + 4 * 6, np.int64)
        context[0] = pool.handle
        run(pool, "nested", context, 6, 3)
        assert (context[1:] == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    pool = process_pool()
    count_many(pool, 10, 8, 3)
    child = os.fork()
    if child == 0:
        try:
            fine = process_pool() is pool and pool.started == 0
            count_many(pool, 200, 9, 3)
            os._exit(0 if fine and pool.started == 2 else 2)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    count_many(pool, 10, 8, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_is_in_the_pool() -> None:
    pool = process_pool()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            count_many(pool, 50, 8, 2)

    caller = threading.Thread(target=busy)
    caller.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    count_many(pool, 50, 9, 3)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        caller.join()


def test_pool_compiles_for_every_target() -> None:
    for target in (Target.aarch64(), Target.avx2()):
        assert compile_object(pool_text(target), target).startswith(b"\x7fELF")
