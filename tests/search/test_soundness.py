"""A rule that is unsound is caught on its whole way, from the e-graph to a kernel, and named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from luminal.dialects.kernel.terms import Region
from luminal.errors import SoundnessError
from luminal.plan.measure import HostMeasurer
from luminal.search import rules
from luminal.search.blame import Blame, blame
from luminal.search.candidates import legal_candidates
from luminal.search.forms import forms
from luminal.search.machine import Machine
from luminal.search.profile import Budget, LocalProfiler, Trial
from luminal.search.rules import TERM_RULES
from luminal.search.rules.rule import DISTRIBUTE, EXACT, NUMERATOR, NUMERATOR_GUARDS, Rule, is_number
from luminal.search.samples import Samples
from luminal.search.soundness import Reporter
from tests.search.failing import compiler
from tests.search.test_forms import LICENCES, SPELLINGS

FORM = "folds of 64"


def unsound(name: str, before: str, after: str, *guards: str, licence: str = EXACT) -> Rule:
    return Rule(
        name,
        licence,
        before=before,
        after=after,
        guards=guards,
        holds="it does not",
        matches=lambda s: s.read("i"),
        misses=lambda s: s.read("i"),
    )


FACTOR = unsound("a constant factor does not matter", '(Apply2 "mul" t a (Constant t k))', "a")
DIVISOR = unsound("a divisor does not matter", '(Apply2 "recip.none" t a b)', "a")
FOLD = "the sum of a softmax's numerators is a fold"
WEIGHTED = unsound(
    FOLD,
    f'(Reduce "sum" j t {NUMERATOR})',
    "(Weighted x j t c c)",
    *NUMERATOR_GUARDS,
    is_number("k", "t", "one"),
    licence=DISTRIBUTE,
)


@pytest.fixture(params=[FACTOR, DIVISOR, WEIGHTED], ids=lambda rule: rule.name)
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rule]:
    """A rule that is unsound, among all others, or in the place of one."""
    others = [other for other in TERM_RULES if other.name != request.param.name]
    monkeypatch.setattr(rules, "TERM_RULES", (*others[:3], request.param, *others[3:]))
    yield request.param


def trials_of_forms(region: Region, sizes: dict[str, int]) -> Iterator[Trial]:
    made = list(forms(region, LICENCES))
    assert made
    return (
        trial
        for trial in legal_candidates(region, Machine(8, 16), Samples(sizes), made)
        if trial[0].form == FORM
    )


def test_an_unsound_rule_is_named_by_the_report(rule: Rule, tmp_path: Path) -> None:
    region, sizes = SPELLINGS["scaled"], {"s": 70}
    profiler = LocalProfiler(HostMeasurer(compiler()), Reporter.of(tmp_path, LICENCES))
    with pytest.raises(SoundnessError) as caught:
        profiler.profile(region, trials_of_forms(region, sizes), sizes, 1, Budget(1, 60.0, 0.0))
    lines = dict(line.split(": ", 1) for line in str(caught.value).splitlines() if ": " in line)
    assert lines["rules"].split("; the form is made with")[0] == rule.name
    assert lines["form"] == FORM
    assert lines["licences"] == "contract, distribute, keep-wide, reassociate"
    _, *arguments = lines["reproduce"].split()
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert ran.returncode != 0 and "differs from the reference" in ran.stderr


def test_a_right_form_is_not_blamed_on_its_rules() -> None:
    found = blame(SPELLINGS["scaled"], FORM, LICENCES)
    assert found == Blame()
    assert "the schedule" in str(found)


def test_rules_that_a_form_needs_are_told_apart_from_the_guilty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "TERM_RULES", (FACTOR, *TERM_RULES))
    found = blame(SPELLINGS["scaled"], FORM, LICENCES)
    assert found.guilty == (FACTOR.name,)
    assert set(found.chain) == {FACTOR.name, FOLD}
    assert str(found).startswith(f"{FACTOR.name}; the form is made with: ")
