"""Which rewrite rules made a form of a region wrong: found by leaving rules out (Zeller, Delta Debugging, 2002)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.terms import Region
from luminal.dim import collect_symbols
from luminal.search.bounds import fits
from luminal.search.forms import forms
from luminal.search.verify import first_mismatch, sample_output

if TYPE_CHECKING:
    from luminal.search.rules.rule import Rule

SIZES = (70, 3, 1)
"""Sizes of symbols at which forms are compared: more than a block, and fewer."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The names of rules: without one of `guilty` alone the form is right; all of `chain` are needed to make the wrong
    form, in the order of the table.  Both are empty where the form itself is right: its schedule is to blame."""

    guilty: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.chain:
            return (
                "the form is right, whatever rules made it: the schedule, or what was made of it, is to blame"
            )
        named = self.guilty or self.chain
        needed = [name for name in self.chain if name not in named]
        also = f"; the form is made with: {'; '.join(needed)}" if needed else ""
        return f"{'; '.join(named)}{also}"


def blame(region: Region, name: str, licences: frozenset[str]) -> Blame:
    """The rules to blame for the form of a region with some name."""
    from luminal.search import rules as tables

    suspects: list[Rule] = list(tables.TERM_RULES)
    if not _is_wrong(region, name, licences, suspects):
        return Blame()
    guilty: list[str] = []
    for rule in suspects:
        if _is_wrong(region, name, licences, [other for other in suspects if other is not rule]) is False:
            guilty.append(rule.name)
    chain = list(suspects)
    for rule in suspects:
        fewer = [other for other in chain if other is not rule]
        if _is_wrong(region, name, licences, fewer):
            chain = fewer
    return Blame(tuple(guilty), tuple(rule.name for rule in chain))


def _is_wrong(region: Region, name: str, licences: frozenset[str], rules: Sequence[Rule]) -> bool | None:
    """Whether the form that some rules make differs from the region; None where they make none."""
    found = next((form.region for form in forms(region, licences, rules) if form.name == name), None)
    return None if found is None else _differ(region, found)


def _differ(region: Region, form: Region) -> bool:
    """Whether two regions that should be equal are not, on random data."""
    symbols = collect_symbols(region.dims()).values()
    for size in SIZES if symbols else SIZES[:1]:
        dims = {symbol.name: symbol.clamp(size) for symbol in symbols}
        if not fits(region, dims):
            continue
        draw = np.random.default_rng(size)
        arguments = [
            draw.standard_normal(a.elements.evaluate(dims)).astype(a.dtype.numpy) for a in region.arguments
        ]
        for number, found in enumerate(evaluate(form, arguments, dims)):
            wanted = sample_output(region, number, arguments, dims)
            if wanted is not None and first_mismatch(wanted, found, is_fold=True) is not None:
                return True
    return False
