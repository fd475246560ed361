"""Sample sizes: within their ranges, allowed by the graph where any are, and another order of magnitude beside them."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.dim import Dim, Symbol, as_dim, dim
from luminal.passes.region_graph import Requirement
from luminal.search.samples import DEFAULT_SIZE, FAR, Samples, sample_sizes


def at_least_zero(size: Dim, unless: Dim | None = None) -> Requirement:
    return Requirement(size, "must hold", unless, "")


def test_given_sizes_are_expected_and_others_are_far_away() -> None:
    symbols = [Symbol("b", 1, 8), Symbol("s", 1, 4096), Symbol("free")]
    samples = sample_sizes(symbols, {"b": 2, "s": 128})
    assert samples.expected == {"b": 2, "s": 128, "free": DEFAULT_SIZE}
    assert samples.others == ({"b": 8, "s": 128 // FAR, "free": DEFAULT_SIZE // FAR},)
    assert samples.is_valid


def test_sizes_stay_in_their_ranges() -> None:
    samples = sample_sizes([Symbol("s", 100, 200), Symbol("t", 3, 3)], {"s": 5})
    assert samples.expected == {"s": 100, "t": 3}
    assert samples.others == ()


def test_without_symbols_there_is_one_sample() -> None:
    assert sample_sizes([], {}) == Samples({})


def test_sizes_are_those_that_the_graph_allows() -> None:
    """s * s = 9 * s, and what an empty tensor excuses."""
    s, symbol = dim("s"), Symbol("s")
    needed = [at_least_zero(s * s - 9 * s), at_least_zero(9 * s - s * s), at_least_zero(-as_dim(1), s - s)]
    assert sample_sizes([symbol], {}, needed).is_valid is False
    needed = [at_least_zero(6 - s), at_least_zero(s - 5)]
    samples = sample_sizes([symbol], {}, needed)
    assert samples.expected == {"s": 6} and samples.is_valid
    assert samples.others == ()


def test_sizes_that_nothing_allows_are_not_valid() -> None:
    assert not sample_sizes([Symbol("s")], {}, [at_least_zero(as_dim(-1))]).is_valid


def test_samples_of_a_region_are_its_own_dims() -> None:
    samples = Samples({"b": 2, "s": 3}, ({"b": 16, "s": 24},))
    region = samples.of({"d0": dim("b") * dim("s"), "d1": as_dim(7)})
    assert region == Samples({"d0": 6, "d1": 7}, ({"d0": 384, "d1": 7},))
    assert samples.of({"d0": as_dim(7)}) == Samples({"d0": 7})


@pytest.mark.parametrize("size", [8, 9])
def test_a_reshape_that_one_size_allows_compiles_and_runs(size: int) -> None:
    """Neither the default nor, for 9, any size that is tried is allowed: no candidate may be run with them."""
    cx = lm.Graph()
    s = lm.dim("s", min=1, max=1000)
    x = cx.tensor((s, s))
    y = (x.reshape((size, s)) * 2.0).sum(0).output()
    cx.build_search_space(lm.CPURuntime)
    runtime = cx.search(lm.CPURuntime(), 1)
    cx.set_dim("s", size)
    runtime.set_data(x, [float(value % size) for value in range(size * size)])
    runtime.execute(cx.dyn_map)
    assert runtime.get_f32(y).tolist() == [float(2 * size * column) for column in range(size)]
    cx.set_dim("s", size + 1)
    runtime.set_data(x, [1.0] * (size + 1) ** 2)
    with pytest.raises(lm.LuminalError, match=f"do not fill \\({size}, s\\)"):
        runtime.execute(cx.dyn_map)
