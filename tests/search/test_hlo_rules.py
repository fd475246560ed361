"""Every rule of the hlo table: it matches what it should and not the near misses, and both sides are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import LICENCES, GraphOp
from luminal.dialects.hlo.interpreter import interpret
from luminal.dim import DimLike, dim
from luminal.errors import CompileError
from luminal.runtimes.reference import graph_of
from luminal.search.hlo_rules import HLO_RULES
from luminal.search.hlo_rules.apply import apply_sites
from luminal.search.hlo_rules.rule import Example, HloRule, View
from luminal.search.hlo_rules.sketch import Sketch

Array = np.ndarray[Any, Any]
RULES = {rule.name: rule for rule in HLO_RULES}
ROWS = dim("rows", min=0)
LONGEST = 8
"""More addends than any sum of an example has."""


def module_of(example: Example, licences: Sequence[str] = LICENCES, rows: DimLike = 5) -> ModuleOp:
    sketch = Sketch(licences, rows)
    return sketch.module(example(sketch))


def rewritten(module: ModuleOp, rule: HloRule) -> ModuleOp:
    changed = module.clone()
    graph = graph_of(changed)
    sites = rule.sites(View(graph))
    assert sites
    apply_sites(graph, sites, rule.build)
    changed.verify()
    return changed


def data(graph: GraphOp, dims: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Small eighths, so that products and sums of f32 are exact; integers of all magnitudes."""
    generator = np.random.default_rng(seed)
    found: list[Array] = []
    for type_ in graph.input_types:
        shape = [size.evaluate(dims) for size in type_.shape]
        if type_.dtype.is_float:
            found.append((generator.integers(-16, 17, shape) / 8).astype(type_.dtype.numpy))
        else:
            limits = np.iinfo(type_.dtype.numpy)
            found.append(generator.integers(limits.min, limits.max, shape).astype(type_.dtype.numpy))
    return found


def test_names_are_different_and_the_table_is_small() -> None:
    assert len(RULES) == len(HLO_RULES) <= 25


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_it_needs(name: str) -> None:
    rule = RULES[name]
    assert rule.before and rule.after and rule.holds
    assert set(rule.licences) <= set(LICENCES)
    assert {guard.text for guard in rule.guards} <= set(rule.misses)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_matches_its_example(name: str) -> None:
    for rows in (5, ROWS):
        assert RULES[name].sites(View(graph_of(module_of(RULES[name].matches, rows=rows))))


@pytest.mark.parametrize(
    ("name", "why"), [(name, why) for name, rule in RULES.items() for why in rule.misses]
)
def test_a_rule_does_not_match_a_near_miss(name: str, why: str) -> None:
    rule = RULES[name]
    for rows in (5, ROWS):
        assert not rule.sites(View(graph_of(module_of(rule.misses[why], rows=rows))))


@pytest.mark.parametrize(
    ("name", "text"), [(name, guard.text) for name, rule in RULES.items() for guard in rule.guards]
)
def test_a_guard_is_what_keeps_its_near_miss_out(name: str, text: str) -> None:
    rule = RULES[name]
    without = replace(rule, guards=tuple(guard for guard in rule.guards if guard.text != text))
    assert without.sites(View(graph_of(module_of(rule.misses[text]))))


@pytest.mark.parametrize(
    ("name", "licence"), [(name, licence) for name, rule in RULES.items() for licence in rule.licences]
)
def test_a_rule_that_rounds_needs_each_of_its_licences(name: str, licence: str) -> None:
    rule = RULES[name]
    allowed = [other for other in LICENCES if other != licence]
    assert not rule.sites(View(graph_of(module_of(rule.matches, allowed))))


@pytest.mark.parametrize("rows", [0, 1, 5, 37])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", RULES)
def test_both_sides_are_equal(name: str, symbolic: bool, rows: int) -> None:
    """To the bit for exact rules, else within the bound of the licence."""
    rule = RULES[name]
    before = module_of(rule.matches, rows=ROWS if symbolic else rows)
    after = rewritten(before, rule)
    dims = {"rows": rows}
    inputs = data(graph_of(before), dims)
    wanted = interpret(graph_of(before), inputs, dims if symbolic else {})
    found = interpret(graph_of(after), inputs, dims if symbolic else {})
    for new, old in zip(found, wanted, strict=True):
        if rule.licences:
            np.testing.assert_allclose(new, old, rtol=LONGEST * 2.0**-24, atol=LONGEST * 2.0**-24)
        else:
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_does_not_match_what_it_made(name: str) -> None:
    rule = RULES[name]
    assert not rule.sites(View(graph_of(rewritten(module_of(rule.matches), rule))))


def test_a_nan_reaches_the_same_elements_of_a_chain() -> None:
    rule = RULES["a chain of bounded products, last two first"]
    before = module_of(rule.matches)
    after = rewritten(before, rule)
    inputs = data(graph_of(before), {})
    inputs[0][2, 1] = np.nan
    (old,), (new,) = interpret(graph_of(before), inputs), interpret(graph_of(after), inputs)
    assert np.isnan(old[2]).all() and not np.isnan(old[[0, 1, 3, 4]]).any()
    np.testing.assert_array_equal(np.isnan(new), np.isnan(old))


def test_an_unsound_rule_is_caught_by_the_values() -> None:
    sound = RULES["products of one left operand are one product"]
    unsound = replace(sound, build=lambda b, site: list(reversed(sound.build(b, site))))
    with pytest.raises(CompileError, match="replaces"):
        rewritten(module_of(sound.matches), unsound)
    square = module_of(lambda s: [s.b.matmul(x, s.parameter(4, 3)) for x in [s.input(5, 4)] * 2])
    inputs = data(graph_of(square), {})
    wanted = interpret(graph_of(square), inputs)
    found = interpret(graph_of(rewritten(square, unsound)), inputs)
    assert not np.array_equal(found[0], wanted[0])


def test_a_group_of_three_is_one_site_and_others_are_left_alone() -> None:
    rule = RULES["products of one left operand are one product"]

    def example(s: Sketch) -> list[Any]:
        x, y = s.input(5, 4), s.input(5, 4)
        others = [s.b.matmul(y, s.input(4, n)) for n in (2, 3)]  # shapes differ and nothing is constant
        return [*(s.b.matmul(x, s.parameter(4, n)) for n in (3, 2, 1)), *others]

    (site,) = rule.sites(View(graph_of(module_of(example))))
    assert len(site.replaced) == 3
