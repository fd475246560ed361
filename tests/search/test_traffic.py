"""Passes over arguments: those of the loops are counted, those from memory follow the rule of the cache."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from xdsl.ir import SSAValue

from luminal.dialects.kernel import placed_interpreter
from luminal.dialects.kernel.placed import LoadOp, StoreOp
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import dim
from luminal.passes.place import place
from luminal.search.candidates import legal_candidates
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from luminal.search.traffic import grid_of, operations, traffic
from tests.kernel import regions

REGIONS = {
    "matmul": (regions.matmul(16, 32, 8), {}),
    "ragged matmul": (regions.matmul(13, 21, 5), {}),
    "softmax": (regions.softmax(dim("m"), 24), {"m": 7}),
    "layer norm": (regions.layer_norm(5, 16), {}),
    "transposed": (regions.transposed_sum(6, 9), {}),
    "attention": (regions.attention(2, 8, 4), {}),
    "loop": (regions.folded(6, 8), {}),
}


@pytest.mark.parametrize("name", REGIONS)
def test_passes_are_what_the_interpreter_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    region, dims = REGIONS[name]
    touched: Counter[SSAValue] = Counter()
    access = placed_interpreter._Machine.access

    def counted(self: placed_interpreter._Machine, op: LoadOp | StoreOp, axes: object) -> object:
        found = access(self, op, axes)  # type: ignore[arg-type]
        touched[op.reference] += int(found[2].sum())
        return found

    monkeypatch.setattr(placed_interpreter._Machine, "access", counted)
    for number, (candidate, _) in enumerate(legal_candidates(region, Machine(4, 16), Samples(dict(dims)))):
        if number == 3:
            break
        function = place(region, candidate.schedule, "kernel")
        memory = [np.ones(a.elements.evaluate(dims), a.dtype.numpy) for a in region.arguments]
        memory += [np.zeros(o.elements.evaluate(dims), o.dtype.numpy) for o in region.outputs]
        touched.clear()
        placed_interpreter.interpret_placed(function, memory, dims)
        for argument, array, passes in zip(
            function.body.block.args, memory, traffic(function, region, dims), strict=True
        ):
            assert passes.loops == pytest.approx(touched[argument] / array.size), candidate.schedule


PLAIN = "out0: i:*:parallel j:* k:*"


def test_what_fits_the_cache_is_read_from_memory_once() -> None:
    region = regions.matmul(64, 64, 64)
    function = place(region, parse_schedule(PLAIN), "kernel")
    left, right, _, _ = traffic(function, region, {}, cache=1 << 20)
    assert (left.loops, right.loops) == (64, 64)
    assert (left.memory, right.memory) == (1, 1)
    assert left.bytes == 64 * 64 * 4


def test_what_a_loop_inside_evicts_is_read_again() -> None:
    """A row of the left factor stays while the right one, which is larger than the cache, goes by for each row."""
    region = regions.matmul(64, 64, 64)
    function = place(region, parse_schedule(PLAIN), "kernel")
    left, right, bias, output = traffic(function, region, {}, cache=4096)
    assert (left.memory, right.memory, bias.memory, output.memory) == (1, 64, 64, 1)
    assert right.bytes == 64 * 64 * 64 * 4


def test_work_and_parallel_iterations() -> None:
    region: Region = regions.matmul(4, 6, 5)
    assert operations(region, {}) == 4 * 6 * 5 * 2 + 4 * 6 * 2
    function = place(region, parse_schedule("out0: i:*:parallel j:*:parallel j:4 k:*"), "kernel")
    assert grid_of(function, region, {}) == 8
