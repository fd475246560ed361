"""What the steps of a sum of products cost beside the products: to enter short loops, and to walk through memory.

for channel: for row of the window: for column of the window (3): a register tile        entered once for 3 steps
for channel (each of an image of 12 KB): ...                       where every step begins on another page
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from luminal.dialects.kernel.schedule import Factor
from luminal.dialects.kernel.terms import Term
from luminal.search.machine import Machine
from luminal.search.roofline import FAR_BYTES
from luminal.search.shapes import Contraction, Shapes
from luminal.search.stage import trips
from luminal.search.tiling import Tiling

ENTERING_SECONDS = 1.3e-9
"""What a loop takes to begin and to end, each time; a loop that stands alone is counted with its register tile."""
WALKING_SECONDS = 1.5e-9
"""What is waited for where a step of the sum is far from the one before, so that no hardware looks ahead."""
KEPT_OPERATIONS = 4.0
"""Vector operations, about, that keep a vector beside reading it: to store it, and to ask for masks."""


class Steps:
    """What the steps of a sum cost, whose factors are `over`, for any register tiles, at some sizes."""

    def __init__(
        self, shapes: Shapes, contraction: Contraction, machine: Machine, over: tuple[Factor, ...]
    ) -> None:
        self.shapes, self.contraction, self.machine = shapes, contraction, machine
        loops = [position for position, factor in enumerate(over) if factor.role in ("loop", "partial")]
        self._entered = math.prod(trips(shapes, over, position) for position in loops[:-1])
        self._is_entered = len(loops) > 1
        self._walks = [
            (steps, factor, again, of_rows)
            for factor, again, of_rows in (
                (contraction.left, contraction.columns, True),
                (contraction.right, contraction.rows, False),
            )
            if factor.op == "load" and not shapes.region.arguments[factor.load.argument].constant
            if (steps := _far_steps(shapes, contraction, factor))
        ]

    def seconds(self, tiling: Tiling, covered: Mapping[str, int]) -> float:
        """Of one core; `covered`: what a register tile has of its indices."""
        seconds, shapes = 0.0, self.shapes
        if self._is_entered:
            tiles = math.prod(_tiles(shapes, each, covered) for each in _sides(self.contraction))
            seconds += ENTERING_SECONDS * self._entered * tiles
        for steps, factor, again, of_rows in self._walks:
            walked = steps * _tiles(shapes, factor.free - {*self.contraction.sums}, covered)
            if tiling.swap is of_rows:
                walked *= _passes(shapes, factor, again, covered, self.machine)
            seconds += WALKING_SECONDS * walked
        return seconds


def _sides(contraction: Contraction) -> tuple[tuple[str, ...], ...]:
    return contraction.batch, contraction.rows, contraction.columns, contraction.around


def _passes(
    shapes: Shapes, factor: Term, again: Sequence[str], covered: Mapping[str, int], machine: Machine
) -> int:
    """How often a factor passes by, from beyond a core's caches, for the tiles of the other side."""
    return 1 if shapes.bytes_of(factor) <= machine.l2 else _tiles(shapes, again, covered)


def _tiles(shapes: Shapes, indices: Collection[str], covered: Mapping[str, int]) -> int:
    """How many register tiles there are along some indices."""
    return math.prod(-(-shapes.sizes[index] // covered.get(index, 1)) for index in indices)


def _far_steps(shapes: Shapes, contraction: Contraction, factor: Term) -> int:
    """The steps of the sum at which a factor is read far from where it was before."""
    strides = {index: shapes.stride(factor, index) or 0 for index in contraction.sums}
    size = factor.dtype.size_bytes
    far = [shapes.sizes[index] for index, stride in strides.items() if stride * size >= FAR_BYTES]
    return math.prod(far) if far else 0
