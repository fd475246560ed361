"""Native sorts against torch's stable one: every dtype, both orders, axes, few elements and all, ties and NaN."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dtype import DTYPES
from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.emit_cpu.pool import process_pool
from luminal.emit_cpu.sorting import FEW, SORTED, private_bytes, sort_text
from luminal.plan.kernels import SIGNATURE, LoadedKernel


@cache
def kernel(dtype: str, descending: bool) -> LoadedKernel:
    text = sort_text("sort", DTYPES[dtype], descending)
    library = load_object(compile_object(text, Target.host()), ["sort"])
    return LoadedKernel(library["sort"], library)


def sort(
    x: torch.Tensor, axis: int, descending: bool, count: int, threads: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    name = str(x.dtype).removeprefix("torch.")
    dtype = next(each for each in DTYPES.values() if each.torch_name == name)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values, places = torch.empty(shape, dtype=x.dtype), torch.empty(shape, dtype=torch.int64)
    outer, inner = x.shape[:axis].numel(), x.shape[axis + 1 :].numel()
    size = x.shape[axis]
    needed = private_bytes(dtype).evaluate({"size": size}) * threads
    work = torch.full((needed + 64,), 0xEE, dtype=torch.uint8)
    start = -work.data_ptr() % 64
    arguments = (ctypes.c_void_p * 3)(x.data_ptr(), values.data_ptr(), places.data_ptr())
    sizes = (ctypes.c_int64 * 4)(outer, size, inner, count)
    pool = process_pool().handle if threads > 1 else 0
    status = SIGNATURE(kernel(dtype.name, descending).address)(
        ctypes.addressof(arguments), ctypes.addressof(sizes), work.data_ptr() + start, pool, threads
    )
    assert status == 0
    assert (work[start + needed :] == 0xEE).all() and (work[:start] == 0xEE).all()
    return values, places


def check(x: torch.Tensor, axis: int, descending: bool, count: int, threads: int = 1) -> None:
    values, places = sort(x, axis, descending, count, threads)
    wanted = torch.sort(x, dim=axis, descending=descending, stable=True)
    assert torch.equal(places, wanted.indices.narrow(axis, 0, count))
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize]
    assert torch.equal(values.view(carrier), x.view(carrier).gather(axis, places))


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """All bit patterns of small dtypes and of large ones some, with many that are equal, infinite or no number."""
    generator = torch.Generator().manual_seed(seed)
    torch_type: torch.dtype = DTYPES[dtype].torch
    if dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if not torch_type.is_floating_point:
        limits = torch.iinfo(torch_type)
        wide = torch.randint(limits.min, limits.max, shape, generator=generator, dtype=torch_type)
        return torch.where(torch.rand(shape, generator=generator) < 0.3, wide % 3, wide)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    kinds = torch.randint(0, 12, shape, generator=generator)
    for kind, value in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 5e-8, -5e-8)):
        x[kinds == kind] = value
    return x.to(torch_type)


@pytest.mark.parametrize("dtype", sorted(SORTED))
@pytest.mark.parametrize("descending", [True, False])
def test_every_dtype(dtype: str, descending: bool) -> None:
    for count in (1, 7, FEW, FEW + 1, 100):
        check(numbers(dtype, (3, 100)), 1, descending, count)
        check(numbers(dtype, (100, 3)), 0, descending, count)
    check(numbers(dtype, (2, 700, 3)), 1, descending, 700)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_on_threads(threads: int) -> None:
    x = numbers("f32", (300, 40))
    for count in (0, 3, 40):
        check(x, 1, True, count, threads)


def test_rows_that_are_sorted_already() -> None:
    x = torch.arange(1000.0)
    for row in (x, x.flip(0), torch.zeros(1000)):
        for count in (FEW, 1000):
            check(row, 0, True, count)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SORTED)),
    st.lists(st.integers(0, 50), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_shapes(dtype: str, shape: list[int], descending: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(0, shape[axis]))
    check(numbers(dtype, tuple(shape), len(shape)), axis, descending, count)


def test_sorts_compile_for_every_target() -> None:
    for target in (Target.aarch64(), Target.avx2()):
        assert compile_object(sort_text("sort", DTYPES["f16"], True), target).startswith(b"\x7fELF")
