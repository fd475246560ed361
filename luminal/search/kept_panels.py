"""Panels of what is read, kept while all rows of a product pass by: columns of an image, and windows of it.

    for each panel of columns:  keep what is read of them, vector beside vector         masks and strides, once
        for each tile of rows:  for each step of the sum: rows times the vectors of the panel

The rows are laid out as register tiles read them, where they are constants. The vectors of a panel lie along the index
of the lanes, or along another one, as the rows of an image do.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.dialects.kernel.schedule import Buffer, Factor, Stage, Target
from luminal.dialects.kernel.terms import Region
from luminal.search.shapes import Contraction, Shapes
from luminal.search.tiling import Tiling

MOST_WRITTEN_STEPS = 16
"""Steps of a sum that are written out, each for a register tile: more are long code."""


def written_out(region: Region, sums: Sequence[str]) -> list[str]:
    """The innermost indices of a sum that are so few steps together: those of a window, for example."""
    written, steps = list[str](), 1
    for index in reversed(sums):
        steps *= region.extents[index].constant or MOST_WRITTEN_STEPS + 1
        if steps > MOST_WRITTEN_STEPS:
            break
        written.insert(0, index)
    return written


def across(shapes: Shapes, contraction: Contraction, lane: str, vectors: int, lanes: int) -> list[str]:
    """Indices along which the vectors of a panel may lie: that of the lanes, where it has so many, and the largest of
    the other columns where whole panels do not fill it."""
    size, width = shapes.sizes[lane], vectors * lanes
    if vectors == 1 or size % width == 0:
        return [lane]
    others = [index for index in contraction.columns if index != lane and shapes.sizes[index] >= vectors]
    along = [lane] if size >= width else []
    return [*along, *sorted(others, key=lambda index: -shapes.sizes[index])[:1]]


def kept_panel(
    region: Region, number: int, sums: Sequence[str], tiling: Tiling, lanes: int, at: str
) -> Stage:
    """Keep the term of that number in the loop `at` over panels; the last few loops over the sums are written out."""
    digits = (*((index, None) for index in sums), *tiling.columns(lanes))
    last = written_out(region, sums)
    loops = [Factor(index, None) for index in sums if index not in last]
    written = [Factor(index, region.extents[index].constant, "unroll") for index in last]
    vectors = [Factor(tiling.across, tiling.vectors, "tile")] if tiling.vectors > 1 else []
    factors = (*loops, *written, *vectors, Factor(tiling.lane, lanes, "lane"))
    return Stage((Target(term=number, buffer=Buffer(digits, at)),), factors, at)


def rows_laid_out(number: int, rows: Sequence[str], sums: Sequence[str], tiling: Tiling) -> Stage:
    """Constant rows as the host lays them out, for a register tile side by side; `rows`: all indices of the rows."""
    assert tiling.row is not None
    others = [index for index in rows if index != tiling.row]
    digits = (*((index, None) for index in (*others, tiling.row, *sums)), (tiling.row, tiling.tile))
    return Stage((Target(term=number, buffer=Buffer(digits, None, "packed")),), (), None)
