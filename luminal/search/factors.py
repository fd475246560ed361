"""How the factors of a sum of products are read, from index sets alone: as they are, narrow, or in groups.

What a generator of schedules knows of its region, its machine and the representative sizes stands here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from luminal.dialects.kernel.ranges import largest_product, range_of_term
from luminal.dialects.kernel.terms import ELEMENTWISE, Region, Term, widened
from luminal.passes.packed_loads import is_only_load
from luminal.search.machine import Machine
from luminal.search.roofline import packing_seconds, row_seconds, traffic_seconds
from luminal.search.shapes import Contraction, Shapes
from luminal.search.stage import Seconds, StageView, add_seconds
from luminal.search.steps import KEPT_OPERATIONS
from luminal.search.tiling import Way

# Vectors of lanes, rows of a register tile, tiles of a block; whether rows are packed; whether columns stand outside.
TILES = ((4, 3, 2, 1), (12, 8, 6, 4, 3, 2, 1), (1, 4, 16), (False, True), (False, True))
ODD_TILES = (14, 7)
"""Rows of a register tile where they divide their index: images are 7, 14, 28, 56 or 112 wide."""
BLOCKS, NARROW_BLOCKS = (64, 16, 32, 128), (48, 24, 96, 12)
"""Rows of a block of a merged region: whole register tiles, of 4 or 8 rows or vectors where there are 32 registers, and
of 3, 4 or 6 where there are 16."""
COARSE_TILES = ((4, 2, 1), (8, 4, 1), (4, 1), (False, True), (False,))

CAST_OPERATIONS = 2
"""Vector operations of a cast, to widen and to shift or convert."""


class FactorReader:
    """What there is to read for the schedules of one region, for one machine and representative sizes.

    `shapes` decide what is enumerated; it is priced for them and for the `others`. `coarse` leaves most tile sizes out:
    enough to tell what a region costs, not which schedule is best.
    """

    def __init__(
        self,
        region: Region,
        machine: Machine,
        shapes: Shapes,
        coarse: bool = False,
        others: Sequence[Shapes] = (),
    ) -> None:
        self.coarse = coarse
        self.tiles = COARSE_TILES if coarse else TILES
        blocks = BLOCKS if machine.registers >= 32 else NARROW_BLOCKS
        self.blocks = blocks[:2] if coarse else blocks
        self.region = region
        self.machine = machine
        self.shapes = shapes
        self.priced = (shapes, *others)
        self.no_seconds = self._each(lambda _: 0.0)
        self.traffic = self._each(lambda shapes: traffic_seconds(shapes, machine))
        self.numbers = region.numbering()
        self.loads = [term for term in self.numbers if term.op == "load"]

    def _each(self, price: Callable[[Shapes], float]) -> Seconds:
        """A price at each of the sizes."""
        return tuple(price(shapes) for shapes in self.priced)

    def _fits(self, index: str, block: int) -> bool:
        """Whether a block divides an index, or is small beside a size that is not known."""
        if self.shapes.is_static(index):
            return self.shapes.sizes[index] % block == 0
        return block * 4 <= self.shapes.sizes[index]

    def _row_seconds(
        self,
        view: StageView,
        stops: frozenset[Term],
        lane: str,
        step: int,
        tiled: Collection[str] = (),
        written: Mapping[str, int] | None = None,
    ) -> Seconds:
        """Of a stage computed in vectors along the lane, `step` elements at a time; `tiled` and `written` as in
        `row_seconds`."""

        key = (view.roots, stops, lane, step, tuple(tiled), tuple((written or {}).items()))

        def price(shapes: Shapes) -> float:
            if key not in shapes.prices:
                size = shapes.sizes[lane]
                waste = -(-size // step) * step / size
                shapes.prices[key] = row_seconds(
                    shapes, view.roots, stops, self.machine, lane, waste, tiled, written
                )
            return shapes.prices[key]

        return self._each(price)

    def _ways(self, contraction: Contraction, lane: str) -> Iterator[Way]:
        """All ways to read the factors; in groups where the processor has an instruction for their dtypes."""
        left, right = contraction.left, contraction.right
        yield Way(left, right)
        narrow = widened(left), widened(right)
        casts = [term for term in self.shapes.below((right,), frozenset()) if term.op == "cast"]
        loaded = casts[-1].operands[0] if right.op == "cast" else right
        if (
            casts
            and loaded.op == "load"
            and (self._is_packable(loaded) or self.shapes.stride(right, lane) == 1)
        ):
            yield Way(left, right, CAST_OPERATIONS * len(casts), (loaded,))
        if narrow[0] is None or narrow[1] is None:
            return
        largest = largest_product(range_of_term(narrow[0]), range_of_term(narrow[1]))
        groups = set[int]()
        for dot in self.machine.dots:  # of those for the same groups the first is the best
            if dot.group in groups:
                continue
            if dot.takes(narrow[0].dtype, narrow[1].dtype, contraction.reduction.dtype, largest):
                groups.add(dot.group)
                computed, sources = self._sources(narrow[1], lane)
                is_chained = dot.largest is not None
                yield Way(narrow[0], narrow[1], computed, sources, dot.group, dot.cycles, is_chained)

    def _sources(self, operand: Term, lane: str) -> tuple[int, tuple[Term, ...]]:
        """How many elementwise operations make an operand of its loads along the lane, where the host can lay those
        out; none, and no loads, where it is a load itself or has to be computed for a panel."""
        terms = self.shapes.below((operand,), frozenset())
        loads = [term for term in terms if term.op == "load"]
        along = [load for load in loads if lane in load.free]
        is_elementwise = all(term.op in (*ELEMENTWISE, "load", "constant", "index") for term in terms)
        if operand.op == "load" or not is_elementwise or not along or not all(map(self._is_packable, along)):
            return 0, ()
        return sum(term.op in ELEMENTWISE for term in terms), tuple(along)

    def _is_constant(self, load: Term) -> bool:
        return self.region.arguments[load.load.argument].constant

    def _is_packable(self, load: Term) -> bool:
        """Whether the host can lay out what a load reads."""
        return (
            self._is_constant(load)
            and not load.load.dynamic
            and not load.load.guarded
            and is_only_load(load, self.loads)
        )

    def _kept_seconds(self, view: StageView, factor: Term, lane: str) -> Seconds:
        """Reading a factor along the lane, and keeping it."""
        read = self._row_seconds(replace(view, roots=(factor,)), view.stops, lane, 1)
        elements = self.machine.vectors_a_second * self.machine.lanes
        kept = self._each(lambda shapes: KEPT_OPERATIONS * shapes.volume(factor.free) / elements)
        return add_seconds([read, kept])

    def _is_laid_out(self, rows: Term, view: StageView, contraction: Contraction) -> bool:
        """Whether the host can lay out rows as register tiles read them."""
        is_read = rows.op == "load" and self._is_packable(rows)
        return is_read and not rows.free & (view.bound | {*contraction.batch, *contraction.around})

    def _contiguous(self, operand: Term, contraction: Contraction) -> str | None:
        """The index of the sum along which an operand lies contiguous."""
        return next((i for i in contraction.sums if self.shapes.stride(operand, i) == 1), None)

    def _largest_load(self, operand: Term, stops: frozenset[Term]) -> Term:
        """What most of an operand's memory is read by; the operand itself where it reads none."""
        loads = [t for t in self.shapes.below((operand,), stops) if t.op == "load"]
        return max(loads, key=lambda load: self.shapes.volume(load.free), default=operand)

    def _is_constant_load(self, term: Term) -> bool:
        """A guarded load of a constant, which is laid out neither by the host nor in the kernel."""
        return term.op == "load" and term.load.guarded and self._is_constant(term)

    def _packing(self, view: StageView, packed: Term, lane: str, contiguous: bool) -> Seconds:
        return self._each(
            lambda shapes: packing_seconds(shapes, packed, view.stops, self.machine, lane, contiguous)
        )
