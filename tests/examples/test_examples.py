"""The examples run, in processes of their own as a user runs them, and say what their text promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_graph_api() -> None:
    outer, means = run("graph_api.py").splitlines()
    assert outer == "[1.0, 2.0, 3.0, 3.0, 2.0, 4.0, 6.0, 6.0, 3.0, 6.0, 9.0, 9.0]"
    assert [float(text) for text in means.strip("[]").split(",")] == pytest.approx(
        [1.0, 0.25, 0.004], rel=1e-5
    )


def test_corpus_is_long_and_bilingual() -> None:
    lines = (EXAMPLES / "sentences.txt").read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if line and line[0] not in "#["]
    languages = {line.strip("[]").split()[1] for line in lines if line.startswith("[")}
    lengths = [len(sentence.split()) for sentence in sentences]
    assert len(sentences) >= 300 and len(set(sentences)) == len(sentences)
    assert languages == {"en", "de"}
    assert min(lengths) <= 4 and max(lengths) >= 60


def test_sentence_search() -> None:
    query = "Which planet turns the wrong way round?"
    printed = run(
        "sentence_search.py", "--limit", "40", "--rounds", "1", "--without-inductor", query, "whales"
    )
    assert "Venus spins backwards." in printed
    assert re.search(r"Inductor\s+│\s+left out", printed)
    difference = re.search(r"Largest difference from eager: (\S+), within 1e-05", printed)
    assert difference and float(difference.group(1)) <= 1e-5
    compilations = re.search(r"Compilations by Luminal: (\d+) for (\d+) shapes", printed)
    assert compilations and compilations.group(1) == "1" and int(compilations.group(2)) > 1
    assert re.search(
        r"luminal.stats\(\): 1, \d+ different kernels, \d+ launches a call, arena of [\d,]+ bytes", printed
    )
    assert "Operators that ran through torch: 0" in printed
    assert "LUMINAL_DUMP" in printed
