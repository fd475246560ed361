"""The object cache: whatever is not whole is compiled again, and processes share it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from luminal.emit_cpu import cache
from luminal.emit_cpu.jit import Target, load_object

HOST = Target.host()
TEXT = "define i32 @answer() {{\n  ret i32 {}\n}}\n"


def answer(image: bytes) -> int:
    library = load_object(image, ["answer"])
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(library["answer"])())


def entry_path(directory: Path, text: str) -> Path:
    key = cache.object_key(text, HOST)
    return directory / "objects" / key[:2] / key


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_time_nothing_is_compiled(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.format(41)
    image, found = cache.cached_object(text, HOST)
    assert (answer(image), found) == (41, False)
    monkeypatch.setattr(cache, "compile_object", None)
    assert cache.cached_object(text, HOST) == (image, True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: b"",
        lambda entry: entry[:40],
        lambda entry: entry[:-1],
        lambda entry: entry + b"\0",
        lambda entry: entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:],
        lambda entry: b"luminal object 0\n" + entry[17:],
        lambda entry: entry[:17] + bytes(32) + entry[49:],
    ],
    ids=["empty", "cut in the header", "cut", "longer", "one bit", "another version", "another key"],
)
def test_a_damaged_entry_is_replaced(directory: Path, damage: object) -> None:
    text = TEXT.format(42)
    cache.cached_object(text, HOST)
    path = entry_path(directory, text)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    again, found = cache.cached_object(text, HOST)
    assert not found and answer(again) == 42
    assert cache.cached_object(text, HOST) == (again, True)


def test_keys_tell_processors_and_texts_apart() -> None:
    keys = {
        cache.object_key(TEXT.format(n), target)
        for n in (1, 2)
        for target in (HOST, Target.avx2(), Target.aarch64())
    }
    assert len(keys) == len(
        {(n, target) for n in (1, 2) for target in (HOST, Target.avx2(), Target.aarch64())}
    )


def test_the_oldest_go_first(directory: Path) -> None:
    root = directory / "objects"
    for number in range(4):
        key = f"{number:02x}" + "0" * 62
        cache.write_entry(key, bytes(1000), directory)
        os.utime(root / key[:2] / key, (number, number))
    assert cache.read_entry("00" + "0" * 62, directory) is not None  # a read makes it the newest
    cache.evict(root, 2500)
    left = sorted(path.name[:2] for path in root.glob("*/*"))
    assert left == ["00", "03"]


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(blocker / "cache"))
    image, found = cache.cached_object(TEXT.format(43), HOST)
    assert answer(image) == 43 and not found


def test_no_temporary_file_stays(directory: Path) -> None:
    cache.cached_object(TEXT.format(44), HOST)
    assert [path.name[0] for path in (directory / "objects").glob("*/*")] != ["."]
    assert not list((directory / "objects").glob("*/.*"))


WORKER = """
import sys
sys.path.insert(0, {tests!r})
from test_cache import TEXT, HOST, answer, cache, entry_path
from pathlib import Path
import contextlib
import os
for turn in range(3):
    for number in range(12):
        text = TEXT.format(100 + number)
        image, _ = cache.cached_object(text, HOST)
        assert answer(image) == 100 + number
        path = entry_path(Path(os.environ["LUMINAL_CACHE_DIR"]), text)
        if (number + turn) % 3 == 0:
            with contextlib.suppress(FileNotFoundError):  # another worker took it away
                path.write_bytes(path.read_bytes()[: 50 + number])
        elif (number + turn) % 3 == 1:
            path.unlink(missing_ok=True)
"""


def test_four_processes_that_damage_and_repair_at_once(directory: Path) -> None:
    script = WORKER.format(tests=str(Path(__file__).parent))
    workers = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(4)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors.decode()
    for number in range(12):
        assert answer(cache.cached_object(TEXT.format(100 + number), HOST)[0]) == 100 + number
