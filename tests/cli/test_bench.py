"""The benchmark's coordinator and workers on a suite of one small layer, with peers that are wrong or crash."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import to_markdown
from luminal.bench import rows as bench_rows
from luminal.bench.case import BenchmarkError, load_suite, suite_file
from luminal.bench.check import compare, error_of, rms_of
from luminal.bench.page import page
from luminal.bench.process import Process
from luminal.cli import main

SUITE = """
from functools import cache, partial
import torch
from torch import nn
from luminal.bench.case import Case, Program

@cache
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FIRST(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval().requires_grad_(False))

def build(tiny, rows):
    return Program(model(), (torch.randn(rows, 8),))

CASES = [
    Case(f"rows {rows}, {'dynamic' if dynamic else 'static'}", "f32", partial(build, rows=rows), dynamic, rows == 6)
    for dynamic in (True, False) for rows in (4, 6)
]
"""
PLAIN = "FIRST = lambda module: module\n"
NOISY = """
class FIRST(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x) + torch.compiler.is_compiling()
"""
UNBUILT = """
def unbuilt(tiny):
    raise RuntimeError('no weights here')

CASES.append(Case("rows 4, static, of no weights", "f32", unbuilt))
"""
PEER = """
import os, time
from luminal.bench.case import LeftOutError, Prepared
from luminal.bench.torch_program import in_torch
missing = lambda: {missing!r}
def prepare(program, case, threads):
    prepared = in_torch(program, program.module, program.module, lambda: "noted")
    {body}
    return prepared
"""
PEERS = {
    "wrong": "return Prepared(prepared.call, lambda values: [each + 1e-3 for each in prepared.results(values)])",
    "crashing": "if case.dynamic: print('last words', flush=True); os._exit(7)",
    "raising": "if case.dynamic: raise ValueError('no such \\x1b[31mkernel')",
    "late": "if case.dynamic: time.sleep(60)",
    "choosy": "if not case.dynamic: raise LeftOutError('only dynamic cases')",
    "absent": "",
}


@pytest.fixture
def peers(tmp_path: Path) -> dict[str, str]:
    """Files of peers by name."""
    for name, body in PEERS.items():
        why = "the package nonesuch is not installed" if name == "absent" else ""
        (tmp_path / f"{name}.py").write_text(PEER.format(missing=why, body=body))
    return {name: str(tmp_path / f"{name}.py") for name in PEERS}


def bench(folder: Path, *more: str, first: str = PLAIN) -> tuple[int, dict[str, Any]]:
    suite, report = folder / "toy.py", folder / "toy.json"
    suite.write_text(SUITE + first)
    given = ["--suite", str(suite), "--json", str(report), "--threads", "1", "--rounds", "2", *more]
    status = main(["bench", *given])
    return status, json.loads(report.read_text())


def test_rows_of_the_json_file_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, content = bench(tmp_path, "--peers", "eager", "--quick", "--html", str(tmp_path / "toy.html"))
    assert status == 0
    rows = content["rows"]
    assert [(row["case"], row["dynamic"]) for row in rows] == [
        ("rows 6, dynamic", True),
        ("rows 6, static", False),
    ]
    for row in rows:
        assert row["suite"] == "toy" and row["dtype"] == "f32" and row["threads"] == 1
        assert row["luminal_ms"] > 0 and row["peers"].keys() == {"eager"} and row["peers"]["eager"] > 0
        assert row["first_call_seconds"]["luminal"] > 0 and row["cpu_ms"]["luminal"] > 0
        assert row["error_f64"]["luminal"] < 1e-5 and not row["failed"] and not row["left_out"]
        assert 0 < row["rms_f64"]["luminal"] < row["error_f64"]["luminal"]
        assert row["gflop"] == pytest.approx(2e-9 * 6 * 192) and row["peak_gflops"] > 1
        # 6 rows of 8 and of 4, and the parameters
        assert row["mbytes"] == pytest.approx(4e-6 * (6 * 12 + 8 * 16 + 16 + 16 * 4 + 4))
        assert row["read_gbytes"] > 0.1 and len(row["load"]) == 2
    assert content["summary"]["geometric_mean"] > 0
    assert content["settings"]["rounds"] == 2
    assert content["machine"]["versions"]["torch"]
    assert "Geometric mean against the best peer" in capsys.readouterr().out
    html = (tmp_path / "toy.html").read_text()
    assert html.count("<svg") == 2 and "rows 6, dynamic" in html and "http" not in html
    assert "| rows 6, static | f32 | 1 |" in to_markdown.tables(content)


@pytest.mark.slow
def test_who_fails_or_declines_is_named_and_the_others_go_on(
    tmp_path: Path, peers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ",".join(peers.values())
    status, content = bench(tmp_path, "--peers", given, "--only", "rows 4*", "--limit", "12")
    assert status == 0
    dynamic, static = content["rows"]
    assert dynamic["peers"].keys() == {"eager", "choosy"} and dynamic["luminal_ms"]
    assert static["peers"].keys() == {"eager", "crashing", "raising", "late"} and static["luminal_ms"]
    failed = dynamic["failed"]
    assert failed.keys() == {"wrong", "crashing", "raising", "late"} and static["failed"].keys() == {"wrong"}
    assert failed["wrong"].startswith("wrong: it errs by")
    assert "status 7" in failed["crashing"] and "last words" in failed["crashing"]
    assert failed["raising"] == "ValueError: no such kernel" and failed["late"] == "took more than 12 s"
    assert static["notes"]["crashing"] == "noted"
    assert static["left_out"] == {"choosy": "only dynamic cases"}
    assert content["left_out"] == {"absent": "the package nonesuch is not installed"}
    said = capsys.readouterr().out
    assert "Left out: absent: the package nonesuch" in said and "wrong: wrong: it errs by" in said
    assert "wrong failed: wrong: it errs" in page(content)


def test_a_wrong_result_of_luminal_is_a_failure_and_a_case_that_nobody_can_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content = bench(tmp_path, "--peers", "eager", "--only", "rows 4, static", first=NOISY + UNBUILT)
    assert status == 1
    row, unbuilt = content["rows"]
    assert row["luminal_ms"] is None and row["peers"]["eager"] > 0
    assert "wrong: it errs by" in row["failed"]["luminal"]
    assert unbuilt["failed"] == dict.fromkeys(("eager", "luminal"), "RuntimeError: no weights here")
    failed = content["summary"]["failed"]
    assert len(failed) == 2 and failed[0].startswith("toy, rows 4, static, 1 threads: wrong")
    assert content["summary"]["geometric_mean"] is None
    assert "no weights here" in page(content)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "nonesuch"], "no suite 'nonesuch'"),
        (["--suite", "to_markdown"], "no suite 'to_markdown'"),
        (["--peers", "nonesuch"], "unknown peer 'nonesuch'; known: eager, inductor, inductor-max, jax"),
        (
            ["--suite", "rows,search"],
            "a suite of measurements runs alone and has no page; given: rows,search",
        ),
        (["--suite", "search", "--html", "page.html"], "runs alone and has no page"),
        (["--only", "batch 7"], "no case of encoder contains or matches 'batch 7'"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    process = Process("luminal.bench.worker", ["nonesuch.py", "1"], 1, tmp_path / "log")
    with pytest.raises(BenchmarkError, match=r"its process ended, status 1:(.|\n)*nonesuch.py"):
        process.ask({"do": "prepare"})
    assert not process.is_alive


def test_the_encoder_suite_has_every_case() -> None:
    suite: Any = load_suite(suite_file("encoder"))
    wanted = {
        f"batch {batch}, length {length}, {kind}"
        for batch in (1, 8, 32)
        for length in (16, 128)
        for kind in ("dynamic", "static")
    }
    assert {case.name for case in suite.CASES} == wanted and len(suite.CASES) == len(wanted)
    assert all(case.dynamic == case.name.endswith("dynamic") for case in suite.CASES)
    token_ids, mask = suite.inputs(8, 16)
    assert token_ids.shape == mask.shape == (8, 16)
    assert bool(mask[0].all()) and int(mask.sum(1).min()) >= 8
    assert suite.gflop(8, 128) == pytest.approx(22.95, abs=0.01)


def test_errors_are_measured_against_f64() -> None:
    exact = np.array([100.0, 1.0, math.inf, math.nan])
    eager = exact.astype(np.float32)
    right = eager + np.array([1e-3, 0, 0, 0], np.float32)
    assert error_of(right, eager, exact, 2e-5) == (pytest.approx(1e-5, rel=0.1), 2e-5)
    # of the two that are finite, one errs
    assert rms_of(right, exact) == pytest.approx(1e-5 / math.sqrt(2), rel=0.1)
    assert rms_of(np.full(2, np.nan), np.ones(2)) == 0.0
    # where eager errs, twice its error is allowed
    assert error_of(eager, right, exact, 1e-6)[1] == pytest.approx(2e-5, rel=0.1)
    for place, value in ((0, math.nan), (2, -math.inf), (3, 1.0)):
        wrong = eager.copy()
        wrong[place] = value
        error, allowed = error_of(wrong, eager, exact, 2e-5)
        assert error > allowed
    places = np.array([3, 1, 2])
    assert error_of(places, places, places, 0.5) == (0.0, 0.0)
    assert error_of(places + 1, places, places, 0.5) == (3.0, 0.0)


def test_results_of_another_shape_are_wrong(tmp_path: Path) -> None:
    for name, size in (("short", 2), ("eager", 3)):
        np.savez(tmp_path / f"{name}.npz", np.ones(size))
    files = [tmp_path / f"{name}.npz" for name in ("short", "eager", "eager")]
    found = compare(*files, "f32")
    assert found.error == math.inf and found.wrong == "its results are [2], eager's are [3]"
    assert compare(*files[1:], files[1], "f32").wrong == ""


def row(case: str, threads: int, luminal: float | None, **more: Any) -> dict[str, Any]:
    return {
        "suite": "toy", "case": case, "threads": threads, "dynamic": True, "luminal_ms": luminal, "failed": {},
        "gflop": 0.05, "mbytes": 1.0, "peak_gflops": 100.0, "read_gbytes": 10.0, **more,
    }  # fmt: skip


def test_summary() -> None:
    rows = [
        row("a", 1, 1.0, peers={"eager": 4.0, "inductor": 9.0}),
        row("b", 2, 2.0, peers={"eager": 1.0, "inductor": 9.0}),
        row("c", 1, 2.0, peers={"eager": 0.5}),
        row("d", 1, None, peers={"eager": 1.0}, failed={"luminal": "\nKeyError: 'x'\nmore"}),
    ]
    totals = bench_rows.summary(rows)
    assert totals["geometric_mean"] == round((4 * 0.5 * 0.25) ** (1 / 3), 3)
    assert totals["by_setting"] == {"1 threads": 1.0, "2 threads": 0.5, "dynamic": 0.794, "toy": 0.794}
    assert totals["slower"] == ["toy, c, 1 threads: 0.25", "toy, b, 2 threads: 0.50"]
    assert totals["failed"] == ["toy, d, 1 threads: KeyError: 'x'"]


def test_the_roof_is_what_bounds_a_case() -> None:
    arithmetic, memory = row("a", 1, 1.0), row("b", 1, 1.0, mbytes=20.0)
    assert bench_rows.roof(arithmetic) == (pytest.approx(0.5), "arithmetic")
    assert bench_rows.roof(memory) == (pytest.approx(2.0), "memory")
    assert bench_rows.roof_fraction(arithmetic, 1.0) == pytest.approx(0.5)
