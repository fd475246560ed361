"""The primitive dialect: one table row per op, with its attributes and the rule that infers and checks its results.

Elementwise operands have one shape: broadcasting is an explicit `expand`. What each op means, to the bit, is in
docs/semantics.md; `interpreter.py` is that meaning in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Dialect

from luminal.dialects.table_op import TableOp, value_text
from luminal.dialects.tensor_type import TensorType
from luminal.dim import (
    Dim,
    as_dim,
    known_equal,
    known_less,
    known_unequal,
)
from luminal.dtype import DTYPES, DType, bf16, bool_, f16, f32, f64, i32, i64
from luminal.errors import AxisError, DataSizeError, DTypeError, OptionError, ShapeError

FLOATS = (f64, f32, f16, bf16)
"""Floats that compute; fp8 and fp4 are storage: they are cast, moved, selected and gathered."""
INTEGERS = tuple(d for d in DTYPES.values() if d.is_integer)
NUMBERS = FLOATS + INTEGERS
ORDERED = (*NUMBERS, bool_)
ANY = tuple(DTYPES.values())
STRICT = "strict"
"""Any op may carry `strict = true`: no licence applies to it."""

Check = Callable[["PrimitiveOp"], "TensorType | Sequence[TensorType]"]
Domain = tuple[str, ...] | None
"""The strings that an attribute may be, or None where the row's rule checks it."""


@dataclass(frozen=True)
class Row:
    """One op. `operands` is their number, or -1 - n for at least n; attributes in `optional` may be missing."""

    operands: int
    infer: Check
    attributes: dict[str, Domain]
    optional: tuple[str, ...] = ()
    results: int = 1
    given_result: bool = False
    """The result type is an input of the op (expand, const, cast ...), not derived from the operands."""


class PrimitiveOp(TableOp):
    """Base of the ops of the table."""

    row: ClassVar[Row]

    @property
    def given(self) -> TensorType:
        """The declared result type of an op whose row has `given_result`."""
        if len(self.results) != 1:
            raise OptionError(f"{self.name} has 1 result, not {len(self.results)}")
        return cast(TensorType, self.results[0].type)

    def infer(self) -> tuple[TensorType, ...]:
        """The result types; raises the LuminalError that says what is wrong with operands or attributes."""
        row, count = self.row, len(self.operands)
        if count != row.operands and (row.operands >= 0 or count < -1 - row.operands):
            need = f"{row.operands}" if row.operands >= 0 else f"at least {-1 - row.operands}"
            raise OptionError(f"{self.name} takes {need} operands, not {count}")
        for key, domain in row.attributes.items():
            value = self.value(key)
            if value is None and key not in row.optional:
                raise OptionError(f"{self.name} needs the attribute {key}")
            if domain is not None and value is not None and value not in domain:
                raise OptionError(
                    f"{key} of {self.name} is one of {', '.join(domain)}; not {value_text(value)}"
                )
        types = row.infer(self)
        return (types,) if isinstance(types, TensorType) else tuple(types)

    def check(self) -> None:
        declared, inferred = self.result_tensors, self.infer()
        if len(declared) != len(inferred):
            raise OptionError(f"{self.name} has {len(inferred)} results, not {len(declared)}")
        for have, want in zip(declared, inferred):
            if have != want and (have.dtype is not want.dtype or not _equal_shapes(have.shape, want.shape)):
                raise ShapeError(f"the result is {have} but must be {want}")


# ---- checks ----------------------------------------------------------------------------------------------------


def _equal_shapes(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> bool:
    return left == right or (len(left) == len(right) and all(map(known_equal, left, right)))


def _listed(types: Iterable[object]) -> str:
    return ", ".join(map(str, types))


def _same_shape(op: PrimitiveOp, types: Sequence[TensorType]) -> None:
    if any(not _equal_shapes(types[0].shape, other.shape) for other in types[1:]):
        raise ShapeError(
            f"operands of {op.name} must have one shape, not {_listed(types)}; expand them first"
        )


def _dtype_in(op: PrimitiveOp, dtype: DType, allowed: tuple[DType, ...]) -> None:
    if dtype not in allowed:
        raise DTypeError(f"{op.name} takes {_listed(allowed)}; not {dtype}")


def _one_dtype(op: PrimitiveOp, types: Sequence[TensorType]) -> DType:
    if any(other.dtype is not types[0].dtype for other in types[1:]):
        raise DTypeError(f"operands of {op.name} must have one dtype, not {_listed(types)}; cast them first")
    return types[0].dtype


def _axis(op: PrimitiveOp, axis: int, rank: int) -> int:
    if not 0 <= axis < rank:
        raise AxisError(f"axis {axis} of {op.name} lies outside 0 to {rank - 1} of its {rank}-d operand")
    return axis


def _axes(op: PrimitiveOp, rank: int) -> tuple[int, ...]:
    axes = op.integers("axes")
    for axis in axes:
        _axis(op, axis, rank)
    if not axes or list(axes) != sorted(set(axes)):
        raise AxisError(f"axes of {op.name} must be one or more, ascending and distinct; not {list(axes)}")
    return axes


def _bits(op: PrimitiveOp, dtype: DType) -> None:
    bits = op.integer("bits")
    if not 0 <= bits < 1 << dtype.pattern_bits:
        raise DTypeError(f"{bits:#x} is no bit pattern of {dtype}")


def _per_axis(op: PrimitiveOp, key: str, rank: int) -> tuple[Dim, ...]:
    found = op.dims(key)
    if len(found) != rank:
        raise ShapeError(f"{key} of {op.name} needs {rank} entries, one per axis; it has {len(found)}")
    return found


# ---- rules -----------------------------------------------------------------------------------------------------


def _elementwise(allowed: tuple[DType, ...]) -> Check:
    def infer(op: PrimitiveOp) -> TensorType:
        types = op.operand_tensors
        _same_shape(op, types)
        _dtype_in(op, _one_dtype(op, types), allowed)
        return types[0]

    return infer


def _recip(op: PrimitiveOp) -> TensorType:
    result = cast(TensorType, _elementwise(NUMBERS)(op))
    if result.dtype.is_integer and op.text("rounding") == "none":
        raise DTypeError(
            f"{op.name} of {result.dtype} must round: floor or trunc; true division is of floats"
        )
    return result


def _bitwise(op: PrimitiveOp) -> TensorType:
    shift = op.text("kind") in ("shl", "shr")
    return cast(TensorType, _elementwise(INTEGERS if shift else (*INTEGERS, bool_))(op))


def _less_than(op: PrimitiveOp) -> TensorType:
    return TensorType((cast(TensorType, _elementwise(ORDERED)(op)).shape, bool_))


def _select(op: PrimitiveOp) -> TensorType:
    types = op.operand_tensors
    _same_shape(op, types)
    if types[0].dtype is not bool_:
        raise DTypeError(f"the condition of {op.name} must be bool, not {types[0].dtype}")
    _one_dtype(op, types[1:])
    return types[1]


def _cast(op: PrimitiveOp) -> TensorType:
    source, result, rounding = op.operand_tensors[0], op.given, op.text("rounding")
    if not _equal_shapes(source.shape, result.shape):
        raise ShapeError(f"{op.name} keeps the shape; {source} cannot become {result}")
    if rounding == "bits" and source.dtype.size_bytes != result.dtype.size_bytes:
        raise DTypeError(f"{op.name} of bits keeps the size; {source.dtype} and {result.dtype} differ")
    if rounding == "soft" and {source.dtype, result.dtype} not in SOFT:
        raise DTypeError(
            f"{op.name} is soft between f32 and f16 or bf16, not {source.dtype} and {result.dtype}"
        )
    if rounding not in UNCHANGING:
        _dtype_in(op, source.dtype, FLOATS)
        if source.dtype is not result.dtype:
            raise DTypeError(
                f"{op.name} to a whole number keeps the dtype; {source.dtype} cannot be {result.dtype}"
            )
    return result


def _const(op: PrimitiveOp) -> TensorType:
    result, data = op.given, op.value("data")
    if (data is None) == (op.value("bits") is None):
        raise OptionError(
            f"{op.name} has either bits, one pattern for all elements, or data, the bytes of each"
        )
    if data is None:
        _bits(op, result.dtype)
        return result
    size = result.elements * result.dtype.size_bytes
    if not isinstance(data, bytes) or size != len(data):
        length = f"{len(data)} bytes" if isinstance(data, bytes) else value_text(data)
        raise DataSizeError(f"data of {op.name} of {result} must have {size} bytes, not {length}")
    return result


def _iota(op: PrimitiveOp) -> TensorType:
    _axis(op, op.integer("axis"), op.given.rank)
    return TensorType((op.given.shape, i64))


def _dim_value(op: PrimitiveOp) -> TensorType:
    if not isinstance(op.value("dim"), (int, Dim)):
        raise OptionError(f"dim of {op.name} must be a dim, not {value_text(op.value('dim'))}")
    return TensorType(((), i64))


def _permute(op: PrimitiveOp) -> TensorType:
    source, order = op.operand_tensors[0], op.integers("order")
    if sorted(order) != list(range(source.rank)):
        raise AxisError(f"order {list(order)} of {op.name} must name each axis of {source} once")
    return TensorType((tuple(source.shape[axis] for axis in order), source.dtype))


def _expand(op: PrimitiveOp) -> TensorType:
    source, result = op.operand_tensors[0], op.given
    fits = source.rank == result.rank and all(
        have == 1 or known_equal(have, want) for have, want in zip(source.shape, result.shape)
    )
    if not fits:
        raise ShapeError(f"{source} cannot expand to {result}: ranks must agree, and each dim be 1 or stay")
    return TensorType((result.shape, source.dtype))


def _reshape(op: PrimitiveOp) -> TensorType:
    source, result = op.operand_tensors[0], op.given
    if source.elements != result.elements and known_unequal(source.elements, result.elements):
        raise ShapeError(
            f"{source} has {source.elements} elements and cannot be {result}, with {result.elements}"
        )
    return TensorType((result.shape, source.dtype))


def _slice(op: PrimitiveOp) -> TensorType:
    source, result = op.operand_tensors[0], op.given
    starts, steps = _per_axis(op, "starts", source.rank), op.integers("steps")
    if len(steps) != source.rank or result.rank != source.rank:
        raise ShapeError(
            f"{op.name} of {source} needs {source.rank} steps and a result of that rank, not {result}"
        )
    for start, step, size, extent in zip(starts, steps, result.shape, source.shape):
        if step < 1:
            raise OptionError(f"steps of {op.name} must be positive, not {step}; flip reverses")
        empty = size == 0 or not known_less(0, size)
        beyond = known_less(start, 0) or known_less(extent, start + (size - 1) * step + 1)
        if known_less(size, 0) or (beyond and not empty):
            raise ShapeError(f"{op.name} from {start} by {step}, {size} elements, leaves an axis of {extent}")
    return TensorType((result.shape, source.dtype))


def _pad(op: PrimitiveOp) -> TensorType:
    source = op.operand_tensors[0]
    low, high = _per_axis(op, "low", source.rank), _per_axis(op, "high", source.rank)
    for amount in (*low, *high):
        if known_less(amount, 0):
            raise ShapeError(f"{op.name} by {amount}: amounts cannot be negative; slice takes away")
    _bits(op, source.dtype)
    return TensorType((tuple(a + d + b for a, d, b in zip(low, source.shape, high)), source.dtype))


def _flip(op: PrimitiveOp) -> TensorType:
    _axes(op, op.operand_tensors[0].rank)
    return op.operand_tensors[0]


def _window(op: PrimitiveOp) -> TensorType:
    source, size, step = op.operand_tensors[0], op.integer("size"), op.integer("step")
    axis = _axis(op, op.integer("axis"), source.rank)
    if size < 0 or step < 1:
        raise OptionError(f"{op.name} needs size >= 0 and step >= 1, not {size} and {step}")
    if known_less(source.shape[axis], size):
        raise ShapeError(f"{op.name} of size {size} does not fit in axis {axis} of {source}")
    count = (source.shape[axis] - size) // step + 1
    return TensorType(((*source.shape[:axis], count, *source.shape[axis + 1 :], as_dim(size)), source.dtype))


def _reduce(allowed: tuple[DType, ...]) -> Check:
    def infer(op: PrimitiveOp) -> TensorType:
        source, monoid = op.operand_tensors[0], op.text("monoid")
        axes = _axes(op, source.rank)
        _dtype_in(op, source.dtype, allowed)
        if monoid.startswith("arg") and len(axes) != 1:
            raise AxisError(f"{op.name} of {monoid} has one axis, not {list(axes)}")
        kept = tuple(d for axis, d in enumerate(source.shape) if axis not in axes)
        return TensorType((kept, i64 if monoid.startswith("arg") else source.dtype))

    return infer


def _scan(op: PrimitiveOp) -> TensorType:
    source = op.operand_tensors[0]
    _axis(op, op.integer("axis"), source.rank)
    _dtype_in(op, source.dtype, NUMBERS if op.text("monoid") in ("sum", "prod") else ORDERED)
    return source


def _indices(op: PrimitiveOp, target: TensorType, indices: Sequence[TensorType]) -> None:
    if len(indices) != target.rank or not indices:
        raise ShapeError(
            f"{op.name} needs one index tensor per axis of {target} (1 or more), not {len(indices)}"
        )
    if any(index.dtype not in (i64, i32) for index in indices):
        raise DTypeError(f"indices of {op.name} are i64 or i32; not {_listed(indices)}")
    _same_shape(op, indices)


def _gather(op: PrimitiveOp) -> TensorType:
    source, *indices = op.operand_tensors
    _indices(op, source, indices)
    return TensorType((indices[0].shape, source.dtype))


def _scatter(op: PrimitiveOp) -> TensorType:
    base, value, *indices = op.operand_tensors
    _indices(op, base, indices)
    _same_shape(op, [value, *indices])
    _one_dtype(op, [base, value])
    combine = op.text("combine")
    _dtype_in(op, base.dtype, ANY if combine == "set" else NUMBERS if combine in ("add", "mul") else ORDERED)
    return base


def _sort(op: PrimitiveOp) -> tuple[TensorType, TensorType]:
    source = op.operand_tensors[0]
    _axis(op, op.integer("axis"), source.rank)
    _dtype_in(op, source.dtype, ORDERED)
    if not isinstance(op.value("descending"), bool):
        raise OptionError(
            f"descending of {op.name} must be true or false, not {value_text(op.value('descending'))}"
        )
    shape = list(source.shape)
    count = op.value("count")
    if count is not None:
        axis = op.integer("axis")
        count = as_dim(cast("int | Dim", count))
        if known_less(count, 0) or known_less(shape[axis], count):
            raise OptionError(f"{op.name} gives {count} of {shape[axis]} elements")
        shape[axis] = count
    return TensorType((tuple(shape), source.dtype)), TensorType((tuple(shape), i64))


def _extern(op: PrimitiveOp) -> tuple[TensorType, ...]:
    op.text("target")
    op.text("payload")
    return op.result_tensors


# ---- the table -------------------------------------------------------------------------------------------------

SOFT = ({f16, f32}, {bf16, f32})
"""Dtypes that an operation computes in and gives: the rounding between may be dropped under keep-wide."""
UNCHANGING = ("none", "soft", "bits")
"""Roundings of a cast that give the value itself where the dtype is the same."""
_BOUNDS: dict[str, Domain] = {"bounds": ("error", "assumed")}
ROWS: dict[str, Row] = {
    "log2": Row(1, _elementwise(FLOATS), {"base": ("2", "e", "10")}),
    "exp2": Row(1, _elementwise(FLOATS), {"base": ("2", "e")}),
    "sin": Row(1, _elementwise(FLOATS), {"phase": ("sin", "cos")}),
    "sqrt": Row(1, _elementwise(FLOATS), {}),
    "recip": Row(2, _recip, {"rounding": ("none", "floor", "trunc")}),
    "add": Row(2, _elementwise(NUMBERS), {}),
    "mul": Row(2, _elementwise(NUMBERS), {}),
    "mod": Row(2, _elementwise(NUMBERS), {"sign": ("floor", "trunc")}),
    "bits": Row(2, _bitwise, {"kind": ("and", "or", "xor", "shl", "shr")}),
    "less_than": Row(2, _less_than, {"predicate": ("lt", "le", "eq", "ne")}),
    "select": Row(3, _select, {}),
    "max": Row(2, _elementwise(ORDERED), {}),
    "min": Row(2, _elementwise(ORDERED), {}),
    "cast": Row(
        1, _cast, {"rounding": ("none", "soft", "floor", "ceil", "trunc", "even", "bits")}, given_result=True
    ),
    "const": Row(0, _const, {"bits": None, "data": None}, optional=("bits", "data"), given_result=True),
    "iota": Row(0, _iota, {"axis": None}, given_result=True),
    "dim_value": Row(0, _dim_value, {"dim": None}),
    "permute": Row(1, _permute, {"order": None}),
    "expand": Row(1, _expand, {}, given_result=True),
    "reshape": Row(1, _reshape, {}, given_result=True),
    "slice": Row(1, _slice, {"starts": None, "steps": None}, given_result=True),
    "pad": Row(1, _pad, {"low": None, "high": None, "bits": None}),
    "flip": Row(1, _flip, {"axes": None}),
    "window": Row(1, _window, {"axis": None, "size": None, "step": None}),
    "sum_reduce": Row(1, _reduce(NUMBERS), {"monoid": ("sum", "prod"), "axes": None}),
    "max_reduce": Row(1, _reduce(ORDERED), {"monoid": ("max", "min", "argmax", "argmin"), "axes": None}),
    "scan": Row(1, _scan, {"monoid": ("sum", "prod", "max", "min"), "axis": None}),
    "gather": Row(-2, _gather, _BOUNDS),
    "scatter": Row(-3, _scatter, {"combine": ("set", "add", "mul", "max", "min"), **_BOUNDS}),
    "sort": Row(1, _sort, {"axis": None, "descending": None, "count": None}, ("count",), results=2),
    "extern": Row(-1, _extern, {"target": None, "payload": None}, results=-1, given_result=True),
}


def _make_class(name: str, row: Row) -> type[PrimitiveOp]:
    return cast(
        "type[PrimitiveOp]",
        type(
            f"{name.title().replace('_', '')}Op",
            (PrimitiveOp,),
            {
                "name": f"primitive.{name}",
                "row": row,
                "__module__": __name__,
                "attribute_names": frozenset({*row.attributes, STRICT}),
            },
        ),
    )


OPS: dict[str, type[PrimitiveOp]] = {name: _make_class(name, row) for name, row in ROWS.items()}
"""The op classes by short name: OPS["add"] is primitive.add."""
PRIMITIVE = Dialect("primitive", list(OPS.values()), [])
