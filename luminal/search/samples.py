"""Sizes that stand for all the sizes that a graph may have: what the search prices and times.

One compilation runs every size, so a choice should be good at more than one: beside the expected sizes there are others
an order of magnitude away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luminal.dim import Dim, Symbol
from luminal.passes.region_graph import Requirement

Sizes = dict[str, int]

DEFAULT_SIZE = 64
"""What a symbol is taken to be where no hint says it, as far as its range allows."""
FALLBACK_SIZES = (128, 32, 16, 8, 256, 4, 96, 24, 12, 6, 3, 5, 7, 2, 1)
"""What is tried for all symbols without a hint, where the graph does not allow the default."""
FAR = 8
"""How far the other sizes are away."""
LARGE = 32
"""Sizes above it have smaller other ones, those up to it have larger ones."""


@dataclass(frozen=True, slots=True)
class Samples:
    """`expected` sizes of all symbols and `others`; `is_valid`: whether the graph allows the expected ones, so that
    its kernels can be run with them."""

    expected: Sizes
    others: tuple[Sizes, ...] = ()
    is_valid: bool = True

    @property
    def all(self) -> tuple[Sizes, ...]:
        """The expected sizes, then the others."""
        return self.expected, *self.others

    def of(self, symbols: Mapping[str, Dim]) -> Samples:
        """The samples of a region, whose symbols are dims over the graph's."""
        expected, *others = (
            {name: size.evaluate(sizes) for name, size in symbols.items()} for sizes in self.all
        )
        different = tuple(sizes for sizes in others if sizes != expected)
        return Samples(expected, different, self.is_valid)


def sample_sizes(
    symbols: Sequence[Symbol], given: Mapping[str, int], requirements: Sequence[Requirement] = ()
) -> Samples:
    """The samples of a graph with these symbols; `given` are expected sizes of some."""
    options = [
        {symbol.name: symbol.clamp(given.get(symbol.name, size)) for symbol in symbols}
        for size in (DEFAULT_SIZE, *FALLBACK_SIZES)
    ]
    valid = next((sizes for sizes in options if _allowed(sizes, requirements)), None)
    if valid is None:
        return Samples(options[0], (), is_valid=False)
    far = {symbol.name: symbol.clamp(_far(valid[symbol.name])) for symbol in symbols}
    others = (far,) if far != valid and _allowed(far, requirements) else ()
    return Samples(valid, others)


def _far(size: int) -> int:
    return size // FAR if size > LARGE else size * FAR


def _allowed(sizes: Sizes, requirements: Sequence[Requirement]) -> bool:
    for needed in requirements:
        excused = needed.unless is not None and needed.unless.evaluate(sizes) == 0
        if not excused and needed.least.evaluate(sizes) < 0:
            return False
    return True


def bucket_of(samples: Samples) -> str:
    """The sizes that a result is for: those of one power of two share it."""
    named = [sorted(sizes.items()) for sizes in samples.all]
    return " ".join(
        ",".join(f"{name}={max(0, size).bit_length()}" for name, size in sizes) for sizes in named
    )
