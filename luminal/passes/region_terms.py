"""From primitives to the terms of one region: views are pulled from the outputs down to the loads.

    y = add(permute(x), b)   at (i0, i1)   ->   load x[i0 + i1*s] + load b[i1]

A value is asked for at a `Point`: an index for each of its axes, and the guard under which it may be read.  Views map
the point, reductions open a leaf for each axis that they bind, and loads turn it into an address.  Two things end an
attempt and start it again: a reshape that cuts inside a leaf splits the leaf, and a value that is seen under (i, r) and
(i, j), where r is bound and no reduction over r knows j, renames r to j; so a softmax or a norm has one index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import cast

import numpy as np

from luminal.dialects.graph_op import DEFAULT_LICENCES
from luminal.dialects.kernel.elementwise import VARIANT
from luminal.dialects.kernel.monoids import identity_bits
from luminal.dialects.kernel.terms import Output, Term, TermTable
from luminal.dim import Dim, as_dim, typical
from luminal.dtype import DType, cast_array, f32, f64, from_bits, i64, to_bits
from luminal.errors import CompileError
from luminal.passes.index_algebra import FIRST, Index, LeafSplit, reshape_groups
from luminal.passes.leaves import Leaves, Point, Renamed
from luminal.passes.value_graph import SPLATS, Value, contiguous_strides, memory_elements, wide

_EXACT = frozenset({"select", "max", "min", "cast", "max_reduce"})
"""Operations whose result, computed wide from narrow operands, is already a narrow value."""


Request = Generator[tuple[Value, Point], Term, Term]


@dataclass
class RawRegion:
    """A region as it was formed: leaves have arbitrary names, arguments are numbers of values in order of discovery."""

    table: TermTable
    extents: dict[str, Dim]
    arguments: list[int]
    outputs: list[Output]
    inner: list[Term]
    reductions: dict[Term, int]
    """The value that a reduction term computes."""


class RegionTooLargeError(CompileError):
    """A region in which values are computed at so many points that it is no use; `value` is needed at the most."""

    def __init__(self, value: int) -> None:
        super().__init__(f"value {value} would be computed too often in one region; keep it in memory")
        self.value = value


class RegionWalk(Leaves):
    """Forms one region.

    `memory` gives the strides of values that lie in memory, by number; those in `computed` are computed nevertheless,
    as is all else.  The terms of values in `inner` are noted.
    """

    def __init__(
        self,
        memory: Mapping[int, tuple[Dim, ...]],
        computed: AbstractSet[int],
        inner: AbstractSet[int] = frozenset(),
        licences: AbstractSet[str] = frozenset(DEFAULT_LICENCES),
        most_points: int | None = None,
    ) -> None:
        self.memory, self.computed, self.inner, self.licences = memory, computed, inner, licences
        self.most_points = most_points
        super().__init__()

    def form(self, build: Callable[[RegionWalk], list[Output]]) -> RawRegion:
        """The region of the outputs that `build` makes, which is called until no leaf needs another form."""
        while True:
            self.begin()
            try:
                outputs = build(self)
            except LeafSplit as split:
                self.split(split)
            except Renamed:
                pass
            else:
                noted = list(dict.fromkeys(self.noted))
                return RawRegion(
                    self.table, self.extents, list(self.arguments), outputs, noted, self.reductions
                )

    def begin(self) -> None:
        super().begin()
        self.memo: dict[tuple[int, int], Term] = {}
        self._computes: set[int] = set()
        self.arguments: dict[int, int] = {}
        self.noted: list[Term] = []
        self.reductions: dict[Term, int] = {}

    def at(self, value: Value, indices: Iterable[Index], guard: Term | None = None) -> Point:
        """The point of a value at these indices; along an axis of size one there is but one place."""
        sized = zip(indices, value.shape, strict=True)
        return self.point(tuple(FIRST if size == 1 else index for index, size in sized), guard)

    # ---- the walk

    def output(self, value: Value, strides: Sequence[Dim], first: bool) -> Output:
        """The output that stores a value; the leaves of the first output keep their names."""
        indices = [self.leaf(("output", value.number, axis), size) for axis, size in enumerate(value.shape)]
        point = self.at(value, indices)
        self.bind(point.free, point.free)
        if first:
            self.pinned = point.free
        term = self.narrow(self.evaluate(value, point), value.dtype)
        address = self.algebra.address(point.indices, strides).affine
        return Output(term, memory_elements(value.shape, strides), address, indices=point.free)

    def evaluate(self, value: Value, point: Point) -> Term:
        """The value at a point; narrow floats as f32.  A loop over requests, since chains of values have any length."""
        frames: list[tuple[tuple[int, int], Request]] = []
        wanted: tuple[Value, Point] | None = (value, point)
        answer: Term | None = None
        while True:
            if wanted is not None:
                key = (wanted[0].number, id(wanted[1]))
                answer = self.memo.get(key)
                if answer is None:
                    if self.most_points is not None and len(self.memo) > self.most_points:
                        raise RegionTooLargeError(self._most_repeated())
                    frames.append((key, self._expand(*wanted)))
                wanted = None
            if not frames:
                return cast(Term, answer)
            key, frame = frames[-1]
            try:
                wanted = next(frame) if answer is None else frame.send(answer)
            except StopIteration as done:
                frames.pop()
                answer = self.memo[key] = done.value

    def _most_repeated(self) -> int:
        """The value that is computed at the most points, of equal ones the one nearest to the outputs."""
        counts = Counter(number for number, _ in self.memo if number in self._computes)
        return max(counts, key=lambda number: (counts[number], number))

    def _expand(self, value: Value, point: Point) -> Request:
        if value.is_empty:
            return self.zero(value.wide)
        if value.number in self.memory and value.number not in self.computed:
            address = self.algebra.address(point.indices, self.memory[value.number])
            return self.load(value, address, point.guard)
        if value.op in SPLATS:
            return self._splat(value, point)
        self._computes.add(value.number)
        self.unify(value.number, point)
        term = yield from _HANDLERS.get(value.op, _elementwise)(self, value, point)
        if value.number in self.inner:
            rounded = term.op == "cast" and term.operands[0].dtype is value.dtype
            self.noted.append(term.operands[0] if rounded else term)
        return term

    def _splat(self, value: Value, point: Point) -> Term:
        if value.op == "const":
            return self.widen(self.table.constant(value.integer("bits"), value.dtype))
        if value.op == "iota":
            return self.algebra.term(point.indices[value.integer("axis")])
        return self.table.dimension(as_dim(cast("int | Dim", value.attributes["dim"])))

    def index(self, term: Term) -> Index:
        """An integer term as an index."""
        return self.algebra.index(self.cast(term, i64))

    def load(self, value: Value, address: Index, guard: Term | None) -> Term:
        """An element of memory; where the guard is false, zero."""
        self.unify(value.number, self.point((address,), guard))
        argument = self.arguments.setdefault(value.number, len(self.arguments))
        return self.widen(self.table.read(argument, address.affine, value.dtype, address.dynamic, guard))

    # ---- reductions

    def is_ordered(self, value: Value) -> bool:
        """Whether a reduction must combine in row-major order, one element after the other."""
        is_sum = value.op == "sum_reduce" and value.dtype.is_float
        return is_sum and ("reassociate" not in self.licences or bool(value.attributes.get("strict")))

    def digits(self, index: Index) -> list[str]:
        """The leaves of an axis, the one of the largest weight first."""
        return [leaf for leaf, _ in sorted(index.affine.strides, key=lambda part: -typical(part[1]))]

    def fold(self, monoid: str, indices: Sequence[str], term: Term) -> Term:
        """A sum or product as carried loops, which have an order; the first index is the outermost."""
        op = "add" if monoid == "sum" else "mul"
        start = self.table.constant(identity_bits(monoid, term.dtype), term.dtype)
        free = term.free - set(indices)
        carries = [
            self.table.carries(index, [(term.dtype, free | set(indices[:position]))])[0]
            for position, index in enumerate(indices)
        ]
        total = self.table.apply(op, (carries[-1], term), None, term.dtype)
        for position in reversed(range(len(indices))):
            init = carries[position - 1] if position else start
            total = self.table.loop(indices[position], [carries[position]], [init], [total])[0]
        return total

    # ---- dtypes

    def zero(self, dtype: DType) -> Term:
        return self.table.constant(0, dtype)

    def widen(self, term: Term) -> Term:
        """A term of a narrow float as f32; others as they are."""
        dtype = wide(term.dtype)
        return term if dtype is term.dtype else self.cast(term, dtype)

    def narrow(self, term: Term, dtype: DType) -> Term:
        """A wide term as the value's own dtype, rounded where it has not been."""
        if term.dtype is dtype:
            return term
        if term.op == "cast" and term.attribute == "none" and term.operands[0].dtype is dtype:
            return term.operands[0]
        return self.cast(term, dtype)

    def cast(self, term: Term, dtype: DType) -> Term:
        """The conversion of torch's `.to()`."""
        if term.dtype is dtype:
            return term
        if term.op == "constant":
            number = cast_array(np.asarray(from_bits(cast(int, term.attribute), term.dtype)), dtype).reshape(
                1
            )[0]
            return self.table.constant(to_bits(number, dtype), dtype)
        return self.table.apply("cast", (term,), "none", dtype)

    def stays_wide(self, value: Value) -> bool:
        """Whether the rounding between operations may be dropped after this one."""
        return "keep-wide" in self.licences and not value.attributes.get("strict")

    def rounded(self, value: Value, term: Term) -> Term:
        """A freshly computed wide term of a narrow value, rounded where no licence lets it stay wide."""
        if term.dtype is value.dtype or self.stays_wide(value) or value.op in _EXACT:
            return term
        return self.widen(self.narrow(term, value.dtype))


# ---- one generator per operation -----------------------------------------------------------------------------------


def _elementwise(walk: RegionWalk, value: Value, point: Point) -> Request:
    operands: list[Term] = []
    for operand in value.operands:
        operands.append((yield operand, point))
    variant = VARIANT.get(value.op)
    text = None if variant is None else value.text(variant)
    term = walk.algebra.apply(value.op, tuple(operands), text, value.wide)
    return walk.rounded(value, term)


def _cast(walk: RegionWalk, value: Value, point: Point) -> Request:
    operand, rounding = value.operands[0], value.text("rounding")
    term = yield operand, point
    if rounding == "soft":
        if walk.stays_wide(value):
            return term
        rounding = "none"
    if rounding not in ("none", "bits"):
        return walk.table.apply("cast", (term,), rounding, value.wide)
    exact = walk.narrow(term, operand.dtype)
    if rounding == "none":
        exact = walk.widen(exact)  # a cast of the user's sees the rounded value
        return walk.widen(walk.cast(exact, value.dtype))
    return walk.widen(walk.table.apply("cast", (exact,), "bits", value.dtype))


def _permute(walk: RegionWalk, value: Value, point: Point) -> Request:
    order = value.integers("order")
    indices = [point.indices[order.index(axis)] for axis in range(len(order))]
    return (yield value.operands[0], walk.at(value.operands[0], indices, point.guard))


def _expand(walk: RegionWalk, value: Value, point: Point) -> Request:
    return (yield value.operands[0], walk.at(value.operands[0], point.indices, point.guard))


def _slice(walk: RegionWalk, value: Value, point: Point) -> Request:
    places = zip(point.indices, value.integers("steps"), value.dims("starts"), strict=True)
    indices = [walk.algebra.scaled(index, step, start) for index, step, start in places]
    return (yield value.operands[0], walk.at(value.operands[0], indices, point.guard))


def _flip(walk: RegionWalk, value: Value, point: Point) -> Request:
    indices = list(point.indices)
    for axis in value.integers("axes"):
        indices[axis] = walk.algebra.scaled(indices[axis], -1, value.shape[axis] - 1)
    return (yield value.operands[0], walk.at(value.operands[0], indices, point.guard))


def _window(walk: RegionWalk, value: Value, point: Point) -> Request:
    axis, indices = value.integer("axis"), list(point.indices[:-1])
    indices[axis] = walk.algebra.plus(
        walk.algebra.scaled(indices[axis], value.integer("step")), point.indices[-1]
    )
    return (yield value.operands[0], walk.at(value.operands[0], indices, point.guard))


def _pad(walk: RegionWalk, value: Value, point: Point) -> Request:
    """select(index inside of the source, source, bits); nothing outside is read.

    A guarded load is zero outside, so that a pad of memory with zeros needs no select.
    """
    source, algebra = value.operands[0], walk.algebra
    outside = walk.widen(walk.table.constant(value.integer("bits"), value.dtype))
    inside, indices = algebra.true, list[Index]()
    for index, low, size in zip(point.indices, value.dims("low"), source.shape, strict=True):
        inside = algebra.both(inside, algebra.within(index, low, low + size))
        indices.append(algebra.scaled(index, 1, -low))
    if inside is algebra.true:
        return (yield source, walk.at(source, indices, point.guard))
    if inside is algebra.false:
        return outside
    term = yield source, walk.at(source, indices, algebra.both(point.guard, inside))
    read = term.operands[0] if term.op == "cast" else term
    if read.op == "load" and outside is walk.zero(outside.dtype):
        return term
    if term.op == "select" and term.operands[2] is outside:
        inside, term = algebra.both(inside, term.operands[0]), term.operands[1]
    return algebra.apply("select", (inside, term, outside), None, term.dtype)


def _reshape(walk: RegionWalk, value: Value, point: Point) -> Request:
    source = value.operands[0]
    while source.op == "reshape" and source.number not in walk.memory:
        source = source.operands[0]
    strides = walk.memory.get(source.number)
    if strides == contiguous_strides(source.shape) and source.number not in walk.computed:
        address = walk.algebra.address(point.indices, contiguous_strides(value.shape))
        return walk.load(source, address, point.guard)
    source = value.operands[0]
    indices = [FIRST] * len(source.shape)
    for old, new in reshape_groups(source.shape, value.shape):
        given = [point.indices[axis] for axis in new]
        cut = walk.algebra.recut(given, [value.shape[a] for a in new], [source.shape[a] for a in old])
        for axis, index in zip(old, cut, strict=True):
            indices[axis] = index
    return (yield source, walk.at(source, indices, point.guard))


def _gather(walk: RegionWalk, value: Value, point: Point) -> Request:
    data, *places = value.operands
    indices: list[Index] = []
    for place, size in zip(places, data.shape, strict=True):
        index = FIRST
        if size != 1:
            index = walk.index((yield place, point))
        indices.append(index)
    return (yield data, walk.at(data, indices, point.guard))


def _reduce(walk: RegionWalk, value: Value, point: Point) -> Request:
    operand, monoid, axes = value.operands[0], value.text("monoid"), value.integers("axes")
    if any(operand.shape[axis] == 0 for axis in axes):
        return _identity(walk, value, operand, monoid)
    free = iter(point.indices)
    indices = [
        walk.leaf((value.number, axis, point), size) if axis in axes else next(free)
        for axis, size in enumerate(operand.shape)
    ]
    inner = walk.at(operand, indices, point.guard)
    bound = frozenset().union(*(indices[axis].affine.indices for axis in axes))
    walk.bind(bound, inner.free)
    term = yield operand, inner
    if monoid.startswith("arg"):
        position = walk.algebra.term(indices[axes[0]])
        term = walk.table.reduce(monoid, bound, (term, position)) if bound else walk.zero(i64)
    elif bound and walk.is_ordered(value):
        term = walk.fold(monoid, [leaf for axis in axes for leaf in walk.digits(indices[axis])], term)
    elif bound:
        term = walk.table.reduce(monoid, bound, (term,))
    elif monoid == "sum" and term.dtype.is_float:
        term = walk.table.apply("add", (term, walk.zero(term.dtype)), None, term.dtype)  # +0.0 + -0.0 is +0.0
    if bound:
        walk.reductions[term] = value.number
    return walk.rounded(value, term)


def _identity(walk: RegionWalk, value: Value, operand: Value, monoid: str) -> Term:
    if monoid.startswith("arg"):
        return walk.table.constant((1 << 63) - 1, i64)
    return walk.widen(walk.table.constant(identity_bits(monoid, operand.dtype), operand.dtype))


def _scan(walk: RegionWalk, value: Value, point: Point) -> Request:
    """An inclusive scan along a leaf of its own; sums and products of f32 are carried in f64, as torch does."""
    monoid, axis = value.text("monoid"), value.integer("axis")
    leaves = point.indices[axis].affine.strides
    if value.shape[axis] != 1 and (len(leaves) != 1 or leaves[0][1] != 1):
        raise CompileError(f"{value!r} is scanned along no index of its own; it must be the root of a region")
    walk.algebra.whole.update(leaf for leaf, _ in leaves)
    term = yield value.operands[0], point
    summed = monoid in ("sum", "prod")
    carrier = f64 if summed and value.dtype is f32 else term.dtype
    term = walk.cast(term, carrier)
    if leaves:
        term = walk.table.scan(monoid, leaves[0][0], term)
    elif monoid == "sum" and carrier.is_float:
        term = walk.table.apply("add", (term, walk.zero(carrier)), None, carrier)
    return walk.rounded(value, walk.cast(term, value.wide))


_HANDLERS: dict[str, Callable[[RegionWalk, Value, Point], Request]] = {
    "cast": _cast, "permute": _permute, "expand": _expand, "slice": _slice, "flip": _flip, "window": _window,
    "pad": _pad, "reshape": _reshape, "gather": _gather, "sum_reduce": _reduce, "max_reduce": _reduce, "scan": _scan,
}  # fmt: skip
