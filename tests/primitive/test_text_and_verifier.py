"""Primitive IR as text: golden, round trips of random graphs; and what the verifier refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from primitive_support import make, parse
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import ParseError, VerifyException

from luminal.dialects.graph_op import DEFAULT_LICENCES, GraphOp, build_graph, finish_graph
from luminal.dialects.primitive.build import PrimitiveBuilder, type_of
from luminal.dialects.primitive.ops import FLOATS, OPS, ROWS
from luminal.dialects.table_op import Value, ValueAttr, value_text
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import dim, dim_min
from luminal.dtype import DTYPES, bf16, bool_, f8e4m3fn, f32, f64, i32, i64
from luminal.errors import (
    AxisError,
    DataSizeError,
    DimRangeError,
    DTypeError,
    LicenceError,
    LuminalError,
    OptionError,
    ShapeError,
)

S, B = dim("s", 1, 4096), dim("b")
MATRIX = tensor_type((S, 4), f32)

GOLDEN = """\
builtin.module {
  luminal.graph @main [b in 0 to inf, s in 1 to 4096] (%x: !luminal.tensor<[s, 4], f32>, \
%i: !luminal.tensor<[b], i64>) \
-> (!luminal.tensor<[s floordiv 2, 4], f32>, !luminal.tensor<[b], i64>, !luminal.tensor<[b], i64>) {
    %0 = primitive.max_reduce %x {axes = [1], monoid = "max", source = "model.py:3"} : !luminal.tensor<[s, 4], f32> \
-> !luminal.tensor<[s], f32>
    %1 = primitive.reshape %0 : !luminal.tensor<[s], f32> -> !luminal.tensor<[s, 1], f32>
    %2 = primitive.expand %1 : !luminal.tensor<[s, 1], f32> -> !luminal.tensor<[s, 4], f32>
    %3 = primitive.const {bits = 0xbf800000} : -> !luminal.tensor<[s, 4], f32>
    %4 = primitive.mul %2, %3 : !luminal.tensor<[s, 4], f32>
    %5 = primitive.add %x, %4 : !luminal.tensor<[s, 4], f32>
    %6 = primitive.exp2 %5 {base = "e"} : !luminal.tensor<[s, 4], f32>
    %7 = primitive.slice %6 {starts = [0, 0], steps = [2, 1]} : !luminal.tensor<[s, 4], f32> \
-> !luminal.tensor<[s floordiv 2, 4], f32>
    %8, %9 = primitive.sort %i {axis = 0, descending = true, strict = true} : !luminal.tensor<[b], i64> \
-> !luminal.tensor<[b], i64>, !luminal.tensor<[b], i64>
    luminal.return %7, %8, %9 : !luminal.tensor<[s floordiv 2, 4], f32>, !luminal.tensor<[b], i64>, \
!luminal.tensor<[b], i64>
  }
}
"""


def golden_graph() -> ModuleOp:
    graph, block = build_graph("main", (), [MATRIX, tensor_type((B,), i64)], input_names=["x", "i"])
    b = PrimitiveBuilder(block, source="model.py:3")
    x, i = block.args
    top = b.max_reduce(x, [1])
    b.source = None
    e = b.exp2(b.sub(x, b.expand(b.reshape(top, (S, 1)), (S, 4))), "e")
    half = b.slice(e, [0, 0], [S // 2, 4], [2, 1])
    b.strict = True
    finish_graph(block, [half, *b.sort(i, 0, descending=True)])
    return ModuleOp([graph])


def test_golden_text() -> None:
    module = golden_graph()
    module.verify()
    assert str(module) + "\n" == GOLDEN
    assert parse(GOLDEN).is_structurally_equivalent(module)


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(), st.binary(max_size=6),
        st.sampled_from([*DTYPES.values(), S, -S + 2, B * S % 4, -(S // 2), dim_min(S, B)]),
    ),
    lambda v: st.lists(v, max_size=3).map(tuple), max_leaves=6,
)  # fmt: skip


@settings(max_examples=300)
@given(VALUES)
def test_attribute_values_round_trip(value: Value) -> None:
    def build(b: PrimitiveBuilder, x: Any) -> Any:
        op = OPS["extern"].make([x], [MATRIX], {"target": "t", "payload": "p"})
        op.properties["v"] = ValueAttr(value)
        return b.builder.insert(op).results[0]

    graph, block = build_graph("main", [d.symbol for d in (S, B) if d.symbol], [MATRIX])
    finish_graph(block, [build(PrimitiveBuilder(block), block.args[0])])
    module = ModuleOp([graph])
    again = parse(str(module))
    assert str(again) == str(module) and again.is_structurally_equivalent(module)
    (op,) = [op for op in again.walk() if op.name == "primitive.extern"]
    assert op.properties["v"] == ValueAttr(value)


def test_attribute_equality_is_strict() -> None:
    distinct: list[Value] = [
        0,
        0.0,
        -0.0,
        False,
        None,
        "0",
        (0,),
        float("nan"),
        dim("s"),
        dim("s", 1),
        f32,
        b"\0",
    ]
    assert len({ValueAttr(v) for v in distinct}) == len(distinct)
    assert ValueAttr(float("nan")) == ValueAttr(float("nan")) and ValueAttr(S - S + 3) == ValueAttr(3)
    assert value_text(1e-5) == "1.0e-05" and value_text(float("-inf")) == "-inf"


STEPS: list[Callable[[PrimitiveBuilder, Any, Any], Any]] = [
    lambda b, x, y: b.add(x, y),
    lambda b, x, y: b.recip(x, y, "floor"),
    lambda b, x, y: b.select(b.compare(x, y, "le"), x, y),
    lambda b, x, y: b.permute(b.permute(x, [1, 0]), [1, 0]),
    lambda b, x, y: b.expand(b.reshape(b.sum_reduce(x, [1]), (S, 1)), (S, 4)),
    lambda b, x, y: b.slice(b.pad(y, [1, S], [B, 0], -0.0), [1, S], [S, 4]),
    lambda b, x, y: b.gather(x, b.positions((S, 4)), "assumed"),
    lambda b, x, y: b.scatter(x, y, b.positions((S, 4)), "add"),
    lambda b, x, y: b.sort(x, 0)[0],
    lambda b, x, y: b.flip(b.scan(y, 1, "max"), [0, 1]),
    lambda b, x, y: b.max_reduce(b.window(b.pad(x, [0, 1], [0, 1]), 1, 3, 1), [2], "min"),
    lambda b, x, y: b.cast(b.cast(x, "f64"), "f32"),
    lambda b, x, y: b.extern([x, y], [MATRIX], "aten.foo", '{"k": "\\"\u00e9"}')[0],
    lambda b, x, y: b.mul(x, b.cast(b.expand(b.reshape(b.dim_value(S * B), (1, 1)), (S, 4)), "f32")),
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=12), st.randoms())
def test_random_graphs_round_trip(steps: list[int], random: Any) -> None:
    def build(b: PrimitiveBuilder, x: Any, y: Any) -> Any:
        values = [x, y]
        for position, step in enumerate(steps):
            b.source = f"f.py:{position}" if position % 2 else None
            values.append(STEPS[step](b, random.choice(values), random.choice(values)))
        return values[-2:]

    graph, block = build_graph("main", [B.symbol] if B.symbol else [], [MATRIX, MATRIX])
    finish_graph(block, build(PrimitiveBuilder(block), *block.args))
    module = ModuleOp([graph])
    module.verify()
    again = parse(str(module))
    again.verify()
    assert str(again) == str(module) and again.is_structurally_equivalent(module)


def test_every_op_is_in_the_golden_or_random_graphs() -> None:
    def build(b: PrimitiveBuilder, x: Any, y: Any) -> Any:
        for step in STEPS:
            step(b, x, y)
        return x

    graph, block = build_graph("main", [B.symbol] if B.symbol else [], [MATRIX, MATRIX])
    finish_graph(block, [build(PrimitiveBuilder(block), *block.args)])
    built = {op.name.removeprefix("primitive.") for module in (graph, golden_graph()) for op in module.walk()}
    assert set(ROWS) - built == {"log2", "sin", "sqrt", "mod", "bits", "max", "min"}


Build = Callable[[PrimitiveBuilder, Any], Any]
VECTOR, FLAGS = tensor_type((3,), f32), tensor_type((3,), bool_)
WRONG: list[tuple[str, TensorType, Build, type[LuminalError], str]] = [
    ("dtype", tensor_type((3,), i64), lambda b, x: b.sqrt(x), DTypeError, "takes f64, f32, f16, bf16; not i64"),
    ("fp8 arithmetic", tensor_type((3,), f8e4m3fn), lambda b, x: b.add(x, x), DTypeError, "not f8e4m3fn"),
    ("bool arithmetic", FLAGS, lambda b, x: b.add(x, x), DTypeError, "not bool"),
    ("mixed dtypes", VECTOR, lambda b, x: b.add(x, b.cast(x, bf16)), DTypeError, "cast them first"),
    ("shapes", VECTOR, lambda b, x: b.add(x, b.reshape(x, (3, 1))), ShapeError, "expand them first"),
    ("unequal symbols", MATRIX, lambda b, x: b.add(x, b.full(0, (B, 4), f32)), ShapeError, "one shape"),
    ("true division", tensor_type((3,), i64), lambda b, x: b.recip(x, x), DTypeError, "must round"),
    ("shift of bool", FLAGS, lambda b, x: b.bits(x, x, "shl"), DTypeError, "not bool"),
    ("bits of floats", VECTOR, lambda b, x: b.bits(x, x, "and"), DTypeError, "not f32"),
    ("base", VECTOR, lambda b, x: b.log2(x, "3"), OptionError, 'one of 2, e, 10; not "3"'),
    ("condition", VECTOR, lambda b, x: b.select(x, x, x), DTypeError, "must be bool, not f32"),
    ("bit cast", VECTOR, lambda b, x: b.cast(x, f64, "bits"), DTypeError, "keeps the size"),
    ("round to other", VECTOR, lambda b, x: b.cast(x, f64, "floor"), DTypeError, "keeps the dtype"),
    ("round of int", tensor_type((3,), i64), lambda b, x: b.round(x, "floor"), DTypeError, "not i64"),
    ("pattern", VECTOR, lambda b, x: b.full_bits(1 << 32, (2,), f32), DTypeError, "0x100000000 is no bit pattern"),
    ("number", VECTOR, lambda b, x: b.full(300, (2,), DTYPES["i8"]), DTypeError, "300 does not fit in i8"),
    ("order", MATRIX, lambda b, x: b.permute(x, [1, 1]), AxisError, "name each axis"),
    ("expand", VECTOR, lambda b, x: b.expand(x, (4,)), ShapeError, "cannot expand"),
    ("expand rank", VECTOR, lambda b, x: b.expand(x, (2, 3)), ShapeError, "ranks must agree"),
    ("reshape", VECTOR, lambda b, x: b.reshape(x, (4,)), ShapeError, "has 3 elements"),
    ("reshape parity", tensor_type((2 * S,), f32), lambda b, x: b.reshape(x, (3,)), ShapeError, "2\\*s elements"),
    ("slice", VECTOR, lambda b, x: b.slice(x, [2], [2]), ShapeError, "leaves an axis of 3"),
    ("slice start", MATRIX, lambda b, x: b.slice(x, [-1, 0], [1, 4]), ShapeError, "from -1"),
    ("symbolic slice", MATRIX, lambda b, x: b.slice(x, [1, 0], [S, 4]), ShapeError, "leaves an axis of s"),
    ("slice step", VECTOR, lambda b, x: b.slice(x, [0], [2], [0]), OptionError, "must be positive"),
    ("slice entries", VECTOR, lambda b, x: b.slice(x, [0, 0], [2]), ShapeError, "needs 1 entries"),
    ("pad", VECTOR, lambda b, x: b.pad(x, [-1], [0]), ShapeError, "cannot be negative"),
    ("flip", VECTOR, lambda b, x: b.flip(x, [1]), AxisError, "outside 0 to 0"),
    ("window", VECTOR, lambda b, x: b.window(x, 0, 4, 1), ShapeError, "does not fit"),
    ("window step", VECTOR, lambda b, x: b.window(x, 0, 2, 0), OptionError, "step >= 1"),
    ("axis twice", MATRIX, lambda b, x: b.sum_reduce(x, [1, 1]), AxisError, "distinct"),
    ("axis", MATRIX, lambda b, x: b.sum_reduce(x, [2]), AxisError, "axis 2 of primitive.sum_reduce"),
    ("argmax axes", MATRIX, lambda b, x: b.max_reduce(x, [0, 1], "argmax"), AxisError, "has one axis"),
    ("sum of bool", FLAGS, lambda b, x: b.sum_reduce(x, [0]), DTypeError, "not bool"),
    ("scan", FLAGS, lambda b, x: b.scan(x, 0), DTypeError, "not bool"),
    ("scan axis", VECTOR, lambda b, x: b.scan(x, -1), AxisError, "axis -1"),
    ("indices", MATRIX, lambda b, x: b.gather(x, [b.iota((3,), 0)]), ShapeError, "one index tensor per axis"),
    ("index dtype", VECTOR, lambda b, x: b.gather(x, [x]), DTypeError, "i64 or i32"),
    ("scatter value", VECTOR, lambda b, x: b.scatter(x, x, [b.iota((2,), 0)]), ShapeError, "one shape"),
    ("scatter dtype", VECTOR, lambda b, x: b.scatter(x, b.cast(x, i32), [b.iota((3,), 0)]), DTypeError, "one dtype"),
    ("scatter add", FLAGS, lambda b, x: b.scatter(x, x, [b.iota((3,), 0)], "add"), DTypeError, "not bool"),
    ("sort", VECTOR, lambda b, x: b.sort(x, 1), AxisError, "axis 1"),
    ("operands", VECTOR, lambda b, x: b.emit("add", [x]), OptionError, "takes 2 operands, not 1"),
    ("missing attribute", VECTOR, lambda b, x: b.emit("log2", [x]), OptionError, "needs the attribute base"),
    ("kind of attribute", VECTOR, lambda b, x: b.emit("flip", [x], {"axes": 0}), OptionError, "whole numbers in"),
    ("iota axis", VECTOR, lambda b, x: b.iota((3,), 1), AxisError, "axis 1"),
]  # fmt: skip


@pytest.mark.parametrize("row", WRONG, ids=[row[0] for row in WRONG])
def test_the_builder_refuses(row: tuple[str, TensorType, Build, type[LuminalError], str]) -> None:
    _, type_, build, error, message = row
    with pytest.raises(error, match=message):
        make([type_], lambda b, x: [build(b, x)])


def text_of(line: str, results: str = "%0", types: str = "f32[3]") -> str:
    full = {"f32[3]": "!luminal.tensor<[3], f32>", "i64[3]": "!luminal.tensor<[3], i64>"}[types]
    return (
        f"luminal.graph @main (%x: !luminal.tensor<[3], f32>) -> ({full}) {{\n"
        f"  {line}\n  luminal.return {results} : {full}\n}}"
    )


T = "!luminal.tensor<[3], f32>"
BAD_TEXT = [
    ("%0 = primitive.sqrt %x {base = 2} : " + T, "unknown attribute base"),
    ("%0 = primitive.flip %x {axes = [1]} : " + T, "axis 1"),
    (f"%0 = primitive.sum_reduce %x {{axes = [0], monoid = \"sum\"}} : {T} -> {T}", "the result is f32.3. but must be"),
    (f"%0 = primitive.const {{bits = 0x3f800000, data = bytes \"00\"}} : -> {T}", "either bits"),
    (f"%0 = primitive.const {{data = bytes \"00\"}} : -> {T}", "must have 12 bytes, not 1 bytes"),
    (f"%0 = primitive.expand %x : {T} -> {T}, {T}", "has 1 result, not 2"),
    (f"%0, %1 = primitive.add %x, %x : {T}, {T} -> {T}, {T}", "has 1 results, not 2"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), BAD_TEXT)
def test_the_verifier_refuses(line: str, message: str) -> None:
    line = line.replace("%0 = primitive.expand", "%0, %1 = primitive.expand")
    with pytest.raises(VerifyException, match=message):
        parse(text_of(line)).verify()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("luminal.graph @g (%x: !luminal.tensor<[q], f32>) -> () { luminal.return }", "q is not declared"),
        ("luminal.graph @g [q in 3 to 2] () -> () { luminal.return }", "range of dim q is empty"),
        ("luminal.graph @g (%x: !luminal.tensor<[2], f33>) -> () { luminal.return }", "no dtype f33"),
        (f"luminal.graph @g (%x: {T}) -> () {{ luminal.return %x : {T} }}", "result types differ"),
        ("luminal.graph @g (%x: !luminal.tensor<[1 2], f32>) -> () { luminal.return }", "in square|expected"),
    ],
)
def test_the_parser_refuses(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_graph_verifier() -> None:
    graph, block = build_graph("main", (), [MATRIX])
    finish_graph(block, [PrimitiveBuilder(block).full(0, (B,), f32)])
    with pytest.raises(VerifyException, match="does not declare b in 0 to inf"):
        graph.verify()
    graph, block = build_graph("main", (), [MATRIX])
    with pytest.raises(VerifyException, match="at least a terminator"):
        graph.verify()
    PrimitiveBuilder(block).sqrt(block.args[0])
    with pytest.raises(VerifyException, match=r"terminates block|does not end in luminal.return"):
        graph.verify()
    twice = parse("luminal.graph @g [q in 0 to 2, q in 0 to 3] () -> () { luminal.return }")
    with pytest.raises(VerifyException, match="declared twice"):
        twice.verify()
    licensed = parse('luminal.graph @g () -> () licences ["fast"] { luminal.return }')
    with pytest.raises(VerifyException, match="no licence 'fast'"):
        licensed.verify()
    graph, block = build_graph("main", (), [MATRIX])
    value = PrimitiveBuilder(block).sqrt(block.args[0])
    block.detach_op(value.owner)  # type: ignore[arg-type]
    finish_graph(block, [value])
    with pytest.raises(VerifyException, match="not defined before it"):
        graph.verify()
    with pytest.raises(LicenceError, match="no licence 'fast'"):
        build_graph("main", (), [], licences=["fast"])
    with pytest.raises(DimRangeError, match="two ranges"):
        build_graph("main", [dim("s").symbol], [MATRIX])  # type: ignore[list-item]


def test_licences() -> None:
    graph, block = build_graph("main", (), [], licences=["contract", "reassociate"])
    finish_graph(block, [])
    assert graph.licences == ("reassociate", "contract")
    assert 'licences ["reassociate", "contract"]' in str(graph)
    (again,) = parse(str(graph)).ops
    assert isinstance(again, GraphOp) and again.licences == graph.licences
    assert "licences" not in str(build_graph("main", (), [])[0])
    assert build_graph("main", (), [])[0].licences == DEFAULT_LICENCES


def test_dense_constants() -> None:
    with pytest.raises(DataSizeError, match="must have 4\\*s bytes"):
        make([MATRIX], lambda b, x: b.one("const", [], {"data": b"1234"}, tensor_type((S,), f32)))
    table = np.array([1.0, -0.0], np.float32)
    graph = make([], lambda b: b.dense(table))
    assert 'data = bytes "0000803f00000080"' in str(graph) and type_of(graph.outputs[0]) == tensor_type(
        (2,), f32
    )
    assert FLOATS[1] is f32
