"""luminal run, explain, search and cache on a small graph."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from luminal import dump
from luminal.cli import main
from luminal.commands.graph_file import read_graph
from luminal.compiler import compile_module
from luminal.errors import LuminalError
from luminal.search.config import SearchConfig

GRAPH = """luminal.graph @main [s in 1 to 64] (%x : !luminal.tensor<[s, 8], f32>, %n : !luminal.tensor<[s], i64>)
    -> (!luminal.tensor<[s, 8], f32>, !luminal.tensor<[s], i64>) {
  %0 = hlo.softmax %x {axis = 1} : !luminal.tensor<[s, 8], f32>
  %1 = hlo.add %n, %n : !luminal.tensor<[s], i64>
  luminal.return %0, %1 : !luminal.tensor<[s, 8], f32>, !luminal.tensor<[s], i64>
}
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "graph.mlir"
    path.write_text(GRAPH)
    return str(path)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_run(target: str, graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "n.npy", np.array([1, 2, 3]))
    given = ["--dim", "s=3", "--input", f"n={tmp_path / 'n.npy'}", "--output", str(tmp_path / "out.npz")]
    assert main(["run", graph, "--target", target, *given]) == 0
    printed = capsys.readouterr().out
    assert "0: f32[s, 8] [3, 8]" in printed and "[2 4 6]" in printed
    results = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(results["0"].sum(1), 1, rtol=1e-6)
    assert results["1"].tolist() == [2, 4, 6]


def test_run_draws_the_same_inputs_from_a_seed(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["run", graph, "--target", "reference", "--dim", "s=2", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_explain(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", graph, "--dim", "s=16"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "==== hlo",
        "hlo.softmax",
        "primitive.exp2",
        "==== schedules",
        "kernel.function",
        "define",
        "step 0",
    ):
        assert text in printed
    assert main(["explain", graph, "--level", "plan"]) == 0
    assert "hlo.softmax" not in capsys.readouterr().out
    assert main(["explain", graph, "--dump", str(tmp_path / "levels")]) == 0
    assert "hlo.softmax" in (tmp_path / "levels" / "0-hlo.mlir").read_text()


MODEL = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        x = torch.softmax(x, -1)
        torch._dynamo.graph_break()
        return x.sum(0)

model, example_inputs = Model(), (torch.ones(4, 8),)
"""
GRAPH_FILE = """import luminal as lm

graph = lm.Graph()
graph.tensor((4, 8), name="x").exp().output()
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.bench.peak.peak_gflops", lambda threads: 100.0 * threads)
    monkeypatch.setattr("luminal.bench.peak.memory_gbytes", lambda threads: 10.0 * threads)


def test_explain_a_model_of_two_graphs(
    graph: str, machine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    config, page = tmp_path / "config.json", tmp_path / "page.html"
    given = ["explain", str(tmp_path / "model.py"), "--config", str(config)]
    assert main([*given, "--level", "search"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("==== search") == 2 and "exp(" in printed and "sum_r0" in printed
    found = SearchConfig.parse(config.read_text())
    assert len(found.graphs) == 2 and len(found.regions) == 2
    assert main([*given, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "<h2>Graph 2" in page.read_text()
    assert main([*given, "--dump", str(tmp_path / "levels")]) == 0
    assert "sum_r0" in (tmp_path / "levels" / "1" / "7-search.txt").read_text()


def test_explain_a_graph_and_an_exported_program(
    graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "graph.py").write_text(GRAPH_FILE)
    assert main(["explain", str(tmp_path / "graph.py"), "--level", "search"]) == 0
    assert "out0[i0] = exp(x[i0])" in capsys.readouterr().out
    program = torch.export.export(torch.nn.Softmax(-1), (torch.ones(4, 8),))
    torch.export.save(program, tmp_path / "model.pt2")
    assert main(["explain", str(tmp_path / "model.pt2"), "--level", "search"]) == 0
    assert "exp(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.py", "model = 1", "a.py defines no model; expected a graph"),
        ("a.py", "model = len", "a.py defines no model; expected a graph"),
        ("a.py", "import nothing_of_that_name", "a.py fails: ModuleNotFoundError: No module named"),
        ("a.py", "raise SystemExit(3)", "a.py fails: SystemExit: 3"),
        ("a.py", "import luminal\nluminal.Graph().tensor(-1)", "size"),
        ("a.pt2", "no archive", "a.pt2 is no program that this version of torch.export has saved"),
        ("a.pt2", "", "a.pt2 is no program that this version of torch.export has saved"),
        ("a.txt", "nonsense", "a.txt:1"),
        ("none.py", None, "none.py: No such file"),
        ("none.mlir", None, "none.mlir: No such file"),
    ],
)
def test_files_that_cannot_be_explained(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(["explain", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("luminal explain: ") and message in error


def test_mistakes_of_explain(
    graph: str, machine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "none" / "file")
    (tmp_path / "graph.py").write_text(GRAPH_FILE)
    for arguments, message in (
        (["explain", str(tmp_path / "graph.py"), "--dim", "s=3"], "--dim is for graphs of IR text"),
        (["explain", graph, "--html", nowhere], "No such file"),
        (["explain", graph, "--config", nowhere], "No such file"),
        (["explain", graph, "--dump", str(tmp_path / "graph.py")], "graph.py: File exists"),
        (["explain", graph, "--dump", str(tmp_path / "graph.py" / "dump")], "dump: Not a directory"),
        (["search", graph, "--candidates", "1", "--config", nowhere], "No such file"),
    ):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err


FAILING = """
import torch
model = torch.nn.Linear(8, 4)
example_inputs = (torch.ones(2, 3),)
"""
TRACED = """
import torch
def model(x):
    torch._dynamo.graph_break()
    raise ValueError("two\\nlines")
example_inputs = (torch.ones(2, 3),)
"""
UNSERVED = """
import torch
def model(x):
    return x * 2
example_inputs = (torch.ones(2, 3, device="meta"),)
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAILING, "the model fails on its example_inputs: RuntimeError: .*mat1 and mat2"),
        (
            FAILING.replace("(2, 3),", "(2, 8)), (1"),
            "the model fails on its example_inputs: TypeError: .*argument",
        ),
        (TRACED, "the model fails on its example_inputs: ValueError: two lines"),
        (UNSERVED, "the inputs are on meta; Luminal serves cpu and cuda"),
    ],
)
def test_models_that_fail_on_their_own_inputs(
    text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(text)
    assert main(["explain", str(tmp_path / "model.py")]) == 1
    error = capfd.readouterr().err
    assert re.fullmatch(rf"luminal explain: .*{message}.*\n", error)


def test_a_mistake_of_the_compiler_is_not_blamed_on_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise ZeroDivisionError("of the compiler")

    monkeypatch.setattr("luminal.torch.backend.import_graph", broken)
    (tmp_path / "model.py").write_text(FAILING.replace("2, 3", "2, 8"))
    with pytest.raises(Exception, match="of the compiler") as caught:
        main(["explain", str(tmp_path / "model.py")])
    assert not isinstance(caught.value, LuminalError)


def test_archives_that_are_no_exported_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pt2"
    torch.save({"a": torch.ones(2)}, path)
    whole = path.read_bytes()
    for content in (whole, whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert main(["explain", str(path)]) == 1
        error = capfd.readouterr().err
        assert error.startswith(f"luminal explain: {path} is no program") and error.count("\n") == 1


def test_search_writes_a_config_that_explain_follows(
    graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    assert main(["search", graph, "--candidates", "2", "--config", str(path)]) == 0
    assert '"luminal"' not in capsys.readouterr().out
    module = read_graph(Path(graph))
    with dump.collect() as found:
        compile_module(module, "cpu", {"config": path, "cache": False})
    (report,) = found[0].reports
    assert {kernel.source for kernel in report.kernels} == {"config"}
    assert found[0]["config"] == path.read_text()


def test_search_and_cache(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", graph, "--dim", "s=16", "--candidates", "2"]) == 0
    printed = capsys.readouterr().out
    assert "parallel" in printed and "2 kernels, 2 launches" in printed and '"luminal": 1' in printed
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"objects: [1-9].*\nreports: 0.*\nschedules: [1-9]", shown)
    assert re.search(r"cpu .* this +2 +0 +[1-9]", shown)
    assert main(["cache", "clear"]) == 0
    capsys.readouterr()
    assert main(["cache", "show"]) == 0
    empty = "".join(f"{part}: 0 files, 0.0 MB\n" for part in ("objects", "reports", "schedules"))
    assert empty in capsys.readouterr().out


def test_schedules_travel_in_a_file(
    graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "found.jsonl")
    assert main(["search", graph, "--dim", "s=16", "--candidates", "2"]) == 0
    assert main(["cache", "export", file]) == 0
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "another"))
    assert main(["cache", "import", file]) == 0
    assert f"2 schedules taken from {file}" in capsys.readouterr().out
    assert main(["cache"]) == 0
    assert re.search(r"cpu .* this +0 +2 +0", capsys.readouterr().out)
    text = Path(file).read_text()
    Path(file).write_text(text[:-20])
    assert main(["cache", "import", file]) == 1
    assert f"luminal cache: {file} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "dim s in 1 to 64 has no size; give --dim s=SIZE"),
        (["--dim", "s"], "'s' is not NAME=VALUE"),
        (["--dim", "s=x"], "expected a whole number"),
        (["--dim", "s=65"], "s in 1 to 64 was given 65"),
        (["--dim", "t=1"], "no dim 't'; its dims are s"),
        (["--dim", "s=3", "--input", "y=y.npy"], "no input 'y'; its inputs are x, n"),
        (["--dim", "s=3", "--input", "x=none.npy"], "input 'x': none.npy"),
        (["--dim", "s=3", "--input", "x=bad.npy"], "input 'x' is f32[s, 8], but bad.npy has dtype float64"),
        (["--dim", "s=3", "--input", "n=short.npy"], "input 'n' has shape [3], but short.npy has [2]"),
        (["--dim", "s=3", "--target", "abacus"], "'abacus'"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    graph: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("bad.npy", np.zeros((3, 8)))
    np.save("short.npy", np.zeros(2, np.int64))
    assert main(["run", graph, *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("luminal run: ") and message in error


def test_files_that_are_no_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph.mlir"
    for text, message in (
        ("nonsense", "graph.mlir:1"),
        ("builtin.module {}", "has 0 graphs, expected one"),
        (GRAPH + GRAPH.replace("main", "other"), "has 2 graphs"),
        (GRAPH.replace("axis = 1", "axis = 7"), "hlo.softmax: axis 7"),
    ):
        path.write_text(text)
        assert main(["run", str(path)]) == 1
        assert message in capsys.readouterr().err
    assert main(["run", str(tmp_path / "none.mlir")]) == 1
    assert "none.mlir: No such file" in capsys.readouterr().err
