"""Forms of regions: what the e-graph finds of attention in all its spellings, equal to what it was, to the last NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.terms import Affine, Region, Term, predicate
from luminal.dim import Dim, dim
from luminal.dtype import i64
from luminal.search.candidates import legal_candidates
from luminal.search.egraph import Budget, EGraph, EGraphLimitError
from luminal.search.forms import Forms, folding, keeping, last_of_each
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from tests.kernel.regions import Builder, Size
from tests.kernel.test_place import run_and_compare
from tests.search.once import enumerated, spread
from tests.search.seeds import outputs_of_seeds

LICENCES = frozenset({"reassociate", "contract", "distribute", "keep-wide"})
HEADS, WIDTH, LENGTH = 2, 4, dim("s", min=1)


def attention(
    change: Callable[[Builder, Term], Term], heads: int = HEADS, wide: int = WIDTH, length: Dim = LENGTH
) -> Region:
    """softmax(change(q @ k.T)) @ v, divided before the second product as the naive spelling has it."""
    b = Builder()
    size = length * WIDTH
    q = b.read(0, {"h": size, "i": WIDTH, "d": 1})
    shared = {"h": size} if heads == HEADS else {}
    k = b.read(1, {**shared, "j": WIDTH, "d": 1})
    v = b.read(2, {**({"h": length * wide} if shared else {}), "j": wide, "e": 1})
    score = change(b, b.total(b.apply("mul", q, k), "d"))
    p = b.apply("exp2", b.minus(score, b.total(score, "j", monoid="max")), variant="e")
    p = b.apply("recip", p, b.total(p, "j"), variant="none")
    value = b.total(b.apply("mul", p, v), "j")
    extents: dict[str, Size] = {"h": HEADS, "i": length, "j": length, "d": WIDTH, "e": wide}
    strides: dict[str, Size] = {"h": length * wide, "i": wide, "e": 1}
    sizes = [HEADS * size, heads * size, heads * length * wide, length * length]
    return b.region(extents, sizes, [(value, strides)])


def scaled(b: Builder, score: Term) -> Term:
    return b.apply("mul", score, b.number(0.5))


def additive(b: Builder, score: Term) -> Term:
    return b.apply("add", score, b.read(3, {"i": LENGTH, "j": 1}))


def chosen(b: Builder, score: Term) -> Term:
    """A boolean mask: scores where it is positive, -inf elsewhere."""
    mask = predicate(b.table, b.number(0.0), b.read(3, {"i": LENGTH, "j": 1}))
    return b.apply("select", mask, score, b.number(float("-inf")))


def causal(b: Builder, score: Term) -> Term:
    row, column = (b.table.index(Affine.of({name: 1})) for name in "ij")
    assert row.dtype == i64
    return b.apply("select", predicate(b.table, row, column), b.number(float("-inf")), score)


def capped(b: Builder, score: Term) -> Term:
    """A soft cap: c * tanh(x / c) spelled with exp."""
    twice = b.apply("exp2", b.apply("mul", score, b.number(0.2)), variant="e")
    above, below = (b.apply("add", twice, b.number(one)) for one in (1, -1))
    return b.apply("mul", b.apply("recip", below, above, variant="none"), b.number(10.0))


def sloped(b: Builder, score: Term) -> Term:
    """ALiBi: a slope times the distance."""
    distance = b.apply("cast", b.table.index(Affine.of({"j": 1, "i": -1})), variant="none")
    return b.apply("add", score, b.apply("mul", distance, b.number(0.25)))


SPELLINGS: Mapping[str, Region] = {
    change.__name__: attention(change) for change in (scaled, additive, chosen, causal, capped, sloped)
} | {"grouped heads": attention(scaled, heads=1), "wide values": attention(scaled, wide=6)}


def inputs(region: Region, length: int, kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(length)
    found = [
        rng.standard_normal(a.elements.evaluate({"s": length})).astype(np.float32) for a in region.arguments
    ]
    keys = found[1]
    if kind == "masked" and keys.size:
        found[0][:], keys[: keys.size // 2] = np.abs(found[0]) + 1, -np.inf
    if kind == "all masked":
        found[0][:], keys[:] = np.abs(found[0]) + 1, -np.inf
    if kind == "infinite" and keys.size:
        found[0][:], keys[keys.size // 2] = np.abs(found[0]) + 1, np.inf
    if kind == "NaN" and keys.size:
        keys[keys.size // 2] = np.nan
    if kind == "large":
        keys *= 1e4
    return found


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_attention_is_a_fold(name: str) -> None:
    region = SPELLINGS[name]
    found = list(folding(region, LICENCES))
    kinds = ("", ", bounded") if name == "causal" else ("",)
    names = [f"folds of {block}{kind}" for block in (64, 128) for kind in kinds]
    assert [form.name for form in found] == names
    for form in found:
        terms = form.region.terms()
        (loop,) = [term for term in terms if term.op == "loop"]
        assert len(loop.loop.carries) == 3  # the maximum, the sum of weights, and the weighted values
        assert (loop.guard is not None) == form.name.endswith("bounded")
        assert not any(term.op == "reduce" and "j" in term.reduce.indices for term in terms)


@pytest.mark.parametrize("kind", ["plain", "masked", "all masked", "infinite", "NaN", "large"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_form_gives_what_the_region_gives(name: str, kind: str) -> None:
    """One and many keys, whole blocks and cut ones."""
    region = SPELLINGS[name]
    found = list(folding(region, LICENCES))
    for length in (1, 63, 64, 130):
        arguments = inputs(region, length, kind)
        (wanted,) = evaluate(region, arguments, {"s": length})
        for form in found:
            (got,) = evaluate(form.region, arguments, {"s": length})
            np.testing.assert_allclose(got, wanted, rtol=2e-4 if kind == "large" else 1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["scaled", "additive", "causal", pytest.param("grouped heads", marks=pytest.mark.nightly)]
)
def test_schedules_of_a_form_compute_it(name: str) -> None:
    region = SPELLINGS[name]
    found = list(folding(region, LICENCES))
    candidates = [c for c in enumerated(region, Machine(4, 16), Samples({"s": 70}), found) if c[0].form]
    chosen = spread(candidates, 4)
    assert len(chosen) == 4
    for candidate, form in chosen:
        for length in (1, 70):
            run_and_compare(form, candidate.schedule, {"s": length}, region)


def test_softmax_is_two_passes_and_its_logarithm_too() -> None:
    b = Builder()
    x = b.read(0, {"i": 9, "j": 1})
    largest = b.total(x, "j", monoid="max")
    p = b.apply("exp2", b.minus(x, largest), variant="e")
    softmax = b.apply("recip", p, b.total(p, "j"), variant="none")
    summed = b.apply("add", b.apply("log2", b.total(p, "j"), variant="e"), largest)
    for value, strides in ((softmax, {"i": 9, "j": 1}), (summed, {"i": 1})):
        region = b.region({"i": 3, "j": 9}, [27], [(value, strides)])
        form, *_ = folding(region, LICENCES)
        (loop,) = [term for term in form.region.terms() if term.op == "loop"]
        assert len(loop.loop.carries) == 2
        x_value = [np.random.default_rng(0).standard_normal(27).astype(np.float32)]
        (got,), (wanted,) = evaluate(form.region, x_value, {}), evaluate(region, x_value, {})
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def two_results(length: int, strides: dict[str, Size]) -> Region:
    """The maximum of each row and the sum of its numerators, which needs it, as two outputs."""
    b = Builder()
    x = b.read(0, strides)
    results = [b.total(x, "j", monoid="max"), b.total(numerators(b, x), "j")]
    return b.region({"i": 40, "j": length}, [40 * length], [(value, {"i": 1}) for value in results])


def test_a_fold_has_both_of_its_results_stored() -> None:
    region = two_results(200, {"i": 200, "j": 1})
    found = list(folding(region, LICENCES))
    for form in found:
        (loop,) = [term for term in form.region.terms() if term.op == "loop"]
        assert len(loop.loop.carries) == 2
        assert not any(term.op == "reduce" and "j" in term.reduce.indices for term in form.region.terms())
        assert not set(form.region.inner) & {term for term in form.region.terms() if "ji" in term.free}
    candidates = [c for c in enumerated(region, Machine(4, 16), Samples({}), found) if c[0].form]
    chosen = spread(candidates, 3)
    assert len(chosen) == 3
    for candidate, form in chosen:
        (root,) = candidate.schedule.roots
        assert [target.output for target in root.targets] == [0, 1]
        run_and_compare(form, candidate.schedule, {}, region)


@pytest.mark.parametrize("kind", ["plain", "masked", "infinite", "NaN"])
def test_both_results_of_a_fold_are_those_of_the_region(kind: str) -> None:
    region = two_results(200, {"i": 200, "j": 1})
    rows = np.random.default_rng(0).standard_normal((40, 200)).astype(np.float32)
    special = {"masked": -np.inf, "infinite": np.inf, "NaN": np.nan}.get(kind)
    if special is not None:
        rows[0], rows[1, :70], rows[2, 199] = special, special, special
    wanted = evaluate(region, [rows.ravel()], {})
    for form in folding(region, LICENCES):
        for have, want in zip(evaluate(form.region, [rows.ravel()], {}), wanted, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5)


@pytest.mark.parametrize("strides", [{"i": 200, "j": 1}, {"i": 1, "j": 40}], ids=["rows", "columns"])
def test_rows_that_share_nothing_are_folded_one_by_one_where_they_are_contiguous(
    strides: dict[str, Size],
) -> None:
    region = two_results(200, strides)
    found = [
        c for c, _ in legal_candidates(region, Machine(4, 16), Samples({}), list(folding(region, LICENCES)))
    ]
    loops = [candidate.schedule for candidate in found if candidate.kind == "loop"]
    assert loops
    for schedule in loops:
        assert (len(schedule.roots[0].factors) == 1) == (strides["j"] == 1)


def test_a_long_index_has_longer_blocks_too() -> None:
    for length, most in ((1 << 14, 1024), ((1 << 14) - 1, 128)):
        forms = list(folding(two_results(length, {"i": length, "j": 1}), LICENCES))
        names = [form.name for form in forms if form.name.startswith("folds")]
        assert names[-1] == f"folds of {most}"


@pytest.mark.parametrize("length", [0, 1, 65])
def test_over_no_keys_a_form_gives_zero(length: int) -> None:
    """A divisor leaves a sum that may be empty by way of a question whether it is."""
    region = attention(scaled, length=dim("s", min=0))
    found = list(folding(region, LICENCES))
    for form in found:
        (loop,) = [term for term in form.region.terms() if term.op == "loop"]
        assert len(loop.loop.carries) == 3
    assert found
    for kind in ("plain", "all masked"):
        arguments = inputs(region, length, kind)
        (wanted,) = evaluate(region, arguments, {"s": length})
        for form in found:
            (got,) = evaluate(form.region, arguments, {"s": length})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def numerators(b: Builder, score: Term) -> Term:
    return b.apply("exp2", b.minus(score, b.total(score, "j", monoid="max")), variant="e")


def squared(b: Builder, x: Term) -> Term:
    """The factor of the weights is a weight: it needs the maximum that the loop would find."""
    p = numerators(b, x)
    p = b.apply("recip", p, b.total(p, "j"), variant="none")
    return b.total(b.apply("mul", p, p), "j")


def entropy(b: Builder, x: Term) -> Term:
    """The factor is the difference to the maximum."""
    p, centred = numerators(b, x), b.minus(x, b.total(x, "j", monoid="max"))
    return b.apply("recip", b.total(b.apply("mul", p, centred), "j"), b.total(p, "j"), variant="none")


def twice(b: Builder, x: Term) -> Term:
    """The weights of a second softmax over the weights of a first one."""
    p = numerators(b, x)
    p = b.apply("recip", p, b.total(p, "j"), variant="none")
    q = numerators(b, p)
    return b.total(b.apply("mul", q, x), "j")


@pytest.mark.parametrize("spell", [squared, entropy, twice])
def test_a_fold_that_needs_its_own_result_is_none(spell: Callable[[Builder, Term], Term]) -> None:
    b = Builder()
    region = b.region({"i": 3, "j": 70}, [210], [(spell(b, b.read(0, {"i": 70, "j": 1})), {"i": 1})])
    arguments = [np.random.default_rng(0).standard_normal(210).astype(np.float32)]
    (wanted,) = evaluate(region, arguments, {})
    for form in folding(region, LICENCES):
        (got,) = evaluate(form.region, arguments, {})
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def variance(b: Builder, x: Term, count: Term) -> Term:
    centred = b.minus(x, b.apply("recip", b.total(x, "j"), count, variant="none"))
    return b.apply("recip", b.total(b.apply("mul", centred, centred), "j"), count, variant="none")


@pytest.mark.parametrize("length", [1, 63, 64, 130, 1000])
def test_a_variance_is_one_pass_that_loses_no_digits(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks cut off and whole, by symbols and fixed sizes, and a mean far larger than the deviation."""
    monkeypatch.setattr("luminal.search.forms.LONG", 1)
    for size in (length, dim("n", min=1)):
        b = Builder()
        rows: dict[str, Size] = {"i": size, "j": 1}
        x = b.read(0, rows)
        count = b.number(float(length))
        if not isinstance(size, int):
            count = b.table.apply("cast", (b.table.dimension(size),), "none", x.dtype)
        extents: dict[str, Size] = {"i": 3, "j": size}
        strides: dict[str, Size] = {"i": 1}
        region = b.region(extents, [3 * size], [(variance(b, x, count), strides)])
        found = list(folding(region, LICENCES))
        assert found
        for form in found:
            terms = form.region.terms()
            loops = [term for term in terms if term.op == "loop"]
            assert [len(loop.loop.carries) for loop in loops] == [2] * form.name.startswith("folds")
            assert not any(term.op == "reduce" and "j" in term.reduce.indices for term in terms)
            for offset in (0.0, 1000.0):
                data = (np.random.default_rng(0).standard_normal(3 * length) + offset).astype(np.float32)
                (got,) = evaluate(form.region, [data], {"n": length})
                wanted = data.reshape(3, length).astype(np.float64).var(1)
                np.testing.assert_allclose(got, wanted, rtol=2e-4 if offset else 1e-5, atol=1e-9)


def test_schedules_of_a_variance_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.search.forms.LONG", 1)
    b = Builder()
    x = b.read(0, {"i": 200, "j": 1})
    region = b.region({"i": 40, "j": 200}, [8000], [(variance(b, x, b.number(200.0)), {"i": 1})])
    found = list(folding(region, LICENCES))
    candidates = [c for c in enumerated(region, Machine(4, 16), Samples({}), found) if c[0].form]
    chosen = spread(candidates, 3)
    assert len(chosen) == 3
    for candidate, form in chosen:
        run_and_compare(form, candidate.schedule, {}, region)


def test_squares_around_something_else_than_the_mean_are_no_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.search.forms.LONG", 1)
    b = Builder()
    x = b.read(0, {"i": 100, "j": 1})
    value = variance(b, x, b.number(99.0))
    assert not list(folding(b.region({"i": 3, "j": 100}, [300], [(value, {"i": 1})]), LICENCES))


def test_short_rows_are_not_asked_for_a_variance() -> None:
    b = Builder()
    value = variance(b, b.read(0, {"i": 100, "j": 1}), b.number(100.0))
    assert not list(folding(b.region({"i": 3, "j": 100}, [300], [(value, {"i": 1})]), LICENCES))


def test_scores_that_do_not_depend_on_the_index_are_not_folded() -> None:
    b = Builder()
    p = numerators(b, b.read(0, {"i": 1}))
    value = b.total(b.apply("mul", p, b.read(1, {"j": 1})), "j")
    assert not list(folding(b.region({"i": 3, "j": 100}, [3, 100], [(value, {"i": 1})]), LICENCES))


def test_a_fold_inside_the_loop_of_another_stays_a_reduction() -> None:
    """Scores of i and j that are themselves weighted sums over k: a loop over k would run anew for each block of j."""
    b = Builder()
    x, y = b.read(0, {"i": 40, "k": 1}), b.read(1, {"j": 1})
    inner = b.apply("mul", x, y)
    weights = b.apply("exp2", b.minus(inner, b.total(inner, "k", monoid="max")), variant="e")
    score = b.total(b.apply("mul", weights, x), "k")
    value = b.total(b.apply("mul", numerators(b, score), y), "j")
    region = b.region({"i": 3, "j": 70, "k": 40}, [120, 70], [(value, {"i": 1})])
    arguments = [
        np.random.default_rng(n).standard_normal(size).astype(np.float32) for n, size in enumerate((120, 70))
    ]
    (wanted,) = evaluate(region, arguments, {})
    found = list(folding(region, LICENCES))
    assert found
    for form in found:
        assert len([term for term in form.region.terms() if term.op == "loop"]) == 1
        (got,) = evaluate(form.region, arguments, {})
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_there_is_no_form_without_the_licence() -> None:
    assert not list(folding(SPELLINGS["scaled"], LICENCES - {"distribute"}))


def test_there_is_no_form_where_the_maximum_is_over_another_index() -> None:
    b = Builder()
    x = b.read(0, {"i": 9, "j": 1})
    p = b.apply("exp2", b.minus(x, b.total(x, "i", monoid="max")), variant="e")
    region = b.region({"i": 3, "j": 9}, [27], [(b.total(p, "j"), {"i": 1})])
    assert not list(folding(region, LICENCES))


def test_there_is_no_form_of_a_region_that_updates_an_argument() -> None:
    region = SPELLINGS["scaled"]
    (output,) = region.outputs
    assert not list(folding(replace(region, outputs=[replace(output, alias=0)]), LICENCES))


def test_there_is_no_form_of_a_region_with_more_indices_than_bits() -> None:
    b = Builder()
    names = [f"k{n}" for n in range(70)]
    x = b.read(0, {"j": 1})
    for name in names:
        x = b.apply("add", x, b.total(b.read(1, {name: 1}), name))
    p = numerators(b, x)
    region = b.region({"j": 5, **dict.fromkeys(names, 2)}, [5, 2], [(b.total(p, "j"), {})])
    assert not list(folding(region, LICENCES))
    with pytest.raises(EGraphLimitError, match="71 indices"):
        EGraph(region, (), LICENCES)


def test_there_is_no_form_where_saturation_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.search.egraph.Budget", lambda: Budget(rounds=1))
    assert not list(folding(SPELLINGS["scaled"], LICENCES))


def test_a_form_is_found_again_by_its_name() -> None:
    region = SPELLINGS["scaled"]
    known = Forms(LICENCES)
    assert [form.name for form in known.of(region, "key")] == ["keeps 12", "folds of 64", "folds of 128"]
    for form in known.of(region, "key"):
        assert known.find(region, "key", form.name) is form.region
    assert known.find(region, "key", "") is region
    assert known.find(region, "key", "folds of 7") is None
    assert [form.name for form in last_of_each(known.of(region, "key"))] == ["keeps 12", "folds of 128"]


def test_a_form_prints_and_parses_back() -> None:
    form, *_ = folding(SPELLINGS["causal"], LICENCES)
    assert region_text(parse_region(region_text(form.region))) == region_text(form.region)


def weighted_row(b: Builder, weights: Term) -> Term:
    """Weights of a row against rows of values: a softmax that each value would compute anew."""
    p = b.apply("recip", weights, b.total(weights, "j"), variant="none")
    return b.total(b.apply("mul", p, b.read(1, {"j": 6, "e": 1})), "j")


def test_a_factor_that_each_column_would_compute_is_kept() -> None:
    b = Builder()
    value = weighted_row(b, numerators(b, b.read(0, {"j": 1})))
    region = b.region({"j": 70, "e": 6}, [70, 420], [(value, {"e": 1})])
    (form,) = keeping(region)
    (kept,) = form.region.inner
    assert kept.op == "recip"
    assert region_text(form.region).startswith(region_text(region))
    machine, samples = Machine(4, 16), Samples({})
    found = [c for c in legal_candidates(region, machine, samples, [form]) if c[0].form]
    assert found
    for candidate, kept_region in found[:4]:
        run_and_compare(kept_region, candidate.schedule, {}, region)
    best, _ = next(iter(legal_candidates(region, machine, samples, [form])))
    assert best.form == form.name


@pytest.mark.parametrize("kind", ["cheap", "own index", "updates"])
def test_what_is_computed_once_anyway_is_not_kept(kind: str) -> None:
    b = Builder()
    x = b.read(0, {"j": 1})
    weights = b.apply("mul", x, x) if kind == "cheap" else numerators(b, x)
    value = b.total(b.apply("mul", weights, b.read(1, {"j": 1})), "j") if kind == "own index" else None
    value = value or b.total(b.apply("mul", weights, b.read(1, {"j": 6, "e": 1})), "j")
    strides: dict[str, Size] = {} if kind == "own index" else {"e": 1}
    region = b.region({"j": 70, "e": 6}, [70, 420], [(value, strides)])
    if kind == "updates":
        region = replace(region, outputs=[replace(region.outputs[0], alias=0)])
    assert not list(keeping(region))


def test_forms_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.search.test_forms import *\n"
        "for region in SPELLINGS.values():\n"
        "    for form in folding(region, LICENCES):\n"
        "        print(form.name, region_text(form.region))\n"
    )
    first, *others = outputs_of_seeds(code)
    assert others == [first] * len(others)
