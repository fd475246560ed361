"""The dialect `wave`: operations on signals that hlo does not have, as rows of the same table.

`wave.hann_frames` cuts the last axis [n] into frames [count, size], `step` apart, each under a Hann window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.dialects.hlo import table
from luminal.dialects.hlo.expression import Expression
from luminal.dialects.tensor_type import TensorType
from luminal.dim import as_dim, known_less
from luminal.errors import DTypeError, OptionError, ShapeError


def hann(size: int) -> list[float]:
    return [float(value) for value in np.sin(np.pi * np.arange(size) / size) ** 2]


def infer(x: TensorType, size: int, step: int) -> TensorType:
    if not x.dtype.is_float:
        raise DTypeError(f"frames are of floats, not {x.dtype}")
    if size < 1 or step < 1:
        raise OptionError(f"size and step must be from 1 on, not {size} and {step}")
    if not x.shape or known_less(x.shape[-1], size):
        raise ShapeError(f"frames of {size} do not fit in {x}")
    *outer, length = x.shape
    return TensorType(((*outer, (length - size) // step + 1, as_dim(size)), x.dtype))


def decompose(x: Expression, size: int, step: int) -> Expression:
    """The meaning in primitives; every target and every pass can work with it from here on."""
    frames = x.window(axis=x.rank - 1, size=size, step=step)
    window = x.emitter.wrap(x.emitter.dense(np.array(hann(size)))).cast(x.dtype)
    return frames * window.expand(frames.shape)


def interpret(x: np.ndarray[Any, Any], size: int, step: int) -> np.ndarray[Any, Any]:
    """The same in NumPy, written on its own, for the tests and the reference runtime."""
    starts = range(0, x.shape[-1] - size + 1, step)
    return np.stack([x[..., start : start + size] for start in starts], axis=-2) * np.array(
        hann(size), x.dtype
    )


table.define("wave.hann_frames", "x | size:int step:int", infer, decompose, interpret)
dialect = table.dialect("wave")
