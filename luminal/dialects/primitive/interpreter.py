"""What each primitive means, in NumPy: PyTorch's meaning to the bit where it has one (docs/semantics.md).

`EVALUATE` maps an op's name to its function (op, operands, dims) -> result and serves single ops; `interpret` runs a
graph. Narrow floats compute in f32 and round once per op. Elementary functions of f32 and narrower are computed in f64:
the judge of a code generator's error must be better than what it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from luminal.dialects.bind import interpret_graph, shape_of
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.primitive.ops import STRICT, PrimitiveOp
from luminal.dim import Dim, as_dim
from luminal.dtype import DType, cast_array, dtype_of, f4e2m1, f64, from_bits
from luminal.errors import DivisionByZeroError, IndexOutOfRangeError, ShapeError, UnsupportedOpError

Array = np.ndarray[Any, Any]
Dims = Mapping[str, int]
Result = Array | Sequence[Array]
Evaluate = Callable[[PrimitiveOp, Sequence[Array], Dims], Result]
CallExtern = Callable[[PrimitiveOp, Sequence[Array], Dims], Sequence[Array]]


def interpret(
    graph: GraphOp, inputs: Sequence[Array], dims: Dims | None = None, call_extern: CallExtern | None = None
) -> list[Array]:
    """Run a graph of primitives; symbols that `dims` leaves out are read off the inputs' shapes.

    Raises what `bind_inputs` raises for inputs and dims that do not fit; while running IndexOutOfRangeError,
    DivisionByZeroError, and ShapeError where sizes that were not known to fit do not.
    """
    return interpret_graph(
        graph,
        inputs,
        dims,
        lambda op, operands, sizes: evaluate(cast(PrimitiveOp, op), operands, sizes, call_extern),
    )


def evaluate(
    op: PrimitiveOp, operands: Sequence[Array], dims: Dims, call_extern: CallExtern | None = None
) -> list[Array]:
    """The results of one op; run-time errors name the user's source line where the op has one."""
    try:
        with np.errstate(all="ignore"):
            if op.name == "primitive.extern":
                if call_extern is None:
                    raise UnsupportedOpError(
                        f"{op.text('target')} runs through torch; no way to call it was given"
                    )
                return list(call_extern(op, operands, dims))
            result = EVALUATE[op.name](op, operands, dims)
    except (IndexOutOfRangeError, DivisionByZeroError, ShapeError) as error:
        raise type(error)(f"{error} (at {op.source})" if op.source else str(error)) from None
    return [np.asarray(r) for r in ((result,) if isinstance(result, (np.ndarray, np.generic)) else result)]


# ---- elementwise -----------------------------------------------------------------------------------------------


def _wide(x: Array) -> Array:
    """Narrow floats as f32, everything else as it is."""
    return cast_array(x, dtype_of(x.dtype).accumulate)


def _computed(function: Callable[..., Any], exact: bool = True) -> Evaluate:
    """A function of wide operands, rounded once; inexact ones of f32 are computed in f64."""

    def run(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
        dtype = dtype_of(xs[0].dtype)
        wide = [_wide(x) for x in xs] if exact else [cast_array(x, f64) for x in xs]
        return cast_array(np.asarray(function(op, *wide)), dtype)

    return run


_LOGARITHMS = {"2": np.log2, "e": np.log, "10": np.log10}
_POWERS = {"2": np.exp2, "e": np.exp}
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}
_ROUNDINGS = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "even": np.rint}
_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _recip(op: PrimitiveOp, a: Array, b: Array) -> Array:
    rounding = op.text("rounding")
    if dtype_of(a.dtype).is_integer:
        _check_divisor(b)
        quotient = a // b
        return quotient if rounding == "floor" else quotient + ((a % b != 0) & ((a < 0) != (b < 0)))
    if rounding == "none":
        return a / b
    return np.trunc(a / b) if rounding == "trunc" else _floor_divide(a, b)


def _floor_divide(a: Array, b: Array) -> Array:
    """torch.floor_divide of floats: by the exact remainder, so that 1 // 0.1 is 9."""
    remainder = np.fmod(a, b)
    quotient = (a - remainder) / b
    quotient = np.where((remainder != 0) & ((b < 0) != (remainder < 0)), quotient - 1, quotient)
    whole = np.floor(quotient)
    whole = np.where(quotient - whole > 0.5, whole + 1, whole)
    whole = np.where(quotient != 0, whole, np.copysign(np.zeros_like(a), a / b))
    return np.where(b == 0, a / b, whole).astype(a.dtype)


def _mod(op: PrimitiveOp, a: Array, b: Array) -> Array:
    floor = op.text("sign") == "floor"
    if dtype_of(a.dtype).is_integer:
        _check_divisor(b)
        return np.mod(a, b) if floor else np.fmod(a, b)
    remainder = np.fmod(a, b)
    return (
        np.where((remainder != 0) & ((b < 0) != (remainder < 0)), remainder + b, remainder)
        if floor
        else remainder
    )


def _check_divisor(b: Array) -> None:
    if not np.all(b):
        raise DivisionByZeroError("ZeroDivisionError: an integer is divided by zero")


def _bits(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    (a, b), kind = xs, op.text("kind")
    if kind in _BITWISE:
        return _BITWISE[kind](a, b)
    dtype = dtype_of(a.dtype)
    inside = (b >= 0) & (b < dtype.bits)
    if kind == "shl":
        return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0).astype(a.dtype)
    shifted = np.right_shift(a, np.where(inside, b, dtype.bits - 1).astype(a.dtype))
    return np.where(inside | dtype.is_signed, shifted, 0).astype(a.dtype)


def _less_than(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    return _COMPARISONS[op.text("predicate")](_wide(xs[0]), _wide(xs[1]))


def _larger(op: PrimitiveOp, a: Array, b: Array) -> Array:
    return np.where((a > b) | (a != a), a, b)


def _smaller(op: PrimitiveOp, a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b)


def _cast(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    x, rounding, dtype = xs[0], op.text("rounding"), op.given.dtype
    if rounding in ("none", "soft"):
        return cast_array(x, dtype)
    if rounding == "bits":
        carried = x.view(dtype.bit_carrier)
        if f4e2m1 in (dtype, dtype_of(x.dtype)):
            carried = carried & np.uint8(0xF)
        return (carried != 0) if dtype.is_bool else carried.view(dtype.numpy)
    return cast_array(_ROUNDINGS[rounding](_wide(x)), dtype)


# ---- sources and views -----------------------------------------------------------------------------------------


def _const(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    shape, dtype, data = shape_of(op.given.shape, dims), op.given.dtype, op.value("data")
    if isinstance(data, bytes):
        return np.frombuffer(data, dtype.numpy).reshape(shape)
    return np.full(shape, from_bits(op.integer("bits"), dtype), dtype.numpy)


def _iota(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    shape, axis = shape_of(op.given.shape, dims), op.integer("axis")
    line = np.arange(shape[axis], dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.broadcast_to(line, shape).copy()


def _dim_value(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    return np.asarray(as_dim(cast("int | Dim", op.value("dim"))).evaluate(dims), np.int64)


def _reshape(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    shape = shape_of(op.given.shape, dims)
    if min(shape, default=0) < 0 or int(np.prod(shape, dtype=object)) != xs[0].size:
        raise ShapeError(f"{xs[0].size} elements cannot have the shape {list(shape)}")
    return xs[0].reshape(shape)


def _slice(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    sizes, picks = shape_of(op.given.shape, dims), list[slice]()
    for start, size, step, extent in zip(
        shape_of(op.dims("starts"), dims), sizes, op.integers("steps"), xs[0].shape
    ):
        stop = start + (size - 1) * step + 1
        if size < 0 or (size and (start < 0 or stop > extent)):
            raise ShapeError(f"a slice from {start} by {step}, {size} elements, leaves an axis of {extent}")
        picks.append(slice(start, stop, step) if size else slice(0, 0))
    return xs[0][tuple(picks)]


def _pad(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    low, high = shape_of(op.dims("low"), dims), shape_of(op.dims("high"), dims)
    if min((*low, *high), default=0) < 0:
        raise ShapeError(f"padding by {list(low)} and {list(high)}; amounts cannot be negative")
    padded = np.full(
        [a + d + b for a, d, b in zip(low, xs[0].shape, high)],
        from_bits(op.integer("bits"), dtype_of(xs[0].dtype)),
    )
    padded[tuple(slice(a, a + d) for a, d in zip(low, xs[0].shape))] = xs[0]
    return padded


def _window(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    axis, size, step = op.integer("axis"), op.integer("size"), op.integer("step")
    if xs[0].shape[axis] < size:
        raise ShapeError(f"a window of {size} does not fit in an axis of {xs[0].shape[axis]}")
    plain = xs[0].view(dtype_of(xs[0].dtype).bit_carrier)  # NumPy cannot stride over ml_dtypes
    windows = np.lib.stride_tricks.sliding_window_view(plain, size, axis)
    return windows[(*[slice(None)] * axis, slice(None, None, step))].view(xs[0].dtype)


# ---- reductions and scans --------------------------------------------------------------------------------------


def _identity(dtype: DType, largest: bool) -> Any:
    """What max (or min) of no elements is: the least (or largest) value of the dtype."""
    return np.asarray(dtype.lowest if largest else dtype.highest).astype(dtype.numpy)


def _sum_reduce(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    wide, axes = _wide(xs[0]), op.integers("axes")
    combine, start = (np.add, 0) if op.text("monoid") == "sum" else (np.multiply, 1)
    if not _may_reassociate(op):  # one axis of rows in row-major order, added one after the other
        kept = [axis for axis in range(wide.ndim) if axis not in axes]
        length = int(np.prod([wide.shape[axis] for axis in axes]))
        rows = wide.transpose(*kept, *axes).reshape(*(wide.shape[axis] for axis in kept), length)
        wide = combine.accumulate(np.insert(rows, 0, start, axis=-1), axis=-1, dtype=wide.dtype)[..., -1:]
        axes = (wide.ndim - 1,)
    # from +0.0, so that a sum of negative zeros is +0.0
    total = combine.reduce(wide, axes, dtype=wide.dtype, initial=start)
    return cast_array(np.asarray(total), dtype_of(xs[0].dtype))


def _may_reassociate(op: PrimitiveOp) -> bool:
    graph = op.parent_op()
    return not op.value(STRICT) and (not isinstance(graph, GraphOp) or "reassociate" in graph.licences)


def _max_reduce(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    wide, axes, monoid = _wide(xs[0]), op.integers("axes"), op.text("monoid")
    largest = monoid.endswith("max")
    if not monoid.startswith("arg"):
        reduce = np.max if largest else np.min
        found = reduce(wide, axes, initial=_identity(dtype_of(wide.dtype), largest))
        return cast_array(np.asarray(found), dtype_of(xs[0].dtype))
    if not wide.shape[axes[0]]:
        return np.full(np.delete(wide.shape, axes[0]), np.iinfo(np.int64).max)
    return (np.argmax if largest else np.argmin)(wide, axes[0])


def _scan(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    dtype, axis, monoid = dtype_of(xs[0].dtype), op.integer("axis"), op.text("monoid")
    wide = _wide(xs[0])
    if monoid in ("max", "min"):
        return cast_array((np.maximum if monoid == "max" else np.minimum).accumulate(wide, axis), dtype)
    carrier = np.float64 if dtype.name == "f32" else wide.dtype  # as torch's cumsum and cumprod on the CPU
    if monoid == "sum":  # from +0.0
        return cast_array(np.cumsum(wide, axis, dtype=carrier) + np.zeros((), carrier), dtype)
    return cast_array(np.cumprod(wide, axis, dtype=carrier), dtype)


# ---- roots -----------------------------------------------------------------------------------------------------


def _checked(indices: Iterable[Array], shape: Sequence[int]) -> tuple[Array, ...]:
    checked = tuple(index.astype(np.int64) for index in indices)
    for axis, (index, extent) in enumerate(zip(checked, shape)):
        outside = (index < 0) | (index >= extent)
        if np.any(outside):
            raise IndexOutOfRangeError(
                f"index {int(index[outside].ravel()[0])} is out of bounds for dimension {axis} with size {extent}"
            )
    return checked


_COMBINE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> Array:
    base, value, combine = xs[0], xs[1], op.text("combine")
    where = tuple(index.ravel() for index in _checked(xs[2:], base.shape))
    if combine == "set":
        result = base.copy()
        result[where] = value.ravel()
        return result
    wide = np.array(_wide(base))
    _COMBINE[combine].at(wide, where, _wide(value).ravel())
    return cast_array(wide, dtype_of(base.dtype))


def _sort(op: PrimitiveOp, xs: Sequence[Array], dims: Dims) -> tuple[Array, Array]:
    axis, keys = op.integer("axis"), _wide(xs[0])
    if op.value("descending"):  # reversed twice, so that equal elements keep their order
        order = np.flip(keys.shape[axis] - 1 - np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    if (count := op.value("count")) is not None:
        order = np.take(order, range(as_dim(cast("int | Dim", count)).evaluate(dims)), axis)
    return np.take_along_axis(xs[0], order, axis), order.astype(np.int64)


_TABLE: dict[str, Evaluate] = {
    "log2": _computed(lambda op, x: _LOGARITHMS[op.text("base")](x), exact=False),
    "exp2": _computed(lambda op, x: _POWERS[op.text("base")](x), exact=False),
    "sin": _computed(lambda op, x: (np.sin if op.text("phase") == "sin" else np.cos)(x), exact=False),
    "sqrt": _computed(lambda op, x: np.sqrt(x)),
    "recip": _computed(_recip),
    "add": _computed(lambda op, a, b: a + b),
    "mul": _computed(lambda op, a, b: a * b),
    "mod": _computed(_mod),
    "bits": _bits,
    "less_than": _less_than,
    "select": lambda op, xs, dims: np.where(xs[0], xs[1], xs[2]),
    "max": _computed(_larger),
    "min": _computed(_smaller),
    "cast": _cast,
    "const": _const,
    "iota": _iota,
    "dim_value": _dim_value,
    "permute": lambda op, xs, dims: np.transpose(xs[0], op.integers("order")),
    "expand": lambda op, xs, dims: np.broadcast_to(xs[0], shape_of(op.given.shape, dims)),
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "flip": lambda op, xs, dims: np.flip(xs[0], op.integers("axes")),
    "window": _window,
    "sum_reduce": _sum_reduce,
    "max_reduce": _max_reduce,
    "scan": _scan,
    "gather": lambda op, xs, dims: xs[0][_checked(xs[1:], xs[0].shape)],
    "scatter": _scatter,
    "sort": _sort,
}
EVALUATE: dict[str, Evaluate] = {f"primitive.{name}": function for name, function in _TABLE.items()}
