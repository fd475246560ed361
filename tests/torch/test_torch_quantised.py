"""Block-quantised layers: equal to eager, decoded where they are used, never spread out in memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_harness import assert_same, compiled

import luminal as lm
from luminal.dump import collect
from luminal.errors import OptionError, ScalarError, ShapeError
from luminal.nn import QuantisedEmbedding, QuantisedLinear
from luminal.quantised import FORMATS

INTEGERS = [name for name, row in FORMATS.items() if row.has_integers]


def linear(
    columns: int, rows: int, format: str, activations: str | None = None, bias: bool = False
) -> QuantisedLinear:
    made = QuantisedLinear(columns, rows, format, bias, activations)
    made.quantise(torch.randn(rows, columns))
    return made


def stored_bytes(module: QuantisedLinear | QuantisedEmbedding) -> int:
    return sum(plane.numel() * plane.element_size() for plane in module.planes().values())


def check(module: nn.Module, x: torch.Tensor, **options: Any) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        expected, found = module(x), compiled(module, **options)(x)
    scale = float(expected.abs().max()) + 1e-9
    assert_same(found / scale, expected / scale, rtol=0, atol=2e-2 if x.dtype is torch.bfloat16 else 2e-6)


@pytest.mark.parametrize("activations", [None, "q8"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_equals_eager(format: str, rows: int, activations: str | None) -> None:
    if activations is None or FORMATS[format].has_integers:
        check(linear(512, 24, format, activations, bias=True), torch.randn(rows, 512))


@given(
    format=st.sampled_from(["q8_0", "q4_0"]),
    activations=st.sampled_from([None, "q8"]),
    lead=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    rows=st.integers(1, 70),
    blocks=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=8, deadline=None)
def test_shapes(
    format: str, activations: str | None, lead: list[int], rows: int, blocks: int, dtype: Any
) -> None:
    check(linear(32 * blocks, rows, format, activations), torch.randn(*lead, 32 * blocks, dtype=dtype))


@pytest.mark.parametrize("activations", [None, "q8"])
def test_any_number_of_rows_in_one_compilation(activations: str | None) -> None:
    module = linear(64, 40, "q4_0", activations)
    run = compiled(module, dynamic=True)
    for rows in (5, 2, 17):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            assert_same(run(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("format", FORMATS)
def test_embedding(format: str) -> None:
    module = QuantisedEmbedding(50, 256, format)
    module.quantise(torch.randn(50, 256))
    ids = torch.tensor([[3, 49], [0, 3]])
    run = compiled(module)
    assert_same(run(ids), module(ids), rtol=0, atol=0)
    assert_same(module(ids), module.weight[ids], rtol=0, atol=0)


@pytest.mark.parametrize("activations", [None, "q8"])
@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_k", "q6_k", "mxfp8", "mxfp4", "nvfp4"])
def test_a_vector_times_a_matrix_moves_the_quantised_bytes_alone(
    format: str, activations: str | None
) -> None:
    if activations is not None and format not in INTEGERS:
        return
    module, x = linear(1024, 1024, format, activations), torch.randn(1, 1024)
    run = torch.compile(module, backend="luminal", options={"freeze": True, "candidates": 1})
    with torch.no_grad():
        run(x)
        stats = lm.stats()["last"]
        text = lm.explain(module, x)
    assert stats["packed_bytes"] <= stored_bytes(module)
    assert stats["arena_bytes"] < 1 << 16
    units = {"kB": 1e3, "MB": 1e6}
    moved = [float(number) * units[unit] for number, unit in re.findall(r"FLOP, ([\d.]+) (kB|MB):", text)]
    assert max(moved) < 1.05 * stored_bytes(module)


@pytest.mark.parametrize("activations", [None, "q8"])
def test_a_product_of_many_rows_keeps_no_decoded_matrix(activations: str | None) -> None:
    module, x = linear(1024, 1024, "q4_0", activations), torch.randn(16, 1024)
    run = compiled(module, freeze=True)
    with torch.no_grad():
        run(x)
    stats = lm.stats()["last"]
    assert stats["arena_bytes"] + stats["packed_bytes"] < 1024 * 1024


def test_activations_are_quantised_to_half_a_step() -> None:
    module = linear(256, 64, "q8_0")
    exact = linear(256, 64, "q8_0", "q8")
    exact.take(module.planes())
    x = torch.randn(4, 256)
    error = (exact(x) - module(x)).abs()
    step = x.reshape(4, 8, 32).abs().amax(-1) / 127
    bound = 0.5 * step.repeat_interleave(32, 1) @ module.weight.abs().T
    assert (error <= bound * 1.001 + 1e-4).all() and error.max() > 1e-4


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 64)
        self.body = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64, bias=False))
        self.head = nn.Linear(64, 40, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.table(ids)))


def test_a_model_is_quantised_in_place() -> None:
    model = Tied().eval()
    ids = torch.tensor([[1, 2, 39]])
    with torch.no_grad():
        exact = model(ids)
    assert lm.quantise(model, "q8_0", skip=["body.2"]) is model
    kinds = [type(each) for each in (model.table, model.body[0], model.body[2], model.head)]
    assert kinds == [QuantisedEmbedding, QuantisedLinear, nn.Linear, QuantisedLinear]
    assert model.table.quants is model.head.quants  # shared as before
    with torch.no_grad():
        found = compiled(model)(ids)
    assert_same(found, model(ids), rtol=1e-4, atol=1e-5)
    assert 0 < (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_state_travels_as_planes() -> None:
    first, second = linear(64, 8, "q4_0", bias=True), QuantisedLinear(64, 8, "q4_0")
    assert set(first.state_dict()) == {"quants", "scales", "bias"}
    second.load_state_dict(first.state_dict())
    x = torch.randn(2, 64)
    assert torch.equal(first(x), second(x))


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="no block format 'q9'"):
        lm.quantise(Tied(), "q9")
    with pytest.raises(ShapeError, match=r"quantise: table: q4_k has blocks of 256.*skip=\['table'\]"):
        lm.quantise(Tied(), "q4_k")
    with pytest.raises(OptionError, match="no Linear and no Embedding that is not skipped"):
        lm.quantise(Tied(), "q8_0", skip=["*"])
    with pytest.raises(OptionError, match="expected 'q8' or None"):
        lm.quantise(Tied(), "q8_0", activations="q4")
    with pytest.raises(OptionError, match="needs a format of integers; mxfp8 has floats"):
        QuantisedLinear(32, 4, "mxfp8", activations="q8")
    with pytest.raises(OptionError, match="max_norm"):
        lm.quantise(nn.Sequential(nn.Embedding(4, 32, max_norm=1.0)), "q8_0")
    with pytest.raises(ShapeError, match=r"of a weight of \(8, 64\), not \(8, 32\)"):
        QuantisedLinear(32, 8, "q8_0").take(linear(64, 8, "q8_0").planes())
    with pytest.raises(ScalarError, match="finite"):
        linear(32, 4, "q8_0").quantise(torch.full((4, 32), float("inf")))


def test_blocks_spelled_in_f32_are_summed_as_integers() -> None:
    """The sums of 32 products of bytes are exact in f32, so that both spellings are one program."""
    quants, scales = torch.randint(-127, 128, (256, 16, 32), dtype=torch.int8), torch.rand(256, 16)

    def blocks(x: torch.Tensor, x_scales: torch.Tensor) -> torch.Tensor:
        dots = torch.matmul(x.permute(1, 0, 2).float(), quants.permute(1, 2, 0).float())
        return (dots * scales.T[:, None] * x_scales.T[..., None]).sum(0)

    x, x_scales = torch.randint(-127, 128, (1, 16, 32), dtype=torch.int8), torch.rand(1, 16)
    found = compiled(blocks, cache=False)(x, x_scales)
    assert_same(found, blocks(x, x_scales), rtol=1e-5, atol=1e-2)
    last = lm.stats()["last"]
    assert any(
        "a product of bytes" in name and verdict[0] == "+" for name, verdict in last["rewrites"].items()
    )
    assert last["launches"] == 1


class Paired(nn.Module):
    """Two products of the same rows: of one, neighbours are read apart; the other meets it in elementwise code."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (linear(256, 64, "q8_0", "q8") for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, z = self.first(x), self.second(x)
        a, b = y[..., ::2], y[..., 1::2]
        return torch.stack([a * 0.5 - b, a + b * 0.5], -1).flatten(-2), nn.functional.silu(y) * z


@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_is_one_region_of_bytes_whatever_reads_it(rows: int) -> None:
    module, x = Paired(), torch.randn(rows, 256)
    torch._dynamo.reset()
    with torch.no_grad(), collect() as levels:
        found = compiled(module)(x)
        assert_same(found, module(x), rtol=1e-5, atol=1e-4)
    (graph,) = levels
    products = [region for region in graph["regions"].split("region ") if "i8 [16384] constant" in region]
    assert sum(region.count("i8 [16384] constant") for region in products) == 2
    for region in products:
        assert re.search(rf"argument \d+ = i8 \[{rows * 256}\]\n", region), "rows are bytes in memory"


def test_a_row_that_is_rounded_for_a_parameter_is_rounded_once() -> None:
    layer = nn.Linear(256, 64, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn(1, 256)
    torch._dynamo.reset()
    with torch.no_grad(), collect() as levels:
        found = compiled(lambda x: layer(x.bfloat16()))(x)
        assert_same(found, layer(x.bfloat16()), rtol=2e-2, atol=1e-2)
    (graph,) = levels
    (product,) = [region for region in graph["regions"].split("region ") if "bf16 [16384]" in region]
    assert "= bf16 [256]" in product or "\ninner " in product, "the row is in memory, or a stage of its own"
