"""`luminal cache`: where compiled objects and found schedules are kept and how much there is; schedules to take to
another machine and from one; and an end to it all."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from luminal.emit_cpu.cache import cache_directory
from luminal.search.database import FILE_NAME, Database
from luminal.search.exchange import read_entries, write_entries
from luminal.source import source_digest

PARTS = {"objects": "objects", "reports": "reports", "schedules": "schedules*.sqlite*"}
"""What Luminal puts into the folder, as patterns; nothing else there is counted or removed."""
DIGITS = 12
"""How much of a source's hash is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("show", help="where it is and how much there is (the default)")
    export = actions.add_parser("export", help="write the schedules that were found to a file, as JSON lines")
    take = actions.add_parser(
        "import", help="take in an exported file: searches here begin with what it holds"
    )
    for part in (export, take):
        part.add_argument("file", type=Path, metavar="FILE")
    actions.add_parser("clear", help="remove all of it")


def run(options: argparse.Namespace) -> int:
    _ACTIONS[options.action or "show"](options)
    return 0


def _show(options: argparse.Namespace) -> None:
    del options
    root = cache_directory()
    print(root)
    for part, pattern in PARTS.items():
        files = [file for path in root.glob(pattern) for file in _files(path)]
        print(f"{part}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
    if not (root / FILE_NAME).exists():
        return
    table = Table("target", "threads", "source", "found", "imported", "timings", box=None)
    with closing(Database(root / FILE_NAME)) as database:
        counts = database.counts()
    for count in counts:
        own = "this" if count.source == source_digest() else count.source[:DIGITS]
        numbers = map(str, (count.timed, count.imported, count.timings))
        table.add_row(count.target, str(count.threads), own, *numbers)
    Console().print(table)


def _export(options: argparse.Namespace) -> None:
    with closing(Database(cache_directory() / FILE_NAME)) as database:
        entries = database.entries()
    write_entries(options.file, entries)
    print(f"{len(entries)} schedules written to {options.file}")


def _import(options: argparse.Namespace) -> None:
    entries = read_entries(options.file)
    with closing(Database(cache_directory() / FILE_NAME)) as database:
        database.merge(entries)
    print(f"{len(entries)} schedules taken from {options.file}")


def _clear(options: argparse.Namespace) -> None:
    del options
    for path in (path for pattern in PARTS.values() for path in cache_directory().glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    print(f"{cache_directory()} is cleared")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "show": _show,
    "export": _export,
    "import": _import,
    "clear": _clear,
}


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
