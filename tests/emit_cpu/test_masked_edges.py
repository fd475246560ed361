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
@pytest.mark.parametrize("size", [17, 18, 31])
def test_an_edge_of_a_few_lanes_writes_those_alone(dtype: str, source: str, schedule: str, size: int) -> None:
    region = parse_region(REGION.format(size=size, memory=size + BEHIND, source=source, dtype=dtype))
    measurer = HostMeasurer(KernelCompiler(Target.host(), ("contract",), use_cache=False))
    kernel = measurer.compile(region, parse_schedule(f"out0: {schedule}"), 1000)
    given = np.arange(1, size + 1).astype(DTYPES[source].numpy)
    result = np.full(size + BEHIND, 99).astype(DTYPES[dtype].numpy)
    kernel.run([given], [result], {}, 1)
    wanted = [*range(1, size + 1), *[99] * BEHIND]
    assert result.astype(np.float64).tolist() == wanted
