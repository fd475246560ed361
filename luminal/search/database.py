"""What the search found, in one SQLite file per user: keyed by region, sizes, machine and version."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

from luminal.search.machine import Machine

VERSION = 3
_SCHEMA = """create table if not exists schedules (
    region text, bucket text, machine text, version integer, schedule text, cost integer, seconds real,
    primary key (region, bucket, machine, version))"""


class Database:
    """Winning schedules; many processes and threads may use one file at once.

    A file that is no database is set aside (renamed) and begun anew, and one that cannot be read or written for the
    moment (busy, full, read-only) knows and keeps nothing: a damaged cache costs time and no result.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = self._connect()
        self._run("pragma journal_mode=wal")
        self._run(_SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10.0, isolation_level=None, check_same_thread=False)

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement; none where the file is damaged, which is then begun anew, or not to be had."""
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError:
                return []
            except sqlite3.DatabaseError:
                self._connection.close()
                for part in ("-wal", "-shm", ""):
                    with contextlib.suppress(
                        FileNotFoundError
                    ):  # it has none, or another process has been faster
                        Path(f"{self.path}{part}").replace(f"{self.path}{part}.damaged")
                self._connection = self._connect()
                with contextlib.suppress(sqlite3.OperationalError):
                    self._connection.execute(_SCHEMA)
                return []

    def find(self, region: str, bucket: str, machine: Machine) -> tuple[str, int] | None:
        """(schedule, cost in nanoseconds of a parallel iteration), or None where nothing is known."""
        rows = self._run(
            "select schedule, cost from schedules where region=? and bucket=? and machine=? and version=?",
            (_digest(region), bucket, repr(machine), VERSION),
        )
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def store(
        self, region: str, bucket: str, machine: Machine, schedule: str, cost: int, seconds: float
    ) -> None:
        """Remember a winner; the last one stays."""
        self._run(
            "insert or replace into schedules values (?, ?, ?, ?, ?, ?, ?)",
            (_digest(region), bucket, repr(machine), VERSION, schedule, cost, seconds),
        )

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
