"""Choosing a schedule: what is timed has been verified, budgets hold, and a remembered winner is not timed again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.dialects.kernel.placed_interpreter import interpret_placed
from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.dialects.kernel.region_text import region_key, region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import dim
from luminal.errors import ScheduleError, SoundnessError
from luminal.passes.place import place
from luminal.search import candidates as legal
from luminal.search.candidates import legal_candidates, plain_candidate
from luminal.search.chooser import ModelChooser, TimedChooser
from luminal.search.database import Database, Winner
from luminal.search.machine import Machine
from luminal.search.profile import Budget, LocalProfiler
from luminal.search.samples import Samples
from luminal.search.timing import LEAST_ROUNDS
from luminal.search.trial_data import KINDS
from tests.kernel import regions

HOST = Machine(4, 16)
Array = np.ndarray[Any, Any]


class Kernel:
    """Runs in the placed interpreter; a wrong one adds to the first output, a slow one sleeps."""

    def __init__(self, function: FunctionOp, error: float, delay: float) -> None:
        self.function, self.error, self.delay, self.runs = function, error, delay, 0

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        self.runs += 1
        time.sleep(self.delay)
        interpret_placed(self.function, [*arguments, *outputs], dims)
        outputs[0][...] += self.error


class Interpreter:
    """Compiles for the placed interpreter; `wrong` and `delays` say which candidates, by number, are wrong or slow."""

    def __init__(self, wrong: int = -1, delays: Sequence[float] = ()) -> None:
        self.wrong, self.delays = wrong, delays
        self.kernels: list[Kernel] = []
        self.schedules: list[Schedule] = []

    def compile(self, region: Region, schedule: Schedule, cost: int) -> Kernel:
        number = len(self.kernels)
        delay = self.delays[number] if number < len(self.delays) else 0.0
        function = place(region, schedule, "kernel", ["contract", "reassociate"])
        self.kernels.append(Kernel(function, 1.0 if number == self.wrong else 0.0, delay))
        self.schedules.append(schedule)
        return self.kernels[-1]

    def place(self, array: Array) -> Array:
        return array


def choose(measurer: Interpreter, region: Region, budget: Budget, database: Database | None = None):
    return TimedChooser(HOST, LocalProfiler(measurer), database, budget).choose(
        region, region_key(region), Samples({})
    )


def small() -> Region:
    return regions.matmul(8, 8, 8)


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_wrong_kernel_is_an_error_that_shows_it(wrong: int) -> None:
    measurer = Interpreter(wrong)
    with pytest.raises(SoundnessError, match="differs from the reference") as caught:
        choose(measurer, small(), Budget(4, 60.0, 0.0))
    assert str(measurer.schedules[wrong]) in str(caught.value)
    assert len(measurer.kernels) == wrong + 1


def test_the_fastest_wins() -> None:
    measurer = Interpreter(delays=[0.4, 0.4, 0.0, 0.4])
    choice = choose(measurer, small(), Budget(4, 60.0, 0.0))
    assert choice.schedule == measurer.schedules[2]
    assert choice.cost >= 1


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_no_more_candidates_are_timed_than_the_budget_allows(candidates: int) -> None:
    measurer = Interpreter()
    found = TimedChooser(HOST, LocalProfiler(measurer), None, Budget(candidates, 60.0, 0.0))
    found.choose(small(), "key", Samples({}))
    assert len(measurer.kernels) == len(found.record.regions["key"].outcomes) == candidates


def test_a_candidate_that_alone_takes_the_seconds_is_the_only_one() -> None:
    measurer = Interpreter(delays=[0.05] * 4)
    choice = choose(measurer, small(), Budget(4, 0.01, 0.0))
    assert len(measurer.kernels) == 1
    assert choice.schedule == measurer.schedules[0]


def test_a_hopeless_candidate_is_not_run_again() -> None:
    measurer = Interpreter(delays=[0.0, 0.4])
    choose(measurer, small(), Budget(2, 60.0, 0.3))
    verified = 1 + len(KINDS)
    at_most = verified + LEAST_ROUNDS - 1
    assert measurer.kernels[1].runs <= at_most < measurer.kernels[0].runs


def test_a_remembered_winner_is_not_measured(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite")
    first = choose(Interpreter(), small(), Budget(2, 60.0, 0.0), database)
    again = Interpreter(wrong=0)
    assert choose(again, small(), Budget(2, 60.0, 0.0), database) == first
    assert not again.kernels


def test_sizes_of_one_power_of_two_share_a_winner(tmp_path: Path) -> None:
    region = regions.softmax(dim("m"), 8)
    database = Database(tmp_path / "schedules.sqlite")
    measurer = Interpreter()
    found = TimedChooser(HOST, LocalProfiler(measurer), database, Budget(1, 60.0, 0.0))
    for size, timed in ((5, 1), (7, 1), (9, 2)):
        found.choose(region, "key", Samples({"m": size}))
        assert len(measurer.kernels) == timed


def schedules(region: Region, most: int) -> list[str]:
    """The model's first candidates."""
    every = legal_candidates(region, HOST, Samples({}))
    return [str(candidate.schedule) for candidate, _ in itertools.islice(every, most)]


def seeded(path: Path, winners: Sequence[Winner], source: str = "another source") -> Database:
    """A database that knows winners of the small region, each for sizes of its own, from some source."""
    known = Database(path, source)
    for number, winner in enumerate(winners):
        known.store(region_key(small()), "" if number == 0 else f"n={number}", HOST, winner)
    known.close()
    return Database(path, "this source")


def test_what_is_known_from_elsewhere_is_timed_first_and_beside_the_others(tmp_path: Path) -> None:
    *first, seed = schedules(small(), 5)
    database = seeded(tmp_path / "schedules.sqlite", [Winner(seed, 12)])
    measurer = Interpreter(delays=[0.0, 0.2, 0.2])
    choice = choose(measurer, small(), Budget(2, 60.0, 0.0), database)
    assert [str(schedule) for schedule in measurer.schedules] == [seed, *first[:2]]
    assert str(choice.schedule) == seed
    again = Interpreter()
    assert choose(again, small(), Budget(2, 60.0, 0.0), database) == choice
    assert not again.kernels


def test_a_seed_that_the_model_suggests_too_is_timed_once(tmp_path: Path) -> None:
    first, second, third = schedules(small(), 3)
    database = seeded(tmp_path / "schedules.sqlite", [Winner(second, 12)])
    measurer = Interpreter()
    choose(measurer, small(), Budget(2, 60.0, 0.0), database)
    assert [str(schedule) for schedule in measurer.schedules] == [second, first, third]


def test_no_more_than_two_different_seeds_are_timed(tmp_path: Path) -> None:
    every = schedules(small(), 6)
    known = [Winner(every[number], 12) for number in (2, 2, 3, 4, 5)]
    measurer = Interpreter()
    choose(measurer, small(), Budget(2, 60.0, 0.0), seeded(tmp_path / "schedules.sqlite", known))
    timed = [str(schedule) for schedule in measurer.schedules]
    assert timed[0] == every[2] and timed[1] in every[3:] and timed[2:] == every[:2]


@pytest.mark.parametrize(
    "winner",
    [
        Winner("", 1),
        Winner(": i0:*", 1),
        Winner("out²: i:*", 1),
        Winner("out0: i:* j:*; keep %99 as . at kernel: .", 1),
        Winner("out0: i:* j:* nosuch:*", 1),
        Winner("keep %0 as i:* at kernel: i:*", 1),
        Winner("out0: i:* j:* k:*", 1, "a form that it does not have"),
    ],
    ids=lambda winner: winner.schedule or "empty",
)
@pytest.mark.parametrize("source", ["another source", "this source"])
def test_a_remembered_schedule_that_is_not_legal_is_no_candidate(
    winner: Winner, source: str, tmp_path: Path
) -> None:
    database = seeded(tmp_path / "schedules.sqlite", [winner], source)
    measurer = Interpreter()
    choose(measurer, small(), Budget(2, 60.0, 0.0), database)
    assert [str(schedule) for schedule in measurer.schedules] == schedules(small(), 2)


def test_a_seed_is_not_taken_untimed_however_slow(tmp_path: Path) -> None:
    *_, seed = schedules(small(), 5)
    database = seeded(tmp_path / "schedules.sqlite", [Winner(seed, 12)])
    measurer = Interpreter(delays=[0.05, 0.0])
    choice = choose(measurer, small(), Budget(3, 0.01, 0.0), database)
    assert [str(schedule) for schedule in measurer.schedules] == [seed, str(choice.schedule)]


def test_a_single_candidate_is_the_models_own(tmp_path: Path) -> None:
    first, second = schedules(small(), 2)
    database = seeded(tmp_path / "schedules.sqlite", [Winner(second, 12)])
    assert str(choose(Interpreter(), small(), Budget(1, 60.0, 0.0), database).schedule) == first


def test_a_wider_search_begins_with_what_a_narrower_one_found(tmp_path: Path) -> None:
    database = Database(tmp_path / "schedules.sqlite", "source")
    narrow, wide, narrow_again = Interpreter(delays=[0.2]), Interpreter(), Interpreter()
    found = choose(narrow, small(), Budget(2, 60.0, 0.0), database)
    best = choose(wide, small(), Budget(4, 60.0, 0.0), database)
    assert wide.schedules[0] == found.schedule
    assert len(wide.kernels) == 5
    assert choose(narrow_again, small(), Budget(2, 60.0, 0.0), database) == best
    assert not narrow_again.kernels


def test_every_timed_candidate_is_kept_with_its_estimate(tmp_path: Path) -> None:
    *_, seed = schedules(small(), 5)
    database = seeded(tmp_path / "schedules.sqlite", [Winner(seed, 12)])
    chooser = TimedChooser(HOST, LocalProfiler(Interpreter()), database, Budget(2, 60.0, 0.0))
    chooser.choose(small(), region_key(small()), Samples({}))
    kept = database.timings(HOST)
    outcomes = chooser.record.regions[region_key(small())].outcomes
    assert [timing.seconds for timing in kept] == [outcome.seconds for outcome in outcomes]
    assert [timing.schedule for timing in kept] == [seed, *schedules(small(), 2)]
    assert [timing.estimate is None for timing in kept] == [True, False, False]
    assert {(timing.region, timing.source) for timing in kept} == {(region_text(small()), "this source")}


def test_sizes_that_the_graph_does_not_allow_are_not_run() -> None:
    measurer = Interpreter()
    found = TimedChooser(HOST, LocalProfiler(measurer), None, Budget(4, 60.0, 0.0))
    samples = Samples({}, is_valid=False)
    choice = found.choose(small(), "key", samples)
    assert not measurer.kernels
    assert choice == ModelChooser(HOST).choose(small(), "key", samples)


def test_the_model_takes_the_first_legal_candidate() -> None:
    region = small()
    first, _ = next(iter(legal_candidates(region, HOST, Samples({}))))
    assert ModelChooser(HOST).choose(region, "key", Samples({})).schedule == first.schedule


def test_a_region_without_a_legal_schedule_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ScheduleError("none is")

    monkeypatch.setattr(legal, "place", refuse)
    with pytest.raises(ScheduleError, match="no legal schedule"):
        choose(Interpreter(), small(), Budget())
    with pytest.raises(ScheduleError, match="no legal schedule"):
        ModelChooser(HOST).choose(small(), "key", Samples({}))
    with pytest.raises(ScheduleError, match="no legal schedule"):
        plain_candidate(small(), HOST, {})
