"""Runs the same expression through the Graph API and through torch, and compares.

A case is a function of Graph API tensors and one of torch tensors, often the same. Many cases share one graph, so that
a compiling runtime compiles once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import luminal.dtype as dt
from luminal.dim import Dim, as_dim, dim
from luminal.errors import LuminalError
from luminal.graph import Graph
from luminal.runtimes.protocol import Runtime
from luminal.runtimes.reference import ReferenceRuntime
from luminal.tensor import Tensor

T = TypeVar("T")
DTYPES = [dt.f64, dt.f32, dt.f16, dt.bf16, dt.i64, dt.i32, dt.i16, dt.i8, dt.u8, dt.bool_]
FLOATS = [dtype for dtype in DTYPES if dtype.is_float]
INTEGERS = [dtype for dtype in DTYPES if dtype.is_integer]

# Relative error allowed to functions that are not exact: a few units in the last place.
TOLERANCE = {dt.f64: 1e-13, dt.f32: 3e-6, dt.f16: 2e-3, dt.bf16: 1.6e-2}


@dataclass(frozen=True)
class Case:
    name: str
    own: Callable[..., Any]
    torch: Callable[..., Any]
    exact: bool = False
    absolute: float = 0.0
    """Error allowed beside TOLERANCE, relative to the largest finite result."""
    zeros: bool = True
    """Whether the signs of zeros count, where the case is exact."""
    halves: bool = True
    """Whether f16 and bf16 results are exact too, where the case is. If not, whole numbers may differ by one."""


def both(name: str, function: Callable[..., Any], exact: bool = False) -> Case:
    """One function that reads the same in both."""
    return Case(name, function, function, exact)


def method(name: str, *arguments: Any, exact: bool = False, **options: Any) -> Case:
    """The method of that name in both."""
    given = [*map(str, arguments), *(f"{key}={value}" for key, value in options.items())]
    return both(f"{name}({', '.join(given)})", lambda x: getattr(x, name)(*arguments, **options), exact)


def interprets(make_runtime: Callable[[], Runtime]) -> bool:
    """Whether a graph costs nothing but its execution: then tests try more of everything."""
    return isinstance(make_runtime(), ReferenceRuntime)


def few(make_runtime: Callable[[], Runtime], items: Sequence[T], count: int) -> Sequence[T]:
    """All items for an interpreter, `count` of them for a runtime that compiles, spread evenly."""
    if interprets(make_runtime) or count >= len(items):
        return items
    return [items[position * len(items) // count] for position in range(count)]


def for_examples(
    make_runtime: Callable[[], Runtime], count: int, **strategies: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], None]:
    """Decorates the body of a test and runs it at once, with `count` drawn examples, or with two where it compiles."""

    def run(body: Callable[..., None]) -> None:
        chosen = settings(max_examples=count if interprets(make_runtime) else 2, derandomize=True)
        chosen(given(**strategies)(body))()

    return run


def random_values(dtype: dt.DType, shape: Sequence[int], seed: int, special: bool = True) -> torch.Tensor:
    """Numbers of all sizes; with `special` infinities, NaN, both zeros, subnormals and the extremes among them."""
    generator = np.random.default_rng(seed)
    count = math.prod(shape)
    if dtype.is_bool:
        return torch.from_numpy(generator.integers(0, 2, count).astype(bool)).reshape(tuple(shape))
    if dtype.is_integer:
        low, high = int(dtype.lowest), int(dtype.highest)
        values = generator.integers(max(low, -9), 10, count).astype(np.int64)
        extremes = np.array([low, high, low + 1, high - 1, 0, 1], np.int64)
        if special and count:
            places = generator.random(count) < 0.3
            values[places] = generator.choice(extremes, places.sum())
        return torch.from_numpy(values).to(dtype.torch).reshape(tuple(shape))
    wide = generator.standard_normal(count) * generator.choice([0.1, 1.0, 8.0], count)
    if special and count:
        info = torch.finfo(dtype.torch)
        odd = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            math.inf,
            -math.inf,
            math.nan,
            info.tiny / 4,
            info.max,
            -info.max,
            0.5,
            2.0,
        ]
        places = generator.random(count) < 0.3
        wide[places] = generator.choice(np.array(odd), places.sum())
    return torch.from_numpy(wide).to(dtype.torch).reshape(tuple(shape))


def small_numbers(dtype: dt.DType, shape: Sequence[int], seed: int) -> torch.Tensor:
    """Small dyadic numbers, of which sums and products are exact in every order: compared bit for bit."""
    values = np.random.default_rng(seed).integers(0 if not dtype.is_signed else -4, 5, math.prod(shape))
    scale = 0.5 if dtype.is_float else 1
    return (torch.from_numpy(values.astype(np.float64)) * scale).to(dtype.torch).reshape(tuple(shape))


def numpy_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A torch tensor as the NumPy array that a runtime gives."""
    dtype = dt.dtype_of(tensor.dtype)
    plain = tensor.detach().contiguous()
    if dtype.is_float and dtype.bits == 16:
        return plain.view(torch.int16).numpy().view(dtype.numpy)
    return plain.numpy()


def symbolic_shape(shape: Sequence[int]) -> tuple[Dim, ...]:
    """A symbol for every size, the same for equal sizes; 1 stays, because it decides what broadcasts."""
    return tuple(as_dim(1) if size == 1 else dim(f"n{size}") for size in shape)


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def check(
    make_runtime: Callable[[], Runtime],
    cases: Sequence[Case],
    inputs: Sequence[torch.Tensor],
    *,
    symbolic: bool = False,
) -> int:
    """Run all cases in one graph and compare each with torch; returns how many were compared.

    What torch refuses must be refused while the graph is built, with an error of Luminal's.
    """
    graph = Graph()
    tensors = [
        graph.tensor(
            symbolic_shape(one.shape) if symbolic else tuple(one.shape),
            dt.dtype_of(one.dtype),
            f"arg{position}",
        )
        for position, one in enumerate(inputs)
    ]
    expected: list[tuple[Case, int, torch.Tensor, Tensor]] = []
    for case in cases:
        try:
            wanted = flat(case.torch(*inputs))
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            try:
                case.own(*tensors)
            except LuminalError:
                continue
            raise AssertionError(f"{case.name} of {describe(inputs)} is refused by torch: {error}") from None
        found = flat(case.own(*tensors))
        assert len(found) == len(wanted), case.name
        for position, (own, theirs) in enumerate(zip(found, wanted, strict=True)):
            assert own.dtype.torch == theirs.dtype, (
                f"{case.name} of {describe(inputs)}: {own.dtype} is {theirs.dtype}"
            )
            assert len(own.shape) == theirs.ndim, (
                f"{case.name} of {describe(inputs)}: {own.shape} is {theirs.shape}"
            )
            expected.append((case, position, theirs, own.output()))
    if not expected:
        return 0
    runtime = make_runtime()
    graph.build_search_space(type(runtime))
    graph.search(runtime, 1)
    for tensor, data in zip(tensors, inputs, strict=True):
        runtime.set_data(tensor, data)
    for name in graph.symbols:
        graph.set_dim(name, int(name[1:]))
    runtime.execute(graph.dyn_map)
    failures: list[str] = []
    for case, position, theirs, own in expected:
        try:
            compare(f"{case.name}[{position}] of {describe(inputs)}", runtime.get_numpy(own), theirs, case)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n\n".join(failures)
    return len(expected)


def describe(inputs: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{dt.dtype_of(one.dtype)}{list(one.shape)}" for one in inputs)


ANY = Case("", tuple, tuple)


def compare(what: str, got: np.ndarray[Any, Any], wanted: torch.Tensor, case: Case = ANY) -> None:
    """Equal shape and dtype, and values: the same NaNs; floats within TOLERANCE unless exact, else the same bits."""
    expected = numpy_of(wanted)
    assert got.dtype == expected.dtype, f"{what}: dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    dtype = dt.dtype_of(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    ours, theirs = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs), err_msg=what)
    if case.exact and (case.halves or dtype.bits > 16):
        np.testing.assert_array_equal(ours, theirs, err_msg=what)
        zeros = (ours == 0) & case.zeros
        np.testing.assert_array_equal(
            np.signbit(ours[zeros]), np.signbit(theirs[zeros]), err_msg=f"{what}: zeros"
        )
        return
    largest = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0.0)
    absolute = (
        float(torch.finfo(dtype.torch).tiny) + case.absolute * TOLERANCE[dtype] * largest + (not case.halves)
    )
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE[dtype], atol=absolute, err_msg=what)
