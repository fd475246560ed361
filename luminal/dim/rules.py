"""The rewrite rules of //, %, min and max, and exact division; the list is in the package's docstring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from luminal.dim.bounds import constant_and_content, known_less, known_less_equal, known_unequal
from luminal.dim.core import ZERO, Atom, Call, Dim, DimLike, Monomial, as_dim, from_terms, sorted_atoms
from luminal.errors import DimRangeError


def divide_modulo(x: Dim, n: Dim) -> tuple[Dim, Dim]:
    """(x // n, x % n) by the rules in the module's docstring."""
    if n == 0:
        raise DimRangeError(f"dim {x} is divided by zero")
    if x.constant is not None and n.constant is not None:
        quotient, remainder = divmod(x.constant, n.constant)
        return as_dim(quotient), as_dim(remainder)
    if n.constant is not None and n.constant < 0:
        quotient, remainder = divide_modulo(-x, -n)
        return quotient, -remainder
    if n.constant is not None:
        return _divide_by_constant(x, n.constant)
    return _divide_by_symbolic(x, n)


def _divide_by_constant(x: Dim, n: int) -> tuple[Dim, Dim]:
    if n == 1:
        return x, ZERO
    # parts of x that n divides leave; coefficients keep their sign, so that ceiling division stays -(-s // n)
    quotient_terms, rest_terms = dict[Monomial, int](), dict[Monomial, int]()
    for monomial, coefficient in x.terms:
        whole = (
            coefficient // n if not monomial else int(math.copysign(1, coefficient)) * (abs(coefficient) // n)
        )
        quotient_terms[monomial], rest_terms[monomial] = whole, coefficient - whole * n
    quotient, rest = from_terms(quotient_terms), from_terms(rest_terms)
    if rest != x:
        inner, remainder = _divide_by_constant(rest, n)
        return quotient + inner, remainder
    lower, upper = rest.bounds()
    if lower is not None and upper is not None and lower // n == upper // n:
        return as_dim(lower // n), rest - lower // n * n
    constant, content = constant_and_content(rest)
    common = math.gcd(content, n)
    if common > 1:
        scaled = from_terms({m: c // common for m, c in rest.terms if m}) + constant // common
        inner, remainder = _divide_by_constant(scaled, n // common)
        return inner, remainder * common + constant % common
    return _divide_nested(rest, constant, n), _modulo_nested(rest, n)


def _divide_nested(x: Dim, constant: int, n: int) -> Dim:
    """(y // m + c) // n = (y + c*m) // (m*n) for m, n > 0."""
    if len(x.terms) == 1 + bool(constant) and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        atom = x.terms[0][0][0]
        if isinstance(atom, Call) and atom.kind == "//":
            m = atom.arguments[1]
            if known_less(0, m):
                return (atom.arguments[0] + m * constant) // (m * n)
    return _call("//", x, as_dim(n))


def _modulo_nested(x: Dim, n: int) -> Dim:
    """A summand y % m counts as y modulo n, where n divides m."""
    total = ZERO
    for monomial, coefficient in x.terms:
        factors = [
            atom.arguments[0]
            if isinstance(atom, Call) and atom.kind == "%" and divide_exact(atom.arguments[1], n) is not None
            else from_terms({(atom,): 1})
            for atom in monomial
        ]
        total = total + math.prod(factors, start=as_dim(coefficient))
    return total % n if total != x else _call("%", x, as_dim(n))


def _divide_by_symbolic(x: Dim, n: Dim) -> tuple[Dim, Dim]:
    if not known_unequal(n, 0):
        return (ZERO, ZERO) if x == 0 else (_call("//", x, n), _call("%", x, n))
    exact = divide_exact(x, n)
    if exact is not None:
        return exact, ZERO
    quotient = ZERO
    for monomial, coefficient in x.terms:
        whole = divide_exact(from_terms({monomial: coefficient}), n)
        quotient = quotient if whole is None else quotient + whole
    rest = x - quotient * n
    if known_less_equal(0, rest) and known_less(rest, n):
        return quotient, rest
    common = _common_positive_factor(rest, n)
    if common != 1:
        small_rest, small_n = divide_exact(rest, common), divide_exact(n, common)
        assert small_rest is not None and small_n is not None
        inner, remainder = divide_modulo(small_rest, small_n)
        return quotient + inner, remainder * common
    return quotient + _call("//", rest, n), _call("%", rest, n)


def _common_positive_factor(x: Dim, n: Dim) -> Dim:
    """The largest monomial that divides both and is proven positive."""
    coefficient = math.gcd(*(c for _, c in x.terms), *(c for _, c in n.terms))
    common: Monomial | None = None
    for monomial, _ in (*x.terms, *n.terms):
        kept = list[Atom]()
        left = list(monomial) if common is None else list(common)
        for atom in monomial:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = tuple(kept)
    positive = tuple(a for a in common or () if known_less(0, from_terms({(a,): 1})))
    return from_terms({positive: coefficient})


def extremum(kind: str, values: Iterable[DimLike]) -> Dim:
    flat: dict[Dim, None] = {}
    for value in map(as_dim, values):
        atom = value.atom
        flat.update(
            dict.fromkeys(atom.arguments if isinstance(atom, Call) and atom.kind == kind else (value,))
        )
    kept: list[Dim] = []
    for value in sorted(flat, key=lambda d: (d.constant is not None, str(d))):
        beats: Callable[[Dim, Dim], bool] = (
            known_less_equal if kind == "min" else lambda left, right: known_less_equal(right, left)
        )
        if any(beats(other, value) for other in kept):
            continue
        kept = [other for other in kept if not beats(value, other)] + [value]
    if not kept:
        raise DimRangeError(f"{kind} of no dims")
    return kept[0] if len(kept) == 1 else _call(kind, *kept)


def merge_division(sums: Mapping[Monomial, int]) -> Dim | None:
    """n*(x // n) + x % n = x, also with a common factor; None where nothing merges."""
    for monomial, coefficient in sums.items():
        for position, atom in enumerate(monomial):
            if not coefficient or not isinstance(atom, Call) or atom.kind != "%":
                continue
            x, n = atom.arguments
            rest = from_terms({monomial[:position] + monomial[position + 1 :]: coefficient})
            partner = (x // n) * n * rest
            if len(partner.terms) != 1:
                continue
            other, other_coefficient = partner.terms[0]
            if sums.get(other) == other_coefficient:
                left = {m: c for m, c in sums.items() if m not in (monomial, other)}
                return from_terms(left) + x * rest
    return None


def divide_exact(dividend: DimLike, divisor: DimLike) -> Dim | None:
    """The polynomial q with q * divisor == dividend, or None where there is none (or the divisor is 0)."""
    rest, divisor = as_dim(dividend), as_dim(divisor)
    if divisor == 0:
        return None
    if divisor.constant is not None and rest.constant is not None:
        quotient, remainder = divmod(rest.constant, divisor.constant)
        return None if remainder else as_dim(quotient)
    atoms = sorted_atoms({atom for d in (rest, divisor) for monomial, _ in d.terms for atom in monomial})
    lead_monomial, lead_coefficient = _leading_term(divisor, atoms)
    quotient = ZERO
    while rest != 0:
        monomial, coefficient = _leading_term(rest, atoms)
        left_over = _remove_atoms(monomial, lead_monomial)
        if left_over is None or coefficient % lead_coefficient:
            return None
        part = from_terms({left_over: coefficient // lead_coefficient})
        quotient, rest = quotient + part, rest - part * divisor
    return quotient


APPLY: dict[str, Callable[..., Dim]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": lambda *values: extremum("min", values),
    "max": lambda *values: extremum("max", values),
}
"""The four calls by kind, as `Call.kind` names them."""


def _call(kind: str, *arguments: Dim) -> Dim:
    return from_terms({(Call(kind, arguments),): 1})


def _leading_term(value: Dim, atoms: Monomial) -> tuple[Monomial, int]:
    """The first term in graded lexicographic order, which multiplication respects."""
    return max(value.terms, key=lambda term: (len(term[0]), [term[0].count(atom) for atom in atoms]))


def _remove_atoms(monomial: Monomial, removed: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in removed:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
