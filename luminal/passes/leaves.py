"""The leaves of a region that is being formed: its indices, how they are split, and which of them are one.

Forming a region is a walk that may be broken off and begun again.  What is decided about leaves stays: a leaf is split
into digits where a reshape cuts inside it, and gets another leaf's name where a value was seen under both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from luminal.dialects.kernel.terms import Affine, Term, TermTable
from luminal.dim import Dim, divide_exact, known_equal, typical
from luminal.passes.index_algebra import FIRST, ONE, Index, IndexAlgebra, LeafSplit

_COMPARED = 8
"""The first points of a value, with which a further one is compared."""


@dataclass(eq=False, slots=True)
class Point:
    """One index for each axis of a value, and the predicate under which it may be read (None: always)."""

    indices: tuple[Index, ...]
    guard: Term | None
    free: frozenset[str]


class Renamed(Exception):
    """A leaf has got another name: form the region again."""


class Leaves:
    """The leaves of one region; `pinned` ones, those of its first output, keep their names."""

    def __init__(self) -> None:
        self.table = TermTable()
        self.extents: dict[str, Dim] = {}
        self.algebra = IndexAlgebra(self.table, self.extents)
        self._parts: dict[str, tuple[tuple[str, Dim], ...]] = {}
        self._names: dict[object, str] = {}
        self._points: dict[object, Point] = {}
        self.begin()

    def begin(self) -> None:
        """Forget what was walked."""
        self.pinned: frozenset[str] = frozenset()
        self._seen: dict[int, dict[Point, None]] = {}
        self._contexts: dict[str, set[str]] = {}
        self._order: dict[str, int] = {}

    def split(self, at: LeafSplit) -> None:
        """From now on a leaf is two."""
        outer, inner = at.leaf + "a", at.leaf + "b"
        self.extents[outer] = cast(Dim, divide_exact(self.extents[at.leaf], at.inner))
        self.extents[inner] = at.inner
        self._parts[at.leaf] = ((outer, at.inner), (inner, ONE))

    def leaf(self, key: object, size: Dim) -> Index:
        """The index that runs over an axis of `size`; the same key gives the same leaf."""
        if size == 1:
            return FIRST
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"l{len(self._names):04}"
            self.extents[name] = size
        return Index(self._resolve(name))

    def _resolve(self, name: str) -> Affine:
        parts = self._parts.get(name)
        if parts is None:
            return Affine.of({name: ONE})
        total = Affine.of({})
        for part, weight in parts:
            total = total.plus(self._resolve(part).times(weight))
        return total

    def point(self, indices: tuple[Index, ...], guard: Term | None) -> Point:
        """The point with these indices; equal ones are one object."""
        key = (indices, guard)
        found = self._points.get(key)
        if found is None:
            free = frozenset().union(*(index.free for index in indices), () if guard is None else guard.free)
            found = self._points[key] = Point(indices, guard, free)
        return found

    def bind(self, bound: Iterable[str], free: frozenset[str]) -> None:
        """Note what is known where these leaves are bound: none of it may take their name."""
        for leaf in sorted(bound):
            self._order.setdefault(leaf, len(self._order))
            self._contexts.setdefault(leaf, set()).update(free - {leaf})

    def unify(self, number: int, point: Point) -> None:
        """Rename a bound leaf where the value was seen at a point that differs in that leaf's name alone.

        Of two leaves the one that was bound later gets the other's name: then all that was walked before it stays as
        it is in the next attempt, and attempts come to an end.
        """
        points = self._seen.setdefault(number, {})
        if point in points:
            return
        for other in itertools.islice(points, _COMPARED):
            if other.guard is not point.guard or len(other.indices) != len(point.indices):
                continue
            for one, another in self._differences(point, other):
                later, earlier = sorted((one, another), key=self._bound_at, reverse=True)
                if self._may_become(later, earlier):
                    self._parts[later] = ((earlier, ONE),)
                    raise Renamed
        points[point] = None

    def _bound_at(self, leaf: str) -> int:
        return -1 if leaf in self.pinned else self._order.get(leaf, -1)

    def _may_become(self, later: str, earlier: str) -> bool:
        """Whether a leaf is bound, and its name may be another's: where either is bound, the other is not known."""
        if later not in self._contexts or later in self.pinned or later in self.algebra.whole:
            return False
        return earlier not in self._contexts[later] and later not in self._contexts.get(earlier, ())

    def _differences(self, point: Point, other: Point) -> list[tuple[str, str]]:
        """The leaves that would have to be one for the points to be one.  Raises LeafSplit where a leaf has the
        extent of several."""
        found: list[tuple[str, str]] = []
        for left, right in zip(point.indices, other.indices, strict=True):
            if left == right:
                continue
            if left.dynamic is not right.dynamic or left.affine.offset != right.affine.offset:
                return []
            ours = [part for part in left.affine.strides if part not in right.affine.strides]
            theirs = [part for part in right.affine.strides if part not in left.affine.strides]
            ours.sort(key=lambda part: -typical(part[1]))
            theirs.sort(key=lambda part: -typical(part[1]))
            for one, many in ((ours, theirs), (theirs, ours)):
                if len(one) == 1 and len(many) > 1:
                    self._split_like(one[0], many)
            if len(ours) != len(theirs):
                return []
            for (leaf, stride), (another, another_stride) in zip(ours, theirs, strict=True):
                if stride != another_stride or not known_equal(self.extents[leaf], self.extents[another]):
                    return []
                found.append((leaf, another))
        return found

    def _split_like(self, one: tuple[str, Dim], many: list[tuple[str, Dim]]) -> None:
        """Split a leaf that has just the extent of several leaves, the digits of its values, where one may be the
        other."""
        leaf, weight = one
        pairs = [pair for other, _ in many for pair in ((leaf, other), (other, leaf))]
        if leaf in self.algebra.whole or not any(self._may_become(*pair) for pair in pairs):
            return
        for other, stride in reversed(many):
            if stride != weight:
                return
            weight = weight * self.extents[other]
        if known_equal(weight, self.extents[leaf] * one[1]):
            inner = divide_exact(self.extents[leaf], self.extents[many[0][0]])
            if inner is not None:
                raise LeafSplit(leaf, inner)
