"""The reference value of a region at sampled points of its outputs, in double precision.

A candidate is compared with it before it is timed.  Sampling keeps the cost apart from the size: each point needs its
own reductions alone.

How far a right candidate may be off is found by evaluating the points again with every rounding drawn at random, which
is Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic", 1997): where such values scatter the data is
ill-conditioned, and where they are not even of one kind (NaN, infinite, true) nothing can be said.
On hostile data the points are evaluated in a shorter range of exponents too, with either sign for the zeros that have
no certain one: a kind that depends on them is what licences leave open at the ends of a type's range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.terms import Output, Region, Term
from luminal.dtype import DType
from luminal.search.reference import Arithmetic, Evaluator

Array = NDArray[Any]
SAMPLED_VALUES = 2_000_000
CERTAIN = 7 / 8
"""The part of the points whose kind of value has to be certain."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Addresses in an output and what stands there: exact values, a bound for the error of a candidate, and whether
    every right candidate gives a value of this kind.  `scatters`: so few do that no kind of value is certain;
    `places`: the values of the output's indices."""

    addresses: Array
    values: Array
    tolerance: Array
    certain: Array
    scatters: bool = False
    places: Mapping[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first wrong place of an output: its indices, the address in flat memory, what was expected there and found,
    and how far off a right candidate may be."""

    place: str
    address: int
    expected: float
    found: float
    bound: float

    def __str__(self) -> str:
        return (
            f"at [{self.place}], element {self.address}: expected {self.expected:.9g}, found {self.found:.9g}, "
            f"bound {self.bound:.3g}"
        )


def sample_output(
    region: Region,
    position: int,
    arguments: Sequence[Array],
    dims: Mapping[str, int],
    seed: int = 0,
    most: int = 64,
    hostile: bool = False,
) -> Sample | None:
    """Reference values of an output at `most` random points or fewer; `hostile`: the data has infinities and the like.

    None where the output is empty, written at computed addresses, or combined with what its memory holds.
    """
    output = region.outputs[position]
    if output.guard is not None or region.is_ordered(output):
        return None
    sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
    if any(sizes[index] == 0 for index in output.indices):
        return None
    volume = reduced_volume(output, sizes)
    points = int(max(4, min(most, SAMPLED_VALUES // max(1, volume))))
    generator = np.random.default_rng(seed)
    chosen = {index: generator.integers(0, sizes[index], points) for index in sorted(output.indices)}
    zeros = (0.0, -0.0) if hostile else (None, None)
    kinds = (
        Arithmetic(),
        Arithmetic(wide=False, zero=zeros[0]),
        Arithmetic(noise=generator, zero=zeros[1]),
        Arithmetic(noise=generator),
    )
    with np.errstate(all="ignore"):
        values, *others = (
            np.broadcast_to(
                Evaluator(region, arguments, dims, sizes, chosen, kind).value(output.term).reshape(-1),
                (points,),
            )
            for kind in kinds
        )
    magnitude = np.abs(values.astype(np.float64))
    addresses = np.full(points, output.address.offset.evaluate(dims), np.int64)
    for index, stride in output.address.strides:
        addresses = addresses + chosen[index] * stride.evaluate(dims)
    tolerance = _tolerance(output.dtype, magnitude, volume)
    certain = np.ones(points, np.bool_)
    for other in others:
        certain &= _same_kind(values, other)
        if output.dtype.is_float:
            with np.errstate(invalid="ignore"):
                spread = np.abs(other.astype(np.float64) - values.astype(np.float64))
            tolerance = tolerance + 16 * np.max(spread[np.isfinite(spread)], initial=0.0)
    return Sample(addresses, values, tolerance, certain, bool(np.mean(certain) < CERTAIN), chosen)


def _same_kind(values: Array, other: Array) -> Array:
    """NaN with NaN, an infinity with itself, finite with finite; what is no float only if it is equal."""
    if values.dtype.kind in "biu":
        return values == other
    wide, narrow = values.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(narrow)
    return finite | (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))


def agrees(sample: Sample, result: Array) -> bool:
    """Whether a candidate's output matches: NaN and infinities exactly, the rest within the bound."""
    return first_mismatch(sample, result) is None


def first_mismatch(sample: Sample, result: Array, is_fold: bool = False) -> Mismatch | None:
    """Where a candidate's output does not match; `is_fold`: NaN and infinities count as one, as they may in a fold over
    infinite factors."""
    found = result[sample.addresses].astype(np.float64)
    expected = sample.values.astype(np.float64)
    same_nan = np.isnan(found) == np.isnan(expected)
    finite = np.isfinite(expected) & np.isfinite(found)
    with np.errstate(invalid="ignore"):
        close = np.abs(found - expected) <= sample.tolerance
        exact = (found == expected) | np.isnan(expected)
    compared = sample.certain
    if sample.scatters:
        compared = finite & (sample.values.dtype.kind not in "biu")
    if is_fold:
        lost = ~np.isfinite(expected) & ~np.isfinite(found)
        compared = compared & ~lost
    wrong = ~(same_nan & np.where(finite, close, exact)) & compared
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    place = " ".join(f"{index}={int(values[first])}" for index, values in sample.places.items())
    bound = float(sample.tolerance[first]) if finite[first] else 0.0
    return Mismatch(place, int(sample.addresses[first]), float(expected[first]), float(found[first]), bound)


def _tolerance(dtype: DType, magnitude: Array, accumulated: int) -> Array:
    """Rounding of `accumulated` additions of values near one, and of the elementary functions on the way."""
    if not dtype.is_float:
        return np.zeros_like(magnitude)
    epsilon = {64: 2.0**-52, 32: 2.0**-23}.get(dtype.bits, 2.0**-7 if dtype.name == "bf16" else 2.0**-10)
    growth = 16.0 + 4.0 * np.sqrt(accumulated) + accumulated / 16.0
    return epsilon * growth * (1.0 + magnitude)


def reduced_volume(output: Output, sizes: Mapping[str, int]) -> int:
    """How many values the largest reduction or scan of an output takes in."""
    seen: set[Term] = set()
    volumes = [1]
    stack = [(term, frozenset[str]()) for term in output.terms]
    while stack:
        term, bound = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        inner = bound.union((term.scan.index,) if term.op == "scan" else term.reduced)
        volumes.append(math.prod(max(1, sizes[index]) for index in inner))
        stack += [(operand, inner) for operand in term.operands]
    return max(volumes)
