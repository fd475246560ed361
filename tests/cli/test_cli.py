"""The command `luminal` itself."""

from __future__ import annotations

import pytest

from luminal.cli import SUBCOMMANDS, main


def test_doctor_names_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[:3] != "C++"
    )
    assert printed["torch"].startswith("2.13")
    assert "cores" in printed["processor"]


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: luminal {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonesuch"], ["doctor", "--colour"]])
def test_mistakes_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: luminal" in capsys.readouterr().err
