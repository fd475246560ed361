"""From an hlo module to results, through the plan: targets, the cache of whole graphs, dumps, statistics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import luminal as lm
from luminal import compiler, dump
from luminal.compiler import compile_module
from luminal.errors import GraphError, IndexOutOfRangeError, OptionError, UnsupportedTargetError
from luminal.options import CompileOptions, thread_count
from luminal.passes.memory_plan import live_peak
from luminal.plan.executable import PlanExecutable
from luminal.runtimes.reference import ReferenceRuntime


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LUMINAL_THREADS", "1")
    return tmp_path


def module_of(build: Callable[[lm.Graph], Any]) -> ModuleOp:
    cx = lm.Graph()
    build(cx)
    cx.build_search_space(ReferenceRuntime)
    return cx._space.module  # pyright: ignore


def layer(cx: lm.Graph) -> None:
    """softmax(relu(x @ w + b)) with a mean in front."""
    s = lm.dim("s", min=0, max=512)
    x, w, b = cx.tensor((s, 8)), cx.tensor((8, 16)), cx.tensor((16,))
    centred = x - x.mean(-1, keepdim=True)
    (centred.matmul(w) + b).relu().softmax(-1).output()


def layer_data(size: int) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(size)
    return [draw.standard_normal(shape).astype(np.float32) for shape in ((size, 8), (8, 16), (16,))]


def layer_result(x: Any, w: Any, b: Any) -> np.ndarray[Any, Any]:
    x, w, b = (array.astype(np.float64) for array in (x, w, b))
    y = np.maximum((x - x.mean(-1, keepdims=True)) @ w + b, 0)
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("target", ["reference", "kernel", "cpu"])
def test_every_target_gives_the_same(target: str) -> None:
    run = compile_module(module_of(layer), target)
    for size in (0, 1, 7, 33):
        data = layer_data(size)
        (result,) = run.run(data)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, layer_result(*data), rtol=1e-5, atol=1e-6)


def test_compiling_leaves_the_module_as_it_was() -> None:
    module = module_of(layer)
    before = str(module)
    compile_module(module, "kernel", {"constants": (1, 2)})
    assert str(module) == before


def test_a_second_compilation_needs_no_llvm_and_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_module(module_of(layer))
    assert first.stats["cached"] == 0

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the second compilation compiles")

    monkeypatch.setattr(compiler._Compilation, "_compile", refuse)  # pyright: ignore
    second = compile_module(module_of(layer))
    assert second.stats["cached"] == 1
    data = layer_data(9)
    assert np.array_equal(second.run(data)[0], first.run(data)[0])
    with pytest.raises(AssertionError):
        compile_module(module_of(layer), options={"mode": "max-autotune"})
    with pytest.raises(AssertionError):
        compile_module(module_of(layer), options={"cache": False})


def test_another_process_starts_warm(cache: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.plan.test_compiler import layer, module_of\n"
        "from luminal import compiler\n"
        "compiler.source_digest = lambda: 'fixed'\n"
        "print(compiler.compile_module(module_of(layer)).stats['cached'],"
        " 'luminal.passes.place' in sys.modules, 'luminal.search.generate' in sys.modules)\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert answers == [["0", "True", "True"], ["1", "False", "False"]]


@pytest.mark.parametrize("damage", [b"", b"luminal", None])
def test_damaged_entries_are_made_again(cache: Path, damage: bytes | None) -> None:
    compile_module(module_of(layer))
    for path in (cache / "objects").rglob("*"):
        if path.is_file() and damage is None:
            path.unlink()
        elif path.is_file():
            path.write_bytes(damage or b"")
    again = compile_module(module_of(layer))
    assert again.stats["cached"] == 0
    data = layer_data(3)
    np.testing.assert_allclose(again.run(data)[0], layer_result(*data), rtol=1e-5, atol=1e-6)
    assert compile_module(module_of(layer)).stats["cached"] == 1


def test_a_dump_that_cannot_be_written_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LUMINAL_DUMP", str(tmp_path / "file"))
    with pytest.raises(OptionError, match=r"^LUMINAL_DUMP=.*file: Not a directory: .*\Z"):
        compile_module(module_of(layer))


def test_dumps_hold_every_level_and_are_the_same_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[dict[str, str]] = []
    for number in range(2):
        folder = tmp_path / f"dump{number}"
        monkeypatch.setenv("LUMINAL_DUMP", str(folder))
        compile_module(module_of(layer))
        (made,) = folder.iterdir()
        assert sorted(path.name for path in made.iterdir()) == sorted(
            file for level, file in dump.LEVELS.items() if level != "triton"
        )
        texts.append({path.name: path.read_text() for path in made.iterdir()})
    timed = [dump.LEVELS[level] for level in dump.TIMED]
    for number, text in enumerate(texts):
        levels = {name: text[name] for name in text if name not in timed}
        assert levels == {name: texts[0][name] for name in levels}, number
    assert texts[0]["7-search.txt"].startswith("What is timed differs from run to run")
    assert "hlo.softmax" in texts[0]["0-hlo.mlir"]
    assert "primitive.sum_reduce" in texts[0]["1-primitive.mlir"]
    assert "reduce.sum" in texts[0]["2-regions.txt"]
    assert "out0:" in texts[0]["3-schedules.txt"]
    assert "kernel.function" in texts[0]["4-placed.mlir"]
    assert "define i32 @kernel_" in texts[0]["5-llvm.ll"].replace("  ", " ")
    assert "plan main [s in 0 to 512]" in texts[0]["6-plan.txt"]


def test_collected_levels_as_one_text() -> None:
    with dump.collect() as found:
        compile_module(module_of(layer), "kernel")
    text = dump.explain_text(found[0])
    assert [line.split()[1] for line in text.splitlines() if line.startswith("====")] == [
        "hlo", "primitive", "regions", "schedules", "plan",
    ]  # fmt: skip


def test_constants_and_updates() -> None:
    def build(cx: lm.Graph) -> None:
        x, w = cx.tensor((4,)), cx.tensor((4,))
        (x * w).output()

    run = compile_module(module_of(build), "kernel", CompileOptions(constants=(1,), updates=((0, 0),)))
    assert isinstance(run, PlanExecutable)
    x, w = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    (result,) = run.run([x, w])
    assert run.updates == ((0, 0),)
    assert result is x
    assert x.tolist() == [0, 3, 6, 9]


def test_an_index_error_names_the_line() -> None:
    def build(cx: lm.Graph) -> None:
        x, i = cx.tensor((4,)), cx.tensor((3,), dtype="i64")
        x.gather(0, i).output()

    for target in ("kernel", "cpu"):
        run = compile_module(module_of(build), target)
        x = np.arange(4, dtype=np.float32)
        assert run.run([x, np.array([3, 0, 1])])[0].tolist() == [3, 0, 1]
        with pytest.raises(IndexOutOfRangeError, match=r"test_compiler\.py:\d+"):
            run.run([x, np.array([3, 4, 1])])


def test_equal_layers_are_one_kernel() -> None:
    def build(cx: lm.Graph) -> None:
        x = cx.tensor((4, 8))
        for _ in range(4):
            x = (x.matmul(cx.tensor((8, 8))) + cx.tensor((8,))).relu()
        x.output()

    run = compile_module(module_of(build), "kernel")
    assert run.stats["kernels"] == 1
    assert run.stats["launches"] == 4


def test_the_arena_of_an_encoder_is_close_to_its_live_peak() -> None:
    """Two layers with attention and a feed-forward part, any batch and length."""

    def build(cx: lm.Graph) -> None:
        b, s = lm.dim("b", min=1, max=64), lm.dim("s", min=1, max=512)
        heads, width = 12, 384
        x = cx.tensor((b, s, width))
        for _ in range(2):
            q, k, v = (
                x.matmul(cx.tensor((width, width))).reshape((b, s, heads, 32)).permute((0, 2, 1, 3))
                for _ in range(3)
            )
            scores = (q.matmul(k.permute((0, 1, 3, 2))) * 0.176).softmax(-1)
            mixed = scores.matmul(v).permute((0, 2, 1, 3)).reshape((b, s, width))
            x = (mixed.matmul(cx.tensor((width, width))) + x).layer_norm((width,))
            wide = x.matmul(cx.tensor((width, 4 * width))).gelu()
            x = (wide.matmul(cx.tensor((4 * width, width))) + x).layer_norm((width,))
        x.output()

    run = compile_module(module_of(build), "kernel", {"hint": {"b": 4, "s": 24}})
    assert isinstance(run, PlanExecutable)
    arena = run.plan.arena
    for b, s in ((32, 128), (1, 16), (8, 512), (64, 3)):
        dims = {"b": b, "s": s, "threads_of_call": 2}
        assert arena.total(dims) <= 1.1 * live_peak(arena.blocks, dims)


def test_wrong_options_and_targets() -> None:
    module = module_of(layer)
    with pytest.raises(UnsupportedTargetError, match="'cpu', 'kernel', 'reference'"):
        compile_module(module, "abacus")
    with pytest.raises(OptionError, match="option 'fast' is not known"):
        compile_module(module, options={"fast": True})
    with pytest.raises(OptionError, match="mode 'slow'"):
        compile_module(module, options={"mode": "slow"})
    with pytest.raises(OptionError, match="one input only"):
        CompileOptions(updates=((0, 1), (0, 2)))
    with pytest.raises(OptionError, match="0 or more"):
        CompileOptions(candidates=-1)
    with pytest.raises(GraphError):
        compile_module(ModuleOp([]))


def test_a_dtype_without_native_code_is_named() -> None:
    def build(cx: lm.Graph) -> None:
        cx.tensor((4,), dtype="f32").cast("f8e5m2").output()

    with pytest.raises(UnsupportedTargetError, match=r"f8e5m2 \(.*test_compiler.py:\d+"):
        compile_module(module_of(build))
    assert (
        compile_module(module_of(build), "kernel").run([np.ones(4, np.float32)])[0].astype(float).tolist()
        == [1] * 4
    )


def test_threads_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("LUMINAL_THREADS", "none")
    with pytest.raises(OptionError, match="LUMINAL_THREADS='none'"):
        thread_count()
    monkeypatch.delenv("LUMINAL_THREADS")
    import torch

    assert thread_count() == torch.get_num_threads()


def test_statistics_add_up() -> None:
    before = lm.stats()
    run = compile_module(module_of(layer))
    run.run(layer_data(5))
    after = lm.stats()
    assert after["compilations"] == before["compilations"] + 1
    assert after["last"]["kernels"] == run.stats["kernels"] > 0
    assert after["last"]["arena_bytes"] >= 5 * 16 * 4
    assert {"lower", "regions", "schedule", "place", "llvm", "load"} <= set(after["last"]["compile_seconds"])


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ((9,), "there is no input 9; the graph has 2"),
        ((0,), "a constant input has fixed sizes"),
        ((-1,), "positions of inputs, from 0 on"),
        ((1.5,), "positions of inputs, from 0 on"),
        ("x", "positions of inputs, from 0 on"),
        (5, "positions of inputs, from 0 on"),
    ],
)
def test_constants_are_positions_of_inputs_of_fixed_sizes(constants: Any, message: str) -> None:
    graph = lm.Graph()
    x, w = graph.tensor((lm.dim("s"), 8), name="x"), graph.tensor((8, 8), name="w")
    x.matmul(w).output()
    with pytest.raises(OptionError, match=message):
        compile_module(graph.module(), "cpu", {"constants": constants})
    compile_module(graph.module(), "cpu", {"constants": [1], "cache": False})
