"""`luminal cache`: where compiled objects and found schedules are kept, how much there is, and an end to it."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from luminal.emit_cpu.cache import cache_directory

PARTS = ("objects", "reports", "schedules.sqlite", "schedules.sqlite-wal", "schedules.sqlite-shm")
"""What Luminal puts into the folder; nothing else there is counted or removed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all of it")


def run(options: argparse.Namespace) -> int:
    root = cache_directory()
    files = [file for part in PARTS for file in _files(root / part)]
    print(f"{root}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
    if options.clear:
        for part in PARTS:
            path = root / part
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        print("removed")
    return 0


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
