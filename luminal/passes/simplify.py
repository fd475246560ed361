"""Primitive level: common subexpressions, dead code, constants and views, without changing a bit.

One walk forward folds each op until nothing applies and merges it with an equal earlier one; one walk back drops what
nobody uses. Both are linear in the number of ops. Folds hold for every value, NaN, infinities and -0.0 included: x + 0,
x * 0, x - x and x / x of floats are none. Rules:

    op of constants = constant          view of a splat = splat          select by a constant, or of equals
    x + -0.0 (integers: 0) = x          x * 1 = x                        x * 0 = 0 for integers
    x / 1 = x                           x / 2^k = x * 2^-k               -(-x) = x
    x & -1, x | 0, x ^ 0 = x            max(x, x) = x                    max(x, lowest) = x
    cast(cast(x)) = cast(x) where the inner one keeps every value        bits of bits = bits
    max over an axis of 1 = reshape     views of one kind, one after another = one view; a view that does nothing = x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.primitive.interpreter import evaluate
from luminal.dialects.primitive.ops import OPS, UNCHANGING, PrimitiveOp
from luminal.dialects.table_op import SOURCE, Value
from luminal.dialects.tensor_type import TensorType
from luminal.dtype import DType, from_bits, to_bits
from luminal.errors import DivisionByZeroError, IndexOutOfRangeError

LARGEST_FOLDED = 1024
"""A constant of more elements is computed at run time rather than stored."""

ELEMENTWISE = frozenset(
    [
        "log2",
        "exp2",
        "sin",
        "sqrt",
        "recip",
        "add",
        "mul",
        "mod",
        "bits",
        "less_than",
        "select",
        "max",
        "min",
        "cast",
    ]
)
VIEWS = frozenset(["permute", "expand", "reshape", "slice", "flip", "window"])


def simplify(module: ModuleOp) -> None:
    """Simplify the primitives of every graph in place; ops of other dialects stay as they are."""
    for graph in module.ops:
        if isinstance(graph, GraphOp):
            simplify_graph(graph)


def simplify_graph(graph: GraphOp) -> None:
    """The same for one graph."""
    block, seen = graph.block, dict[Any, PrimitiveOp]()
    for op in list(block.ops):
        if isinstance(op, PrimitiveOp):
            _simplify_op(op, block, seen)
    for op in reversed(list(block.ops)):
        if isinstance(op, PrimitiveOp) and not any(result.first_use for result in op.results):
            block.erase_op(op)


def _simplify_op(op: PrimitiveOp, block: Block, seen: dict[Any, PrimitiveOp]) -> None:
    while (found := fold(op)) is not None:
        if isinstance(found, PrimitiveOp):
            block.insert_op_before(found, op)
        _replace(op, found.results if isinstance(found, PrimitiveOp) else [found], block)
        if not isinstance(found, PrimitiveOp):
            return
        op = found
    if op.name == "primitive.extern":
        return  # two calls of a random number generator are two
    properties = frozenset((key, value) for key, value in op.properties.items() if key != SOURCE)
    earlier = seen.setdefault((op.name, tuple(op.operands), properties, tuple(op.result_types)), op)
    if earlier is not op:
        _replace(op, earlier.results, block)


def _replace(op: Operation, values: Sequence[SSAValue], block: Block) -> None:
    for old, new in zip(op.results, values, strict=True):
        if new.name_hint is None:
            new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    block.erase_op(op)


# ---- helpers of the rules --------------------------------------------------------------------------------------


def producer(value: SSAValue, name: str) -> PrimitiveOp | None:
    """The op that makes a value, if it is primitive.`name`."""
    owner, kind = value.owner, OPS[name]
    return owner if isinstance(owner, kind) else None


def splat(value: SSAValue) -> int | None:
    """The bits of the element of a constant that is everywhere the same."""
    owner = producer(value, "const")
    bits = None if owner is None else owner.value("bits")
    return bits if isinstance(bits, int) else None


def _is(value: SSAValue, number: str) -> bool:
    """Whether a value is the splat of a number, by its bits: 0.0 is not -0.0."""
    bits = splat(value)
    return bits is not None and bits == _pattern(number, _dtype(value))


@cache
def _pattern(number: str, dtype: DType) -> int:
    return to_bits(float(number) if dtype.is_float else int(number), dtype)


def _dtype(value: SSAValue) -> DType:
    return cast(TensorType, value.type).dtype


def make(op: PrimitiveOp, name: str, operands: Sequence[SSAValue], **values: Value) -> PrimitiveOp:
    """A new op in the place of `op`, of its type and source."""
    return _make(op, op.result_tensors[0], name, operands, values)


def _make(
    op: PrimitiveOp, type_: TensorType, name: str, operands: Sequence[SSAValue], values: dict[str, Value]
) -> PrimitiveOp:
    common: dict[str, Value] = {"strict": op.value("strict"), SOURCE: op.value(SOURCE)}
    return cast(PrimitiveOp, OPS[name].make(operands, [type_], {**values, **common}))


def _constant(op: PrimitiveOp, element: Any) -> PrimitiveOp:
    dtype = op.result_tensors[0].dtype
    return make(op, "const", [], bits=int(np.asarray(element, dtype.numpy).view(dtype.bit_carrier)))


# ---- the rules -------------------------------------------------------------------------------------------------


def fold(op: PrimitiveOp) -> SSAValue | PrimitiveOp | None:
    """What one rule makes of the op: a value that is there, a new op, or None where no rule applies."""
    name = op.name.removeprefix("primitive.")
    if name == "const":
        return _fold_dense(op)
    if op.operands:
        folded = _fold_constants(op, name)
        if folded is not None:
            return folded
    rule = RULES.get(name)
    return None if rule is None else rule(op)


def _fold_dense(op: PrimitiveOp) -> PrimitiveOp | None:
    """Data that is everywhere the same is a splat."""
    data = op.value("data")
    if not isinstance(data, bytes) or not data:
        return None
    size = op.given.dtype.size_bytes
    element = data[:size]
    alike = data == element * (len(data) // size)
    return make(op, "const", [], bits=int.from_bytes(element, "little")) if alike else None


def _fold_constants(op: PrimitiveOp, name: str) -> PrimitiveOp | None:
    constants = [made for operand in op.operands if (made := producer(operand, "const")) is not None]
    if len(constants) != len(op.operands) or name in ("extern", "sort"):
        return None
    patterns = [splat(operand) for operand in op.operands]
    if None not in patterns and (name in VIEWS or (name == "pad" and op.value("bits") == patterns[0])):
        return make(op, "const", [], bits=patterns[0])
    if None not in patterns and name in ELEMENTWISE:
        elements = [np.asarray(from_bits(bits or 0, c.given.dtype)) for bits, c in zip(patterns, constants)]
        found = _evaluate(op, elements)
        return None if found is None else _constant(op, found)
    types = (*op.operand_tensors, *op.result_tensors)
    if any((t.elements.constant or LARGEST_FOLDED + 1) > LARGEST_FOLDED for t in types):
        return None
    found = _evaluate(op, [evaluate(constant, [], {})[0] for constant in constants])
    if found is None or found.shape != tuple(int(size) for size in op.result_tensors[0].shape):
        return None
    return make(op, "const", [], data=np.ascontiguousarray(found).tobytes())


def _evaluate(op: PrimitiveOp, operands: Sequence[Any]) -> Any:
    """The result of an op of constants; None where it raises, which is then left to the run."""
    try:
        return evaluate(op, operands, {})[0]
    except (DivisionByZeroError, IndexOutOfRangeError):
        return None


def _fold_add(op: PrimitiveOp) -> SSAValue | None:
    a, b = op.operands
    neutral = "-0.0" if _dtype(a).is_float else "0"
    return b if _is(a, neutral) else a if _is(b, neutral) else None


def _fold_mul(op: PrimitiveOp) -> SSAValue | None:
    for x, factor in (op.operands, reversed(op.operands)):
        if _is(factor, "1"):
            return x
        if _is(factor, "0") and not _dtype(x).is_float:
            return factor
        inner = producer(x, "mul")
        if _is(factor, "-1") and inner is not None:
            for y, sign in (inner.operands, reversed(inner.operands)):
                if _is(sign, "-1"):
                    return y
    return None


def _fold_recip(op: PrimitiveOp) -> SSAValue | PrimitiveOp | None:
    x, divisor = op.operands
    if _is(divisor, "1") and (op.value("rounding") == "none" or not _dtype(x).is_float):
        return x
    dtype, bits = _dtype(x), splat(divisor)
    if bits is None or not dtype.is_float or dtype.bits < 32 or op.value("rounding") != "none":
        return None
    element = from_bits(bits, dtype)
    mantissa, exponent = np.frexp(element)
    if abs(mantissa) != 0.5 or abs(int(exponent)) > (120 if dtype.bits == 32 else 1000):
        return None
    inverse = _make(
        op, cast(TensorType, divisor.type), "const", [], {"bits": to_bits(1 / float(element), dtype)}
    )
    cast(Block, op.parent).insert_op_before(inverse, op)
    return make(op, "mul", [x, inverse.results[0]])


def _fold_bits(op: PrimitiveOp) -> SSAValue | None:
    kind = op.value("kind")
    for x, mask in (op.operands, reversed(op.operands)) if kind in ("and", "or", "xor") else (op.operands,):
        ones = "-1" if _dtype(x).is_integer else "1"
        if _is(mask, ones if kind == "and" else "0"):
            return x
        if (kind == "and" and _is(mask, "0")) or (kind == "or" and _is(mask, ones)):
            return mask
        inner = producer(x, "bits")
        if kind == "xor" and inner is not None and inner.value("kind") == "xor" and inner.operands[1] is mask:
            return inner.operands[0]
    return None


def _fold_select(op: PrimitiveOp) -> SSAValue | None:
    condition, yes, no = op.operands
    if yes is no:
        return yes
    known = splat(condition)
    return None if known is None else yes if known else no


def _fold_extremum(op: PrimitiveOp) -> SSAValue | None:
    a, b = op.operands
    dtype = _dtype(a)
    neutral = str(dtype.lowest if op.name == "primitive.max" else dtype.highest)
    return a if a is b or _is(b, neutral) else b if _is(a, neutral) else None


def keeps_every_value(source: DType, target: DType) -> bool:
    """Whether a cast loses nothing: bool to all, integers and floats to wider ones of their kind."""
    if source.is_bool or source == target:
        return True
    if source.kind != target.kind or target.bits <= source.bits:
        return False
    return target.bits >= 32 if source.is_float else target.is_signed or not source.is_signed


def _fold_cast(op: PrimitiveOp) -> SSAValue | PrimitiveOp | None:
    x, rounding = op.operands[0], op.value("rounding")
    if rounding in UNCHANGING and _dtype(x) == op.given.dtype:
        return x
    inner = producer(x, "cast")
    if inner is None or rounding not in UNCHANGING:
        return None
    source, first = inner.operands[0], inner.value("rounding")
    if rounding == "bits":
        # the bits of bool are not all kept
        return (
            make(op, "cast", [source], rounding="bits") if first == "bits" and not _dtype(x).is_bool else None
        )
    if first not in ("none", "soft") or not keeps_every_value(_dtype(source), _dtype(x)):
        return None
    return make(op, "cast", [source], rounding="soft" if first == rounding == "soft" else "none")


def _fold_max_reduce(op: PrimitiveOp) -> PrimitiveOp | None:
    source, axes = op.operand_tensors[0], op.integers("axes")
    if op.value("monoid") not in ("max", "min") or any(source.shape[axis] != 1 for axis in axes):
        return None
    return make(op, "reshape", [op.operands[0]])


def _outer(name: str, join: Callable[[PrimitiveOp, PrimitiveOp], dict[str, Value] | None]) -> Any:
    """The rule for a view of a view of the same kind; `join` gives the attributes of both in one."""

    def rule(op: PrimitiveOp) -> SSAValue | PrimitiveOp | None:
        if op.operand_types[0] == op.result_types[0] and does_nothing(op):
            return op.operands[0]
        inner = producer(op.operands[0], name)
        values = None if inner is None else join(inner, op)
        return None if inner is None or values is None else make(op, name, [inner.operands[0]], **values)

    return rule


def does_nothing(op: PrimitiveOp) -> bool:
    """Whether a view of an unchanged type is the identity."""
    match op.name:
        case "primitive.permute":
            return list(op.integers("order")) == sorted(op.integers("order"))
        case "primitive.flip":
            return all(op.operand_tensors[0].shape[axis] == 1 for axis in op.integers("axes"))
        case "primitive.slice":
            return all(step == 1 for step in op.integers("steps"))
        case _:
            return True


def _join_slices(inner: PrimitiveOp, op: PrimitiveOp) -> dict[str, Value]:
    steps = inner.integers("steps")
    starts = [a + b * step for a, b, step in zip(inner.dims("starts"), op.dims("starts"), steps)]
    return {"starts": tuple(starts), "steps": tuple(a * b for a, b in zip(steps, op.integers("steps")))}


def _join_pads(inner: PrimitiveOp, op: PrimitiveOp) -> dict[str, Value] | None:
    if inner.value("bits") != op.value("bits"):
        return None
    sums = {key: tuple(a + b for a, b in zip(inner.dims(key), op.dims(key))) for key in ("low", "high")}
    return {**sums, "bits": op.value("bits")}


def _join_flips(inner: PrimitiveOp, op: PrimitiveOp) -> dict[str, Value] | None:
    once = set(inner.integers("axes")) ^ set(op.integers("axes"))
    return {"axes": tuple(sorted(once))} if once else None


def _fold_flip(op: PrimitiveOp) -> SSAValue | PrimitiveOp | None:
    inner = producer(op.operands[0], "flip")
    if inner is not None and inner.value("axes") == op.value("axes"):
        return inner.operands[0]
    return _outer("flip", _join_flips)(op)


RULES: dict[str, Callable[[PrimitiveOp], Any]] = {
    "add": _fold_add,
    "mul": _fold_mul,
    "recip": _fold_recip,
    "bits": _fold_bits,
    "select": _fold_select,
    "max": _fold_extremum,
    "min": _fold_extremum,
    "cast": _fold_cast,
    "max_reduce": _fold_max_reduce,
    "permute": _outer(
        "permute",
        lambda inner, op: {"order": tuple(inner.integers("order")[i] for i in op.integers("order"))},
    ),
    "expand": _outer("expand", lambda inner, op: {}),
    "reshape": _outer("reshape", lambda inner, op: {}),
    "slice": _outer("slice", _join_slices),
    "pad": _outer("pad", _join_pads),
    "flip": _fold_flip,
}
