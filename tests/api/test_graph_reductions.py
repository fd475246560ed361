"""Every reduction, scan, sort, norm and product against torch, over axes, keepdim and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from api_harness import DTYPES, FLOATS, Case, both, check, few, for_examples, random_values, small_numbers
from hypothesis import strategies as st

import luminal.dtype as dt
from luminal.runtimes.protocol import Runtime

MakeRuntime = Callable[[], Runtime]
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
FULL_SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)


def over_axes(axes: Any, keepdim: bool) -> list[Case]:
    """All reductions over some axes (None: all of them, without the argument)."""
    arguments = {} if axes is None else {"dim": axes, "keepdim": keepdim}
    text = "" if axes is None else f"{axes}, {keepdim}"
    exact = [
        both(f"{n}({text})", lambda x, n=n: getattr(x, n)(**arguments), True) for n in ("sum", "any", "all")
    ]
    floats = [
        both(f"{n}({text})", lambda x, n=n: getattr(x, n)(**arguments))
        for n in ("mean", "var", "std", "logsumexp")
    ]
    if axes in (None, ()):  # of those PyTorch has no logsumexp
        floats = [case for case in floats if not case.name.startswith("logsumexp")]
    return [
        *exact,
        *floats,
        both(f"sum f64 ({text})", lambda x: x.sum(**arguments, dtype=torch.float64), True),
        both(f"var 0 ({text})", lambda x: x.var(**arguments, correction=0)),
        both(f"std 2 ({text})", lambda x: x.std(**arguments, correction=2)),
    ]


def extrema(axes: Any, keepdim: bool) -> list[Case]:
    arguments = {} if axes is None else {"dim": axes, "keepdim": keepdim}
    names = ["amax", "amin"]
    if axes is None or isinstance(axes, int):
        names += ["argmax", "argmin", "max", "min", "prod"]
    # Which of 0.0 and -0.0 is the maximum depends in PyTorch on their positions.
    functions = {name: lambda x, n=name: getattr(x, n)(**arguments) for name in names}
    return [Case(f"{n}({axes}, {keepdim})", f, f, exact=True, zeros=False) for n, f in functions.items()]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_over_any_axes(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    @for_examples(
        make_runtime, 5, shape=SHAPES, data=st.data(), keepdim=st.booleans(), symbolic=st.booleans()
    )
    def _(shape: tuple[int, ...], data: st.DataObject, keepdim: bool, symbolic: bool) -> None:
        rank = max(len(shape), 1)
        one = data.draw(st.integers(-rank, rank - 1))
        several = tuple(data.draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=len(shape))))
        for axes in (None, one, several):
            check(make_runtime, over_axes(axes, keepdim), [small_numbers(dtype, shape, 0)], symbolic=symbolic)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extrema_over_any_axes(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    """With NaN, infinities and ties: the first of equal values, and NaN wins."""

    @for_examples(
        make_runtime, 5, shape=FULL_SHAPES, data=st.data(), keepdim=st.booleans(), symbolic=st.booleans()
    )
    def _(shape: tuple[int, ...], data: st.DataObject, keepdim: bool, symbolic: bool) -> None:
        rank = max(len(shape), 1)
        one = data.draw(st.integers(-rank, rank - 1))
        several = tuple(data.draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=len(shape))))
        x = random_values(dtype, shape, data.draw(st.integers(0, 99)))
        for axes in (None, one, several):
            cases = extrema(axes, keepdim)
            if dtype.is_float:
                # A product with infinities and subnormals among its factors depends on their order.
                cases = [case for case in cases if not case.name.startswith("prod")]
            check(make_runtime, cases, [x], symbolic=symbolic)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_of_small_numbers(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = small_numbers(dtype, (3, 4, 2), 1)
    check(make_runtime, [both(f"prod({a})", lambda x, a=a: x.prod(a), True) for a in (0, 1, -1)], [x])


def test_what_torch_does_not_have_over_several_axes(make_runtime: MakeRuntime) -> None:
    x = random_values(dt.f32, (3, 4, 5), 2, special=False)
    flattened = {(0, 2): lambda x: x.permute(1, 0, 2).reshape(4, 15), (1, 2): lambda x: x.reshape(3, 20)}
    cases = []
    for axes, rows in flattened.items():
        cases += [
            Case(f"argmax {axes}", lambda x, a=axes: x.argmax(a), lambda x, r=rows: r(x).argmax(1), True),
            Case(f"argmin {axes}", lambda x, a=axes: x.argmin(a), lambda x, r=rows: r(x).argmin(1), True),
            Case(f"max {axes}", lambda x, a=axes: x.max(a), lambda x, r=rows: r(x).amax(1), True),
            Case(f"min {axes}", lambda x, a=axes: x.min(a), lambda x, r=rows: r(x).amin(1), True),
            Case(f"prod {axes}", lambda x, a=axes: x.prod(a), lambda x, r=rows: r(x).prod(1)),
        ]
    cases.append(
        Case(
            "keepdim",
            lambda x: x.argmax((0, 2), keepdim=True),
            lambda x: flattened[0, 2](x).argmax(1).view(1, 4, 1),
        )
    )
    assert check(make_runtime, cases, [x]) == len(cases)


def test_max_and_min_with_a_tensor(make_runtime: MakeRuntime) -> None:
    pair = [random_values(dt.f32, (4, 5), 3), random_values(dt.f32, (5,), 4)]
    cases = [both("max", lambda x, y: x.max(y), True), both("min", lambda x, y: x.min(y), True)]
    assert check(make_runtime, cases, pair) == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scans_and_sorts(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    @for_examples(make_runtime, 4, shape=SHAPES, data=st.data(), symbolic=st.booleans())
    def _(shape: tuple[int, ...], data: st.DataObject, symbolic: bool) -> None:
        rank = max(len(shape), 1)
        axis = data.draw(st.integers(-rank, rank - 1))
        sums = [both(n, lambda x, n=n: getattr(x, n)(axis), True) for n in ("cumsum", "cumprod")]
        sums.append(both("cumsum f64", lambda x: x.cumsum(axis, dtype=torch.float64), True))
        check(make_runtime, sums, [small_numbers(dtype, shape, 5)], symbolic=symbolic)
        sorts = [
            both("cummax", lambda x: tuple(x.cummax(axis)), True),
            both("cummin", lambda x: tuple(x.cummin(axis)), True),
            Case("sort", lambda x: tuple(x.sort(axis)), lambda x: tuple(x.sort(dim=axis, stable=True)), True),
            Case(
                "sort down",
                lambda x: tuple(x.sort(dim=axis, descending=True)),
                lambda x: tuple(x.sort(dim=axis, descending=True, stable=True)),
                True,
            ),
            Case("argsort", lambda x: x.argsort(axis), lambda x: x.argsort(dim=axis, stable=True), True),
        ]
        check(make_runtime, sorts, [random_values(dtype, shape, 6)], symbolic=symbolic)


@pytest.mark.parametrize("largest", [True, False])
def test_topk(make_runtime: MakeRuntime, largest: bool) -> None:
    x = torch.randperm(60, generator=torch.Generator().manual_seed(0)).reshape(3, 4, 5).float()
    cases = [
        both(f"topk({k}, {axis})", lambda x, k=k, a=axis: tuple(x.topk(k, a, largest)), True)
        for axis, k in ((0, 2), (1, 4), (-1, 3), (2, 0))
    ]
    assert check(make_runtime, cases, [x]) == 8
    assert check(make_runtime, cases, [x], symbolic=True) == 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    @for_examples(make_runtime, 4, shape=SHAPES, data=st.data(), symbolic=st.booleans())
    def _(shape: tuple[int, ...], data: st.DataObject, symbolic: bool) -> None:
        rank = max(len(shape), 1)
        axis = data.draw(st.integers(-rank, rank - 1))
        cases = [
            both("softmax", lambda x: x.softmax(axis)),
            both("softmax f32", lambda x: x.softmax(dim=axis, dtype=torch.float32)),
            replace(both("log_softmax", lambda x: x.log_softmax(axis)), absolute=1.0),
            replace(
                both("log_softmax f64", lambda x: x.log_softmax(dim=axis, dtype=torch.float64)), absolute=1.0
            ),
        ]
        if not dtype.is_float and 0 in shape:
            return  # PyTorch looks at the dtype only if there is an element
        check(make_runtime, cases, [random_values(dtype, shape, 7, special=False)], symbolic=symbolic)


def test_softmax_of_infinities(make_runtime: MakeRuntime) -> None:
    inf = float("inf")
    x = torch.tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [inf, 1.0, 2.0], [float("nan"), 1.0, 2.0]])
    cases = [both("softmax", lambda x: x.softmax(1)), both("logsumexp", lambda x: x.logsumexp(1))]
    assert check(make_runtime, cases, [x]) == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_norms(make_runtime: MakeRuntime, dtype: dt.DType, symbolic: bool) -> None:
    x = random_values(dtype, (2, 3, 5), 8, special=False)
    weight, bias = random_values(dtype, (5,), 9, special=False), random_values(dtype, (5,), 10, special=False)

    def size(x: Any) -> Any:
        return x.shape[-1]

    cases = [
        Case("layer_norm", lambda x, w, b: x.layer_norm(size(x)), lambda x, w, b: F.layer_norm(x, (5,))),
        Case(
            "layer_norm affine",
            lambda x, w, b: x.layer_norm((size(x),), w, b, eps=1e-3),
            lambda x, w, b: F.layer_norm(x, (5,), w, b, eps=1e-3),
        ),
        Case(
            "layer_norm weight",
            lambda x, w, b: x.layer_norm([size(x)], weight=w),
            lambda x, w, b: F.layer_norm(x, (5,), w),
        ),
        Case(
            "layer_norm of two axes",
            lambda x, w, b: x.layer_norm(x.shape[1:]),
            lambda x, w, b: F.layer_norm(x, (3, 5)),
        ),
        Case("rms_norm", lambda x, w, b: x.rms_norm((size(x),)), lambda x, w, b: F.rms_norm(x, (5,))),
        Case(
            "rms_norm weight",
            lambda x, w, b: x.rms_norm((size(x),), w, eps=1e-2),
            lambda x, w, b: F.rms_norm(x, (5,), w, eps=1e-2),
        ),
    ]
    counted = check(make_runtime, cases, [x, weight, bias], symbolic=symbolic)
    assert counted == (len(cases) if dtype.is_float else 0)


MATMUL_SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((2, 4), (4,)),
    ((2, 4), (4, 3)),
    ((5, 2, 4), (4, 3)),
    ((5, 2, 4), (5, 4, 3)),
    ((5, 1, 2, 4), (6, 4, 3)),
    ((2, 4), (5, 4, 3)),
    ((4,), (5, 4, 3)),
    ((5, 2, 4), (4,)),
    ((2, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not dtype.is_bool], ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_matmul(make_runtime: MakeRuntime, dtype: dt.DType, symbolic: bool) -> None:
    cases = [both("matmul", lambda x, y: x.matmul(y), True), both("x @ y", lambda x, y: x @ y, True)]
    for left, right in few(make_runtime, MATMUL_SHAPES, 5):
        pair = [small_numbers(dtype, left, 11), small_numbers(dtype, right, 12)]
        assert check(make_runtime, cases, pair, symbolic=symbolic) == 2


def test_matmul_of_a_tensor_with_its_own_transpose(make_runtime: MakeRuntime) -> None:
    x = small_numbers(dt.f32, (5, 7), 13)
    cases = [both("x @ x.T", lambda x: x @ x.T, True), both("x.T @ x", lambda x: x.T @ x, True)]
    assert check(make_runtime, cases, [x], symbolic=True) == 2
