"""Rules that find folds: reductions that one pass over their index computes together.

`(Weighted x j t c a)` is the sum over j of x(c - max c) * a, where x is an exponential and the maximum is over j too.
It is what a carried loop computes with a running maximum: where the maximum rises, what was summed is scaled by
x(old - new).  All weighted sums of one c, and its maximum, share a loop.  Source: M. Milakov and N. Gimelshein, Online
normalizer calculation for softmax, 2018.

`(Moment j t x)` is the sum over j of (x - m)(x - m), where m is the mean of x over j: blocks give their own, and the
difference of two means is what joining them adds.  It shares a loop with the sum of x.  Source: T. Chan, G. Golub and
R. LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
"""

from __future__ import annotations

from luminal.dialects.kernel.terms import Term
from luminal.search.rules.rule import (
    DISTRIBUTE,
    NUMERATOR,
    NUMERATOR_GUARDS,
    Rule,
    filled,
    is_float,
    is_number,
)
from luminal.search.rules.spelling import SIZES, Spelling

CENTRED = '(Apply2 "add" t x (Apply2 "mul" t (Apply2 "recip.none" t (Reduce "sum" j t x) n) (Constant t k)))'
"""x - mean of x over j."""


def squares(s: Spelling, index: str, count: str) -> Term:
    """The sum over an index of the squares of x - (sum of x) / how many values another index has."""
    x = s.read("i", "j")
    mean = s.divide(s.total(x, index), s.number(float(SIZES[count])))
    centred = s.minus(x, mean)
    return s.total(s.apply("mul", centred, centred), index)


RULES = (
    Rule(
        "a sum of squares around the mean is a fold",
        DISTRIBUTE,
        before='(Reduce "sum" j t (Apply2 "mul" t d d))',
        after="(Moment j t x)",
        guards=(
            f"(= d {CENTRED})",
            is_float("t"),
            is_number("k", "t", "minus one"),
            "(count j t n)",
            filled("j"),
        ),
        holds=(
            "the squares around the mean of two blocks are those around their own means and the square of the means' "
            "difference, weighted by how many there are, but for rounding; nothing large is subtracted"
        ),
        matches=lambda s: squares(s, "j", "j"),
        misses=lambda s: squares(s, "j", "k"),
    ),
    Rule(
        "a sum weighted by a softmax's numerators is a fold",
        DISTRIBUTE,
        before=f'(Reduce "sum" j t (Apply2 "mul" t {NUMERATOR} a))',
        after="(Weighted x j t c a)",
        guards=NUMERATOR_GUARDS,
        holds="by the definition of a weighted sum; exp(c - m) exp(m - M) = exp(c - M) but for rounding",
        matches=lambda s: s.total(s.apply("mul", s.weights(s.read("i", "j"), "j"), s.read("j", "k")), "j"),
        misses=lambda s: s.total(s.apply("mul", s.weights(s.read("i", "j"), "i"), s.read("j", "k")), "j"),
    ),
    Rule(
        "the sum of a softmax's numerators is a fold",
        DISTRIBUTE,
        before=f'(Reduce "sum" j t {NUMERATOR})',
        after="(Weighted x j t c (Constant t k))",
        guards=(*NUMERATOR_GUARDS, is_number("k", "t", "one")),
        holds="a weighted sum of ones",
        matches=lambda s: s.total(s.weights(s.read("i", "j"), "j"), "j"),
        misses=lambda s: s.total(
            s.exp(s.apply("add", s.read("i", "j"), s.total(s.read("i", "j"), "j", monoid="max"))), "j"
        ),
    ),
)
