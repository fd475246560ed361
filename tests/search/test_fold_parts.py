"""Folds in parts: each part gives its state, the states are combined; equal to the whole to the last NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.placed import StoreOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, ParallelOp
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Region, Term
from luminal.dim import Dim, dim
from luminal.errors import ScheduleError
from luminal.passes.place import place
from luminal.search import parts
from luminal.search.candidates import legal_candidates
from luminal.search.forms import Form, folding
from luminal.search.machine import Machine
from luminal.search.parts import part_sizes, region_in_parts
from luminal.search.samples import Samples
from tests.emit_cpu.test_emit import check
from tests.kernel.regions import Builder, Size, folded
from tests.kernel.test_place import run_and_compare

LICENCES = frozenset({"reassociate", "contract", "distribute", "keep-wide"})
WIDTH = 8


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SHORTEST", 1)
    monkeypatch.setattr(parts, "BLOCK", 16)
    monkeypatch.setattr("luminal.search.forms.LONG", 1)


def query(length: Size, heads: int = 2) -> Region:
    """softmax(q @ k.T) @ v for one query of each head."""
    b = Builder()
    rows: dict[str, Size] = {"h": WIDTH * length, "j": WIDTH}
    q, k, v = b.read(0, {"h": WIDTH, "d": 1}), b.read(1, rows | {"d": 1}), b.read(2, rows | {"e": 1})
    score = b.total(b.apply("mul", q, k), "d")
    p = b.apply("exp2", b.minus(score, b.total(score, "j", monoid="max")), variant="e")
    p = b.apply("recip", p, b.total(p, "j"), variant="none")
    extents: dict[str, Size] = {"h": heads, "j": length, "d": WIDTH, "e": WIDTH}
    sizes: list[Size] = [heads * WIDTH, heads * WIDTH * length, heads * WIDTH * length]
    return b.region(extents, sizes, [(b.total(b.apply("mul", p, v), "j"), {"h": WIDTH, "e": 1})])


def rows_of(spell: Callable[[Builder, Term, float], Term], length: int, rows: int = 3) -> Region:
    b = Builder()
    value = spell(b, b.read(0, {"i": length, "j": 1}), float(length))
    strides: dict[str, Size] = {"i": length, "j": 1} if "j" in value.free else {"i": 1}
    return b.region({"i": rows, "j": length}, [rows * length], [(value, strides)])


def log_sum_exp(b: Builder, x: Term, length: float) -> Term:
    del length
    largest = b.total(x, "j", monoid="max")
    total = b.total(b.apply("exp2", b.minus(x, largest), variant="e"), "j")
    return b.apply("add", largest, b.apply("log2", total, variant="e"))


def softmax(b: Builder, x: Term, length: float) -> Term:
    del length
    p = b.apply("exp2", b.minus(x, b.total(x, "j", monoid="max")), variant="e")
    return b.apply("recip", p, b.total(p, "j"), variant="none")


def variance(b: Builder, x: Term, length: float) -> Term:
    count = b.number(length)
    centred = b.minus(x, b.apply("recip", b.total(x, "j"), count, variant="none"))
    return b.apply("recip", b.total(b.apply("mul", centred, centred), "j"), count, variant="none")


def argmax(b: Builder, x: Term, length: float) -> Term:
    del length
    return b.table.reduce("argmax", ["j"], (x, b.table.index(Affine.of({"j": 1}))))


SPELLINGS = {each.__name__: each for each in (log_sum_exp, softmax, variance)}


def in_parts(region: Region) -> list[Form]:
    return [form for form in folding(region, LICENCES) if form.name.startswith("in parts")]


def inputs(region: Region, length: int, kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(length)
    found = [
        rng.standard_normal(a.elements.evaluate({"s": length})).astype(np.float32) for a in region.arguments
    ]
    folded_over = found[min(1, len(found) - 1)]
    if kind == "hidden":
        folded_over[: folded_over.size // 2] = -np.inf
    if kind == "all hidden":
        folded_over[:] = -np.inf
    if kind in ("inf", "nan") and folded_over.size:
        folded_over[folded_over.size // 2] = float(kind)
    if len(found) > 1:
        found[0][:] = np.abs(found[0]) + 1
    return found


@pytest.mark.parametrize("kind", ["plain", "hidden", "all hidden", "inf", "nan"])
@pytest.mark.parametrize("name", ["query", *SPELLINGS])
def test_a_fold_in_parts_gives_what_it_gave(name: str, kind: str) -> None:
    """Whole parts, cut ones and none; a symbol, and fixed sizes."""
    s = dim("s", min=0)
    for length in (0, 1, 16, 63, 300) if name == "query" else (17, 300):
        region = query(s) if name == "query" else rows_of(SPELLINGS[name], length)
        arguments = inputs(region, length, kind)
        (wanted,) = evaluate(region, arguments, {"s": length})
        found = in_parts(region)
        assert found
        for form in found:
            terms = form.region.terms()
            assert not any(term.op == "loop" for term in terms)
            assert not any(term.op == "reduce" and "j" in term.reduce.indices for term in terms)
            assert region_text(parse_region(region_text(form.region))) == region_text(form.region)
            (got,) = evaluate(form.region, arguments, {"s": length})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("monoid", ["argmax", "argmin"])
def test_the_first_of_equal_values_is_found_in_parts(monoid: str) -> None:
    b = Builder()
    value = b.table.reduce(monoid, ["j"], (b.read(0, {"i": 300, "j": 1}), b.table.index(Affine.of({"j": 1}))))
    region = b.region({"i": 2, "j": 300}, [600], [(value, {"i": 1})])
    found = region_in_parts(region, frozenset())
    assert found is None  # 300 values are short
    parts.SMALLEST, saved = 8, parts.SMALLEST
    try:
        found = region_in_parts(region, frozenset())
    finally:
        parts.SMALLEST = saved
    assert found is not None
    for special in (0.0, float("nan"), float("inf"), float("-inf")):
        data = np.random.default_rng(0).integers(-3, 4, 600).astype(np.float32)
        data[[100, 250, 420]] = special
        np.testing.assert_array_equal(evaluate(found, [data], {})[0], evaluate(region, [data], {})[0])
    timed = legal_candidates(region, Machine(4, 16, threads=2), Samples({}), [Form("in parts", found)])
    together = [each for each, _ in timed if each.kind == "parts"]
    assert together
    for candidate in together[:2]:
        run_and_compare(found, candidate.schedule, {}, region)


@pytest.mark.parametrize("name", ["query", *SPELLINGS])
def test_schedules_of_folds_in_parts_compute_them(name: str) -> None:
    """One nest for all of a part, its state kept beyond it; by the interpreter and natively by two threads."""
    length: int | Dim = dim("s", min=1) if name == "query" else 300
    region = query(length) if isinstance(length, Dim) else rows_of(SPELLINGS[name], length)
    form = in_parts(region)[0]
    sizes = {"s": 300} if name == "query" else {}
    timed = legal_candidates(region, Machine(8, 16, threads=2), Samples(sizes), [form])
    together = [candidate for candidate, _ in timed if candidate.kind == "parts"]
    assert any("parallel@part" in str(candidate.schedule) for candidate in together)
    for candidate in together[:: max(1, len(together) // 2)]:
        assert parse_schedule(str(candidate.schedule)) == candidate.schedule
        for size in (1, 33, 300) if sizes else (300,):
            dims = {"s": size} if sizes else {}
            run_and_compare(form.region, candidate.schedule, dims, region)
            arguments = inputs(region, size, "plain")
            check(form.region, str(candidate.schedule), arguments, dims, threads=2, tolerance=1e-4)


PLACED = """\
allocate f32 scratch 1 [19]
allocate f32 scratch 2 [19]
parallel i weight=1 extent=* outer=. role=parallel size=1
parallel j weight=16 extent=* outer=. role=parallel ragged size=300
store to f32 scratch 1 [19] at 19, 1 |  | 0
store to f32 scratch 2 [19] at 19, 1 |  | 0
for i weight=1 extent=* outer=. role=loop size=1
for j weight=16 extent=* outer=. role=loop ragged size=300
for j weight=16 extent=* outer=. role=loop ragged size=300
store to f32 output 1 [1] at 1 |  | 0"""


def test_a_fold_in_parts_is_placed_as_two_phases() -> None:
    """Loops and stores: the states of each part, then the maximum of all and the sum."""
    region = in_parts(rows_of(log_sum_exp, 300, 1))[0].region
    highest, total = (region.numbering()[term] for term in region.inner)
    schedule = (
        f"out0: i:* jo:*; keep %{highest} as i:* jo:* at part: ji:16:lane; "
        f"keep %{total} as i:* jo:* at kernel: i:*:parallel jo:*:parallel@part ji:16:lane"
    )
    found: list[str] = []
    for op in place(region, parse_schedule(schedule), "kernel").walk():
        match op:
            case AllocateOp():
                found.append(f"allocate {reference_of(op.reference)}")
            case ParallelOp():
                found += [f"parallel {loop.data}" for loop in op.loops]
            case ForOp():
                found.append(f"for {op.loop.data}")
            case StoreOp():
                found.append(f"store to {reference_of(op.reference)} at {op.address.data}")
            case _:
                pass
    assert "\n".join(found) == PLACED


def test_a_state_is_read_outside_of_the_loop_over_parts_only_where_that_fills_it() -> None:
    """Nothing that runs in the loop of the last line needs the maximum of a part."""
    whole = rows_of(log_sum_exp, 300)
    region = in_parts(whole)[0].region
    highest, total = (region.numbering()[term] for term in region.inner)
    stage = "keep %{} as i:* jo:* at {}: {}"
    root = "out0: i:* jo:*"
    good = [root, stage.format(highest, "part", "ji:*"), stage.format(total, "kernel", "i:* jo:*@part ji:*")]
    run_and_compare(region, parse_schedule("; ".join(good)), {}, whole)
    bad = [root, stage.format(total, "part", "ji:*"), stage.format(highest, "kernel", "i:* jo:*@part ji:*")]
    with pytest.raises(ScheduleError, match="outside of that loop"):
        place(region, parse_schedule("; ".join(bad)), "kernel")


def test_what_has_no_folds_in_parts() -> None:
    """Many results, short indices, sums that are no folds, and loops that nothing says how to combine."""
    few = parts.FEW
    assert in_parts(rows_of(log_sum_exp, 300, few))
    assert not in_parts(rows_of(log_sum_exp, 300, few + 1))
    assert part_sizes(511, few) != [] and not part_sizes(300, few + 1)
    parts.SHORTEST = 512
    assert not part_sizes(511, few)
    assert not in_parts(rows_of(log_sum_exp, 300))
    assert region_in_parts(folded(3, 1 << 20), LICENCES) is None


@given(
    length=st.integers(1, 200),
    heads=st.integers(1, 3),
    hidden=st.integers(0, 200),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None)
def test_parts_of_attention_give_what_torch_gives(length: int, heads: int, hidden: int, seed: int) -> None:
    region = query(length, heads)
    torch.manual_seed(seed)
    q = torch.rand(heads, 1, WIDTH) + 0.5
    k, v = torch.randn(2, heads, length, WIDTH).unbind()
    k[:, :hidden] = -torch.inf
    wanted = torch.softmax(q @ k.transpose(1, 2), -1) @ v
    for form in in_parts(region):
        (got,) = evaluate(form.region, [x.numpy().reshape(-1) for x in (q, k, v)], {})
        np.testing.assert_allclose(got, wanted.numpy().reshape(-1), rtol=2e-5, atol=1e-5)
