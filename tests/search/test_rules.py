"""Every rule of every table: it matches what it should and not the near miss, and all that it makes is equal."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.search.egraph import Budget, Classes, EGraph
from luminal.search.rules import TERM_RULES
from luminal.search.rules.rule import EXACT, Example, Rule
from luminal.search.rules.spelling import Spelling
from tests.search.egraph_values import Values

LICENCES = frozenset({"reassociate", "contract", "distribute", "keep-wide", "approximate"})
RULES = {rule.name: rule for rule in TERM_RULES}


def saturated(rules: tuple[Rule, ...], example: Example, licences: frozenset[str] = LICENCES) -> EGraph:
    spelling = Spelling()
    return EGraph(spelling.region(example(spelling)), rules, licences)


def size(classes: Classes) -> tuple[int, int]:
    return len(classes.nodes), sum(map(len, classes.nodes.values()))


def facts(graph: EGraph) -> int:
    graph.saturate(Budget())
    return len(graph.graph.freeze().functions["tame"].rows)


def helpers(rule: Rule) -> tuple[Rule, ...]:
    """The fact rules, which others ask."""
    return tuple(other for other in TERM_RULES if other.is_fact and other is not rule)


def test_names_are_different_and_tables_are_small() -> None:
    assert len(RULES) == len(TERM_RULES) <= 25


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_it_needs(name: str) -> None:
    rule = RULES[name]
    assert rule.licence == EXACT or rule.licence in LICENCES
    assert rule.holds


@pytest.mark.parametrize("name", RULES)
def test_a_rule_matches_its_example_and_not_the_near_miss(name: str) -> None:
    rule = RULES[name]
    if rule.is_fact:
        assert facts(saturated((rule,), rule.matches)) > 0
        assert facts(saturated((rule,), rule.misses)) == 0
        return
    for example, grows in ((rule.matches, True), (rule.misses, False)):
        without = saturated(helpers(rule), example).saturate(Budget())
        with_rule = saturated((*helpers(rule), rule), example).saturate(Budget())
        assert (size(with_rule) != size(without)) == grows
        assert with_rule.is_saturated


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.licence != EXACT])
def test_a_rule_that_rounds_needs_its_licence(name: str) -> None:
    rule = RULES[name]
    refused = saturated((*helpers(rule), rule), rule.matches, LICENCES - {rule.licence}).saturate(Budget())
    without = saturated(helpers(rule), rule.matches).saturate(Budget())
    assert size(refused) == size(without)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with all others"])
@pytest.mark.parametrize("name", RULES)
def test_all_that_a_rule_makes_is_equal(name: str, together: bool) -> None:
    """Every e-node of every class, in f64, on random data: exact rules to the bit, others within rounding."""
    rule = RULES[name]
    rules = TERM_RULES if together else (*helpers(rule), rule)
    for example in (rule.matches, rule.misses):
        spelling = Spelling()
        region = spelling.region(example(spelling))
        classes = EGraph(region, rules, LICENCES).saturate(Budget())
        exact = not together and rule.licence == EXACT
        for seed in range(3):
            values = Values(region, classes, seed)
            for number, nodes in classes.nodes.items():
                for node in nodes:
                    found, wanted = values.value(node), values.known[number]
                    if exact:
                        np.testing.assert_array_equal(found, wanted)
                    else:
                        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_an_unsound_rule_is_caught_by_the_values_of_what_it_makes() -> None:
    unsound = Rule(
        "a factor leaves a maximum",
        EXACT,
        before='(Reduce "max" j t (Apply2 "mul" t a b))',
        after='(Apply2 "mul" t (Reduce "max" j t a) b)',
        guards=("(= 0 (& (free b) j))",),
        holds="it does not: a negative factor turns the maximum into a minimum",
        matches=lambda s: s.total(s.apply("mul", s.read("i", "j"), s.read("i")), "j", monoid="max"),
        misses=lambda s: s.read("i"),
    )
    spelling = Spelling()
    region = spelling.region(unsound.matches(spelling))
    classes = EGraph(region, (unsound,), LICENCES).saturate(Budget())
    differences = []
    for seed in range(3):
        values = Values(region, classes, seed)
        for number, nodes in classes.nodes.items():
            differences += [np.abs(values.value(node) - values.known[number]).max() for node in nodes]
    assert max(differences) > 0.1


def test_a_sum_that_may_be_empty_is_asked_before_its_divisor_leaves_it() -> None:
    """A sum of nothing is 0; divided by a NaN outside, it would not be."""
    rule = RULES["a common divisor leaves a sum that may be empty"]
    classes = saturated(TERM_RULES, rule.matches).saturate(Budget())
    (root,) = classes.roots
    assert sorted(node.op for node in classes.nodes[root]) == ["reduce", "select"]


def test_saturation_stops_at_its_budget_and_says_so() -> None:
    spelling = Spelling()
    term = spelling.read("i")
    for _ in range(12):
        term = spelling.apply("mul", term, spelling.read("i"))
    region = spelling.region(term)
    stopped = EGraph(region, TERM_RULES, LICENCES).saturate(Budget(rounds=1))
    assert not stopped.is_saturated and stopped.rounds == 1
    assert EGraph(region, TERM_RULES, LICENCES).saturate(Budget()).is_saturated
