"""The search among equal hlo graphs: what it tries, what it keeps, and that what it keeps computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import luminal as lm
from luminal.compiler import compile_module
from luminal.dialects.hlo.interpreter import interpret
from luminal.dim import DimLike, dim
from luminal.passes.cuts import Partition
from luminal.passes.value_graph import Interface
from luminal.plan.executable import PlanExecutable
from luminal.runtimes.reference import graph_of
from luminal.search import hlo_search
from luminal.search.cut_search import CutSearch
from luminal.search.forms import Forms
from luminal.search.hlo_rules.sketch import Sketch
from luminal.search.hlo_search import HloSearch, Lowered
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from tests.search.test_hlo_rules import RULES, data

MACHINE = Machine(lanes=16, registers=32, threads=2)
Example = Callable[[Sketch], Sequence[SSAValue]]
LINEAR = "linear layers of one input are one layer"


def module_of(example: Example, rows: DimLike = 5) -> ModuleOp:
    sketch = Sketch(rows=rows)
    return sketch.module(example(sketch))


def searched(module: ModuleOp, hint: Mapping[str, int] | None = None) -> tuple[Lowered, HloSearch]:
    forms = Forms(graph_of(module).licences)

    def pricer(partition: Partition, samples: Samples, estimates: dict[str, list[float]]) -> CutSearch:
        return CutSearch(partition, MACHINE, samples, forms, estimates)

    search = HloSearch(module.clone(), pricer, hint or {})
    return search.run(), search


def attention_layers(s: Sketch, count: int = 3, width: int = 8) -> Sequence[SSAValue]:
    x = s.input(s.rows, width)
    for _ in range(count):
        q, k, v = (s.b.add(s.b.matmul(x, s.parameter(width, width)), s.parameter(width)) for _ in range(3))
        x = s.b.add(x, s.b.attention(q, k, v))
    return [x]


def compiled(module: ModuleOp, target: str = "cpu") -> PlanExecutable:
    constants = tuple(sorted(Interface.of(graph_of(module)).constants))
    found = compile_module(module, target, {"constants": constants, "cache": False})
    assert isinstance(found, PlanExecutable)
    return found


def test_equal_layers_are_one_decision() -> None:
    for rows in (5, dim("rows")):
        found, search = searched(module_of(attention_layers, rows))
        made = f"{LINEAR}: 3 x f32[{rows}, 8]"
        assert list(search.verdicts) == [made]
        assert found.rewrites == (made,)  # launches are most of the cost of matrices of 8 by 8
        assert len(found.folds) == 6


def test_large_products_stay_apart_where_the_model_sees_no_gain() -> None:
    found, search = searched(module_of(lambda s: attention_layers(s, 1, 512), 256))
    assert len(search.verdicts) == 1 and not found.rewrites and not found.folds


def test_a_graph_without_a_place_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def price(*_: object) -> None:
        raise AssertionError("nothing is to be priced")

    monkeypatch.setattr(hlo_search, "_Pricing", price)
    found, search = searched(module_of(lambda s: [s.b.relu(s.b.matmul(s.input(5, 4), s.parameter(4, 3)))]))
    assert not search.verdicts and not found.rewrites


def test_no_more_rewrites_are_priced_than_the_mode_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    def example(s: Sketch) -> Sequence[SSAValue]:
        x = s.input(5, 4)
        return [
            s.b.matmul(s.b.exp(s.b.mul(x, float(n))), s.parameter(4, n))
            for n in range(2, 5)
            for _ in range(2)
        ]

    module = module_of(example)
    for most in (1, 2, 3):
        monkeypatch.setattr(hlo_search, "MOST", {"default": most})
        assert len(searched(module)[1].verdicts) == most


def test_verdicts_are_in_the_stats() -> None:
    executable = compiled(module_of(attention_layers))
    (verdict,) = executable.stats["rewrites"].items()
    assert verdict[0] == f"{LINEAR}: 3 x f32[5, 8]" and verdict[1].endswith("by the model")
    assert lm.stats()["last"]["rewrites"] == dict([verdict])


@pytest.mark.parametrize("target", ["cpu", "kernel"])
@pytest.mark.parametrize("rows", [5, dim("rows")], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_makes_compiles_and_gives_the_same(
    name: str, rows: DimLike, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rewrite that is possible is made, whatever it costs."""
    monkeypatch.setattr(hlo_search, "GAIN", float("-inf"))
    monkeypatch.setattr(hlo_search, "HLO_RULES", (RULES[name],))
    module = module_of(RULES[name].matches, rows)
    executable = compiled(module, target)
    if target == "cpu":
        assert [text.split(": ")[0] for text in executable.stats["rewrites"]] == [name]
    dims = {"rows": 5} if executable.dim_names else {}
    inputs = data(graph_of(module), dims)
    wanted = interpret(graph_of(module), inputs, dims)
    for new, old in zip(executable.run(inputs, dims), wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)


# ---- what needs no rule ----------------------------------------------------------------------------------------


def launches(example: Example, rows: DimLike = 96) -> list[str]:
    """The kernel of each launch."""
    return [getattr(step, "kernel", "library") for step in compiled(module_of(example, rows)).plan.steps]


@pytest.mark.parametrize("rows", [96, dim("rows")], ids=["static", "symbolic"])
def test_a_transposed_operand_is_index_arithmetic(rows: DimLike) -> None:
    """One launch and no copy, however the operands of a product lie."""

    def plain(s: Sketch) -> Sequence[SSAValue]:
        return [s.b.relu(s.b.matmul(s.input(32, 64), s.input(64, s.rows)))]

    def turned(s: Sketch) -> Sequence[SSAValue]:
        w, x = s.input(64, 32), s.input(s.rows, 64)
        return [s.b.relu(s.b.matmul(*(s.b.permute(value, order=(1, 0)) for value in (w, x))))]

    assert len(launches(plain, rows)) == len(launches(turned, rows)) == 1


@pytest.mark.parametrize("rows", [24, dim("rows")], ids=["static", "symbolic"])
def test_a_batched_product_is_the_flattened_one(rows: DimLike) -> None:
    """The same kernel: a region's indices that run through memory together are one."""

    def batched(s: Sketch) -> Sequence[SSAValue]:
        return [s.b.relu(s.b.matmul(s.input(4, s.rows, 64), s.parameter(64, 32)))]

    def flattened(s: Sketch) -> Sequence[SSAValue]:
        flat = s.b.reshape(s.input(4, s.rows, 64), shape=(4 * s.rows, 64))
        product = s.b.reshape(s.b.matmul(flat, s.parameter(64, 32)), shape=(4, s.rows, 32))
        return [s.b.relu(product)]

    assert launches(batched, rows) == launches(flattened, rows)
    assert len(launches(batched, rows)) == 1
