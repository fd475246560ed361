"""The file of exported winners: what was written is read, and whatever is damaged or foreign is one clear error."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from luminal.errors import CacheFileError
from luminal.search.database import Entry
from luminal.search.exchange import read_entries, write_entries

ENTRIES = [
    Entry("a", "d0=5", "cpu here", 2, "source", "out0: i:*", 12, "", 0.5, 3),
    Entry("b", "", "cpu ü", 1, "source", "out0: i:4", 7, "folds of 64", 2.5e-05, 24),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_entries(tmp_path / "found.jsonl", ENTRIES)
    return tmp_path / "found.jsonl"


def test_what_is_written_is_read(path: Path) -> None:
    assert read_entries(path) == ENTRIES
    write_entries(path, [])
    assert read_entries(path) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "was not written by `luminal cache export`"),
        (lambda text: "nonsense", "was not written by `luminal cache export`"),
        (lambda text: "[1]", "was not written by `luminal cache export`"),
        (lambda text: text.replace('"format": 1', '"format": 2', 1), "has format 2; format 1 can be read"),
        (lambda text: text[:-40], "is damaged"),
        (lambda text: text.rsplit("\n", 2)[0] + "\n", "is damaged"),
        (lambda text: text.replace('"cost": 12', '"cost": 13'), "is damaged"),
    ],
    ids=["empty", "foreign", "a list", "another format", "cut", "cut at a line", "one figure"],
)
def test_a_damaged_or_foreign_file(damage: object, message: str, path: Path) -> None:
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(CacheFileError, match=message) as caught:
        read_entries(path)
    assert str(path) in str(caught.value)


def test_bytes_that_are_no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * 100)
    with pytest.raises(CacheFileError, match="was not written by"):
        read_entries(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "line 2: expected the fields region, bucket, target"),
        ("7", "line 2: expected the fields region, bucket, target"),
        (json.dumps({**asdict(ENTRIES[0]), "threads": True}), "line 2: threads is True, expected int"),
    ],
)
def test_an_entry_that_is_none(line: str, message: str, path: Path) -> None:
    checksum = hashlib.sha256(f"{line}\n".encode()).hexdigest()
    header = {"luminal": "winners", "format": 1, "entries": 1, "sha256": checksum}
    path.write_text(f"{json.dumps(header)}\n{line}\n")
    with pytest.raises(CacheFileError, match=message):
        read_entries(path)


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(CacheFileError, match=r"none\.jsonl cannot be read: No such file"):
        read_entries(tmp_path / "none.jsonl")
    with pytest.raises(CacheFileError, match="cannot be written: Is a directory"):
        write_entries(tmp_path, ENTRIES)
