"""Parameters laid out for the kernels that read them: how the layouts that schedules ask for are filled.

B[k, j] as j:32 k:1024 j:32     the 32 lanes of j next to each other, for every k; zeros beyond B's edge
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim, DimLike
from luminal.errors import ScheduleError
from luminal.passes.nest import PlacedBuffer
from luminal.passes.packed_loads import PackedLoad
from luminal.plan.plan import Packing, Storage


def packing_of(
    region: Region, wanted: PackedLoad, source: Storage, symbols: Mapping[str, DimLike]
) -> Packing:
    """The packing of constant memory `source` for a load of a region whose symbols have these sizes in the graph.

    ScheduleError where a size is not a plain number.
    """

    def number(value: Dim) -> int:
        constant = value.substitute(symbols).constant
        if constant is None:
            raise ScheduleError(f"a packed layout of size {value} is not constant")
        return constant

    buffer, load = wanted
    digits: list[tuple[str, int, int, int]] = []
    for index, weight, size, _ in reversed(PlacedBuffer(buffer, None, load.dtype).layout(region)):
        digits.append((index, number(size), weight, number(load.load.address.stride(index)) * weight))
    indices = sorted({index for index, _, _, _ in digits})
    missing = load.free - set(indices)
    if missing:
        raise ScheduleError(f"the packed layout {buffer} lacks the indices {sorted(missing)}")
    sizes = tuple((index, number(region.extents[index])) for index in indices)
    return Packing(source, load.dtype, tuple(digits), sizes, number(load.load.address.offset))


def packed_elements(packing: Packing) -> int:
    """How many elements the layout holds, padding included."""
    total = 1
    for _, extent, _, _ in packing.digits:
        total *= extent
    return total


def pack(source: NDArray[Any], packing: Packing, into: NDArray[Any]) -> None:
    """Fill `into`, flat and of the source's dtype, from `source`, the input's flat memory."""
    shape = tuple(extent for _, extent, _, _ in packing.digits)
    target = into.reshape(shape)
    covered = {index: 1 for index, _ in packing.sizes}
    for index, extent, _, _ in packing.digits:
        covered[index] *= extent
    if any(covered[index] > size for index, size in packing.sizes):
        target[...] = np.zeros((), source.dtype)
    boxes = [list(_boxes(packing, index, min(size, covered[index]))) for index, size in packing.sizes]
    for box in itertools.product(*boxes):
        spans = {position: span for part in box for position, span in part.items()}
        _copy_box(source, packing, target, spans)


def _boxes(packing: Packing, index: str, size: int) -> Iterator[dict[int, tuple[int, int]]]:
    """The positions below `size` of a mixed-radix index, as boxes: digit -> (first, count).

    105 of digits 4 x 32 is 3 x 32 and 1 x 9.
    """
    positions = [p for p, digit in enumerate(packing.digits) if digit[0] == index]
    fixed: dict[int, tuple[int, int]] = {}
    for rank, position in enumerate(positions):
        weight = packing.digits[position][2]
        whole, rest = divmod(size, weight)
        if whole:
            inner = {p: (0, packing.digits[p][1]) for p in positions[rank + 1 :]}
            yield {**fixed, position: (0, whole), **inner}
        fixed[position] = (whole, 1)
        size = rest
        if not rest:
            return


def _copy_box(
    source: NDArray[Any], packing: Packing, target: NDArray[Any], spans: Mapping[int, tuple[int, int]]
) -> None:
    ordered = [spans[position] for position in range(len(packing.digits))]
    strides = [stride for _, _, _, stride in packing.digits]
    start = packing.offset + sum(first * stride for (first, _), stride in zip(ordered, strides, strict=True))
    counts = tuple(count for _, count in ordered)
    view = np.lib.stride_tricks.as_strided(
        source[start:], counts, tuple(stride * source.itemsize for stride in strides), writeable=False
    )
    place = target[tuple(slice(first, first + count) for first, count in ordered)]
    # one outer digit at a time: the strided reads of a transposing copy then stay in the cache
    if counts and counts[0] > 1 and view.size > 1 << 14:
        for number in range(counts[0]):
            place[number] = view[number]
    else:
        place[...] = view
