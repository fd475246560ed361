"""Winners in a file that can be carried to another machine.

JSON lines: first what the file is, its format, the number of entries and the checksum of their lines; then one entry a
line, with the fields of `Entry`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from luminal.errors import CacheFileError
from luminal.search.database import Entry

KIND, FORMAT = "winners", 1
_FIELDS: dict[str, type] = get_type_hints(Entry)


def write_entries(path: Path, entries: Sequence[Entry]) -> None:
    """CacheFileError where the file cannot be written."""
    body = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    header = {"luminal": KIND, "format": FORMAT, "entries": len(entries), "sha256": _checksum(body)}
    try:
        path.write_text(json.dumps(header) + "\n" + body, encoding="utf-8")
    except OSError as error:
        raise CacheFileError(f"{path} cannot be written: {error.strerror}") from None


def read_entries(path: Path) -> list[Entry]:
    """All entries of a file; CacheFileError where it is none, is not whole, or has another format."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CacheFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    first, _, body = text.partition("\n")
    header = _object(first)
    if header.get("luminal") != KIND:
        raise CacheFileError(f"{path} was not written by `luminal cache export`")
    if header.get("format") != FORMAT:
        raise CacheFileError(f"{path} has format {header.get('format')}; format {FORMAT} can be read")
    if header.get("sha256") != _checksum(body):
        raise CacheFileError(f"{path} is damaged: its entries do not have the checksum that it gives")
    return [_entry(path, number, line) for number, line in enumerate(body.splitlines(), 2)]


def _entry(path: Path, number: int, line: str) -> Entry:
    found = _object(line)
    if found.keys() != _FIELDS.keys():
        raise CacheFileError(f"{path}, line {number}: expected the fields {', '.join(_FIELDS)}")
    for name, kind in _FIELDS.items():
        if type(found[name]) is not kind:
            raise CacheFileError(
                f"{path}, line {number}: {name} is {found[name]!r}, expected {kind.__name__}"
            )
    return Entry(**found)


def _object(line: str) -> dict[str, Any]:
    """The object that a line holds, an empty one for anything else."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
