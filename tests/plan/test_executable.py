"""Plans that run: native entry, arena, in-place kernels, checks, library steps, constants, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dim import Symbol, as_dim, symbol_dim
from luminal.dtype import bool_, f32, i64
from luminal.errors import (
    DataSizeError,
    DimRangeError,
    DivisionByZeroError,
    IndexOutOfRangeError,
    ShapeError,
    UnsetDimError,
    UnsetInputError,
)
from luminal.passes.in_place import share_memory
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, Requirement
from luminal.plan import frames
from luminal.plan.plan import plan_from_json, plan_to_json
from tests.plan.helpers import D0, S, build, elementwise, executable, graph_of, plain_schedule, step, value

ADD, MUL, SQRT = elementwise("add", 2), elementwise("mul", 2), elementwise("sqrt", 1)


def chain() -> RegionGraph:
    """out = sqrt((a + b) * a) * b, with three intermediates."""
    values = [value(0, "input", position=0), value(1, "input", position=1)]
    values += [value(n, "intermediate") for n in (2, 3, 4)] + [value(5, "output", position=0)]
    steps = [
        step(ADD, "add", (0, 1), (2,)),
        step(MUL, "mul", (2, 0), (3,)),
        step(SQRT, "sqrt", (3,), (4,)),
        step(MUL, "mul", (4, 1), (5,)),
    ]
    return graph_of(values, steps, (5,))


def chain_result(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.sqrt((a + b) * a) * b


def numbers(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(0.5, 2.0, size).astype(np.float32)


@pytest.mark.parametrize("size", [0, 1, 5, 64])
def test_one_compilation_runs_every_size(size: int) -> None:
    run = executable(chain())
    a, b = numbers(size), numbers(size, 1)
    assert np.array_equal(run.run([a, b])[0], chain_result(a, b))


def test_intermediates_share_the_arena_and_work_in_place() -> None:
    graph = chain()
    shared, origins = share_memory(
        graph, {key: plain_schedule(region) for key, region in graph.regions.items()}
    )
    assert [v.shares for v in shared.values] == [-1, -1, -1, 2, 3, -1]
    assert set(origins.values()) == {"add", "mul", "sqrt"}
    plan, _, _ = build(shared)
    assert len(plan.arena.blocks) == 1
    run = executable(shared)
    a, b = numbers(33), numbers(33, 1)
    assert np.array_equal(run.run([a, b])[0], chain_result(a, b))
    assert run.stats["arena_bytes"] == 192


def test_two_blocks_suffice_without_working_in_place() -> None:
    plan, _, _ = build(chain())
    assert plan.arena.total({"s": 32, "threads_of_call": 1}) == 2 * 128


def test_values_of_the_user_are_never_worked_on_in_place() -> None:
    values = [value(0, "input", position=0), value(1, "output", position=0), value(2, "output", position=1)]
    steps = [step(SQRT, "sqrt", (0,), (1,)), step(SQRT, "sqrt", (1,), (2,))]
    graph = graph_of(values, steps, (1, 2))
    shared, _ = share_memory(graph, {"sqrt": plain_schedule(SQRT)})
    assert [v.shares for v in shared.values] == [-1, -1, -1]


def test_a_value_read_under_a_reduction_is_not_worked_on_in_place() -> None:
    table = TermTable()
    x = table.read(0, Affine.of({"i": 1}), f32)
    total = table.reduce("sum", ["i"], (x,))
    scaled = table.apply("mul", (x, total), None, f32)
    region = Region(
        table,
        {"i": D0},
        [Argument(f32, D0)],
        [Output(scaled, D0, Affine.of({"i": 1}), indices=frozenset({"i"}))],
    )
    values = [value(0, "input", position=0), value(1, "intermediate"), value(2, "intermediate")]
    values += [value(3, "output", position=0)]
    steps = [
        step(SQRT, "sqrt", (0,), (1,)),
        step(region, "scaled", (1,), (2,)),
        step(SQRT, "sqrt", (2,), (3,)),
    ]
    shared, _ = share_memory(
        graph_of(values, steps, (3,)), {"sqrt": plain_schedule(SQRT), "scaled": plain_schedule(region)}
    )
    assert [v.shares for v in shared.values] == [-1, -1, -1, -1]


def test_a_value_that_is_read_later_is_not_worked_on_in_place() -> None:
    values = [value(0, "input", position=0), value(1, "intermediate"), value(2, "intermediate")]
    values += [value(3, "output", position=0)]
    steps = [
        step(SQRT, "sqrt", (0,), (1,)),
        step(SQRT, "sqrt", (1,), (2,)),
        step(ADD, "add", (1, 2), (3,)),
    ]
    schedules = {"sqrt": plain_schedule(SQRT), "add": plain_schedule(ADD)}
    shared, _ = share_memory(graph_of(values, steps, (3,)), schedules)
    assert [v.shares for v in shared.values] == [-1, -1, -1, -1]
    a = numbers(9)
    assert np.array_equal(executable(shared).run([a])[0], np.sqrt(a) + np.sqrt(np.sqrt(a)))


def bad_index_check() -> Region:
    """Whether any argument element is 5 or more."""
    table = TermTable()
    x = table.read(0, Affine.of({"i": 1}), i64)
    low = table.apply("less_than", (x, table.constant(5, i64)), "lt", bool_)
    bad = table.apply("less_than", (low, table.constant(0, bool_)), "eq", bool_)
    found = table.reduce("max", ["i"], (bad,))
    return Region(table, {"i": D0}, [Argument(i64, D0)], [Output(found, as_dim(1), Affine.of({}))])


def checked_graph(error: str = "index") -> RegionGraph:
    """x is overwritten with its square root after the check of the indices."""
    region = bad_index_check()
    values = [value(0, "input", position=0), value(1, "input", position=1, dtype=i64)]
    values += [value(2, "intermediate", as_dim(1), dtype=bool_), value(3, "output", position=0, shares=0)]
    check = CheckStep(
        region, "check", (1,), (2,), {"d0": S}, error, "index out of range", ("model.py:3 in forward",)
    )
    table = TermTable()
    root = table.apply("sqrt", (table.read(0, Affine.of({"i": 1}), f32),), None, f32)
    output = Output(root, D0, Affine.of({"i": 1}), alias=0, indices=frozenset({"i"}))
    update = Region(table, {"i": D0}, [Argument(f32, D0)], [output])
    return graph_of(values, [check, step(update, "update", (0,), (3,))], (3,))


def test_an_update_is_written_into_the_input() -> None:
    run = executable(checked_graph())
    x = numbers(6)
    before = x.copy()
    (result,) = run.run([x, np.arange(6) % 5])
    assert result is x
    assert np.array_equal(x, np.sqrt(before))
    assert run.updates == ((0, 0),)


@pytest.mark.parametrize(
    ("kind", "error"), [("index", IndexOutOfRangeError), ("division", DivisionByZeroError)]
)
def test_a_failed_check_raises_before_anything_is_overwritten(kind: str, error: type[Exception]) -> None:
    run = executable(checked_graph(kind))
    x = numbers(6)
    before = x.copy()
    with pytest.raises(error, match=r"index out of range \(model.py:3 in forward\)"):
        run.run([x, np.array([0, 1, 2, 7, 0, 0])])
    assert np.array_equal(x, before)


def test_library_steps_stand_between_native_segments() -> None:
    values = [value(0, "input", position=0), value(1, "intermediate"), value(2, "intermediate")]
    values += [value(3, "output", position=1, dtype=i64), value(4, "output", position=0)]
    steps = [
        step(SQRT, "sqrt", (0,), (1,)),
        OpaqueStep("sort", (1,), (2, 3), {"axis": 0, "descending": True}),
        step(MUL, "mul", (2, 2), (4,)),
    ]
    graph = graph_of(values, steps, (4, 3))
    run = executable(graph)
    assert run.plan.segments == [(0, 1), (1, 2), (2, 3)]
    x = np.array([1.0, np.nan, 4.0, 9.0, 4.0], np.float32)
    values_out, positions = run.run([x])
    assert np.array_equal(values_out, np.array([np.nan, 9, 4, 4, 1], np.float32), equal_nan=True)
    assert positions.tolist() == [1, 3, 2, 4, 0]


def test_a_plan_that_begins_with_a_library_step() -> None:
    values = [
        value(0, "input", position=0),
        value(1, "output", position=0),
        value(2, "output", position=1, dtype=i64),
    ]
    graph = graph_of(values, [OpaqueStep("sort", (0,), (1, 2), {"axis": 0, "descending": False})], (1, 2))
    x = np.array([3.0, 1.0, 2.0], np.float32)
    assert [result.tolist() for result in executable(graph).run([x])] == [[1, 2, 3], [1, 2, 0]]


def test_a_plan_comes_back_from_json() -> None:
    for graph in (chain(), checked_graph()):
        plan, _, _ = build(graph)
        assert plan_from_json(plan_to_json(plan)) == plan
        assert str(plan_from_json(plan_to_json(plan))) == str(plan)
    assert "step 0: kernel check(%1, %2) [s] or index error 'index out of range'" in str(plan)
    with pytest.raises(ValueError, match="format"):
        plan_from_json(plan_to_json(plan).replace('"format":1', '"format":0'))


def test_requirements_are_checked_for_every_new_size() -> None:
    graph = chain()
    graph.requirements.append(Requirement(S - 3, "s must be 3 or more", None, "model.py:9"))
    run = executable(graph)
    assert run.run([numbers(3), numbers(3)])[0].shape == (3,)
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"s must be 3 or more \(model.py:9\), with s = 2"):
            run.run([numbers(2), numbers(2)])


def test_wrong_calls() -> None:
    run = executable(chain())
    with pytest.raises(DimRangeError, match="65"):
        run.run([numbers(65), numbers(65)])
    with pytest.raises(DataSizeError):
        run.run([numbers(3), numbers(4)])
    with pytest.raises(UnsetDimError):
        run.run_pointers([0, 0], [], [0])
    with pytest.raises(UnsetInputError):
        run.run([numbers(3)])


def test_a_call_unlike_the_one_before_fills_its_frame_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sizes, sizes that are refused in between, and an arena that is leased for each call."""
    run = executable(chain())
    assert run.plan.arena.total({"s": 64, "threads_of_call": 1}) > 128
    monkeypatch.setattr(frames, "KEPT_BYTES", 128)
    for size in (3, 3, 64, 64, 3):
        a, b = numbers(size), numbers(size, 1)
        assert np.array_equal(run.run([a, b])[0], chain_result(a, b))
        with pytest.raises(DimRangeError):
            run.run([numbers(65), numbers(65)])


def test_arrays_that_are_prepared_are_read_anew_in_each_call() -> None:
    run = executable(chain())
    a, b = numbers(5), numbers(5, 1)
    call = run.prepared([a, b])
    (first,) = call()
    a *= 2
    (second,) = call()
    assert np.array_equal(first, chain_result(a / 2, b)) and np.array_equal(second, chain_result(a, b))


def test_threads_run_one_plan_at_once() -> None:
    run = executable(chain())
    failures: list[int] = []

    def work(seed: int) -> None:
        for size in (3, 40, 17):
            a, b = numbers(size, seed), numbers(size, seed + 100)
            if not np.array_equal(run.run([a, b])[0], chain_result(a, b)):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_an_exception_in_an_interpreted_kernel_reaches_the_caller() -> None:
    run = executable(chain())
    kernel: Any = run.kernels["sqrt"]

    def fail(arrays: Any, dims: Any) -> None:
        raise ZeroDivisionError("inside")

    kernel.run = fail
    with pytest.raises(ZeroDivisionError, match="inside"):
        run.run([numbers(3), numbers(3)])


def test_a_dim_cannot_have_the_name_of_the_number_of_threads() -> None:
    size = symbol_dim(Symbol("threads_of_call", 0, 9))
    values = [value(0, "input", size, 0), value(1, "output", size, 0)]
    with pytest.raises(DimRangeError, match="cannot be named threads_of_call"):
        build(graph_of(values, [step(SQRT, "sqrt", (0,), (1,), size)], (1,)))
