"""Every mistake of a user in building a graph has its error, which names the tensors and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from luminal.dim import dim
from luminal.errors import (
    AxisError,
    DimRangeError,
    DTypeError,
    GraphError,
    IndexOutOfRangeError,
    LuminalError,
    OptionError,
    ScalarError,
    ShapeError,
    UnsetDimError,
)
from luminal.graph import Graph
from luminal.tensor import Tensor, cat, stack, where


class World:
    """The tensors of the cases."""

    def __init__(self) -> None:
        self.cx = Graph()
        self.x = self.cx.tensor((2, 3), name="x")
        self.y = self.cx.tensor((4, 5), name="y")
        self.i = self.cx.tensor((2, 3), "i64", "i")
        self.b = self.cx.tensor((2, 3), "bool", "b")
        self.f8 = self.cx.tensor((2, 3), "f8e4m3fn", "narrow")
        self.h = self.cx.tensor((3,), "f16", "h")
        self.s = dim("s")
        self.v = self.cx.tensor((self.s, 3), name="v")
        self.t = self.cx.tensor((dim("t"), 3), name="t")
        self.other = Graph().tensor((2, 3), name="foreign")


CASES: list[tuple[str, Callable[[World], Any], type[LuminalError], str]] = [
    # shapes
    ("broadcast", lambda w: w.x + w.y, ShapeError, r"add.*'x' f32 \(2, 3\).*'y' f32 \(4, 5\)"),
    ("broadcast of symbols", lambda w: w.v + w.t, ShapeError, r"s and t|'v'.*'t'"),
    ("where", lambda w: where(w.b, w.x, w.y), ShapeError, r"'b'.*'x'.*'y'"),
    ("matmul", lambda w: w.x @ w.y, ShapeError, r"matmul.*3.*4.*'x'.*'y'"),
    ("matmul of a scalar", lambda w: w.x @ w.x.sum(), ShapeError, r"matmul.*'x'"),
    ("reshape", lambda w: w.x.reshape(4, 2), ShapeError, r"reshape.*'x'.*6.*\(4, 2\)"),
    ("reshape -1", lambda w: w.x.reshape(4, -1), ShapeError, r"'x'.*6.*\(4, -1\)"),
    ("reshape -1 -1", lambda w: w.x.reshape(-1, -1), ShapeError, "'x'.*more than one"),
    ("reshape 0 -1", lambda w: w.x[:0].reshape(0, -1), ShapeError, "any size"),
    ("reshape of symbols", lambda w: w.v.reshape(w.s + 1, 3), ShapeError, r"'v'.*3\*s.*\(s \+ 1, 3\)"),
    ("expand", lambda w: w.x.expand(3, 3), ShapeError, "expand.*'x'"),
    ("expand less", lambda w: w.x.expand(3), ShapeError, "'x'.*fewer"),
    ("expand new -1", lambda w: w.x.expand(-1, 2, 3), ShapeError, "'x'.*-1"),
    ("cat", lambda w: cat([w.x, w.y]), ShapeError, "cat.*'x'.*'y'"),
    ("cat of nothing", lambda w: cat([]), ShapeError, "no tensors"),
    ("stack", lambda w: stack([w.x, w.y]), ShapeError, "stack.*'x'.*'y'"),
    ("mT", lambda w: w.h.mT, ShapeError, "'h'"),
    ("tril", lambda w: w.h.tril(), ShapeError, "'h'.*two axes"),
    ("unfold", lambda w: w.x.unfold(1, 4, 1), ShapeError, "'x'.*4.*3"),
    ("layer_norm", lambda w: w.x.layer_norm(4), ShapeError, r"'x'.*normalized_shape \(4,\)"),
    ("layer_norm of too many axes", lambda w: w.x.layer_norm((1, 2, 3)), ShapeError, "'x'"),
    ("layer_norm weight", lambda w: w.x.layer_norm(3, w.y), ShapeError, r"'x'.*weight is 'y'.*\(3,\)"),
    ("rms_norm weight", lambda w: w.x.rms_norm(3, w.x), ShapeError, r"weight is 'x'.*\(3,\)"),
    ("gather", lambda w: w.y.gather(0, w.i.sum(0, keepdim=True)[0]), ShapeError, "gather.*rank.*'y'"),
    ("gather too wide", lambda w: w.x.gather(0, w.i.expand(2, 2, 3).reshape(4, 3).T), ShapeError, "'x'"),
    ("scatter", lambda w: w.x.scatter(0, w.i, w.x[:1]), ShapeError, "scatter.*'x'.*'i'"),
    ("index_select", lambda w: w.x.index_select(0, w.i), ShapeError, "'x'.*'i'.*vector"),
    ("embedding", lambda w: w.i.embedding(w.h), ShapeError, "'i'.*'h'.*matrix"),
    ("amax of nothing", lambda w: w.x[:0].amax(), ShapeError, "amax.*dim 0 is empty"),
    ("argmin of nothing", lambda w: w.x[:, :0].argmin(1), ShapeError, "argmin.*dim 1 is empty"),
    ("max of nothing", lambda w: w.x[:0].max(0), ShapeError, "max.*dim 0 is empty"),
    ("topk", lambda w: w.x.topk(4), ShapeError, "'x'.*k is 4.*3"),
    ("masked_fill", lambda w: w.x.masked_fill(w.b, w.x), ShapeError, "masked_fill.*'x'.*rank 0"),
    ("len", lambda w: len(w.v), ShapeError, "'v'.*s"),
    ("len of a scalar", lambda w: len(w.x.sum()), ShapeError, "no axes"),
    ("negative size", lambda w: w.cx.tensor((2, -3)), ShapeError, "-3"),
    ("full of a negative size", lambda w: w.cx.full((-1,), 0), ShapeError, "-1"),
    ("pad", lambda w: w.x.pad((-4, 0)), ShapeError, "'x'"),
    ("reflect", lambda w: w.x.pad((3, 0), "reflect"), ShapeError, "'x'.*reflect.*at least 4"),
    # dtypes
    ("no dtype", lambda w: w.cx.tensor((2,), "f31"), DTypeError, "'f31'.*f32"),
    ("cast", lambda w: w.x.cast("float33"), DTypeError, "'x'.*'float33'"),
    ("fp8 arithmetic", lambda w: w.f8 + 1, DTypeError, "'narrow'.*f8e4m3fn.*cast"),
    ("fp8 on the right", lambda w: w.x * w.f8, DTypeError, "'narrow'"),
    ("fp8 function", lambda w: w.f8.exp(), DTypeError, "exp.*'narrow'"),
    ("fp8 sum", lambda w: w.f8.sum(), DTypeError, "sum.*'narrow'"),
    ("gelu of ints", lambda w: w.i.gelu(), DTypeError, "gelu.*'i' i64.*float"),
    ("silu of ints", lambda w: w.i.silu(), DTypeError, "silu.*'i'"),
    ("softmax of ints", lambda w: w.i.softmax(0), DTypeError, "softmax.*'i'"),
    ("mean of ints", lambda w: w.i.mean(), DTypeError, "mean.*'i' i64.*float"),
    ("var of ints", lambda w: w.i.var(), DTypeError, "var.*'i'"),
    ("layer_norm of ints", lambda w: w.i.layer_norm(3), DTypeError, "layer_norm.*'i'"),
    ("layer_norm weight", lambda w: w.x.layer_norm(3, w.h), DTypeError, "weight is 'h' f16.*f32"),
    ("matmul dtypes", lambda w: w.x @ w.i.T, DTypeError, "matmul.*'x' f32.*i64.*one dtype"),
    ("matmul of bool", lambda w: w.b @ w.b.T, DTypeError, "matmul.*'b' bool"),
    ("matmul of a number", lambda w: w.x @ 3, DTypeError, "matmul.*'x'.*int"),
    ("bool minus", lambda w: w.b - w.b, DTypeError, "'b'.*logical_not"),
    ("minus bool", lambda w: 1 - w.b, DTypeError, "'b'.*logical_not"),
    ("minus True", lambda w: w.x - True, DTypeError, "'x'.*logical_not"),
    ("-bool", lambda w: -w.b, DTypeError, "neg.*'b'"),
    ("+bool", lambda w: +w.b, DTypeError, "'b'"),
    ("abs of bool", lambda w: w.b.abs(), DTypeError, "abs.*'b'"),
    ("bool // bool", lambda w: w.b // w.b, DTypeError, "floor_divide.*'b'"),
    ("bool ** bool", lambda w: w.b**w.b, DTypeError, "pow.*'b'"),
    ("clamp of bool", lambda w: w.b.clamp(True), DTypeError, "clamp.*'b'"),
    ("~float", lambda w: ~w.x, DTypeError, "bitwise_not.*'x' f32"),
    ("float & float", lambda w: w.x & w.x, DTypeError, "bitwise_and.*'x'.*integers or bool"),
    ("bool << bool", lambda w: w.b << w.b, DTypeError, "shift_left.*'b'.*integers"),
    ("float << int", lambda w: w.x << w.i, DTypeError, "shift_left.*'x'"),
    ("where without bool", lambda w: where(w.i, w.x, w.x), DTypeError, "where.*'i' i64.*bool"),
    ("where without tensor", lambda w: where(True, w.x, w.x), DTypeError, "where.*bool"),
    ("masked_fill mask", lambda w: w.x.masked_fill(w.i, 0), DTypeError, "'i' i64.*bool"),
    ("gather index", lambda w: w.x.gather(0, w.x), DTypeError, "gather.*'x'.*i64"),
    ("gather without tensor", lambda w: w.x.gather(0, 1), DTypeError, "gather.*int.*Tensor"),
    ("scatter src", lambda w: w.x.scatter(0, w.i, w.i), DTypeError, "scatter.*'x'.*src is 'i'.*f32"),
    ("index by floats", lambda w: w.x[w.h], DTypeError, "'x'.*'h'"),
    ("index by bools", lambda w: w.x[w.b], DTypeError, "'x'.*'b'.*where"),
    ("argmax of bool", lambda w: w.b.argmax(), DTypeError, "argmax.*'b'"),
    ("alpha", lambda w: w.i.add(1, alpha=0.5), DTypeError, "'i'.*alpha is 0.5"),
    ("bool alpha", lambda w: w.x.add(1, alpha=True), DTypeError, "'x'.*alpha is True"),
    ("operand", lambda w: w.x + "2", DTypeError, "add.*'x'.*str"),
    ("operand None", lambda w: w.x * None, DTypeError, "mul.*'x'.*NoneType"),
    ("cat of a list", lambda w: cat([w.x, [1, 2]]), DTypeError, "cat.*list"),
    ("cat of fp8", lambda w: cat([w.x, w.f8]), DTypeError, "f8e4m3fn"),
    ("if", lambda w: bool(w.x > 0), DTypeError, "where"),
    ("in", lambda w: 1 in w.x, DTypeError, "any"),
    ("bits", lambda w: w.x.view("f64"), DTypeError, "f32.*f64.*'x'"),
    # axes
    ("sum", lambda w: w.x.sum(2), AxisError, r"sum.*'x'.*dim 2.*\[-2, 1\]"),
    ("sum of two", lambda w: w.x.sum((0, -2)), AxisError, "sum.*'x'.*twice"),
    ("softmax axis", lambda w: w.x.softmax(-3), AxisError, "softmax.*'x'.*-3"),
    ("permute", lambda w: w.x.permute(0, 0), AxisError, r"permute.*'x'.*\(0, 0\)"),
    ("permute less", lambda w: w.x.permute(0), AxisError, "permute.*'x'"),
    ("transpose", lambda w: w.x.transpose(0, 5), AxisError, "transpose.*'x'.*5"),
    ("unsqueeze", lambda w: w.x.unsqueeze(4), AxisError, r"unsqueeze.*'x'.*4.*\[-3, 2\]"),
    ("squeeze", lambda w: w.x.squeeze(2), AxisError, "squeeze.*'x'"),
    ("flatten", lambda w: w.x.flatten(1, 0), AxisError, "flatten.*'x'"),
    ("flip", lambda w: w.x.flip(0, 0), AxisError, "flip.*'x'.*twice"),
    ("cat axis", lambda w: cat([w.x, w.x], 2), AxisError, "cat.*'x'.*2"),
    ("stack axis", lambda w: stack([w.x], 3), AxisError, "stack.*'x'.*3"),
    ("gather axis", lambda w: w.x.gather(2, w.i), AxisError, "gather.*'x'.*2"),
    ("too many indices", lambda w: w.x[0, 0, 0], AxisError, "'x'.*3 indices for 2 axes"),
    ("cumsum", lambda w: w.x.cumsum(2), AxisError, "cumsum.*'x'"),
    ("iota", lambda w: w.cx.iota((2,), 1), AxisError, r"iota.*1.*\[-1, 0\]"),
    ("size", lambda w: w.x.size(2), AxisError, "'x'.*2"),
    # indices
    ("index", lambda w: w.x[2], IndexOutOfRangeError, "'x'.*index 2.*dim 0.*2"),
    ("negative index", lambda w: w.x[0, -4], IndexOutOfRangeError, "'x'.*index -4.*dim 1.*3"),
    ("index s", lambda w: w.v[w.s], IndexOutOfRangeError, "'v'.*index s.*size s"),
    ("float index", lambda w: w.x[1.5], IndexOutOfRangeError, "'x'.*1.5"),
    ("bool index", lambda w: w.x[True], IndexOutOfRangeError, "'x'.*True"),
    # options
    ("step", lambda w: w.x[::-1], OptionError, "'x'.*::-1.*flip"),
    ("step 0", lambda w: w.x[::0], OptionError, "'x'.*::0"),
    ("bound", lambda w: w.x["a":], OptionError, "'a'"),
    ("bound of unknown sign", lambda w: w.v[w.s - 3 :], OptionError, r"'v'.*s - 3.*s \+ \(s - 3\)"),
    ("axis as text", lambda w: w.x.sum("0"), OptionError, "'0'"),
    ("size as float", lambda w: w.cx.tensor((2.5,)), OptionError, "2.5"),
    ("approximate", lambda w: w.x.gelu("fast"), OptionError, "'x'.*'fast'.*'tanh'"),
    ("rounding_mode", lambda w: w.x.div(2, rounding_mode="up"), OptionError, "'x'.*'up'.*'trunc'"),
    ("clamp", lambda w: w.x.clamp(), OptionError, "clamp.*'x'.*at least one"),
    ("flip of nothing", lambda w: w.x.flip(), OptionError, "flip.*dims="),
    ("permute without axes", lambda w: w.x.permute(), OptionError, "permute.*dims="),
    ("reshape twice", lambda w: w.x.reshape(6, shape=(6,)), OptionError, "reshape.*shape="),
    ("scatter of nothing", lambda w: w.x.scatter(0, w.i), OptionError, "scatter.*'x'.*src or value"),
    ("pad odd", lambda w: w.x.pad((1,)), OptionError, r"pad.*'x'.*\(1,\)"),
    ("pad too long", lambda w: w.x.pad((0,) * 6), OptionError, "pad.*'x'.*2 axes"),
    ("pad mode", lambda w: w.x.pad((1, 1), "mirror"), OptionError, "'x'.*'mirror'.*reflect"),
    ("pad value", lambda w: w.x.pad((1, 1), "reflect", 2), OptionError, "'x'.*no value"),
    ("pad of unknown sign", lambda w: w.x.pad((w.s - 1, 0)), OptionError, "'x'.*s - 1"),
    ("unfold step", lambda w: w.x.unfold(0, 1, 0), OptionError, "unfold.*'x'.*step 0"),
    ("scatter reduce", lambda w: w.x.scatter(0, w.i, 1.0, reduce="mean"), OptionError, "'x'.*'mean'.*'add'"),
    ("scatter_reduce", lambda w: w.x.scatter_reduce(0, w.i, w.x, "mean"), OptionError, "'x'.*'mean'.*amax"),
    ("diagonal", lambda w: w.x.tril(0.5), OptionError, "0.5"),
    ("normalized_shape", lambda w: w.x.layer_norm(()), OptionError, "'x'.*empty"),
    ("arange", lambda w: w.cx.arange(3, 0), OptionError, "arange.*away"),
    ("arange step", lambda w: w.cx.arange(0, 3, 0), OptionError, "arange.*step 0"),
    ("arange floats", lambda w: w.cx.arange(0.0, 1.0, -0.5), OptionError, "arange.*no way"),
    ("arange of dims and floats", lambda w: w.cx.arange(0, w.s, 0.5), OptionError, "arange.*floats"),
    # numbers
    ("number of 71 bits", lambda w: w.x + 2**70, ScalarError, "64 bits"),
    ("clamp of i8", lambda w: w.i.cast("i8").clamp(0, 300), ScalarError, "clamp.*300.*i8.*127"),
    ("masked_fill of i64", lambda w: w.i.masked_fill(w.b, 1e30), ScalarError, "masked_fill.*'i'.*1e.30"),
    ("where of i64", lambda w: where(w.b, w.i.cast("i8"), 300), ScalarError, "where.*300"),
    ("pad of h", lambda w: w.h.pad((1, 1), value=1e6), ScalarError, "pad.*'h'.*f16"),
    ("full", lambda w: w.cx.full((2,), 300, "i8"), ScalarError, "full.*300.*i8"),
    ("int // 0", lambda w: w.i // 0, ScalarError, "'i'.*zero"),
    ("int % 0", lambda w: w.i % 0, ScalarError, "'i'.*zero"),
    ("int ** -1", lambda w: w.i**-1, ScalarError, "pow.*'i'.*-1"),
    # graphs and dims
    ("two graphs", lambda w: w.x + w.other, GraphError, "add.*'x'.*'foreign'.*another graph"),
    ("matmul of two graphs", lambda w: w.x @ w.other, GraphError, "'foreign'"),
    ("cat of two graphs", lambda w: cat([w.x, w.other]), GraphError, "'foreign'"),
    ("index of two graphs", lambda w: w.x.gather(0, w.other), GraphError, "'foreign'"),
    ("a name twice", lambda w: w.cx.tensor((2,), name="x"), GraphError, "'x'"),
    ("two ranges", lambda w: w.cx.tensor((dim("s", 5),)), DimRangeError, "s in 0.*s in 5"),
    ("empty range", lambda w: dim("q", 5, 2), DimRangeError, "q.*5 to 2"),
    ("unknown dim", lambda w: w.cx.tensor(("q + 1",)), UnsetDimError, "q"),
    ("no dim", lambda w: w.cx.tensor(("q +",)), DimRangeError, r"q \+"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_mistakes(case: tuple[str, Callable[[World], Any], type[LuminalError], str]) -> None:
    _, mistake, error, message = case
    world = World()
    before = len(world.cx.inputs)
    with pytest.raises(error, match=message) as caught:
        mistake(world)
    assert type(caught.value) is error
    assert len(world.cx.inputs) == before


def test_an_unnamed_tensor_is_named_by_the_line_that_made_it() -> None:
    cx = Graph()
    x = cx.tensor((2, 3))
    assert repr(x) == "Tensor('input0' f32 (2, 3))"
    with pytest.raises(ShapeError, match=r"'exp at test_graph_errors.py:\d+ in test_an_unnamed") as caught:
        x.exp() + x.T
    assert "'permute at test_graph_errors.py" in str(caught.value)
    assert repr(x.exp().named("e")) == "Tensor('e' f32 (2, 3))"


def test_errors_are_also_pythons() -> None:
    """`except IndexError` and the like keep working."""
    world = World()
    for mistake, error in (
        (lambda: world.x[2], IndexError),
        (lambda: world.x.sum(2), IndexError),
        (lambda: world.x + world.y, ValueError),
        (lambda: ~world.x, TypeError),
    ):
        with pytest.raises(error):
            mistake()


def test_comparisons_with_other_things_are_pythons() -> None:
    x = World().x
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    assert isinstance(x == 1, Tensor) and x in [x]
    assert len({x, x.exp()}) == 2
