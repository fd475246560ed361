"""Rules on sums of products and quotients: what does not depend on the index of a sum leaves it."""

from __future__ import annotations

from luminal.search.rules.rule import (
    EXACT,
    NUMERATOR,
    NUMERATOR_GUARDS,
    Rule,
    filled,
    independent,
    is_float,
)

DISTRIBUTE = "distribute"

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
        after="tame",
        is_fact=True,
        guards=(*NUMERATOR_GUARDS, filled("j")),
        holds=(
            "the largest c of at least one gives exp(0): the sum lies between 1 and the number of addends, or is NaN; "
            "so dividing by it turns no finite number into infinity or NaN, nor the reverse"
        ),
        matches=lambda s: s.total(s.weights(s.read("i", "j"), "j"), "j"),
        misses=lambda s: s.total(s.exp(s.minus(s.read("i", "j"), s.read("i"))), "j"),
    ),
    Rule(
        "a quotient of a product is that of a factor",
        DISTRIBUTE,
        before='(Apply2 "mul" t (Apply2 "recip.none" t a b) c)',
        after='(Apply2 "recip.none" t (Apply2 "mul" t a c) b)',
        guards=(is_float("t"), "(tame b)"),
        holds="(a / b) c = (a c) / b but for two roundings, where b is no less than one or NaN",
        matches=lambda s: s.apply(
            "mul",
            s.divide(s.read("i", "j"), s.total(s.weights(s.read("i", "k"), "k"), "k")),
            s.read("j"),
        ),
        misses=lambda s: s.apply("mul", s.divide(s.read("i", "j"), s.read("i")), s.read("j")),
    ),
    Rule(
        "a common divisor leaves a sum",
        DISTRIBUTE,
        before='(Reduce "sum" j t (Apply2 "recip.none" t a b))',
        after='(Apply2 "recip.none" t (Reduce "sum" j t a) b)',
        guards=(is_float("t"), independent("b", "j"), "(tame b)", filled("j")),
        holds=(
            "sum(a / b) = sum(a) / b but for rounding, where b does not depend on the index and is no less than one or "
            "NaN; a sum of nothing is 0, whatever b is, so there must be an addend"
        ),
        matches=lambda s: s.total(
            s.divide(s.read("i", "j"), s.total(s.weights(s.read("i", "k"), "k"), "k")), "j"
        ),
        misses=lambda s: s.total(
            s.divide(s.read("i", "j"), s.total(s.weights(s.read("j", "k"), "k"), "k")), "j"
        ),
    ),
)
