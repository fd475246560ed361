"""Buckets of symbols: ranges that have a program of their own, and the boxes that the buckets of several symbols make.

A *range* is inclusive at both ends, None is unbounded above. A *box* gives some symbols a range: `{"s": (2, 64)}`; the
box `{}` holds all sizes and stands for the general program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard, cast

from luminal.dim.core import Range, Symbol, range_text
from luminal.errors import DimRangeError

Box = Mapping[str, Range]
MOST_PROGRAMS = 16
"""More would rarely be told apart by their speed, and each is compiled ahead."""


def range_of(name: str, given: object) -> Range:
    """A bucket as a user writes it: 1, (2, 64), or (65, None) without an end. DimRangeError for anything else."""
    if _is_size(given):
        return given, given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        low, high = cast("Sequence[object]", given)
        if _is_size(low) and (high is None or _is_size(high)):
            return low, high
    raise DimRangeError(f"a bucket of dim {name} is {given!r}, expected a size or a pair (first, last)")


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def bucketed(symbols: Iterable[Symbol]) -> dict[str, tuple[Range, ...]]:
    """The buckets that symbols were declared with."""
    return {symbol.name: symbol.buckets for symbol in symbols if symbol.buckets}


def gaps(symbol: Symbol, buckets: Sequence[Range]) -> list[Range]:
    """What no bucket covers, from the lowest on; the buckets are in order."""
    found: list[Range] = []
    first = symbol.minimum
    for low, high in buckets:
        if first < low:
            found.append((first, low - 1))
        if high is None:
            return found
        first = high + 1
    if symbol.maximum is None or first <= symbol.maximum:
        found.append((first, symbol.maximum))
    return found


def boxes(symbols: Iterable[Symbol], buckets: Mapping[str, Sequence[Range]]) -> list[Box]:
    """A box for each program: sizes belong to the first that holds them.

    A symbol that its buckets do not cover may also be left open. DimRangeError for more than MOST_PROGRAMS.
    """
    parts: list[list[Box]] = []
    for symbol in symbols:
        if symbol.name in buckets:
            given = buckets[symbol.name]
            open_part: list[Box] = [{}] if gaps(symbol, given) else []
            parts.append([*({symbol.name: each} for each in given), *open_part])
    found: list[Box] = [
        {name: each for part in combined for name, each in part.items()}
        for combined in itertools.product(*parts)
    ]
    if len(found) > MOST_PROGRAMS:
        raise DimRangeError(
            f"the buckets of dims {', '.join(buckets)} make {len(found)} programs; at most {MOST_PROGRAMS} are compiled"
        )
    return found


def holds(box: Box, sizes: Mapping[str, int]) -> bool:
    """Whether sizes lie in a box."""
    return all(
        low <= sizes[name] and (high is None or sizes[name] <= high) for name, (low, high) in box.items()
    )


def box_text(box: Box) -> str:
    """`s = 1, t in 2 to 64`; "any size" for the general program."""
    return ", ".join(f"{name} {_equals(each)}" for name, each in box.items()) or "any size"


def _equals(each: Range) -> str:
    return f"= {each[0]}" if each[0] == each[1] else f"in {range_text(each)}"
