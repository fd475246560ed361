"""Options of the long search, and one small graph end to end: it keeps to its budget, and a second start finds all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from luminal import dump
from luminal.compiler import compile_module
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.errors import OptionError
from luminal.explain_html import page
from luminal.options import CompileOptions
from luminal.plan import choosers
from luminal.search.mutations import mutations
from luminal.search.profile import Budget
from luminal.search.record import RegionRecord, SearchRecord
from tests.search.test_warm_start import PROGRAM


def test_a_second_long_search_finds_what_the_first_one_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LUMINAL_THREADS", "1")
    monkeypatch.setattr(choosers, "BUDGETS", {"default": Budget(24, 1.0, 0.001)})
    found: list[RegionRecord] = []
    add = SearchRecord.add
    monkeypatch.setattr(SearchRecord, "add", lambda self, each: (found.append(each), add(self, each)))
    namespace: dict[str, object] = {}
    exec(PROGRAM, namespace)
    levels: list[dump.Levels] = []
    options = {"budget": 8.0, "seed": 1, "buckets": "declared"}
    for source in ("timed", "database"):
        choosers._database.cache_clear()  # as another process
        shutil.rmtree(tmp_path / "objects", ignore_errors=True)
        found.clear()
        with dump.collect() as levels_of_one:
            compile_module(namespace["module"](), options=options)  # type: ignore[operator]
        levels += levels_of_one
        assert source in {record.source for record in found}
    assert not any(record.outcomes for record in found)
    first, second = levels
    pages = [page([each], 1e11, 1e10) for each in levels]
    assert all("<h3>The outer search</h3>" in each for each in pages)
    assert re.search(
        r"\d+ ways to cut the graph, \d+ candidates timed, \S+ s of 7.2 s; all kernels", pages[0]
    )
    assert "the cuts that an earlier one found" in pages[1]
    assert "outer search: " in first["search"] and " s of 7.2 s; " in first["search"]
    assert "outer search: the cuts that an earlier one found" in second["search"]
    for level in ("regions", "schedules", "llvm", "plan"):
        assert first[level] == second[level]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1.0}, "budget must be a number of seconds, 0 or more, not -1.0"),
        ({"budget": float("inf")}, "budget must be a number of seconds"),
        ({"timeout": "long"}, "timeout must be a number of seconds, 0 or more, not 'long'"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"verify": "none"}, "verify 'none' is not known; known are 'full', 'ordinary'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CompileOptions.of(options)


def test_what_changes_the_program_is_part_of_the_key() -> None:
    plain = CompileOptions()
    assert plain.key == CompileOptions(timeout=5.0, verify="ordinary").key
    assert len({plain.key, CompileOptions(budget=1.0).key, CompileOptions(seed=1).key}) == 3


def test_mutations_change_one_factor_or_the_order_of_two_loops_or_how_many_are_parallel() -> None:
    schedule = parse_schedule(
        "out0: i:*:parallel@ic j:* k:* i:8:tile j:16:lane; keep %3 as i:8 at ic: i:8 k:*"
    )
    found = [str(changed) for changed in mutations(schedule, threads=2)]
    assert found == [
        "out0: i:*:parallel@ic j:* k:* i:16:tile j:16:lane; keep %3 as i:16 at ic: i:16 k:*",
        "out0: i:*:parallel@ic j:* k:* i:4:tile j:16:lane; keep %3 as i:4 at ic: i:4 k:*",
        "out0: i:*:parallel@ic k:* j:* i:8:tile j:16:lane; keep %3 as i:8 at ic: i:8 k:*",
        "out0: i:*@ic j:* k:* i:8:tile j:16:lane; keep %3 as i:8 at ic: i:8 k:*",
        "out0: i:*:parallel@ic j:*:parallel k:* i:8:tile j:16:lane; keep %3 as i:8 at ic: i:8 k:*",
    ]
    assert [str(changed) for changed in mutations(schedule, threads=1)] == found[:-2]


def test_a_mutation_fetches_packed_constants_ahead_or_no_longer() -> None:
    plain = "out0: j:*@panel i:*@rows k:* i:4:tile j:8:lane; keep %1 packed j:* k:* j:8 at kernel: ."
    ahead = plain.replace("packed", "ahead")
    for before, after in ((plain, ahead), (ahead, plain)):
        assert after in [str(changed) for changed in mutations(parse_schedule(before), threads=1)]
    kept = (
        "out0: j:*@panel i:*@rows k:* i:4:tile j:8:lane; keep %1 as j:* k:* j:8 at kernel: j:* k:* j:8:lane"
    )
    assert not any("ahead" in str(changed) for changed in mutations(parse_schedule(kept), threads=1))
