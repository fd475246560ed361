"""A second start with the same database: nothing is searched, and the program is the same to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from luminal.compiler import compile_module
from luminal.plan import choosers
from luminal.search.database import FILE_NAME
from luminal.search.profile import Budget
from luminal.search.record import RegionRecord, SearchRecord
from tests.search.seeds import outputs_of_seeds

PROGRAM = """
import luminal as lm
from luminal import dump
from luminal.compiler import compile_module
from luminal.runtimes.reference import ReferenceRuntime

def module():
    cx = lm.Graph()
    s = lm.dim("s", min=1, max=512)
    x, w, b = cx.tensor((s, 8)), cx.tensor((8, 16)), cx.tensor((16,))
    y = (x.matmul(w) + b).relu()
    y.matmul(y.permute(1, 0)).softmax(-1).matmul(y).output()
    cx.build_search_space(ReferenceRuntime)
    return cx._space.module

if __name__ == "__main__":
    with dump.collect() as levels:
        compile_module(module())
    print(*(f"==== {name}\\n{text}" for name, text in levels[0].items()), sep="\\n")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LUMINAL_THREADS", "1")
    return tmp_path


def test_a_warm_start_searches_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[RegionRecord] = []
    monkeypatch.setattr(SearchRecord, "add", lambda _, record: found.append(record))
    monkeypatch.setattr(choosers, "BUDGETS", {"default": Budget(candidates=3)})
    namespace: dict[str, object] = {}
    exec(PROGRAM, namespace)
    for source in ("timed", "database"):
        choosers._database.cache_clear()  # as another process
        shutil.rmtree(cache / "objects", ignore_errors=True)
        compile_module(namespace["module"]())  # type: ignore[operator]
        assert {record.source for record in found} == {source}
        assert source == "timed" or not any(record.outcomes for record in found)
        found.clear()
    assert (cache / FILE_NAME).exists()


def test_the_same_database_gives_the_same_program_under_any_hash_seed(cache: Path) -> None:
    outputs_of_seeds(PROGRAM, ("3",))
    first, second = outputs_of_seeds(PROGRAM)
    for level in ("hlo", "primitive", "regions", "schedules", "placed", "llvm", "plan"):
        assert f"==== {level}\n" in first
    assert first == second
