"""Right kernels agree with the reference on ordinary and on hostile data; wrong ones do not, and are shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Region
from luminal.dim import as_dim, dim
from luminal.dtype import bool_, f32, f64, i64
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.forms import forms
from luminal.search.samples import Samples
from luminal.search.trial import Trials, Wrong
from luminal.search.trial_data import KINDS, hostile_data, hostile_sizes, ordinary_data
from tests.kernel import regions
from tests.kernel.test_place import CASES
from tests.search.once import enumerated, legal
from tests.search.test_forms import LICENCES, SPELLINGS

Array = np.ndarray[Any, Any]
M, N = dim("m"), dim("n")
ROWS = parse_schedule("out0: i:* j:*")


class Function:
    """A kernel in NumPy: all outputs from all arguments."""

    def __init__(self, outputs: Callable[[list[Array], Mapping[str, int]], Sequence[Array]]) -> None:
        self.outputs = outputs

    def run(
        self, arguments: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int], threads: int
    ) -> None:
        del threads
        with np.errstate(all="ignore"):
            for memory, values in zip(outputs, self.outputs(list(arguments), dims), strict=True):
                memory[...] = np.asarray(values).reshape(-1)


def checked(
    region: Region,
    dims: Mapping[str, int],
    outputs: Callable[[list[Array], Mapping[str, int]], Sequence[Array]],
) -> Wrong | None:
    trials = Trials(region, dims, 1, np.array)
    assert trials.is_valid
    return trials.check(0, region, ROWS, False, Function(outputs))


def measurer() -> HostMeasurer:
    return HostMeasurer(KernelCompiler(Target.host(), tuple(sorted(LICENCES)), use_cache=False))


def check_all(region: Region, sizes: Mapping[str, int], most: int) -> None:
    """The first candidates of a region and of each of its forms, as machine code, on two threads."""
    host, trials = measurer(), Trials(region, sizes, 2, measurer().place)
    assert trials.is_valid
    found = enumerated(region, host_machine(2), Samples(dict(sizes)), list(forms(region, LICENCES)))
    by_form = itertools.groupby(sorted(found, key=lambda trial: trial[0].form), lambda trial: trial[0].form)
    for _, trials_of_form in by_form:
        for candidate, form in itertools.islice(legal(list(trials_of_form)), most):
            kernel = host.compile(form, candidate.schedule, candidate.cost)
            wrong = trials.check(0, form, candidate.schedule, bool(candidate.form), kernel)
            assert wrong is None, f"{wrong}\n{candidate.form} {candidate.schedule}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_first_candidates_are_right_on_all_data(name: str) -> None:
    region, dims = CASES[name]
    check_all(region, dims, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPELLINGS)
def test_first_candidates_of_forms_are_right_on_all_data(name: str) -> None:
    check_all(SPELLINGS[name], {"s": 70}, 3)


def right(region: Region) -> Callable[[list[Array], Mapping[str, int]], Sequence[Array]]:
    return lambda arguments, dims: evaluate(region, arguments, dims)


def softmaxed(x: Array, largest: Array) -> Array:
    powers = np.exp(x - largest)
    return powers / powers.sum(1, keepdims=True)


def rows(arguments: list[Array], dims: Mapping[str, int]) -> Array:
    return arguments[0].reshape(dims["m"], dims["n"])


def without_maximum(arguments: list[Array], dims: Mapping[str, int]) -> Sequence[Array]:
    return [softmaxed(rows(arguments, dims), np.float32(0))]


def without_nan(arguments: list[Array], dims: Mapping[str, int]) -> Sequence[Array]:
    x = rows(arguments, dims)
    return [np.nan_to_num(softmaxed(x, x.max(1, keepdims=True, initial=-np.inf)), nan=0.0)]


def without_tail(arguments: list[Array], dims: Mapping[str, int]) -> Sequence[Array]:
    """Forgets the last column beyond the last whole vector."""
    x = rows(arguments, dims).copy()
    found = softmaxed(x, x.max(1, keepdims=True, initial=-np.inf))
    found[:, 16 * (dims["n"] // 16) :] = 0
    return [found]


@pytest.mark.parametrize("outputs", [without_maximum, without_nan, without_tail])
def test_a_kernel_that_is_right_near_one_alone_is_caught(
    outputs: Callable[[list[Array], Mapping[str, int]], Sequence[Array]],
) -> None:
    region, dims = regions.softmax(M, N), {"m": 8, "n": 32}
    assert checked(region, dims, right(region)) is None
    wrong = checked(region, dims, outputs)
    assert wrong is not None and wrong.data in KINDS
    assert "expected" in str(wrong) and "bound" in str(wrong)


def test_a_product_that_takes_zero_times_infinity_for_zero_is_caught() -> None:
    region = regions.matmul(16, 16, 16)

    def outputs(arguments: list[Array], dims: Mapping[str, int]) -> Sequence[Array]:
        a, b = (x.reshape(16, 16) for x in arguments[:2])
        products = np.nan_to_num(a[:, :, None] * b[None], nan=0.0, posinf=np.inf, neginf=-np.inf)
        return [np.maximum(products.sum(1) + arguments[2], 0)]

    assert checked(region, {}, right(region)) is None
    wrong = checked(region, {}, outputs)
    assert wrong is not None and wrong.data == "specials"


def gathered(rows: int) -> Region:
    """x[index[i], j] of a table of some rows, i64 indices."""
    b = regions.Builder()
    index = b.table.read(1, Affine.of({"i": 1}), i64)
    start = b.table.apply("mul", (index, b.table.constant(8, i64)), None, i64)
    value = b.table.read(0, Affine.of({"j": 1}), f32, dynamic=start)
    region = b.region({"i": 64, "j": 8}, [rows * 8, 64], [(value, {"i": 8, "j": 1})])
    region.arguments[1] = Argument(i64, as_dim(64))
    return region


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_indices_are_valid_and_varied(rows: int) -> None:
    data = ordinary_data(gathered(rows), {})
    assert data is not None
    assert data[1].min() >= 0 and data[1].max() < rows
    assert len(set(data[1].tolist())) >= min(rows, 30) * 0.9
    assert checked(gathered(rows), {}, right(gathered(rows))) is None


@pytest.mark.parametrize("dtype", [f32, f64])
def test_ordinary_data_is_near_one_and_fresh_for_another_seed(dtype: Any) -> None:
    region = regions.matmul(8, 8, 8, dtype)
    first, second, again = (ordinary_data(region, {}, seed) for seed in (0, 1, 0))
    assert first is not None and second is not None and again is not None
    for one, other, same in zip(first, second, again, strict=True):
        assert np.all((one >= 0.5) & (one <= 1.5))
        assert not np.array_equal(one, other)
        assert np.array_equal(one, same)


def test_hostile_data_has_what_it_is_named_for() -> None:
    region = regions.softmax(M, N)
    specials, masked, large = (hostile_data(region, {"m": 128, "n": 16}, number) for number in range(3))
    assert specials is not None and masked is not None and large is not None
    assert np.isnan(specials[0]).any() and np.isinf(specials[0]).any()
    assert any(np.isneginf(row).all() for row in masked[0].reshape(128, 16))
    assert np.abs(large[0]).max() > 100


def test_symbolic_sizes_are_tried_around_a_tile_and_at_the_ends() -> None:
    schedule = parse_schedule("out0: i:*:parallel i:4:tile j:* j:16:lane")
    sizes = [sizes for sizes, _ in hostile_sizes(regions.softmax(M, N), regions.softmax(M, N), schedule, {})]
    assert [size["n"] for size in sizes] == [17, 15, 19, 19, 1, 0]
    bounded = regions.softmax(dim("m", min=2, max=16), dim("n", min=2, max=16))
    sizes = [sizes for sizes, _ in hostile_sizes(bounded, bounded, schedule, {})]
    assert [size["n"] for size in sizes] == [16, 15, 16, 16, 2]


def test_sizes_that_lead_outside_of_memory_are_not_tried() -> None:
    """A region of even sizes: half of its rows are read."""
    b = regions.Builder()
    s = dim("s")
    half = s // 2
    region = b.region(
        {"i": half, "j": half}, [s * s // 4], [(b.read(0, {"i": half, "j": 1}), {"i": half, "j": 1})]
    )
    assert hostile_data(region, {"s": 4}, 0) is not None
    tight = b.region({"i": s}, [half * 2], [(b.read(0, {"i": 1}), {"i": 1})])
    assert hostile_data(tight, {"s": 4}, 0) is not None
    assert hostile_data(tight, {"s": 5}, 0) is None


def test_sizes_that_lead_to_a_division_by_zero_are_not_tried() -> None:
    """A guarded load whose address divides by a size: the processor would stop there."""
    b = regions.Builder()
    s = dim("s", min=0)
    guard = b.table.apply(
        "less_than", (b.table.index(Affine.of({"i": 1})), b.table.dimension(s)), "lt", bool_
    )
    item = b.table.read(0, Affine.of({"i": 1}, (-1) % s), f32, guard=guard)
    region = b.region({"i": s}, [2 * s], [(item, {"i": 1})])
    assert hostile_data(region, {"s": 3}, 0) is not None
    assert hostile_data(region, {"s": 0}, 0) is None
