"""Variants of candidates: proposed where they may pay and nowhere else, right, and few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import as_dim, dim
from luminal.dtype import i64
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import cache_bytes, multiply_adds_of
from luminal.search.candidates import is_legal, legal_candidates
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.narrow import NARROW
from luminal.search.roofline import Estimate, bytes_touched
from luminal.search.samples import Samples
from luminal.search.seeds import mutants
from luminal.search.shapes import Shapes
from luminal.search.variants import LEADING
from tests.emit_cpu.test_emit import check
from tests.kernel.regions import Builder, Size, matmul
from tests.kernel.test_place import CASES

HOST = Machine(16, 32, threads=2)
SMALL = replace(HOST, l3=1 << 10)
"""As if the last cache held a kilobyte."""


def candidates(region: Region, machine: Machine, sizes: dict[str, int] | None = None) -> list[Candidate]:
    return [candidate for candidate, _ in legal_candidates(region, machine, Samples(sizes or {}))]


def doubled(rows: Size, columns: Size = 64, offset: int = 0) -> Region:
    """y[i, j] = x[i, j] + x[i, j] + b[j]; y begins so many elements after its memory."""
    b = Builder()
    x = b.read(0, {"i": columns, "j": 1})
    value = b.apply("add", b.apply("add", x, x), b.read(1, {"j": 1}))
    sizes = [as_dim(rows) * columns, as_dim(columns)]
    region = b.region({"i": rows, "j": columns}, [*sizes], [(value, {"i": columns, "j": 1})])
    (output,) = region.outputs
    moved = replace(
        output, elements=output.elements + offset, address=replace(output.address, offset=as_dim(offset))
    )
    return replace(region, outputs=[moved])


def run_natively(region: Region, candidate: Candidate, sizes: dict[str, int] | None = None) -> str:
    """Compare a candidate's code with the interpreter; its text."""
    text = str(candidate.schedule)
    assert parse_schedule(text) == candidate.schedule
    rng = np.random.default_rng(0)
    counts = [argument.elements.evaluate(sizes or {}) for argument in region.arguments]
    inputs = [rng.standard_normal(count).astype(np.float32) for count in counts]
    return check(region, text, inputs, sizes or {}, threads=2, tolerance=1e-4).emitted.text


# ---- stores past the cache


def past_cache(found: list[Candidate]) -> list[Candidate]:
    return [each for each in found if "out0!" in str(each.schedule)]


@pytest.mark.parametrize("rows", [64, dim("m")])
def test_a_result_larger_than_the_last_cache_is_stored_past_it_beside_a_plain_store(rows: Size) -> None:
    sizes = {} if rows == 64 else {"m": 64}
    region = doubled(rows)
    found = candidates(region, SMALL, sizes)
    first, second = found[:2]
    assert str(first.schedule).replace("!", "") == str(second.schedule)
    assert past_cache([first, second]) == [first]
    assert first.estimate.traffic < second.estimate.traffic
    for candidate in past_cache(found):
        assert "!nontemporal" in run_natively(region, candidate, sizes)


def test_vectors_of_two_stores_go_past_the_cache_too() -> None:
    b = Builder(i64)
    x = b.read(0, {"i": 1})
    region = b.region({"i": 1024}, [1024], [(b.apply("add", x, x), {"i": 1})])
    candidate = past_cache(candidates(region, SMALL))[0]
    inputs = [np.arange(1024)]
    found = check(region, str(candidate.schedule), inputs, {}, threads=2)
    assert "store <16 x i64>" in found.emitted.text and "!nontemporal" in found.emitted.text


@pytest.mark.parametrize(
    "why", ["fits the cache", "not aligned", "ragged rows", "updates", "has work to hide it"]
)
def test_what_is_not_stored_past_the_cache(why: str) -> None:
    region, machine = doubled(64), SMALL
    if why == "fits the cache":
        machine = HOST
    elif why == "not aligned":
        region = doubled(64, offset=1)
    elif why == "ragged rows":
        region = doubled(64, columns=60)
    elif why == "updates":
        region = replace(region, outputs=[replace(region.outputs[0], alias=0)])
    else:
        region = matmul(64, 64, 512)
    assert not past_cache(candidates(region, machine))


def test_what_is_read_beside_a_result_takes_its_part_of_the_last_cache() -> None:
    touched = sum(bytes_touched(Shapes(doubled(64), {})))
    assert past_cache(candidates(doubled(64), replace(HOST, l3=touched)))
    assert not past_cache(candidates(doubled(64), replace(HOST, l3=2 * touched)))


def test_a_mutation_stores_past_the_cache_or_no_longer() -> None:
    region = doubled(64)
    plain, *_ = candidates(region, HOST)
    (changed,) = past_cache(list(mutants(plain, region, Samples({}), SMALL)))
    assert str(changed.schedule).replace("!", "") == str(plain.schedule)
    assert plain.schedule in [each.schedule for each in mutants(changed, region, Samples({}), SMALL)]
    assert not past_cache(list(mutants(plain, region, Samples({}), HOST)))


def test_only_some_processors_begin_one_multiply_add_of_their_widest_vectors_a_cycle() -> None:
    narrow = Target.avx2()
    assert multiply_adds_of(replace(narrow, cpu="znver4")) == 2
    assert multiply_adds_of(replace(narrow, cpu="znver4", vector_bits=512)) == 1
    assert multiply_adds_of(replace(narrow, cpu="sapphirerapids", vector_bits=512)) == 2


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    listed = [
        ("1", "Data", "32K"),
        ("1", "Instruction", "64K"),
        ("2", "Unified", "1024K"),
        ("3", "Unified", "32768K"),
    ]
    for number, entry in enumerate(listed):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), entry):
            (folder / name).write_text(f"{text}\n")
    assert cache_bytes(tmp_path) == {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
    (tmp_path / "index3" / "size").unlink()
    assert cache_bytes(tmp_path) == {1: 32 << 10, 2: 1 << 20}
    assert cache_bytes(tmp_path / "none") == {}


# ---- fewer parallel loops


def depth(candidate: Candidate) -> int:
    return str(candidate.schedule).count(":parallel")


def sequential(candidate: Candidate) -> str:
    return str(candidate.schedule).replace(":parallel", "")


def test_a_small_region_may_run_on_one_core() -> None:
    region = doubled(64)
    found = [each for each in candidates(region, HOST) if each.kind != "scalar"]
    alone = [each for each in found if depth(each) == 0]
    assert alone and depth(found[0]) > 0
    woken = {sequential(each): each for each in found if depth(each)}
    for candidate in alone:
        plain = woken[sequential(candidate)]
        assert candidate.estimate.seconds(HOST) == plain.estimate.core_seconds
        assert plain.estimate.seconds(HOST) < candidate.estimate.seconds(HOST)
        run_natively(region, candidate)


@pytest.mark.parametrize("why", ["too small to wake", "large", "one thread"])
def test_what_is_not_run_on_one_core_beside(why: str) -> None:
    region = doubled({"too small to wake": 16, "large": 4096, "one thread": 64}[why])
    found = candidates(region, replace(HOST, threads=1) if why == "one thread" else HOST)
    assert all(depth(each) for each in found)


def test_waking_threads_is_part_of_a_price_unless_none_is_woken() -> None:
    large = Estimate(100e-6, 8, before=((0.5, 4),))
    assert large.seconds(HOST) == pytest.approx(50e-6 + 2 * HOST.waking)
    assert Estimate(100e-6, 1).seconds(HOST) == pytest.approx(100e-6)
    assert Estimate(2e-6, 8).seconds(HOST) == pytest.approx(2e-6)


def test_a_part_for_each_core_may_be_enough() -> None:
    region = matmul(128, 64, 64)
    found = candidates(region, HOST)
    deep = {sequential(each) for each in found if depth(each) == 2}
    shallow = [each for each in found if depth(each) == 1 and sequential(each) in deep]
    assert shallow
    for candidate in shallow:
        assert HOST.threads <= candidate.estimate.grid < 8 * HOST.threads
        run_natively(region, candidate)


def test_every_way_to_mutate_the_depth_is_right_or_refused() -> None:
    region = matmul(24, 32, 16)
    first, *_ = candidates(region, HOST)
    found = [each for each in mutants(first, region, Samples({}), HOST) if depth(each) != depth(first)]
    assert found
    legal = [each for each in found if is_legal(region, each)]
    assert legal
    for candidate in legal:
        run_natively(region, candidate)


# ---- vectors of half the width


def lanes(found: list[Candidate]) -> set[int | None]:
    stages = [stage for each in found for stage in (*each.schedule.roots, *each.schedule.kept)]
    return {factor.extent for stage in stages for factor in stage.factors if factor.role == "lane"}


@pytest.mark.parametrize("columns", [8, 24, 40])
@pytest.mark.parametrize("rows", [64, dim("m")])
def test_short_rows_have_candidates_with_vectors_of_half_the_width(columns: int, rows: Size) -> None:
    sizes = {} if rows == 64 else {"m": 64}
    for region in (doubled(rows, columns), matmul(rows, columns, 8)):
        found = candidates(region, HOST, sizes)
        narrow = [each for each in found if 8 in lanes([each])]
        assert 0 < len(narrow) <= NARROW + LEADING
        assert found.index(narrow[0]) <= 32
        assert 16 in lanes(found[:2]) or 16 not in lanes(found)
        for candidate in narrow:
            run_natively(region, candidate, sizes)


@pytest.mark.parametrize("columns", [1, 3, 16, 32, 48, 60, 64, 1000])
def test_what_whole_vectors_fill_has_no_others(columns: int) -> None:
    assert lanes(candidates(doubled(64, columns), HOST)) <= {16}


def test_vectors_of_four_are_not_halved() -> None:
    assert lanes(candidates(doubled(64, 2), Machine(4, 16, threads=2))) <= {4}


# ---- all of them


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", [HOST, SMALL])
def test_there_are_at_most_twice_as_many_candidates_and_a_few_narrow_ones(
    name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, sizes = CASES[name]
    found = candidates(region, machine, dict(sizes))
    monkeypatch.setattr("luminal.search.candidates.LEADING", 0)
    monkeypatch.setattr("luminal.search.candidates.NARROW", 0)
    plain = candidates(region, machine, dict(sizes))
    assert {str(each.schedule) for each in plain} <= {str(each.schedule) for each in found}
    assert len(found) <= 2 * len(plain) + NARROW
