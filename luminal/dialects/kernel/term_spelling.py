"""One term in the notation of mathematics: a pattern, the terms in it, and how tightly it binds.

Spelling follows what people write: `a + -1*b` is a difference, a select by a comparison of its own operands a maximum.
It is for reading; where a spelling says less than the term (NaN, -0.0), the text of the region is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from luminal.dialects.kernel.subscripts import affine_text, subscripts
from luminal.dialects.kernel.terms import PAIRED_MONOIDS, Affine, Region, Term
from luminal.dim import Dim
from luminal.dtype import from_bits

CHOICE, OR, AND, COMPARISON, SUM, FOLD, PRODUCT, FACTOR, ATOM = range(9)
"""How tightly a spelling binds, from `a if c else b` to a name."""


class Spelling(NamedTuple):
    """`pattern` has {0}, {1}, ... for its operands, of which each needs parentheses if it binds less than `least`."""

    pattern: str
    operands: tuple[Term, ...] = ()
    binds: int = ATOM
    least: tuple[int, ...] = ()


_INFIX: Mapping[tuple[str, str | None], tuple[str, int, int, int]] = {
    ("add", None): ("{0} + {1}", SUM, SUM, FOLD),
    ("mul", None): ("{0} * {1}", PRODUCT, PRODUCT, FACTOR),
    ("recip", "none"): ("{0} / {1}", PRODUCT, PRODUCT, FACTOR),
    ("recip", "floor"): ("{0} // {1}", PRODUCT, PRODUCT, FACTOR),
    ("mod", "floor"): ("{0} % {1}", PRODUCT, PRODUCT, FACTOR),
    ("less_than", "lt"): ("{0} < {1}", COMPARISON, SUM, SUM),
    ("less_than", "le"): ("{0} <= {1}", COMPARISON, SUM, SUM),
    ("less_than", "eq"): ("{0} == {1}", COMPARISON, SUM, SUM),
    ("less_than", "ne"): ("{0} != {1}", COMPARISON, SUM, SUM),
    ("bits", "and"): ("{0} and {1}", AND, AND, AND),
    ("bits", "or"): ("{0} or {1}", OR, OR, OR),
}
"""(operation, variant) -> pattern, how it binds, and what its operands must."""
_CALLS: Mapping[tuple[str, str | None], str] = {
    ("exp2", "e"): "exp", ("exp2", "2"): "exp2", ("log2", "e"): "log", ("log2", "2"): "log2", ("log2", "10"): "log10",
    ("sin", "sin"): "sin", ("sin", "cos"): "cos", ("recip", "trunc"): "truncated_quotient",
    ("mod", "trunc"): "remainder",
}  # fmt: skip


def spell(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    """The spelling of a term; `names` has those of arguments by number.  Carries and loops have none of their own."""
    special = _SPECIAL.get(term.op)
    if special is not None:
        return special(term, region, names)
    variant = cast("str | None", term.attribute)
    if (term.op, variant) in _INFIX and not (term.op == "bits" and not term.dtype.is_bool):
        pattern, binds, *least = _INFIX[term.op, variant]
        return Spelling(pattern, term.operands, binds, tuple(least))
    name = _CALLS.get((term.op, variant)) or (term.op if variant is None else f"{term.op}_{variant}")
    return _call(name, *term.operands)


def _call(name: str, *operands: Term) -> Spelling:
    holes = ", ".join(f"{{{number}}}" for number in range(len(operands)))
    return Spelling(f"{name}({holes})", operands, ATOM, (CHOICE,) * len(operands))


def number_of(term: Term) -> float | None:
    """The value of a constant, None for other terms."""
    if term.op != "constant":
        return None
    return float(from_bits(cast(int, term.attribute), term.dtype))  # type: ignore[arg-type]


def _constant(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    value = from_bits(cast(int, term.attribute), term.dtype)
    if term.dtype.is_bool:
        return Spelling("true" if value else "false")
    text = f"{float(value):.6g}" if term.dtype.is_float else str(int(value))  # type: ignore[arg-type]
    return Spelling(text, binds=FACTOR if text.startswith("-") else ATOM)


def _negated(term: Term) -> Term | None:
    """What a term is the negative of, if it is spelled as -1 times something."""
    if term.op != "mul":
        return None
    left, right = term.operands
    return left if number_of(right) == -1 else right if number_of(left) == -1 else None


def _add(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    left, right = term.operands
    for first, second in ((left, right), (right, left)):
        taken = _negated(second)
        if taken is not None:
            return Spelling("{0} - {1}", (first, taken), SUM, (SUM, FOLD))
        number = number_of(second)
        if number is not None and number < 0 and first.op != "constant":
            amount = f"{-number:.6g}" if term.dtype.is_float else str(-int(number))
            return Spelling(f"{{0}} - {amount}", (first,), SUM, (SUM,))
    return Spelling("{0} + {1}", term.operands, SUM, (SUM, FOLD))


def _mul(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    taken = _negated(term)
    if taken is not None:
        return Spelling("-{0}", (taken,), FACTOR, (FACTOR,))
    return Spelling("{0} * {1}", term.operands, PRODUCT, (PRODUCT, FACTOR))


def _select(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    condition, chosen, other = term.operands
    if condition.op == "less_than" and condition.attribute in ("lt", "le"):
        if condition.operands == (other, chosen):
            return _call("max", *condition.operands)
        if condition.operands == (chosen, other):
            return _call("min", *condition.operands)
    return Spelling("{1} if {0} else {2}", term.operands, CHOICE, (OR, OR, CHOICE))


def _cast(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    rounding = cast("str | None", term.attribute)
    if rounding in (None, "none"):
        return _call(term.dtype.name, *term.operands)
    return _call(f"{term.dtype.name}_of_bits" if rounding == "bits" else rounding, *term.operands)


def _load(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    load, operands = term.load, list(term.operands)
    name = names.get(load.argument, f"arg{load.argument}")
    inside: tuple[Term, ...] = ()
    moved: tuple[str, int] | None = None
    if load.dynamic:
        inside, step = _steps(operands.pop(0))
        moved = ("{0}", step)
    only = region.arguments[load.argument].elements.constant == 1
    where = "" if only and moved is None else f"[{subscripts(region, load.address, moved)}]"
    if not operands:
        return Spelling(name + where, inside, ATOM, (SUM,) * len(inside))
    pattern = f"{name}{where} if {{{len(inside)}}} else 0"
    return Spelling(pattern, (*inside, *operands), CHOICE, (*(SUM,) * len(inside), OR))


def _steps(address: Term) -> tuple[tuple[Term, ...], int]:
    """An address as a position and the elements that one position stands for."""
    if address.op == "mul":
        for position, step in (address.operands, address.operands[::-1]):
            number = number_of(step)
            if number is not None and number > 0:
                return (position,), int(number)
    return (address,), 1


def _reduce(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    monoid, indices = term.reduce
    over = indices[0] if len(indices) == 1 else f"({','.join(indices)})"
    value = term.operands[0]
    if monoid not in PAIRED_MONOIDS:
        return Spelling(f"{monoid}_{over} {{0}}", (value,), FOLD, (PRODUCT,))
    place = term.operands[1]
    if place.op == "index" and place.attribute == Affine.of(dict.fromkeys(indices, 1)):
        return Spelling(f"{monoid}_{over} {{0}}", (value,), FOLD, (PRODUCT,))
    return Spelling(f"{monoid}_{over} {{0}} at {{1}}", (value, place), CHOICE, (PRODUCT, PRODUCT))


def _scan(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    return Spelling(f"running_{term.scan.monoid}_{term.scan.index} {{0}}", term.operands, FOLD, (PRODUCT,))


def _index(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    return _sum_of(affine_text(cast(Affine, term.attribute)))


def _dimension(term: Term, region: Region, names: Mapping[int, str]) -> Spelling:
    return _sum_of(str(cast(Dim, term.attribute)))


def _sum_of(text: str) -> Spelling:
    return Spelling(text, binds=SUM if " " in text else PRODUCT if "*" in text else ATOM)


_SPECIAL: Mapping[str, Callable[[Term, Region, Mapping[int, str]], Spelling]] = {
    "constant": _constant, "add": _add, "mul": _mul, "select": _select, "cast": _cast, "load": _load,
    "reduce": _reduce, "scan": _scan, "index": _index, "dimension": _dimension,
}  # fmt: skip
