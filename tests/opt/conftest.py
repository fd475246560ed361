"""Collects `*.mlir` files and runs their RUN lines, in this process: a start of the command costs half a second.

    // RUN: luminal-opt %s -p lower-hlo | filecheck %s
    // RUN: not luminal-opt %s 2>&1 | filecheck %s --check-prefix ERROR

A line is a pipeline of `luminal-opt` and `filecheck`; `%s` is the file. `not` wants a failure, `2>&1` adds stderr to
the pipe, and a later `luminal-opt` without a file reads the pipe.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.main import main as filecheck

from luminal.opt_main import main as luminal_opt


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".mlir":
        return None
    return MlirFile.from_parent(parent, path=file_path)


class MlirFile(pytest.File):
    """One item for each RUN line."""

    def collect(self) -> Iterator[pytest.Item]:
        lines = [line.partition("// RUN:")[2].strip() for line in self.path.read_text().splitlines()]
        runs = [line for line in lines if line]
        if not runs:
            raise ValueError(f"{self.path} has no RUN line")
        for number, line in enumerate(runs):
            yield RunLine.from_parent(self, name=f"run{number}", line=line)


class RunLine(pytest.Item):
    """One pipeline."""

    def __init__(self, *, line: str, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.line = line

    def runtest(self) -> None:
        piped = ""
        for stage in self.line.replace("%s", shlex.quote(str(self.path))).split(" | "):
            words = shlex.split(stage)
            both, fails = "2>&1" in words, words[0] == "not"
            words = [word for word in words if word != "2>&1"][fails:]
            status, printed, errors = run_command(words, piped)
            if bool(status) != fails:
                raise RunFailed(f"{self.line}\n{' '.join(words)} returned {status}\n{printed}{errors}")
            piped = printed + errors if both else printed

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return (
            str(excinfo.value) if isinstance(excinfo.value, RunFailed) else str(super().repr_failure(excinfo))
        )

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.line}"


class RunFailed(Exception):
    """A command of a RUN line returned what it should not."""


def run_command(words: list[str], piped: str) -> tuple[int, str, str]:
    """The status, stdout and stderr of one command with `piped` on its stdin."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        if words[0] == "luminal-opt":
            before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(piped.encode()))
            try:
                status = luminal_opt(words[1:])
            except SystemExit as stop:
                status = int(stop.code or 0)
            finally:
                sys.stdin = before
        elif words[0] == "filecheck":
            status = _filecheck(words, piped)
        else:
            raise RunFailed(f"a RUN line knows luminal-opt and filecheck, not {words[0]}")
    return status, out.getvalue(), errors.getvalue()


def _filecheck(words: list[str], piped: str) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(piped)
        file.flush()
        try:
            filecheck([*words, "--input-file", file.name])
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0
