"""Rules on sums of products and quotients: what does not depend on the index of a sum leaves it."""

from __future__ import annotations

from luminal.dialects.kernel.terms import Term
from luminal.search.rules.rule import (
    DISTRIBUTE,
    EXACT,
    NUMERATOR,
    NUMERATOR_GUARDS,
    Rule,
    filled,
    independent,
    is_float,
    is_number,
)
from luminal.search.rules.spelling import Spelling


def softmax_sum(s: Spelling, row: str, column: str = "k") -> Term:
    return s.total(s.weights(s.read(row, column), column), column)


RULES = (
    Rule(
        "factors of a product change places",
        EXACT,
        before='(Apply2 "mul" t a b)',
        after='(Apply2 "mul" t b a)',
        holds="multiplication commutes, to the bit, in every dtype",
        matches=lambda s: s.apply("mul", s.read("i"), s.read("j")),
        misses=lambda s: s.apply("mod", s.read("i"), s.read("j"), variant="floor"),
    ),
    Rule(
        "terms of a sum change places",
        EXACT,
        before='(Apply2 "add" t a b)',
        after='(Apply2 "add" t b a)',
        holds="addition commutes, to the bit, in every dtype",
        matches=lambda s: s.apply("add", s.read("i"), s.read("j")),
        misses=lambda s: s.divide(s.read("i"), s.read("j")),
    ),
    Rule(
        "the sum of a softmax is no less than one",
        EXACT,
        before=f'(Reduce "sum" j t {NUMERATOR})',
        after="(tame whole j)",
        is_fact=True,
        guards=NUMERATOR_GUARDS,
        holds=(
            "the largest c of at least one gives exp(0): where no index of j is empty, the sum lies between 1 and the "
            "number of addends, or is NaN; dividing by it turns no finite number into infinity or NaN, nor the reverse"
        ),
        matches=lambda s: s.total(s.weights(s.read("i", "j"), "j"), "j"),
        misses=lambda s: s.total(s.exp(s.minus(s.read("i", "j"), s.read("i"))), "j"),
    ),
    Rule(
        "a quotient of a product is that of a factor",
        DISTRIBUTE,
        before='(Apply2 "mul" t (Apply2 "recip.none" t a b) c)',
        after='(Apply2 "recip.none" t (Apply2 "mul" t a c) b)',
        guards=(is_float("t"), "(tame b k)", "(= x (free whole))", filled("k", unless="x")),
        holds=(
            "(a / b) c = (a c) / b but for two roundings, where b is no less than one or NaN; b's own indices are "
            "filled, or the product has them too and is computed for none of their values"
        ),
        matches=lambda s: s.apply("mul", s.divide(s.read("i", "j"), softmax_sum(s, "i")), s.read("j")),
        misses=lambda s: s.apply("mul", s.divide(s.read("i", "j"), s.read("i")), s.read("j")),
    ),
    Rule(
        "a common divisor leaves a sum",
        DISTRIBUTE,
        before='(Reduce "sum" j t (Apply2 "recip.none" t a b))',
        after='(Apply2 "recip.none" t (Reduce "sum" j t a) b)',
        guards=(is_float("t"), independent("b", "j"), "(tame b k)", filled("k"), filled("j")),
        holds=(
            "sum(a / b) = sum(a) / b but for rounding, where b does not depend on the index and is no less than one or "
            "NaN; a sum of nothing is 0, whatever b is, so there must be an addend"
        ),
        matches=lambda s: s.total(s.divide(s.read("i", "j"), softmax_sum(s, "i")), "j"),
        misses=lambda s: s.total(s.divide(s.read("i", "j"), softmax_sum(s, "j")), "j"),
    ),
    Rule(
        "a common divisor leaves a sum that may be empty",
        DISTRIBUTE,
        before='(Reduce "sum" j t (Apply2 "recip.none" t a b))',
        after=('(Apply3 "select" t (Empty j) (Constant t z) (Apply2 "recip.none" t (Reduce "sum" j t a) b))'),
        guards=(
            is_float("t"),
            independent("b", "j"),
            "(tame b k)",
            filled("k", unless="j"),
            "(!= j (& j (filled)))",
            is_number("z", "t", "zero"),
        ),
        holds="as for a sum that is not empty; one that is, is 0",
        matches=lambda s: s.total(s.divide(s.read("i", "j", "n"), softmax_sum(s, "i", "n")), "n"),
        misses=lambda s: s.total(s.divide(s.read("i", "j", "n"), softmax_sum(s, "i", "m")), "n"),
    ),
)
