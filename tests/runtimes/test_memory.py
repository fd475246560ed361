"""Blocks on huge pages, and arrays whose memory comes back when the last view is gone."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch

from luminal.runtimes import memory
from luminal.runtimes.memory import (
    ALIGNMENT,
    HUGE_PAGE,
    POOL,
    Block,
    Pool,
    allocate,
    leased_buffer,
    size_class,
)


@pytest.fixture(autouse=True)
def empty_pool() -> None:
    gc.collect()
    POOL.clear()


def test_large_blocks_begin_on_a_huge_page() -> None:
    assert Block(HUGE_PAGE).address % HUGE_PAGE == 0
    assert Block(5000).address % ALIGNMENT == 0


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 100_000, HUGE_PAGE, HUGE_PAGE + 1, 123_456_789])
def test_size_classes_hold_and_waste_little(size: int) -> None:
    chosen = size_class(size)
    assert chosen >= size and size_class(chosen) == chosen
    assert chosen <= max(4096, size + max(4096, size // 4))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (1024, 1024), (2, 0, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_arrays_are_aligned_and_writable(shape: tuple[int, ...], dtype: type) -> None:
    array = allocate(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0
    array[...] = 1
    assert (array == 1).all()


def test_memory_returns_with_the_last_view() -> None:
    array = allocate((1 << 20,), np.dtype(np.float32))
    address = array.ctypes.data
    view = torch.from_numpy(array).view(1024, 1024)[::2].t()
    del array
    gc.collect()
    assert POOL.waiting_bytes == 0
    other = allocate((1 << 20,), np.dtype(np.float32))
    assert other.ctypes.data != address
    strided = torch.as_strided(view, (4,), (2048,))
    del view
    gc.collect()
    assert POOL.waiting_bytes == 0
    del strided
    gc.collect()
    assert POOL.waiting_bytes >= 4 << 20
    assert allocate((1 << 20,), np.dtype(np.float32)).ctypes.data == address


def test_a_buffer_is_memory_of_the_pool_until_the_last_tensor_is_gone() -> None:
    buffer = leased_buffer(8192)
    assert len(buffer) == 8192
    tensor = torch.frombuffer(buffer, dtype=torch.float32)
    address = tensor.data_ptr()
    view = tensor.view(32, 64).t()
    del buffer, tensor
    gc.collect()
    view.fill_(3.0)
    assert POOL.waiting_bytes == 0
    del view
    gc.collect()
    assert POOL.waiting_bytes == 8192
    assert POOL.lease(8192).address == address


def test_leases_are_exclusive_across_threads() -> None:
    pool = Pool(1 << 30)
    failures: list[str] = []

    def work(mark: int) -> None:
        for _ in range(200):
            block = pool.lease(50_000)
            raw = (memory.ctypes.c_int64 * 4).from_address(block.address)
            raw[0] = mark
            if raw[0] != mark:
                failures.append("shared")
            pool.give_back(block)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_waits_is_bounded_and_the_largest_goes_first() -> None:
    pool = Pool(1 << 20)
    small, large = pool.lease(300_000), pool.lease(900_000)
    pool.give_back(small)
    pool.give_back(large)
    assert pool.waiting_bytes == small.size
    assert pool.lease(300_000) is small


def test_a_lease_takes_no_block_that_is_twice_too_large() -> None:
    pool = Pool(1 << 30)
    pool.give_back(pool.lease(10 << 20))
    assert pool.lease(1 << 20).size < 2 << 20
    assert pool.lease(8 << 20).size == 10 << 20
