"""The file of results: what is stored is found, by many processes at once, and no damage or kill costs a result.

Winners of elsewhere are seeds, the nearest first; timings are kept beside them; the oldest of both go.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from luminal.errors import CacheFileError
from luminal.search import database as module
from luminal.search.database import Count, Database, Entry, Timing, Winner
from luminal.search.machine import Machine

HOST = Machine(8, 16, threads=2, target="cpu here")
ELSEWHERE = replace(HOST, target="cpu elsewhere")
ENTRY = Entry("region", "n=7", "cpu elsewhere", 2, "another", "out0: i:*", 12, "", 0.5, 3)


def timing(number: int, seconds: float = 0.5) -> Timing:
    return Timing("index i = n\n", {"n": 7}, "source", f"out0: i:{number}", "", 0.25, seconds)


def test_what_is_stored_is_found_by_its_whole_key(tmp_path: Path) -> None:
    database = Database(tmp_path / "deep" / "schedules.sqlite")
    assert database.find("region", "n=7", HOST) is None
    database.store("region", "n=7", HOST, Winner("out0: i:*", 12))
    database.store("region", "n=8", HOST, Winner("out0: i:* j:*", 13))
    assert database.find("region", "n=7", HOST) == Winner("out0: i:*", 12)
    assert database.find("region", "n=8", HOST) == Winner("out0: i:* j:*", 13)
    assert database.find("other", "n=7", HOST) is None
    for machine in (ELSEWHERE, replace(HOST, threads=1)):
        assert database.find("region", "n=7", machine) is None
    assert Database(database.path, "another source").find("region", "n=7", HOST) is None
    database.store("region", "n=9", HOST, Winner("out0: i:*", 14, "folds of 64"))
    assert database.find("region", "n=9", HOST) == Winner("out0: i:*", 14, "folds of 64")


def test_the_last_winner_stays_and_outlives_the_process(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    database.store("region", "", HOST, Winner("out0: i:*", 12))
    database.store("region", "", HOST, Winner("out0: i:4", 7))
    database.close()
    assert Database(tmp_path / "schedules.sqlite").find("region", "", HOST) == Winner("out0: i:4", 7)


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    path.write_bytes(b"nothing that SQLite knows" * 100)
    database = Database(path)
    database.store("region", "", HOST, Winner("out0: i:*", 12))
    assert database.find("region", "", HOST) == Winner("out0: i:*", 12)
    assert (tmp_path / "schedules.sqlite.damaged").read_bytes().startswith(b"nothing")


def test_damage_that_shows_later_costs_no_result(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    first = Database(path)
    for number in range(200):
        first.store(str(number), "", HOST, Winner("out0: i:*", number))
    first.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    database = Database(path)
    assert database.find("7", "", HOST) is None
    database.store("7", "", HOST, Winner("out0: i:*", 7))
    assert database.find("7", "", HOST) == Winner("out0: i:*", 7)


def test_a_file_that_is_busy_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    database = Database(path)
    database.store("region", "", HOST, Winner("out0: i:*", 12))
    database._connection.execute("pragma busy_timeout=1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    database.store("region", "", HOST, Winner("out0: i:4", 7))
    other.execute("rollback")
    assert database.find("region", "", HOST) == Winner("out0: i:*", 12)
    assert not list(tmp_path.glob("*.damaged"))


def test_threads_share_one_connection(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")

    def store(name: str) -> None:
        for number in range(20):
            database.store(f"{name} {number}", "", HOST, Winner("out0: i:*", number))

    threads = [threading.Thread(target=store, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [database.find(f"{name} {number}", "", HOST) for name in "abcd" for number in range(20)]
    assert found == [Winner("out0: i:*", number) for _ in "abcd" for number in range(20)]


def test_a_machine_is_known_by_its_name_not_by_the_figures_of_a_model(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    database.store("region", "", HOST, Winner("out0: i:*", 12))
    assert database.find("region", "", replace(HOST, bandwidth=1.0)) == Winner("out0: i:*", 12)


def test_the_winner_of_a_wider_search_stays(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    wide = Winner("out0: i:*", 12, candidates=24)
    database.store("region", "", HOST, wide)
    database.store("region", "", HOST, Winner("out0: i:4", 7, candidates=3))
    assert database.find("region", "", HOST) == wide


def test_the_nearest_seed_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    known = [
        ("farthest", "n=9", ELSEWHERE, "old"),
        ("other sizes", "n=9", HOST, "old"),
        ("other source", "n=7", HOST, "old"),
        ("other machine", "n=7", ELSEWHERE, "old"),
    ]
    for schedule, bucket, machine, source in known:
        database = Database(path, source)
        database.store("region", bucket, machine, Winner(schedule, 1))
        database.close()
    database = Database(path, "new")
    database.store("another region", "n=7", HOST, Winner("unrelated", 1))
    seeds = [seed.schedule for seed in database.seeds("region", "n=7", HOST)]
    assert seeds == ["other source", "other machine", "other sizes", "farthest"]
    assert [seed.schedule for seed in database.seeds("region", "n=7", HOST, 1)] == ["other source"]


def test_what_was_imported_is_a_seed_and_never_the_answer(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite", ENTRY.source)
    database.merge([ENTRY])
    assert database.find("region", "n=7", ELSEWHERE) is None
    assert database.seeds("region", "n=7", ELSEWHERE) == [Winner("out0: i:*", 12, "", 0.5, 3)]
    own = Winner("out0: i:4", 7, "", 0.25, 3)
    database.store("region", "n=7", ELSEWHERE, own)
    database.merge([ENTRY])
    assert database.find("region", "n=7", ELSEWHERE) == own
    assert database.seeds("region", "n=7", ELSEWHERE) == [own, Winner("out0: i:*", 12, "", 0.5, 3)]


@pytest.mark.parametrize(
    "best",
    [
        replace(ENTRY, schedule="wider", candidates=4, seconds=0.75),
        replace(ENTRY, schedule="faster", seconds=0.25),
    ],
    ids=lambda entry: entry.schedule,
)
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_imported_winners_the_better_stays_in_any_order(
    best: Entry, turned: bool, tmp_path: Path
) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    for entry in (best, ENTRY) if turned else (ENTRY, best):
        database.merge([entry])
    assert database.entries() == [best]


def test_entries_that_cannot_be_merged_change_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    other = sqlite3.connect(database.path, isolation_level=None)
    database._connection.execute("pragma busy_timeout=1")
    other.execute("begin immediate")
    with pytest.raises(CacheFileError, match=r"nothing was imported into .*locked"):
        database.merge([ENTRY])
    other.execute("rollback")
    assert database.entries() == []


def test_timings_are_those_of_a_machine_and_the_last_ones(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite", "source")
    winner = Winner("out0: i:*", 12)
    database.store("region", "n=3", HOST, winner, [timing(1), timing(2)])
    database.store("region", "n=3", ELSEWHERE, winner, [timing(3)])
    assert database.timings(HOST) == [timing(1), timing(2)]
    database.store("region", "n=3", HOST, winner, [replace(timing(1), seconds=0.125, estimate=None)])
    assert database.timings(HOST) == [timing(1, 0.125), timing(2)]
    assert database.counts() == [
        Count("cpu elsewhere", 2, "source", 1, 0, 1),
        Count("cpu here", 2, "source", 1, 0, 2),
    ]


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINNERS", 3)
    monkeypatch.setattr(module, "TIMINGS", 2)
    monkeypatch.setattr(module, "CHECK_EVERY", 2)  # the first, the third, the fifth
    database = Database(tmp_path / "schedules.sqlite")
    database.merge([ENTRY])
    for number in range(5):
        database.store(f"region {number}", "", HOST, Winner("out0: i:*", number), [timing(number)])
    assert [entry.region for entry in database.entries()] == ["region 2", "region 3", "region 4"]
    assert database.timings(HOST) == [timing(3), timing(4)]
    (regions,) = database._connection.execute("select count(*) from regions").fetchone()
    assert regions == 2


def test_where_there_can_be_no_file_results_live_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database = Database(tmp_path / "file" / "schedules.sqlite")
    database.store("region", "", HOST, Winner("out0: i:*", 12))
    assert database.find("region", "", HOST) == Winner("out0: i:*", 12)
    with pytest.raises(CacheFileError, match=r"nothing was imported: .* cannot be written"):
        database.merge([ENTRY])


def store_many(path: Path, name: str) -> None:
    """What each of several processes does; at the end it finds all that it has stored."""
    database = Database(path, "source")
    for number in range(40):
        database.store(f"{name} {number}", "n=7", HOST, Winner("out0: i:*", number), [timing(number)])
    found = [database.find(f"{name} {number}", "n=7", HOST) for number in range(40)]
    assert found == [Winner("out0: i:*", number) for number in range(40)]


def test_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=store_many, args=(path, name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    database = Database(path, "source")
    assert all(database.find(f"{name} {number}", "n=7", HOST) for name in "abc" for number in range(40))
    assert not list(tmp_path.glob("*.damaged"))


WRITER = """
import sys
from pathlib import Path
from luminal.search.database import Database, Winner
from luminal.search.machine import Machine
database = Database(Path(sys.argv[1]), "source")
host = Machine(8, 16, threads=2, target="cpu here")
"""
FOR_EVER = """
number = 0
while True:
    database.store(f"region {number}", "", host, Winner("out0: i:*", number))
    print(number, flush=True)
    number += 1
"""
IN_THE_MIDDLE = """
database.store("region 0", "", host, Winner("out0: i:*", 0))
connection = database._connection
connection.execute("pragma cache_size=1")  # what is not committed reaches the file all the same
connection.execute("begin immediate")
connection.execute("update winners set schedule='lost'")
for number in range(2000):
    row = (f"lost {number}", "", "cpu here", 2, "source", "out0: i:*" * 20, 1, "", 0.5, 1, 0)
    connection.execute("insert into winners values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
print(0, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("body", [FOR_EVER, IN_THE_MIDDLE], ids=["between", "in the middle"])
def test_a_writer_that_is_killed_leaves_what_it_committed(body: str, tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER + body, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout is not None
    written = [int(writer.stdout.readline()) for _ in range(25 if body is FOR_EVER else 1)]
    os.kill(writer.pid, signal.SIGKILL)
    written += [int(line) for line in writer.stdout.read().splitlines()]
    assert writer.wait(60) == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size
    database = Database(path, "source")
    found = [database.find(f"region {number}", "", HOST) for number in written]
    assert found == [Winner("out0: i:*", number) for number in written]
    assert len(database.entries()) - len(written) in ((0, 1) if body is FOR_EVER else (0,))
    assert database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    database.store("after", "", HOST, Winner("out0: i:*", 1))
    assert database.find("after", "", HOST) == Winner("out0: i:*", 1)
    assert not list(tmp_path.glob("*.damaged"))
