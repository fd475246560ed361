"""What luminal-opt returns and says for every way of calling it wrong, and that the collector of RUN lines can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from luminal.errors import LuminalError
from luminal.opt_main import PASSES, main

GOOD = """luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.exp %x : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.mlir"
    path.write_text(GOOD)
    return path


def test_a_good_file(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(good), "-p", "lower-hlo"]) == 0
    printed = capsys.readouterr()
    assert "primitive.exp2" in printed.out and not printed.err


def test_the_result_goes_to_a_file(good: Path, tmp_path: Path) -> None:
    result = tmp_path / "out.mlir"
    assert main([str(good), "-o", str(result)]) == 0
    assert main([str(result)]) == 0
    assert "hlo.exp" in result.read_text()


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_is_there_and_described(name: str, good: Path) -> None:
    from luminal.opt_main import make_pass

    made = make_pass(name, PASSES[name])
    assert made.name == name and made.__doc__
    assert main([str(good), "-p", name]) in (0, 1)


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("add-regions", "hlo.exp is no primitive: lower-hlo comes before add-regions"),
        ("lower-hlo,schedule-regions", "there is no kernel.region to schedule"),
        ("lower-hlo,place", "there is no kernel.region to place"),
    ],
)
def test_a_pass_on_the_wrong_level_says_so(
    passes: str, message: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(good), "-p", passes]) == 1
    assert message in capsys.readouterr().err


def test_targets_of_other_dialects_are_not_offered(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(good), "-t", "llvm"])
    assert caught.value.code == 2
    assert "invalid choice: 'llvm' (choose from " in capsys.readouterr().err


def test_a_negative_size_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(GOOD.replace("[4]", "[-4]"))
    assert main([str(path)]) == 1
    assert "a size cannot be negative: -4" in capsys.readouterr().err


def test_ir_that_does_not_parse_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(GOOD.replace("hlo.exp %x", "hlo.exp %y"))
    assert main([str(path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("luminal-opt: ") and "%y" in message and "bad.mlir:" in message


def test_ir_that_does_not_verify_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(GOOD.replace("hlo.exp %x", "hlo.exp %x {speed = 11}"))
    assert main([str(path)]) == 1
    printed = capsys.readouterr()
    assert "unknown attribute speed" in printed.err and not printed.out


def test_a_pass_that_fails_is_1(
    good: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import luminal.passes.lower_hlo as lowering

    def fail(module: object) -> None:
        raise LuminalError("nothing to be done")

    monkeypatch.setattr(lowering, "lower_hlo", fail)
    assert main([str(good), "-p", "lower-hlo"]) == 1
    assert capsys.readouterr().err == "luminal-opt: nothing to be done\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "lower-hlo,magic"], "magic.*lower-hlo, simplify"),
        (["-p", "lower-hlo{"], "--passes"),
        (["-p", "lower-hlo{depth=3}"], "depth"),
    ],
)
def test_passes_that_are_not_there_are_2(
    arguments: list[str], message: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    assert main([str(good), *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_missing_file_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.mlir")]) == 2
    assert "none.mlir: No such file" in capsys.readouterr().err
    other = tmp_path / "graph.onnx"
    other.write_text("")
    assert main([str(other)]) == 2
    assert "onnx" in capsys.readouterr().err
    binary = tmp_path / "binary.mlir"
    binary.write_bytes(b"\xff\xfe")
    assert main([str(binary)]) == 2
    assert "decode" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--speed"], ["-t", "fortran"], ["-f", "cobol"]])
def test_unknown_options_are_2(arguments: list[str], good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(good), *arguments])
    assert stop.value.code == 2
    assert "usage: luminal-opt" in capsys.readouterr().err


def test_the_command_itself(good: Path) -> None:
    """As a process, with the IR on stdin."""
    command = [sys.executable, "-m", "luminal.opt_main", "-p", "lower-hlo,simplify"]
    done = subprocess.run(command, input=GOOD, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "primitive.exp2" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "luminal-opt %s -p magic",
        "not luminal-opt %s",
        "luminal-opt %s | filecheck %s",
        "luminal-opt %s | cat",
    ],
)
def test_a_run_line_can_fail(line: str, pytester_file: Path) -> None:
    pytester_file.write_text(f"// RUN: {line}\n// CHECK: hlo.tanh\n{GOOD}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pytester_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=pytester_file.parent)
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


@pytest.fixture
def pytester_file(tmp_path: Path) -> Path:
    """A file beside a copy of the collector."""
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    return tmp_path / "case.mlir"
