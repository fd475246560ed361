"""Schedules of merged stages: what stands in one nest, along which index lanes run, and factors that lie in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luminal.dialects.kernel.schedule import Factor, Stage
from luminal.dialects.kernel.terms import Region
from luminal.search.candidates import legal_candidates
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.record import Enumeration
from luminal.search.samples import Samples
from tests.emit_cpu.test_emit import check
from tests.kernel.regions import Builder, Size

MACHINE = Machine(8, 16)
SMALL = replace(MACHINE, l2=1 << 10)
"""As if the second cache held a kilobyte."""
BATCH, ROWS, HEADS, WIDTH = 2, 20, 3, 16


def attention(
    is_interleaved: bool = True, has_weights: bool = True, monoid: str = "sum", rows: int = ROWS
) -> Region:
    """softmax(q @ k.T) @ v of heads that stand side by side in a row, or one behind the other; without the sum of the
    weights, or with another reduction of them."""
    b = Builder()
    row, head = (HEADS * WIDTH, WIDTH) if is_interleaved else (WIDTH, rows * WIDTH)
    strides = {"b": rows * HEADS * WIDTH, "h": head}
    q, k = (b.read(number, {**strides, index: row, "d": 1}) for number, index in ((0, "i"), (1, "j")))
    v = b.read(2, {**strides, "j": row, "e": 1})
    scores = b.apply("mul", b.total(b.apply("mul", q, k), "d"), b.number(0.25))
    highest = b.total(scores, "j", monoid="max")
    weights = b.apply("exp2", b.minus(scores, highest), variant="e")
    result = b.total(b.apply("mul", weights, v), "j")
    if has_weights:
        result = b.apply("recip", result, b.total(weights, "j", monoid=monoid), variant="none")
    extents: dict[str, Size] = {"b": BATCH, "h": HEADS, "i": rows, "j": rows, "d": WIDTH, "e": WIDTH}
    size = BATCH * rows * HEADS * WIDTH
    return b.region(
        extents, [size] * 3, [(result, {**strides, "i": row, "e": 1})], inner=(scores, highest, weights)
    )


def merged(region: Region, machine: Machine = MACHINE) -> list[Candidate]:
    seen = Enumeration()
    found = [each for each, _ in legal_candidates(region, machine, Samples({}), seen=seen)]
    assert not [each for each, _ in seen.refused if each.kind == "merged"]
    return [each for each in found if each.kind == "merged"]


def run(region: Region, candidate: Candidate, threads: int = 1) -> None:
    rng = np.random.default_rng(0)
    counts = [argument.elements.evaluate({}) for argument in region.arguments]
    inputs = [rng.standard_normal(count).astype(np.float32) for count in counts]
    check(region, str(candidate.schedule), inputs, {}, threads=threads, tolerance=1e-4)


def targets(candidate: Candidate) -> list[int]:
    """How many terms each kept stage computes."""
    return [len(stage.targets) for stage in candidate.schedule.kept]


@pytest.mark.parametrize("monoid", ["sum", "max"])
def test_what_is_folded_beside_its_use_is_folded_where_it_is_computed(monoid: str) -> None:
    region = attention(monoid=monoid)
    found = merged(region)
    assert all(max(targets(each)) == 2 for each in found)
    run(region, found[0])


def test_stages_without_such_a_fold_keep_one_term_each() -> None:
    assert all(max(targets(each)) == 1 for each in merged(attention(has_weights=False)))


def test_lanes_of_the_result_run_along_rows_and_along_columns() -> None:
    lanes = {each.schedule.roots[0].factors[-1].index for each in merged(attention())}
    assert lanes == {"i", "e"}


def gathered(found: list[Candidate]) -> list[Candidate]:
    return [each for each in found if "from batch_b at batch_b" in str(each.schedule)]


def test_factors_in_pieces_are_gathered_for_all_heads_in_the_order_of_memory() -> None:
    region = attention()
    found = merged(region, SMALL)
    first = gathered(found)[0]
    assert found.index(first) == 0
    assert str(first.schedule).count("from batch_b at batch_b") == 3
    assert "h:* j:* e:* from batch_b at batch_b: j:* h:* e:* e:8:lane" in str(first.schedule)
    run(region, first)


def test_one_head_after_the_other_is_computed_of_what_is_gathered() -> None:
    region = attention()
    first = gathered(merged(region, replace(SMALL, threads=2)))[0]
    parallel = [f.index for f in first.schedule.roots[0].factors if f.role == "parallel"]
    assert parallel == ["b"] and first.estimate.grid == BATCH
    run(region, first, threads=2)


@pytest.mark.parametrize("why", ["one behind the other", "in a cache", "too large"])
def test_what_is_not_gathered(why: str) -> None:
    region, machine = attention(), SMALL
    if why == "one behind the other":
        region = attention(is_interleaved=False)
    elif why == "in a cache":
        machine = MACHINE
    else:
        machine = replace(SMALL, l3=1 << 10)
    assert not gathered(merged(region, machine))


def summed_at_once(found: list[Candidate]) -> list[Candidate]:
    """Those with a stage that sums up along the lanes of several rows."""
    return [
        each
        for each in found
        if any("i:4:tile" in str(stage) and "j:8:lane" in str(stage) for stage in stages(each, "j"))
    ]


def stages(candidate: Candidate, lane: str) -> list[Stage]:
    """Those of one row or of several, of which no register tile is a product."""
    every = (*candidate.schedule.kept, *candidate.schedule.roots)
    return [
        s for s in every if s.factors and s.factors[-1] == Factor(lane, 8, "lane") and "@s0_" not in str(s)
    ]


def test_rows_of_a_block_are_summed_up_several_at_once() -> None:
    region = attention()
    found = summed_at_once(merged(region))
    assert found
    run(region, found[0])


def test_rows_of_a_result_are_summed_up_alone_and_several_at_once() -> None:
    b = Builder()
    x = b.read(0, {"i": 64, "j": 1})
    total = b.total(b.apply("exp2", x, variant="e"), "j")
    region = b.region({"i": 64, "j": 64}, [4096], [(total, {"i": 1})])
    found = [each for each, _ in legal_candidates(region, MACHINE, Samples({}))]
    several = summed_at_once(found)
    assert several and any(stages(each, "j") and each not in several for each in found)
    run(region, several[0])


def test_panels_are_turned_in_registers() -> None:
    """A square of eight columns, each read along its addends."""
    region = attention()
    first = next(each for each in merged(region) if "j:8:tile d:8:lane" in str(each.schedule))
    run(region, first)


def of_three(found: list[Candidate]) -> list[Candidate]:
    """Those with register tiles of three vectors of rows, or of six, of what is no product over d or e."""
    tiles = ("j:4:unroll i:3:tile i:8:lane", "j:4:block i:6:tile i:8:lane")
    return [
        each
        for each in found
        if any(
            tile in str(stage) and "@rows" not in str(stage) for tile in tiles for stage in stages(each, "i")
        )
    ]


def test_blocks_of_three_vectors_are_tiles() -> None:
    region = attention(rows=96)  # a longer sum than is written out
    found = of_three(merged(region))
    assert found
    run(region, found[0])


def test_tiles_from_memory_are_powers_of_two() -> None:
    b = Builder()
    total = b.total(b.apply("exp2", b.read(0, {"i": 1, "j": 96}), variant="e"), "j")
    region = b.region({"i": 96, "j": 64}, [96 * 64], [(total, {"i": 1})])
    found = [each for each, _ in legal_candidates(region, MACHINE, Samples({}))]
    assert any("i:4:tile" in str(each.schedule) for each in found) and not of_three(found)
