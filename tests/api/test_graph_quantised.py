"""Block-quantised inputs of the Graph API: on the CPU as in the reference, from bytes, planes and floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import pytest

import luminal as lm
from luminal.errors import DataSizeError, GraphError, OptionError, ShapeError
from luminal.quantised import FORMATS
from luminal.quantised_encode import quantise

Array = np.ndarray[Any, Any]
Build = Callable[[Any, lm.Tensor], lm.Tensor]
COLUMNS, ROWS = 256, 24


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run(format: Any, build: Build, x: Array, data: Any, runtime: type[Any] = lm.CPURuntime) -> Array:
    cx = lm.Graph()
    w = cx.tensor((ROWS, COLUMNS), dtype=format, name="w")
    given = cx.tensor(x.shape, x.dtype, name="x")
    y = build(w, given).output()
    cx.build_search_space(runtime)
    rt = cx.search(runtime(), 1)
    rt.set_data(w, data)
    rt.set_data(given, x)
    rt.execute()
    return rt.get_numpy(y)


BUILDS: dict[str, tuple[Build, Array]] = {
    "matmul": (lambda w, x: x.matmul(w.T), normal(3, COLUMNS, seed=1)),
    "vector": (lambda w, x: w.linear(x), normal(COLUMNS, seed=1)),
    "q8": (lambda w, x: w.linear(x, "q8"), normal(2, 3, COLUMNS, seed=1)),
    "rows": (lambda w, x: w[x], np.array([[3, 0], [23, 3]])),
    "bf16": (lambda w, x: w.cast("bf16"), np.zeros(1, np.float32)),
}


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_cpu_computes_what_the_reference_does(format: str, build: str) -> None:
    function, x = BUILDS[build]
    if build == "q8" and not FORMATS[format].has_integers:
        return
    data = normal(ROWS, COLUMNS)
    found = run(format, function, x, data)
    expected = run(format, function, x, data, lm.ReferenceRuntime)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2e-5, atol=2e-4)


def test_stored_bytes_planes_and_floats_are_the_same_data() -> None:
    function, x = BUILDS["matmul"]
    data = normal(ROWS, COLUMNS)
    stored = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q4_0)
    found = [run("q4_0", function, x, given) for given in (stored.tobytes(), quantise(data, "q4_0"), data)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    decoded = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType.Q4_0)
    np.testing.assert_allclose(found[0], x @ decoded.T, rtol=1e-4, atol=1e-4)


def test_planes_stay_planes() -> None:
    cx = lm.Graph()
    w, x = cx.tensor((512, 1024), dtype="q8_0"), cx.tensor((1, 1024))
    x.matmul(w.T).output()
    cx.build_search_space(lm.CPURuntime)
    rt = cx.search(lm.CPURuntime(), 1)
    assert rt.stats["arena_bytes"] + rt.stats["packed_bytes"] < 1 << 16
    assert rt.stats["launches"] == 1


def test_any_number_of_rows() -> None:
    cx = lm.Graph()
    w, x = cx.tensor(("n", 64), dtype="q8_0"), cx.tensor((3, 64))
    y = x.matmul(w.T).output()
    cx.build_search_space(lm.CPURuntime)
    rt = cx.search(lm.CPURuntime(), 1)
    left = normal(3, 64)
    rt.set_data(x, left)
    for rows in (5, 9):
        data = normal(rows, 64, seed=rows)
        cx.set_dim("n", rows)
        rt.set_data(w, data)
        rt.execute(cx.dyn_map)
        np.testing.assert_allclose(rt.get_numpy(y), left @ data.T, rtol=0.05, atol=0.3)
    with pytest.raises(DataSizeError, match="has a symbolic size; give planes or an array"):
        rt.set_data(w, b"")


def test_mistakes() -> None:
    cx = lm.Graph()
    with pytest.raises(ShapeError, match=r"q8_0 has blocks of 32 along the last axis; \[4, 33\] has not"):
        cx.tensor((4, 33), dtype="q8_0")
    w, x = cx.tensor((4, 64), dtype="q8_0", name="w"), cx.tensor((2, 32), name="x")
    with pytest.raises(ShapeError, match=r"'x' f32 \(2, 32\) does not go with 'w' q8_0 \(4, 64\)"):
        w.linear(x)
    small = cx.tensor((4, 32), dtype="mxfp4", name="small")
    with pytest.raises(OptionError, match="'q8' goes with formats of integers"):
        small.linear(x, "q8")
    with pytest.raises(GraphError, match=r"already has an input named 'w\.quants'"):
        cx.tensor((4, 64), dtype="q8_0", name="w")
    small.linear(x).output()
    cx.build_search_space(lm.CPURuntime)
    rt = cx.search(lm.CPURuntime(), 1)
    with pytest.raises(DataSizeError, match=r"'small' mxfp4 \(4, 32\) was given data of shape \(4, 64\)"):
        rt.set_data(small, normal(4, 64))
    with pytest.raises(DataSizeError, match="has 136 bytes, not 3"):
        rt.set_data(cx.tensor((4, 32), dtype="q8_0"), b"abc")
    with pytest.raises(OptionError, match="has the planes elements, scales; given were elements"):
        rt.set_data(small, {"elements": np.zeros((4, 1, 16), np.uint8)})
