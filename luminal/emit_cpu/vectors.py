"""Vectors of several axes: lanes, and within each lane the neighbours of a group, which run fastest.

lanes j:4, group k:2    j0k0 j0k1 j1k0 j1k1 j2k0 j2k1 j3k0 j3k1
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from luminal.dialects.kernel.placed_types import TileAxis
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value, bits_of, element_of, lanes_of, vector_of

WIDEST_INTEGER = 64


def elements_in(axes: Sequence[TileAxis]) -> int:
    """How many elements a vector of these axes has; 0 for a scalar."""
    return math.prod(axis.extent for axis in axes) if axes else 0


def coordinates(axes: Sequence[TileAxis]) -> list[Mapping[TileAxis, int]]:
    """The coordinates of each element of a vector, in order; those of a scalar are empty."""
    steps = itertools.product(*(range(axis.extent) for axis in axes))
    return [dict(zip(axes, step, strict=True)) for step in steps]


def spread(f: Function, value: Value, own: Sequence[TileAxis], wanted: Sequence[TileAxis]) -> Value:
    """A vector over `own` axes, or a scalar, repeated along the others of `wanted`."""
    count = elements_in(wanted)
    if not own:
        return f.splat(value, count)
    if tuple(own) == tuple(wanted):
        return value
    bits = elements_in(own) * bits_of(value.type)
    if (
        tuple(own) == tuple(wanted[-1:])
        and bits in (8, 16, 32, WIDEST_INTEGER)
        and element_of(value.type) != "i1"
    ):
        whole = f.splat(f.bitcast(value, f"i{bits}"), count // elements_in(own))
        return f.bitcast(whole, vector_of(element_of(value.type), count))
    numbers = {tuple(place.values()): number for number, place in enumerate(coordinates(own))}
    picked = [numbers[tuple(place[axis] for axis in own)] for place in coordinates(wanted)]
    return f.shuffle(value, value, picked)


def neighbours(f: Function, value: Value, group: int) -> list[Value]:
    """The first neighbours of all lanes, the second ones and so on; scalars where there is one lane."""
    count = lanes_of(value.type) // group
    if count == 1:
        return [f.extract(value, place) for place in range(group)]
    return [f.shuffle(value, value, range(place, count * group, group)) for place in range(group)]


def joined(f: Function, parts: Sequence[Value], picks: Sequence[Sequence[int]]) -> Value:
    """One vector of parts; `picks` are the places in it of the elements of each. Parts are as many as a power of two,
    or scalars."""
    places = [place for each in picks for place in each]
    if not lanes_of(parts[0].type):
        whole = Value(vector_of(parts[0].type, len(places)), "poison")
        for part, place in zip(parts, places, strict=True):
            whole = f.insert(whole, part, place)
        return whole
    parts = list(parts)
    while len(parts) > 1:
        size = 2 * lanes_of(parts[0].type)
        parts = [f.shuffle(a, b, range(size)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    order = [places.index(place) for place in range(len(places))]
    return parts[0] if order == sorted(order) else f.shuffle(parts[0], parts[0], order)
