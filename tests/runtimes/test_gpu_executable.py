"""Programs for GPUs on a double of the device: plans, arenas, recorded launches, sizes, checks and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.compiler import compile_module
from luminal.dim import dim
from luminal.errors import (
    DataSizeError,
    DeviceError,
    DimRangeError,
    IndexOutOfRangeError,
    NoDeviceError,
    UnsetInputError,
)
from luminal.graph import Graph
from luminal.plan import gpu_executable
from luminal.plan.constants import Constant, invalidate
from luminal.plan.gpu_executable import GpuExecutable
from tests.emit_triton.double import Double, use_double

Array = np.ndarray[Any, Any]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Double:
    found = Double()
    use_double(monkeypatch, found)
    return found


def layer() -> Graph:
    """relu(x @ w + b), each column divided by one more than its sum over all rows, in several kernels."""
    cx = Graph()
    s = dim("s", min=1, max=4096)
    x, w, b = cx.tensor((s, 24), name="x"), cx.tensor((24, 40), name="w"), cx.tensor((40,), name="b")
    h = (x.matmul(w) + b).relu()
    (h / (h.sum(dim=0) + 1.0)).output()
    return cx


def compiled(graph: Graph, **options: Any) -> GpuExecutable:
    chosen = {"cache": False, "candidates": 1, "hint": {"s": 4096}, **options}
    found = compile_module(graph.module(), "sm_90", chosen)
    assert isinstance(found, GpuExecutable)
    return found


def data(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def layer_data(rows: int) -> list[Array]:
    return data((rows, 24), (24, 40), (40,))


def layer_value(x: Array, w: Array, b: Array) -> Array:
    value = np.maximum(x @ w + b, 0)
    return value / (value.sum(0) + 1)


class Caller:
    """Calls an executable on tensors that stay where they are."""

    def __init__(self, executable: GpuExecutable, inputs: list[Array], dims: dict[str, int]) -> None:
        self.executable, self.dims = executable, list(dims.values())
        self.inputs = [torch.from_numpy(array.copy()) for array in inputs]
        self.outputs = [
            torch.full([d.evaluate(dims) for d in t.shape], float("nan")).to(t.dtype.torch)
            for t in executable.output_types
        ]

    def __call__(self) -> Array:
        self.executable.run_pointers(
            [self.inputs[n].data_ptr() for n in self.executable.call_inputs],
            self.dims,
            [output.data_ptr() for output in self.outputs],
        )
        return self.outputs[0].numpy()


@pytest.mark.parametrize("rows", [1, 5, 33])
def test_arrays_in_arrays_out(rows: int, device: Double) -> None:
    inputs = layer_data(rows)
    (result,) = compiled(layer()).run(inputs)
    np.testing.assert_allclose(result, layer_value(*inputs), rtol=1e-4, atol=1e-6)


def test_a_call_that_comes_again_is_recorded_and_replayed(device: Double) -> None:
    call = Caller(compiled(layer()), layer_data(5), {"s": 5})
    wanted = layer_value(*layer_data(5))
    launches: list[int] = []
    for _ in range(4):
        call.outputs[0].fill_(float("nan"))
        np.testing.assert_allclose(call(), wanted, rtol=1e-4, atol=1e-6)
        launches.append(device.launches)
    assert device.recordings == 1 and device.replays == 3
    assert len({after - before for before, after in zip([0, *launches], launches)}) == 1
    assert device.loads == launches[0]  # every kernel once, before the first launch


def test_other_sizes_or_addresses_never_run_what_was_recorded(device: Double) -> None:
    executable = compiled(layer())
    five, seven = (Caller(executable, layer_data(rows), {"s": rows}) for rows in (5, 7))
    other = Caller(executable, [2 * array for array in layer_data(5)], {"s": 5})
    for _ in range(3):
        for call, rows in ((five, 5), (seven, 7)):
            np.testing.assert_allclose(call(), layer_value(*layer_data(rows)), rtol=1e-4, atol=1e-6)
        wanted = layer_value(*(2 * array for array in layer_data(5)))
        np.testing.assert_allclose(other(), wanted, rtol=1e-4, atol=1e-6)
    assert device.recordings == 3 and device.replays == 6


def test_recorded_calls_are_bounded(device: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_executable, "MOST_GRAPHS", 2)
    executable = compiled(layer())
    calls = [Caller(executable, layer_data(rows), {"s": rows}) for rows in (3, 4, 5)]
    for call in calls * 2:
        call()
    assert device.recordings == 3 and len(executable._graphs) == 2
    np.testing.assert_allclose(calls[0](), layer_value(*layer_data(3)), rtol=1e-4, atol=1e-6)
    assert device.recordings == 4


def test_while_the_user_records_nothing_is_recorded(device: Double) -> None:
    call = Caller(compiled(layer()), layer_data(5), {"s": 5})
    device.is_recorded = True
    for _ in range(3):
        call()
    assert not device.recordings and device.launches


def test_an_arena_is_leased_and_used_again(device: Double) -> None:
    executable = compiled(layer())
    call = Caller(executable, layer_data(5), {"s": 5})
    call()
    (arenas,) = executable._arenas.values()
    first = [arena.data_ptr() for arena in arenas]
    call()
    assert [arena.data_ptr() for arena in executable._arenas[7]] == first and len(first) == 1
    assert 0 < executable.stats["arena_bytes"] <= executable._arenas[7][0].numel()


def test_constants_are_folded_once_and_again_where_they_change(device: Double) -> None:
    def graph() -> Graph:
        cx = Graph()
        x, w = cx.tensor((5, 24), name="x"), cx.tensor((24, 40), name="w")
        x.matmul(w.exp() + 1.0).output()
        return cx

    executable = compiled(graph(), constants=[1])
    assert len(executable.plan.folds) == 1
    x, w = data((5, 24), (24, 40))
    weights = torch.from_numpy(w.copy())
    call = Caller(executable, [x], {})
    with pytest.raises(UnsetInputError, match="never bound"):
        call()
    with pytest.raises(UnsetInputError, match="no data"):
        executable.bind_constants({})
    executable.bind_constants({1: Constant(weights.data_ptr(), weights, 0)})
    uploads = device.uploads
    np.testing.assert_allclose(call(), x @ (np.exp(w) + 1), rtol=1e-4)
    executable.bind_constants({1: Constant(weights.data_ptr(), weights, 0)})
    np.testing.assert_allclose(call(), x @ (np.exp(w) + 1), rtol=1e-4)
    assert device.uploads == uploads
    weights.zero_()
    executable.bind_constants({1: Constant(weights.data_ptr(), weights, 1)})
    np.testing.assert_allclose(call(), x @ np.full_like(w, 2.0), rtol=1e-4)
    weights.fill_(1.0)
    invalidate()
    np.testing.assert_allclose(call(), x @ (np.exp(np.ones_like(w)) + 1), rtol=1e-4)


def gather() -> Graph:
    cx = Graph()
    x, index = cx.tensor((10, 4), name="x"), cx.tensor((3,), dtype="i64", name="index")
    x.index_select(0, index).output()
    return cx


def test_an_index_out_of_range_is_an_error_with_the_user_s_line(device: Double) -> None:
    executable = compiled(gather())
    (x,) = data((10, 4))
    (result,) = executable.run([x, np.array([1, 9, 0])])
    np.testing.assert_array_equal(result, x[[1, 9, 0]])
    with pytest.raises(IndexOutOfRangeError, match=r"test_gpu_executable\.py"):
        executable.run([x, np.array([1, 10, 0])])
    assert device.reads == 2
    device.is_recorded = True
    with pytest.raises(DeviceError, match="indices are checked"):
        executable.run([x, np.array([1, 9, 0])])


def test_library_steps_run_through_torch_between_launches(device: Double) -> None:
    cx = Graph()
    x = cx.tensor((6, 8), name="x")
    values, positions = (x * 2.0).sort(dim=1)
    (values + 1.0).output()
    positions.output()
    executable = compiled(cx)
    (given,) = data((6, 8))
    found, places = executable.run([given])
    np.testing.assert_allclose(found, np.sort(2 * given, 1) + 1, rtol=1e-6)
    np.testing.assert_array_equal(places, np.argsort(2 * given, 1, kind="stable"))


def test_an_input_that_no_kernel_can_take_as_it_lies_is_copied(device: Double) -> None:
    executable = compiled(layer())
    call = Caller(executable, layer_data(5), {"s": 5})
    memory = torch.empty(5 * 24 + 1)
    call.inputs[0] = memory[1:].view(5, 24).copy_(call.inputs[0])
    assert call.inputs[0].data_ptr() % 16
    np.testing.assert_allclose(call(), layer_value(*layer_data(5)), rtol=1e-4, atol=1e-6)


def test_an_empty_call_launches_nothing_that_has_no_programs(device: Double) -> None:
    cx = Graph()
    s = dim("s", min=0, max=64)
    (cx.tensor((s, 4), name="x") * 2.0).output()
    (result,) = compiled(cx).run([np.zeros((0, 4), np.float32)])
    assert result.shape == (0, 4) and not device.launches


def test_without_the_device_it_is_compiled_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    use_double(monkeypatch, None)
    executable = compiled(layer())
    with pytest.raises(NoDeviceError, match="sm_90"):
        executable.run(layer_data(5))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda inputs: [inputs[0][:, :3], *inputs[1:]], DataSizeError),
        (lambda inputs: [np.zeros((5000, 24), np.float32), *inputs[1:]], DimRangeError),
    ],
)
def test_mistakes(
    change: Callable[[list[Array]], list[Array]], error: type[Exception], device: Double
) -> None:
    with pytest.raises(error):
        compiled(layer()).run(change(layer_data(5)))
    assert not device.launches
