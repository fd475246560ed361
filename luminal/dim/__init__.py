"""Symbolic sizes: integer polynomials over symbols, floordiv, mod, min and max, in one canonical form.

A `Dim` is a sum of `coefficient * atom * atom ...`. Atoms are `Symbol`s and the four calls; `//` and `%` are Python's
(floor). Equality is structural equality of the canonical form. `known_*` answers True only where a proof was found:
False means "not known". Rewrite rules (each holds wherever the left side has a value):

    x // 1 = x      x // -n = -x // n      0 <= r < n:  (q*n + r) // n = q      (x // m) // n = x // (m*n), m, n > 0
    x % 1 = 0       x % -n = -(-x % n)     0 <= r < n:  (q*n + r) % n = r       (x % m) % n = x % n, n divides m
    (k*x + c) // (k*n) = (x + c // k) // n      (k*x + c) % (k*n) = k*((x + c // k) % n) + c % k       for k, n > 0
    (k*x) // (k*y) = x // y and (k*x) % (k*y) = k*(x % y), for atoms k known positive
    n*(x // n) + x % n = x        min and max: flat, sorted, constants merged, dominated arguments dropped
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.dim.bounds import known_equal, known_less, known_less_equal, known_unequal
from luminal.dim.buckets import range_of
from luminal.dim.core import (
    ONE,
    ZERO,
    Atom,
    Call,
    Dim,
    DimLike,
    Monomial,
    Range,
    Symbol,
    as_dim,
    check_same,
    from_terms,
    symbol_dim,
)
from luminal.dim.rules import divide_exact, extremum
from luminal.dim.text import ir_text, parse_dim
from luminal.errors import DimRangeError

__all__ = [
    "Atom",
    "Call",
    "Dim",
    "DimLike",
    "Monomial",
    "ONE",
    "Range",
    "Symbol",
    "ZERO",
    "as_dim",
    "collect_symbols",
    "dim",
    "dim_max",
    "dim_min",
    "dims",
    "divide_exact",
    "ir_text",
    "known_equal",
    "known_less",
    "known_less_equal",
    "known_unequal",
    "parse_dim",
    "product",
    "symbol_dim",
    "typical",
]


def dim(
    name: str, min: int = 0, max: int | None = None, buckets: Sequence[int | tuple[int, int | None]] = ()
) -> Dim:
    """A symbolic size; `max` None is unbounded. `dim("s", min=1, max=4096, buckets=[1, (2, 64)])`.

    `buckets` are sizes and pairs (first, last) that get a program of their own; what none covers belongs to the general
    one. DimRangeError for buckets that overlap, leave the range or are none.
    """
    if not isinstance(buckets, (list, tuple)):
        raise DimRangeError(f"dim {name!r}: buckets must be a list of sizes and pairs, not {buckets!r}")
    return from_terms({(Symbol(name, min, max, [range_of(name, bucket) for bucket in buckets]),): 1})


def dims(values: Iterable[DimLike]) -> tuple[Dim, ...]:
    """A shape as Dims."""
    return tuple(as_dim(value) for value in values)


def dim_min(*values: DimLike) -> Dim:
    """The least of one or more dims."""
    return extremum("min", values)


def dim_max(*values: DimLike) -> Dim:
    """The largest of one or more dims."""
    return extremum("max", values)


def product(values: Iterable[DimLike]) -> Dim:
    """The product; 1 for none."""
    total = ONE
    for value in values:
        total = total * value
    return total


_TYPICAL = 1009


def typical(value: Dim) -> int:
    """A number to compare strides by, with every symbol at one large size as far as its range allows.

    Strides in the order of these numbers are in their own order nearly always; it proves nothing.
    """
    sizes = {s.name: max(s.minimum, min(_TYPICAL, s.maximum or _TYPICAL)) for s in value.symbols()}
    return value.evaluate(sizes)


def collect_symbols(values: Iterable[Dim]) -> dict[str, Symbol]:
    """All symbols by name, sorted; DimRangeError where one name has two ranges."""
    found: dict[str, Symbol] = {}
    for symbol in {symbol for value in values for symbol in value.symbols()}:
        check_same(found.setdefault(symbol.name, symbol), symbol)
    return dict(sorted(found.items()))
