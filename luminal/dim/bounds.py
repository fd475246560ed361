"""What is proven about dims: bounds, equality and order. Sound, not complete."""

from __future__ import annotations

import math
from collections.abc import Iterable

from luminal.dim.core import Atom, Call, Dim, DimLike, Monomial, Symbol, as_dim, from_terms, sorted_atoms


def known_equal(left: DimLike, right: DimLike) -> bool:
    """Proven equal for every value of the symbols."""
    if left is right:
        return True
    difference = as_dim(left) - right
    return difference.constant == 0 or difference.bounds() == (0, 0)


def known_less_equal(left: DimLike, right: DimLike) -> bool:
    """Proven `left <= right` for every value of the symbols."""
    lower = (as_dim(right) - left).bounds()[0]
    return lower is not None and lower >= 0


def known_less(left: DimLike, right: DimLike) -> bool:
    """Proven `left < right` for every value of the symbols."""
    return known_less_equal(as_dim(left) + 1, right)


def known_unequal(left: DimLike, right: DimLike) -> bool:
    """Proven different for every value of the symbols, by their bounds or by a common divisor (2*s and 3)."""
    difference = as_dim(left) - right
    constant, content = constant_and_content(difference)
    if content and constant % content:
        return True
    lower, upper = difference.bounds()
    return (lower is not None and lower > 0) or (upper is not None and upper < 0)


def constant_and_content(value: Dim) -> tuple[int, int]:
    """The constant term, and the greatest common divisor of the other coefficients (0 where there are none)."""
    constant = value.terms[-1][1] if value.terms and not value.terms[-1][0] else 0
    return constant, math.gcd(*(c for m, c in value.terms if m))


_DEPTH = 3
"""How many atoms in turn a bound may replace by what is known of them; each costs one more small polynomial."""
Number = int | float
"""An int, or an infinity."""


def find_bounds(value: Dim) -> tuple[int | None, int | None]:
    """What `Dim.bounds` keeps."""
    return _finite(_lower_bound(value, _DEPTH)), _finite(-_lower_bound(-value, _DEPTH))


def _finite(value: Number) -> int | None:
    return value if isinstance(value, int) else None


def _times(left: Number, right: Number) -> Number:
    return 0 if left == 0 or right == 0 else left * right


def _atom_bounds(atom: Atom) -> tuple[Number, Number]:
    if isinstance(atom, Symbol):
        return atom.minimum, math.inf if atom.maximum is None else atom.maximum
    ranges = [_open(argument.bounds()) for argument in atom.arguments]
    if atom.kind in ("min", "max"):
        choose = min if atom.kind == "min" else max
        return choose(low for low, _ in ranges), choose(high for _, high in ranges)
    (low, high), (divisor_low, divisor_high) = ranges
    divisor_low = 1 if divisor_low == 0 else divisor_low  # where the divisor is 0 there is no value to bound
    if divisor_low < 0:
        return -math.inf, math.inf
    if atom.kind == "%":
        return 0, min(divisor_high - 1, high if low >= 0 else math.inf)
    return _floor(low, divisor_high if low >= 0 else divisor_low), _floor(
        high, divisor_low if high >= 0 else divisor_high
    )


def _open(bounds: tuple[int | None, int | None]) -> tuple[Number, Number]:
    return -math.inf if bounds[0] is None else bounds[0], math.inf if bounds[1] is None else bounds[1]


def _floor(value: Number, divisor: Number) -> Number:
    if isinstance(value, float):
        return value
    return value // divisor if isinstance(divisor, int) else (0 if value >= 0 else -1)


def _lower_bound(value: Dim, depth: int) -> Number:
    """The best proven lower bound: intervals, shifted intervals, then one call replaced by what bounds it."""
    if value.constant is not None:
        return value.constant
    best = max(_interval_lower(value), _shifted_lower(value))
    if depth == 0:
        return best
    for monomial, coefficient in value.terms:
        if len(monomial) != 1 or not isinstance(monomial[0], Call):
            continue
        for scale, relaxed in _relaxations(value, monomial[0], coefficient):
            bound = _lower_bound(relaxed, depth - 1)
            best = max(best, -(-bound // scale) if isinstance(bound, int) else bound)
    return best


def _relaxations(value: Dim, call: Call, coefficient: int) -> Iterable[tuple[int, Dim]]:
    """Pairs (k, d) with d <= k * value, where the summand `coefficient * call` is replaced."""
    rest = value - from_terms({(call,): coefficient})
    first, last = call.arguments[0], call.arguments[-1]
    if call.kind == ("max" if coefficient > 0 else "min"):
        for argument in call.arguments:
            yield 1, rest + argument * coefficient
    if call.kind == "//" and last.constant is not None:  # x - (n-1) <= n*(x // n) <= x, as n > 0 by the rules
        slack = coefficient * (last.constant - 1) if coefficient > 0 else 0
        yield last.constant, rest * last.constant + first * coefficient - slack
    if call.kind == "%" and coefficient < 0 and known_less_equal(0, first) and known_less(0, last):
        yield 1, rest + first * coefficient
        yield 1, rest + (last - 1) * coefficient


def _interval_lower(value: Dim) -> Number:
    total: Number = 0
    for monomial, coefficient in value.terms:
        low: Number = coefficient
        high: Number = coefficient
        for atom in monomial:
            corners = [_times(a, b) for a in (low, high) for b in _atom_bounds(atom)]
            low, high = min(corners), max(corners)
        total += low
    return total


def _shifted_lower(value: Dim) -> Number:
    """With each atom as its lower bound plus something non-negative, only negative coefficients can cost."""
    shifted: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        partial: dict[Monomial, int] = {(): coefficient}
        for atom in monomial:
            low = _atom_bounds(atom)[0]
            if not isinstance(low, int):
                return -math.inf
            grown: dict[Monomial, int] = {(*kept, atom): factor for kept, factor in partial.items()}
            for kept, factor in partial.items():
                grown[kept] = grown.get(kept, 0) + factor * low
            partial = grown
        for kept, factor in partial.items():
            key = sorted_atoms(kept)
            shifted[key] = shifted.get(key, 0) + factor
    total: Number = shifted.pop((), 0)
    for atoms, factor in shifted.items():
        if factor < 0:
            span: Number = 1
            for low, high in map(_atom_bounds, atoms):
                span = _times(span, high - low)
            total += _times(factor, span)
    return total
