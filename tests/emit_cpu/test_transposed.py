"""Vectors whose lanes lie apart: every element lands in its place, whatever the tile, the edges and the dtype."""

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
REGION = """\
index i = {rows}
index j = {columns}
argument 0 = {dtype} [{elements}]
%0 = load 0 [({columns})*i + j] : {dtype}
output 0 = %0 at [i + ({rows})*j] of [{elements}] over [i j]
"""


@pytest.mark.parametrize("dtype", ["f32", "i32", "f64", "bf16"])
@pytest.mark.parametrize("rows, columns", [(8, 16), (14, 32), (9, 33), (3, 16), (30, 7)])
@pytest.mark.parametrize("tile", [4, 7, 14])
def test_a_transposed_copy_is_numpys(dtype: str, rows: int, columns: int, tile: int) -> None:
    region = parse_region(REGION.format(rows=rows, columns=columns, elements=rows * columns, dtype=dtype))
    schedule = parse_schedule(f"out0: i:* j:* i:{tile}:tile j:16:lane")
    kernel = HostMeasurer(KernelCompiler(HOST, (), use_cache=False)).compile(region, schedule, 1000)
    given = np.arange(rows * columns).astype(DTYPES[dtype].numpy)
    result = np.zeros_like(given)
    kernel.run([given], [result], {}, 1)
    assert result.tolist() == given.reshape(rows, columns).T.reshape(-1).tolist()


def test_four_are_stored_at_once() -> None:
    """Of fourteen rows three quads and two rows for each of sixteen lanes; rows that are cut one by one."""
    region = parse_region(REGION.format(rows=14, columns=16, elements=224, dtype="f32"))
    schedule = parse_schedule("out0: i:* j:* i:14:tile j:16:lane")
    text = emit_function(place(region, schedule, "turn"), HOST).text
    assert text.count("store <4 x float>") == 3 * 16
    assert text.count("store float") == 2 * 16


@pytest.mark.parametrize("dtype", ["f32", "i32", "f64", "bf16", "i8", "bool"])
@pytest.mark.parametrize("rows, columns", [(16, 32), (40, 33), (30, 7)])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_a_square_that_is_loaded_transposed_is_numpys(
    dtype: str, rows: int, columns: int, lanes: int
) -> None:
    region = parse_region(REGION.format(rows=columns, columns=rows, elements=rows * columns, dtype=dtype))
    schedule = parse_schedule(f"out0: j:* i:* j:{lanes}:tile i:{lanes}:lane")
    kernel = HostMeasurer(KernelCompiler(HOST, (), use_cache=False)).compile(region, schedule, 1000)
    given = (np.arange(rows * columns) % 251 % (2 if dtype == "bool" else 128)).astype(DTYPES[dtype].numpy)
    result = np.zeros_like(given)
    kernel.run([given], [result], {}, 1)
    assert result.tolist() == given.reshape(columns, rows).T.reshape(-1).tolist()


def test_a_square_is_loaded_and_stored_in_vectors_alone() -> None:
    """Eight loads and stores of eight elements, and three steps of four pairs' two halves; none of a scalar."""
    region = parse_region(REGION.format(rows=32, columns=32, elements=1024, dtype="f32"))
    text = emit_function(place(region, parse_schedule("out0: j:* i:* j:8:tile i:8:lane"), "turn"), HOST).text
    counts = [
        text.count(part) for part in ("load <8 x float>", "store <8 x float>", "shufflevector", "load float")
    ]
    assert counts == [8, 8, 24, 0]
