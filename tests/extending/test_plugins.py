"""A dialect and a backend from outside the package, found through their entry points alone, as docs/extending.md says.

The package lies in the folder `plugin` beside this file; having that folder on the path makes it installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.dialects.hlo.table import OPERATIONS, TABLE
from luminal.errors import DTypeError, OptionError, ShapeError, UnsupportedTargetError
from luminal.graph import Graph
from luminal.plugins import PluginError, backend_names, find_backend, plugin_dialects
from luminal.runtimes.plugin import PluginRuntime
from luminal.runtimes.reference import ReferenceRuntime

PLUGIN = Path(__file__).with_name("plugin")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed, and its dialect loaded; all is undone afterwards."""
    monkeypatch.syspath_prepend(PLUGIN)
    plugin_dialects()
    yield
    for name in [name for name in TABLE if "." in name]:
        del TABLE[name], OPERATIONS[name]
    for name in [name for name in sys.modules if name.startswith("luminal_extras")]:
        del sys.modules[name]


def write_plugin(folder: Path, entry_points: str, code: str = "") -> None:
    information = folder / "broken-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entry_points)
    (folder / "broken_plugin.py").write_text(code)


# ---- the dialect -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("level", ["hlo", "primitive"])
def test_operation_of_the_dialect_in_a_graph(level: str) -> None:
    cx = Graph()
    n = lm.dim("n", min=8)
    x = cx.tensor((2, n), name="x")
    frames = cx.emit("wave.hann_frames", (x,), {"size": 8, "step": 4})[0]
    assert str(frames.shape[1]) == "n // 4 - 1"
    energy = frames.pow(2).sum(dim=2).output()
    cx.build_search_space(ReferenceRuntime)
    rt = cx.search(ReferenceRuntime(level), 1)
    for length in (8, 30):
        data = torch.randn(2, length, generator=torch.Generator().manual_seed(0))
        cx.set_dim("n", length)
        rt.set_data(x, data)
        rt.execute(cx.dyn_map)
        expected = (data.unfold(1, 8, 4) * torch.hann_window(8)).pow(2).sum(2)
        np.testing.assert_allclose(rt.get_numpy(energy), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("plugin")
def test_operation_checks_its_operands() -> None:
    cx = Graph()
    with pytest.raises(DTypeError, match=r"wave.hann_frames.*frames are of floats, not i64"):
        cx.emit("wave.hann_frames", (cx.tensor((16,), lm.i64),), {"size": 8, "step": 4})
    with pytest.raises(ShapeError, match="frames of 8 do not fit"):
        cx.emit("wave.hann_frames", (cx.tensor((7,)),), {"size": 8, "step": 4})
    with pytest.raises(OptionError, match="size and step must be from 1 on"):
        cx.emit("wave.hann_frames", (cx.tensor((7,)),), {"size": 0, "step": 4})


def test_text_of_the_dialect_through_luminal_opt() -> None:
    text = """
        luminal.graph @main [n in 8 to inf] (%x: !luminal.tensor<[n], f32>)
            -> (!luminal.tensor<[n floordiv 4 - 1, 8], f32>) {
          %0 = wave.hann_frames %x {size = 8, step = 4}
            : !luminal.tensor<[n], f32> -> !luminal.tensor<[n floordiv 4 - 1, 8], f32>
          luminal.return %0 : !luminal.tensor<[n floordiv 4 - 1, 8], f32>
        }
    """
    command = [sys.executable, "-m", "luminal.opt_main", "--print-ir-after-all", "--passes", "lower-hlo"]
    environment = {**os.environ, "PYTHONPATH": str(PLUGIN)}
    result = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert "primitive.window %x {axis = 0, size = 8, step = 4}" in result.stdout
    assert "wave." not in result.stdout
    without = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(command, input=text, capture_output=True, text=True, env=without, check=False)
    assert result.returncode == 1 and "wave.hann_frames" in result.stderr


@pytest.mark.usefixtures("plugin")
def test_operation_of_torch_that_lowers_to_the_dialect() -> None:
    from luminal_extras.torch_op import hann_frames

    def energy(x: torch.Tensor) -> torch.Tensor:
        return hann_frames(x.sin(), 8, 4).square().sum(-1)

    compiled = torch.compile(energy, backend="luminal", dynamic=True, options={"strict": True})
    for length in (8, 30):
        x = torch.randn(3, length)
        torch.testing.assert_close(compiled(x), energy(x))


# ---- the backend -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plugin")
def test_backend_runs_a_graph_of_symbolic_sizes() -> None:
    assert "loops" in backend_names()
    cx = Graph()
    s = lm.dim("s", min=1, max=64)
    x, w = cx.tensor((2, s, 6), name="x"), cx.tensor((6, 4), name="w")
    scores = (x @ w).softmax(dim=1)
    result = scores.layer_norm((4,)).gelu().transpose(1, 2).flip(0)[:, ::2].output()
    cx.build_search_space(PluginRuntime)
    rt = cx.search(PluginRuntime("loops"), 1)
    weights = torch.randn(6, 4)
    for length in (1, 5):
        data = torch.randn(2, length, 6)
        cx.set_dim("s", length)
        rt.set_data(x, data)
        rt.set_data(w, weights)
        rt.execute(cx.dyn_map)
        normal = torch.nn.functional.layer_norm((data @ weights).softmax(1), (4,))
        expected = torch.nn.functional.gelu(normal).transpose(1, 2).flip(0)[:, ::2]
        np.testing.assert_allclose(rt.get_numpy(result), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("plugin")
def test_backend_runs_a_model_of_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).eval()
    compiled = torch.compile(model, backend="luminal", dynamic=True, options={"target": "loops"})
    with torch.no_grad():
        for rows in (2, 7):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.usefixtures("plugin")
def test_backend_writes_loops() -> None:
    cx = Graph()
    x = cx.tensor(("n", 3), name="x")
    (x + 1.5).sum(dim=1).output()
    cx.build_search_space(PluginRuntime)
    rt = cx.search(PluginRuntime("loops"), 1)
    text = rt.executable.text
    assert text.startswith("def main(dims, value_0):\n    n = dims['n']\n")
    assert "        for axis_1 in range(3):\n" in text
    assert "[axis_0] + value_" in text
    assert rt.stats["lines"] == text.count("\n")


@pytest.mark.usefixtures("plugin")
def test_backend_says_what_it_lacks() -> None:
    cx = Graph()
    cx.tensor((4,)).cumsum(dim=0).output()
    cx.build_search_space(PluginRuntime)
    with pytest.raises(UnsupportedTargetError, match=r"the target 'loops' has no primitive\.scan"):
        cx.search(PluginRuntime("loops"), 1)


# ---- mistakes ----------------------------------------------------------------------------------------------------


def test_unknown_target_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGIN)
    with pytest.raises(
        UnsupportedTargetError, match="target 'abacus' is not known; targets are 'cpu', 'loops'"
    ):
        find_backend("abacus", ("cpu",))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("missing_module:backend", "cannot be loaded: No module named 'missing_module'"),
        ("broken_plugin:nothing", "cannot be loaded"),
        ("broken_plugin:number", r"must have compile\(module, options\), but 7 has none"),
    ],
)
def test_backend_that_is_none(
    value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path, f"[luminal.backends]\nbroken = {value}\n", "number = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=message):
        find_backend("broken")
    sys.modules.pop("broken_plugin", None)


def test_dialect_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(tmp_path, "[luminal.dialects]\nbroken = broken_plugin:number\n", "number = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"plug-in 'broken' .* must be an xDSL Dialect"):
        plugin_dialects()
    sys.modules.pop("broken_plugin", None)
