"""Block-quantised tensors: each format as named planes, and its dequantisation in primitives.

A tensor of shape [..., n] is n / block blocks per row. Planes hold what a block stores: `Q8_0` is `quants`, i8
[..., n/32, 32], and `scales`, f16 [..., n/32]. Packed fields stay packed where shifts on the fly are cheap (nibbles),
and are spread where they are small (the 6-bit scales of `Q4_K`), by `unpack`, once, at the border of a plan.
fp8 and fp4 elements are u8 planes of their bit patterns: integer operations decode them on every target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from luminal.dialects.primitive.build import PrimitiveBuilder, type_of
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, DimLike, as_dim, dims, divide_exact
from luminal.dtype import DType, DTypeLike, f4e2m1, f8e4m3fn, f8e5m2, f16, f32, i8, i16, i32, u8
from luminal.errors import DataSizeError, OptionError, ShapeError

Array = np.ndarray[Any, Any]
Planes = Mapping[str, SSAValue]
Decode = Callable[[PrimitiveBuilder, Planes], SSAValue]
"""From planes to the elements, f32 [..., blocks, block]."""


@dataclass(frozen=True)
class Plane:
    """One stored field: `tail` is its shape per block; a plane with tail None is one scalar for the whole tensor."""

    name: str
    dtype: DType
    tail: tuple[int, ...] | None = ()


@dataclass(frozen=True)
class BlockFormat:
    """A block-quantised format. `unpack_blocks` takes stored bytes, u8 [..., blocks, bytes_per_block], to planes."""

    name: str
    block: int
    planes: tuple[Plane, ...]
    decode: Decode
    bytes_per_block: int = 0
    unpack_blocks: Callable[[Array], dict[str, Array]] | None = None

    def plane_types(self, shape: Sequence[DimLike]) -> dict[str, TensorType]:
        """The types of the planes of a tensor of `shape`; ShapeError where the last dim is no multiple of the block."""
        whole = dims(shape)
        blocks = divide_exact(whole[-1], self.block) if whole else None
        if blocks is None:
            raise ShapeError(
                f"{self.name} has blocks of {self.block} along the last axis; {_text(whole)} has not"
            )
        return {
            plane.name: tensor_type(
                () if plane.tail is None else (*whole[:-1], blocks, *plane.tail), plane.dtype
            )
            for plane in self.planes
        }

    def dequantise(self, build: PrimitiveBuilder, planes: Planes, dtype: DTypeLike = f32) -> SSAValue:
        """The tensor [..., n] as `dtype`, decoded in f32. Raises OptionError and ShapeError for wrong planes."""
        if set(planes) != {plane.name for plane in self.planes}:
            expected = ", ".join(plane.name for plane in self.planes)
            raise OptionError(f"{self.name} has the planes {expected}; given were {', '.join(planes)}")
        first = type_of(planes[self.planes[0].name])
        shape = (*first.shape[: first.rank - 1 - len(self.planes[0].tail or ())], self._length(first))
        for name, expected in self.plane_types(shape).items():
            if planes[name].type != expected:
                raise ShapeError(f"plane {name} of {self.name} must be {expected}, not {planes[name].type}")
        return build.cast(build.reshape(self.decode(build, planes), shape), dtype)

    def _length(self, first: TensorType) -> Dim:
        """The last dim of the tensor, by the first plane, which is per block."""
        position = first.rank - 1 - len(self.planes[0].tail or ())
        if position < 0:
            raise ShapeError(f"plane {self.planes[0].name} of {self.name} has too few axes: {first}")
        return first.shape[position] * self.block

    def unpack(self, data: bytes | Array, shape: Sequence[int]) -> dict[str, Array]:
        """The planes of a stored tensor. Raises OptionError for a format that is stored as planes already,
        DataSizeError where the bytes do not fit the shape."""
        if self.unpack_blocks is None:
            raise OptionError(f"{self.name} is stored as planes; there is nothing to unpack")
        self.plane_types(shape)
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        stored = (*shape[:-1], shape[-1] // self.block, self.bytes_per_block)
        if raw.size != np.prod(stored, dtype=np.int64):
            raise DataSizeError(
                f"{self.name} of shape {list(shape)} has {np.prod(stored)} bytes, not {raw.size}"
            )
        return self.unpack_blocks(raw.reshape(stored))


def _text(shape: tuple[Dim, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


# ---- pieces of decoding ----------------------------------------------------------------------------------------


def _spread(build: PrimitiveBuilder, packed: SSAValue, axis: int, count: int, width: int) -> SSAValue:
    """`count` fields of `width` bits, from the lowest, of each u8, on a new axis at `axis`."""
    shape = type_of(packed).shape
    wide = (*shape[:axis], as_dim(count), *shape[axis:])
    repeated = build.expand(build.reshape(packed, (*shape[:axis], 1, *shape[axis:])), wide)
    shift = build.mul(build.cast(build.iota(wide, axis), u8), build.full(width, wide, u8))
    return build.bits(build.bits(repeated, shift, "shr"), build.full((1 << width) - 1, wide, u8), "and")


def _per_block(build: PrimitiveBuilder, scale: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """A value per block (or per sub-block) as f32, repeated over the axes that it lacks at the end."""
    scale = build.cast(scale, f32)
    have = type_of(scale).shape
    return build.expand(build.reshape(scale, (*have, *[1] * (len(shape) - len(have)))), shape)


def small_float(build: PrimitiveBuilder, patterns: SSAValue, dtype: DType) -> SSAValue:
    """The f32 value of u8 bit patterns of f8e4m3fn, f8e5m2 or f4e2m1, exactly, NaN and -0.0 included.

    A pattern's exponent and fraction are put where f16 has them; the two biases differ by a power of two.
    """
    left, scale, sign_at = {f4e2m1: (9, 2.0**14, 3), f8e4m3fn: (7, 2.0**8, 7), f8e5m2: (8, 1.0, 7)}[dtype]
    shape = type_of(patterns).shape
    wide = build.cast(patterns, i16)

    def number(value: int) -> SSAValue:
        return build.full(value, shape, i16)

    magnitude = build.bits(wide, number((1 << sign_at) - 1), "and")
    sign = build.bits(build.bits(wide, number(sign_at), "shr"), number(15), "shl")
    half = build.bits(build.bits(magnitude, number(left), "shl"), sign, "or")
    value = build.mul(build.cast(build.cast(half, f16, "bits"), f32), build.full(scale, shape, f32))
    if dtype is not f8e4m3fn:
        return value
    is_nan = build.compare(magnitude, number(0x7F), "eq")
    return build.select(is_nan, build.full(float("nan"), shape, f32), value)


def power_of_two(build: PrimitiveBuilder, exponents: SSAValue) -> SSAValue:
    """The f32 value of e8m0 scales: 2 ** (e - 127), and NaN for 255."""
    shape = type_of(exponents).shape
    wide = build.cast(exponents, i32)

    def number(value: int) -> SSAValue:
        return build.full(value, shape, i32)

    bits = build.bits(wide, number(23), "shl")
    bits = build.select(
        build.compare(wide, number(0), "eq"), number(0x00400000), bits
    )  # 2 ** -127 is subnormal
    bits = build.select(build.compare(wide, number(255), "eq"), number(0x7FC00000), bits)
    return build.cast(bits, f32, "bits")


# ---- decoders --------------------------------------------------------------------------------------------------


def _q8_0(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    quants = build.cast(planes["quants"], f32)
    return build.mul(_per_block(build, planes["scales"], type_of(quants).shape), quants)


def _q4_0(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    axis = type_of(planes["quants"]).rank - 1  # low nibbles are the first half of a block
    quants = build.cast(_spread(build, planes["quants"], axis, 2, 4), f32)
    centred = build.sub(quants, build.full_like(8, quants))
    return build.mul(_per_block(build, planes["scales"], type_of(quants).shape), centred)


def _q4_k(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    packed = planes["quants"]
    *lead, _ = type_of(packed).shape
    quants = build.cast(_spread(build, build.reshape(packed, (*lead, 4, 32)), len(lead) + 1, 2, 4), f32)
    shape = (*lead, as_dim(8), as_dim(32))
    quants = build.reshape(quants, shape)
    eight = (*lead, as_dim(8))
    scale = build.mul(_per_block(build, planes["scale"], eight), build.cast(planes["scales"], f32))
    least = build.mul(_per_block(build, planes["min"], eight), build.cast(planes["mins"], f32))
    return build.sub(build.mul(_per_block(build, scale, shape), quants), _per_block(build, least, shape))


def _q6_k(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    *lead, _ = type_of(planes["low"]).shape
    rank = len(lead)
    # an element is (half, nibble, part, 32): low has [half, part, 32], high [half, 32] with 2 bits for each of four
    low = _spread(build, build.reshape(planes["low"], (*lead, 2, 2, 32)), rank + 1, 2, 4)
    high = _spread(build, build.reshape(planes["high"], (*lead, 2, 32)), rank + 1, 4, 2)
    shape = type_of(low).shape
    high = build.bits(build.reshape(high, shape), build.full(4, shape, u8), "shl")
    quants = build.cast(build.bits(low, high, "or"), f32)
    sixteen = (*lead, as_dim(16))
    scale = build.mul(_per_block(build, planes["scale"], sixteen), build.cast(planes["scales"], f32))
    centred = build.reshape(build.sub(quants, build.full_like(32, quants)), (*lead, 16, 16))
    return build.mul(_per_block(build, scale, (*lead, as_dim(16), as_dim(16))), centred)


def _mxfp8(dtype: DType) -> Decode:
    def decode(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
        elements = small_float(build, planes["elements"], dtype)
        return build.mul(
            elements, _per_block(build, power_of_two(build, planes["scales"]), type_of(elements).shape)
        )

    return decode


def _fp4_pairs(build: PrimitiveBuilder, packed: SSAValue) -> SSAValue:
    """Elements two to a byte, the first in the low nibble."""
    *lead, half = type_of(packed).shape
    pairs = _spread(build, packed, len(lead) + 1, 2, 4)
    return small_float(build, build.reshape(pairs, (*lead, half * 2)), f4e2m1)


def _mxfp4(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    elements = _fp4_pairs(build, planes["elements"])
    return build.mul(
        elements, _per_block(build, power_of_two(build, planes["scales"]), type_of(elements).shape)
    )


def _nvfp4(build: PrimitiveBuilder, planes: Planes) -> SSAValue:
    elements = _fp4_pairs(build, planes["elements"])
    scales = small_float(build, planes["scales"], f8e4m3fn)
    whole = build.broadcast_to(planes["scale"], type_of(scales).shape)
    return build.mul(elements, _per_block(build, build.mul(scales, whole), type_of(elements).shape))


# ---- stored bytes, as GGUF lays them out -----------------------------------------------------------------------


def _fields(blocks: Array, *fields: tuple[str, type, int]) -> dict[str, Array]:
    """Consecutive fields (name, NumPy type, count) of each block; a count of 0 is one element without an axis."""
    found: dict[str, Array] = {}
    at = 0
    for name, kind, count in fields:
        size = np.dtype(kind).itemsize * max(count, 1)
        part = np.ascontiguousarray(blocks[..., at : at + size]).view(kind)
        found[name], at = part if count else part[..., 0], at + size
    return found


def _unpack_q4_k(blocks: Array) -> dict[str, Array]:
    stored = _fields(
        blocks,
        ("scale", np.float16, 0),
        ("min", np.float16, 0),
        ("packed", np.uint8, 12),
        ("quants", np.uint8, 128),
    )
    packed = stored.pop("packed")
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], -1)
    mins = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], -1)
    return {**stored, "scales": scales, "mins": mins}


def _format(
    name: str,
    block: int,
    planes: Sequence[tuple[Any, ...]],
    decode: Decode,
    bytes_per_block: int = 0,
    unpack: Callable[[Array], dict[str, Array]] | None = None,
) -> BlockFormat:
    return BlockFormat(name, block, tuple(Plane(*plane) for plane in planes), decode, bytes_per_block, unpack)


_BYTES32 = ("elements", u8, (32,))
FORMATS: dict[str, BlockFormat] = {
    row.name: row
    for row in (
        _format(
            "Q8_0", 32, [("quants", i8, (32,)), ("scales", f16)], _q8_0, 34,
            lambda blocks: _fields(blocks, ("scales", np.float16, 0), ("quants", np.int8, 32)),
        ),
        _format(
            "Q4_0", 32, [("quants", u8, (16,)), ("scales", f16)], _q4_0, 18,
            lambda blocks: _fields(blocks, ("scales", np.float16, 0), ("quants", np.uint8, 16)),
        ),
        _format(
            "Q4_K", 256,
            [("quants", u8, (128,)), ("scales", u8, (8,)), ("mins", u8, (8,)), ("scale", f16), ("min", f16)],
            _q4_k, 144, _unpack_q4_k,
        ),
        _format(
            "Q6_K", 256, [("low", u8, (128,)), ("high", u8, (64,)), ("scales", i8, (16,)), ("scale", f16)], _q6_k, 210,
            lambda blocks: _fields(
                blocks, ("low", np.uint8, 128), ("high", np.uint8, 64), ("scales", np.int8, 16),
                ("scale", np.float16, 0),
            ),
        ),
        _format("mxfp8", 32, [_BYTES32, ("scales", u8)], _mxfp8(f8e4m3fn)),
        _format("mxfp8_e5m2", 32, [_BYTES32, ("scales", u8)], _mxfp8(f8e5m2)),
        _format("mxfp4", 32, [("elements", u8, (16,)), ("scales", u8)], _mxfp4),
        _format("nvfp4", 16, [("elements", u8, (8,)), ("scales", u8), ("scale", f32, None)], _nvfp4),
    )
}  # fmt: skip
"""By name. `nvfp4` has e4m3fn scales and one f32 `scale` for the tensor; the mx formats have e8m0 scales."""


def format_of(name: str) -> BlockFormat:
    """The format of this name; OptionError for an unknown one."""
    if name not in FORMATS:
        raise OptionError(f"no block format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]
