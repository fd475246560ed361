"""Data that is made up for trials of a region: values near one with valid indices, and hostile ones at small sizes.

Never zeros: they would hide what a kernel leaves out, and some processors multiply them faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region, postorder
from luminal.dim import Symbol, collect_symbols
from luminal.dtype import DType
from luminal.search.bounds import address_room, addresses_are_valid, fits
from luminal.search.verify import reduced_volume

Array = NDArray[Any]
HOSTILE_FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0)
LARGE = 100.0
"""Far enough from one that a softmax without its maximum overflows; products of some of them do not."""
KINDS = ("specials", "masked", "large")
FEW = 19
"""A size that is small, odd, and more than a vector has lanes of f32."""
PERIOD = 1_000_003
"""After so many values they come again."""
MOST_VALUES = 1 << 22
"""Values of the indices of a region at sizes that are tried beside its own."""


def ordinary_data(region: Region, dims: Mapping[str, int], seed: int = 0) -> list[Array] | None:
    """Flat arguments of the real sizes, the same for the same seed, for reading alone; None where no valid indices are
    found."""
    return _data(region, dims, seed, _near_one)


def _data(
    region: Region, dims: Mapping[str, int], seed: int, values: Callable[[DType, int, int, int], Array]
) -> list[Array] | None:
    """Arguments with these values, given dtype, size, position and seed, but for what takes part in addresses."""
    addressing = _addressing(region)
    arguments = [
        np.zeros(size, argument.dtype.numpy)
        if number in addressing
        else values(argument.dtype, size, number, seed)
        for number, (argument, size) in enumerate(_sized(region, dims))
    ]
    room = address_room(region, arguments, dims)
    if room is None or not addressing:
        return None if room is None else arguments
    draw = np.random.default_rng(seed)
    varied = list(arguments)
    for number, count in _index_counts(region, arguments, addressing, dims, room).items():
        varied[number] = draw.integers(0, count, arguments[number].size).astype(arguments[number].dtype)
    return varied if addresses_are_valid(region, varied, dims) else arguments


Long = dict[tuple[object, ...], Array]
"""Hostile data of more than a period, as large parameters have: they are the same size at all sizes of the symbols."""


def hostile_data(
    region: Region, dims: Mapping[str, int], number: int, long: Long | None = None
) -> list[Array] | None:
    """Data with NaN, infinities and negative zeros, with stretches of -inf or with large values, by turns in `number`;
    None where that leaves a computed address invalid, or the sizes do not fit the region.

    `long`: what other sizes of the region have in common, added to.
    """
    if not fits(region, dims):
        return None
    long = {} if long is None else long
    arguments = _data(region, dims, number, _around_zero(long))
    if arguments is None:
        return None
    kind = KINDS[number % len(KINDS)]
    sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
    length = max(reduced_volume(output, sizes) for output in region.outputs)
    addressing = _addressing(region)
    free = [position for position in range(len(arguments)) if position not in addressing]
    floats = [position for position in free if region.arguments[position].dtype.is_float]
    changed = free if kind == "specials" else [floats[number // len(KINDS) % len(floats)]] if floats else []
    for position in changed:
        before, dtype = arguments[position], region.arguments[position].dtype
        key = (kind, dtype, before.size, position, length)
        after = long.get(key)
        if after is None:
            after = _hostile(kind, before, dtype, length, np.random.default_rng((number, position)))
        if before.size > PERIOD:
            long[key] = after
        arguments[position] = after
    try:
        return arguments if addresses_are_valid(region, arguments, dims) else None
    except IndexError:  # a guard that holds at the graph's sizes alone
        return None


def hostile_sizes(
    region: Region, form: Region, schedule: Schedule, dims: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], int]]:
    """Sizes to try a schedule of one of a region's forms at, each with the number of its hostile data.

    They are the region's own where it has no symbols; else one above and one below the largest tile of a symbolic
    index, and the same small ones for all schedules: a few, one, and none.
    """
    symbols = list(collect_symbols(region.dims()).values())
    if not symbols:
        yield from ((dict(dims), number) for number in range(len(KINDS)))
        return
    tile = max(2, _tile(form, schedule))
    seen: set[tuple[object, ...]] = set()
    for size, number in ((tile + 1, 0), (tile - 1, 1), (FEW, 1), (FEW, 2), (1, 0), (0, 0)):
        sizes = {symbol.name: _within(symbol, size) for symbol in symbols}
        key = (number, *sizes.values())
        if key not in seen and _is_small(region, sizes):
            seen.add(key)
            yield sizes, number


def _sized(region: Region, dims: Mapping[str, int]) -> list[tuple[Any, int]]:
    return [(argument, argument.elements.evaluate(dims)) for argument in region.arguments]


@lru_cache(maxsize=1)
def _noise() -> Array:
    """Values near one; long enough that no two arguments of a kernel are alike where they are read together."""
    return _twice(np.random.default_rng(0).uniform(0.5, 1.5, PERIOD).astype(np.float32))


@lru_cache(maxsize=1)
def _normal() -> Array:
    return _twice(np.random.default_rng(1).standard_normal(PERIOD, np.float32))


def _twice(values: Array) -> Array:
    """One period after another, so that one from anywhere lies in one piece; for reading alone."""
    twice = np.concatenate([values, values])
    twice.flags.writeable = False
    return twice


def _slice(values: Array, elements: int, position: int, seed: int) -> Array:
    """Some of the values, from another place for each argument and seed."""
    start = (7919 * position + 104_729 * seed) % PERIOD
    if elements <= PERIOD:
        return values[start : start + elements]
    return np.resize(values[start : start + PERIOD], elements)


def _near_one(dtype: DType, elements: int, position: int, seed: int) -> Array:
    values = _slice(_noise(), elements, position, seed)
    if dtype.is_float:
        return values.astype(dtype.numpy, copy=False)
    if dtype.is_bool:
        return values > 1.0
    return (values * 2 + 1).astype(dtype.numpy)


def _around_zero(long: Long) -> Callable[[DType, int, int, int], Array]:
    def values(dtype: DType, elements: int, position: int, seed: int) -> Array:
        if not dtype.is_float:
            return _near_one(dtype, elements, position, seed)
        if elements <= PERIOD:
            return _slice(_normal(), elements, position, seed).astype(dtype.numpy, copy=False)
        key = ("normal", dtype, elements, position)
        if key not in long:
            long[key] = _slice(_normal().astype(dtype.numpy, copy=False), elements, position, 0)
        return long[key]

    return values


def _addressing(region: Region) -> set[int]:
    """The arguments, floats apart, whose values take part in addresses."""
    roots = [term.operands[0] for term in region.terms() if term.op == "load" and term.load.dynamic]
    roots += [output.dynamic for output in region.outputs if output.dynamic is not None]
    read = {term.load.argument for term in postorder(roots) if term.op == "load"}
    return {number for number in read if not region.arguments[number].dtype.is_float}


def _index_counts(
    region: Region, zeros: list[Array], addressing: set[int], dims: Mapping[str, int], room: int
) -> dict[int, int]:
    """From how many values each index may be drawn, alone: as far as an address grows from 0 to 1, it grows on."""
    counts: dict[int, int] = {}
    for number in sorted(addressing):
        dtype = region.arguments[number].dtype
        if not dtype.is_integer:
            continue
        ones = [np.ones_like(array) if n == number else array for n, array in enumerate(zeros)]
        left = address_room(region, ones, dims)
        if left is None:
            continue
        count = room // max(1, room - left) + 1
        counts[number] = min(max(1, count // len(addressing)), int(np.iinfo(dtype.numpy).max))
    return counts


def _hostile(kind: str, values: Array, dtype: DType, length: int, draw: np.random.Generator) -> Array:
    """Others in place of these, which are for reading alone."""
    if kind == "specials":
        return _sprinkled(values, dtype, length, draw)
    if kind == "large":
        return values * values.dtype.type(LARGE)
    values = values.copy()
    if values.size:
        start = int(draw.integers(0, values.size))
        values[start : start + min(2 * length, max(1, values.size // 3))] = float("-inf")
    return values


def _sprinkled(values: Array, dtype: DType, length: int, draw: np.random.Generator) -> Array:
    """Special values here and there: few enough that most sums have none."""
    if not values.size:
        return values
    if values.size > PERIOD:
        return np.resize(_sprinkled(values[:PERIOD], dtype, length, draw), values.shape)
    values = values.copy()
    count = draw.binomial(values.size, min(0.125, 0.25 / length))
    places = draw.integers(0, values.size, count)
    if dtype.is_float:
        values[places] = draw.choice(np.array(HOSTILE_FLOATS), places.size).astype(values.dtype)
    elif dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        values[places] = draw.choice(np.array([limits.min, limits.max, 0], values.dtype), places.size)
    return values


def _tile(region: Region, schedule: Schedule) -> int:
    """The most values of an index of symbolic size that the fixed factors of a stage cover together."""
    symbolic = {index for index, extent in region.extents.items() if extent.constant is None}
    largest = 1
    for stage in (*schedule.roots, *schedule.kept):
        for index in symbolic:
            _, covered = region.whole(index)
            for factor in stage.factors:
                covered *= (factor.extent or 1) if factor.index == index else 1
            largest = max(largest, covered)
    return largest


def _within(symbol: Symbol, size: int) -> int:
    return symbol.clamp(max(0, size))


def _is_small(region: Region, sizes: Mapping[str, int]) -> bool:
    if not fits(region, sizes):
        return False
    total = 1
    for extent in region.extents.values():
        total *= max(1, extent.evaluate(sizes))
    return total <= MOST_VALUES
