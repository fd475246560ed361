"""benchmarks/gpu_check.py in its dry mode: its rows, its table, and that a failing section leaves the others alone."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks import gpu_check
from benchmarks.gpu_bench import Row
from benchmarks.gpu_check import SECTIONS, TOTAL, main, relative_error, run_section, section_rows

OWN_PROCESS = "copy"
"""Of the sections in the test the one that has its process; importing torch for each takes longer than what they do."""


@pytest.mark.slow
def test_the_dry_mode_of_some_sections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows_of(name: str, dry: bool, seconds: float) -> list[Row]:
        if name == OWN_PROCESS:
            return section_rows(name, dry, seconds)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            run_section(name, dry)
        rows = map(gpu_check._row_of, said.getvalue().splitlines())
        return [{"section": name, **row} for row in rows if row is not None]

    # what a section puts in the device's place goes with the test
    monkeypatch.setattr(pytest, "MonkeyPatch", lambda: monkeypatch)
    monkeypatch.setattr(gpu_check, "section_rows", rows_of)
    file = tmp_path / "gpu.json"
    names = [OWN_PROCESS, "norms", "product", "q8"]
    assert main(["--dry", "--json", str(file), *(part for name in names for part in ("--only", name))]) == 0
    found = json.loads(file.read_text())
    assert found["machine"]["dry"] and [*dict.fromkeys(row["section"] for row in found["rows"])] == names
    ours = [row for row in found["rows"] if row["what"] == "luminal"]
    assert len(ours) == 5 and all(row["ok"] and row["error"] <= 2e-2 for row in ours)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(found["rows"]) + 1 and not any("WRONG" in line for line in printed)


def test_a_section_that_fails_or_hangs_is_a_row() -> None:
    (failed,) = section_rows("nothing", True, 100)
    assert not failed["ok"] and "invalid choice" in failed["failed"] and failed["section"] == "nothing"
    stopped = section_rows("kinds", True, 0.05)[-1]
    assert not stopped["ok"] and stopped["failed"].startswith("stopped after")


def test_the_sections_fit_into_the_time() -> None:
    assert TOTAL < 8 * 60 and all(section.seconds <= 100 for section in SECTIONS.values())


def test_errors_are_relative_and_see_what_is_not_finite() -> None:
    one = torch.tensor([1.0, 4.0, float("inf")])
    assert relative_error(one, one) == 0.0
    assert relative_error(one + torch.tensor([1.0, 0.0, 0.0]), one) == 0.25
    assert relative_error(one, torch.tensor([1.0, 4.0, float("nan")])) == float("inf")
    assert relative_error((one, torch.ones(2)), (one, torch.full((2,), 4.0))) == 0.75
    assert relative_error(one[:2], one) == float("inf")
