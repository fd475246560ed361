"""Random primitive graphs as regions: their interpreter gives what the primitives' gives, bit for bit."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.region_text import parse_region, region_key, region_text
from luminal.dialects.primitive.interpreter import interpret
from luminal.dim import Dim
from luminal.passes.canonical_region import canonical_region
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cut_moves import neighbours
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.value_graph import Interface, contiguous_strides
from tests.passes.random_primitives import RandomGraph, random_graphs

_SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),
)


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def check(case: RandomGraph, partition: Partition, cuts: Cuts | None) -> None:
    regions = form_regions(partition, cuts)
    expected = interpret(case.graph, case.inputs, case.dims)
    found = interpret_regions(regions, case.inputs, case.dims)
    for want, have in zip(expected, found, strict=True):
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        assert bits(have) == bits(want), cuts


@given(random_graphs())
@_SETTINGS
def test_first_cuts(case: RandomGraph) -> None:
    check(case, Partition.of(case.graph), None)


@given(random_graphs(), st.integers(0, 2**16))
@_SETTINGS
def test_any_cuts(case: RandomGraph, seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition.of(case.graph)
    numbers = range(len(partition.graph.values))
    kept = frozenset(n for n in numbers if chance.random() < 0.3)
    joined = frozenset(tuple(sorted(chance.sample(sorted(kept), 2))) for _ in range(3) if len(kept) > 1)
    merged = frozenset(n for n in kept if chance.random() < 0.5)
    check(case, partition, Cuts(kept, merged, joined))


@given(random_graphs(), st.integers(0, 2**16))
@settings(_SETTINGS, max_examples=60)
def test_moves(case: RandomGraph, seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition.of(case.graph)
    cuts = initial_cuts(partition)
    for _ in range(3):
        moves = list(neighbours(partition, cuts))
        if not moves:
            break
        cuts = chance.choice(moves)[1]
    check(case, partition, cuts)


@given(random_graphs(8), st.integers(0, 2**16))
@_SETTINGS
def test_border(case: RandomGraph, seed: int) -> None:
    """Any order of axes in memory, and outputs that end in the memory of inputs which others still read."""
    chance = random.Random(seed)
    destinations: dict[int, int] = {}
    for position, kind in enumerate(case.graph.output_types):
        fits = [n for n, given in enumerate(case.graph.input_types) if given == kind]
        fits = [n for n in fits if n not in destinations.values()]
        if fits and chance.random() < 0.8:
            destinations[position] = chance.choice(fits)
    Interface(
        [shuffled_strides(kind.shape, chance) for kind in case.graph.input_types],
        [shuffled_strides(kind.shape, chance) for kind in case.graph.output_types],
        frozenset(
            n for n in range(len(case.inputs)) if n not in destinations.values() and chance.random() < 0.3
        ),
        destinations,
    ).attach(case.graph)
    partition = Partition.of(case.graph)
    check(case, partition, None)
    regions = form_regions(partition)
    for position, target in destinations.items():
        number = regions.outputs[position]
        while regions.values[number].shares >= 0:
            number = regions.values[number].shares
        assert number == regions.inputs[target]


def shuffled_strides(shape: tuple[Dim, ...], chance: random.Random) -> tuple[Dim, ...] | None:
    """Strides of a dense tensor with its axes in some order; None, for row-major order, now and then."""
    if chance.random() < 0.3:
        return None
    order = chance.sample(range(len(shape)), len(shape))
    strides = contiguous_strides([shape[axis] for axis in order])
    return tuple(strides[order.index(axis)] for axis in range(len(shape)))


@given(random_graphs())
@settings(_SETTINGS, max_examples=100)
def test_text_and_keys(case: RandomGraph) -> None:
    for key, region in form_regions(case.graph).regions.items():
        text = region_text(region)
        parsed = parse_region(text)
        assert region_text(parsed) == text
        assert region_key(parsed) == key.partition(" in place ")[0]
        again = canonical_region(parsed).region
        assert region_text(again) == text
