"""Suites of measurements: what their processes say, what is left out and what breaks off; and the suite `search`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import to_markdown
from benchmarks.search import MEASUREMENTS, soundness
from benchmarks.search.regions import of_attention
from luminal.bench import measure, report
from luminal.cli import main
from luminal.plan import choosers
from luminal.plan.measure import HostMeasurer, MeasuredKernel
from luminal.search.profile import Budget
from tests.search.failing import Kernel

SUITE = """
from luminal.bench.measure import Measurement
MEASUREMENTS = {
    "good": Measurement("suites.toy.good", by_threads=True),
    "missing": Measurement("suites.toy.missing"),
    "broken": Measurement("suites.toy.broken"),
}
"""
GOOD = """
import os
def measure(report, settings):
    print("what a library prints is no part of the protocol")
    report.progress(1, 2)
    report.figure("enough", 3.0, "x", at_least=2.0, threads_of_torch=os.environ["OMP_NUM_THREADS"])
    report.figure("too much", 3.0, "s", at_most=2.5)
    report.figure("told alone", settings.samples, "candidates")
    report.times("case", "f32", 1.0, {"eager": 2.0})
"""
MISSING = """
from luminal.bench.report import needed
def measure(report, settings):
    needed("no_such_package")
"""
BROKEN = """
import os
def measure(report, settings):
    report.figure("before", 1.0, "x")
    raise ValueError("something went wrong here")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suites" / "toy"
    folder.mkdir(parents=True)
    for name, text in (("__init__", SUITE), ("good", GOOD), ("missing", MISSING), ("broken", BROKEN)):
        (folder / f"{name}.py").write_text(text)
    return folder / "__init__.py"


def run(suite: Path | str, report: Path, *more: str) -> tuple[int, dict[str, Any]]:
    status = main(["bench", "--suite", str(suite), "--json", str(report), *more])
    return status, json.loads(report.read_text())


def test_measurements_are_told_by_their_processes(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content = run(suite, tmp_path / "toy.json", "--only", "good", "--samples", "7")
    assert status == 0
    rows = content["measurements"]
    found = [
        (row["case"], row["threads"], row["value"], row["unit"], row["wanted"], row["met"]) for row in rows
    ]
    assert found == [
        row
        for threads in (1, 2)
        for row in (
            ("enough", threads, 3.0, "x", "at least 2", True),
            ("too much", threads, 3.0, "s", "at most 2.5", False),
            ("told alone", threads, 7, "candidates", "", None),
        )
    ]
    assert [row["detail"] for row in rows[::3]] == [{"threads_of_torch": "1"}, {"threads_of_torch": "2"}]
    assert content["rows"][1] == {
        "suite": "toy", "case": "case", "dtype": "f32", "threads": 2, "luminal_ms": 1.0, "peers": {"eager": 2.0},
    }  # fmt: skip
    assert "too much" in capsys.readouterr().out
    text = to_markdown.figures(content)
    assert "| good | too much | 2 | 3 s | at most 2.5 | not met |" in text
    assert "| case | 2 | 1.000 | eager 2.000 |" in text


def test_what_is_missing_is_left_out_and_what_breaks_off_is_named(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content = run(suite, tmp_path / "toy.json", "--threads", "1")
    assert status == 1
    assert content["left_out"] == {"missing": "the package no_such_package is not installed"}
    assert "ValueError: something went wrong here" in content["failed"]["broken"]
    assert [row["case"] for row in content["measurements"]][-1] == "before"
    assert len(content["measurements"]) == 4
    said = capsys.readouterr().out
    assert "Left out: missing" in said and "something went wrong here" in said


def test_a_measurement_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--suite", "search", "--only", "nonesuch"]) == 1
    said = capsys.readouterr().err
    assert "no measurement of search contains 'nonesuch'; known: attention, decode, memory" in said


def test_a_sampled_candidate_that_is_wrong_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of_attention(["scaled"], [False])[0]
    _, tally = soundness.sample(found, 3, 5, 1)
    assert (tally.compared, tally.regions, tally.reports) == (3, 1, [])
    assert tally.drawn_from >= 3
    load = HostMeasurer.load

    def wrong(self: HostMeasurer, *given: Any) -> Any:
        kernel = load(self, *given)
        assert isinstance(kernel, MeasuredKernel)
        return Kernel(kernel, "wrong", 1)

    monkeypatch.setattr(HostMeasurer, "load", wrong)
    _, tally = soundness.sample(found, 3, 5, 1)
    assert len(tally.reports) == 3
    assert tally.reports[0].startswith(
        "attention, scaled, --seed 5\na generated kernel differs from the reference"
    )


class Here:
    """In the place of a measurement's process: the measurement in this one.  Importing torch anew for each of them
    would take longer than what they do; that they are told by processes is tested above."""

    def __init__(
        self, module: str, arguments: Sequence[str], threads: int, log: Path, **environment: str
    ) -> None:
        del log
        self.module, self.arguments = module, arguments
        self.environment = {**environment, "LUMINAL_THREADS": str(threads)}

    def lines(self) -> Iterator[Mapping[str, Any]]:
        said: list[str] = []
        assert self.module == report.__name__
        torch._dynamo.reset()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.setattr(report, "speaker", lambda: lambda message: said.append(json.dumps(message)))
            assert report.main([*self.arguments]) == 0
        yield from map(json.loads, said)

    def close(self) -> int:
        return 0


SURE = {
    "attention": {"kernels", "kernels that fold over the keys in one pass"},
    "decode": {"passes over keys or values, the most"},
    "memory": {"2048 keys"},
    "saturation": {"1 layers", "e-graphs of 3 layers beyond those of one"},
    "compile": {"Llama, 2 layers, cold"},
    "searched": set[str](),
    "spread": set[str](),
    "soundness": {"candidates compared with the reference", "soundness reports"},
}
"""What every machine meets, by measurement."""
LONG = ("memory", "saturation", "compile")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.nightly if each in LONG else ()) for each in MEASUREMENTS]
)
def test_the_suite_search_measures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "Process", Here)
    monkeypatch.setattr(choosers, "BUDGETS", {**choosers.BUDGETS, "default": Budget()})
    given = ["--quick", "--only", name, "--threads", "1", "--samples", "30"]
    status, content = run("search", tmp_path / "search.json", *given)
    assert status == 0, content["failed"]
    assert not content["left_out"]
    rows = content["measurements"]
    assert rows and {row["measurement"] for row in rows} == {name}
    assert {row["case"] for row in rows if row["met"]} >= SURE[name]
    if name == "attention":
        assert {peer for row in content["rows"] for peer in row["peers"]} == {"sdpa", "eager"}
    by_case = {row["case"]: row for row in rows}
    if name == "compile":
        assert by_case["Llama, 2 layers, cold"]["detail"]["from_disk"] == 0
        assert by_case["Llama, 2 layers, warm"]["detail"]["from_disk"] == 1
    if name == "saturation":
        assert by_case["1 layers"]["detail"]["e_graphs"] > 0
