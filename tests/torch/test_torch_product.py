"""What `luminal build` leaves, loaded: for this processor in a process of its own, for GPUs on a double."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("triton", reason="Triton is not installed")

import luminal as lm
from luminal.cli import main
from luminal.errors import (
    DTypeError,
    IndexOutOfRangeError,
    LuminalError,
    NoDeviceError,
    OptionError,
    ProductError,
    ShapeError,
)
from tests.emit_triton.double import Double, use_double

MODEL = """import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(10, 8)
        self.linear = torch.nn.Linear(8, 16)
        self.register_buffer("count", torch.zeros((2, 3)).t())
    def forward(self, tokens, *, scale):
        self.count.add_(1)
        hidden = self.linear(self.embedding(tokens))
        return {"out": (hidden * scale["by"]).relu(), "twice": (tokens, hidden.transpose(0, 1) * 2)}

class Flat(Model):
    def forward(self, tokens, by):
        return super().forward(tokens, scale={"by": by})

model = Flat()
example_inputs = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.ones(3, 16)
dynamic_shapes = {0: torch.export.Dim("rows", min=1, max=64)}, None
"""
GRAPH = "import luminal as lm\\ngraph = lm.Graph()\\nx = graph.tensor(('s', 8), name='x')\\nv, p = x.sort(dim=1)\\n"
GRAPH = GRAPH.replace("\\n", "\n") + "(v + 1.0).output()\n"
LOAD = """import sys, torch, luminal as lm
torch.set_num_threads(1)
product = lm.load(sys.argv[1])
tokens, by = torch.tensor([[1, 2, 3], [4, 5, 9], [0, 0, 0]]), torch.full((3, 16), 2.0)
found = product(tokens, by)
product(tokens, by)
torch.save({"out": found["out"], "other": found["twice"][1], "count": product._arguments[-1]}, sys.argv[2])
unwanted = ("triton", "egglog", "luminal.search.chooser", "luminal.emit_cpu.emit")
loaded = [name for name in sys.modules if name.startswith(unwanted)]
assert not loaded, loaded
assert not lm.stats()["compilations"]
"""


def build(folder: Path, target: str, text: str = MODEL) -> Path:
    (folder / "model.py").write_text(text)
    out = folder / f"product of {target}"
    assert main(["build", str(folder / "model.py"), "--target", target, "--out", str(out)]) == 0
    return out


def model_of(folder: Path) -> Any:
    names: dict[str, Any] = {}
    exec((folder / "model.py").read_text(), names)
    return names["model"]


def test_a_product_for_this_processor_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    out, results = build(tmp_path, "cpu"), tmp_path / "results"
    (tmp_path / "load.py").write_text(LOAD)
    command = [sys.executable, str(tmp_path / "load.py"), str(out), str(results)]
    subprocess.run(command, check=True, timeout=200)
    found, model = torch.load(results), model_of(tmp_path)
    tokens, by = torch.tensor([[1, 2, 3], [4, 5, 9], [0, 0, 0]]), torch.full((3, 16), 2.0)
    with torch.no_grad():
        wanted = model(tokens, by)
        model(tokens, by)
    assert_close(found["out"], wanted["out"], rtol=1e-5, atol=1e-6)
    assert_close(found["other"], wanted["twice"][1], rtol=1e-5, atol=1e-6)
    assert found["other"].stride() == wanted["twice"][1].stride()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Double:
    found = Double()
    use_double(monkeypatch, found)
    return found


def test_a_product_for_a_gpu_runs_as_it_was_built(tmp_path: Path, device: Double) -> None:
    product, model = lm.load(build(tmp_path, "sm_90")), model_of(tmp_path)
    for rows in (2, 3, 2):
        tokens, by = torch.randint(0, 10, (rows, 3)), torch.randn(3, 16)
        with torch.no_grad():
            found, wanted = product(tokens, by), model(tokens, by)
        assert_close(found["out"], wanted["out"], rtol=1e-5, atol=1e-6)
        assert found["twice"][0] is tokens
        assert_close(found["twice"][1], wanted["twice"][1], rtol=1e-5, atol=1e-6)
        (count,) = [value for value in product._arguments if value is not None]
        assert torch.equal(count, model.count) and count.stride() == (1, 3)
    with pytest.raises(IndexOutOfRangeError):
        product(torch.full((2, 3), 10), by)


def test_machine_code_of_the_compiler_is_that_of_its_text(tmp_path: Path, monkeypatch: Any) -> None:
    out = build(tmp_path, "sm_90")
    device = Double()
    device.know_product(out)
    use_double(monkeypatch, device)
    tokens, by = torch.tensor([[1, 2, 9], [3, 0, 1]]), torch.randn(3, 16)
    with torch.no_grad():
        wanted = model_of(tmp_path)(tokens, by)
    assert_close(lm.load(out)(tokens, by)["out"], wanted["out"], rtol=1e-5, atol=1e-6)
    use_double(monkeypatch, Double("sm_80"))
    with pytest.raises(NoDeviceError, match="sm_90"):
        lm.load(out)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_graph_gives_a_tuple(target: str, tmp_path: Path, device: Double) -> None:
    product, x = lm.load(build(tmp_path, target, GRAPH)), torch.randn(3, 8)
    (found,) = product(x)
    assert_close(found, x.sort(1).values + 1)


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return changed


DAMAGES: list[tuple[Callable[[Path], object], type[LuminalError], str]] = [
    (lambda folder: (folder / "manifest.json").unlink(), ProductError, "has no manifest.json"),
    (lambda folder: (folder / "manifest.json").write_text("{"), ProductError, "manifest.json is damaged"),
    (edit(lambda m: m.pop("files")), ProductError, "is damaged, or of a product that was built before"),
    (edit(lambda m: m.update(format=1)), ProductError, "has format 1, this version of luminal reads 3"),
    (edit(lambda m: m.pop("programs")), ProductError, "is damaged: KeyError"),
    (lambda folder: (folder / "weights.bin").unlink(), ProductError, "lacks weights.bin"),
    (lambda folder: (folder / "weights.bin").write_bytes(b"1"), ProductError, "checksum differs"),
    (edit(lambda m: m["target"].update(processor="another")), NoDeviceError, "built for another"),
]


def test_damages_and_mistakes(tmp_path: Path) -> None:
    out = build(tmp_path, "cpu")
    whole = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for damage, error, message in DAMAGES:
        damage(out)
        with pytest.raises(error, match=message):
            lm.load(out)
        for path, content in whole.items():
            path.write_bytes(content)
    product = lm.load(out)
    tokens, by = torch.tensor([[1, 2, 3]]), torch.ones(3, 16)
    for arguments, error in (
        ((tokens,), OptionError),
        ((tokens, 1.0), OptionError),
        ((tokens.int(), by), DTypeError),
        ((tokens[0], by), ShapeError),
        ((tokens, by[:2]), ShapeError),
    ):
        with pytest.raises(error, match="argument"):
            product(*arguments)
    with pytest.raises(ProductError, match="no product"):
        lm.load(tmp_path)
