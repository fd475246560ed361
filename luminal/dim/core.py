"""The polynomial itself: symbols, atoms, `Dim` and its operators, and the one place where dims are made."""

from __future__ import annotations

import hashlib
import keyword
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Union

from luminal.dtype import DTYPES
from luminal.errors import DimRangeError, UnsetDimError

RESERVED_NAMES = frozenset(
    {"floordiv", "mod", "min", "max", "to", "inf", "nan", "none", "true", "false", *DTYPES, *keyword.kwlist}
)


Range = tuple[int, "int | None"]
"""Sizes from the first to the last, both included; None is unbounded."""


def range_text(range_: Range) -> str:
    """`2 to 64`, `65 to inf`; `1` where it is one size."""
    low, high = range_
    return str(low) if low == high else f"{low} to {'inf' if high is None else high}"


class Symbol:
    """A named size with an inclusive range; `maximum` None is unbounded.

    `buckets` are ranges with a program of their own, kept in order. Identity is (name, minimum, maximum, buckets).
    """

    __slots__ = ("_hash", "buckets", "maximum", "minimum", "name", "text")

    def __init__(
        self, name: str, minimum: int = 0, maximum: int | None = None, buckets: Iterable[Range] = ()
    ) -> None:
        if not name.isidentifier() or not name.isascii() or name in RESERVED_NAMES:
            raise DimRangeError(
                f"{name!r} is no name for a dim; an ASCII identifier that is no keyword and no dtype would be"
            )
        if maximum is not None and maximum < minimum:
            raise DimRangeError(f"the range of dim {name} is empty: {minimum} to {maximum}")
        self.name, self.minimum, self.maximum, self.text = name, minimum, maximum, name
        self.buckets = self._checked(buckets)
        self._hash = _stable_hash(f"{name} {minimum} {maximum}")

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol)
            and (self.name, self.minimum, self.maximum, self.buckets)
            == (other.name, other.minimum, other.maximum, other.buckets)
        )

    def __hash__(self) -> int:
        return self._hash

    def clamp(self, size: int) -> int:
        """The size of the symbol's range that is nearest to one."""
        largest = size if self.maximum is None else min(size, self.maximum)
        return max(self.minimum, largest)

    def _checked(self, buckets: Iterable[Range]) -> tuple[Range, ...]:
        """The buckets in order; DimRangeError where one is empty, leaves the range, or overlaps another."""
        ordered = tuple(sorted(buckets, key=lambda bucket: bucket[0]))
        last: int | float = self.minimum - 1
        for low, high in ordered:
            end = math.inf if high is None else high
            if low > end or low < self.minimum or end > (math.inf if self.maximum is None else self.maximum):
                raise DimRangeError(
                    f"bucket {low} to {end} of dim {self.range_text()} is empty or leaves the dim's range"
                )
            if low <= last:
                raise DimRangeError(f"buckets of dim {self.name} overlap at {low}: {_buckets_text(ordered)}")
            last = end
        return ordered

    def __repr__(self) -> str:
        return f"Symbol({self.declaration()})"

    def range_text(self) -> str:
        """`s in 1 to 4096`."""
        return f"{self.name} in {self.minimum} to {'inf' if self.maximum is None else self.maximum}"

    def declaration(self) -> str:
        """`s in 1 to 4096 buckets [1, 2 to 64]`, as in IR text."""
        buckets = f" buckets {_buckets_text(self.buckets)}" if self.buckets else ""
        return self.range_text() + buckets

    def check(self, value: int) -> int:
        """`value` itself, or DimRangeError where it lies outside the declared range."""
        if value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise DimRangeError(f"dim {self.range_text()} was given {value}")
        return value


def _buckets_text(buckets: Iterable[Range]) -> str:
    return f"[{', '.join(map(range_text, buckets))}]"


class Call:
    """An atom: "//", "%", "min" or "max" of dims that no rule could rewrite."""

    __slots__ = ("_hash", "arguments", "kind", "text")

    def __init__(self, kind: str, arguments: tuple[Dim, ...]) -> None:
        self.kind, self.arguments = kind, arguments
        if kind in ("min", "max"):
            self.text = f"{kind}({', '.join(str(a) for a in arguments)})"
        else:
            self.text = f" {kind} ".join(_operand_text(a) for a in arguments)
        self._hash = _stable_hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Call)
            and self._hash == other._hash
            and self.kind == other.kind
            and self.arguments == other.arguments
        )

    def __hash__(self) -> int:
        return self._hash


Atom = Symbol | Call
Monomial = tuple[Atom, ...]
"""Atoms sorted by text, repeated for powers; () is the constant."""
DimLike = Union[int, "Dim"]


class Dim:
    """An immutable canonical integer polynomial; make one with `dim`, `as_dim` and the operators."""

    __slots__ = ("__weakref__", "_bounds", "_hash", "_symbols", "_text", "constant", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    constant: int | None
    """The value where the dim is a plain number, else None."""
    _text: str
    _hash: int
    _symbols: frozenset[Symbol]
    _bounds: tuple[int | None, int | None] | None

    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the dim, also inside calls."""
        return self._symbols

    @property
    def symbol(self) -> Symbol | None:
        """The symbol where the dim is one symbol and nothing else, else None."""
        atom = self.atom
        return atom if isinstance(atom, Symbol) else None

    @property
    def atom(self) -> Atom | None:
        """The atom where the dim is one atom and nothing else, else None."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        return self.terms[0][0][0]

    def bounds(self) -> tuple[int | None, int | None]:
        """Proven inclusive (lower, upper) over all values in the declared ranges; None where unbounded or not known."""
        if self._bounds is None:
            from luminal.dim.bounds import find_bounds

            self._bounds = find_bounds(self)
        return self._bounds

    def evaluate(self, values: Mapping[str, int] | None = None) -> int:
        """The value for given symbols; UnsetDimError for a missing one, DimRangeError outside a declared range."""
        if self.constant is not None:
            return self.constant
        return sum(
            coefficient * math.prod(evaluate_atom(atom, values or {}) for atom in monomial)
            for monomial, coefficient in self.terms
        )

    def substitute(self, values: Mapping[str, DimLike]) -> Dim:
        """The dim with symbols replaced; those not named stay. A plain number outside its range is an error."""
        if not any(symbol.name in values for symbol in self._symbols):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            part = as_dim(coefficient)
            for atom in monomial:
                part = part * substitute_atom(atom, values)
            total = total + part
        return total

    def __add__(self, other: DimLike) -> Dim:
        if not hasattr(other, "__index__"):
            return NotImplemented
        other = as_dim(other)
        if self.constant is not None and other.constant is not None:
            return as_dim(self.constant + other.constant)
        if other.constant == 0:
            return self
        if self.constant == 0:
            return other
        return _sum_of(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        if not hasattr(other, "__index__"):
            return NotImplemented
        return self + -as_dim(other)

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) + -self

    def __mul__(self, other: DimLike) -> Dim:
        if not hasattr(other, "__index__"):
            return NotImplemented
        other = as_dim(other)
        if self.constant is not None and other.constant is not None:
            return as_dim(self.constant * other.constant)
        if other.constant == 1:
            return self
        if self.constant == 1:
            return other
        return _product_of(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        if not hasattr(other, "__index__"):
            return NotImplemented
        return _divide_modulo(self, as_dim(other))[0]

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return as_dim(other) // self

    def __mod__(self, other: DimLike) -> Dim:
        if not hasattr(other, "__index__"):
            return NotImplemented
        return _divide_modulo(self, as_dim(other))[1]

    def __rmod__(self, other: DimLike) -> Dim:
        return as_dim(other) % self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.constant is not None and self.constant == other
        if not isinstance(other, Dim):
            return NotImplemented
        return self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        from luminal.dim.bounds import known_equal, known_unequal

        if known_equal(self, 0):
            return False
        if known_unequal(self, 0):
            return True
        raise DimRangeError(f"whether dim {self} is zero depends on its value")

    def __index__(self) -> int:
        if self.constant is None:
            raise UnsetDimError(f"dim {self} has no value yet; a plain number is needed here")
        return self.constant

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self._text})"

    def __reduce__(self) -> tuple[Callable[..., Dim], tuple[str, tuple[tuple[Any, ...], ...]]]:
        from luminal.dim.text import unpickle

        symbols = sorted(self._symbols, key=_atom_text)
        return unpickle, (self._text, tuple((s.name, s.minimum, s.maximum, s.buckets) for s in symbols))


# The same few dims are added and multiplied again and again: for every view, at every place that a region reads.


@lru_cache(maxsize=1 << 13)
def _sum_of(one: Dim, other: Dim) -> Dim:
    sums = dict(one.terms)
    for monomial, coefficient in other.terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return from_terms(sums)


@lru_cache(maxsize=1 << 13)
def _product_of(one: Dim, other: Dim) -> Dim:
    sums: dict[Monomial, int] = {}
    for left, left_coefficient in one.terms:
        for right, right_coefficient in other.terms:
            monomial = sorted_atoms((*left, *right)) if left and right else left or right
            sums[monomial] = sums.get(monomial, 0) + left_coefficient * right_coefficient
    return from_terms(sums)


def _divide_modulo(x: Dim, n: Dim) -> tuple[Dim, Dim]:
    from luminal.dim.rules import divide_modulo  # the rules are written with dims

    return divide_modulo(x, n)


def symbol_dim(symbol: Symbol) -> Dim:
    """The dim that is one symbol."""
    return from_terms({(symbol,): 1})


def as_dim(value: DimLike) -> Dim:
    """`value` as a Dim; ints (and what has `__index__`) become constants."""
    if isinstance(value, Dim):
        return value
    number = value.__index__()
    found = _SMALL.get(number)
    return found if found is not None else from_terms({(): number})


def _stable_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def _atom_text(atom: Atom) -> str:
    return atom.text


def sorted_atoms(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=_atom_text))


def check_same(known: Symbol, symbol: Symbol) -> None:
    if known != symbol:
        raise DimRangeError(f"one dim has two ranges: {known.declaration()}, and {symbol.declaration()}")


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return -len(term[0]), [atom.text for atom in term[0]]


def from_terms(sums: Mapping[Monomial, int]) -> Dim:
    """The one maker of dims: merges x // n with x % n, sorts, drops zeros, and gives equal dims as one object."""
    if len(sums) > 1 and any(isinstance(a, Call) and a.kind == "%" for monomial in sums for a in monomial):
        from luminal.dim.rules import merge_division

        merged = merge_division(sums)
        if merged is not None:
            return merged
    terms = tuple(sorted(((m, c) for m, c in sums.items() if c), key=_term_key))
    known = _INTERNED.get(terms)
    if known is not None:
        return known
    made = object.__new__(Dim)
    made.terms = terms
    made.constant = 0 if not terms else terms[0][1] if not terms[0][0] else None
    made._text = _terms_text(terms)
    symbols: dict[str, Symbol] = {}
    for monomial, _ in terms:
        for atom in monomial:
            inner = (atom,) if isinstance(atom, Symbol) else (s for a in atom.arguments for s in a.symbols())
            for symbol in inner:
                check_same(symbols.setdefault(symbol.name, symbol), symbol)
    made._symbols = frozenset(symbols.values())
    number = made.constant
    made._hash = hash(number) if number is not None else _stable_hash(made._text)
    made._bounds = None if number is None else (number, number)
    _INTERNED[terms] = made
    return made


def _operand_text(value: Dim) -> str:
    """`value` as an operand of // or %: bare where it is one symbol, one min or max, or a plain number >= 0."""
    bare = value.constant is not None and value.constant >= 0
    if value.atom is not None:
        bare = not _is_division(value.atom)
    return str(value) if bare else f"({value})"


def _is_division(atom: Atom) -> bool:
    return isinstance(atom, Call) and atom.kind in ("//", "%")


def _terms_text(terms: tuple[tuple[Monomial, int], ...]) -> str:
    if not terms:
        return "0"
    text = ""
    for monomial, coefficient in terms:
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        # -s // 2 would read as (-s) // 2, so a leading minus needs the parentheses too
        alone = len(monomial) == 1 and (coefficient == 1 or (coefficient == -1 and bool(text)))
        factors = [f"({a.text})" if _is_division(a) and not alone else a.text for a in monomial]
        if abs(coefficient) != 1 or not monomial:
            factors.insert(0, str(abs(coefficient)))
        text += sign + "*".join(factors)
    return text


def evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        if atom.name not in values:
            raise UnsetDimError(f"dim {atom.name} is not set; set are: {', '.join(sorted(values)) or 'none'}")
        return atom.check(values[atom.name])
    numbers = [argument.evaluate(values) for argument in atom.arguments]
    if atom.kind in ("min", "max"):
        return min(numbers) if atom.kind == "min" else max(numbers)
    if numbers[1] == 0:
        raise DimRangeError(f"{atom.text} divides by zero, as {atom.arguments[1]} is 0")
    return numbers[0] // numbers[1] if atom.kind == "//" else numbers[0] % numbers[1]


def substitute_atom(atom: Atom, values: Mapping[str, DimLike]) -> Dim:
    if isinstance(atom, Call):
        from luminal.dim.rules import APPLY

        return APPLY[atom.kind](*(argument.substitute(values) for argument in atom.arguments))
    if atom.name not in values:
        return from_terms({(atom,): 1})
    value = as_dim(values[atom.name])
    return value if value.constant is None else as_dim(atom.check(value.constant))


_INTERNED: weakref.WeakValueDictionary[tuple[tuple[Monomial, int], ...], Dim] = weakref.WeakValueDictionary()
_SMALL: dict[int, Dim] = {}
_SMALL.update({number: from_terms({(): number} if number else {}) for number in range(-1, 4097)})
ZERO, ONE = _SMALL[0], _SMALL[1]
