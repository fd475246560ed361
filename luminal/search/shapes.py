"""What a schedule generator sees of a stage: index sets, strides and sizes, never what is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from luminal.dialects.kernel.terms import Region, Term, is_narrow_product
from luminal.dtype import i32


@dataclass
class Shapes:
    """A region with representative sizes; `hint` gives every symbol a value, or what lacks one counts as `typical`."""

    region: Region
    hint: Mapping[str, int]
    typical: int = 128
    sizes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._strides: dict[tuple[Term, str], int | None] = {}
        self._stages: dict[tuple[tuple[Term, ...], frozenset[Term]], tuple[Term, ...]] = {}
        self._in_order: dict[tuple[tuple[Term, ...], frozenset[Term]], frozenset[str]] = {}
        self._reduced: dict[tuple[tuple[Term, ...], frozenset[Term]], list[str]] = {}
        self._volumes: dict[frozenset[str], int] = {}
        self.prices: dict[object, float] = {}
        """What has been priced at these sizes, as whoever prices it knows it."""
        values: dict[str, int] = {}
        for dim in self.region.dims():
            for symbol in dim.symbols():
                within = min(self.typical, symbol.maximum) if symbol.maximum is not None else self.typical
                values[symbol.name] = self.hint.get(symbol.name, max(symbol.minimum, within))
        self.values = values
        self.sizes = {index: max(1, extent.evaluate(values)) for index, extent in self.region.extents.items()}

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Take other sizes of some indices."""
        self.sizes.update(sizes)
        self._volumes.clear()
        self.prices.clear()

    def is_static(self, index: str) -> bool:
        return self.region.extents[index].constant is not None

    def stride(self, term: Term, index: str) -> int | None:
        """The stride of an index in a load, or in one that is cast, for the representative sizes; None where the
        address is data."""
        while term.op == "cast":
            term = term.operands[0]
        if term.op != "load":
            return None
        key = (term, index)
        if key not in self._strides:
            known = not (term.load.dynamic and index in term.operands[0].free)
            self._strides[key] = term.load.address.stride(index).evaluate(self.values) if known else None
        return self._strides[key]

    def output_strides(self, position: int) -> dict[str, int]:
        output = self.region.outputs[position]
        return {index: output.address.stride(index).evaluate(self.values) for index in output.indices}

    def below(self, roots: tuple[Term, ...], stops: frozenset[Term]) -> tuple[Term, ...]:
        """The terms of one stage, as the function `below` gives them."""
        key = (roots, stops)
        if key not in self._stages:
            self._stages[key] = tuple(below(roots, stops))
        return self._stages[key]

    def in_order(self, roots: tuple[Term, ...], stops: frozenset[Term]) -> frozenset[str]:
        """The indices that a stage's own reductions, scans and carried loops run over."""
        key = (roots, stops)
        if key not in self._in_order:
            self._in_order[key] = frozenset(self.reduced(*key) + scanned_indices(*key))
        return self._in_order[key]

    def reduced(self, roots: tuple[Term, ...], stops: frozenset[Term]) -> list[str]:
        """As the function `reduced_indices` gives them."""
        key = (roots, stops)
        if key not in self._reduced:
            self._reduced[key] = reduced_indices(roots, stops)
        return self._reduced[key]

    def volume(self, indices: frozenset[str] | set[str]) -> int:
        key = frozenset(indices)
        if key not in self._volumes:
            self._volumes[key] = math.prod(self.sizes[index] for index in key)
        return self._volumes[key]

    def bytes_of(self, term: Term, outside: AbstractSet[str] = frozenset()) -> int:
        """Of a term at all places, those along the indices `outside` aside."""
        return self.volume(term.free - outside) * term.dtype.size_bytes


def below(roots: tuple[Term, ...], stops: frozenset[Term]) -> Iterator[Term]:
    """The terms of one stage: all that the roots need, down to loads and to other stages' results."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        yield term
        if term not in stops or term in roots:
            stack += reversed(term.operands)


@dataclass(frozen=True, slots=True)
class Contraction:
    """Sum over `sums` of left * right: `rows` occur in left alone, `columns` in right alone, `batch` in both.

    `around`: the indices of sums that the sum of products is part of.
    """

    reduction: Term
    left: Term
    right: Term
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    batch: tuple[str, ...]
    sums: tuple[str, ...]
    around: tuple[str, ...] = ()

    def swapped(self) -> Contraction:
        return replace(self, left=self.right, right=self.left, rows=self.columns, columns=self.rows)


def find_contraction(
    roots: tuple[Term, ...], free: list[str], bound: frozenset[str], stops: frozenset[Term]
) -> Contraction | None:
    """The largest sum of products of a stage: no other reduction in it, and each side has indices of its own.

    One of integers may stand inside other sums of the stage, as the products of a block within those of all blocks.
    """
    found: Contraction | None = None
    reduced = set(reduced_indices(roots, stops))
    for term in below(roots, stops):
        if term in stops and term not in roots:
            continue
        if term.op != "reduce" or term.reduce.monoid != "sum" or term.operands[0].op != "mul":
            continue
        left, right = term.operands[0].operands
        sums = frozenset(term.reduce.indices)
        around = term.free - bound - {*free}
        is_whole = not around and (term.dtype.is_float or term.dtype is i32)
        is_wanted = is_whole or (around <= reduced and is_narrow_product(term))
        if not is_wanted or not sums <= left.free & right.free:
            continue
        rows = tuple(i for i in free if i in left.free - right.free)
        columns = tuple(i for i in free if i in right.free - left.free)
        batch = tuple(i for i in free if i not in rows and i not in columns)
        if not rows and not columns:
            continue
        candidate = Contraction(
            term, left, right, rows, columns, batch, term.reduce.indices, tuple(sorted(around))
        )
        if found is None or _rank(candidate) > _rank(found):
            found = candidate
    return found


def _rank(contraction: Contraction) -> tuple[int, bool]:
    """How many indices tell the sides apart; of equal ones, narrow products come before sums of what they give."""
    return len(contraction.rows) + len(contraction.columns), is_narrow_product(contraction.reduction)


def _computed(roots: tuple[Term, ...], stops: frozenset[Term]) -> Iterator[Term]:
    """The terms that a stage computes itself; what others keep is only read."""
    return (term for term in below(roots, stops) if term not in stops or term in roots)


def reduced_indices(roots: tuple[Term, ...], stops: frozenset[Term]) -> list[str]:
    """The indices that a stage's own reductions and carried loops bind, in canonical order."""
    found: set[str] = set()
    for term in _computed(roots, stops):
        found.update((term.loop.index,) if term.op == "loop" else term.reduced)
    return sorted(found)


def looped_indices(roots: tuple[Term, ...], stops: frozenset[Term]) -> set[str]:
    """The indices that only a sequential loop may run over: those of carried loops."""
    return {term.loop.index for term in _computed(roots, stops) if term.op == "loop"}


def scanned_indices(roots: tuple[Term, ...], stops: frozenset[Term]) -> list[str]:
    return sorted({term.scan.index for term in _computed(roots, stops) if term.op == "scan"})
