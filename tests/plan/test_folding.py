"""What depends on constants alone is computed when they are bound, and again when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import luminal as lm
from luminal.compiler import compile_module
from luminal.dialects.hlo.interpreter import interpret
from luminal.dim import dim
from luminal.dtype import bf16, i8, i64
from luminal.errors import IndexOutOfRangeError, UnsetInputError
from luminal.passes.fold_constants import Fold, fold_constants
from luminal.plan.constants import Constant
from luminal.plan.executable import PlanExecutable
from luminal.plan.folding import folded_array
from luminal.plan.plan import plan_from_json, plan_to_json
from luminal.runtimes.reference import graph_of
from luminal.search.hlo_rules.sketch import Sketch

Array = np.ndarray[Any, Any]
Example = Callable[[Sketch], Sequence[SSAValue]]


def module_of(example: Example, licences: Sequence[str] = ("reassociate", "contract")) -> ModuleOp:
    sketch = Sketch(licences)
    return sketch.module(example(sketch))


def folds_of(example: Example, licences: Sequence[str] = ("reassociate", "contract")) -> list[Fold]:
    return fold_constants(graph_of(module_of(example, licences)))


def chain(s: Sketch) -> Sequence[SSAValue]:
    return [s.b.matmul(s.input(3, 4), s.b.matmul(s.parameter(4, 5), s.parameter(5, 2)))]


def floats(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


def compiled(example: Example, constants: tuple[int, ...], target: str = "kernel") -> PlanExecutable:
    found = compile_module(module_of(example), target, {"constants": constants, "cache": False})
    assert isinstance(found, PlanExecutable)
    return found


def test_a_fold_is_the_graph_of_what_it_computes() -> None:
    (fold,) = folds_of(chain)
    assert fold.sources == (1, 2)
    assert fold.text.count("hlo.matmul") == 1


@pytest.mark.parametrize("target", ["kernel", "cpu"])
def test_it_is_computed_once_and_again_when_a_constant_changes(target: str) -> None:
    executable = compiled(chain, (1, 2), target)
    assert len(executable.plan.steps) == 1 and len(executable.input_types) == 3
    x, a, b = floats(3, 4), floats(4, 5), floats(5, 2)
    np.testing.assert_array_equal(executable.run([x, a, b])[0], x @ (a @ b))
    a *= 2  # unseen
    np.testing.assert_array_equal(executable.run([x, a, b])[0], x @ (a @ b) / 2)
    lm.invalidate()
    np.testing.assert_array_equal(executable.run([x, a, b])[0], x @ (a @ b))
    other = floats(4, 5, seed=1)  # another array is seen
    np.testing.assert_array_equal(executable.run([x, other, b])[0], x @ (other @ b))


def test_plans_share_what_they_fold_while_somebody_holds_it() -> None:
    (fold,) = folds_of(chain)
    a, b = floats(4, 5), floats(5, 2)
    constants = [Constant(array.ctypes.data, array) for array in (a, b)]
    first = folded_array(fold, constants)
    assert folded_array(fold, constants) is first
    changed = [constants[0], Constant(b.ctypes.data, b, version=1)]
    assert folded_array(fold, changed) is not first
    assert folded_array(fold, [Constant(array.ctypes.data) for array in (a, b)]) is not first
    lm.invalidate()
    assert folded_array(fold, constants) is not first


def test_a_plan_with_folds_is_read_back_from_json() -> None:
    plan = compiled(chain, (1, 2)).plan
    assert plan_from_json(plan_to_json(plan)) == plan
    assert "input 3 folded from input 1, input 2" in str(plan)


def test_constants_that_folds_read_must_be_bound() -> None:
    executable = compiled(chain, (1, 2))
    with pytest.raises(UnsetInputError, match=r"\[2\]"):
        executable.bind_constants({1: Constant(0)})


def test_a_fold_may_read_another() -> None:
    def example(s: Sketch) -> Sequence[SSAValue]:
        x, w = s.input(3, 4), s.parameter(4, 4)
        narrow = s.b.cast(w, dtype=bf16)
        return [
            s.b.matmul(s.b.cast(x, dtype=bf16), narrow),
            s.b.mul(x, s.b.sum(s.b.cast(narrow, dtype="f32"), axes=(0,))),
        ]

    folds = folds_of(example)
    assert [fold.sources for fold in folds] == [(1,), (2,)]
    module = module_of(example)
    inputs = [floats(3, 4), floats(4, 4)]
    wanted = interpret(graph_of(module), inputs)
    found = compiled(example, (1,)).run(inputs)
    for new, old in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(new, old)


def test_folds_are_kept_on_disk_with_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    x, a, b = floats(3, 4), floats(4, 5), floats(5, 2)
    for cached in (0, 1):
        executable = compile_module(module_of(chain), "cpu", {"constants": (1, 2)})
        assert isinstance(executable, PlanExecutable)
        assert executable.stats["cached"] == cached and len(executable.plan.folds) == 1
        np.testing.assert_array_equal(executable.run([x, a, b])[0], x @ (a @ b))


def test_constants_of_the_graph_api() -> None:
    cx = lm.Graph()
    x, a, b = cx.tensor((3, 4)), cx.tensor((4, 5)), cx.tensor((5, 2))
    y = x.matmul(a.matmul(b)).output()
    cx.build_search_space(lm.CPURuntime, constants=(1, 2), cache=False)
    rt = cx.search(lm.CPURuntime(), 1)
    data = {x: floats(3, 4), a: floats(4, 5), b: floats(5, 2)}
    for seed in (0, 1):
        data[a] = floats(4, 5, seed=seed)
        for tensor, array in data.items():
            rt.set_data(tensor, array)
        rt.execute(cx.dyn_map)
        np.testing.assert_array_equal(rt.get_numpy(y), data[x] @ (data[a] @ data[b]))
    assert rt.stats["launches"] == 1


NOT_FOLDED: dict[str, Example] = {
    "a view": lambda s: [s.b.matmul(s.input(3, 4), s.b.permute(s.parameter(2, 4), order=(1, 0)))],
    "a result": lambda s: [s.b.exp(s.parameter(4)), s.input(4)],
    "what grows": lambda s: [
        s.b.add(s.input(8, 4), s.b.add(s.parameter(4), s.b.full(value=1.0, shape=(8, 4), dtype="f32")))
    ],
    "what widens": lambda s: [
        s.b.add(s.input(128, 64), s.b.cast(s.parameter(128, 64, dtype=i8), dtype="f32"))
    ],
    "no constant": lambda s: [s.b.add(s.input(4), s.b.exp(s.input(4)))],
    "a symbolic size": lambda s: [
        s.b.mul(s.input(dim("n")), s.b.mul(s.b.expand(s.parameter(1), shape=(dim("n"),)), 2.0))
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_what_is_not_folded(name: str) -> None:
    assert not folds_of(NOT_FOLDED[name])


def test_sums_are_folded_only_where_their_order_is_free() -> None:
    def example(s: Sketch) -> Sequence[SSAValue]:
        return [s.b.mul(s.input(3, 1), s.b.sum(s.b.exp(s.parameter(3, 4)), axes=(1,), keepdim=True))]

    assert "hlo.sum" in folds_of(example)[0].text
    assert "hlo.sum" not in folds_of(example, ())[0].text


def test_an_input_that_the_graph_updates_is_no_constant() -> None:
    def example(s: Sketch) -> Sequence[SSAValue]:
        w = s.parameter(4)
        return [s.b.add(s.input(4), s.b.exp(w)), s.b.add(w, 1.0)]

    module = module_of(example)
    found = compile_module(module, "kernel", {"constants": (0,), "updates": ((1, 0),), "cache": False})
    assert isinstance(found, PlanExecutable)
    assert not found.plan.folds


def test_an_error_in_a_fold_is_raised_when_it_is_bound() -> None:
    def example(s: Sketch) -> Sequence[SSAValue]:
        table, index = s.parameter(4, 2), s.parameter(3, dtype=i64)
        return [s.b.add(s.input(3, 2), s.b.embedding(table, index))]

    executable = compiled(example, (0, 1))
    with pytest.raises(IndexOutOfRangeError):
        executable.run([floats(4, 2), np.array([0, 7, 1]), floats(3, 2)])
