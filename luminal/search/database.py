"""What the search found, in one SQLite file per user: keyed by region, sizes, machine and version."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from pathlib import Path

from luminal.search.machine import Machine

VERSION = 1
_SCHEMA = """create table if not exists schedules (
    region text, bucket text, machine text, version integer, schedule text, cost integer, seconds real,
    primary key (region, bucket, machine, version))"""


class Database:
    """Winning schedules; many processes and threads may use one file at once.

    A file that is no database is set aside (renamed) and begun anew, so that a damaged cache costs time and no result.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError:
            path.replace(path.with_suffix(".damaged"))
            self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10.0, isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode=wal")
        connection.execute(_SCHEMA)
        return connection

    def find(self, region: str, bucket: str, machine: Machine) -> tuple[str, int] | None:
        """(schedule, cost in nanoseconds of a parallel iteration), or None where nothing is known."""
        with self._lock:
            row = self._connection.execute(
                "select schedule, cost from schedules where region=? and bucket=? and machine=? and version=?",
                (_digest(region), bucket, repr(machine), VERSION),
            ).fetchone()
        return None if row is None else (str(row[0]), int(row[1]))

    def store(
        self, region: str, bucket: str, machine: Machine, schedule: str, cost: int, seconds: float
    ) -> None:
        """Remember a winner; the last one stays."""
        with self._lock:
            self._connection.execute(
                "insert or replace into schedules values (?, ?, ?, ?, ?, ?, ?)",
                (_digest(region), bucket, repr(machine), VERSION, schedule, cost, seconds),
            )

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
