"""What the type inference of many rows shares: dtype classes, broadcasting, axes.

Raises ShapeError, DTypeError, AxisError or OptionError; the row's name is put in front of the message by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, DimLike, as_dim, known_equal
from luminal.dtype import DType
from luminal.errors import AxisError, DTypeError, ShapeError

CLASSES: dict[str, tuple[str, Callable[[DType], bool]]] = {
    "float": ("f64, f32, f16 or bf16", lambda d: d.is_float and d.bits >= 16),
    "number": ("an integer, or a float of at least 16 bits", lambda d: d.is_integer or d.bits >= 16),
    "integer": ("an integer", lambda d: d.is_integer),
    "bits": ("an integer or bool", lambda d: not d.is_float),
    "bool": ("bool", lambda d: d.is_bool),
    "computed": (
        "bool, an integer, or a float of at least 16 bits",
        lambda d: not d.is_float or d.bits >= 16,
    ),
    "any": ("any dtype", lambda d: True),
}
"""Classes of dtypes an op takes: what an error says would be right, and the test."""


def tensor(shape: Iterable[Dim], dtype: DType) -> TensorType:
    """The type of a tensor; the shape holds Dims only."""
    return TensorType((tuple(shape), dtype))


def text(shape: Sequence[DimLike]) -> str:
    """A shape in messages: (s, 4096)."""
    return f"({', '.join(str(d) for d in shape)})"


def check_class(dtype: DType, name: str) -> None:
    """DTypeError unless the dtype is in the class."""
    expected, test = CLASSES[name]
    if not test(dtype):
        raise DTypeError(f"the dtype is {dtype}, expected {expected}")


def common_dtype(types: Sequence[TensorType]) -> DType:
    """The dtype that all operands have; DTypeError where they differ."""
    if any(t.dtype != types[0].dtype for t in types):
        raise DTypeError(
            f"operands have dtypes {', '.join(t.dtype.name for t in types)}, expected equal ones"
        )
    return types[0].dtype


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that all broadcast to by NumPy's rules; only a size that is the constant 1 is stretched."""
    if all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
    one = as_dim(1)
    result: list[Dim] = []
    for position in range(-max(len(shape) for shape in shapes), 0):
        found = one
        for shape in shapes:
            size = shape[position] if position >= -len(shape) else one
            if size == 1 or known_equal(size, found):
                continue
            if found != 1:
                given = " and ".join(text(s) for s in shapes)
                raise ShapeError(f"{given} do not broadcast: {found} and {size} are not known to be equal")
            found = size
        result.append(found)
    return tuple(result)


def elementwise(accepts: str, result: DType | None = None) -> Callable[..., TensorType]:
    """Inference for operands that share a dtype of the class and broadcast; `result` None keeps the dtype."""

    def infer(*types: TensorType, **_: object) -> TensorType:
        dtype = common_dtype(types)
        check_class(dtype, accepts)
        shape = types[0].shape if len(types) == 1 else broadcast_shapes(*(t.shape for t in types))
        return tensor(shape, dtype if result is None else result)

    return infer


def check_axis(axis: int, rank: int) -> int:
    """The axis itself; AxisError outside 0 .. rank - 1."""
    if not 0 <= axis < rank:
        raise AxisError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis


def check_axes(axes: Sequence[int], rank: int) -> Sequence[int]:
    """The axes themselves; AxisError where one is outside the rank or named twice."""
    for axis in axes:
        check_axis(axis, rank)
    if len(set(axes)) != len(axes):
        raise AxisError(f"axes {tuple(axes)} name an axis twice")
    return axes


def check_same_shape(found: Sequence[Dim], expected: Sequence[Dim], what: str) -> None:
    """ShapeError unless both shapes are known to be equal."""
    if len(found) != len(expected) or not all(map(known_equal, found, expected)):
        raise ShapeError(f"{what} has shape {text(found)}, expected {text(expected)}")


def same(accepts: str = "any") -> Callable[..., TensorType]:
    """Inference of an op on one tensor that keeps its type; checks `axis` or `axes` if the op has them."""

    def infer(x: TensorType, *, axis: int | None = None, axes: Sequence[int] = ()) -> TensorType:
        check_class(x.dtype, accepts)
        check_axes(axes if axis is None else (axis,), len(x.shape))
        return x

    return infer
