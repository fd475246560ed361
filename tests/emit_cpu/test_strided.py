"""Loads of every second element or so: picked from whole vectors, which read nothing outside of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dtype import DTYPES
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target
from luminal.passes.place import place
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler

HOST = Target.host()
PICKED = """\
index i = {count}
argument 0 = {dtype} [{elements}]
%0 = load 0 [({stride})*i] : {dtype}
output 0 = %0 at [i] of [{count}] over [i]
"""
PADDED = """\
index i = {count}
index r = 3
argument 0 = f32 [{size}]
%0 = constant 0x1 : i64
%1 = index [({stride})*i + r] : i64
%2 = less_than.le %0 %1 : bool
%3 = constant {limit} : i64
%4 = less_than.lt %1 %3 : bool
%5 = bits.and %2 %4 : bool
%6 = load 0 [({stride})*i + r + (-1)] guarded %5 : f32
%7 = reduce.sum [r] %6 : f32
output 0 = %7 at [i] of [{count}] over [i]
"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16", "bool"])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("count, lanes", [(64, 16), (37, 16), (3, 16), (21, 8), (5, 2)])
def test_elements_apart_are_numpys(dtype: str, stride: int, count: int, lanes: int) -> None:
    elements = (count - 1) * stride + 1
    text = PICKED.format(count=count, dtype=dtype, elements=elements, stride=stride)
    schedule = parse_schedule(f"out0: i:* i:{lanes}:lane")
    kernel = HostMeasurer(KernelCompiler(HOST, (), use_cache=False)).compile(
        parse_region(text), schedule, 1000
    )
    given = (np.arange(elements) % 100 % (2 if dtype == "bool" else 100)).astype(DTYPES[dtype].numpy)
    result = np.zeros(count, given.dtype)
    kernel.run([given], [result], {}, 1)
    assert result.tolist() == given[::stride].tolist()


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("count", [7, 16, 40])
@pytest.mark.parametrize("sums", ["r:*", "r:* r:3:unroll"])
def test_what_lies_outside_of_an_image_counts_as_zero(stride: int, count: int, sums: str) -> None:
    size = (count - 1) * stride + 1
    text = PADDED.format(count=count, stride=stride, size=size, limit=hex(size + 1))
    schedule = parse_schedule(f"out0: i:* {sums} i:16:lane")
    kernel = HostMeasurer(KernelCompiler(HOST, (), use_cache=False)).compile(
        parse_region(text), schedule, 1000
    )
    given = np.arange(1, size + 1, dtype=np.float32)
    result = np.zeros(count, np.float32)
    kernel.run([given], [result], {}, 1)
    padded = np.pad(given, 1)
    assert result.tolist() == [padded[stride * i : stride * i + 3].sum() for i in range(count)]


def test_two_vectors_are_read_for_a_stride_of_two() -> None:
    region = parse_region(PICKED.format(count=64, dtype="f32", elements=127, stride=2))
    text = emit_function(place(region, parse_schedule("out0: i:* i:16:lane"), "pick"), HOST).text
    assert text.count("load <16 x float>") == 2
    assert "load float" not in text
