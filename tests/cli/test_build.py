"""luminal build: what it writes, and that a mistake writes nothing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from luminal.cli import main
from luminal.plan.plan import KernelStep, plan_from_json

pytest.importorskip("triton", reason="Triton is not installed")

GRAPH = """luminal.graph @main [s in 1 to 64] (%x : !luminal.tensor<[s, 8], f32>, %n : !luminal.tensor<[s], i64>)
    -> (!luminal.tensor<[s, 8], f32>, !luminal.tensor<[s], i64>) {
  %0 = hlo.softmax %x {axis = 1} : !luminal.tensor<[s, 8], f32>
  %1 = hlo.add %n, %n : !luminal.tensor<[s], i64>
  luminal.return %0, %1 : !luminal.tensor<[s, 8], f32>, !luminal.tensor<[s], i64>
}
"""
MODEL = """import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)
        self.register_buffer("count", torch.zeros(()))
    def forward(self, x):
        self.count.add_(1)
        return self.linear(x.transpose(0, 1)).relu()

model, example_inputs = Model(), (torch.ones(8, 4),)
dynamic_shapes = ({1: torch.export.Dim("rows", min=1, max=64)},)
"""
FUNCTION = "import torch\nmodel, example_inputs = torch.exp, (torch.ones(4),)\n"
BUILT = "import luminal as lm\ngraph = lm.Graph()\ngraph.tensor((4, 8), name='x').exp().output()\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "cache"))


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("target", "endings"), [("sm_90", ("cubin", "ptx")), ("gfx942", ("hsaco", "amdgcn"))]
)
def test_a_product_is_whole(
    target: str, endings: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "product"
    graph = write(tmp_path, "graph.mlir", GRAPH)
    assert main(["build", graph, "--target", target, "--out", str(out), "--dim", "s=40"]) == 0
    assert capsys.readouterr().out == f"{out}: 2 functions in 2 kernels for {target}\n"
    manifest = read(out)
    assert manifest["target"]["architecture"] == target and manifest["triton"]
    assert manifest["dims"] == {"s": {"min": 1, "max": 64}}
    assert [each["name"] for each in manifest["inputs"]] == ["x", "n"]
    assert manifest["inputs"][0]["shape"] == ["s", "8"] and manifest["inputs"][1]["dtype"] == "i64"
    plan = plan_from_json((out / "plan.json").read_text())
    assert str(plan) == (out / "plan.txt").read_text()
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    assert [each["function"] for each in manifest["steps"]] == [step.kernel for step in steps]
    for function in manifest["functions"].values():
        (launch,) = function["launches"]
        assert launch["grid"][0] and launch["threads"] % manifest["target"]["warp"] == 0
        kinds = [parameter["kind"] for parameter in launch["parameters"]]
        assert kinds == ["argument", "output", "size"]
        assert [each["bytes"] for each in launch["trailing"]] == [0, 0]
        assert launch["resources"]["registers"] > 0 and launch["resources"]["spills"] == 0
        code = out / launch["file"]
        assert code.suffix == f".{endings[0]}" and code.read_bytes()[:4] == b"\x7fELF"
        assert launch["symbol"] in code.with_suffix(f".{endings[1]}").read_text()
        assert f"def {launch['symbol']}(" in code.with_suffix(".py").read_text()
    assert len(list((out / "kernels").iterdir())) == 6
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == files - {"manifest.json"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "graph.mlir", "product"]


def test_parameters_have_their_names_and_updates_their_memory(tmp_path: Path) -> None:
    out = tmp_path / "product"
    out.mkdir()
    assert main(["build", write(tmp_path, "m.py", MODEL), "--target", "h100", "--out", str(out)]) == 0
    manifest = read(out)
    inputs = {each["name"]: each for each in manifest["inputs"]}
    assert inputs["linear.weight"]["kind"] == "parameter" and inputs["linear.weight"]["shape"] == ["16", "8"]
    assert inputs["x"]["kind"] == "input" and inputs["x"]["shape"][0] == "8"
    result, counted = manifest["results"]
    assert (counted["name"], counted["kind"]) == ("count", "update") and result["kind"] == "computed"
    (bounds,) = manifest["dims"].values()
    assert bounds["max"] == 64


@pytest.mark.parametrize("text", [FUNCTION, BUILT], ids=["function", "graph"])
def test_other_files(text: str, tmp_path: Path) -> None:
    out = tmp_path / "product"
    assert main(["build", write(tmp_path, "m.py", text), "--target", "sm_80", "--out", str(out)]) == 0
    (function,) = read(out)["functions"].values()
    assert "block" in function["schedule"]


def test_an_exported_program(tmp_path: Path) -> None:
    path, out = tmp_path / "model.pt2", tmp_path / "product"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),)), path)
    assert zipfile.is_zipfile(path)
    assert main(["build", str(path), "--target", "sm_90", "--out", str(out)]) == 0
    assert {each["name"] for each in read(out)["inputs"]} >= {"weight", "bias"}


LOST = """luminal.graph @main [s in 1 to 8] (%x : !luminal.tensor<[2 * s], f32>) -> (!luminal.tensor<[2 * s], f32>) {
  %0 = hlo.exp %x : !luminal.tensor<[2 * s], f32>
  luminal.return %0 : !luminal.tensor<[2 * s], f32>
}
"""
NOT_EXPORTED = """import torch
model, example_inputs = lambda x: x if x.sum() > 0 else -x, (torch.ones(4),)
"""


@pytest.mark.parametrize(
    ("name", "text", "changes", "message"),
    [
        ("graph.mlir", GRAPH, ["--target", "sm_70"], "'sm_70' is not known"),
        ("graph.mlir", GRAPH, ["--dim", "t=4"], "no dim 't'"),
        ("graph.mlir", GRAPH, ["--out", "missing/product"], "missing is no folder"),
        ("graph.mlir", "nothing", [], "nothing"),
        ("m.py", "model = 1", [], "defines no model"),
        ("m.py", "raise ValueError('no')", [], "fails: ValueError: no"),
        ("m.py", FUNCTION, ["--dim", "s=4"], "--dim is for graphs of IR text"),
        ("m.py", NOT_EXPORTED, [], "torch.export does not take the model"),
        ("m.pt2", "no archive", [], "is no program that this version of torch.export has saved"),
        ("absent", "", [], "No such file"),
        ("size.mlir", LOST, [], "dim s is the size of no input's axis"),
    ],
)
def test_a_mistake_writes_nothing(
    name: str,
    text: str,
    changes: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if text:
        write(tmp_path, name, text)
    assert main(["build", name, "--target", "sm_90", "--out", "product", *changes]) == 1
    said = capsys.readouterr()
    last = said.err[said.err.index("luminal build: ") :]  # torch says things of its own
    assert message in last and last.count("\n") < 8 and not said.out
    assert {path.name for path in tmp_path.iterdir()} <= {"cache", name}


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, out = write(tmp_path, "graph.mlir", GRAPH), tmp_path / "product"
    out.mkdir()
    (out / "mine").write_text("mine")
    assert main(["build", graph, "--target", "sm_90", "--out", str(out)]) == 1
    assert "is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["mine"]
    assert main(["build", graph, "--target", "sm_90", "--out", str(out / "mine")]) == 1


def test_what_cannot_be_written_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("luminal.plan.gpu_product.manifest", full)
    graph, out = write(tmp_path, "graph.mlir", GRAPH), tmp_path / "product"
    assert main(["build", graph, "--target", "sm_90", "--out", str(out)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "graph.mlir"]
