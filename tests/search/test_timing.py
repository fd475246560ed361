"""When one kernel counts as faster than another, who wins, and which results are doubted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import SoundnessError
from luminal.search import timing
from luminal.search.generate import Candidate
from luminal.search.profile import Budget, Outcome, suspicious, winner
from luminal.search.roofline import Estimate
from luminal.search.timing import LEAST_ROUNDS, interleave, is_faster
from luminal.search.trial_data import KINDS
from tests.search.test_chooser import Array, Interpreter, Kernel, choose, small


def outcome(*times: float, estimate: float = 1e-6, reason: str = "") -> Outcome:
    candidate = Candidate(parse_schedule("out0: i:*"), (Estimate(estimate, 4),), "scalar")
    return Outcome.of(candidate, times) if times else Outcome(candidate, None, reason)


@pytest.mark.parametrize(
    ("challenger", "incumbent", "faster"),
    [
        ([1.0, 1.1, 1.2], [1.3, 1.4, 1.45], True),
        ([1.0, 1.1, 1.35], [1.3, 1.4, 1.45], False),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], False),
        ([1.0], [1.2], False),
        ([1.0], [1.6], True),
        ([1.0, 1.0, 9.0], [1.6], True),
        ([1.3, 1.4, 1.5], [1.0, 1.1, 1.2], False),
    ],
)
def test_faster_is_what_is_faster_for_certain(
    challenger: list[float], incumbent: list[float], faster: bool
) -> None:
    assert is_faster(challenger, incumbent) == faster


def test_equal_kernels_seldom_beat_each_other_and_faster_ones_nearly_always() -> None:
    draw = np.random.default_rng(0)
    wins = {1.0: 0, 0.95: 0}
    for factor in wins:
        for _ in range(400):
            one, other = draw.normal(1, 0.04, (2, 25))
            wins[factor] += is_faster((factor * one).tolist(), other.tolist())
    assert wins[1.0] < 0.08 * 400
    assert wins[0.95] > 0.95 * 400


def test_the_first_stays_unless_another_is_faster_for_certain() -> None:
    first, near, far = outcome(1.0, 1.1, 1.2), outcome(0.95, 1.0, 1.3), outcome(0.8, 0.81, 0.9)
    assert winner([first, near]) is first
    assert winner([first, near, far]) is far
    assert winner([near, first]) is near
    assert winner([outcome(reason="crashed"), near, first]) is near
    assert winner([outcome(reason="crashed"), outcome(reason="hung")]) is None
    alone = outcome()
    assert winner([alone]) is alone


def test_kernels_run_in_turn_and_each_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    order: list[str] = []
    runs = [lambda name=name: order.append(name) for name in "ab"]
    times = interleave(runs, 0.0, lambda position: order.append(str(position)))
    assert order == ["0", "a", "1", "b"] * 3
    assert [len(each) for each in times] == [3, 3]


def test_results_that_are_too_good_are_doubted() -> None:
    """Against the others, and against what the model expects of all threads."""
    assert suspicious([outcome(1.0, 1.0), outcome(0.3, 0.3)], 2) == []
    assert suspicious([outcome(1.0, 1.0), outcome(0.2, 0.2)], 2) == [1]
    assert suspicious([outcome(1.0, estimate=4.0), outcome(1.0, estimate=9.0)], 2) == [1]
    assert suspicious([outcome(reason="hung"), outcome(1.0)], 2) == []


class Lazy(Interpreter):
    """Its third kernel computes while it is compared, and nothing any more when it is timed."""

    def compile(self, region: Region, schedule: Schedule, cost: int) -> Kernel:
        kernel = super().compile(region, schedule, cost)
        if len(self.kernels) != 3:
            return kernel
        run = kernel.run

        def lazy(
            arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
        ) -> None:
            if kernel.runs < 4:
                run(arguments, outputs, dims, threads)

        kernel.run = lazy  # pyright: ignore[reportAttributeAccessIssue]
        return kernel


def test_a_result_that_is_too_good_is_compared_again_on_fresh_data() -> None:
    measurer = Lazy(delays=[0.02] * 4)
    with pytest.raises(SoundnessError, match="fresh data") as caught:
        choose(measurer, small(), Budget(3, 60.0, 0.0))
    assert str(measurer.schedules[2]) in str(caught.value)
    assert region_text(small()) in str(caught.value)


def test_what_is_good_without_being_wrong_is_timed_again_and_wins() -> None:
    measurer = Interpreter(delays=[0.5, 0.5, 0.0])
    choice = choose(measurer, small(), Budget(3, 60.0, 0.0))
    assert choice.schedule == measurer.schedules[2]
    checked = 1 + len(KINDS)
    assert measurer.kernels[2].runs == 2 * (checked + LEAST_ROUNDS)
