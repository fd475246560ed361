"""Indices as affine expressions of leaves plus a term, and the exact simplifications of the terms made from them.

A leaf is an index of a region while it is being formed.  Views turn indices into indices: permute, slice, flip, window
and pad stay affine; a reshape flattens its indices and cuts them anew, which splits a leaf where a cut falls inside
one (`LeafSplit` is raised and the region formed again) and falls back to divisions where no leaf can be split so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from luminal.dialects.kernel.terms import Affine, Term, TermTable
from luminal.dim import Dim, as_dim, divide_exact, known_equal, known_less, known_less_equal
from luminal.dtype import DType, bool_, i64

ZERO, ONE = as_dim(0), as_dim(1)
CONSTANT = Affine((), ZERO)


@dataclass(frozen=True, slots=True)
class Index:
    """The place along one axis: an affine expression of leaves plus an i64 term."""

    affine: Affine
    dynamic: Term | None = None

    @property
    def free(self) -> frozenset[str]:
        return self.affine.indices if self.dynamic is None else self.affine.indices | self.dynamic.free


FIRST = Index(CONSTANT)
"""The only place along an axis of size one."""


class LeafSplit(Exception):
    """A leaf must be the pair (leaf // inner, leaf % inner): form the region again."""

    def __init__(self, leaf: str, inner: Dim) -> None:
        super().__init__(leaf)
        self.leaf, self.inner = leaf, inner


class IndexAlgebra:
    """Exact arithmetic on indices and on the i64 and bool terms made of them; `extents` gives the leaves' sizes.

    Leaves in `whole` are never split.
    """

    def __init__(self, table: TermTable, extents: dict[str, Dim]) -> None:
        self.table = table
        self.extents = extents
        self.whole: set[str] = set()
        self.true, self.false = table.constant(1, bool_), table.constant(0, bool_)

    # ---- indices

    def term(self, index: Index) -> Term:
        """The i64 value of an index."""
        affine = self.table.index(index.affine)
        if index.dynamic is None:
            return affine
        return (
            index.dynamic
            if index.affine == CONSTANT
            else self.apply("add", (affine, index.dynamic), None, i64)
        )

    def index(self, term: Term) -> Index:
        """An i64 term as an index, affine where it is known to be."""
        affine = affine_leaf(term)
        if affine is not None:
            return Index(affine)
        if term.op == "add":
            for one, other in (term.operands, reversed(term.operands)):
                part = affine_leaf(one)
                if part is not None:
                    return Index(part, other)
        return Index(CONSTANT, term)

    def plus(self, index: Index, other: Index) -> Index:
        """The sum of two indices."""
        dynamic = index.dynamic or other.dynamic
        if index.dynamic is not None and other.dynamic is not None:
            dynamic = self.apply("add", (index.dynamic, other.dynamic), None, i64)
        return Index(index.affine.plus(other.affine), dynamic)

    def scaled(self, index: Index, factor: Dim | int, offset: Dim | int = 0) -> Index:
        """index * factor + offset."""
        factor = as_dim(factor)
        affine = index.affine if factor == 1 else index.affine.times(factor)
        if not (isinstance(offset, int) and offset == 0):
            affine = Affine(affine.strides, affine.offset + offset)
        dynamic = index.dynamic
        if dynamic is not None and factor != 1:
            dynamic = self.apply("mul", (dynamic, self.table.dimension(factor)), None, i64)
        return Index(affine, dynamic)

    def address(self, indices: Sequence[Index], strides: Sequence[Dim]) -> Index:
        """The sum of index * stride; the two halves of a division that meet in it are whole again."""
        total, offset = dict[str, Dim](), ZERO
        dynamic: dict[Term, Dim] = {}
        pending = list(zip(indices, strides, strict=True))
        while pending:
            index, stride = pending.pop()
            for leaf, step in index.affine.strides:
                total[leaf] = total.get(leaf, ZERO) + step * stride
            offset = offset + index.affine.offset * stride
            if index.dynamic is not None:
                dynamic[index.dynamic] = dynamic.get(index.dynamic, ZERO) + stride
            if not pending:
                pending = self._whole_parts(dynamic)
        found: Index = FIRST
        for term, stride in sorted(dynamic.items(), key=lambda item: item[0].number):
            found = self.plus(found, self.scaled(Index(CONSTANT, term), stride))
        return Index(Affine.of(total, offset), found.dynamic)

    def _whole_parts(self, dynamic: dict[Term, Dim]) -> list[tuple[Index, Dim]]:
        """Takes (e // q) * q * s + (e % q) * s out of a sum and gives e * s, where there is such a pair."""
        for rest in [term for term in dynamic if term.op == "mod" and term.attribute == "floor"]:
            divisor = affine_leaf(rest.operands[1])
            quotient = self.table.apply("recip", rest.operands, "floor", i64)
            if (
                divisor is not None
                and quotient in dynamic
                and dynamic[quotient] == dynamic[rest] * divisor.offset
            ):
                stride = dynamic.pop(rest)
                del dynamic[quotient]
                return [(self.index(rest.operands[0]), stride)]
        return []

    def bounds(self, affine: Affine) -> tuple[Dim, Dim] | None:
        """The least and the greatest value over all leaves; None where the sign of a stride is not known."""
        bounds = self._bounds(dict(affine.strides), self.extents)
        return None if bounds is None else (bounds[0] + affine.offset, bounds[1] + affine.offset)

    def _bounds(self, strides: Mapping[str, Dim], extents: Mapping[str, Dim]) -> tuple[Dim, Dim] | None:
        low = high = ZERO
        for leaf, stride in strides.items():
            span = stride * (extents[leaf] - 1)
            if known_less_equal(0, stride):
                high = high + span
            elif known_less_equal(stride, 0):
                low = low + span
            else:
                return None
        return low, high

    def _fits(self, affine: Affine) -> bool:
        """Whether the values are far from the ends of i64, so that what is proven of them holds with its wrap too."""
        bounds = self.bounds(affine)
        numbers = [affine.offset.constant, *(stride.constant for _, stride in affine.strides)]
        numbers += [] if bounds is None else [*bounds[0].bounds(), *bounds[1].bounds()]
        return all(number is None or abs(number) < _FAR for number in numbers)

    # ---- reshapes

    def recut(self, indices: Sequence[Index], old: Sequence[Dim], new: Sequence[Dim]) -> list[Index]:
        """Indices along axes of sizes `old` as indices along axes of sizes `new` with as many elements."""
        rest = indices[0] if len(indices) == 1 else self.address(indices, _strides(old))
        found: list[Index] = []
        for size in reversed(new[1:]):
            rest, digit = self.split(rest, size)
            found.append(digit)
        return [rest, *reversed(found)]

    def split(self, index: Index, size: Dim) -> tuple[Index, Index]:
        """(index // size, index % size); raises LeafSplit where a leaf has to be split for it."""
        if index.dynamic is None:
            parts = self._separate(index.affine, size, splitting=True)
            if parts is not None:
                return Index(parts[0]), Index(parts[1])
        value, divisor = self.term(index), self.table.dimension(size)
        quotient = self.apply("recip", (value, divisor), "floor", i64)
        return self.index(quotient), self.index(self.apply("mod", (value, divisor), "floor", i64))

    def _separate(self, affine: Affine, size: Dim, splitting: bool) -> tuple[Affine, Affine] | None:
        """Affine (e // size, e % size), where e is size * outer + inner with 0 <= inner < size proven."""
        outer, inner = dict[str, Dim](), dict[str, Dim]()
        sizes = dict[str, Dim]()
        splits: list[LeafSplit] = []
        for leaf, stride in affine.strides:
            whole = divide_exact(stride, size)
            if whole is not None:
                outer[leaf] = whole
                continue
            extent = self.extents[leaf]
            part = self._part(leaf, extent, stride, size)
            if part is not None:
                splits.append(LeafSplit(leaf, part))
                extent = part
            inner[leaf] = stride
            sizes[leaf] = extent
        bounds = self._bounds(inner, sizes)
        if bounds is None or (splits and not splitting):
            return None
        low, high = bounds
        for shift in (
            -low,
            affine.offset % size if size.constant and affine.offset.constant is not None else ZERO,
        ):
            quotient = divide_exact(affine.offset - shift, size)
            if quotient is None or not known_less_equal(0, low + shift) or not known_less(high + shift, size):
                continue
            if splits:
                raise splits[0]
            return Affine.of(outer, quotient), Affine.of(inner, shift)
        return None

    def _part(self, leaf: str, extent: Dim, stride: Dim, size: Dim) -> Dim | None:
        """The inner extent at which a leaf must be split so that its outer part is a multiple of `size`."""
        if leaf in self.whole:
            return None
        part = divide_exact(size, -stride if known_less_equal(stride, 0) else stride)
        if part is None or part == 1:
            return None
        outer = divide_exact(extent, part)
        return None if outer is None or outer == 1 else part

    # ---- terms

    def compare(self, left: Index, right: Index, predicate: str) -> Term:
        """The bool term `left predicate right`, constant where that is proven."""
        known = None
        if left.dynamic is None and right.dynamic is None:
            known = self._compare(left.affine.plus(right.affine.times(-1)), predicate)
        if known is not None:
            return self.true if known else self.false
        return self.table.apply("less_than", (self.term(left), self.term(right)), predicate, bool_)

    def _compare(self, difference: Affine, predicate: str) -> bool | None:
        if predicate in ("eq", "ne"):
            if difference == CONSTANT:
                return predicate == "eq"
            below, above = self._compare(difference, "lt"), self._compare(difference.times(-1), "lt")
            return predicate == "ne" if below or above else None
        bounds = self.bounds(difference)
        if bounds is None:
            return None
        low, high = bounds
        if predicate == "le":
            low, high = low - 1, high - 1
        if known_less(high, 0):
            return True
        return False if known_less_equal(0, low) else None

    def within(self, index: Index, low: Dim, high: Dim) -> Term:
        """The bool term `low <= index < high`; the same for every pair of index and bounds that say the same."""
        moved = self.scaled(index, 1, -index.affine.offset)
        start, limit = (Index(Affine((), bound - index.affine.offset)) for bound in (low, high))
        return self.both(self.compare(start, moved, "le"), self.compare(moved, limit, "lt"))

    def both(self, left: Term | None, right: Term) -> Term:
        """The conjunction of two predicates, each part of it once; None is true."""
        if left is None:
            return right
        known = set(conjuncts(left))
        for part in conjuncts(right):
            if part not in known:
                left = self.apply("bits", (left, part), "and", bool_)
        return left

    def apply(self, op: str, operands: tuple[Term, ...], variant: str | None, dtype: DType) -> Term:
        """An elementwise term, simplified where that changes no bit."""
        simpler = None
        if op == "select":
            simpler = self._select(*operands)
        elif dtype is bool_ and op == "bits":
            simpler = self._logic(operands[0], operands[1], cast(str, variant))
        elif operands[0].dtype is i64 and op in _INTEGER_OPS:
            simpler = self._arithmetic(op, operands, variant)
        return self.table.apply(op, operands, variant, dtype) if simpler is None else simpler

    def _select(self, condition: Term, taken: Term, other: Term) -> Term | None:
        if condition is self.true or taken is other:
            return taken
        if condition is self.false:
            return other
        nested_taken = taken.op == "select" and taken.operands[0] is condition
        nested_other = other.op == "select" and other.operands[0] is condition
        if not nested_taken and not nested_other:
            return None
        taken = taken.operands[1] if nested_taken else taken
        other = other.operands[2] if nested_other else other
        return self.apply("select", (condition, taken, other), None, taken.dtype)

    def _logic(self, left: Term, right: Term, kind: str) -> Term | None:
        neutral, absorbing = {
            "and": (self.true, self.false), "or": (self.false, self.true), "xor": (self.false, None)
        }.get(kind, (None, None))  # fmt: skip
        if left is neutral or right is neutral:
            return right if left is neutral else left
        if left is right and kind != "xor":
            return left
        return absorbing if absorbing is not None and absorbing in (left, right) else None

    def _arithmetic(self, op: str, operands: tuple[Term, ...], variant: str | None) -> Term | None:
        left, right = (affine_leaf(operand) for operand in operands)
        if left is None or right is None:
            return None
        if not self._fits(left) or not self._fits(right):
            return None
        if op == "add":
            return self._term_if_near(left.plus(right))
        if op == "mul":
            left, right = (right, left) if not left.strides else (left, right)
            return None if right.strides else self._term_if_near(left.times(right.offset))
        if op == "less_than":
            known = self._compare(left.plus(right.times(-1)), cast(str, variant))
            return None if known is None else self.true if known else self.false
        if op in ("max", "min"):
            known = self._compare(left.plus(right.times(-1)), "le")
            return None if known is None else operands[1 if known == (op == "max") else 0]
        if right.strides or not known_less(0, right.offset):
            return None
        bounds = self.bounds(left)
        floor = variant == "floor" or (bounds is not None and known_less_equal(0, bounds[0]))
        parts = self._separate(left, right.offset, splitting=False) if floor else None
        return None if parts is None else self.table.index(parts[0 if op == "recip" else 1])

    def _term_if_near(self, affine: Affine) -> Term | None:
        return self.table.index(affine) if self._fits(affine) else None


_FAR = 1 << 61
_INTEGER_OPS = frozenset({"add", "mul", "less_than", "max", "min", "recip", "mod"})


def conjuncts(term: Term) -> Iterator[Term]:
    """The predicates that hold together where a bool term does, from left to right."""
    if term.op == "bits" and term.attribute == "and" and term.dtype is bool_:
        for operand in term.operands:
            yield from conjuncts(operand)
    else:
        yield term


def _strides(sizes: Sequence[Dim]) -> list[Dim]:
    strides = [ONE]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1]


Axes = tuple[int, ...]


@lru_cache(maxsize=1 << 12)
def reshape_groups(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> tuple[tuple[Axes, Axes], ...]:
    """Runs of axes of two shapes that hold as many elements, finest first; axes of size one are in no run."""
    left = tuple(axis for axis, size in enumerate(old) if size != 1)
    right = tuple(axis for axis, size in enumerate(new) if size != 1)
    groups: list[tuple[Axes, Axes]] = []
    while left and right:
        count, other_count = 1, 1
        total, other = old[left[0]], new[right[0]]
        while not known_equal(total, other):
            grow_left = divide_exact(other, total) is not None or known_less(total, other)
            if grow_left and count < len(left):
                total = total * old[left[count]]
                count += 1
            elif other_count < len(right):
                other = other * new[right[other_count]]
                other_count += 1
            elif count < len(left):
                total = total * old[left[count]]
                count += 1
            else:
                break
        groups.append((left[:count], right[:other_count]))
        left, right = left[count:], right[other_count:]
    return tuple(groups)


def affine_leaf(term: Term) -> Affine | None:
    """The affine expression that an i64 index, dimension or constant is; None of any other term."""
    if term.dtype is not i64:
        return None
    match term.op:
        case "index":
            return cast(Affine, term.attribute)
        case "dimension":
            return Affine((), cast(Dim, term.attribute))
        case "constant":
            bits = cast(int, term.attribute)
            return Affine((), as_dim(bits - (bits >> 63 << 64)))
        case _:
            return None
