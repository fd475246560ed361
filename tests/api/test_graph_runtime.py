"""The example of the design, symbolic sizes, and the runtime protocol: data, execution, results, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from api_harness import DTYPES, interprets, numpy_of, random_values

import luminal
import luminal.dtype as dt
from luminal.dim import dim, dim_max, dim_min
from luminal.errors import (
    DataSizeError,
    DimRangeError,
    DTypeError,
    GraphError,
    IndexOutOfRangeError,
    LicenceError,
    OptionError,
    OutputError,
    ShapeError,
    UnknownDimError,
    UnsetDimError,
    UnsetInputError,
    UnsupportedTargetError,
)
from luminal.graph import Graph
from luminal.runtimes.protocol import Runtime
from luminal.runtimes.reference import LEVELS, ReferenceRuntime
from luminal.tensor import Tensor, cat

MakeRuntime = Callable[[], Runtime]


def compiled(graph: Graph, make_runtime: MakeRuntime) -> Runtime:
    runtime = make_runtime()
    graph.build_search_space(type(runtime))
    return graph.search(runtime, 10)


DESIGN = """
import luminal as lm

cx = lm.Graph()
a = cx.tensor((3, 1)); b = cx.tensor((1, 4))
c = a.matmul(b).output()

cx.build_search_space(lm.CPURuntime)
rt = cx.search(lm.CPURuntime(), 10)          # ten candidates timed
rt.set_data(a, [1., 2., 3.]); rt.set_data(b, [1., 2., 3., 3.])
rt.execute(cx.dyn_map)
print(rt.get_f32(c))
"""


def test_the_example_of_the_design_word_for_word(capsys: pytest.CaptureFixture[str]) -> None:
    exec(DESIGN, {})
    assert capsys.readouterr().out == "[1. 2. 3. 3. 2. 4. 6. 6. 3. 6. 9. 9.]\n"


def test_public_names() -> None:
    for name in luminal.__all__:
        assert getattr(luminal, name) is not None
    assert luminal.NativeRuntime is luminal.CPURuntime
    assert set(luminal.__all__) <= set(dir(luminal))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        luminal.nonsense  # noqa: B018


def test_the_example_of_the_design(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    a = cx.tensor((3, 1))
    b = cx.tensor((1, 4))
    c = a.matmul(b).output()

    cx.build_search_space(type(make_runtime()))
    rt = cx.search(make_runtime(), 10)
    rt.set_data(a, [1.0, 2.0, 3.0])
    rt.set_data(b, [1.0, 2.0, 3.0, 3.0])
    rt.execute(cx.dyn_map)
    assert list(rt.get_f32(c)) == [1, 2, 3, 3, 2, 4, 6, 6, 3, 6, 9, 9]
    assert rt.get_numpy(c).shape == (3, 4)
    assert rt.stats


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_executable(level: str) -> None:
    cx = Graph()
    x, w = cx.tensor(("s", 8), name="x"), cx.tensor((8, 4), name="w")
    y = (x @ w).gelu().softmax(1).output()
    cx.build_search_space(ReferenceRuntime)
    rt = cx.search(ReferenceRuntime(level), 1)
    assert rt.stats["level"] == level
    own, weight = (random_values(dt.f32, shape, 1, special=False) for shape in ((5, 8), (8, 4)))
    rt.set_data(w, weight)
    for size in (5, 1, 0):
        rt.set_data(x, own[:size])
        rt.execute({"s": size})
        wanted = torch.nn.functional.gelu(own[:size] @ weight).softmax(1)
        np.testing.assert_allclose(rt.get_numpy(y), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_one_compilation_runs_every_size(make_runtime: MakeRuntime) -> None:
    """Shapes (s, 4), (b, h, w + 3), 2*s, s // 2 over sizes 0, 1 and more."""
    s, w = dim("s", max=100), dim("w")
    cx = Graph()
    x = cx.tensor((s, 4), name="x")
    y = cx.tensor((2 * s, w + 3), name="y")
    z = cx.tensor("w", name="z")
    results = [
        x.softmax(1).output(),
        x.sum(0).output(),
        (x[1:] - x[:-1]).output(),
        x[: s // 2].output(),
        x[s // 2 :].output(),
        x[::3].output(),
        cat([x, x]).output(),
        y.reshape(2, s, w + 3).permute(1, 0, 2).output(),
        (y[:, 3:] * z + s).output(),
        (y.T @ y).output(),
        y.flatten().output(),
        (x * s / (w + 1)).output(),
        (cx.arange(s) % 3).output(),
    ]

    def expected(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, s: int, w: int) -> list[torch.Tensor]:
        return [
            x.softmax(1),
            x.sum(0),
            x[1:] - x[:-1],
            x[: s // 2],
            x[s // 2 :],
            x[::3],
            torch.cat([x, x]),
            y.reshape(2, s, w + 3).permute(1, 0, 2),
            y[:, 3:] * z + s,
            y.T @ y,
            y.flatten(),
            x * s / (w + 1),
            torch.arange(s) % 3,
        ]

    rt = compiled(cx, make_runtime)
    for size, width in ((5, 2), (0, 0), (1, 1), (1, 0), (0, 3), (17, 4)):
        cx.set_dim("s", size)
        cx.set_dim(w, width)
        data = [
            random_values(dt.f32, shape, 1, special=False)
            for shape in ((size, 4), (2 * size, width + 3), (width,))
        ]
        for tensor, values in zip((x, y, z), data, strict=True):
            rt.set_data(tensor, values)
        rt.execute(cx.dyn_map)
        for tensor, wanted in zip(results, expected(*data, size, width), strict=True):
            got = rt.get_numpy(tensor)
            assert got.shape == tuple(wanted.shape), tensor
            np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5, err_msg=tensor.name)


def test_shapes_of_symbolic_results_are_canonical() -> None:
    s, b = dim("s"), dim("b", 1)
    cx = Graph()
    x = cx.tensor((b, s, 6))
    shapes: dict[str, tuple[Tensor, tuple[Any, ...]]] = {
        "slice from 1": (x[:, 1:], (b, dim_max(s - 1, 0), 6)),
        "slice to -1": (x[:, :-1], (b, dim_max(s - 1, 0), 6)),
        "slice of both": (x[:, 1:-1], (b, dim_max(s - 2, 0), 6)),
        "to 3": (x[:, :3], (b, dim_min(s, 3), 6)),
        "of b": (x[1:], (b - 1, s, 6)),
        "reshape": (x.reshape(b * s, -1), (b * s, 6)),
        "reshape -1": (x.reshape(-1, 2), (3 * b * s, 2)),
        "cat": (cat([x, x[:, :, :2]], 2), (b, s, 8)),
        "pad": (x.pad((1, 2)), (b, s, 9)),
        "unfold": (x.unfold(2, 3, 2), (b, s, 2, 3)),
        "sum": (x.sum((0, -1), keepdim=True), (1, s, 1)),
        "matmul": (x @ x.mT, (b, s, s)),
        "every other": (x[:, ::2], (b, (s + 1) // 2, 6)),
    }
    for name, (tensor, shape) in shapes.items():
        assert tensor.shape == shape, name
    assert x.size() == x.shape and x.size(-1) == 6 and x.ndim == x.dim() == 3 and x.numel() == 6 * b * s


def test_inputs_without_a_name_get_one_that_is_free() -> None:
    cx = Graph()
    names = [cx.tensor((2,), name=name).name for name in (None, "input2", None, "x", None)]
    assert len(set(names)) == 5 and names[0] == "input0" and names[1] == "input2"


def test_text_in_shapes() -> None:
    cx = Graph()
    x = cx.tensor(("s", "2*s + 1", 3))
    s = dim("s")
    assert x.shape == (s, 2 * s + 1, 3)
    assert cx.tensor("s").shape == (s,) and cx.tensor(5).shape == (5,) and cx.tensor(()).shape == ()
    with pytest.raises(UnsetDimError, match="q"):
        cx.tensor("2*q")
    with pytest.raises(DimRangeError, match="two ranges"):
        cx.tensor((dim("s", 3),))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_in_and_comes_out(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    data = random_values(dtype, (3, 4), 0)
    cx = Graph()
    x = cx.tensor((3, 4), dtype, "x")
    y = x.permute(1, 0).output()
    rt = compiled(cx, make_runtime)
    rt.set_data(x, data)
    rt.execute({})
    expected = numpy_of(data.T)
    for got in (rt.get_numpy(y), getattr(rt, f"get_{dtype.name}")(y).reshape(4, 3)):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))
    rt.set_data(x, numpy_of(data).copy())
    rt.execute()
    np.testing.assert_array_equal(rt.get_numpy(y).astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", [dt.f8e4m3fn, dt.f8e5m2, dt.f4e2m1], ids=str)
def test_narrow_floats_are_kept_and_cast(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    values = np.array([0.5, -1.5, 3.0, -0.0], np.float32).astype(dtype.numpy)
    cx = Graph()
    x = cx.tensor((4,), dtype)
    y, z = x.cast("f32").output(), x.reshape(2, 2).flip(0).output()
    try:
        rt = compiled(cx, make_runtime)
    except UnsupportedTargetError as error:
        assert dtype.name in str(error) and not interprets(make_runtime)
        return
    rt.set_data(x, values)
    rt.execute()
    assert list(rt.get_f32(y)) == [0.5, -1.5, 3.0, 0.0]
    assert rt.get_numpy(z).dtype == dtype.numpy
    assert rt.get_numpy(z).astype(np.float32).tolist() == [[3.0, -0.0], [0.5, -1.5]]


def test_what_data_can_be(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    x = cx.tensor((2, 2), name="x")
    y = (x + 0).output()
    rt = compiled(cx, make_runtime)
    for data in (
        [[1, 2], [3, 4]],
        [1, 2, 3, 4],
        (1.0, 2.0, 3.0, 4.0),
        [True, 2, 3.0, 4],
        np.array([[1, 2], [3, 4]], np.float32),
        np.array([1, 2, 3, 4], np.float32),
        torch.tensor([[1.0, 3.0], [2.0, 4.0]]).T,
        np.arange(1, 9, dtype=np.float32)[:4].reshape(2, 2),
    ):
        rt.set_data(x, data)  # type: ignore[arg-type]
        rt.execute()
        assert rt.get_f32(y).tolist() == [1, 2, 3, 4]
    data = np.ones((2, 2), np.float32)
    rt.set_data(x, data)
    data[:] = 7  # the runtime has a copy
    rt.execute()
    assert rt.get_f32(y).tolist() == [1, 1, 1, 1]


def test_outputs_stay_and_inputs_persist(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    x, w = cx.tensor((2,)), cx.tensor((2,))
    y = (x * w).output()
    rt = compiled(cx, make_runtime)
    rt.set_data(w, [2, 3])
    rt.set_data(x, [1, 1])
    rt.execute()
    first = rt.get_f32(y)
    rt.set_data(x, [5, 5])
    rt.execute()
    assert first.tolist() == [2, 3]
    assert rt.get_f32(y).tolist() == [10, 15]


def test_executions_that_alternate(make_runtime: MakeRuntime) -> None:
    """What was checked for one execution holds for no other sizes and no other data."""
    cx = Graph()
    s = dim("s", 1, 8)
    x = cx.tensor((s,), name="x")
    y = (x * 2.0).output()
    runtime = compiled(cx, make_runtime)
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0, 7.0]):
        runtime.set_data(x, values)
        for _ in range(2):
            runtime.execute({"s": len(values)})
            assert runtime.get_f32(y).tolist() == [2 * value for value in values]
        with pytest.raises(DataSizeError):
            runtime.execute({"s": 8})
        with pytest.raises(OutputError, match="no value yet"):
            runtime.get_f32(y)


def test_inputs_as_outputs_and_unused_inputs(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    x, unused = cx.tensor((2,), name="x"), cx.tensor((3,), name="unused")
    same = x.output()
    constant = cx.full((2,), 7).output()
    rt = compiled(cx, make_runtime)
    rt.set_data(x, [1, 2])
    with pytest.raises(UnsetInputError, match="'unused'"):
        rt.execute()
    rt.set_data(unused, [0, 0, 0])
    rt.execute()
    assert rt.get_f32(same).tolist() == [1, 2]
    assert rt.get_i64(constant).tolist() == [7, 7]
    assert same.output() is same


# ---- refused -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(make_runtime: MakeRuntime) -> tuple[Graph, Tensor, Tensor, Runtime]:
    cx = Graph()
    x = cx.tensor(("s", 4), name="x")
    y = (x * 2).output()
    return cx, x, y, compiled(cx, make_runtime)


Small = tuple[Graph, Tensor, Tensor, Runtime]


def test_an_unset_input_names_it(small: Small) -> None:
    cx, _, _, rt = small
    cx.set_dim("s", 2)
    with pytest.raises(UnsetInputError, match=r"'x' f32 \(s, 4\)"):
        rt.execute(cx.dyn_map)


def test_an_unset_dim_names_it_and_a_tensor_with_it(small: Small) -> None:
    cx, x, _, rt = small
    rt.set_data(x, np.zeros((2, 4), np.float32))
    with pytest.raises(UnsetDimError, match=r"'s' of 'x' f32 \(s, 4\)"):
        rt.execute(cx.dyn_map)


def test_unknown_dims(small: Small) -> None:
    cx, _, _, rt = small
    with pytest.raises(UnknownDimError, match=r"'t'.*s"):
        cx.set_dim("t", 1)
    with pytest.raises(UnknownDimError, match=r"'t'.*s"):
        rt.execute({"s": 1, "t": 2})


def test_values_of_dims(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    s = dim("s", min=2, max=9)
    x = cx.tensor((s,), name="x")
    x.output()
    rt = compiled(cx, make_runtime)
    for value in (1, 10, -1):
        with pytest.raises(DimRangeError, match=f"s in 2 to 9.*{value}"):
            cx.set_dim("s", value)
        rt.set_data(x, [0.0] * max(value, 0))
        with pytest.raises(DimRangeError, match=f"s in 2 to 9.*{value}"):
            rt.execute({"s": value})
    for bad in (2.5, "3", True, None):
        with pytest.raises(OptionError, match="whole number"):
            cx.set_dim("s", bad)  # type: ignore[arg-type]
    cx.set_dim("s", np.int64(3))  # type: ignore[arg-type]
    assert cx.dyn_map == {"s": 3}


def test_data_of_the_wrong_size(small: Small) -> None:
    cx, x, _, rt = small
    with pytest.raises(DataSizeError, match=r"'x' f32 \(s, 4\).*\(3, 5\)"):
        rt.set_data(x, np.zeros((3, 5), np.float32))
    with pytest.raises(DataSizeError, match=r"'x'.*\(1, 3, 4\)"):
        rt.set_data(x, np.zeros((1, 3, 4), np.float32))
    with pytest.raises(DataSizeError, match=r"'x'.*differ in length"):
        rt.set_data(x, [[1, 2, 3, 4], [1]])
    rt.set_data(x, np.zeros((3, 4), np.float32))
    cx.set_dim("s", 2)
    with pytest.raises(DataSizeError, match=r"'x'.*\(2, 4\) with s = 2.*\(3, 4\)"):
        rt.execute(cx.dyn_map)
    rt.set_data(x, [0.0] * 9)
    with pytest.raises(DataSizeError, match=r"'x'.*8 elements.*9"):
        rt.execute(cx.dyn_map)
    fixed = Graph()
    y = fixed.tensor((2, 3), name="y")
    y.output()
    fixed.build_search_space(ReferenceRuntime)
    other = fixed.search(ReferenceRuntime(), 1)
    with pytest.raises(DataSizeError, match=r"'y'.*6 elements.*7"):
        other.set_data(y, [0.0] * 7)


def test_data_of_the_wrong_dtype(small: Small) -> None:
    _, x, _, rt = small
    with pytest.raises(DTypeError, match=r"'x' has dtype f32.*f64"):
        rt.set_data(x, np.zeros((2, 4)))
    with pytest.raises(DTypeError, match=r"'x' has dtype f32.*i64"):
        rt.set_data(x, torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(DTypeError, match=r"'x'.*numbers"):
        rt.set_data(x, "text")
    with pytest.raises(DTypeError, match=r"'x'.*numbers"):
        rt.set_data(x, [None] * 8)  # type: ignore[list-item]
    with pytest.raises(DTypeError, match="complex"):
        rt.set_data(x, np.zeros((2, 4), np.complex64))
    cx = Graph()
    i = cx.tensor((2,), "i8", "i")
    i.output()
    cx.build_search_space(ReferenceRuntime)
    rt = cx.search(ReferenceRuntime(), 1)
    with pytest.raises(DTypeError, match=r"'i' has dtype i8.*floats"):
        rt.set_data(i, [1.5, 2])
    with pytest.raises(DTypeError, match=r"'i' has dtype i8.*200"):
        rt.set_data(i, [1, 200])
    with pytest.raises(DTypeError, match=r"'i'.*64 bits|'i'.*numbers"):
        rt.set_data(i, [1, 2**80])


def test_a_tensor_that_is_no_input_or_output(small: Small) -> None:
    cx, x, y, rt = small
    with pytest.raises(GraphError, match=r"no input.*'x'"):
        rt.set_data(y, [0.0])
    with pytest.raises(GraphError, match="no input"):
        rt.set_data(Graph().tensor((2,)), [0, 0])
    with pytest.raises(GraphError, match="no input"):
        rt.set_data("x", [0, 0])  # type: ignore[arg-type]
    with pytest.raises(OutputError, match=r"no output.*mul at"):
        rt.get_f32(x)
    with pytest.raises(OutputError, match="no value yet"):
        rt.get_f32(y)
    cx.set_dim("s", 1)
    rt.set_data(x, [1, 2, 3, 4])
    rt.execute(cx.dyn_map)
    with pytest.raises(DTypeError, match=r"get_i64.*get_f32"):
        rt.get_i64(y)
    with pytest.raises(UnsetDimError):
        rt.execute({})
    with pytest.raises(OutputError, match="no value yet"):
        rt.get_f32(y)  # the failed execution left none


def test_the_order_of_things(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    x = cx.tensor((2,), name="x")
    runtime = make_runtime()
    with pytest.raises(GraphError, match="no output"):
        cx.build_search_space(type(runtime))
    y = x.exp().output()
    with pytest.raises(GraphError, match="call build_search_space"):
        cx.search(runtime, 1)
    with pytest.raises(GraphError, match="no graph yet"):
        runtime.set_data(x, [1, 2])
    with pytest.raises(GraphError, match="no graph yet"):
        runtime.execute({})
    cx.build_search_space(type(runtime))
    (y + 1).output()
    with pytest.raises(GraphError, match="changed"):
        cx.search(runtime, 1)
    cx.build_search_space(type(runtime))
    for count in (0, -1):
        with pytest.raises(OptionError, match="at least 1"):
            cx.search(runtime, count)

    class Other(ReferenceRuntime):
        pass

    cx.build_search_space(Other)
    with pytest.raises(GraphError, match="Other"):
        cx.search(ReferenceRuntime(), 1)


def test_options(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    cx.tensor((2,)).exp().output()
    runtime = make_runtime()
    with pytest.raises(OptionError, match=r"no option 'speed'.*licences"):
        cx.build_search_space(type(runtime), speed=11)
    with pytest.raises(LicenceError, match="wrong-results"):
        cx.build_search_space(type(runtime), licences=["wrong-results"])
    cx.build_search_space(type(runtime), licences=["contract"])
    with pytest.raises(OptionError, match="level"):
        ReferenceRuntime(level="magic")


def test_conditions_that_only_the_run_can_check(make_runtime: MakeRuntime) -> None:
    """What cannot be proven of symbols is checked at the values that they have, with the error that it is."""
    s = dim("s")
    builders: list[tuple[Callable[[Tensor], Tensor], type[Exception], int, int]] = [
        (lambda x: x[3], IndexOutOfRangeError, 4, 3),
        (lambda x: x[-2], IndexOutOfRangeError, 2, 1),
        (lambda x: x.amax(), ShapeError, 1, 0),
        (lambda x: x.argmax(0), ShapeError, 1, 0),
        (lambda x: x.max(0).values, ShapeError, 1, 0),
        (lambda x: x.unfold(0, 3, 1), ShapeError, 3, 2),
        (lambda x: x.topk(3).values, ShapeError, 3, 2),
        (lambda x: x.pad((2, 2), "reflect"), ShapeError, 3, 2),
        (lambda x: x.pad((2, 0), "circular"), ShapeError, 2, 1),
        (lambda x: x.pad((-3, 0)), ShapeError, 3, 2),
        (lambda x: x.graph.full((s - 3,), 0), ShapeError, 3, 2),
        (lambda x: x.reshape(-1, 3), ShapeError, 6, 5),
        (lambda x: x.reshape(2, 3), ShapeError, 6, 5),
    ]
    for build, error, good, bad in builders:
        cx = Graph()
        x = cx.tensor((s,), name="x")
        build(x).output()
        rt = compiled(cx, make_runtime)
        rt.set_data(x, [0.0] * good)
        rt.execute({"s": good})
        rt.set_data(x, [0.0] * bad)
        with pytest.raises(error, match=f"s = {bad}"):
            rt.execute({"s": bad})


def test_sizes_of_inputs_that_turn_out_negative(make_runtime: MakeRuntime) -> None:
    cx = Graph()
    x = cx.tensor((dim("s") - 2,), name="x")
    x.output()
    rt = compiled(cx, make_runtime)
    rt.set_data(x, [1.0])
    rt.execute({"s": 3})
    with pytest.raises(ShapeError, match=r"'x'.*negative"):
        rt.execute({"s": 1})


def test_bf16_arrays_need_no_torch() -> None:
    cx = Graph()
    x = cx.constant(np.array([1.5], ml_dtypes.bfloat16)).output()
    assert x.dtype == dt.bf16
