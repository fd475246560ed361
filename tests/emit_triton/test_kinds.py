"""A part of the table of docs/gpu.md: kinds of kernels that are interpreted, and compiled for two targets."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dtype import f16, f32
from tests.emit_triton.kinds import BLOCK, KINDS, MATRIX, PAGE, TOLERANCE, compiled, error_of, faults
from tests.emit_triton.models import build, rows

SAMPLE = (
    "layer norm",
    "scatter-add",
    "sort",
    "product",
    "causal, grouped",
    "product with Q4_0",
    "product of e4m3",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_kind_gives_what_its_graph_means(name: str) -> None:
    kind = KINDS[name]
    dtype = kind.dtypes[-1]
    assert error_of(kind, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", SAMPLE)
def test_a_kind_has_the_machine_code_that_it_should(name: str, target: str) -> None:
    kind = KINDS[name]
    assert not faults(kind, kind.dtypes[-1], compiled(kind, kind.dtypes[-1], target))


def test_products_without_matrix_units_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(KINDS["elementwise"], f16, "sm_90")
    monkeypatch.setitem(MATRIX, "sm_90", {"wgmma"})
    assert faults(KINDS["product"], f16, program) == ["no wgmma"]
    assert not faults(KINDS["product"], f32, program)


def test_the_page_has_no_fault_and_no_row_that_nothing_makes() -> None:
    found = BLOCK.search(PAGE.read_text())
    assert found
    known = {(name, str(dtype)) for name, kind in KINDS.items() for dtype in kind.dtypes}
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in found[2].splitlines()[2:]]
    assert rows and set(rows) <= known and len(rows) == len(set(rows))
    assert "**" not in found[2], "a fault"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["llama-8b-decode-q8_0", "llama-8b-prefill-bf16"])
def test_a_layer_at_full_size_is_built(name: str) -> None:
    assert all(is_good for _, is_good in rows(name, build(name, "sm_90")))
