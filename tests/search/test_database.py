"""The file of winning schedules: what is stored is found, by many processes at once, and damage costs no result."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

from luminal.search.database import Database, Winner
from luminal.search.machine import Machine

HOST = Machine(8, 16)
WRITER = """
import sys
from pathlib import Path
from luminal.search.database import Database, Winner
from luminal.search.machine import Machine
database = Database(Path(sys.argv[1]))
for number in range(40):
    database.store(f"{sys.argv[2]} {number}", "n=7", Machine(8, 16), Winner("out0: i:*", number), 0.5)
    assert database.find(f"{sys.argv[2]} {number}", "n=7", Machine(8, 16)) == Winner("out0: i:*", number)
"""


def test_what_is_stored_is_found_by_its_whole_key(tmp_path: Path) -> None:
    database = Database(tmp_path / "deep" / "schedules.sqlite")
    assert database.find("region", "n=7", HOST) is None
    database.store("region", "n=7", HOST, Winner("out0: i:*", 12), 0.5)
    database.store("region", "n=8", HOST, Winner("out0: i:* j:*", 13), 0.5)
    assert database.find("region", "n=7", HOST) == Winner("out0: i:*", 12)
    assert database.find("region", "n=8", HOST) == Winner("out0: i:* j:*", 13)
    assert database.find("other", "n=7", HOST) is None
    assert database.find("region", "n=7", Machine(16, 32)) is None
    database.store("region", "n=9", HOST, Winner("out0: i:*", 14, "folds of 64"), 0.5)
    assert database.find("region", "n=9", HOST) == Winner("out0: i:*", 14, "folds of 64")


def test_the_last_winner_stays_and_outlives_the_process(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    database.store("region", "", HOST, Winner("out0: i:*", 12), 0.5)
    database.store("region", "", HOST, Winner("out0: i:4", 7), 0.25)
    database.close()
    assert Database(tmp_path / "schedules.sqlite").find("region", "", HOST) == Winner("out0: i:4", 7)


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    path.write_bytes(b"nothing that SQLite knows" * 100)
    database = Database(path)
    database.store("region", "", HOST, Winner("out0: i:*", 12), 0.5)
    assert database.find("region", "", HOST) == Winner("out0: i:*", 12)
    assert (tmp_path / "schedules.sqlite.damaged").read_bytes().startswith(b"nothing")


def test_damage_that_shows_later_costs_no_result(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    first = Database(path)
    for number in range(200):
        first.store(str(number), "", HOST, Winner("out0: i:*", number), 0.5)
    first.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    database = Database(path)
    assert database.find("7", "", HOST) is None
    database.store("7", "", HOST, Winner("out0: i:*", 7), 0.5)
    assert database.find("7", "", HOST) == Winner("out0: i:*", 7)


def test_a_file_that_is_busy_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    database = Database(path)
    database.store("region", "", HOST, Winner("out0: i:*", 12), 0.5)
    database._connection.execute("pragma busy_timeout=1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    database.store("region", "", HOST, Winner("out0: i:4", 7), 0.25)
    other.execute("rollback")
    assert database.find("region", "", HOST) == Winner("out0: i:*", 12)
    assert not list(tmp_path.glob("*.damaged"))


def test_threads_share_one_connection(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")

    def store(name: str) -> None:
        for number in range(20):
            database.store(f"{name} {number}", "", HOST, Winner("out0: i:*", number), 0.5)

    threads = [threading.Thread(target=store, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [database.find(f"{name} {number}", "", HOST) for name in "abcd" for number in range(20)]
    assert found == [Winner("out0: i:*", number) for _ in "abcd" for number in range(20)]


def test_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "schedules.sqlite"
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    database = Database(path)
    assert all(database.find(f"{name} {number}", "n=7", HOST) for name in "abc" for number in range(40))
    assert not list(tmp_path.glob("*.damaged"))
