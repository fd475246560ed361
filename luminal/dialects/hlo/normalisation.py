"""Rows that normalise: softmax, and the norms with their affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.elementwise import Array, of_doubles
from luminal.dialects.hlo.expression import Expression
from luminal.dialects.hlo.reduction import mean
from luminal.dialects.hlo.shapes import check_class, check_same_shape, common_dtype, text
from luminal.dialects.hlo.table import define
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, known_equal
from luminal.errors import ShapeError

# ---- inference -------------------------------------------------------------------------------------------------


def _check_parameters(x: TensorType, sizes: Sequence[Dim], *parameters: TensorType | None) -> TensorType:
    for parameter in parameters:
        if parameter is not None:
            common_dtype((x, parameter))
            check_same_shape(parameter.shape, sizes, "a parameter")
    return x


def _infer_norm(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None = None,
    *,
    axes: Sequence[int],
    epsilon: float,
) -> TensorType:
    """weight and bias have the sizes of `axes`, which rise."""
    check_class(x.dtype, "float")
    sizes = tuple(x.shape[axis] for axis in sorted(shapes.check_axes(axes, len(x.shape))))
    return _check_parameters(x, sizes, weight, bias)


def _infer_group_norm(
    x: TensorType, weight: TensorType | None, bias: TensorType | None, *, groups: int, epsilon: float
) -> TensorType:
    """x [n, c, ...] with c a multiple of groups; weight and bias [c]."""
    check_class(x.dtype, "float")
    if len(x.shape) < 2 or groups < 1 or not known_equal(x.shape[1] % groups, 0):
        raise ShapeError(f"{text(x.shape)} does not have channels that divide into {groups} groups")
    return _check_parameters(x, x.shape[1:2], weight, bias)


def _infer_batch_norm(x: TensorType, *parameters: TensorType | None, epsilon: float) -> TensorType:
    """x [n, c, ...]; mean, variance, weight and bias [c]."""
    check_class(x.dtype, "float")
    if len(x.shape) < 2:
        raise ShapeError(f"{text(x.shape)} has no channel axis")
    return _check_parameters(x, x.shape[1:2], *parameters)


# ---- in primitives ---------------------------------------------------------------------------------------------


def _softmax(x: Expression, axis: int) -> Expression:
    shifted = (x - x.max([axis], True).expand(x.shape)).exp()
    return shifted / shifted.sum([axis], True).expand(x.shape)


def _log_softmax(x: Expression, axis: int) -> Expression:
    shifted = x - x.max([axis], True).expand(x.shape)
    return shifted - shifted.exp().sum([axis], True).log().expand(x.shape)


def _affine(
    x: Expression, weight: Expression | None, bias: Expression | None, axes: Sequence[int]
) -> Expression:
    """x * weight + bias, whose axes are those `axes` of x."""
    rest = [axis for axis in range(x.rank) if axis not in axes]
    if weight is not None:
        x = x * weight.insert_axes(rest).expand(x.shape)
    if bias is not None:
        x = x + bias.insert_axes(rest).expand(x.shape)
    return x


def _standardise(x: Expression, axes: Sequence[int], epsilon: float) -> Expression:
    distance = x - mean(x, axes, True).expand(x.shape)
    scale = 1.0 / (mean(distance * distance, axes, True) + epsilon).sqrt()
    return distance * scale.expand(x.shape)


def _layer_norm(
    x: Expression, weight: Expression | None, bias: Expression | None, axes: Sequence[int], epsilon: float
) -> Expression:
    return _affine(_standardise(x, axes, epsilon), weight, bias, axes)


def _rms_norm(x: Expression, weight: Expression | None, axes: Sequence[int], epsilon: float) -> Expression:
    scale = 1.0 / (mean(x * x, axes, True) + epsilon).sqrt()
    return _affine(x * scale.expand(x.shape), weight, None, axes)


def _group_norm(
    x: Expression, weight: Expression | None, bias: Expression | None, groups: int, epsilon: float
) -> Expression:
    grouped = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = _standardise(grouped, range(2, grouped.rank), epsilon).reshape(x.shape)
    return _affine(normal, weight, bias, [1])


def _batch_norm(
    x: Expression,
    mean_: Expression,
    variance_: Expression,
    weight: Expression | None,
    bias: Expression | None,
    epsilon: float,
) -> Expression:
    def along(parameter: Expression) -> Expression:
        return parameter.reshape((parameter.shape[0], *[1] * (x.rank - 2))).expand(x.shape)

    scale = 1.0 / (variance_ + epsilon).sqrt()
    return _affine((x - along(mean_)) * along(scale), weight, bias, [1])


# ---- in NumPy --------------------------------------------------------------------------------------------------


def _softmax_array(x: Array, axis: int) -> Array:
    shifted = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return shifted / shifted.sum(axis, keepdims=True)


def _log_softmax_array(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _place(parameter: Array | None, rank: int, axes: Sequence[int], neutral: float) -> Array | float:
    if parameter is None:
        return neutral
    return np.expand_dims(parameter, [axis for axis in range(rank) if axis not in axes])


def _layer_norm_array(
    x: Array, weight: Array | None, bias: Array | None, axes: Sequence[int], epsilon: float
) -> Array:
    scale = 1 / np.sqrt(x.var(tuple(axes), keepdims=True) + epsilon)
    normal = (x - x.mean(tuple(axes), keepdims=True)) * scale
    return normal * _place(weight, x.ndim, axes, 1.0) + _place(bias, x.ndim, axes, 0.0)


def _rms_norm_array(x: Array, weight: Array | None, axes: Sequence[int], epsilon: float) -> Array:
    scale = 1 / np.sqrt(np.square(x).mean(tuple(axes), keepdims=True) + epsilon)
    return x * scale * _place(weight, x.ndim, axes, 1.0)


def _group_norm_array(
    x: Array, weight: Array | None, bias: Array | None, groups: int, epsilon: float
) -> Array:
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    normal = _layer_norm_array(grouped, None, None, range(2, grouped.ndim), epsilon).reshape(x.shape)
    return normal * _place(weight, x.ndim, [1], 1.0) + _place(bias, x.ndim, [1], 0.0)


def _batch_norm_array(
    x: Array, mean: Array, variance: Array, weight: Array | None, bias: Array | None, epsilon: float
) -> Array:
    normal = (x - _place(mean, x.ndim, [1], 0.0)) / np.sqrt(_place(variance, x.ndim, [1], 1.0) + epsilon)
    return normal * _place(weight, x.ndim, [1], 1.0) + _place(bias, x.ndim, [1], 0.0)


AFFINE = "weight? bias?"
NORMS: dict[str, tuple[str, Callable[..., TensorType], Callable[..., Any], Callable[..., Any]]] = {
    "softmax": ("x | axis:int", shapes.same("float"), _softmax, _softmax_array),
    "log_softmax": ("x | axis:int", shapes.same("float"), _log_softmax, _log_softmax_array),
    "layer_norm": (f"x {AFFINE} | axes:ints epsilon:float=1e-5", _infer_norm, _layer_norm, _layer_norm_array),
    "rms_norm": ("x weight? | axes:ints epsilon:float", _infer_norm, _rms_norm, _rms_norm_array),
    "group_norm": (
        f"x {AFFINE} | groups:int epsilon:float=1e-5",
        _infer_group_norm,
        _group_norm,
        _group_norm_array,
    ),
    "batch_norm": (
        f"x mean variance {AFFINE} | epsilon:float=1e-5",
        _infer_batch_norm,
        _batch_norm,
        _batch_norm_array,
    ),
}
"""Signature, inference, the spelling in primitives, NumPy."""

for _name, (_signature, _infer, _decompose, _interpret) in NORMS.items():
    define(_name, _signature, _infer, _decompose, of_doubles(_interpret), wide=True)
