"""Where the factors of a contraction are read again from, and what that costs beside the products.

    rows outside     for a block of rows: for every panel: the tiles of the block    the block stays in a cache
    panels outside   for every panel: for every tile of rows                         all rows pass by again

A register tile reads its rows side by side, each as a stream.  Hardware looks ahead along a stream once that has begun:
what is waited for is the first line, in every register tile anew, unless the rows are in the first cache or laid out as
they are read.  A panel is one long stream and comes at the rate of the cache that it lies in.
"""

from __future__ import annotations

from luminal.search.machine import Machine
from luminal.search.shapes import Contraction, Shapes
from luminal.search.tiling import Tiling, Way

FIRST_LINE = (0.0, 17e-9, 60e-9, 60e-9)
"""Seconds until the first line of a stream is there: from the first, second and last cache, and from memory."""
PANEL_CYCLES = (0.5, 2.3 / 64, 2.5 / 64)
"""Cycles of a vector of a panel from the first cache, and of each of its bytes from the second and the last."""
CACHE_PART = (0.5, 0.75, 0.25)
"""What part of each cache holds what is read again, beside what passes through, and beside other cores' in the last."""


class Streams:
    """What reading the factors costs that a contraction multiplies, for any register tiles, at some sizes."""

    def __init__(self, shapes: Shapes, contraction: Contraction, machine: Machine, way: Way) -> None:
        self.shapes, self.contraction, self.machine = shapes, contraction, machine
        self._batch = {*contraction.batch}
        holds = (machine.l1, machine.l2, machine.l3)
        self._fits = [part * most for part, most in zip(CACHE_PART, holds, strict=True)]
        self._left = shapes.bytes_of(way.left, self._batch)
        self._right = sum(shapes.bytes_of(each, self._batch) for each in way.sources or (way.right,))
        self._rows, self._columns = (
            shapes.volume({*each}) for each in (contraction.rows, contraction.columns)
        )

    def panel_cycles(self, tiling: Tiling) -> float:
        """Cycles of each vector of the panels, at least."""
        once = self._rate(self._right / self._panels(tiling))
        block = min(tiling.block, self._rows)
        return once if tiling.swap else (self._rate(self._right) + (block - 1) * once) / block

    def row_seconds(self, tiling: Tiling) -> float:
        """Waiting for rows that are read again, for all panels but the first."""
        contraction, shapes, row = self.contraction, self.shapes, tiling.row
        if row is None or (tiling.pack_rows and not tiling.swap):
            return 0.0
        again = self._rows if tiling.swap else min(self._rows, tiling.tile * tiling.block)
        level = self._level(self._left * again / self._rows)
        passes = (self._panels(tiling) - 1) * shapes.volume(self._batch)
        seconds = self._left / self.machine.bandwidth if level == len(CACHE_PART) else 0.0
        if not tiling.pack_rows and shapes.stride(contraction.left, row) not in (1, None):
            seconds += self._rows * FIRST_LINE[level]
        return seconds * passes

    def _panels(self, tiling: Tiling) -> float:
        return max(1.0, self._columns / (tiling.vectors * self.machine.lanes))

    def _rate(self, size: float) -> float:
        """Cycles of a vector, of 4 bytes a lane, from where so many bytes are."""
        level, width = self._level(size), 4 * self.machine.lanes
        if level == 0:
            return PANEL_CYCLES[0]
        if level < len(PANEL_CYCLES):
            return PANEL_CYCLES[level] * width
        return width * self.machine.cycles_a_second / self.machine.bandwidth

    def _level(self, size: float) -> int:
        """The cache that holds so many bytes, from 0; memory is the one after the last."""
        return next((level for level, most in enumerate(self._fits) if size <= most), len(self._fits))
