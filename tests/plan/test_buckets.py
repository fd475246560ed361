"""Buckets of dims: each size runs its own program and gives what one program for all gives; what they share."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import luminal as lm
from luminal import compiler
from luminal.compiler import compile_module
from luminal.errors import DimRangeError, OptionError, ShapeError, UnsetDimError, UnsetInputError
from luminal.options import CompileOptions
from luminal.plan import frames
from luminal.plan.bucketed import BucketedExecutable
from luminal.plan.constants import Constant
from luminal.runtimes.memory import POOL, Block, Pool
from luminal.search import buckets as advice

Array = np.ndarray[Any, Any]
Buckets = list[int | tuple[int, int | None]]
PLAIN = CompileOptions(buckets="declared", candidates=1)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUMINAL_CACHE_DIR", str(folder))
        patch.setenv("LUMINAL_THREADS", "1")
        yield folder


def layer(buckets: Buckets, largest: int = 96) -> ModuleOp:
    """Rows times weights, plus their mean over all rows, and a running sum along the rows."""
    cx = lm.Graph()
    s = lm.dim("s", 0, largest, buckets=buckets)
    x, w = cx.tensor((s, 8)), cx.tensor((8, 16))
    y = x.matmul(w)
    (y + y.sum(0)).relu().output()
    x.cumsum(0).output()
    return cx.module()


def layer_data(size: int) -> list[Array]:
    """Multiples of 1/4, so that sums are exact in any order."""
    draw = np.random.default_rng(size)
    return [(draw.integers(-8, 9, shape) / 4).astype(np.float32) for shape in ((size, 8), (8, 16))]


def layer_results(x: Array, w: Array) -> list[Array]:
    y = x @ w
    return [np.maximum(y + y.sum(0), 0), np.cumsum(x, 0, dtype=np.float32)]


def bucketed(module: ModuleOp, options: CompileOptions = PLAIN, target: str = "cpu") -> BucketedExecutable:
    run = compile_module(module, target, options)
    assert isinstance(run, BucketedExecutable)
    return run


@pytest.mark.parametrize("target", ["cpu", "kernel", "reference"])
def test_every_edge_gives_the_same(target: str) -> None:
    run = compile_module(layer([0, 1, (2, 12), (20, 96)]), target, PLAIN)
    for size in (0, 1, 2, 12, 13, 19, 20, 96) if target == "cpu" else (0, 1, 2, 12, 13, 20):
        data = layer_data(size)
        for result, expected in zip(run.run(data), layer_results(*data), strict=True):
            assert np.array_equal(result, expected), size


def test_sizes_run_the_program_of_their_bucket() -> None:
    run = bucketed(layer([0, 1, (2, 12), (20, 96)]))
    names = {size: run.program_of([size])[0] for size in (0, 1, 2, 12, 13, 19, 20, 96)}
    assert names == {
        0: "s = 0", 1: "s = 1", 2: "s in 2 to 12", 12: "s in 2 to 12", 13: "any size", 19: "any size",
        20: "s in 20 to 96", 96: "s in 20 to 96",
    }  # fmt: skip
    assert list(run.stats["programs"]) == ["s = 0", "s = 1", "s in 2 to 12", "s in 20 to 96", "any size"]
    assert lm.stats()["last"]["programs"] == run.stats["programs"]


def test_a_bucket_of_one_size_is_static_and_others_know_their_range() -> None:
    run = bucketed(layer([1, (20, 96)]))
    single, wide = (run.program_of([size])[1].plan for size in (1, 50))
    assert [str(value.shape[0]) for value in single.values if value.storage.kind == "input"] == ["1", "8"]
    assert single.symbols[0].range_text() == "s in 1 to 1"
    assert wide.symbols[0].range_text() == "s in 20 to 96"


def test_there_is_no_general_program_where_buckets_cover_all() -> None:
    assert list(bucketed(layer([(0, 3), (4, 96)])).stats["programs"]) == ["s in 0 to 3", "s in 4 to 96"]


def test_one_bucket_of_all_sizes_is_one_program() -> None:
    run = compile_module(layer([(0, 96)]), "cpu", PLAIN)
    assert run.stats["programs"] == {}
    assert np.array_equal(run.run(layer_data(5))[0], layer_results(*layer_data(5))[0])


def test_sizes_outside_the_range_and_missing_ones_are_errors() -> None:
    run = bucketed(layer([1, (2, 12)]))
    with pytest.raises(DimRangeError, match="dim s in 0 to 96 was given 97"):
        run.run(layer_data(97))
    with pytest.raises(DimRangeError, match="was given -1"):
        run.run_pointers([0, 0], [-1], [0, 0])
    with pytest.raises(UnsetDimError, match="values given are"):
        run.run_pointers([0, 0], [], [0, 0])


def test_sizes_that_a_bucket_never_allows_have_the_error_that_they_have_without() -> None:
    """A window needs three rows; two programs of three are left."""

    def build(buckets: Buckets) -> ModuleOp:
        cx = lm.Graph()
        cx.tensor((lm.dim("s", 1, 64, buckets=buckets),)).unfold(0, 3, 1).sum(1).output()
        return cx.module()

    run = bucketed(build([1, (2, 2), (3, 8), (9, 64)]))
    assert list(run.stats["programs"]) == ["s in 3 to 8", "s in 9 to 64", "any size"]
    plain = compile_module(build([]), "cpu", PLAIN)
    for size in (1, 2):
        messages: list[str] = []
        for each in (run, plain):
            with pytest.raises(ShapeError) as error:
                each.run([np.ones(size, np.float32)])
            messages.append(str(error.value))
        assert messages[0] == messages[1]
    assert run.run([np.ones(3, np.float32)])[0].tolist() == [3]


def test_a_bucket_that_divides_by_zero_is_left_to_the_general_program() -> None:
    cx = lm.Graph()
    s = lm.dim("s", 0, 8, buckets=[0, (1, 4)])
    (cx.tensor((s,)).sum() + cx.iota((12 // s,)).sum()).output()
    run = bucketed(cx.module())
    assert list(run.stats["programs"]) == ["s in 1 to 4", "any size"]
    assert run.run([np.ones(2, np.float32)])[0] == 2 + 15


def outer(first: Buckets, second: Buckets) -> ModuleOp:
    cx = lm.Graph()
    s, t = lm.dim("s", 1, 64, buckets=first), lm.dim("t", 1, 64, buckets=second)
    cx.tensor((s, 4)).matmul(cx.tensor((4, t))).sum(0).output()
    return cx.module()


def test_two_dims_have_a_program_for_each_pair_of_buckets() -> None:
    run = bucketed(outer([1, (2, 8)], [(1, 16), (17, 64)]))
    assert len(run.programs) == 3 * 2
    draw = np.random.default_rng(0)
    for s, t, name in (
        (1, 1, "s = 1, t in 1 to 16"),
        (8, 17, "s in 2 to 8, t in 17 to 64"),
        (9, 16, "t in 1 to 16"),
        (64, 64, "t in 17 to 64"),
    ):
        assert run.program_of([s, t])[0] == name
        a, b = (draw.integers(-8, 9, shape).astype(np.float32) for shape in ((s, 4), (4, t)))
        assert np.array_equal(run.run([a, b])[0], (a @ b).sum(0))


def test_too_many_programs_are_an_error() -> None:
    with pytest.raises(DimRangeError, match="of dims s, t make 25 programs; at most 16"):
        compile_module(outer([1, 2, 3, 4], [1, 2, 3, 4]))


@settings(max_examples=6)
@given(st.data())
def test_any_buckets_give_what_none_gives(data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.integers(0, 96), min_size=2, max_size=6, unique=True).map(sorted))
    pairs = [(low, high - 1) for low, high in itertools.pairwise(edges)]
    kept = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    run = compile_module(layer(list(kept)), "cpu", PLAIN)
    plain = compile_module(layer([]), "cpu", PLAIN)
    sizes = {0, 1, 96, *(size for pair in kept for size in (pair[0], pair[1], min(96, pair[1] + 1)))}
    for size in sorted(sizes):
        inputs = layer_data(size)
        for ours, theirs in zip(run.run(inputs), plain.run(inputs), strict=True):
            assert ours.tobytes() == theirs.tobytes()


# ---- what is shared


def dense(buckets: Buckets, weights: Array | None = None) -> ModuleOp:
    """A matmul whose weights are packed, alike in every program."""
    cx = lm.Graph()
    x = cx.tensor((lm.dim("s", 16, 512, buckets=buckets), 64))
    w = cx.tensor((64, 64)) if weights is None else cx.constant(weights)
    x.matmul(w.transpose(0, 1)).output()
    return cx.module()


@pytest.mark.parametrize("inside", [False, True])
def test_parameters_and_data_of_the_graph_are_laid_out_once(inside: bool) -> None:
    draw = np.random.default_rng(1)
    w = draw.integers(-8, 9, (64, 64)).astype(np.float32)
    options = CompileOptions(constants=() if inside else (1,), buckets="declared", candidates=1)
    run = bucketed(dense([(16, 63), (64, 200), (201, 512)], w if inside else None), options)
    for size in (16, 100, 300):
        x = draw.integers(-8, 9, (size, 64)).astype(np.float32)
        assert np.array_equal(run.run([x] if inside else [x, w])[0], x @ w.T)
    programs = [program for _, program in run.programs]
    assert len(programs) == 3
    arrays = [array for program in programs for array in program.packed]
    assert len(arrays) == 3, "each program reads the weights packed"
    assert len({array.ctypes.data for array in arrays}) < 3
    assert run.stats["packed_bytes"] == w.nbytes * len({id(array) for array in arrays})


def test_a_program_lays_out_parameters_when_it_is_first_called() -> None:
    run = bucketed(dense([(16, 63), (64, 512)]), CompileOptions(constants=(1,), buckets="declared"))
    w = np.eye(64, dtype=np.float32)
    with pytest.raises(UnsetInputError, match=r"\[1\] have no data"):
        run.bind_constants({})
    for scale in (1, 2):
        held = w * np.float32(scale)
        run.bind_constants({1: Constant(held.ctypes.data, held)})
        for size in (20, 64):
            x = np.ones((size, 64), np.float32)
            result = np.empty_like(x)
            run.run_pointers([x.ctypes.data], [size], [result.ctypes.data])
            assert np.array_equal(result, x * scale)
    fresh = bucketed(dense([(16, 63), (64, 512)]), CompileOptions(constants=(1,), buckets="declared"))
    fresh.bind_constants({1: Constant(w.ctypes.data, w)})
    x, result = np.ones((20, 64), np.float32), np.empty((20, 64), np.float32)
    fresh.run_pointers([x.ctypes.data], [20], [result.ctypes.data])
    assert [bool(program.packed) for _, program in fresh.programs] == [True, False]


def test_programs_take_their_arenas_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones stay with their program; so all are large here."""
    monkeypatch.setattr(frames, "KEPT_BYTES", 0)
    run = bucketed(layer([(1, 8), (9, 96)]))
    for size in (8, 9, 96):
        run.run(layer_data(size))
    needs = [each["arena_bytes"] for each in run.stats["programs"].values()]
    assert all(needs[:2]) and run.stats["arena_bytes"] == max(needs)
    leased: list[int] = []

    def lease(size: int) -> Block:
        block = Pool.lease(POOL, size)
        leased.append(block.address)
        return block

    monkeypatch.setattr(POOL, "lease", lease)
    for size in (8, 9):
        run.run(layer_data(size))
    assert len(leased) == 2 and leased[0] == leased[1]


def test_kernels_that_buckets_share_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the graph without the dim is one kernel in three programs; without a cache it is compiled once."""
    cx = lm.Graph()
    s = lm.dim("s", 1, 64, buckets=[(1, 8), (9, 20)])
    fixed = cx.tensor((32, 32)).softmax(-1).matmul(cx.tensor((32, 32)))
    cx.tensor((s, 32)).matmul(fixed).output()
    fixed.output()
    made: list[str] = []
    from luminal.plan import native_kernels

    compile_object = native_kernels.compile_object

    def count(text: str, *rest: Any) -> bytes:
        made.append(text)
        return compile_object(text, *rest)

    monkeypatch.setattr(native_kernels, "compile_object", count)
    run = bucketed(cx.module(), CompileOptions(buckets="declared", candidates=1, cache=False))
    assert len(made) == len(set(made))
    assert run.stats["kernels"] < sum(each["kernels"] for each in run.stats["programs"].values())


def test_a_second_compilation_needs_no_llvm_and_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    first = bucketed(layer([1, (2, 40)], largest=95))

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler._Compilation, "_compile", refuse)  # pyright: ignore
    second = bucketed(layer([1, (2, 40)], largest=95))
    assert second.stats["cached"] == 1
    assert list(second.stats["programs"]) == list(first.stats["programs"])
    for size in (0, 1, 2, 40, 41, 95):
        for ours, theirs in zip(second.run(layer_data(size)), first.run(layer_data(size)), strict=True):
            assert np.array_equal(ours, theirs)
    with pytest.raises(AssertionError):
        compile_module(layer([1, (2, 41)], largest=95), "cpu", PLAIN)
    with pytest.raises(AssertionError):
        compile_module(layer([1, (2, 40)], largest=95), "cpu", CompileOptions(candidates=1))


def test_another_process_starts_warm() -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.plan.test_buckets import layer\n"
        "from luminal import compiler\n"
        "compiler.source_digest = lambda: 'fixed'\n"
        "run = compiler.compile_module(layer([1, (2, 12)]))\n"
        "print(run.stats['cached'], len(run.programs), *sorted(run.stats['compile_seconds']))\n"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert first[:2] == ["0", "3"] and "schedule" in first
    assert second == ["1", "3", "key", "load"]


def test_threads_run_different_buckets_at_once() -> None:
    run = bucketed(layer([1, (2, 12), (13, 96)]))
    failed: list[int] = []

    def work(first: int) -> None:
        for size in range(first, 97, 4):
            data = layer_data(size)
            for result, expected in zip(run.run(data), layer_results(*data), strict=True):
                if not np.array_equal(result, expected):
                    failed.append(size)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_sizes_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = bucketed(layer([1, (2, 12)]))
    (x, w), asked = layer_data(5), list[int]()
    outputs = [np.empty((5, 16), np.float32), np.empty((5, 8), np.float32)]
    program_of = run.program_of

    def ask(dims: Sequence[int]) -> Any:
        asked.extend(dims)
        return program_of(dims)

    monkeypatch.setattr(run, "program_of", ask)
    for _ in range(3):
        run.run_pointers([x.ctypes.data, w.ctypes.data], [5], [array.ctypes.data for array in outputs])
    assert asked == [5]
    assert np.array_equal(outputs[0], layer_results(x, w)[0])


def test_explain_names_the_programs() -> None:
    cx = lm.Graph()
    cx.tensor((lm.dim("s", 1, 64, buckets=[1, (2, 8)]),)).sin().output()
    text = lm.explain(cx)
    for name in ("s = 1", "s in 2 to 8", "any size"):
        assert f"// program of {name}\nplan main" in text
        assert f"; program of {name}\n" in text


# ---- by itself


def product_of(size: int) -> CompileOptions:
    return CompileOptions(hint=(("s", size),), candidates=1)


def plain_product() -> ModuleOp:
    cx = lm.Graph()
    s = lm.dim("s", 1, 4096)
    cx.tensor((s, 32)).matmul(cx.tensor((32, s))).output()
    return cx.module()


def test_a_graph_that_gains_gets_two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        advice, "MARGIN", -1.0
    )  # what the model says of this machine is not the question here
    run = bucketed(plain_product(), product_of(4))
    assert list(run.stats["programs"]) == ["s in 1 to 11", "s in 12 to 4096"]
    draw = np.random.default_rng(0)
    for size in (1, 11, 12, 50):
        a, b = (draw.integers(-8, 9, shape).astype(np.float32) for shape in ((size, 32), (32, size)))
        assert np.array_equal(run.run([a, b])[0], a @ b)
    again = bucketed(plain_product(), product_of(4))
    assert again.stats["cached"] == 1
    assert list(again.stats["programs"]) == ["s in 1 to 11", "s in 12 to 4096"]


@pytest.mark.parametrize("options", [PLAIN, product_of(4)])
def test_no_buckets_by_themselves_where_they_are_off_or_do_not_pay(
    options: CompileOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "MARGIN", -1.0 if options == PLAIN else 1.0)
    assert compile_module(layer([], largest=94), "cpu", options).stats["programs"] == {}


def test_the_option_is_checked() -> None:
    with pytest.raises(OptionError, match="buckets 'many' is not known; known are 'auto', 'declared'"):
        CompileOptions(buckets="many")


def test_statistics_of_one_program_have_no_others() -> None:
    compile_module(layer([], largest=93), "cpu", PLAIN)
    assert lm.stats()["last"]["programs"] == {}


def test_programs_share_what_is_folded_of_constants() -> None:
    cx = lm.Graph()
    s = lm.dim("s", 1, 64, buckets=[1])
    x, w = cx.tensor((s, 8)), cx.tensor((8, 4))
    x.matmul(w.exp() + 1.0).output()
    options = CompileOptions(constants=(1,), buckets="declared", candidates=1)
    found = compile_module(cx.module(), "cpu", options)
    assert isinstance(found, BucketedExecutable) and found.programs[0][1].plan.folds
    weights = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    found.bind_constants({1: Constant(weights.ctypes.data, weights)})
    for rows in (1, 3):
        given, result = np.ones((rows, 8), np.float32), np.empty((rows, 4), np.float32)
        found.run_pointers([given.ctypes.data], [rows], [result.ctypes.data])
        np.testing.assert_allclose(result, given @ (np.exp(weights) + 1), rtol=1e-5)
