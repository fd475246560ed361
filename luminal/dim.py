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

import ast
import hashlib
import keyword
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Union

from luminal.dtype import DTYPES
from luminal.errors import DimRangeError, UnsetDimError

RESERVED_NAMES = frozenset(
    {"floordiv", "mod", "min", "max", "to", "inf", "nan", "none", "true", "false", *DTYPES, *keyword.kwlist}
)


class Symbol:
    """A named size with an inclusive range; `maximum` None is unbounded. Identity is (name, minimum, maximum)."""

    __slots__ = ("_hash", "maximum", "minimum", "name", "text")

    def __init__(self, name: str, minimum: int = 0, maximum: int | None = None) -> None:
        if not name.isidentifier() or not name.isascii() or name in RESERVED_NAMES:
            raise DimRangeError(f"{name!r} is no name for a dim; an ASCII identifier that is no keyword and no dtype would be")
        if maximum is not None and maximum < minimum:
            raise DimRangeError(f"the range of dim {name} is empty: {minimum} to {maximum}")
        self.name, self.minimum, self.maximum, self.text = name, minimum, maximum, name
        self._hash = _stable_hash(f"{name} {minimum} {maximum}")

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol)
            and (self.name, self.minimum, self.maximum) == (other.name, other.minimum, other.maximum)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Symbol({self.range_text()})"

    def range_text(self) -> str:
        """`s in 1 to 4096`, the declaration in IR text."""
        return f"{self.name} in {self.minimum} to {'inf' if self.maximum is None else self.maximum}"

    def check(self, value: int) -> int:
        """`value` itself, or DimRangeError where it lies outside the declared range."""
        if value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise DimRangeError(f"dim {self.range_text()} was given {value}")
        return value


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
            isinstance(other, Call) and self._hash == other._hash
            and self.kind == other.kind and self.arguments == other.arguments
        )

    def __hash__(self) -> int:
        return self._hash


Atom = Union[Symbol, Call]
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
            lower, upper = _lower(self, _DEPTH), -_lower(-self, _DEPTH)
            self._bounds = (_finite(lower), _finite(upper))
        return self._bounds

    def evaluate(self, values: Mapping[str, int] | None = None) -> int:
        """The value for given symbols; UnsetDimError for a missing one, DimRangeError outside a declared range."""
        if self.constant is not None:
            return self.constant
        return sum(
            coefficient * math.prod(_evaluate_atom(atom, values or {}) for atom in monomial)
            for monomial, coefficient in self.terms
        )

    def substitute(self, values: Mapping[str, DimLike]) -> Dim:
        """The dim with symbols replaced; those not named stay. A plain number outside its range is an error."""
        if not any(symbol.name in values for symbol in self._symbols):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            total = total + product(_substitute_atom(atom, values) for atom in monomial) * coefficient
        return total

    def __add__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if self.constant is not None and other.constant is not None:
            return as_dim(self.constant + other.constant)
        if other.constant == 0:
            return self
        if self.constant == 0:
            return other
        sums = dict(self.terms)
        for monomial, coefficient in other.terms:
            sums[monomial] = sums.get(monomial, 0) + coefficient
        return _from_terms(sums)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        return self + -as_dim(other)

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) + -self

    def __mul__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if self.constant is not None and other.constant is not None:
            return as_dim(self.constant * other.constant)
        if other.constant == 1:
            return self
        if self.constant == 1:
            return other
        sums: dict[Monomial, int] = {}
        for left, left_coefficient in self.terms:
            for right, right_coefficient in other.terms:
                monomial = _sorted_atoms((*left, *right)) if left and right else left or right
                sums[monomial] = sums.get(monomial, 0) + left_coefficient * right_coefficient
        return _from_terms(sums)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        return _divide_modulo(self, as_dim(other))[0]

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return as_dim(other) // self

    def __mod__(self, other: DimLike) -> Dim:
        return _divide_modulo(self, as_dim(other))[1]

    def __rmod__(self, other: DimLike) -> Dim:
        return as_dim(other) % self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.constant is not None and self.constant == other
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
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

    def __reduce__(self) -> tuple[Callable[..., Dim], tuple[str, tuple[tuple[str, int, int | None], ...]]]:
        ranges = sorted((s.name, s.minimum, s.maximum) for s in self._symbols)
        return _unpickle, (self._text, tuple(ranges))


def dim(name: str, min: int = 0, max: int | None = None) -> Dim:
    """A symbolic size; `max` None is unbounded. `dim("s", min=1, max=4096)`."""
    return _from_terms({(Symbol(name, min, max),): 1})


def symbol_dim(symbol: Symbol) -> Dim:
    """The dim that is one symbol."""
    return _from_terms({(symbol,): 1})


def as_dim(value: DimLike) -> Dim:
    """`value` as a Dim; ints (and what has `__index__`) become constants."""
    if isinstance(value, Dim):
        return value
    number = value.__index__()
    found = _SMALL.get(number)
    return found if found is not None else _from_terms({(): number})


def dims(values: Iterable[DimLike]) -> tuple[Dim, ...]:
    """A shape as Dims."""
    return tuple(as_dim(value) for value in values)


def dim_min(*values: DimLike) -> Dim:
    """The least of one or more dims."""
    return _extremum("min", values)


def dim_max(*values: DimLike) -> Dim:
    """The largest of one or more dims."""
    return _extremum("max", values)


def product(values: Iterable[DimLike]) -> Dim:
    """The product; 1 for none."""
    total = ONE
    for value in values:
        total = total * value
    return total


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
    constant, content = _constant_and_content(difference)
    if content and constant % content:
        return True
    lower, upper = difference.bounds()
    return (lower is not None and lower > 0) or (upper is not None and upper < 0)


def divide_exact(dividend: DimLike, divisor: DimLike) -> Dim | None:
    """The polynomial q with q * divisor == dividend, or None where there is none (or the divisor is 0)."""
    rest, divisor = as_dim(dividend), as_dim(divisor)
    if divisor == 0:
        return None
    if divisor.constant is not None and rest.constant is not None:
        quotient, remainder = divmod(rest.constant, divisor.constant)
        return None if remainder else as_dim(quotient)
    atoms = _sorted_atoms({atom for d in (rest, divisor) for monomial, _ in d.terms for atom in monomial})
    lead_monomial, lead_coefficient = _leading_term(divisor, atoms)
    quotient = ZERO
    while rest != 0:
        monomial, coefficient = _leading_term(rest, atoms)
        left_over = _remove_atoms(monomial, lead_monomial)
        if left_over is None or coefficient % lead_coefficient:
            return None
        part = _from_terms({left_over: coefficient // lead_coefficient})
        quotient, rest = quotient + part, rest - part * divisor
    return quotient


def parse_dim(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """The dim that `str(dim)` wrote; `floordiv` and `mod`, the spellings in IR text, are read as // and %.

    Raises UnsetDimError for a symbol that is not in `symbols`, DimRangeError for text that is no dim.
    """
    source = re.sub(r"\bmod\b", "%", re.sub(r"\bfloordiv\b", "//", text))
    try:
        return _parse_node(ast.parse(source.strip(), mode="eval").body, symbols)
    except SyntaxError as error:
        raise DimRangeError(f"{text!r} is no dim expression") from error


def ir_text(value: Dim) -> str:
    """The dim in IR text, where // would begin a comment and % a value: `s floordiv 2`, `s mod 2`."""
    return value._text.replace(" // ", " floordiv ").replace(" % ", " mod ")  # pyright: ignore[reportPrivateUsage]


def collect_symbols(values: Iterable[Dim]) -> dict[str, Symbol]:
    """All symbols by name, sorted; DimRangeError where one name has two ranges."""
    found: dict[str, Symbol] = {}
    for symbol in {symbol for value in values for symbol in value.symbols()}:
        _check_same(found.setdefault(symbol.name, symbol), symbol)
    return dict(sorted(found.items()))


# ---- construction ----------------------------------------------------------------------------------------------


def _stable_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def _atom_text(atom: Atom) -> str:
    return atom.text


def _sorted_atoms(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=_atom_text))


def _check_same(known: Symbol, symbol: Symbol) -> None:
    if known != symbol:
        raise DimRangeError(f"one dim has two ranges: {known.range_text()}, and {symbol.range_text()}")


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return -len(term[0]), [atom.text for atom in term[0]]


def _from_terms(sums: Mapping[Monomial, int]) -> Dim:
    merged = _merge_division(sums)
    if merged is not None:
        return merged
    terms = tuple(sorted(((m, c) for m, c in sums.items() if c), key=_term_key))
    known = _INTERNED.get(terms)
    if known is not None:
        return known
    made = object.__new__(Dim)
    made.terms = terms
    made.constant = 0 if not terms else terms[0][1] if not terms[0][0] else None
    made._text = _terms_text(terms)  # pyright: ignore[reportPrivateUsage]
    symbols: dict[str, Symbol] = {}
    for monomial, _ in terms:
        for atom in monomial:
            inner = (atom,) if isinstance(atom, Symbol) else (s for a in atom.arguments for s in a.symbols())
            for symbol in inner:
                _check_same(symbols.setdefault(symbol.name, symbol), symbol)
    made._symbols = frozenset(symbols.values())  # pyright: ignore[reportPrivateUsage]
    number = made.constant
    made._hash = hash(number) if number is not None else _stable_hash(made._text)  # pyright: ignore[reportPrivateUsage]
    made._bounds = None if number is None else (number, number)  # pyright: ignore[reportPrivateUsage]
    _INTERNED[terms] = made
    return made


def _merge_division(sums: Mapping[Monomial, int]) -> Dim | None:
    """n*(x // n) + x % n = x, also with a common factor; None where nothing merges."""
    if len(sums) < 2:
        return None
    for monomial, coefficient in sums.items():
        for position, atom in enumerate(monomial):
            if not coefficient or not isinstance(atom, Call) or atom.kind != "%":
                continue
            x, n = atom.arguments
            rest = _from_terms({monomial[:position] + monomial[position + 1:]: coefficient})
            partner = (x // n) * n * rest
            if len(partner.terms) != 1:
                continue
            other, other_coefficient = partner.terms[0]
            if sums.get(other) == other_coefficient:
                left = {m: c for m, c in sums.items() if m not in (monomial, other)}
                return _from_terms(left) + x * rest
    return None


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


def _unpickle(text: str, ranges: tuple[tuple[str, int, int | None], ...]) -> Dim:
    return parse_dim(text, {name: Symbol(name, low, high) for name, low, high in ranges})


# ---- floordiv, mod, min, max -----------------------------------------------------------------------------------


def _call(kind: str, *arguments: Dim) -> Dim:
    return _from_terms({(Call(kind, arguments),): 1})


def _constant_and_content(value: Dim) -> tuple[int, int]:
    """The constant term, and the greatest common divisor of the other coefficients (0 where there are none)."""
    constant = value.terms[-1][1] if value.terms and not value.terms[-1][0] else 0
    return constant, math.gcd(*(c for m, c in value.terms if m))


def _divide_modulo(x: Dim, n: Dim) -> tuple[Dim, Dim]:
    """(x // n, x % n) by the rules in the module's docstring."""
    if n == 0:
        raise DimRangeError(f"dim {x} is divided by zero")
    if x.constant is not None and n.constant is not None:
        quotient, remainder = divmod(x.constant, n.constant)
        return as_dim(quotient), as_dim(remainder)
    if n.constant is not None and n.constant < 0:
        quotient, remainder = _divide_modulo(-x, -n)
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
        whole = coefficient // n if not monomial else int(math.copysign(1, coefficient)) * (abs(coefficient) // n)
        quotient_terms[monomial], rest_terms[monomial] = whole, coefficient - whole * n
    quotient, rest = _from_terms(quotient_terms), _from_terms(rest_terms)
    if rest != x:
        inner, remainder = _divide_by_constant(rest, n)
        return quotient + inner, remainder
    lower, upper = rest.bounds()
    if lower is not None and upper is not None and lower // n == upper // n:
        return as_dim(lower // n), rest - lower // n * n
    constant, content = _constant_and_content(rest)
    common = math.gcd(content, n)
    if common > 1:
        scaled = _from_terms({m: c // common for m, c in rest.terms if m}) + constant // common
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
            else _from_terms({(atom,): 1})
            for atom in monomial
        ]
        total = total + product(factors) * coefficient
    return total % n if total != x else _call("%", x, as_dim(n))


def _divide_by_symbolic(x: Dim, n: Dim) -> tuple[Dim, Dim]:
    if not known_unequal(n, 0):
        return (ZERO, ZERO) if x == 0 else (_call("//", x, n), _call("%", x, n))
    exact = divide_exact(x, n)
    if exact is not None:
        return exact, ZERO
    quotient = ZERO
    for monomial, coefficient in x.terms:
        whole = divide_exact(_from_terms({monomial: coefficient}), n)
        quotient = quotient if whole is None else quotient + whole
    rest = x - quotient * n
    if known_less_equal(0, rest) and known_less(rest, n):
        return quotient, rest
    common = _common_positive_factor(rest, n)
    if common != 1:
        small_rest, small_n = divide_exact(rest, common), divide_exact(n, common)
        assert small_rest is not None and small_n is not None
        inner, remainder = _divide_modulo(small_rest, small_n)
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
    positive = tuple(a for a in common or () if known_less(0, _from_terms({(a,): 1})))
    return _from_terms({positive: coefficient})


def _extremum(kind: str, values: Iterable[DimLike]) -> Dim:
    flat: dict[Dim, None] = {}
    for value in map(as_dim, values):
        atom = value.atom
        flat.update(dict.fromkeys(atom.arguments if isinstance(atom, Call) and atom.kind == kind else (value,)))
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


# ---- evaluation, substitution, parsing -------------------------------------------------------------------------

_APPLY: dict[str, Callable[..., Dim]] = {
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "min": dim_min, "max": dim_max,
}


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
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


def _substitute_atom(atom: Atom, values: Mapping[str, DimLike]) -> Dim:
    if isinstance(atom, Call):
        return _APPLY[atom.kind](*(argument.substitute(values) for argument in atom.arguments))
    if atom.name not in values:
        return _from_terms({(atom,): 1})
    value = as_dim(values[atom.name])
    return value if value.constant is None else as_dim(atom.check(value.constant))


def _parse_node(node: ast.expr, symbols: Mapping[str, Symbol]) -> Dim:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return as_dim(number)
        case ast.Name(id=name):
            if name not in symbols:
                raise UnsetDimError(f"dim {name} is not declared; declared are: {', '.join(sorted(symbols)) or 'none'}")
            return symbol_dim(symbols[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parse_node(operand, symbols)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_parse_node(left, symbols), _parse_node(right, symbols))
        case ast.Call(func=ast.Name(id="min" | "max" as kind), args=arguments, keywords=[]):
            return _extremum(kind, [_parse_node(argument, symbols) for argument in arguments])
        case _:
            raise DimRangeError(f"{ast.unparse(node)!r} is no dim expression")


_OPERATORS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: _APPLY["//"], ast.Mod: _APPLY["%"],
}


# ---- polynomials over given atoms ------------------------------------------------------------------------------


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


# ---- bounds ----------------------------------------------------------------------------------------------------

_DEPTH = 3
"""How many atoms in turn a bound may replace by what is known of them; each costs one more small polynomial."""
Number = Union[int, float]
"""An int, or an infinity."""


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
    return _floor(low, divisor_high if low >= 0 else divisor_low), _floor(high, divisor_low if high >= 0 else divisor_high)


def _open(bounds: tuple[int | None, int | None]) -> tuple[Number, Number]:
    return -math.inf if bounds[0] is None else bounds[0], math.inf if bounds[1] is None else bounds[1]


def _floor(value: Number, divisor: Number) -> Number:
    if isinstance(value, float):
        return value
    return value // divisor if isinstance(divisor, int) else (0 if value >= 0 else -1)


def _lower(value: Dim, depth: int) -> Number:
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
            bound = _lower(relaxed, depth - 1)
            best = max(best, -(-bound // scale) if isinstance(bound, int) else bound)
    return best


def _relaxations(value: Dim, call: Call, coefficient: int) -> Iterable[tuple[int, Dim]]:
    """Pairs (k, d) with d <= k * value, where the summand `coefficient * call` is replaced."""
    rest = value - _from_terms({(call,): coefficient})
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
    shifted: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in value.terms:
        partial: dict[tuple[Atom, ...], int] = {(): coefficient}
        for atom in monomial:
            low = _atom_bounds(atom)[0]
            if not isinstance(low, int):
                return -math.inf
            grown = {(*kept, atom): factor for kept, factor in partial.items()}
            for kept, factor in partial.items():
                grown[kept] = grown.get(kept, 0) + factor * low
            partial = grown
        for kept, factor in partial.items():
            key = _sorted_atoms(kept)
            shifted[key] = shifted.get(key, 0) + factor
    total: Number = shifted.pop((), 0)
    for atoms, factor in shifted.items():
        if factor < 0:
            span: Number = 1
            for low, high in map(_atom_bounds, atoms):
                span = _times(span, high - low)
            total += _times(factor, span)
    return total


_INTERNED: weakref.WeakValueDictionary[tuple[tuple[Monomial, int], ...], Dim] = weakref.WeakValueDictionary()
_SMALL: dict[int, Dim] = {}
_SMALL.update({number: _from_terms({(): number}) for number in range(-1, 4097)})
ZERO, ONE = _SMALL[0], _SMALL[1]
