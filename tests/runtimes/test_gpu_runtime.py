"""The Graph API on a GPU's double: data that stays on the device, results that are read when they are wanted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

import luminal as lm
from luminal.errors import GraphError, NoDeviceError, OutputError, UnsupportedTargetError
from tests.emit_triton.double import Double, use_double


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Double:
    found = Double()
    use_double(monkeypatch, found)
    return found


def test_data_is_sent_once_and_results_are_read_when_wanted(device: Double) -> None:
    cx = lm.Graph()
    s = lm.dim("s", min=1, max=64)
    x, w = cx.tensor((s, 8), name="x"), cx.tensor((8, 16), name="w")
    product, count = x.matmul(w).output(), (x.sum(dim=1) * 2.0).output()
    cx.build_search_space(lm.GPURuntime, constants=(1,), cache=False)
    rt = cx.search(lm.CUDARuntime("sm_90"), 1)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((8, 16)).astype(np.float32)
    rt.set_data(w, weights)
    with pytest.raises(OutputError, match="call execute"):
        rt.get_f32(product)
    for rows in (3, 5):
        given = rng.standard_normal((rows, 8)).astype(np.float32)
        rt.set_data(x, torch.from_numpy(given))
        cx.set_dim("s", rows)
        rt.execute(cx.dyn_map)
        np.testing.assert_allclose(rt.get_numpy(product), given @ weights, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rt.get_f32(count), 2 * given.sum(1), rtol=1e-5, atol=1e-5)
        assert rt.get_numpy(count) is rt.get_numpy(count)
    assert device.uploads == 3
    rt.set_data(w, 2 * weights)
    rt.execute(cx.dyn_map)
    np.testing.assert_allclose(rt.get_numpy(product), given @ (2 * weights), rtol=1e-5, atol=1e-5)
    assert device.uploads == 4 and rt.stats["kernels"] >= 1


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoDeviceError, match=r"GPURuntime\('sm_90'\)"):
        lm.GPURuntime()
    with pytest.raises(UnsupportedTargetError, match="ROCmRuntime serves hip; sm_90 is a target of cuda"):
        lm.ROCmRuntime("sm_90")
    with pytest.raises(UnsupportedTargetError, match="'sm_10' is not known"):
        lm.GPURuntime("sm_10")
    cx = lm.Graph()
    x = cx.tensor((4,), name="x")
    x.exp().output()
    cx.build_search_space(lm.GPURuntime, cache=False)
    use_double(monkeypatch, None)
    rt = cx.search(lm.GPURuntime("gfx942"), 4)
    with pytest.raises(GraphError, match="no input"):
        rt.set_data(cx.outputs[0], [1.0])
    rt.set_data(x, [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(NoDeviceError):
        rt.execute({})
