"""Block-quantised tensors: each format as named planes, and its decoding in operations that torch and graphs share.

A tensor of shape [..., n] is n / block blocks per row. Planes hold what a block stores: `q8_0` is `quants`, i8
[..., n/32, 32], and `scales`, f16 [..., n/32]. Packed fields stay packed where shifts on the fly are cheap (nibbles),
and are spread where they are small (the 6-bit scales of `q4_k`), by `unpack`, once, at the border of a plan.
fp8 and fp4 elements are u8 planes of their bit patterns: integer operations decode them on every target.

What decodes a plane is written once, in the methods that `torch.Tensor` and `luminal.Tensor` have in common; `Ops`
names the rest. So eager, a compiled model and a graph built by hand do the same arithmetic in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, DimLike, dims, divide_exact
from luminal.dtype import DType, f4e2m1, f8e4m3fn, f8e5m2, f16, f32, i8, u8
from luminal.errors import DataSizeError, OptionError, ShapeError

Array = np.ndarray[Any, Any]
Planes = Mapping[str, Any]
"""Tensors of one front end, by the names of the planes."""


class Ops(Protocol):
    """What decoding needs of a front end beside the methods of its tensors: its dtypes, and two functions."""

    f32: Any
    f16: Any
    i32: Any
    i16: Any
    i8: Any

    def arange(self, count: int, like: Any) -> Any:
        """The numbers below `count` as u8, where `like` is."""
        ...

    def where(self, condition: Any, chosen: Any, other: Any) -> Any: ...


class Integers(NamedTuple):
    """Elements as scales * (quants - zero) - mins: quants [..., groups, size], scales and mins f32 [..., groups]."""

    quants: Any
    scales: Any
    zero: int = 0
    mins: Any = None


Read = Callable[[Planes, Ops], Integers]


@dataclass(frozen=True)
class Plane:
    """One stored field: `tail` is its shape per block; a plane with tail None is one scalar for the whole tensor."""

    name: str
    dtype: DType
    tail: tuple[int, ...] | None = ()


@dataclass(frozen=True)
class BlockFormat:
    """A block-quantised format. `unpack_blocks` takes stored bytes, u8 [..., blocks, bytes_per_block], to planes; where
    `has_integers` is false, the quants that `read` gives are f32."""

    name: str
    block: int
    planes: tuple[Plane, ...]
    read: Read
    bytes_per_block: int = 0
    unpack_blocks: Callable[[Array], dict[str, Array]] | None = None
    has_integers: bool = True

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

    def check(self, planes: Mapping[str, tuple[Sequence[DimLike], DType]]) -> tuple[Dim, ...]:
        """The shape of the tensor whose planes have these shapes and dtypes. OptionError, ShapeError where they are
        none."""
        if set(planes) != {plane.name for plane in self.planes}:
            expected = ", ".join(plane.name for plane in self.planes)
            raise OptionError(f"{self.name} has the planes {expected}; given were {', '.join(planes)}")
        first = self.planes[0]
        axes = dims(planes[first.name][0])
        position = len(axes) - 1 - len(first.tail or ())
        if position < 0:
            raise ShapeError(f"plane {first.name} of {self.name} has too few axes: {_text(axes)}")
        shape = (*axes[:position], axes[position] * self.block)
        for name, expected in self.plane_types(shape).items():
            found = tensor_type(*planes[name])
            if found != expected:
                raise ShapeError(f"plane {name} of {self.name} must be {expected}, not {found}")
        return shape

    def dequantise(self, planes: Planes, ops: Ops) -> Any:
        """The tensor [..., n] as f32."""
        quants, scales, zero, mins = self.read(planes, ops)
        values = quants.to(ops.f32)
        values = scales.unsqueeze(-1) * (values - zero if zero else values)
        if mins is not None:
            values = values - mins.unsqueeze(-1)
        *lead, groups, size = values.shape
        return values.reshape(*lead, groups * size)

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


def _spread(packed: Any, ops: Ops, count: int, width: int) -> Any:
    """`count` fields of `width` bits, from the lowest, of each u8 [..., m]: [..., count, m]."""
    shifts = (ops.arange(count, packed) * width).reshape(count, 1)
    return (packed.unsqueeze(-2) >> shifts) & ((1 << width) - 1)


def small_float(patterns: Any, ops: Ops, dtype: DType) -> Any:
    """The f32 value of u8 bit patterns of f8e4m3fn, f8e5m2 or f4e2m1, exactly, NaN and -0.0 included.

    A pattern's exponent and fraction are put where f16 has them; the two biases differ by a power of two.
    """
    left, scale, sign_at = {f4e2m1: (9, 2.0**14, 3), f8e4m3fn: (7, 2.0**8, 7), f8e5m2: (8, 1.0, 7)}[dtype]
    wide = patterns.to(ops.i16)
    magnitude = wide & ((1 << sign_at) - 1)
    half = (magnitude << left) | ((wide >> sign_at) << 15)
    value = half.view(ops.f16).to(ops.f32) * scale
    return ops.where(magnitude == 0x7F, float("nan"), value) if dtype is f8e4m3fn else value


def power_of_two(exponents: Any, ops: Ops) -> Any:
    """The f32 value of e8m0 scales: 2 ** (e - 127), and NaN for 255."""
    wide = exponents.to(ops.i32)
    bits = ops.where(wide == 0, 0x00400000, wide << 23)  # 2 ** -127 is subnormal
    return ops.where(wide == 255, 0x7FC00000, bits).view(ops.f32)


# ---- products with quantised activations -----------------------------------------------------------------------

ACTIVATIONS = 32
"""Activations that share a scale."""


def quantise_activations(x: Any, ops: Ops) -> tuple[Any, Any]:
    """f32 [..., k] as i8 [..., k / 32, 32] and f32 scales [..., k / 32]: the largest of a block becomes 127 or -127."""
    *lead, length = x.shape
    blocks = x.reshape(*lead, length // ACTIVATIONS, ACTIVATIONS)
    scales = blocks.abs().amax(-1, True) / 127.0
    factors = ops.where(scales == 0, 0.0, 1.0 / scales)
    return (blocks * factors).round().to(ops.i8), scales.reshape(*lead, length // ACTIVATIONS)


def integer_product(x: Any, weight: Integers, ops: Ops) -> Any:
    """x [m, k], quantised by blocks of 32, times the transpose of a weight [n, k]: f32 [m, n].

    Inside a group of the weight the sum is one of integers, which is exact; then come the scales, and a sum of f32.
    """
    quants, scales = quantise_activations(x, ops)
    rows, blocks, _ = quants.shape
    _, groups, size = weight.quants.shape
    left = quants.reshape(rows, groups, size).permute(1, 0, 2).to(ops.i32)
    right = weight.quants.permute(1, 2, 0).to(ops.i32)
    dots = left.matmul(right)
    sums = left.sum(-1, True, dtype=ops.i32)
    values = (dots - sums * weight.zero if weight.zero else dots).to(ops.f32)
    values = values * weight.scales.permute(1, 0).unsqueeze(1)
    if weight.mins is not None:
        values = values - sums.to(ops.f32) * weight.mins.permute(1, 0).unsqueeze(1)
    spread = scales.unsqueeze(-1).expand(rows, blocks, ACTIVATIONS // size).reshape(rows, groups)
    return (values * spread.permute(1, 0).unsqueeze(-1)).sum(0)


# ---- what blocks hold ------------------------------------------------------------------------------------------


def _q8_0(planes: Planes, ops: Ops) -> Integers:
    return Integers(planes["quants"], planes["scales"].to(ops.f32))


def _q4_0(planes: Planes, ops: Ops) -> Integers:
    nibbles = _spread(planes["quants"], ops, 2, 4)  # low nibbles are the first half of a block
    *lead, _, _ = nibbles.shape
    return Integers(nibbles.reshape(*lead, 32), planes["scales"].to(ops.f32), 8)


def _grouped(scale: Any, scales: Any, ops: Ops) -> Any:
    """The scales of the groups of each block, as factors of the block's own, along one axis."""
    products = scale.to(ops.f32).unsqueeze(-1) * scales.to(ops.f32)
    *lead, blocks, groups = products.shape
    return products.reshape(*lead, blocks * groups)


def _q4_k(planes: Planes, ops: Ops) -> Integers:
    *lead, blocks, _ = planes["quants"].shape
    quants = _spread(planes["quants"].reshape(*lead, blocks, 4, 32), ops, 2, 4)
    scales = _grouped(planes["scale"], planes["scales"], ops)
    mins = _grouped(planes["min"], planes["mins"], ops)
    return Integers(quants.reshape(*lead, blocks * 8, 32), scales, 0, mins)


def _q6_k(planes: Planes, ops: Ops) -> Integers:
    *lead, blocks, _ = planes["low"].shape
    # an element is (half, nibble, part, 32): low has [half, part, 32], high [half, 32] with 2 bits for each of four
    low = _spread(planes["low"].reshape(*lead, blocks, 2, 64), ops, 2, 4).reshape(*lead, blocks, 2, 4, 32)
    high = _spread(planes["high"].reshape(*lead, blocks, 2, 32), ops, 4, 2)
    quants = (low | (high << 4)).reshape(*lead, blocks * 16, 16)
    return Integers(quants, _grouped(planes["scale"], planes["scales"], ops), 32)


def _mxfp8(dtype: DType) -> Read:
    def read(planes: Planes, ops: Ops) -> Integers:
        return Integers(small_float(planes["elements"], ops, dtype), power_of_two(planes["scales"], ops))

    return read


def _fp4_pairs(packed: Any, ops: Ops) -> Any:
    """Elements two to a byte, the first in the low nibble."""
    *lead, half = packed.shape
    shifts = ops.arange(2, packed) * 4
    pairs = (packed.unsqueeze(-1) >> shifts) & 15
    return small_float(pairs.reshape(*lead, half * 2), ops, f4e2m1)


def _mxfp4(planes: Planes, ops: Ops) -> Integers:
    return Integers(_fp4_pairs(planes["elements"], ops), power_of_two(planes["scales"], ops))


def _nvfp4(planes: Planes, ops: Ops) -> Integers:
    scales = small_float(planes["scales"], ops, f8e4m3fn) * planes["scale"]
    return Integers(_fp4_pairs(planes["elements"], ops), scales)


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
    read: Read,
    bytes_per_block: int = 0,
    unpack: Callable[[Array], dict[str, Array]] | None = None,
) -> BlockFormat:
    made = tuple(Plane(*plane) for plane in planes)
    return BlockFormat(name, block, made, read, bytes_per_block, unpack, bytes_per_block > 0)


_BYTES32 = ("elements", u8, (32,))
FORMATS: dict[str, BlockFormat] = {
    row.name: row
    for row in (
        _format(
            "q8_0", 32, [("quants", i8, (32,)), ("scales", f16)], _q8_0, 34,
            lambda blocks: _fields(blocks, ("scales", np.float16, 0), ("quants", np.int8, 32)),
        ),
        _format(
            "q4_0", 32, [("quants", u8, (16,)), ("scales", f16)], _q4_0, 18,
            lambda blocks: _fields(blocks, ("scales", np.float16, 0), ("quants", np.uint8, 16)),
        ),
        _format(
            "q4_k", 256,
            [("quants", u8, (128,)), ("scales", u8, (8,)), ("mins", u8, (8,)), ("scale", f16), ("min", f16)],
            _q4_k, 144, _unpack_q4_k,
        ),
        _format(
            "q6_k", 256, [("low", u8, (128,)), ("high", u8, (64,)), ("scales", i8, (16,)), ("scale", f16)], _q6_k, 210,
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
    """The format of this name, in either case; OptionError for an unknown one."""
    if name.lower() not in FORMATS:
        raise OptionError(f"no block format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name.lower()]
