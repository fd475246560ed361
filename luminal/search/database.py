"""What the search found and timed, in one SQLite file per user.

A *winner* is keyed by region (its structure, with dtypes), bucket of sizes, target, threads and source of the package.
What this machine timed with this source is used as it is; what other machines, threads, sizes and sources found for the
region, or what was imported, are seeds: the search times them first.  A *timing* is what one candidate took.  *Cuts*
are those that a long search found for a graph.

Many processes and threads may use one file at once.  Each write is one transaction in SQLite's write-ahead log: a
process that is killed leaves what it had committed, and a loss of power may take the last of it, no more.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from luminal.errors import CacheFileError
from luminal.search.machine import Machine
from luminal.source import source_digest

LAYOUT = 6
"""The number of the tables' layout: another one has a file of its own."""
FILE_NAME = f"schedules-{LAYOUT}.sqlite"
WINNERS, TIMINGS = 20_000, 50_000
"""How many of each the file keeps, some tens of megabytes: beyond that the oldest go, imported winners first."""
CHECK_EVERY = 64
"""Regions stored by a process between two looks at how much there is."""

_KEY = "region, bucket, target, threads, source"
_WON = "schedule, cost, form, seconds, candidates"
_CREATE = (
    f"""create table if not exists winners (
        region text, bucket text, target text, threads integer, source text,
        schedule text, cost integer, form text, seconds real, candidates integer, imported integer,
        primary key ({_KEY}, imported))""",
    """create table if not exists timings (
        region text, sizes text, target text, threads integer, source text,
        schedule text, form text, estimate real, seconds real,
        primary key (region, sizes, target, threads, source, schedule, form))""",
    "create table if not exists regions (region text primary key, content text)",
    f"""create table if not exists considered (
        region text, bucket text, target text, threads integer, source text, content text,
        primary key ({_KEY}))""",
    """create table if not exists cuts (
        graph text, bucket text, target text, threads integer, source text,
        content text, seconds real, budget real, primary key (graph, bucket, target, threads, source))""",
)
_KEEP = f"""insert into winners values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict ({_KEY}, imported) do update set ({_WON}) =
    (excluded.schedule, excluded.cost, excluded.form, excluded.seconds, excluded.candidates) where """
_LATER = "excluded.candidates >= winners.candidates"
_BETTER = "(excluded.candidates, -excluded.seconds) > (winners.candidates, -winners.seconds)"
_TIMED = """insert into timings values (?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do update set seconds=excluded.seconds, estimate=coalesce(excluded.estimate, estimate)"""
_CUT = """insert into cuts values (?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do update set (content, seconds, budget) = (excluded.content, excluded.seconds, excluded.budget)
    where excluded.budget >= cuts.budget"""
_NEAREST = f"""select {_WON} from winners where region=?
    order by (bucket=?) + (target=?) + (threads=?) desc, imported, candidates desc, rowid desc limit ?"""
_COUNT = """select target, threads, source, sum(timed), sum(imported), sum(timings) from (
        select target, threads, source, imported=0 as timed, imported, 0 as timings from winners
        union all select target, threads, source, 0, 0, 1 from timings)
    group by target, threads, source order by target, threads, source"""


@dataclass(frozen=True, slots=True)
class Winner:
    """A schedule as text, the nanoseconds of one of its parallel iterations, the form of the region that it is for, its
    seconds, and how many candidates the search that found it might time."""

    schedule: str
    cost: int
    form: str = ""
    seconds: float = 0.0
    candidates: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A winner after its whole key: what is exported, and imported elsewhere."""

    region: str
    bucket: str
    target: str
    threads: int
    source: str
    schedule: str
    cost: int
    form: str
    seconds: float
    candidates: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What a candidate took last: `region` as text, `sizes` of its symbols, the `source` that compiled it, `schedule`
    as text for a form of the region, the model's `estimate` in seconds where it has one, and measured `seconds`."""

    region: str
    sizes: Mapping[str, int]
    source: str
    schedule: str
    form: str
    estimate: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class FoundCuts:
    """Where a graph is cut, as text, the seconds of its regions, and of the budget of the search that found it."""

    content: str
    seconds: float
    budget: float


@dataclass(frozen=True, slots=True)
class Count:
    """How many winners, timed here or imported, and timings there are of one target, thread count and source."""

    target: str
    threads: int
    source: str
    timed: int
    imported: int
    timings: int


class Database:
    """Winners and timings; `source` is that of the package.

    A file that is no database is set aside (renamed) and begun anew; one that cannot be read or written for the moment
    (busy, full, read-only) knows and keeps nothing, and where there can be no file at all, results live as long as the
    process: a damaged cache costs time and no result.
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        self.path = path
        self.source = source_digest() if source is None else source
        self._lock = threading.Lock()
        self._stored = 0
        self._inode, self._lasting = -1, True
        self._connection = self._open()

    # ---- what the search asks

    def find(self, region: str, bucket: str, machine: Machine) -> Winner | None:
        """What won on this machine with this source, or None where nothing is known."""
        rows = self._read(
            f"select {_WON} from winners where ({_KEY}) = (?, ?, ?, ?, ?) and not imported",
            self._key(region, bucket, machine),
        )
        return Winner(*rows[0]) if rows else None

    def seeds(self, region: str, bucket: str, machine: Machine, most: int = 16) -> list[Winner]:
        """All that is known of a region, what is nearest to this bucket and machine first."""
        rows = self._read(_NEAREST, (region, bucket, machine.target, machine.threads, most))
        return [Winner(*row) for row in rows]

    def store(
        self, region: str, bucket: str, machine: Machine, winner: Winner, timings: Sequence[Timing] = ()
    ) -> None:
        """Remember a winner and what was timed to find it; the last one of the widest search stays."""
        key = self._key(region, bucket, machine)
        rows = [
            (region, json.dumps(dict(timing.sizes), sort_keys=True), *key[2:4], *astuple(timing)[2:])
            for timing in timings
        ]
        self._stored += 1
        self._write(
            (_KEEP + _LATER, [(*key, *astuple(winner), 0)]),
            ("insert or ignore into regions values (?, ?)", [(region, t.region) for t in timings]),
            (_TIMED, rows),
            *(_prune() if self._stored % CHECK_EVERY == 1 else ()),
        )

    def store_considered(self, region: str, bucket: str, machine: Machine, content: str) -> None:
        """Remember, beside a winner, what its search looked at."""
        row = (*self._key(region, bucket, machine), content)
        self._write(("insert or replace into considered values (?, ?, ?, ?, ?, ?)", [row]))

    def find_considered(self, region: str, bucket: str, machine: Machine) -> str | None:
        """What the search of a winner looked at, or None where nothing is known."""
        rows = self._read(
            f"select content from considered where ({_KEY}) = (?, ?, ?, ?, ?)",
            self._key(region, bucket, machine),
        )
        return str(rows[0][0]) if rows else None

    def timings(self, machine: Machine) -> list[Timing]:
        """All that was timed on this machine and is kept, with any source, the oldest first."""
        rows = self._read(
            """select content, sizes, source, schedule, form, estimate, seconds
            from timings join regions using (region) where target=? and threads=? order by timings.rowid""",
            (machine.target, machine.threads),
        )
        return [Timing(content, json.loads(sizes), *rest) for content, sizes, *rest in rows]

    def store_cuts(self, graph: str, bucket: str, machine: Machine, found: FoundCuts) -> None:
        """Remember where a graph is cut, by its digest; what the longest search found stays."""
        self._write((_CUT, [(*self._key(graph, bucket, machine), *astuple(found))]))

    def find_cuts(self, graph: str, bucket: str, machine: Machine) -> FoundCuts | None:
        """Where this machine with this source found that a graph is best cut, or None where nothing is known."""
        rows = self._read(
            """select content, seconds, budget from cuts
            where (graph, bucket, target, threads, source) = (?, ?, ?, ?, ?)""",
            self._key(graph, bucket, machine),
        )
        return FoundCuts(*rows[0]) if rows else None

    # ---- what the command asks

    def entries(self) -> list[Entry]:
        """All winners, in order of their keys."""
        rows = self._read(f"select {_KEY}, {_WON} from winners order by {_KEY}, imported")
        return [Entry(*row) for row in rows]

    def merge(self, entries: Iterable[Entry]) -> None:
        """Take in winners from elsewhere, all or, with a CacheFileError, none.

        Of two for one key that of the wider search stays, then the faster, so that the order of imports does not
        matter.  Those that were timed here stay beside them.
        """
        rows = [(*astuple(entry), 1) for entry in entries]
        if not self._lasting:
            raise CacheFileError(f"nothing was imported: {self.path} cannot be written")
        with self._lock:
            try:
                _transact(self._connection, [(_KEEP + _BETTER, rows), *_prune()])
            except sqlite3.Error as error:
                raise CacheFileError(f"nothing was imported into {self.path}: {error}") from None

    def counts(self) -> list[Count]:
        """How much there is of each target, thread count and source."""
        return [Count(*row) for row in self._read(_COUNT)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # ---- the file

    def _key(self, name: str, bucket: str, machine: Machine) -> tuple[str, str, str, int, str]:
        """What is kept of a region or graph, by its key or digest, is kept under."""
        return name, bucket, machine.target, machine.threads, self.source

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement; none where the file is damaged, which is then begun anew, or not to be had."""
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                self._recover(error)
                return []

    def _write(self, *statements: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        """All of some statements, or none where the file is not to be had."""
        with self._lock:
            try:
                _transact(self._connection, statements)
            except sqlite3.DatabaseError as error:
                self._recover(error)

    def _recover(self, error: sqlite3.DatabaseError) -> None:
        """Begin a damaged file anew; one that is not to be had may be so later."""
        if isinstance(error, sqlite3.OperationalError):
            return
        if type(error) is not sqlite3.DatabaseError:
            raise error
        self._connection.close()
        self._set_aside()
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        for _ in range(2):
            connection = None
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                connection = _connect(str(self.path))
                self._inode = self.path.stat().st_ino
                return _prepared(connection)
            except (OSError, sqlite3.OperationalError):
                break
            except sqlite3.DatabaseError:
                if connection is not None:
                    connection.close()
                self._set_aside()
        self._lasting = False
        return _prepared(_connect(":memory:"))

    def _set_aside(self) -> None:
        """Rename the damaged file, where another process has not been faster.

        Its log stays: SQLite removes one that lies beside a new file.
        """
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                Path(f"{self.path}-shm").unlink(missing_ok=True)
                self.path.replace(f"{self.path}.damaged")


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=10.0, isolation_level=None, check_same_thread=False)


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, with its tables."""
    with contextlib.suppress(sqlite3.OperationalError):  # another process is doing the same
        connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=normal")
    for statement in _CREATE:
        connection.execute(statement)
    return connection


def _transact(
    connection: sqlite3.Connection, statements: Iterable[tuple[str, Sequence[tuple[object, ...]]]]
) -> None:
    with connection:
        connection.execute("begin immediate")
        for statement, rows in statements:
            connection.executemany(statement, rows)


def _prune() -> list[tuple[str, Sequence[tuple[object, ...]]]]:
    """What takes the oldest away."""
    oldest = "delete from {0} where rowid in (select rowid from {0} order by {1}rowid desc limit -1 offset ?)"
    return [
        (oldest.format("winners", "imported, "), [(WINNERS,)]),
        (oldest.format("timings", ""), [(TIMINGS,)]),
        (oldest.format("cuts", ""), [(WINNERS,)]),
        ("delete from regions where region not in (select region from timings)", [()]),
        ("delete from considered where region not in (select region from winners)", [()]),
    ]
