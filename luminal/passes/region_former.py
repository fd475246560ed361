"""Forms regions of a value graph, each different one once.

A region is known by its signature: the operations of its cone, from what it stores down to what lies in memory, with
local numbers.  So the layers of a model share one region, and a search that tries many cuts forms few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from luminal.dialects.kernel.region_text import region_key
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, is_narrow
from luminal.dim import Dim, as_dim, product
from luminal.dtype import DType, bool_, f8e4m3fn, f8e5m2
from luminal.passes.canonical_region import canonical_region
from luminal.passes.index_algebra import FIRST, Index
from luminal.passes.region_terms import RegionTooLargeError, RegionWalk
from luminal.passes.value_graph import (
    SPLATS,
    VIEWS,
    Value,
    ValueGraph,
    checked_operands,
    memory_elements,
    sources_of,
)

Memory = Mapping[int, "tuple[Dim, ...]"]
"""The strides of values in memory, by number."""


_MANY_POINTS, _REPEATED = 2000, 16
"""A region is given up where its values are needed at more points than this, and than so many times their number."""
_WRITTEN = -1
"""What stands for the memory that a scatter updates among the arguments of a region that is being formed."""


@dataclass(frozen=True)
class Formed:
    """A canonical region; its arguments and the values of its reductions are local numbers of its cone."""

    region: Region
    key: str
    arguments: tuple[int, ...]
    symbols: Mapping[str, Dim]
    reductions: Mapping[Term, int]


@dataclass(frozen=True)
class Instance:
    """A region at one place of the graph: `cone` lists the values of its local numbers, loads among them."""

    formed: Formed
    cone: tuple[Value, ...]
    computed: frozenset[int]
    signature: object

    @property
    def arguments(self) -> tuple[int, ...]:
        """The values that the region reads; a scatter's region has one more argument, the memory that it updates."""
        return tuple(self.cone[local].number for local in self.formed.arguments if local != _WRITTEN)

    @property
    def sources(self) -> tuple[str, ...]:
        return sources_of(value for value in self.cone if value.number in self.computed)


class RegionFormer:
    """The regions of one graph.  `constants` are the numbers of values that never change."""

    def __init__(self, graph: ValueGraph, constants: AbstractSet[int]) -> None:
        self.graph, self.constants = graph, constants
        self._known: dict[object, Formed | RegionTooLargeError] = {}
        """By signature; errors have the local number of what is computed too often."""
        self._loads: dict[int, tuple[tuple[Dim, ...], int]] = {}
        self._kinds_of_loads: dict[object, int] = {}
        kinds: dict[object, int] = {}
        self._kinds = [kinds.setdefault(_kind(value), len(kinds)) for value in graph.values]

    def stored(
        self, roots: Sequence[Value], memory: Memory, inner: AbstractSet[int] = frozenset()
    ) -> Instance:
        """The region that computes roots into their memory; values in `inner` are computed in it too."""
        computed = {value.number for value in roots} | inner

        def build(walk: RegionWalk) -> list[Output]:
            return [walk.output(root, memory[root.number], number == 0) for number, root in enumerate(roots)]

        return self._instance(
            "stored", roots, memory, computed, inner, build, [memory[r.number] for r in roots]
        )

    def copied(self, value: Value, strides: tuple[Dim, ...], memory: Memory) -> Instance:
        """The region that puts a value into memory of its own with these strides."""

        def build(walk: RegionWalk) -> list[Output]:
            return [walk.output(value, strides, True)]

        return self._instance("copied", [value], memory, set(), frozenset(), build, [strides])

    def scattered(self, value: Value, strides: tuple[Dim, ...], memory: Memory) -> Instance:
        """The region that combines a scatter's values into its base, an argument behind those that it reads."""
        base, source, *places = value.operands

        def build(walk: RegionWalk) -> list[Output]:
            indices = [walk.leaf(("output", value.number, a), size) for a, size in enumerate(source.shape)]
            point = walk.at(source, indices)
            walk.pinned = point.free
            walk.bind(point.free, point.free)
            where: list[Index] = []
            for place, size in zip(places, base.shape, strict=True):
                where.append(
                    FIRST if size == 1 else walk.index(walk.evaluate(place, walk.at(place, indices)))
                )
            term = walk.narrow(walk.evaluate(source, point), value.dtype)
            address = walk.algebra.address(where, strides)
            elements = memory_elements(value.shape, strides)
            alias = walk.arguments.setdefault(_WRITTEN, len(walk.arguments))
            return [
                Output(
                    term,
                    elements,
                    address.affine,
                    address.dynamic,
                    None,
                    value.text("combine"),
                    alias,
                    point.free,
                )
            ]

        kind = ("scattered", value.text("combine"), value.dtype, value.shape)
        return self._instance(kind, value.operands[1:], memory, set(), frozenset(), build, [strides])

    def checked(self, value: Value, memory: Memory) -> Instance | None:
        """The region that tells whether an index of a gather or scatter, or a divisor, is wrong; None: it cannot be."""
        places = checked_operands(value)
        if not places or places[0].is_empty:
            return None
        is_index = value.op in ("gather", "scatter")
        limits: Sequence[Dim | None] = value.operands[0].shape if is_index else [None]

        def build(walk: RegionWalk) -> list[Output]:
            indices = [walk.leaf(("checked", a), size) for a, size in enumerate(places[0].shape)]
            free = frozenset().union(*(index.free for index in indices))
            walk.bind(free, free)
            wrong = walk.algebra.false
            for place, limit in zip(places, limits, strict=True):
                point = walk.at(place, indices)
                for term in _violations(walk, place, walk.evaluate(place, point), limit):
                    wrong = walk.algebra.apply("bits", (wrong, term), "or", bool_)
            if wrong is walk.algebra.false:
                return []
            wrong = _unless_empty(walk, wrong, free)
            found = walk.table.reduce("max", wrong.free, (wrong,)) if wrong.free else wrong
            return [Output(found, as_dim(1), Affine((), as_dim(0)))]

        instance = self._instance(
            ("checked", value.op), places, memory, set(), frozenset(), build, tuple(limits)
        )
        return instance if instance.formed.region.outputs else None

    # ---- signatures

    def cone(self, starts: Iterable[Value], memory: Memory, computed: AbstractSet[int]) -> list[Value]:
        """The values that are computed for some, and those that they load, in the graph's order."""
        found: dict[int, Value] = {}
        stack = list(starts)
        while stack:
            value = stack.pop()
            if value.number in found:
                continue
            found[value.number] = value
            if not _is_loaded(value, memory, computed):
                stack += value.operands
        return [found[number] for number in sorted(found)]

    def _instance(
        self,
        kind: object,
        starts: Sequence[Value],
        memory: Memory,
        computed: AbstractSet[int],
        inner: AbstractSet[int],
        build: Callable[[RegionWalk], list[Output]],
        detail: Sequence[object],
    ) -> Instance:
        cone = self.cone(starts, memory, computed)
        local = {value.number: position for position, value in enumerate(cone)}
        rows: list[object] = []
        inside: set[int] = set()
        for value in cone:
            if _is_loaded(value, memory, computed):
                rows.append(self._load(value, memory[value.number]))
                continue
            inside.add(value.number)
            operands = tuple(local[operand.number] for operand in value.operands)
            rows.append((self._kinds[value.number], operands, value.number in inner))
        signature = (kind, tuple(local[value.number] for value in starts), tuple(detail), tuple(rows))
        if signature not in self._known:
            try:
                self._known[signature] = self._form(build, memory, computed, inner, local)
            except RegionTooLargeError as error:  # which takes as long to find out
                self._known[signature] = RegionTooLargeError(local[error.value])
        formed = self._known[signature]
        if isinstance(formed, RegionTooLargeError):
            raise RegionTooLargeError(cone[formed.value].number)
        return Instance(formed, tuple(cone), frozenset(inside), signature)

    def _load(self, value: Value, strides: tuple[Dim, ...]) -> int:
        """A number for what a region sees of a value in memory: its type, its strides, whether it is constant."""
        known = self._loads.get(value.number)
        if known is None or known[0] is not strides:
            kind = (value.dtype, value.shape, strides, value.number in self.constants)
            number = self._kinds_of_loads.setdefault(kind, len(self._kinds_of_loads))
            known = self._loads[value.number] = strides, number
        return known[1]

    def _form(
        self,
        build: Callable[[RegionWalk], list[Output]],
        memory: Memory,
        computed: AbstractSet[int],
        inner: AbstractSet[int],
        local: Mapping[int, int],
    ) -> Formed:
        values = self.graph.values
        loadable = {n: memory[n] for n in local if n in memory and values[n].op not in SPLATS}
        most_points = max(_MANY_POINTS, _REPEATED * len(local))
        raw = RegionWalk(loadable, computed, inner, self.graph.licences, most_points).form(build)
        arguments: list[Argument] = []
        for number in raw.arguments:
            if number == _WRITTEN:
                arguments.append(Argument(raw.outputs[0].dtype, raw.outputs[0].elements))
                continue
            elements = memory_elements(values[number].shape, memory[number])
            arguments.append(Argument(values[number].dtype, elements, number in self.constants))
        is_strict = any(_is_strict(values[n]) and not _is_loaded(values[n], memory, computed) for n in local)
        canonical = canonical_region(
            Region(raw.table, raw.extents, arguments, raw.outputs, raw.inner, is_strict=is_strict)
        )
        if "keep-wide" in self.graph.licences and not is_strict:
            inside = (values[n] for n in local if not _is_loaded(values[n], memory, computed))
            canonical.region.factors = _factors(canonical.region, inside)
        region = canonical.region
        reductions = {
            canonical.terms[term]: local[number]
            for term, number in raw.reductions.items()
            if term in canonical.terms
        }
        order = tuple(local.get(raw.arguments[position], _WRITTEN) for position in canonical.arguments)
        return Formed(region, region_key(region), order, canonical.symbols, reductions)


def _kind(value: Value) -> object:
    return value.op, tuple(sorted(value.attributes.items())), value.shape, value.dtype


def _is_loaded(value: Value, memory: Memory, computed: AbstractSet[int]) -> bool:
    return value.number in memory and value.number not in computed and value.op not in SPLATS


def _is_strict(value: Value) -> bool:
    """Whether an operation is one that licences could change, and must not."""
    return value.dtype.is_float and bool(value.attributes.get("strict"))


def _factors(region: Region, values: Iterable[Value]) -> DType | None:
    """The narrow float that every factor of the region's sums of products is a conversion of, in the graph; None where
    there is none, or where all terms say so themselves."""
    products = (value.operands[0] for value in values if value.op == "sum_reduce" and value.dtype.is_float)
    factors = [_viewed(f) for product in products if product.op == "mul" for f in product.operands]
    if not all(factor.op == "cast" and factor.operands[0].dtype.is_float for factor in factors):
        return None
    narrow = {factor.operands[0].dtype for factor in factors} - {f8e4m3fn, f8e5m2}  # which all others hold
    if len(narrow) != 1 or all(is_narrow(factor) for term in region.terms() for factor in term.factors):
        return None
    (found,) = narrow
    return found if found.bits < 32 else None


def _viewed(value: Value) -> Value:
    """What a value is a view of."""
    while value.op in VIEWS:
        value = value.operands[0]
    return value


def _unless_empty(walk: RegionWalk, wrong: Term, free: AbstractSet[str]) -> Term:
    """`wrong`, but false where an index that it does not depend on has no position: then nothing is computed."""
    sizes = [walk.extents[name] for name in sorted(free - wrong.free)]
    count = product(size for size in sizes if (size.bounds()[0] or 0) < 1)
    present = walk.algebra.compare(FIRST, Index(Affine((), count)), "lt")
    return walk.algebra.apply("bits", (wrong, present), "and", bool_)


def _violations(walk: RegionWalk, place: Value, term: Term, limit: Dim | None) -> list[Term]:
    """The bool terms of which one is true where an index is outside of 0 to `limit`, or (None) a divisor is zero."""
    algebra = walk.algebra
    if limit is None:
        if term.op == "constant" and term.attribute != 0:
            return []
        return [algebra.apply("less_than", (term, walk.zero(place.dtype)), "eq", bool_)]
    index = walk.index(term)
    size = Index(Affine((), limit))
    bounds = (algebra.compare(index, FIRST, "lt"), algebra.compare(size, index, "le"))
    return [term for term in bounds if term is not algebra.false]
