"""Type inference shared by the rows: dtype classes, broadcasting, axes, window sizes.

Functions take TensorTypes (None for an absent operand) and Python attributes, and return result types. They raise
ShapeError, DTypeError, AxisError or OptionError; the row's name is put in front of the message by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from typing import Any

from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, DimLike, as_dim, dim_min, known_equal, known_less, known_less_equal, product
from luminal.dtype import DType, bool_, i64
from luminal.errors import AxisError, DTypeError, OptionError, ShapeError

CLASSES: dict[str, tuple[str, Callable[[DType], bool]]] = {
    "float": ("f64, f32, f16 or bf16", lambda d: d.is_float and d.bits >= 16),
    "number": ("a float or an integer", lambda d: d.is_integer or (d.is_float and d.bits >= 16)),
    "integer": ("an integer", lambda d: d.is_integer),
    "bits": ("an integer or bool", lambda d: d.is_integer or d.is_bool),
    "bool": ("bool", lambda d: d.is_bool),
    "computed": ("a dtype of at least 16 bits if a float", lambda d: not d.is_float or d.bits >= 16),
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
        raise DTypeError(f"operands have dtypes {', '.join(t.dtype.name for t in types)}, expected equal ones")
    return types[0].dtype


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that all broadcast to by NumPy's rules; a dim is stretched only where it is the constant 1."""
    if all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = []
    for position in range(rank):
        found = as_dim(1)
        for shape in shapes:
            offset = position - rank + len(shape)
            size = shape[offset] if offset >= 0 else as_dim(1)
            if size.constant == 1 or known_equal(size, found):
                continue
            if found.constant != 1:
                raise ShapeError(f"shapes {' and '.join(text(s) for s in shapes)} do not broadcast: {found} and {size}")
            found = size
        result.append(found)
    return tuple(result)


def elementwise(accepts: str, result: DType | None = None) -> Callable[..., TensorType]:
    """Inference of an op whose operands share a dtype of the class and broadcast; `result` None keeps the dtype."""

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


def check_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes themselves; AxisError where one is outside the rank or named twice."""
    for axis in axes:
        check_axis(axis, rank)
    if len(set(axes)) != len(axes):
        raise AxisError(f"axes {tuple(axes)} name an axis twice")
    return tuple(axes)


def reduced(shape: Sequence[Dim], axes: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """The shape after a reduction over `axes`."""
    check_axes(axes, len(shape))
    if keepdim:
        return tuple(as_dim(1) if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def check_not_empty(shape: Sequence[Dim], axes: Sequence[int]) -> None:
    """ShapeError where a reduction without an identity (max, argmax ...) has nothing to reduce."""
    for axis in axes:
        if shape[axis].constant == 0:
            raise ShapeError(f"axis {axis} of {text(shape)} is empty, and a maximum or minimum of nothing is undefined")


def check_same_shape(found: Sequence[Dim], expected: Sequence[Dim], what: str) -> None:
    """ShapeError unless both shapes are known to be equal."""
    if len(found) != len(expected) or not all(known_equal(a, b) for a, b in zip(found, expected, strict=True)):
        raise ShapeError(f"{what} has shape {text(found)}, expected {text(expected)}")


def same(accepts: str = "any") -> Callable[..., TensorType]:
    """Inference of an op on one tensor that keeps its type; checks `axis` or `axes` if the op has them."""

    def infer(x: TensorType, *, axis: int | None = None, axes: Sequence[int] = ()) -> TensorType:
        check_class(x.dtype, accepts)
        check_axes(axes if axis is None else (axis,), len(x.shape))
        return x

    return infer


def reduction(accepts: str, result: DType | None = None, empty: bool = True) -> Callable[..., TensorType]:
    """Inference of a reduction over `axes`; `empty` says whether it has a value over nothing."""

    def infer(x: TensorType, *, axes: Sequence[int], keepdim: bool, **_: object) -> TensorType:
        check_class(x.dtype, accepts)
        shape = reduced(x.shape, axes, keepdim)
        if not empty:
            check_not_empty(x.shape, axes)
        return tensor(shape, x.dtype if result is None else result)

    return infer


def arg_reduction(x: TensorType, *, axis: int | None, keepdim: bool) -> TensorType:
    """argmax and argmin: i64 positions along `axis`, or in the flattened tensor for None."""
    check_class(x.dtype, "computed")
    axes = range(len(x.shape)) if axis is None else (axis,)
    shape = reduced(x.shape, axes, keepdim)
    check_not_empty(x.shape, axes)
    return tensor(shape, i64)


def with_indices(x: TensorType, *, axis: int, **_: object) -> list[TensorType]:
    """cummax, cummin and sort: values of the same type and i64 indices."""
    check_class(x.dtype, "computed")
    check_axis(axis, len(x.shape))
    return [x, tensor(x.shape, i64)]


def topk(x: TensorType, *, axis: int, count: Dim, largest: bool) -> list[TensorType]:
    check_class(x.dtype, "computed")
    size = x.shape[check_axis(axis, len(x.shape))]
    if known_less(size, count) or known_less(count, 0):
        raise OptionError(f"{count} elements were asked of axis {axis}, which has {size}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return [tensor(shape, x.dtype), tensor(shape, i64)]


# ---- movement --------------------------------------------------------------------------------------------------


def permute(x: TensorType, *, order: Sequence[int]) -> TensorType:
    if sorted(order) != list(range(len(x.shape))):
        raise AxisError(f"order {tuple(order)} is no permutation of the axes of {text(x.shape)}")
    return tensor(tuple(x.shape[i] for i in order), x.dtype)


def reshape(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    if not known_equal(product(x.shape), product(shape)):
        raise ShapeError(
            f"{text(x.shape)} has {product(x.shape)} elements, the new shape {text(shape)} {product(shape)}"
        )
    return tensor(shape, x.dtype)


def expand(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    offset = len(shape) - len(x.shape)
    fits = offset >= 0 and all(
        size.constant == 1 or known_equal(size, new) for size, new in zip(x.shape, shape[offset:], strict=True)
    )
    if not fits:
        raise ShapeError(f"{text(x.shape)} does not expand to {text(shape)}")
    return tensor(shape, x.dtype)


def slice_(x: TensorType, *, starts: Sequence[Dim], stops: Sequence[Dim], steps: Sequence[int]) -> TensorType:
    """Start inclusive, stop exclusive, both within the axis; each step at least 1."""
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        raise ShapeError(f"starts, stops and steps need one entry for each axis of {text(x.shape)}")
    if any(step < 1 for step in steps):
        raise OptionError(f"steps {tuple(steps)} must be at least 1")
    for start, stop, size in zip(starts, stops, x.shape, strict=True):
        if known_less(start, 0) or known_less(stop, start) or known_less(size, stop):
            raise ShapeError(f"the slice {start} to {stop} does not lie within an axis of size {size}")
    return tensor(
        tuple((b - a + step - 1) // step for a, b, step in zip(starts, stops, steps, strict=True)), x.dtype
    )


def pad(x: TensorType, *, low: Sequence[Dim], high: Sequence[Dim], value: object) -> TensorType:
    if not len(low) == len(high) == len(x.shape):
        raise ShapeError(f"low and high need one entry for each axis of {text(x.shape)}")
    if any(known_less(amount, 0) for amount in (*low, *high)):
        raise OptionError(f"padding {text(low)}, {text(high)} must not be negative")
    return tensor(tuple(a + size + b for a, size, b in zip(low, x.shape, high, strict=True)), x.dtype)


def cat(xs: Sequence[TensorType], *, axis: int) -> TensorType:
    if not xs:
        raise ShapeError("at least one tensor is needed")
    first = xs[0].shape
    check_axis(axis, len(first))
    total = as_dim(0)
    for x in xs:
        if len(x.shape) != len(first):
            raise ShapeError(f"{text(x.shape)} and {text(first)} differ in rank")
        check_same_shape(x.shape, (*first[:axis], x.shape[axis], *first[axis + 1 :]), "a tensor")
        total = total + x.shape[axis]
    return tensor((*first[:axis], total, *first[axis + 1 :]), common_dtype(xs))


def stack(xs: Sequence[TensorType], *, axis: int) -> TensorType:
    if not xs:
        raise ShapeError("at least one tensor is needed")
    check_axis(axis, len(xs[0].shape) + 1)
    for x in xs:
        check_same_shape(x.shape, xs[0].shape, "a tensor")
    return tensor((*xs[0].shape[:axis], as_dim(len(xs)), *xs[0].shape[axis:]), common_dtype(xs))


def window_count(size: Dim, extent: int, step: int, dilation: int) -> Dim:
    """How many windows of `extent` elements, `dilation` apart, start `step` apart within `size`."""
    if extent < 0 or step < 1 or dilation < 1:
        raise OptionError(f"window size {extent}, step {step} and dilation {dilation} must be positive")
    count = (size - dilation * (extent - 1) - 1) // step + 1
    if known_less(count, 0) or (known_less_equal(count, 0) and step == 1 and extent > 1):
        raise ShapeError(f"a window of {dilation * (extent - 1) + 1} does not fit in {size}")
    return count


def window(x: TensorType, *, axis: int, size: int, step: int, dilation: int) -> TensorType:
    """Like Tensor.unfold: the axis counts windows, a new last axis goes through each."""
    check_axis(axis, len(x.shape))
    count = window_count(x.shape[axis], size, step, dilation)
    return tensor((*x.shape[:axis], count, *x.shape[axis + 1 :], as_dim(size)), x.dtype)


# ---- contraction, windows, norms -------------------------------------------------------------------------------


def matmul(a: TensorType, b: TensorType) -> TensorType:
    """As torch.matmul: vectors are rows on the left and columns on the right, leading axes broadcast."""
    dtype = common_dtype((a, b))
    check_class(dtype, "number")
    if not a.shape or not b.shape:
        raise ShapeError(f"{text(a.shape)} and {text(b.shape)}: a tensor of rank 0 has no matrix product")
    inner = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if not known_equal(a.shape[-1], inner):
        raise ShapeError(f"{text(a.shape)} and {text(b.shape)}: {a.shape[-1]} columns meet {inner} rows")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tensor((*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ())), dtype)


def conv(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    transposed: bool,
    output_padding: Sequence[int],
) -> TensorType:
    """x [n, c, *sizes], weight [o, c/groups, *extents], or [c, o/groups, *extents] where transposed, bias [o]."""
    dtype = common_dtype([t for t in (x, weight, bias) if t is not None])
    check_class(dtype, "number")
    rank = len(x.shape) - 2
    if rank < 1 or len(weight.shape) != rank + 2:
        raise ShapeError(f"input {text(x.shape)} and weight {text(weight.shape)}: expected equal ranks of at least 3")
    for values in (stride, padding, dilation, output_padding):
        if len(values) != rank:
            raise OptionError(f"{tuple(values)} needs one entry for each of {rank} spatial axes")
    extents = [size.constant for size in weight.shape[2:]]
    if any(extent is None for extent in extents) or groups < 1:
        raise ShapeError(f"weight {text(weight.shape)} needs constant extents, and groups {groups} at least 1")
    inner = weight.shape[0] if transposed else weight.shape[1] * groups
    if not known_equal(x.shape[1], inner):
        raise ShapeError(f"input {text(x.shape)} has {x.shape[1]} channels, weight {text(weight.shape)} takes {inner}")
    outer = weight.shape[1] * groups if transposed else weight.shape[0]
    if not known_equal(outer % groups, 0) or not known_equal(x.shape[1] % groups, 0):
        raise ShapeError(f"{x.shape[1]} and {outer} channels do not divide into {groups} groups")
    if bias is not None:
        check_same_shape(bias.shape, (outer,), "the bias")
    sizes: list[Dim] = []
    for i, size in enumerate(x.shape[2:]):
        reach = dilation[i] * (int(extents[i] or 0) - 1)
        if transposed:
            sizes.append((size - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i] + 1)
        else:
            sizes.append(window_count(size + 2 * padding[i], int(extents[i] or 0), stride[i], dilation[i]))
    return tensor((x.shape[0], outer, *sizes), dtype)


def pooled_size(size: Dim, extent: int, step: int, padding: int, dilation: int, ceil: bool) -> Dim:
    """Windows along one pooled axis; with `ceil` a last one may reach over the end if it starts before it."""
    if 2 * padding > dilation * (extent - 1) + 1:
        raise OptionError(f"padding {padding} is more than half of a window of {extent}")
    padded = size + 2 * padding
    if not ceil:
        return window_count(padded, extent, step, dilation)
    reach = dilation * (extent - 1) + 1
    return dim_min((padded - reach + step - 1) // step + 1, (size + padding + step - 1) // step)


def pool(accepts: str, result: DType | None = None) -> Callable[..., TensorType]:
    """Inference of pooling over the last len(size) axes."""

    def infer(
        x: TensorType,
        *,
        size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int] | None = None,
        ceil: bool,
        **_: object,
    ) -> TensorType:
        check_class(x.dtype, accepts)
        count, apart = len(size), dilation or (1,) * len(size)
        if not len(stride) == len(padding) == len(apart) == count <= len(x.shape):
            raise OptionError(f"size, stride, padding and dilation need {count} entries each, for {text(x.shape)}")
        lead, spatial = x.shape[: len(x.shape) - count], x.shape[len(x.shape) - count :]
        sizes = [
            pooled_size(d, *one, ceil) for d, *one in zip(spatial, size, stride, padding, apart, strict=True)
        ]
        return tensor((*lead, *sizes), x.dtype if result is None else result)

    return infer


def attention(
    q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None, *, causal: bool, scale: float | None
) -> TensorType:
    """q [.., h, t, d], k [.., g, s, d], v [.., g, s, e] with h a multiple of g; mask broadcasts to [.., h, t, s]."""
    dtype = common_dtype((q, k, v))
    check_class(dtype, "float")
    rank = len(q.shape)
    if rank < 2 or len(k.shape) != rank or len(v.shape) != rank:
        raise ShapeError(f"q {text(q.shape)}, k {text(k.shape)}, v {text(v.shape)} need one rank of at least 2")
    heads = min(1, rank - 2)
    check_same_shape(k.shape[:-2], v.shape[:-2], "k without its last two axes")
    check_same_shape((*q.shape[: rank - 2 - heads], q.shape[-1]), (*k.shape[: rank - 2 - heads], k.shape[-1]), "q")
    check_same_shape(k.shape[-2:-1], v.shape[-2:-1], "the keys' axis")
    if heads and not known_equal(q.shape[-3] % k.shape[-3], 0):
        raise ShapeError(f"{q.shape[-3]} query heads are no multiple of {k.shape[-3]} key heads")
    if mask is not None:
        if mask.dtype not in (bool_, dtype):
            raise DTypeError(f"the mask has dtype {mask.dtype}, expected bool or {dtype}")
        scores = (*q.shape[:-1], k.shape[-2])
        check_same_shape(broadcast_shapes(scores, mask.shape), scores, "the mask with the scores")
    return tensor((*q.shape[:-1], v.shape[-1]), dtype)


def norm(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None = None,
    *,
    axes: Sequence[int],
    epsilon: float,
) -> TensorType:
    """layer_norm and rms_norm: weight and bias have the sizes of `axes`, in their order."""
    check_class(x.dtype, "float")
    sizes = tuple(x.shape[axis] for axis in check_axes(axes, len(x.shape)))
    return _affine(x, weight, bias, sizes)


def _affine(x: TensorType, weight: TensorType | None, bias: TensorType | None, sizes: Sequence[Dim]) -> TensorType:
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            common_dtype((x, parameter))
            check_same_shape(parameter.shape, sizes, f"the {name}")
    return x


def group_norm(
    x: TensorType, weight: TensorType | None, bias: TensorType | None, *, groups: int, epsilon: float
) -> TensorType:
    """x [n, c, ...] with c a multiple of groups; weight and bias [c]."""
    check_class(x.dtype, "float")
    if len(x.shape) < 2 or groups < 1 or not known_equal(x.shape[1] % groups, 0):
        raise ShapeError(f"{text(x.shape)} does not have channels that divide into {groups} groups")
    return _affine(x, weight, bias, x.shape[1:2])


def batch_norm(
    x: TensorType,
    mean: TensorType,
    variance: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    *,
    epsilon: float,
) -> TensorType:
    """x [n, c, ...] with given statistics [c]; weight and bias [c]."""
    check_class(x.dtype, "float")
    if len(x.shape) < 2:
        raise ShapeError(f"{text(x.shape)} has no channel axis")
    for parameter in (mean, variance):
        check_same_shape(parameter.shape, x.shape[1:2], "a statistic")
    return _affine(x, weight, bias, x.shape[1:2])


# ---- indexing --------------------------------------------------------------------------------------------------


def _check_index(index: TensorType) -> None:
    if index.dtype != i64:
        raise DTypeError(f"an index has dtype {index.dtype}, expected i64")


def gather(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    """As torch.gather: same rank, sizes of `index` at most those of `x` but along the axis."""
    _check_index(index)
    check_axis(axis, len(x.shape))
    _check_covered(index, x, axis)
    return tensor(index.shape, x.dtype)


def _check_covered(index: TensorType, x: TensorType, axis: int | None) -> None:
    if len(index.shape) != len(x.shape):
        raise ShapeError(f"index {text(index.shape)} and tensor {text(x.shape)} differ in rank")
    for i, (size, limit) in enumerate(zip(index.shape, x.shape, strict=True)):
        if i != axis and known_less(limit, size):
            raise ShapeError(f"index {text(index.shape)} is larger than {text(x.shape)} along axis {i}")


def scatter(x: TensorType, index: TensorType, value: TensorType, *, axis: int, combine: str) -> TensorType:
    """As torch.scatter and scatter_reduce(include_self=True); combine: set, add, mul, max, min."""
    common_dtype((x, value))
    if combine not in ("set", "add", "mul", "max", "min"):
        raise OptionError(f"combine is {combine!r}, expected set, add, mul, max or min")
    gather(x, index, axis=axis)
    _check_covered(index, value, None)
    return x


def index_select(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    _check_index(index)
    check_axis(axis, len(x.shape))
    if len(index.shape) > 1:
        raise ShapeError(f"the index has shape {text(index.shape)}, expected rank 0 or 1")
    return tensor((*x.shape[:axis], *(index.shape or (as_dim(1),)), *x.shape[axis + 1 :]), x.dtype)


def embedding(weight: TensorType, index: TensorType) -> TensorType:
    _check_index(index)
    if len(weight.shape) != 2:
        raise ShapeError(f"the weight has shape {text(weight.shape)}, expected rank 2")
    return tensor((*index.shape, weight.shape[1]), weight.dtype)


def index_layout(rank: int, axes: Sequence[int]) -> tuple[int, list[int]]:
    """Where torch puts the broadcast index axes in x[...]: (position, the axes of x that stay, in order). They take
    the place of the first indexed axis if the indexed ones are neighbours, else the front."""
    rest = [axis for axis in range(rank) if axis not in axes]
    together = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    return (axes[0] if together else 0), rest


def index(x: TensorType, indices: Sequence[TensorType], *, axes: Sequence[int]) -> TensorType:
    """x[.., index, ..] with one i64 index for each of the increasing `axes`; negative values count from the end."""
    if not indices or len(indices) != len(axes) or sorted(axes) != list(axes):
        raise OptionError(f"{len(indices)} indices for axes {tuple(axes)}: expected one index for each increasing axis")
    check_axes(axes, len(x.shape))
    for one in indices:
        _check_index(one)
    position, rest = index_layout(len(x.shape), axes)
    sizes = [x.shape[axis] for axis in rest]
    sizes[position:position] = broadcast_shapes(*(one.shape for one in indices))
    return tensor(sizes, x.dtype)


def index_put(
    x: TensorType, value: TensorType, indices: Sequence[TensorType], *, axes: Sequence[int], accumulate: bool
) -> TensorType:
    """x with x[.., index, ..] = value (or += value); value broadcasts to the shape of x[.., index, ..]."""
    common_dtype((x, value))
    target = index(x, indices, axes=axes)
    check_same_shape(broadcast_shapes(target.shape, value.shape), target.shape, "the value with the indexed part")
    return x


# ---- creation and conversion -----------------------------------------------------------------------------------


def constant(*, data: bytes, shape: Sequence[Dim], dtype: DType) -> TensorType:
    """`data` holds the elements' bytes, little-endian and row-major."""
    count = product(shape).constant
    if count is None or len(data) != count * dtype.size_bytes:
        raise ShapeError(f"{len(data)} bytes are no data of shape {text(shape)} and dtype {dtype}")
    return tensor(shape, dtype)


def full(*, value: object, shape: Sequence[Dim], dtype: DType) -> TensorType:
    for size in shape:
        if known_less(size, 0):
            raise ShapeError(f"the shape {text(shape)} has a negative size")
    return tensor(shape, dtype)


def iota(*, shape: Sequence[Dim], axis: int, dtype: DType) -> TensorType:
    check_axis(axis, len(shape))
    return full(value=0, shape=shape, dtype=dtype)


def dim_value(*, dim: Dim) -> TensorType:
    return tensor((), i64)


def cast(x: TensorType, *, dtype: DType) -> TensorType:
    return tensor(x.shape, dtype)


def bitcast(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.size_bytes != dtype.size_bytes:
        raise DTypeError(f"{x.dtype} and {dtype} differ in size")
    return tensor(x.shape, dtype)


def where(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    check_class(condition.dtype, "bool")
    return tensor(broadcast_shapes(condition.shape, x.shape, y.shape), common_dtype((x, y)))


def extern(operands: Sequence[TensorType], *, target: str, payload: str, types: Sequence[Any]) -> list[TensorType]:
    return [tensor(shape, dtype) for dtype, *shape in types]
