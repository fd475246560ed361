"""Writes every level of a compiled graph as text: canonical but for what is timed, so that two dumps can be compared.

`LUMINAL_DUMP=directory` makes each compilation write a folder there; `luminal.explain` returns the same text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from luminal.errors import OptionError

if TYPE_CHECKING:
    from luminal.search.report import SearchReport

LEVELS: Mapping[str, str] = {
    "hlo": "0-hlo.mlir",
    "primitive": "1-primitive.mlir",
    "regions": "2-regions.txt",
    "schedules": "3-schedules.txt",
    "placed": "4-placed.mlir",
    "llvm": "5-llvm.ll",
    "triton": "5-triton.py",
    "plan": "6-plan.txt",
    "search": "7-search.txt",
    "config": "8-config.json",
}
"""The levels, from the user's graph down, and the file of each."""
TIMED = ("search", "config")
"""Levels with times in them, which differ from run to run: all others are canonical."""


class Levels(dict[str, str]):
    """The text of each level of one compilation, and what the search of each of its programs reports."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[SearchReport] = []


_collecting: ContextVar[list[Levels] | None] = ContextVar("dumps", default=None)


def wanted(directory: Path | None) -> bool:
    """Whether the text of every level is asked for, so that a compiled graph must not come from the cache."""
    return directory is not None or _collecting.get() is not None


@contextmanager
def collect() -> Generator[list[Levels]]:
    """While open, each compilation appends its levels to the list."""
    found: list[Levels] = []
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


def deliver(levels: Levels, directory: Path | None, name: str, key: str) -> None:
    """Hand the levels of a compilation to whoever asked: a folder `name-key` of the directory, and `collect`.

    OptionError where the folder or a file in it cannot be written.
    """
    found = _collecting.get()
    if found is not None:
        found.append(levels)
    if directory is None:
        return
    folder = directory / f"{name}-{key[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for level, text in levels.items():
            (folder / LEVELS[level]).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"LUMINAL_DUMP={directory}: {error.strerror}: {error.filename}") from None


def explain_text(levels: Mapping[str, str]) -> str:
    """All levels as one text, from the graph down."""
    parts: list[str] = []
    for level in LEVELS:
        if level in levels:
            parts.append(f"==== {level} {'=' * (70 - len(level))}\n{levels[level].rstrip()}\n")
    return "\n".join(parts)
