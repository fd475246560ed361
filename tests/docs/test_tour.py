"""docs/tour.md shows what the compiler does now, and the kernels on it compute what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.place import place
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of
from tests.emit_cpu.native_kernel import compile_function

from . import tour_blocks as tour

MADE = tour.blocks()


@pytest.mark.parametrize("name", sorted(MADE))
def test_block_is_what_the_compiler_makes(name: str) -> None:
    shown = {found[2]: found[3] for found in tour.BLOCK.finditer(tour.PAGE.read_text())}
    if name in shown:
        assert shown[name] == MADE[name], "run python -m tests.docs.tour_blocks, and read the page again"


def test_page_shows_every_level() -> None:
    shown = {found[2] for found in tour.BLOCK.finditer(tour.PAGE.read_text())}
    assert {f"matmul {level}" for level in ("hlo", "primitive", "merged", "schedule", "placed")} <= shown
    assert {name for name in MADE if name.startswith("attention")} <= shown


def kernel(name: str) -> object:
    module = (tour.matmul if name == "matmul" else tour.attention)().module()
    lower_hlo(module)
    simplify(module)
    partition = Partition.of(graph_of(module))
    cuts = initial_cuts(partition)
    region = tour.regions(partition, Cuts(cuts.kept, cuts.kept, cuts.joined))[-1]
    schedule = parse_schedule(tour.MATMUL_SCHEDULE if name == "matmul" else tour.ATTENTION_SCHEDULE)
    return compile_function(place(region, schedule, name, ["contract", "reassociate"]))


def run(native: object, inputs: list[torch.Tensor], output: torch.Tensor, dims: dict[str, int]) -> None:
    pointers = [tensor.data_ptr() for tensor in (*inputs, output)]
    assert native.run(pointers, dims) == 0


def test_matmul_of_the_page() -> None:
    x, w, b = torch.randn(512, 384), torch.randn(384, 1536), torch.randn(1536)
    output = torch.empty(512, 1536)
    run(kernel("matmul"), [x, w, b], output, {})
    expected = torch.relu(x.double() @ w.double() + b)
    np.testing.assert_allclose(output.numpy(), expected.numpy(), atol=2e-4)


def test_attention_of_the_page_at_every_length() -> None:
    native = kernel("attention")
    for length in (1, 5, 16, 77):
        q, k, v = (torch.randn(8, length, 64) for _ in range(3))
        output = torch.empty(8, length, 64)
        run(native, [q, k, v], output, {"d0": length})
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        np.testing.assert_allclose(output.numpy(), expected.numpy(), atol=2e-5)
