"""The outer search on a made-up machine: it finds what is planted there, keeps to its budget, and never does worse than
the model alone."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from luminal import explain_html
from luminal.dialects.kernel.terms import Region
from luminal.explain_charts import WIDTH, outer_curve
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.region_former import Formed
from luminal.search.chooser import Choice, TimedChooser
from luminal.search.cut_search import LAUNCH_SECONDS, CutSearch
from luminal.search.database import Database
from luminal.search.generate import Candidate
from luminal.search.long_search import LongSearch
from luminal.search.outer import OuterSearch, State
from luminal.search.purse import FOLLOWING, Purse
from luminal.search.region_timer import RegionTimer
from luminal.search.report_text import outer_text, shown_moves
from luminal.search.samples import Samples
from tests.search.once import each_region_once
from tests.search.planted import EACH, PREPARING, Clock, PlantedProfiler, Seconds, noise
from tests.search.test_cut_search import HOST, attention

pytestmark = pytest.mark.xdist_group("outer")  # what one search has placed, the next one finds
BUDGET = 60.0
MOST = 96
CALL = PREPARING + 6 * EACH
"""What one call of the profiler takes at most."""


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """All searches here are of one graph."""
    with each_region_once():
        yield


@pytest.fixture(scope="module")
def partition() -> Partition:
    return Partition.of(attention(length=64))


@pytest.fixture(scope="module")
def model(partition: Partition) -> Cuts:
    """The cuts that the model prefers: attention with its stages merged."""
    found = CutSearch(partition, HOST, Samples({})).run()
    assert found.merged and not initial_cuts(partition).merged
    return found


def merging_is_slow(region: Region, candidate: Candidate) -> float:
    """Stages of one region cost three times what the model says; candidates differ by a little from it."""
    seconds = candidate.estimate.seconds(HOST) * (1 + 0.05 * noise(candidate))
    return 3 * seconds if region.inner else seconds


def as_the_model_says(region: Region, candidate: Candidate) -> float:
    del region
    return candidate.estimate.seconds(HOST)


def search(
    partition: Partition, first: Cuts, seconds: Seconds, seed: int = 0, budget: float = BUDGET
) -> tuple[OuterSearch, State, PlantedProfiler]:
    clock = Clock()
    profiler = PlantedProfiler(seconds, clock)
    timer = RegionTimer(TimedChooser(HOST, profiler), MOST, seed, clock)
    found = OuterSearch(partition, Samples({}), first, timer, budget, clock)
    return found, found.run(), profiler


def planted(partition: Partition, cuts: Cuts, seconds: Seconds) -> float:
    """Seconds of a call under some cuts, with each region under its fastest candidate."""
    prices = CutSearch(partition, HOST, Samples({}))
    chooser = TimedChooser(HOST, PlantedProfiler(seconds, Clock()))
    timer = RegionTimer(chooser, MOST)
    total = 0.0
    for formed in prices.formed_regions(cuts):
        region = timer.open(formed, Samples({}))
        total += LAUNCH_SECONDS + min(seconds(formed.region, c) for c in region.seen.candidates)
    return total


def test_it_finds_cuts_that_the_model_does_not_prefer(partition: Partition, model: Cuts) -> None:
    found, best, _ = search(partition, model, merging_is_slow)
    apart = planted(partition, initial_cuts(partition), merging_is_slow)
    assert planted(partition, model, merging_is_slow) > 1.3 * apart
    assert found.seconds(best) <= 1.05 * apart
    assert any(move.is_made for move in found.moves(best))
    assert any(not move.is_made for move in found.moves(best))


def test_it_finds_a_candidate_that_the_model_does_not_prefer(partition: Partition, model: Cuts) -> None:
    found, best, _ = search(partition, model, as_the_model_says)
    (key,) = (key for key, formed in best.formed.items() if formed.region.inner)
    pool = found.region(key, best).seen.candidates
    favourite = str(pool[40].schedule)
    assert favourite != str(pool[0].schedule)

    def seconds(region: Region, candidate: Candidate) -> float:
        own = as_the_model_says(region, candidate)
        return own / 4 if str(candidate.schedule) == favourite else own

    found, best, _ = search(partition, model, seconds, budget=2 * BUDGET)
    assert str(found.region(key, best).best.schedule) == favourite


def test_a_machine_like_the_model_keeps_the_models_plan(partition: Partition, model: Cuts) -> None:
    found, best, _ = search(partition, model, as_the_model_says)
    assert found.seconds(best) <= found.modelled
    assert len(found.states) > 10


@pytest.mark.parametrize("budget", [0.3, 5.0, 20.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_keeps_to_its_budget_and_is_never_slower_than_the_model(
    budget: float, seed: int, partition: Partition, model: Cuts
) -> None:
    def seconds(region: Region, candidate: Candidate) -> float:
        return candidate.estimate.seconds(HOST) * (0.3 + 2 * noise(candidate))

    found, best, profiler = search(partition, model, seconds, seed, budget)
    assert profiler.clock.now <= budget + CALL
    firsts = {key: found.region(key, found.root).first for key in found.root.counts}
    modelled = sum(
        count * (LAUNCH_SECONDS + seconds(found.root.formed[key].region, firsts[key]))
        for key, count in found.root.counts.items()
    )
    unmeasured = any(not found.region(key, best).is_measured for key in best.counts)
    assert unmeasured == (budget == 0.3)
    if not unmeasured:
        assert found.seconds(best) <= modelled


def test_equal_states_are_met_once(partition: Partition, model: Cuts) -> None:
    found, _, _ = search(partition, model, merging_is_slow)
    counts = [frozenset(state.counts.items()) for state in found.states.values()]
    assert len(counts) == len(set(counts)) > 10


def test_no_candidate_is_timed_twice_but_beside_others(partition: Partition, model: Cuts) -> None:
    found, _, profiler = search(partition, model, merging_is_slow)
    fresh = [name for call in profiler.profiled for name in call[1:]]
    confirmed = sum(len(call) == 2 for call in profiler.profiled)
    assert len(fresh) - len(set(fresh)) <= confirmed + len(found.states)


@pytest.mark.nightly
def test_ten_seeds_time_different_candidates_and_end_within_five_percent(
    partition: Partition, model: Cuts
) -> None:
    ends: list[float] = []
    timed: set[frozenset[str]] = set()
    for seed in range(10):
        found, best, profiler = search(partition, model, merging_is_slow, seed)
        ends.append(found.seconds(best))
        timed.add(frozenset(name for call in profiler.profiled for name in call))
    assert len(timed) == 10
    assert max(ends) <= 1.05 * statistics.median(ends) and min(ends) >= 0.95 * statistics.median(ends)


def test_the_same_seed_times_the_same(partition: Partition, model: Cuts) -> None:
    (_, first, once), (_, second, again) = (search(partition, model, merging_is_slow, 3) for _ in range(2))
    assert once.profiled == again.profiled and first.priced.cuts == second.priced.cuts


# ---- the end


def ending(
    partition: Partition, model: Cuts, gain: float, deviation: float, times: int = 1
) -> tuple[list[bool], list[str]]:
    """Whether other cuts are kept, and what is said of them, where they take so many times as long as the model's."""
    found, best, profiler = search(partition, model, merging_is_slow)
    assert best is not found.root and found.verdict.startswith("best cuts kept: 3 rounds")
    gone, new = found.root.counts - best.counts, best.counts - found.root.counts
    regions, draw = [best.formed[key].region for key in new], random.Random(1)

    def seconds(region: Region, candidate: Candidate) -> float:
        del candidate
        own = gain / sum(new.values()) if region in regions else 1 / sum(gone.values())
        return own * draw.gauss(1.0, deviation) - LAUNCH_SECONDS

    profiler.seconds, found.deadline = seconds, math.inf
    kept, said = list[bool](), list[str]()
    for _ in range(times):
        before = len(profiler.profiled)
        kept.append(found._is_faster(gone, new))
        said.append(found.verdict)
        rounds = int(re.findall(r"(\d+) rounds", found.verdict)[0])
        assert len(profiler.profiled) - before == rounds * (len(gone) + len(new))
    return kept, said


@pytest.mark.parametrize(
    ("gain", "is_kept", "verdict"),
    [
        (
            0.5,
            True,
            r"best cuts kept: 3 rounds in turn with the model's, 0\.5\d* times as long, faster for certain",
        ),
        (0.99, False, r"best cuts given up: 12 rounds .* not faster for certain"),
        (1.5, False, r"best cuts given up: 3 rounds .* slower for certain"),
    ],
)
def test_the_two_plans_are_timed_in_turn_until_that_is_decided(
    gain: float, is_kept: bool, verdict: str, partition: Partition, model: Cuts
) -> None:
    (kept,), (said,) = ending(partition, model, gain, 0.0)
    assert kept == is_kept and re.fullmatch(verdict, said)


def test_noise_hides_no_gain_and_makes_none(partition: Partition, model: Cuts) -> None:
    kept, said = ending(partition, model, 0.85, 0.1, 40)
    assert sum(kept) >= 36 and any("6 rounds" in each or "12 rounds" in each for each in said)
    kept, _ = ending(partition, model, 1.0, 0.1, 40)
    assert sum(kept) <= 8


def test_without_time_for_a_round_the_models_cuts_stay(partition: Partition, model: Cuts) -> None:
    found, best, profiler = search(partition, model, merging_is_slow)
    gone, new = found.root.counts - best.counts, best.counts - found.root.counts
    found.deadline = profiler.clock.now
    assert not found._is_faster(gone, new)
    assert (
        found.verdict == "best cuts given up: 0 rounds in turn with the model's, there was no time for more"
    )


def test_what_is_out_of_reach_needs_no_three_rounds(partition: Partition, model: Cuts) -> None:
    found, best, profiler = search(partition, model, merging_is_slow)
    gone, new = found.root.counts - best.counts, best.counts - found.root.counts
    found.deadline = profiler.clock.now + 2 * CALL
    assert found._is_faster(gone, new)
    assert re.search(r"kept: [12] rounds in turn .*faster for certain", found.verdict)


# ---- with the database


def long(path: Path, budget: float = 20.0) -> tuple[LongSearch, PlantedProfiler]:
    clock = Clock()
    profiler = PlantedProfiler(merging_is_slow, clock)
    database = Database(path / "schedules.sqlite", "source")
    chooser = TimedChooser(HOST, profiler, database, purse=Purse(budget, clock))
    return LongSearch(chooser, MOST), profiler


def choices(long: LongSearch, partition: Partition, cuts: Cuts) -> dict[str, Choice]:
    formed = formed_of(partition, cuts)
    return {each.key: long.choose(each.region, each.key, Samples({})) for each in formed}


def formed_of(partition: Partition, cuts: Cuts) -> list[Formed]:
    return list(CutSearch(partition, HOST, Samples({})).formed_regions(cuts))


def test_what_was_found_is_not_searched_again(partition: Partition, model: Cuts, tmp_path: Path) -> None:
    first, profiler = long(tmp_path)
    cuts = first.cuts("digest", partition, Samples({}), model, 1)
    chosen = choices(first, partition, cuts)
    assert profiler.profiled and cuts != model
    assert {found.source for found in first.chooser.record.regions.values()} == {"timed"}
    again, profiler = long(tmp_path)
    assert again.cuts("digest", partition, Samples({}), model, 1) == cuts
    assert choices(again, partition, cuts) == chosen
    assert not profiler.profiled
    assert {found.source for found in again.chooser.record.regions.values()} == {"database"}
    assert again.chooser.record.outer["digest"].states == 0


def test_the_page_shows_the_curve_and_the_moves(partition: Partition, model: Cuts, tmp_path: Path) -> None:
    search, _ = long(tmp_path)
    search.cuts("digest", partition, Samples({}), model, 1)
    outer = search.chooser.record.outer["digest"]
    assert outer.verdict in outer_text(outer) and outer.verdict.startswith("best cuts kept: ")
    seconds, values = zip(*outer.curve, strict=True)
    assert list(seconds) == sorted(seconds) and seconds[0] > 0 and seconds[-1] <= outer.spent
    assert values[0] > values[-1] and outer.best == pytest.approx(values[-1], rel=0.2)
    svg = re.search("<svg.*</svg>", outer_curve(outer))
    assert svg is not None
    dots = [float(dot.attrib["cx"]) for dot in ElementTree.fromstring(svg[0]).iter("circle")]
    assert dots == sorted(dots) and len(dots) == len(outer.curve) + 1 and dots[-1] <= WIDTH
    assert outer_curve(replace(outer, curve=outer.curve[:1])) == ""
    shown = "".join(explain_html._outer(outer))
    for verdict, kind, is_made in (("made", "chosen", True), ("refused", "rejected", False)):
        what = next(move.what for move in shown_moves(outer) if move.is_made == is_made)
        assert re.search(f'<tr class="{kind}"><td>{verdict}</td>.*<td>{escape(re.escape(what))}</td>', shown)


@pytest.mark.parametrize("other", ["graph", "budget"])
def test_another_graph_or_a_longer_search_is_searched(
    other: str, partition: Partition, model: Cuts, tmp_path: Path
) -> None:
    first, _ = long(tmp_path)
    first.cuts("digest", partition, Samples({}), model, 1)
    again, profiler = long(tmp_path, 40.0 if other == "budget" else 20.0)
    again.cuts("another" if other == "graph" else "digest", partition, Samples({}), model, 1)
    assert profiler.profiled


def test_graphs_of_one_compilation_share_the_budget(
    partition: Partition, model: Cuts, tmp_path: Path
) -> None:
    search, profiler = long(tmp_path)
    search.cuts("digest", partition, Samples({}), model, 4)
    assert profiler.clock.now <= 20.0 / 4 + CALL


def test_what_contests_have_spent_is_not_there_for_cuts(
    partition: Partition, model: Cuts, tmp_path: Path
) -> None:
    search, profiler = long(tmp_path)
    search.purse.left = 7.0
    search.cuts("digest", partition, Samples({}), model, 1)
    spent = profiler.clock.now
    assert 0 < spent <= 7.0 - FOLLOWING * 20.0 + CALL
    assert search.purse.left == pytest.approx(7.0 - spent)


def test_with_an_empty_purse_the_models_cuts_and_first_candidates_are_taken(
    partition: Partition, model: Cuts, tmp_path: Path
) -> None:
    search, profiler = long(tmp_path)
    search.purse.left = 0.0
    assert search.cuts("digest", partition, Samples({}), model, 1) == model
    assert not profiler.profiled and not search.chooser.record.outer
    choices(search, partition, model)
    assert profiler.profiled and {len(call) for call in profiler.profiled} == {1}


def test_what_no_cut_decides_has_what_is_left(partition: Partition, model: Cuts, tmp_path: Path) -> None:
    search, profiler = long(tmp_path)
    search.purse.left = 0.25
    search.prepare([(each.region, each.key, Samples({})) for each in formed_of(partition, model)])
    choices(search, partition, model)
    first, *others = (len(call) for call in profiler.profiled)
    assert first > 1 and set(others) == {1}


def test_sizes_that_the_graph_does_not_allow_are_not_timed(
    partition: Partition, model: Cuts, tmp_path: Path
) -> None:
    search, profiler = long(tmp_path)
    assert search.cuts("digest", partition, Samples({}, (), False), model, 1) == model
    assert not profiler.profiled
