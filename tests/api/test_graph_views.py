"""Every view, slice and padding against torch, with shapes that hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from api_harness import DTYPES, Case, check, for_examples, random_values
from hypothesis import strategies as st

import luminal.dtype as dt
from luminal.runtimes.protocol import Runtime
from luminal.tensor import cat, stack

MakeRuntime = Callable[[], Runtime]
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def exact(name: str, function: Callable[..., Any], theirs: Callable[..., Any] | None = None) -> Case:
    return Case(name, function, theirs or function, True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_views_keep_every_dtype(make_runtime: MakeRuntime, dtype: dt.DType) -> None:
    x = random_values(dtype, (2, 3, 4), 0)
    cases = [
        exact("permute", lambda x: x.permute(2, 0, 1)),
        exact("expand", lambda x: x.expand(2, -1, 3, 4)),
        exact("reshape", lambda x: x.reshape(-1, 2)),
        exact("slice", lambda x: x[:, 1:, ::2]),
        exact("pad", lambda x: x.pad((1, 2), value=1), lambda x: F.pad(x, (1, 2), value=1)),
        exact("flip", lambda x: x.flip(0, 2)),
        exact("unfold", lambda x: x.unfold(2, 2, 1)),
        exact("cat", lambda x: cat([x, x], 1), lambda x: torch.cat([x, x], 1)),
        exact("stack", lambda x: stack([x, x], 1), lambda x: torch.stack([x, x], 1)),
        exact("squeeze", lambda x: x[:1].squeeze(0)),
        exact("tril", lambda x: x.tril()),
    ]
    assert check(make_runtime, cases, [x]) == len(cases)


def test_axes(make_runtime: MakeRuntime) -> None:
    @for_examples(make_runtime, 15, shape=SHAPES, symbolic=st.booleans(), data=st.data())
    def _(shape: tuple[int, ...], symbolic: bool, data: st.DataObject) -> None:
        rank = len(shape)
        order = data.draw(st.permutations(range(rank)))
        signed = [axis - rank if data.draw(st.booleans()) else axis for axis in order]
        axes = st.integers(-max(rank, 1), max(rank, 1) - 1)
        a, b = data.draw(axes), data.draw(axes)
        new = data.draw(st.integers(-rank - 1, rank))
        some = data.draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
        first, last = sorted((a % max(rank, 1), b % max(rank, 1)))
        cases = [
            exact(f"permute({signed})", lambda x: x.permute(*signed) if signed else x.permute(())),
            exact(f"permute(({signed}))", lambda x: x.permute(tuple(signed))),
            exact(f"transpose({a}, {b})", lambda x: x.transpose(a, b)),
            exact("T", lambda x: x.T, lambda x: x.permute(tuple(range(rank - 1, -1, -1)))),
            exact(f"unsqueeze({new})", lambda x: x.unsqueeze(new)),
            exact(f"flip({some})", lambda x: x.flip(some)),
            exact(f"flip(*{some})", lambda x: x.flip(*some) if some else x),
            exact(f"flatten({first}, {last})", lambda x: x.flatten(first, last)),
            exact("flatten()", lambda x: x.flatten()),
            exact("reshape(-1)", lambda x: x.reshape(-1)),
            exact("view(-1)", lambda x: x.view(-1)),
            exact("squeeze()", lambda x: x.squeeze()),
            exact(f"squeeze({a})", lambda x: x.squeeze(a)),
            exact(f"squeeze({some})", lambda x: x.squeeze(tuple(some))),
            exact("squeeze(unsqueeze)", lambda x: x.unsqueeze(new).squeeze(new)),
            exact("expand", lambda x: x.unsqueeze(0).expand(3, *[-1] * rank)),
            exact("expand_as", lambda x: x.expand_as(x)),
            exact("dims=", lambda x: x.permute(dims=tuple(order)).flip(dims=some)),
            exact("shape=", lambda x: x.reshape(shape=(-1,)).expand(size=(2, -1))),
        ]
        if rank >= 2:
            cases.append(exact("mT", lambda x: x.mT))
        # torch.squeeze looks at the size of a symbolic dim, which a graph cannot: only constant ones are squeezed.
        assert check(make_runtime, cases, [random_values(dt.f32, shape, 1)], symbolic=symbolic) == len(cases)


def test_expand_and_reshape(make_runtime: MakeRuntime) -> None:
    @for_examples(make_runtime, 15, data=st.data())
    def _(data: st.DataObject) -> None:
        target = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
        own = [1 if data.draw(st.booleans()) else size for size in target][
            data.draw(st.integers(0, len(target) - 1)) :
        ]
        given_sizes = [
            -1 if position >= len(target) - len(own) and data.draw(st.booleans()) else size
            for position, size in enumerate(target)
        ]
        factors = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        cases = [exact(f"expand({given_sizes})", lambda x: x.expand(*given_sizes))]
        check(make_runtime, cases, [random_values(dt.i32, own, 2)])
        cut = data.draw(st.permutations(factors))
        hole = data.draw(st.integers(0, len(cut) - 1))
        holed = [-1 if position == hole else size for position, size in enumerate(cut)]
        cases = [
            exact(f"reshape({cut})", lambda x: x.reshape(cut)),
            exact(f"reshape({holed})", lambda x: x.reshape(*holed)),
        ]
        assert check(make_runtime, cases, [random_values(dt.i32, factors, 3)]) == 2


def is_valid(key: Any, shape: tuple[int, ...]) -> bool:
    try:
        torch.empty(shape)[key]
    except IndexError:
        return False
    return True


BOUNDS = st.one_of(st.none(), st.integers(-6, 6))


def test_python_slicing(make_runtime: MakeRuntime) -> None:
    """Ints, slices with all kinds of bounds, ..., None, in every order: what torch refuses is refused."""

    @for_examples(
        make_runtime,
        25,
        shape=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
        symbolic=st.booleans(),
        data=st.data(),
    )
    def _(shape: tuple[int, ...], symbolic: bool, data: st.DataObject) -> None:
        cases: list[Case] = []
        for _ in range(6):
            parts: list[Any] = []
            for size in shape[: data.draw(st.integers(0, len(shape)))]:
                if size and data.draw(st.integers(0, 3)) == 0:
                    parts.append(data.draw(st.integers(-size, size - 1)))
                else:
                    step = data.draw(st.one_of(st.none(), st.integers(1, 3)))
                    parts.append(slice(data.draw(BOUNDS), data.draw(BOUNDS), step))
            for _ in range(data.draw(st.integers(0, 2))):
                parts.insert(data.draw(st.integers(0, len(parts))), None)
            if data.draw(st.booleans()):
                parts.insert(data.draw(st.integers(0, len(parts))), ...)
            key = tuple(parts) if len(parts) != 1 else parts[0]
            if not symbolic or is_valid(key, shape):  # of a symbolic size that is an error of the run
                cases.append(exact(f"x[{key}]", lambda x, key=key: x[key]))
        check(make_runtime, cases, [random_values(dt.f32, shape, 4)], symbolic=symbolic)


def test_the_slice_of_the_issue(make_runtime: MakeRuntime) -> None:
    x = random_values(dt.f32, (7, 2, 3, 5), 5)
    cases = [
        exact("x[1:-1:2, ..., None, 3]", lambda x: x[1:-1:2, ..., None, 3]),
        exact("x[..., None, None, -1]", lambda x: x[..., None, None, -1]),
        exact("x[2]", lambda x: x[2]),
        exact("x[-1, 1, 0, 4]", lambda x: x[-1, 1, 0, 4]),
        exact("x[100:]", lambda x: x[100:]),
        exact("x[-100:2]", lambda x: x[-100:2]),
        exact("x[3:1]", lambda x: x[3:1]),
        exact("x[()]", lambda x: x[()]),
        exact("iter", lambda x: tuple(x)),
    ]
    assert check(make_runtime, cases, [x]) == 15


PADDINGS = st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 3)), max_size=3)


def test_constant_padding_and_cropping(make_runtime: MakeRuntime) -> None:
    @for_examples(
        make_runtime,
        20,
        shape=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
        amounts=PADDINGS,
        symbolic=st.booleans(),
        value=st.sampled_from([None, 0, 1, -2.5, float("nan"), float("-inf")]),
    )
    def _(
        shape: tuple[int, ...], amounts: list[tuple[int, int]], symbolic: bool, value: float | None
    ) -> None:
        # A size that would be negative is an error; with symbols it is one of the run, which test_errors has.
        sizes = list(reversed(shape))
        if any(
            size + low + high < 0 or size < max(0, -low, -high) for size, (low, high) in zip(sizes, amounts)
        ):
            symbolic = False
        pad = tuple(amount for pair in amounts for amount in pair)
        case = exact(
            f"pad({pad}, {value})", lambda x: x.pad(pad, value=value), lambda x: F.pad(x, pad, value=value)
        )
        check(make_runtime, [case], [random_values(dt.f32, shape, 6)], symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_padding_from_inside(make_runtime: MakeRuntime, symbolic: bool) -> None:
    """Invariant: what a negative amount crops is no part of what "circular" repeats."""
    for shape, pads in (
        ((3, 4, 5), ((1, 2), (4, 0), (-1, 2), (3, -2))),
        ((2, 3, 4, 5), ((2, 0, 1, 3), (0, 1, 0, 0), (-1, 1, 2, -1))),
    ):
        cases = [
            exact(
                f"{mode} {pad}", lambda x, p=pad, m=mode: x.pad(p, m), lambda x, p=pad, m=mode: F.pad(x, p, m)
            )
            for mode in ("reflect", "replicate", "circular")
            for pad in pads
        ]
        assert check(make_runtime, cases, [random_values(dt.f32, shape, 7)], symbolic=symbolic) == len(cases)


def test_unfold(make_runtime: MakeRuntime) -> None:
    @for_examples(
        make_runtime,
        10,
        shape=st.lists(st.integers(1, 5), max_size=3).map(tuple),
        data=st.data(),
        size=st.integers(0, 3),
        step=st.integers(1, 3),
        symbolic=st.booleans(),
    )
    def _(shape: tuple[int, ...], data: st.DataObject, size: int, step: int, symbolic: bool) -> None:
        rank = max(len(shape), 1)
        dimension = data.draw(st.integers(-rank, rank - 1))
        extent = shape[dimension] if shape else 1
        size = min(size, extent)
        case = exact(f"unfold({dimension}, {size}, {step})", lambda x: x.unfold(dimension, size, step))
        assert check(make_runtime, [case], [random_values(dt.f32, shape, 8)], symbolic=symbolic) == 1


def test_cat_and_stack(make_runtime: MakeRuntime) -> None:
    @for_examples(
        make_runtime,
        10,
        shape=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
        data=st.data(),
        symbolic=st.booleans(),
    )
    def _(shape: tuple[int, ...], data: st.DataObject, symbolic: bool) -> None:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        new = data.draw(st.integers(-len(shape) - 1, len(shape)))
        other = list(shape)
        other[axis] = data.draw(st.integers(0, 3))
        types = [data.draw(st.sampled_from(DTYPES)) for _ in range(3)]
        inputs = [
            random_values(dtype, size, 9) for dtype, size in zip(types, (shape, other, shape), strict=True)
        ]
        cases = [
            Case(f"cat {axis}", lambda *xs: cat(xs, dim=axis), lambda *xs: torch.cat(xs, dim=axis), True),
            Case(
                f"stack {new}",
                lambda x, y, z: stack([x, z], dim=new),
                lambda x, y, z: torch.stack([x, z], dim=new),
                True,
            ),
        ]
        assert check(make_runtime, cases, inputs, symbolic=symbolic) == 2


def test_cat_skips_empty_vectors(make_runtime: MakeRuntime) -> None:
    inputs = [random_values(dt.f32, (2, 3), 10), torch.empty(0)]
    assert check(
        make_runtime, [Case("cat", lambda x, y: cat([y, x, y]), lambda x, y: torch.cat([y, x, y]))], inputs
    )
