"""A rewrite rule as data: what it matches, what that equals, under which guards and by which licence.

Patterns are e-nodes as the e-graph declares them (egraph.py); lower-case words are variables, `t` that of a dtype and
`j` that of the bits of bound indices.  A rule adds the right side to the class of the left one and takes nothing away.
Every rule brings a spelling that it must match and a near miss that it must not: the tests run both, and evaluate
every e-node that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from luminal.dialects.kernel.terms import Term
from luminal.search.rules.spelling import Spelling

EXACT = "exact"
DISTRIBUTE = "distribute"
Example = Callable[[Spelling], Term]


@dataclass(frozen=True)
class Rule:
    """before -> after; or, where `is_fact`, before -> a fact about `whole`, which is what it matches.

    `licence`: "exact", or the licence that its rounding needs; `holds` says why both sides are equal, and for what.
    """

    name: str
    licence: str
    before: str
    after: str
    holds: str
    matches: Example
    misses: Example
    guards: tuple[str, ...] = ()
    is_fact: bool = False

    @property
    def text(self) -> str:
        """The rule as egglog reads it."""
        body = " ".join((f"(= whole {self.before})", *self.guards))
        head = self.after if self.is_fact else f"(union whole {self.after})"
        ruleset = "facts" if self.is_fact else self.licence
        return f'(rule ({body}) ({head}) :ruleset {ruleset} :name "{self.name}")'


def independent(value: str, bound: str) -> str:
    """A value that does not depend on some bound indices."""
    return f"(= 0 (& (free {value}) {bound}))"


def filled(bound: str, unless: str = "0") -> str:
    """Bound indices that have at least one value each, whatever the sizes; those of `unless` may have none."""
    return f"(= {bound} (& {bound} (| {unless} (filled))))"


def is_float(dtype: str) -> str:
    return f"(float {dtype})"


def is_number(bits: str, dtype: str, name: str) -> str:
    """A constant's bits are those of a number that the e-graph knows by name."""
    return f'(number "{name}" {dtype} {bits})'


NUMERATOR = '(Apply1 x t (Apply2 "add" t c (Apply2 "mul" t (Reduce "max" j t c) (Constant t n))))'
"""x(c - max c) for an exponential x and a maximum over j: the numerators of a softmax."""
NUMERATOR_GUARDS = ("(exponential x)", is_float("t"), is_number("n", "t", "minus one"))
