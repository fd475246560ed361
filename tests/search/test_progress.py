"""The live line of a search: what it says, and where it is not shown."""

from __future__ import annotations

import io
import re
import sys

import pytest

from luminal import progress
from luminal.search.candidates import legal_candidates
from luminal.search.chooser import Choice
from luminal.search.machine import Machine
from luminal.search.profile import Budget, Outcome
from luminal.search.record import Considered, Enumeration, RegionRecord, SearchRecord
from luminal.search.samples import Samples
from tests.kernel import regions

HOST = Machine(4, 16)
REGION = regions.matmul(8, 8, 8)
BUDGET = Budget(candidates=3, seconds=10.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def searched(record: SearchRecord, key: str, times: list[float], source: str = "timed") -> None:
    """Search a region as a chooser does, with times that are given."""
    seen = record.begin(key)
    found = legal_candidates(REGION, HOST, Samples({}), seen=seen)
    outcomes = [Outcome(next(found)[0], seconds) for seconds in times]
    choice = Choice(outcomes[0].candidate.schedule, 1)
    seen.refused.append((outcomes[0].candidate, "why not"))
    considered = Considered.of(seen, outcomes, HOST)
    record.add(RegionRecord(key, REGION, {}, choice, source, tuple(outcomes), 1.0, considered))


def test_the_line_tells_how_far_the_search_is() -> None:
    line = progress.ProgressLine(3, BUDGET)
    record = SearchRecord(listeners=[line])
    assert re.fullmatch(
        r"search 0/3 \| 0 timed, 0 slower, 0 illegal \| 0\.\d s, 30 s left",
        line.text(),
    )
    searched(record, "abcdefghij", [3e-6, 2e-6, 4e-6])
    text = line.text()
    assert text.startswith("search 1/3 | 3 timed, 2 slower, 1 illegal | best 2.0 us | ")
    assert text.endswith(" s, 20 s left") and len(text) < 80
    seen = record.begin("next")
    next(legal_candidates(REGION, HOST, Samples({}), seen=seen))
    assert "| 4 timed" in line.text()
    searched(record, "known", [5e-6], "database")
    assert "2/3 | 3 timed" in line.text()
    searched(record, "last", [5e-6])
    assert "3/3 |" in line.text() and " 0 s left" in line.text()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_terminal_shows_it_at_once_or_when_it_takes_long(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("LUMINAL_PROGRESS", raising=False)
    record = SearchRecord()
    with progress.shown(record, 2, BUDGET, at_once):
        searched(record, "first", [1e-6])
    assert ("search 1/2" in terminal.getvalue()) is at_once
    assert not record.listeners
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress.shown(record, 2, BUDGET, at_once):
        searched(record, "second", [1e-6])
    assert "search 1/2 |" in terminal.getvalue()


@pytest.mark.parametrize("reason", ["no terminal", "turned off"])
def test_it_is_not_shown(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO() if reason == "no terminal" else Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("LUMINAL_PROGRESS", "1" if reason == "no terminal" else "0")
    record = SearchRecord()
    with progress.shown(record, 1, BUDGET, True):
        searched(record, "only", [1e-6])
    assert stream.getvalue() == "" and not record.listeners


def test_what_is_considered_prints_and_parses() -> None:
    seen = Enumeration()
    found = legal_candidates(REGION, HOST, Samples({}), seen=seen)
    outcomes = [Outcome(next(found)[0], 1e-6), Outcome(next(found)[0], None)]
    seen.refused.append((seen.candidates[-1], "why not"))
    considered = Considered.of(seen, outcomes, HOST)
    assert Considered.parse(considered.text()) == considered
    assert considered.enumerated == considered.untried + 3
    assert considered.next_estimate is not None
    for text in ("", "[]", "{}", '{"enumerated": 1, "refused": 3, "tried": [], "next_estimate": 1}'):
        assert Considered.parse(text) == Considered()


def test_the_line_tells_how_a_long_search_goes_on() -> None:
    line = progress.ProgressLine(1, BUDGET)
    record = SearchRecord(listeners=[line])
    record.goes_on(12, 34, 5e-5, 41.6)
    assert line.text() == "cuts 12 | 34 timed | best 50.0 us a call | 42 s left"
    searched(record, "only", [5e-6])
    assert line.text().startswith("search 1/1 |")
