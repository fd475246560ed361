"""The simplifier: what folds, what must not, merging, dead code, and that it is linear."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import GraphOp, build_graph, finish_graph
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import dim
from luminal.passes.simplify import simplify

S = dim("s")
SPECIAL = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -2.5, 1e-45, 3e38, 1e-40], np.float32)
Build = Callable[[PrimitiveBuilder, SSAValue], Any]


def simplified(build: Build, shape: Any = (S,), dtype: str = "f32") -> tuple[GraphOp, list[str]]:
    """The graph of `build`, simplified and verified, and the names of its ops."""
    graph, block = build_graph("main", [S.symbol] if S.symbol else [], [tensor_type(shape, dtype)])
    found = build(PrimitiveBuilder(block), block.args[0])
    finish_graph(block, [found] if isinstance(found, SSAValue) else found)
    module = ModuleOp([graph])
    module.verify()
    simplify(module)
    module.verify()
    return graph, [op.name.removeprefix("primitive.") for op in graph.block.ops][:-1]


IDENTITIES: dict[str, tuple[Build, str]] = {
    "x + -0.0": (lambda b, x: b.add(x, b.full_like(-0.0, x)), "f32"),
    "-0.0 + x": (lambda b, x: b.add(b.full_like(-0.0, x), x), "bf16"),
    "i + 0": (lambda b, x: b.add(x, b.full_like(0, x)), "i32"),
    "x * 1": (lambda b, x: b.mul(x, b.full_like(1, x)), "f16"),
    "1 * i": (lambda b, x: b.mul(b.full_like(1, x), x), "u8"),
    "--x": (lambda b, x: b.neg(b.neg(x)), "f32"),
    "--i": (lambda b, x: b.neg(b.neg(x)), "i8"),
    "x / 1": (lambda b, x: b.recip(x, b.full_like(1, x)), "f32"),
    "i // 1": (lambda b, x: b.recip(x, b.full_like(1, x), "floor"), "i64"),
    "i & -1": (lambda b, x: b.bits(x, b.full_like(-1, x), "and"), "i16"),
    "b & True": (lambda b, x: b.bits(x, b.full_like(True, x), "and"), "bool"),
    "i | 0": (lambda b, x: b.bits(b.full_like(0, x), x, "or"), "i64"),
    "i << 0": (lambda b, x: b.bits(x, b.full_like(0, x), "shl"), "i64"),
    "not not b": (lambda b, x: b.logical_not(b.logical_not(x)), "bool"),
    "max(x, x)": (lambda b, x: b.max(x, x), "f32"),
    "max(x, -inf)": (lambda b, x: b.max(x, b.full_like(-math.inf, x)), "f32"),
    "min(i, highest)": (lambda b, x: b.min(x, b.full_like(2**63 - 1, x)), "i64"),
    "True ? x : -x": (lambda b, x: b.select(b.full(True, (S,), "bool"), x, b.neg(x)), "f32"),
    "c ? x : x": (lambda b, x: b.select(b.compare(x, x), x, x), "f32"),
    "f32 to f64 to f32": (lambda b, x: b.cast(b.cast(x, "f64"), "f32"), "f32"),
    "i8 to i64 to i8": (lambda b, x: b.cast(b.cast(x, "i64"), "i8"), "i8"),
    "bits of bits": (lambda b, x: b.cast(b.cast(x, "i32", "bits"), "f32", "bits"), "f32"),
    "flip flip": (lambda b, x: b.flip(b.flip(x, [0]), [0]), "f32"),
    "reshape and back": (lambda b, x: b.reshape(b.reshape(x, (1, S, 1)), (S,)), "f32"),
    "slice of all": (lambda b, x: b.slice(x, [0], [S]), "f32"),
    "pad by nothing": (lambda b, x: b.pad(x, [0], [0]), "f32"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_disappears(name: str) -> None:
    build, dtype = IDENTITIES[name]
    graph, names = simplified(build, dtype=dtype)
    assert names == []
    assert graph.outputs == tuple(graph.block.args)


KEPT: dict[str, tuple[Build, str]] = {
    "x + 0": (lambda b, x: b.add(x, b.full_like(0.0, x)), "f32"),
    "x * 0": (lambda b, x: b.mul(x, b.full_like(0.0, x)), "f32"),
    "x - x": (lambda b, x: b.sub(x, x), "f32"),
    "x / x": (lambda b, x: b.recip(x, x), "f32"),
    "x == x": (lambda b, x: b.compare(x, x, "eq"), "f32"),
    "x / 3": (lambda b, x: b.recip(x, b.full_like(3.0, x)), "f32"),
    "max(x, lowest finite)": (lambda b, x: b.max(x, b.full_like(-3.0e38, x)), "f32"),
    "f32 to f16 to f32": (lambda b, x: b.cast(b.cast(x, "f16"), "f32"), "f32"),
    "f32 to i32 to f32": (lambda b, x: b.cast(b.cast(x, "i32"), "f32"), "f32"),
    "i64 to f32 to i64": (lambda b, x: b.cast(b.cast(x, "f32"), "i64"), "i64"),
    "u8 to i8 to i64": (lambda b, x: b.cast(b.cast(x, "i8"), "i64"), "u8"),
    "sum of one": (lambda b, x: b.sum_reduce(b.reshape(x, (S, 1)), [1]), "f32"),
    "pads of two values": (lambda b, x: b.pad(b.pad(x, [1], [0], 1.0), [1], [0], 2.0), "f32"),
    "i / 0": (lambda b, x: b.recip(b.full_like(1, x), b.full_like(0, x), "floor"), "i32"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_identity_stays(name: str) -> None:
    build, dtype = KEPT[name]
    graph, block = build_graph("main", [], [tensor_type((S,), dtype)])
    finish_graph(block, [build(PrimitiveBuilder(block), block.args[0])])
    before = [op.name.removeprefix("primitive.") for op in graph.block.ops][:-1]
    _, after = simplified(build, dtype=dtype)
    assert sorted(after) == sorted(before)


@pytest.mark.parametrize("divisor", [2.0, 0.5, -8.0, 2.0**100, 2.0**-100])
def test_division_by_a_power_of_two_is_an_exact_product(divisor: float) -> None:
    graph, names = simplified(lambda b, x: b.recip(x, b.full_like(divisor, x)))
    assert sorted(names) == ["const", "mul"]
    with np.errstate(all="ignore"):
        expected = SPECIAL / np.float32(divisor)
    np.testing.assert_array_equal(interpret(graph, [SPECIAL])[0], expected)


@pytest.mark.parametrize("divisor", [2.0**127, 2.0**-127, 3.0, 0.0, math.inf, math.nan])
def test_division_by_another_number_stays(divisor: float) -> None:
    assert "recip" in simplified(lambda b, x: b.recip(x, b.full_like(divisor, x)))[1]


FOLDED: dict[str, tuple[Build, Any]] = {
    "1 / 3": (
        lambda b, x: b.recip(b.full(1.0, (S,), "f32"), b.full(3.0, (S,), "f32")),
        np.float32(1) / np.float32(3),
    ),
    "exp(1)": (lambda b, x: b.exp2(b.full(1.0, (S,), "f32"), "e"), np.float32(math.e)),
    "bf16(0.1)": (
        lambda b, x: b.cast(b.cast(b.full(0.1, (S,), "f32"), "bf16"), "f32"),
        np.float32(0.10009765625),
    ),
    "expand": (lambda b, x: b.expand(b.reshape(b.full(2.0, (), "f32"), (1,)), (S,)), np.float32(2)),
    "wrap": (lambda b, x: b.mul(b.full(100, (S,), "i8"), b.full(3, (S,), "i8")), np.int8(44)),
    "compare": (lambda b, x: b.compare(b.full(-0.0, (S,), "f32"), b.full(0.0, (S,), "f32"), "eq"), np.True_),
    "pad alike": (lambda b, x: b.slice(b.pad(b.full(2, (S,), "i8"), [1], [1], 2), [0], [S]), np.int8(2)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_fold_also_at_symbolic_sizes(name: str) -> None:
    build, expected = FOLDED[name]
    graph, names = simplified(build)
    assert names == ["const"]
    found = interpret(graph, [np.zeros(3, np.float32)])[0]
    np.testing.assert_array_equal(found, np.full(3, expected))


def test_small_dense_constants_fold_and_large_ones_do_not() -> None:
    def build(size: int) -> Build:
        data = np.arange(size, dtype=np.float32)
        return lambda b, x: b.flip(b.add(b.dense(data), b.full(1.0, (size,), "f32")), [0])

    graph, names = simplified(build(8))
    assert names == ["const"]
    np.testing.assert_array_equal(interpret(graph, [np.zeros(1, np.float32)])[0], np.arange(8, 0, -1))
    assert "add" in simplified(build(5000))[1]
    graph, names = simplified(
        lambda b, x: b.mul(b.dense(np.full(4, 2.0, np.float32)), b.full(0.5, (4,), "f32"))
    )
    assert names == ["const"]
    assert graph.block.first_op.value("bits") == 0x3F800000  # data that is everywhere the same is one pattern


def test_views_of_one_kind_join() -> None:
    shape = (4, 6, 5)

    def build(b: PrimitiveBuilder, x: SSAValue) -> list[SSAValue]:
        return [
            b.permute(b.permute(x, (1, 2, 0)), (1, 2, 0)),
            b.slice(b.slice(x, (1, 0, 0), (3, 3, 5), (1, 2, 1)), (1, 1, 0), (1, 1, 5), (2, 1, 1)),
            b.expand(b.expand(b.reshape(x, (4, 1, 6, 1, 5)), (4, 2, 6, 1, 5)), (4, 2, 6, 3, 5)),
            b.pad(b.pad(x, (1, 0, 0), (0, 0, 0), 7.0), (1, 0, 2), (0, 1, 0), 7.0),
            b.flip(b.flip(x, (0, 1)), (1, 2)),
            b.reshape(b.reshape(x, (24, 5)), (120,)),
            b.max_reduce(b.reshape(x, (4, 1, 30)), (1,)),
        ]

    array = np.arange(120, dtype=np.float32).reshape(shape)
    plain, block = build_graph("main", [], [tensor_type(shape, "f32")])
    finish_graph(block, build(PrimitiveBuilder(block), block.args[0]))
    graph, names = simplified(build, shape)
    assert sorted(names) == sorted(
        ["permute", "slice", "reshape", "expand", "pad", "flip", "reshape", "reshape"]
    )
    for found, expected in zip(interpret(graph, [array]), interpret(plain, [array]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_equal_ops_merge_and_dead_ones_go() -> None:
    def build(b: PrimitiveBuilder, x: SSAValue) -> list[SSAValue]:
        b.exp2(b.exp2(x))
        b.source = "first.py:1"
        one = b.add(b.log2(x, "e"), x)
        b.source = "second.py:2"
        two = b.add(b.log2(x, "e"), x)
        return [one, two, b.log2(x, "2"), b.sort(x, 0)[1]]

    graph, names = simplified(build)
    assert names == ["log2", "add", "log2", "sort"]
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[0].owner.source == "first.py:1"


def test_equal_externs_do_not_merge() -> None:
    def build(b: PrimitiveBuilder, x: SSAValue) -> list[SSAValue]:
        return [b.extern([], [tensor_type((2,), "f32")], "aten.rand")[0] for _ in range(2)]

    assert simplified(build)[1] == ["extern", "extern"]


@settings(max_examples=150, derandomize=True)
@given(data=st.data())
def test_no_bit_changes(data: st.DataObject) -> None:
    """Random chains of ops that the rules look at, on special values."""
    numbers = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, math.inf, -math.inf, math.nan]

    def build(b: PrimitiveBuilder, x: SSAValue) -> SSAValue:
        pool = [
            x,
            b.neg(x),
            *[b.full_like(v, x) for v in data.draw(st.lists(st.sampled_from(numbers), max_size=3))],
        ]
        for _ in range(data.draw(st.integers(1, 8))):
            kind = data.draw(
                st.sampled_from(["add", "mul", "recip", "max", "min", "neg", "select", "cast", "view"])
            )
            p, q = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
            if kind == "neg":
                made = b.neg(p)
            elif kind == "select":
                made = b.select(b.compare(p, q), p, data.draw(st.sampled_from(pool)))
            elif kind == "cast":
                made = b.cast(b.cast(p, data.draw(st.sampled_from(["f64", "f16", "bf16", "i32"]))), "f32")
            elif kind == "view":
                made = b.slice(b.flip(b.pad(p, [1], [2], 1.0), [0]), [2], [S])
            else:
                made = getattr(b, kind)(p, q)
            pool.append(made)
        return pool[-1]

    graph, block = build_graph("main", [], [tensor_type((S,), "f32")])
    finish_graph(block, [build(PrimitiveBuilder(block), block.args[0])])
    expected = interpret(graph, [SPECIAL])[0]
    simplify(ModuleOp([graph]))
    found = interpret(graph, [SPECIAL])[0]
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(expected)[number])


def test_time_is_linear() -> None:
    def seconds(count: int) -> float:
        graph, block = build_graph("main", [], [tensor_type((S,), "f32")])
        b = PrimitiveBuilder(block)
        x: SSAValue = block.args[0]
        for _ in range(count):
            x = b.add(b.mul(x, b.full_like(1.0, x)), b.exp2(x))
        finish_graph(block, [x])
        start = time.process_time()
        simplify(ModuleOp([graph]))
        return time.process_time() - start

    seconds(100)
    short, long = min(seconds(400) for _ in range(3)), min(seconds(1600) for _ in range(3))
    assert long < 8 * short, f"{short:.3f} s for 400 steps, {long:.3f} s for 1600"
