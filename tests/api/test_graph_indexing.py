"""Gather, scatter, indexing by tensors, triangles and created tensors against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from api_harness import DTYPES, Case, both, check, compare, for_examples, random_values, small_numbers
from hypothesis import strategies as st

import luminal.dtype as dt
from luminal.dim import dim
from luminal.errors import IndexOutOfRangeError
from luminal.graph import Graph
from luminal.runtimes.protocol import Runtime

MakeRuntime = Callable[[], Runtime]
pytestmark = pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")


def positions(
    limit: int, shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.integers(0, max(limit, 1), shape)).to(dtype)


def test_gather_and_scatter(make_runtime: MakeRuntime) -> None:
    @for_examples(
        make_runtime, 12, shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), data=st.data()
    )
    def _(shape: tuple[int, ...], data: st.DataObject) -> None:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        dtype = data.draw(st.sampled_from(DTYPES))
        covered = tuple(
            data.draw(st.integers(0, 5 if position == axis % len(shape) else size))
            for position, size in enumerate(shape)
        )
        x = small_numbers(dtype, shape, 0)
        src = small_numbers(dtype, tuple(size + 1 for size in covered), 1)
        index = positions(shape[axis], covered, 2)
        gathers = [both("gather", lambda x, i, s: x.gather(axis, i), True)]
        check(make_runtime, gathers, [x, index, src])
        check(make_runtime, gathers, [x, index.int(), src])
        scatters = [
            both("scatter", lambda x, i, s: x.scatter(axis, i, s), True),
            both("scatter number", lambda x, i, s: x.scatter(axis, i, 1), True),
            both("scatter_add", lambda x, i, s: x.scatter_add(axis, i, s), True),
            both("scatter +=", lambda x, i, s: x.scatter(axis, i, s, reduce="add"), True),
            both("scatter *=", lambda x, i, s: x.scatter(axis, i, s, reduce="multiply"), True),
            both("scatter value", lambda x, i, s: x.scatter(axis, i, value=2), True),
            *[
                both(
                    f"{name} {own}",
                    lambda x, i, s, n=name, o=own: x.scatter_reduce(axis, i, s, n, include_self=o),
                    True,
                )
                for name in ("sum", "prod", "amax", "amin")
                for own in (True, False)
            ],
        ]
        check(make_runtime, scatters, [x, index, src])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gathers_of_all_dtypes(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x, index = random_values(dtype, (4, 5), 3), positions(4, (3, 5), 4)
    cases = [
        both("gather", lambda x, i: x.gather(0, i), True),
        both("index_select", lambda x, i: x.index_select(0, i[0]), True),
        both("x[i]", lambda x, i: x[i], True),
        Case("embedding", lambda x, i: i.embedding(x), lambda x, i: F.embedding(i, x), True),
    ]
    assert check(make_runtime, cases, [x, index]) == 4
    assert check(make_runtime, cases, [x, index], symbolic=True) == 4


def test_rank_0(make_runtime: MakeRuntime) -> None:
    x, index, src = torch.tensor(2.5), torch.tensor(0), torch.tensor(1.5)
    cases = [
        both("gather", lambda x, i, s: x.gather(0, i), True),
        both("scatter", lambda x, i, s: x.scatter(0, i, s), True),
        both("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), True),
        both("index_select", lambda x, i, s: x.index_select(0, i), True),
    ]
    assert check(make_runtime, cases, [x, index, src]) == 4


def test_indexing_by_tensors(make_runtime: MakeRuntime) -> None:
    """Broadcast, beside each other and apart, mixed with ints, slices and None; negative ones count from the end."""
    x = random_values(dt.f32, (4, 5, 6), 5)
    a, b = positions(4, (3,), 6) - 2, positions(4, (2, 1), 7, torch.int32)
    keys: dict[str, Callable[[Any, Any], Any]] = {
        "a": lambda a, b: a,
        "a, b": lambda a, b: (a, b),
        ":, a": lambda a, b: (slice(None), a),
        "a, :, b": lambda a, b: (a, slice(None), b),
        "..., a": lambda a, b: (..., a),
        ":, a, b": lambda a, b: (slice(None), a, b),
        "1, a": lambda a, b: (1, a),
        "a, 1": lambda a, b: (a, 1),
        "a, None, b": lambda a, b: (a, None, b),
        "1:, a, ::2": lambda a, b: (slice(1, None), a, slice(None, None, 2)),
        "a, a, a": lambda a, b: (a, a, a),
    }
    cases = [both(f"x[{text}]", lambda x, a, b, k=key: x[k(a, b)], True) for text, key in keys.items()]
    assert check(make_runtime, cases, [x, a, b]) == len(cases)


def test_an_index_out_of_range_is_an_error_of_the_run(make_runtime: MakeRuntime) -> None:
    for function in (
        lambda x, i: x.gather(0, i),
        lambda x, i: x.scatter(0, i, 1.0),
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i),
    ):
        for bad in (4, -5):
            graph = Graph()
            x, index = graph.tensor((4,)), graph.tensor((2,), "i64")
            function(x, index).output()
            runtime = make_runtime()
            graph.build_search_space(type(runtime))
            graph.search(runtime, 1)
            runtime.set_data(x, [1.0, 2.0, 3.0, 4.0])
            runtime.set_data(index, [0, bad])
            with pytest.raises(IndexOutOfRangeError, match=r"out of bounds|outside"):
                runtime.execute({})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triangles(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    cases = [
        both(f"{name}({diagonal})", lambda x, n=name, d=diagonal: getattr(x, n)(d), True)
        for name in ("tril", "triu")
        for diagonal in (0, 1, -2, 7)
    ]
    assert check(make_runtime, cases, [random_values(dtype, (2, 3, 4), 8)]) == len(cases)
    assert check(make_runtime, cases, [random_values(dtype, (5, 3), 9)], symbolic=True) == len(cases)


CREATED: dict[str, tuple[Callable[[Graph], Any], Callable[[], torch.Tensor]]] = {
    "arange(5)": (lambda g: g.arange(5), lambda: torch.arange(5)),
    "arange(2, 9, 3)": (lambda g: g.arange(2, 9, 3), lambda: torch.arange(2, 9, 3)),
    "arange(9, 2, -3)": (lambda g: g.arange(9, 2, -3), lambda: torch.arange(9, 2, -3)),
    "arange(0)": (lambda g: g.arange(0), lambda: torch.arange(0)),
    "arange(0, 1, 0.1)": (lambda g: g.arange(0, 1, 0.1), lambda: torch.arange(0, 1, 0.1)),
    "arange(2.5)": (lambda g: g.arange(2.5), lambda: torch.arange(2.5)),
    "arange(3, f16)": (lambda g: g.arange(3, dtype="f16"), lambda: torch.arange(3, dtype=torch.float16)),
    "arange(1, 0, -.3)": (lambda g: g.arange(1, 0, -0.3), lambda: torch.arange(1, 0, -0.3)),
    "iota": (lambda g: g.iota((2, 3), 1), lambda: torch.arange(3).expand(2, 3)),
    "iota f32": (lambda g: g.iota((2, 3), -2, "f32"), lambda: torch.arange(2.0)[:, None].expand(2, 3)),
    "full": (lambda g: g.full((2, 2), 7), lambda: torch.full((2, 2), 7)),
    "full float": (lambda g: g.full((2,), 2.5, "f16"), lambda: torch.full((2,), 2.5, dtype=torch.float16)),
    "full bool": (lambda g: g.full((), True), lambda: torch.full((), True)),
    "zeros": (lambda g: g.zeros(2, 3), lambda: torch.zeros(2, 3)),
    "ones": (lambda g: g.ones((4,), dtype="i8"), lambda: torch.ones(4, dtype=torch.int8)),
    "constant": (lambda g: g.constant([[1.5, 2], [3, 4]]), lambda: torch.tensor([[1.5, 2], [3, 4]])),
    "constant ints": (lambda g: g.constant([1, 2]), lambda: torch.tensor([1, 2])),
    "constant scalar": (lambda g: g.constant(3.25), lambda: torch.tensor(3.25)),
    "constant empty": (
        lambda g: g.constant(np.zeros((0, 3), np.int16)),
        lambda: torch.zeros(0, 3, dtype=torch.int16),
    ),
    "constant torch": (
        lambda g: g.constant(torch.tensor([1.5, float("nan")], dtype=torch.bfloat16)),
        lambda: torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
    ),
}


def test_created_tensors(make_runtime: MakeRuntime) -> None:
    graph = Graph()
    results = [(name, own(graph).output(), theirs()) for name, (own, theirs) in CREATED.items()]
    runtime = make_runtime()
    graph.build_search_space(type(runtime))
    graph.search(runtime, 1).execute({})
    for name, tensor, wanted in results:
        compare(name, runtime.get_numpy(tensor), wanted)


def test_created_tensors_of_symbolic_sizes(make_runtime: MakeRuntime) -> None:
    graph, s = Graph(), dim("s")
    results = {
        "arange(s)": (graph.arange(s).output(), torch.arange),
        "arange(1, s + 1)": (graph.arange(1, s + 1).output(), lambda n: torch.arange(1, n + 1)),
        "arange(0, s, 2)": (graph.arange(0, s, 2).output(), lambda n: torch.arange(0, n, 2)),
        "arange(s, 0, -1)": (graph.arange(s, 0, -1).output(), lambda n: torch.arange(n, 0, -1)),
        "full": (graph.full((s, 2), 3.5).output(), lambda n: torch.full((n, 2), 3.5)),
        "text": (graph.full("2*s + 1", 1).output(), lambda n: torch.full((2 * n + 1,), 1)),
    }
    runtime = make_runtime()
    graph.build_search_space(type(runtime))
    graph.search(runtime, 1)
    for size in (0, 1, 7):
        graph.set_dim(s, size)
        runtime.execute(graph.dyn_map)
        for name, (tensor, function) in results.items():
            compare(f"{name} with {size}", runtime.get_numpy(tensor), function(size))
