"""The benchmark's coordinator and workers on a suite of one small layer, and what they refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from luminal import bench
from luminal.cli import main

SUITE = """
import torch
from torch import nn
from luminal.bench import Case

TOLERANCE = 1e-5
CASES = [Case(f"rows {rows}", dynamic, "f32", {"rows": rows}) for dynamic in (True, False) for rows in (4, 6)]
QUICK_CASES = CASES[1:3]

def model():
    torch.manual_seed(0)
    return FIRST(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval())

def inputs(sizes):
    return (torch.randn(sizes["rows"], 8, generator=torch.Generator().manual_seed(1)),)

def gflop(sizes):
    return 2e-9 * sizes["rows"] * (8 * 16 + 16 * 4)

"""
NOISY = """
class FIRST(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x) + torch.compiler.is_compiling()
"""


def write_suite(folder: Path, first: str = "FIRST = lambda module: module\n") -> Path:
    file = folder / "toy.py"
    file.write_text(SUITE + first)
    return file


def test_rows_of_the_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "toy.json"
    suite = write_suite(tmp_path)
    arguments = ["bench", "--suite", str(suite), "--json", str(report), "--threads", "1", "--peers", "eager"]
    assert main([*arguments, "--quick", "--rounds", "2"]) == 0
    content = json.loads(report.read_text())
    rows = content["rows"]
    assert [(row["case"], row["dynamic"]) for row in rows] == [
        ("rows 6, dynamic", True),
        ("rows 4, static", False),
    ]
    for row in rows:
        assert row["suite"] == "toy" and row["dtype"] == "f32" and row["threads"] == 1
        assert row["luminal_ms"] > 0 and row["peers"].keys() == {"eager"} and row["peers"]["eager"] > 0
        assert row["first_call_seconds"]["luminal"] > 0
        assert row["error_f64"]["luminal"] < 1e-5
        assert row["gflop"] == pytest.approx(2e-9 * int(row["case"][5]) * 192) and row["peak_gflops"] > 1
    assert content["summary"]["geometric_mean"] > 0
    assert content["machine"]["versions"]["torch"]
    assert "Geometric mean against the best peer" in capsys.readouterr().out


def test_a_wrong_result_stops_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = write_suite(tmp_path, NOISY)
    arguments = ["bench", "--suite", str(suite), "--threads", "1", "--peers", "eager", "--quick"]
    assert main(arguments) == 1
    assert "luminal differs from eager by 1.00e+00 on rows 6" in capsys.readouterr().err


def test_a_worker_that_dies_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = write_suite(tmp_path, "def FIRST(module): raise RuntimeError('no weights here')\n")
    assert main(["bench", "--suite", str(suite), "--threads", "1", "--peers", "eager"]) == 1
    assert "no weights here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "nonesuch"], "no suite 'nonesuch'"),
        (["--peers", "tinygrad"], "unknown peer 'tinygrad'; known: eager, inductor"),
        (["--only", "batch 7"], "no case of encoder contains 'batch 7'"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_the_encoder_suite_has_every_case() -> None:
    suite = bench.load_suite(bench.suite_file("encoder"))
    found = {(case.sizes["batch"], case.sizes["length"], case.dynamic) for case in suite.CASES}
    wanted = {
        (batch, length, dynamic) for batch in (1, 8, 32) for length in (16, 128) for dynamic in (False, True)
    }
    assert found == wanted and len(suite.CASES) == len(wanted)
    token_ids, mask = suite.inputs({"batch": 8, "length": 16})
    assert token_ids.shape == mask.shape == (8, 16)
    assert bool(mask[0].all()) and int(mask.sum(1).min()) >= 8
    assert suite.gflop({"batch": 8, "length": 128}) == pytest.approx(22.95, abs=0.01)


def test_largest_difference(tmp_path: Path) -> None:
    def save(name: str, values: list[float]) -> Path:
        np.save(tmp_path / name, np.array(values))
        return tmp_path / name

    plain = save("plain.npy", [1.0, 2.0])
    assert bench.largest_difference(save("near.npy", [1.0, 2.5]), plain) == 0.5
    assert bench.largest_difference(save("nan.npy", [1.0, math.nan]), plain) == math.inf
    with pytest.raises(bench.BenchmarkError, match="has shape"):
        bench.largest_difference(save("short.npy", [1.0]), plain)


def test_summary() -> None:
    rows = [
        {
            "case": "a",
            "threads": 1,
            "dynamic": True,
            "luminal_ms": 1.0,
            "peers": {"eager": 4.0, "inductor": 9.0},
            "gflop": 0.05,
            "peak_gflops": 100.0,
        },
        {
            "case": "b",
            "threads": 2,
            "dynamic": True,
            "luminal_ms": 2.0,
            "peers": {"eager": 1.0, "inductor": 9.0},
            "gflop": 0.1,
            "peak_gflops": 100.0,
        },
    ]
    totals = bench.summary(rows)
    assert totals["geometric_mean"] == round(math.sqrt(2), 3)
    assert totals["by_setting"] == {"1 threads": 4.0, "2 threads": 0.5, "dynamic": round(math.sqrt(2), 3)}
    assert totals["at_peak"] == 2.828  # 0.5 of 1 ms and 1 of 2 ms are arithmetic
    assert totals["slower"] == ["b, 2 threads: 0.50"]
