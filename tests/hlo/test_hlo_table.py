"""The hlo table: printing and parsing, what builder and verifier reject, provenance, golden IR of the lowering."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_harness import make_graph
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import Block
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.graph_op import LUMINAL, build_graph
from luminal.dialects.hlo import TABLE, HloBuilder, dialect
from luminal.dialects.hlo.table import define
from luminal.dialects.primitive.ops import PRIMITIVE
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import dim
from luminal.errors import AxisError, DTypeError, LuminalError, OptionError, ShapeError
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.simplify import simplify

S = dim("s", min=1, max=64)


def parse(text: str) -> ModuleOp:
    context = Context()
    for known in (Builtin, LUMINAL, dialect(), PRIMITIVE):
        context.load_dialect(known)
    return Parser(context, text).parse_module()


def values(*types: Any) -> tuple[HloBuilder, list[Any]]:
    _, block = build_graph("main", [], [tensor_type(shape, dtype) for shape, dtype in types])
    return HloBuilder(block), list(block.args)


# ---- printing and parsing --------------------------------------------------------------------------------------


def test_every_op_prints_and_parses() -> None:
    f, i, c = ((S, 4), "f32"), ((S, 4), "i64"), ((S, 4), "bool")

    def build(b: HloBuilder, x: Any, index: Any, flags: Any) -> list[Any]:
        shape, results = (S, 4), list[Any]()
        special: dict[str, tuple[list[Any], dict[str, Any]]] = {
            "where": ([flags, x, x], {}),
            "attention": ([x, x, x], {"causal": True, "scale": 0.125}),
            "batch_norm": ([x, *[b.full(value=1, shape=(4,), dtype="f32")] * 2], {}),
            "conv": (
                [b.reshape(x, shape=(1, S, 4)), b.full(value=1, shape=(2, S, 3), dtype="f32")],
                {"stride": (1,), "padding": (1,), "dilation": (1,)},
            ),
            "cat": ([[x, x]], {"axis": 0}),
            "stack": ([[x, x]], {"axis": 2}),
            "matmul": ([x, b.permute(x, order=(1, 0))], {}),
            "embedding": ([x, index], {}),
            "gather": ([x, b.full(value=0, shape=shape, dtype="i64")], {"axis": 0}),
            "scatter": ([x, index, x], {"axis": 0, "combine": "max"}),
            "index_select": ([x, b.iota(shape=(2,), axis=0)], {"axis": 1}),
            "index": ([x, [index]], {"axes": (0,)}),
            "index_put": ([x, x, [b.iota(shape=(S,), axis=0)]], {"axes": (0,), "accumulate": True}),
            "constant": ([], {"data": b"\x00\x00\xc0\x7f", "shape": (1,), "dtype": "f32"}),
            "full": ([], {"value": -0.0, "shape": shape, "dtype": "f16"}),
            "iota": ([], {"shape": shape, "axis": 1, "dtype": "i8"}),
            "dim_value": ([], {"dim": S // 2 + 1}),
            "cast": ([x], {"dtype": "bf16"}),
            "bitcast": ([x], {"dtype": "i32"}),
            "permute": ([x], {"order": (1, 0)}),
            "reshape": ([x], {"shape": (S * 4,)}),
            "expand": ([x], {"shape": (2, S, 4)}),
            "slice": ([x], {"starts": (0, 1), "stops": (S, 4), "steps": (1, 2)}),
            "pad": ([x], {"low": (S, 0), "high": (0, 1), "value": float("-inf")}),
            "flip": ([x], {"axes": (1,)}),
            "window": ([x], {"axis": 1, "size": 2}),
            "var": ([x], {"axes": (1,), "correction": 0.0}),
            "argmax": ([x], {"axis": None}),
            "argmin": ([x], {"axis": 1, "keepdim": True}),
            "topk": ([x], {"axis": 1, "count": 2}),
            "rms_norm": ([x], {"axes": (1,), "epsilon": 1e-6}),
            "layer_norm": ([x, None, x], {"axes": (0, 1)}),
            "group_norm": ([b.reshape(x, shape=(S, 4, 1))], {"groups": 2}),
            "pow_scalar": ([x], {"exponent": 3}),
            "clamp": ([x], {"low": -1.0}),
            "extern": ([[x]], {"target": "aten.sort", "payload": "{}", "types": (("f32", S, 4), ("i64",))}),
        }
        pooled = {"size": (2,), "stride": (2,), "padding": (0,)}
        for name, row in TABLE.items():
            if name in special:
                operands, attributes = special[name]
            else:
                names = [a.name for a in row.attributes]
                attributes = {"axes": (1,)} if "axes" in names else {"axis": 1} if "axis" in names else {}
                if "size" in names:
                    attributes = {**pooled, **({"dilation": (1,)} if "dilation" in names else {})}
                bits = name.startswith(("bitwise", "shift"))
                operands = [index if bits else x] * len(row.operands)
            b.source = f"{name}.py:1"
            found = b.emit(name, *operands, **attributes)
            results.extend(found if isinstance(found, tuple) else [found])
        return results

    module, _ = make_graph(build, [tensor_type(*t) for t in (f, i, c)])
    text = str(module)
    again = parse(text)
    again.verify()
    assert str(again) == text
    assert all(f"hlo.{name} " in text and f'source = "{name}.py:1"' in text for name in TABLE)


def test_lowering_keeps_sources_symbols_licences_and_types() -> None:
    graph, block = build_graph("f", [], [tensor_type((S, 4), "bf16")], ["contract"], ["x"])
    b = HloBuilder(block)
    b.source = "model.py:12 in forward"
    from luminal.dialects.graph_op import finish_graph

    finish_graph(block, [b.softmax(block.args[0], axis=1)])
    module = ModuleOp([graph])
    before = (graph.symbols, graph.licences, graph.input_types, graph.output_types)
    lower_hlo(module)
    module.verify()
    assert before == (graph.symbols, graph.licences, graph.input_types, graph.output_types)
    sources = {op.source for op in graph.block.ops if op is not graph.return_op}
    assert sources == {"model.py:12 in forward"}
    assert graph.block.args[0].name_hint == "x"


GOLDEN = """\
builtin.module {
  luminal.graph @main [s in 1 to 64] (%0: !luminal.tensor<[s, 4], bf16>) -> (!luminal.tensor<[s, 4], bf16>) {
    %1 = primitive.cast %0 {rounding = "soft"} : !luminal.tensor<[s, 4], bf16> -> !luminal.tensor<[s, 4], f32>
    %2 = primitive.max_reduce %1 {axes = [1], monoid = "max"} : !luminal.tensor<[s, 4], f32> -> !luminal.tensor<[s], f32>
    %3 = primitive.reshape %2 : !luminal.tensor<[s], f32> -> !luminal.tensor<[s, 1], f32>
    %4 = primitive.expand %3 : !luminal.tensor<[s, 1], f32> -> !luminal.tensor<[s, 4], f32>
    %5 = primitive.const {bits = 0xbf800000} : -> !luminal.tensor<[s, 4], f32>
    %6 = primitive.mul %4, %5 : !luminal.tensor<[s, 4], f32>
    %7 = primitive.add %1, %6 : !luminal.tensor<[s, 4], f32>
    %8 = primitive.exp2 %7 {base = "e"} : !luminal.tensor<[s, 4], f32>
    %9 = primitive.sum_reduce %8 {axes = [1], monoid = "sum"} : !luminal.tensor<[s, 4], f32> -> !luminal.tensor<[s], f32>
    %10 = primitive.reshape %9 : !luminal.tensor<[s], f32> -> !luminal.tensor<[s, 1], f32>
    %11 = primitive.expand %10 : !luminal.tensor<[s, 1], f32> -> !luminal.tensor<[s, 4], f32>
    %12 = primitive.recip %8, %11 {rounding = "none"} : !luminal.tensor<[s, 4], f32>
    %13 = primitive.cast %12 {rounding = "soft"} : !luminal.tensor<[s, 4], f32> -> !luminal.tensor<[s, 4], bf16>
    luminal.return %13 : !luminal.tensor<[s, 4], bf16>
  }
}
"""  # noqa: E501


def test_softmax_in_primitives() -> None:
    module, _ = make_graph(lambda b, x: b.softmax(x, axis=1), [tensor_type((S, 4), "bf16")])
    lower_hlo(module)
    simplify(module)
    assert str(module) == GOLDEN.rstrip()
    assert str(parse(GOLDEN)) == GOLDEN.rstrip()


# ---- what is refused -------------------------------------------------------------------------------------------

X, Y, INDEX = ((S, 4), "f32"), ((3, 5), "f32"), ((S, 4), "i64")
REFUSED: list[tuple[type[LuminalError], str, str, list[Any], dict[str, Any]]] = [
    (ShapeError, r"\(s, 4\) and \(3, 5\) do not broadcast", "add", [X, Y], {}),
    (ShapeError, "not known to be equal", "add", [X, ((7, 4), "f32")], {}),
    (DTypeError, "f32, i64", "add", [X, INDEX], {}),
    (DTypeError, "expected f64, f32, f16 or bf16", "exp", [INDEX], {}),
    (DTypeError, "the dtype is f8e5m2", "add", [((2,), "f8e5m2")] * 2, {}),
    (DTypeError, "the dtype is bool", "neg", [((2,), "bool")], {}),
    (DTypeError, "expected bool", "where", [X, X, X], {}),
    (AxisError, "axis 2 is outside a tensor of rank 2", "softmax", [X], {"axis": 2}),
    (AxisError, "axis -1", "softmax", [X], {"axis": -1}),
    (AxisError, "twice", "sum", [X], {"axes": (0, 0)}),
    (AxisError, "no permutation", "permute", [X], {"order": (0, 0)}),
    (ShapeError, "4\\*s elements", "reshape", [X], {"shape": (S, 5)}),
    (ShapeError, "negative", "reshape", [X], {"shape": (-S, -4)}),
    (ShapeError, "does not expand", "expand", [X], {"shape": (S, 8)}),
    (ShapeError, "does not lie within", "slice", [X], {"starts": (0, 0), "stops": (S, 5), "steps": (1, 1)}),
    (OptionError, "at least 1", "slice", [X], {"starts": (0, 0), "stops": (S, 4), "steps": (1, 0)}),
    (ShapeError, "one entry for each axis", "slice", [X], {"starts": (0,), "stops": (4,), "steps": (1,)}),
    (OptionError, "negative; slice instead", "pad", [X], {"low": (0, -1), "high": (0, 0)}),
    (DTypeError, "does not fit in i8", "pad", [((2,), "i8")], {"low": (0,), "high": (1,), "value": 300}),
    (DTypeError, "does not fit in u8", "full", [], {"value": 300, "shape": (2,), "dtype": "u8"}),
    (ShapeError, "3 bytes", "constant", [], {"data": b"abc", "shape": (1,), "dtype": "f32"}),
    (ShapeError, "a tensor has shape", "cat", [[X, Y]], {"axis": 0}),
    (ShapeError, "no tensor", "cat", [[]], {"axis": 0}),
    (AxisError, "rank 3", "stack", [[X, X]], {"axis": 3}),
    (ShapeError, "does not fit in 4", "window", [X], {"axis": 1, "size": 5}),
    (OptionError, "at least 1 each", "window", [X], {"axis": 1, "size": 2, "step": 0}),
    (ShapeError, "empty", "max", [((2, 0), "f32")], {"axes": (1,)}),
    (ShapeError, "empty", "argmax", [((2, 0), "f32")], {"axis": None}),
    (OptionError, "5 elements", "topk", [X], {"axis": 1, "count": 5}),
    (ShapeError, "4 columns meet 3 rows", "matmul", [X, Y], {}),
    (ShapeError, "rank 0", "matmul", [X, ((), "f32")], {}),
    (OptionError, "whole number of at least 0", "pow_scalar", [INDEX], {"exponent": -1}),
    (OptionError, "'none' or 'tanh'", "gelu", [X], {"approximate": "fast"}),
    (ShapeError, "a parameter has shape", "layer_norm", [X, Y], {"axes": (1,)}),
    (ShapeError, "2 groups", "group_norm", [((1, 3, 2), "f32")], {"groups": 2}),
    (ShapeError, "channel", "batch_norm", [((3,), "f32")] * 3, {}),
    (
        ShapeError,
        "the key has shape",
        "attention",
        [((2, 3, 4), "f32"), ((2, 3, 5), "f32"), ((2, 3, 5), "f32")],
        {},
    ),
    (
        ShapeError,
        "multiple of 2",
        "attention",
        [((3, 2, 4), "f32"), ((2, 2, 4), "f32"), ((2, 2, 4), "f32")],
        {},
    ),
    (DTypeError, "the mask", "attention", [X, X, X, INDEX], {}),
    (DTypeError, "expected i64", "gather", [X, X], {"axis": 0}),
    (ShapeError, "differ in rank", "gather", [X, ((2,), "i64")], {"axis": 0}),
    (ShapeError, "larger than", "gather", [Y, ((4, 2), "i64")], {"axis": 1}),
    (OptionError, "combine is 'sub'", "scatter", [X, INDEX, X], {"axis": 0, "combine": "sub"}),
    (ShapeError, "expected rank 2", "embedding", [((2,), "f32"), INDEX], {}),
    (ShapeError, "rank 0 or 1", "index_select", [X, INDEX], {"axis": 0}),
    (OptionError, "rising axes", "index", [X, [INDEX]], {"axes": (0, 1)}),
    (ShapeError, "the value", "index_put", [X, ((9, 2, 4), "f32"), [((2,), "i64")]], {"axes": (0,)}),
    (
        OptionError,
        "padding",
        "max_pool",
        [X],
        {"size": (2,), "stride": (1,), "padding": (2,), "dilation": (1,)},
    ),
    (
        OptionError,
        "each pooled axis",
        "max_pool",
        [X],
        {"size": (2,), "stride": (), "padding": (0,), "dilation": (1,)},
    ),
    (OptionError, "no attribute eps", "layer_norm", [X], {"axes": (1,), "eps": 1e-5}),
    (OptionError, "axis is missing", "softmax", [X], {}),
    (OptionError, "axis is 1.5, expected int", "softmax", [X], {"axis": 1.5}),
    (OptionError, "given 3 operands, expected x, y", "add", [X, X, X], {}),
    (OptionError, "hlo has no op foo", "foo", [X], {}),
    (DTypeError, "differ in size", "bitcast", [X], {"dtype": "f64"}),
]
CONV_OPTIONS: dict[str, Any] = {"stride": (1,), "padding": (0,), "dilation": (1,)}
REFUSED += [
    (ShapeError, "3 channels", "conv", [((1, 3, 9), "f32"), ((2, 4, 3), "f32")], CONV_OPTIONS),
    (ShapeError, "rank of at least 3", "conv", [((3, 9), "f32"), ((2, 3), "f32")], CONV_OPTIONS),
    (ShapeError, "does not fit", "conv", [((1, 3, 2), "f32"), ((2, 3, 3), "f32")], CONV_OPTIONS),
    (ShapeError, "the bias", "conv", [((1, 3, 9), "f32"), ((2, 3, 3), "f32"), ((3,), "f32")], CONV_OPTIONS),
    (
        OptionError,
        "one entry",
        "conv",
        [((1, 3, 9), "f32"), ((2, 3, 3), "f32")],
        {**CONV_OPTIONS, "stride": (1, 1)},
    ),
]


@pytest.mark.parametrize(("error", "message", "name", "types", "attributes"), REFUSED)
def test_refused(
    error: type[LuminalError], message: str, name: str, types: list[Any], attributes: dict[str, Any]
) -> None:
    flat = [t for group in types for t in (group if isinstance(group, list) else [group])]
    builder, arguments = values(*flat)
    rest = iter(arguments)
    operands = [[next(rest) for _ in g] if isinstance(g, list) else next(rest) for g in types]
    before = len(list(builder.point.block.ops))
    with pytest.raises(error, match=message) as caught:
        builder.emit(name, *operands, **attributes)
    assert name in str(caught.value)
    assert len(list(builder.point.block.ops)) == before


def test_verifier_refuses_a_wrong_result_type() -> None:
    text = "%1 = hlo.exp %0 : !luminal.tensor<[4], f32> -> !luminal.tensor<[5], f32>"
    graph = "luminal.graph @m (%0 : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[5], f32>) {\n"
    module = parse(graph + text + "\nluminal.return %1 : !luminal.tensor<[5], f32>\n}")
    with pytest.raises(VerifyException, match=r"result types are f32\[5\], expected f32\[4\]"):
        module.verify()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hlo.exp %0 {speed = 3}", "unknown attribute speed"),
        ("hlo.add %0", "given 1 operands, expected 2"),
        ("hlo.softmax %0 {axis = 7}", "axis 7"),
        ("hlo.softmax %0", "axis is missing"),
    ],
)
def test_verifier_refuses(line: str, message: str) -> None:
    type_ = "!luminal.tensor<[4], f32>"
    text = f"luminal.graph @m (%0 : {type_}) -> ({type_}) {{\n%1 = {line} : {type_}\nluminal.return %1 : {type_}\n}}"
    with pytest.raises(VerifyException, match=message):
        parse(text).verify()


def test_numbers_and_dims_become_constants() -> None:
    builder, (x, flags) = values(X, ((4,), "bool"))
    assert str(builder.add(x, S).type) == "f32[s, 4]"
    assert str(builder.where(flags, 1.0, x).type) == "f32[s, 4]"
    with pytest.raises(OptionError, match="no operand"):
        builder.add(x, "1")
    with pytest.raises(AttributeError, match="no op frobnicate"):
        builder.frobnicate(x)


def test_a_name_is_defined_once() -> None:
    row = TABLE["exp"]
    with pytest.raises(OptionError, match="exp already"):
        define("exp", "x", row.infer_types, row.decompose, row.interpret)
    with pytest.raises(ValueError, match="attribute specification"):
        define("test.wrong", "x | axis=1", row.infer_types, row.decompose, row.interpret)


def test_builder_inserts_where_it_is_told() -> None:
    block = Block(arg_types=[tensor_type((2,), "f32")])
    first = HloBuilder(block)
    last = first.exp(block.args[0]).owner
    from xdsl.rewriter import InsertPoint

    HloBuilder(InsertPoint.before(last)).log(block.args[0])
    assert [op.name for op in block.ops] == ["hlo.log", "hlo.exp"]
