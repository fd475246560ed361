"""Every row of the library table: what it matches, what is said of it, and that a library step gives the same."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch  # noqa: F401  (rows of the CPU ask whether it is loaded)
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.compiler import _Compilation, compile_module
from luminal.dialects.graph_op import LICENCES
from luminal.dialects.hlo.interpreter import interpret
from luminal.dim import DimLike, dim
from luminal.dtype import i64
from luminal.errors import SoundnessError
from luminal.options import CompileOptions
from luminal.passes.value_graph import Interface
from luminal.plan.contest import Contests, timed_pair
from luminal.plan.executable import PlanExecutable
from luminal.plan.plan import LibraryStep
from luminal.runtimes.protocol import Executable
from luminal.runtimes.reference import graph_of
from luminal.search.hlo_rules.rule import Example, View
from luminal.search.hlo_rules.sketch import Sketch
from luminal.search.library_search import LibrarySearch, pair_of
from luminal.search.library_table import LIBRARY, LibraryRow
from luminal.search.purse import Purse
from tests.search.planted import Clock
from tests.search.test_hlo_rules import data

ROWS = {row.name: row for row in LIBRARY}
OWN = {row.name: row for row in LIBRARY if row.device == "cpu"}
SYMBOL = dim("rows", min=1)


def module_of(example: Example, rows: DimLike = 5, licences: tuple[str, ...] = LICENCES) -> ModuleOp:
    sketch = Sketch(licences, rows)
    return sketch.module(example(sketch))


def searched(
    row: LibraryRow, contest: Callable[..., tuple[float, float] | str] | None, rows: DimLike = 5
) -> tuple[ModuleOp | None, str]:
    search = LibrarySearch(module_of(row.matches, rows), contest=contest, table=(row,))
    found = search.run()
    (verdict,) = search.verdicts.values()
    return found, verdict


def test_names_are_different() -> None:
    assert len(ROWS) == len(LIBRARY)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_matches_its_example_and_not_the_near_miss(name: str) -> None:
    row = ROWS[name]
    for rows in (5, SYMBOL):
        assert len(row.sites(View(graph_of(module_of(row.matches, rows))))) == 1
        assert not row.sites(View(graph_of(module_of(row.misses, rows))))


@pytest.mark.parametrize("licence", ["reassociate", "contract"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row_needs_its_licences(name: str, licence: str) -> None:
    allowed = tuple(other for other in LICENCES if other != licence)
    assert not ROWS[name].sites(View(graph_of(module_of(ROWS[name].matches, licences=allowed))))


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OWN])
def test_rows_of_other_devices_are_explained(name: str) -> None:
    found, verdict = searched(ROWS[name], lambda *_: (1.0, 0.1))
    assert found is None and verdict == "not on this device"


@pytest.mark.parametrize("name", OWN)
def test_what_becomes_of_a_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = OWN[name]
    assert searched(row, None) == (None, 'not timed: mode "max-autotune" does')
    assert searched(row, lambda *_: "why not") == (None, "not timed: why not")
    assert searched(row, lambda *_: (1.0, 1.5)) == (None, "1.50 times the time of what is generated")
    assert searched(row, lambda *_: (1.0, 0.97))[0] is None  # within the gain that is asked
    found, verdict = searched(row, lambda *_: (1.0, 0.5))
    assert found is not None and "hlo.extern" in str(found)
    assert verdict == "chosen: 2.00 times as fast as what is generated"
    monkeypatch.delitem(sys.modules, "torch")
    assert searched(row, lambda *_: (1.0, 0.5)) == (None, "torch is not loaded")


@pytest.mark.parametrize("rows", [5, SYMBOL], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", OWN)
def test_a_library_step_gives_what_the_operation_means(name: str, rows: DimLike) -> None:
    row = OWN[name]
    module = module_of(row.matches, rows)
    chosen, _ = searched(row, lambda *_: (1.0, 0.5), rows)
    assert chosen is not None
    executable = compile_module(chosen, "cpu", {"cache": False})
    assert isinstance(executable, PlanExecutable)
    assert any(isinstance(step, LibraryStep) for step in executable.plan.steps)
    dims = {"rows": 5} if executable.dim_names else {}
    inputs = data(graph_of(module), dims)
    wanted = interpret(graph_of(module), inputs, dims)
    for new, old in zip(executable.run(inputs, dims), wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def linear_and_gelu(s: Sketch) -> list[SSAValue]:
    x, w, row = s.input(s.rows, 8), s.parameter(6, 8), s.parameter(6)
    y = s.b.gelu(s.b.add(s.b.matmul(x, s.b.permute(w, order=(1, 0))), row), approximate="none")
    return [s.b.sum(y, axes=(0,))]


def test_what_is_timed_is_the_operation_with_what_follows_it() -> None:
    view = View(graph_of(module_of(linear_and_gelu)))
    row = OWN["torch.addmm"]
    generated, library = pair_of(row, row.sites(view)[0], view)
    names = [op.name for op in graph_of(generated).block.ops]
    assert names == ["hlo.permute", "hlo.matmul", "hlo.add", "hlo.gelu", "luminal.return"]
    # a transposed operand is passed on with its order, and copied nowhere
    assert [op.name for op in graph_of(library).block.ops] == ["hlo.extern", "hlo.gelu", "luminal.return"]
    assert Interface.of(graph_of(generated)).constants == {0, 2}


def test_under_max_autotune_the_two_are_timed_and_the_verdict_is_in_the_stats() -> None:
    module = module_of(linear_and_gelu)
    options = {"mode": "max-autotune", "constants": (1, 2), "candidates": 2, "cache": False}
    executable = compile_module(module, "cpu", options)
    assert isinstance(executable, PlanExecutable)
    verdicts = executable.stats["library"]
    assert "what is generated" in verdicts["torch.addmm: 1 x f32[5, 6]"]
    assert verdicts["cuBLASLt: 1 x f32[5, 6]"] == "not on this device"
    short = compile_module(module, "cpu", options | {"budget": 0.5})
    assert isinstance(short, PlanExecutable)
    assert short.stats["library"]["torch.addmm: 1 x f32[5, 6]"].startswith("not timed: no part of the budget")
    inputs = data(graph_of(module), {})
    (wanted,) = interpret(graph_of(module), inputs)
    np.testing.assert_allclose(executable.run(inputs)[0], wanted, rtol=1e-5, atol=1e-5)


def test_contests_end_with_their_part_of_the_budget() -> None:
    clock, asked = Clock(), list[float]()

    def compiled(module: ModuleOp, purse: Purse) -> Executable:
        asked.append(purse.left)
        clock.now += 2.0
        return compile_module(module, "cpu", {"cache": False})

    module = module_of(lambda s: [s.b.exp(s.input(4))])
    contests = Contests(compiled, Purse(40.0, clock), {})  # ten seconds for all contests
    found = [contests(module, module) for _ in range(4)]
    assert [type(each) for each in found] == [tuple, tuple, tuple, str]
    assert found[3] == "no part of the budget is left for contests"
    assert asked == [2.5, 2.5, 1.5, 1.5, 0.5, 0.5]
    assert contests.purse.left == 40.0 - 3 * 4.0


def test_a_library_kernel_that_disagrees_is_an_error() -> None:
    def compiled(example: Example) -> PlanExecutable:
        return _Compilation(module_of(example), "cpu", CompileOptions(cache=False)).run()

    first = compiled(lambda s: [s.b.exp(s.input(4))])
    other = compiled(lambda s: [s.b.exp(s.b.neg(s.input(4)))])
    nan = compiled(lambda s: [s.b.log(s.b.neg(s.input(4)))])
    assert timed_pair(first, first, {}) is not None
    with pytest.raises(SoundnessError, match="differs"):
        timed_pair(first, other, {})
    with pytest.raises(SoundnessError, match="NaN"):
        timed_pair(first, nan, {})


def test_a_graph_that_made_up_data_does_not_fit_is_not_timed() -> None:
    divides = _Compilation(
        module_of(lambda s: [s.b.floor_divide(s.input(4, dtype=i64), s.input(4, dtype=i64))]),
        "cpu",
        CompileOptions(cache=False),
    ).run()
    assert timed_pair(divides, divides, {}) is None
    module = module_of(OWN["torch.addmm"].matches)
    contest = Contests(lambda module, purse: divides, Purse(40.0), {})
    assert contest(module, module) == "the graph cannot be run on data that is made up"
