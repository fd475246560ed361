"""Rules that find folds: reductions that one pass over their index computes together.

`(Weighted x j t c a)` is the sum over j of x(c - max c) * a, where x is an exponential and the maximum is over j too.
It is what a carried loop computes with a running maximum: where the maximum rises, what was summed is scaled by
x(old - new).  All weighted sums of one c, and its maximum, share a loop.  Source: M. Milakov and N. Gimelshein, Online
normalizer calculation for softmax, 2018.
"""

from __future__ import annotations

from luminal.search.rules.rule import DISTRIBUTE, NUMERATOR, NUMERATOR_GUARDS, Rule, is_number

RULES = (
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
