"""Reductions in parts: equal to the whole, with work for every core, under the licence that they need."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region, Term
from luminal.dim import Dim, dim
from luminal.search import parts
from luminal.search.candidates import legal_candidates
from luminal.search.forms import Form
from luminal.search.machine import Machine
from luminal.search.parts import region_in_parts
from luminal.search.samples import Samples
from tests.emit_cpu.test_emit import check
from tests.kernel.regions import Builder
from tests.kernel.test_place import run_and_compare

LICENCES = frozenset({"reassociate"})
LENGTH = 300


def squares(b: Builder, x: Term) -> Term:
    return b.total(b.apply("mul", x, x), "j")


def largest(b: Builder, x: Term) -> Term:
    return b.total(x, "j", monoid="max")


def exponentials(b: Builder, x: Term) -> Term:
    """A sum that needs a maximum over the same index, both in parts."""
    return b.total(b.apply("exp2", b.minus(x, largest(b, x)), variant="e"), "j")


def softmax(b: Builder, x: Term) -> Term:
    """Results over the index that is reduced."""
    p = b.apply("exp2", b.minus(x, largest(b, x)), variant="e")
    return b.apply("recip", p, b.total(p, "j"), variant="none")


def region_of(spell: Callable[[Builder, Term], Term], length: int | Dim = LENGTH) -> Region:
    b = Builder()
    value = spell(b, b.read(0, {"j": 1}))
    return b.region({"j": length}, [length], [(value, {"j": 1} if value.free else {})])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SMALLEST", 8)


@pytest.mark.parametrize("spell", [squares, largest, exponentials, softmax])
def test_a_region_in_parts_gives_what_it_gave(spell: Callable[[Builder, Term], Term]) -> None:
    region = region_of(spell)
    found = region_in_parts(region, LICENCES)
    assert found is not None
    x = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    (got,), (wanted,) = evaluate(found, [x], {}), evaluate(region, [x], {})
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert region_text(parse_region(region_text(found))) == region_text(found)


@pytest.mark.parametrize("spell", [squares, largest, exponentials, softmax])
def test_schedules_of_parts_compute_them(spell: Callable[[Builder, Term], Term]) -> None:
    """Those with parts as lanes too, whose last vector holds parts that do not exist."""
    for length, sizes in ((LENGTH, {}), (dim("n", min=1), {"n": LENGTH})):
        region = region_of(spell, length)
        found = region_in_parts(region, LICENCES)
        if found is None:  # the typical size of a symbol is too short
            found = region_in_parts_of(region)
        machine = Machine(4, 16, threads=2)
        timed = legal_candidates(region, machine, Samples(sizes), [Form("in parts", found)])
        candidates = [candidate for candidate, _ in timed if candidate.form]
        assert candidates
        assert any("parallel" in str(candidate.schedule) for candidate in candidates)
        for candidate in candidates[:: max(1, len(candidates) // 6)]:
            for size in (LENGTH,) if not sizes else (1, 33, LENGTH):
                run_and_compare(found, candidate.schedule, {"n": size} if sizes else {}, region)


def region_in_parts_of(region: Region) -> Region:
    parts.SMALLEST, saved = 1, parts.SMALLEST
    try:
        found = region_in_parts(region, LICENCES)
    finally:
        parts.SMALLEST = saved
    assert found is not None
    return found


def test_parts_are_first_where_few_results_leave_cores_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SMALLEST", 1024)
    region = region_of(squares, 1_000_003)
    found = region_in_parts(region, LICENCES)
    assert found is not None
    forms = [Form("in parts", found)]
    first, _ = next(iter(legal_candidates(region, Machine(16, 32, threads=2), Samples({}), forms)))
    assert first.form == "in parts"


def product(rows: int, length: int, columns: int) -> Region:
    """out[i, j] = sum over k of x[i, k] * w[k, j]"""
    b = Builder()
    value = b.total(b.apply("mul", b.read(0, {"i": length, "k": 1}), b.read(1, {"k": columns, "j": 1})), "k")
    sizes = [rows * length, length * columns]
    return b.region({"i": rows, "j": columns, "k": length}, [*sizes], [(value, {"i": columns, "j": 1})])


@pytest.mark.parametrize(
    ("rows", "constant"),
    [(1, False), (1, True), (6, True), pytest.param(6, False, marks=pytest.mark.nightly)],
)
def test_the_sum_of_a_product_is_computed_in_parts_by_all_cores(rows: int, constant: bool) -> None:
    region = product(rows, LENGTH, 32)
    weights = replace(region.arguments[1], constant=constant)
    region = replace(region, arguments=[region.arguments[0], weights])
    found = region_in_parts(region, LICENCES)
    assert found is not None
    timed = legal_candidates(region, Machine(8, 16, threads=2), Samples({}), [Form("in parts", found)])
    candidates = [candidate for candidate, _ in timed if candidate.kind == "phases"]
    split = [each for each in candidates if "kp:*:parallel" in str(each.schedule)]
    assert split
    tiled = [each for each in split if re.search(r" i:\d+:tile", str(each.schedule))]
    assert tiled or rows == 1
    x, w = (
        np.random.default_rng(0).standard_normal(n).astype(np.float32) for n in (rows * LENGTH, LENGTH * 32)
    )
    for candidate in (split + tiled)[:: max(1, len(split) // 4)]:
        assert parse_schedule(str(candidate.schedule)) == candidate.schedule
        run_and_compare(found, candidate.schedule, {}, region)
        check(found, str(candidate.schedule), [x, w], {}, threads=2, tolerance=1e-4)


def test_a_product_has_parts_where_its_tiles_are_few() -> None:
    few = parts.FEW_PRODUCTS // 32
    assert region_in_parts(product(few, LENGTH, 32), LICENCES) is not None
    assert region_in_parts(product(few + 1, LENGTH, 32), LICENCES) is None
    assert region_in_parts(product(few, 20, 32), LICENCES) is None
    assert region_in_parts(product(few, LENGTH, 32), frozenset()) is None


def test_there_are_no_parts_without_the_licence_but_for_what_is_exact() -> None:
    assert region_in_parts(region_of(squares), frozenset()) is None
    assert region_in_parts(region_of(largest), frozenset()) is not None


@pytest.mark.parametrize("kind", ["short", "many results", "updates", "same everywhere"])
def test_what_is_not_reduced_in_parts(kind: str) -> None:
    b = Builder()
    x = b.read(0, {"i": LENGTH, "j": 1})
    strides = {"i": 1}
    rows = parts.FEW + 1 if kind == "many results" else 2
    if kind == "same everywhere":
        value = b.total(b.read(0, {"i": 1}), "j")
    else:
        value = squares(b, x)
    length = 20 if kind == "short" else LENGTH
    region = b.region({"i": rows, "j": length}, [rows * LENGTH], [(value, dict(strides))])
    if kind == "updates":
        region = replace(region, outputs=[replace(region.outputs[0], alias=0)])
    assert region_in_parts(region, LICENCES) is None
