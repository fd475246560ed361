"""The regression on measured times: a planted bias is found, a handful of timings moves little, none changes none."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from luminal.dialects.kernel.region_text import region_key, region_text
from luminal.dialects.kernel.terms import Region
from luminal.search.candidates import legal_candidates
from luminal.search.database import Database, Timing, Winner
from luminal.search.generate import Candidate, Generator
from luminal.search.learned import FURTHEST, LearnedModel
from luminal.search.machine import Machine
from luminal.search.ordering import ordered
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes
from tests.kernel import regions

HOST = Machine(8, 16)


def candidates(region: Region, most: int = 60) -> list[Candidate]:
    return [c for c, _ in itertools.islice(legal_candidates(region, HOST, Samples({})), most)]


def bias(candidate: Candidate) -> float:
    """What the machine of these tests has planted: what keeps nothing takes three times as long as the model says."""
    return 1.0 if candidate.schedule.kept else 3.0


def timings(region: Region, found: list[Candidate]) -> list[Timing]:
    return [
        Timing(region_text(region), {}, "source", str(c.schedule), c.form, seconds, seconds * bias(c))
        for c in found
        for seconds in (c.estimate.seconds(HOST),)
    ]


def factors(model: LearnedModel, region: Region, found: list[Candidate]) -> list[float]:
    return [model.factor(region, region_key(region), {}, c) for c in found]


def packing() -> Region:
    return regions.matmul(64, 96, 128)


def test_a_planted_bias_is_found_in_another_region_too() -> None:
    learned_from, asked = packing(), regions.matmul(48, 64, 64)
    model = LearnedModel(timings(learned_from, candidates(learned_from, 200)))
    found = candidates(asked, 200)
    both = {bias(candidate) for candidate in found}
    assert both == {1.0, 3.0}
    for candidate, factor in zip(found, factors(model, asked, found), strict=True):
        # nearer to its own than to the other one, which is three times as far
        assert 1 / 1.5 < factor / bias(candidate) < 1.5, candidate


def test_without_timings_the_models_order_stays() -> None:
    region = regions.matmul(32, 48, 64)
    every = Generator(region, HOST, Shapes(region, {})).suggested()
    model = LearnedModel()
    assert set(factors(model, region, every)) == {1.0}
    corrected = ordered(every, HOST, lambda c: model.factor(region, region_key(region), {}, c))
    assert corrected == ordered(every, HOST)


def test_a_corrected_order_puts_last_what_is_slow() -> None:
    region = packing()
    every = [c for c in candidates(region, 200) if c.kind != "scalar"]
    model = LearnedModel(timings(region, every))
    corrected = ordered(every, HOST, lambda c: model.factor(region, region_key(region), {}, c))
    seconds = [c.estimate.seconds(HOST) * bias(c) for c in corrected]
    assert seconds[0] <= 1.1 * min(seconds)
    assert bias(ordered(every, HOST)[0]) == 3.0


def test_a_handful_of_timings_moves_little() -> None:
    region = regions.matmul(64, 96, 128)
    found = candidates(region)
    one = found[0]
    model = LearnedModel()
    model.add(region, region_key(region), {}, one, 1e-6, 1e-4)
    assert 1.0 < factors(model, region, [one])[0] < math.exp(FURTHEST / 2)
    for _ in range(200):
        model.add(region, region_key(region), {}, one, 1e-6, 1e-4)
    assert factors(model, region, [one])[0] == pytest.approx(math.exp(FURTHEST), rel=0.1)


def test_the_same_timings_give_the_same_answers(tmp_path: Path) -> None:
    region = packing()
    found = candidates(region)
    database = Database(tmp_path / "schedules.sqlite", "source")
    database.store(region_key(region), "", HOST, Winner("", 1), timings(region, found))
    first, second = (factors(LearnedModel(database.timings(HOST)), region, found) for _ in range(2))
    assert first == second and len(set(first)) > 1


@pytest.mark.parametrize("damaged", ["region", "schedule", "estimate", "seconds"])
def test_timings_that_cannot_be_read_teach_nothing(damaged: str) -> None:
    region = regions.matmul(8, 8, 8)
    (timing,) = timings(region, candidates(region, 1))
    values = {name: getattr(timing, name) for name in Timing.__slots__}
    values[damaged] = {"region": "nonsense", "schedule": ":", "estimate": None, "seconds": 0.0}[damaged]
    model = LearnedModel([Timing(**values)])
    assert factors(model, region, candidates(region, 1)) == [1.0]
