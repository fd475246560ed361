"""Quantisers: from f32 to the planes of each block format, in NumPy.

`q8_0` and `q4_0` give the bits of the reference implementation (llama.cpp's, as in `gguf.quants.quantize`). Those of
`q4_k` and `q6_k` are our own: each group takes the scale that just holds it. The mx formats take the power of two of
the block's largest element over that of the element type's, as their specification does; `nvfp4` the nearest e4m3.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from luminal.dtype import DType, f4e2m1, f8e4m3fn, f8e5m2
from luminal.errors import ScalarError
from luminal.quantised import Array, format_of

Encode = Callable[[Array], dict[str, Array]]
"""From f32 [..., blocks, block] to planes."""


def quantise(data: Array, name: str) -> dict[str, Array]:
    """The planes of a tensor f32 [..., n] in the block format `name`.

    Raises OptionError for an unknown format, ShapeError where n is no multiple of its block, ScalarError for NaN and
    infinities, which no block format holds.
    """
    row = format_of(name)
    row.plane_types(data.shape)
    values = np.ascontiguousarray(data, np.float32)
    if not np.isfinite(values).all():
        raise ScalarError(f"quantise: {row.name} holds finite numbers alone; the data has NaN or infinities")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return _ENCODERS[row.name](values.reshape(*data.shape[:-1], -1, row.block))


def _inverse(scale: Array) -> Array:
    """1 / scale, and 0 for 0."""
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _signed_largest(groups: Array) -> Array:
    """The element of largest magnitude of each group, [..., 1]."""
    return np.take_along_axis(groups, np.abs(groups).argmax(-1, keepdims=True), -1)


def _away_from_zero(values: Array) -> Array:
    """To the nearest whole number, halves away from zero."""
    magnitude = np.abs(values)
    whole = np.floor(magnitude)
    return np.sign(values) * (whole + np.floor(2 * (magnitude - whole)))


def _halves(fields: Array, width: int) -> Array:
    """[..., count, m] fields of `width` bits as one byte for each of m, the first lowest: the reverse of spreading."""
    shifts = (np.arange(fields.shape[-2], dtype=np.uint8) * width)[:, None]
    return np.bitwise_or.reduce(fields.astype(np.uint8) << shifts, -2)


def _q8_0(blocks: Array) -> dict[str, Array]:
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    quants = _away_from_zero(blocks * _inverse(scale)).astype(np.int8)
    return {"quants": quants, "scales": scale[..., 0].astype(np.float16)}


def _q4_0(blocks: Array) -> dict[str, Array]:
    scale = _signed_largest(blocks) / np.float32(-8)
    quants = np.trunc(blocks * _inverse(scale) + np.float32(8.5)).astype(np.uint8).clip(0, 15)
    halves = quants.reshape(*quants.shape[:-1], 2, 16)
    return {"quants": _halves(halves, 4), "scales": scale[..., 0].astype(np.float16)}


def _shared(values: Array, highest: int) -> tuple[Array, Array]:
    """Values of the groups of a block as whole numbers up to `highest`, and the f16 that they are multiples of."""
    whole = (values.max(-1) / np.float32(highest)).astype(np.float16)
    factor = _inverse(whole.astype(np.float32))[..., None]
    return np.rint(values * factor).clip(0, highest).astype(np.uint8), whole


def _q4_k(blocks: Array) -> dict[str, Array]:
    groups = blocks.reshape(*blocks.shape[:-1], 8, 32)
    least = np.minimum(groups.min(-1), 0)
    scales, scale = _shared((np.maximum(groups.max(-1), 0) - least) / np.float32(15), 63)
    mins, minimum = _shared(-least, 63)
    step = scale.astype(np.float32)[..., None] * scales
    offset = minimum.astype(np.float32)[..., None] * mins
    quants = np.rint((groups + offset[..., None]) * _inverse(step)[..., None]).clip(0, 15)
    pairs = _halves(quants.reshape(*quants.shape[:-2], 4, 2, 32), 4)
    packed = pairs.reshape(*pairs.shape[:-2], 128)
    return {"quants": packed, "scales": scales, "mins": mins, "scale": scale, "min": minimum}


def _q6_k(blocks: Array) -> dict[str, Array]:
    groups = blocks.reshape(*blocks.shape[:-1], 16, 16)
    steps = _signed_largest(groups)[..., 0] / np.float32(-32)
    scale = (_signed_largest(steps) / np.float32(-128)).astype(np.float16)
    scales = np.rint(steps * _inverse(scale.astype(np.float32))).clip(-128, 127).astype(np.int8)
    step = (scale.astype(np.float32) * scales)[..., None]
    quants = (np.rint(groups * _inverse(step)).clip(-32, 31) + 32).astype(np.uint8)
    parts = quants.reshape(*quants.shape[:-2], 2, 4, 32)
    low = _halves((parts & 15).reshape(*parts.shape[:-2], 2, 64), 4)
    high = _halves(parts >> 4, 2)
    return {
        "low": low.reshape(*low.shape[:-2], 128),
        "high": high.reshape(*high.shape[:-2], 64),
        "scales": scales,
        "scale": scale[..., 0],
    }


def _exponents(blocks: Array, most: int) -> Array:
    """The e8m0 pattern of the largest power of two in each block over that of the element type."""
    _, exponent = np.frexp(np.abs(blocks).max(-1))
    return np.clip(exponent - 1 - most + 127, 0, 254).astype(np.uint8)


def _elements(values: Array, dtype: DType, largest: float) -> Array:
    """Bit patterns of the nearest elements, those beyond the largest clipped."""
    return np.clip(values, -largest, largest).astype(dtype.numpy).view(np.uint8)


def _pairs(elements: Array) -> Array:
    return elements[..., ::2] | (elements[..., 1::2] << 4)


def _mx(dtype: DType, largest: float, most: int) -> Encode:
    def encode(blocks: Array) -> dict[str, Array]:
        scales = _exponents(blocks, most)
        values = np.ldexp(blocks, 127 - scales.astype(np.int32)[..., None])
        elements = _elements(values, dtype, largest)
        return {"elements": _pairs(elements) if dtype is f4e2m1 else elements, "scales": scales}

    return encode


def _nvfp4(blocks: Array) -> dict[str, Array]:
    largest = np.abs(blocks).max(-1, initial=0)
    whole = np.asarray(largest.max(initial=0) / np.float32(448 * 6), np.float32)
    scales = np.minimum(largest / np.float32(6) * _inverse(whole), 448).astype(ml_dtypes.float8_e4m3fn)
    factor = _inverse(scales.astype(np.float32) * whole)[..., None]
    elements = _pairs(_elements(blocks * factor, f4e2m1, 6))
    return {"elements": elements, "scales": scales.view(np.uint8), "scale": whole}


_ENCODERS: dict[str, Encode] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
    "mxfp8": _mx(f8e4m3fn, 448, 8),
    "mxfp8_e5m2": _mx(f8e5m2, 57344, 15),
    "mxfp4": _mx(f4e2m1, 6, 2),
    "nvfp4": _nvfp4,
}
