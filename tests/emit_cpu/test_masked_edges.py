"""Ragged edges of narrow types: nothing is written behind the last element, and the element is right."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dtype import DTYPES
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler

BEHIND = 8
REGION = """\
index i = {size}
argument 0 = {source} [{size}]
%0 = load 0 [i] : {source}
%1 = cast.none %0 : {dtype}
output 0 = %1 at [i] of [{memory}] over [i]
"""


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i16", "i8", "u8"])
@pytest.mark.parametrize("source", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("schedule", ["i:* i:16:lane", "i:* i:2:tile i:16:lane", "i:*:masked i:16:lane"])
@pytest.mark.parametrize("size", [17, 18, 31, 33])
def test_an_edge_of_a_few_lanes_writes_those_alone(dtype: str, source: str, schedule: str, size: int) -> None:
    region = parse_region(REGION.format(size=size, memory=size + BEHIND, source=source, dtype=dtype))
    measurer = HostMeasurer(KernelCompiler(Target.host(), ("contract",), use_cache=False))
    kernel = measurer.compile(region, parse_schedule(f"out0: {schedule}"), 1000)
    given = np.arange(1, size + 1).astype(DTYPES[source].numpy)
    result = np.full(size + BEHIND, 99).astype(DTYPES[dtype].numpy)
    kernel.run([given], [result], {}, 1)
    wanted = [*range(1, size + 1), *[99] * BEHIND]
    assert result.astype(np.float64).tolist() == wanted


ROWS = """\
index g = 3
index j = 33
index k = 4
argument 0 = i32 [12]
argument 1 = i32 [132]
%0 = load 0 [(4)*g + k] : i32
%1 = load 1 [j + (33)*k] : i32
%2 = mul %0 %1 : i32
%3 = reduce.sum [k] %2 : i32
%4 = cast.none %3 : {dtype}
output 0 = %4 at [(33)*g + j] of [107] over [g j]
"""


@pytest.mark.parametrize("dtype", ["i16", "i8"])
@pytest.mark.parametrize("order", ["g:*:parallel j:*:parallel k:*", "g:* j:* k:*"])
def test_an_edge_that_only_the_code_generator_knows_writes_its_lane_alone(dtype: str, order: str) -> None:
    """The loop over columns has two iterations: its second mask is a constant as soon as that is unrolled."""
    region = parse_region(ROWS.format(dtype=dtype))
    measurer = HostMeasurer(KernelCompiler(Target.host(), (), use_cache=False))
    kernel = measurer.compile(region, parse_schedule(f"out0: {order} j:2:tile j:16:lane"), 1000)
    left, right = np.arange(12).reshape(3, 4), np.arange(132).reshape(4, 33) % 7
    result = np.full(99 + BEHIND, 99).astype(DTYPES[dtype].numpy)
    kernel.run([x.reshape(-1).astype(np.int32) for x in (left, right)], [result], {}, 1)
    wanted = [*(left @ right).astype(result.dtype).reshape(-1).tolist(), *[99] * BEHIND]
    assert result.tolist() == wanted
