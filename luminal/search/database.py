"""What the search found, in one SQLite file per user: keyed by region, sizes, machine and version."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luminal.search.machine import Machine

VERSION = 4
_SCHEMAS = (
    """create table if not exists winners (
    region text, bucket text, machine text, version integer, form text, schedule text, cost integer, seconds real,
    primary key (region, bucket, machine, version))""",
    """create table if not exists considered (
    region text, bucket text, machine text, version integer, content text,
    primary key (region, bucket, machine, version))""",
)


@dataclass(frozen=True, slots=True)
class Winner:
    """A schedule as text, the nanoseconds of one of its parallel iterations, and the form of the region that it is
    for."""

    schedule: str
    cost: int
    form: str = ""


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
        for schema in _SCHEMAS:
            self._run(schema)

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
                for schema in _SCHEMAS:
                    with contextlib.suppress(sqlite3.OperationalError):
                        self._connection.execute(schema)
                return []

    def find(self, region: str, bucket: str, machine: Machine) -> Winner | None:
        """What won, or None where nothing is known."""
        rows = self._run(
            "select schedule, cost, form from winners where region=? and bucket=? and machine=? and version=?",
            (_digest(region), bucket, repr(machine), VERSION),
        )
        return Winner(str(rows[0][0]), int(rows[0][1]), str(rows[0][2])) if rows else None

    def store(self, region: str, bucket: str, machine: Machine, winner: Winner, seconds: float) -> None:
        """Remember a winner; the last one stays."""
        key = (_digest(region), bucket, repr(machine), VERSION)
        self._run(
            "insert or replace into winners values (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, winner.form, winner.schedule, winner.cost, seconds),
        )

    def store_considered(self, region: str, bucket: str, machine: Machine, content: str) -> None:
        """Remember, beside a winner, what its search looked at."""
        key = (_digest(region), bucket, repr(machine), VERSION)
        self._run("insert or replace into considered values (?, ?, ?, ?, ?)", (*key, content))

    def find_considered(self, region: str, bucket: str, machine: Machine) -> str | None:
        """What the search of a winner looked at, or None where nothing is known."""
        rows = self._run(
            "select content from considered where region=? and bucket=? and machine=? and version=?",
            (_digest(region), bucket, repr(machine), VERSION),
        )
        return str(rows[0][0]) if rows else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
