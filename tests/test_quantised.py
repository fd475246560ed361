"""Block-quantised formats against plain element-by-element decoders, written from the formats' definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from torch_bits import as_torch, patterns

import luminal as lm
from luminal.dim import dim
from luminal.dtype import DType, bf16, dtype_of, f4e2m1, f8e4m3fn, f8e5m2, f32
from luminal.errors import DataSizeError, OptionError, ShapeError
from luminal.quantised import FORMATS, format_of, power_of_two, small_float
from luminal.quantised_graph import OPS

Array = np.ndarray[Any, Any]
f = np.float32


def half(raw: Array) -> Any:
    return f(np.frombuffer(raw.tobytes(), np.float16)[0])


def q8_0(raw: Array) -> list[Any]:
    return [half(raw[:2]) * f(q) for q in raw[2:].view(np.int8)]


def q4_0(raw: Array) -> list[Any]:
    nibbles = [int(q) & 15 for q in raw[2:]] + [int(q) >> 4 for q in raw[2:]]
    return [half(raw[:2]) * f(q - 8) for q in nibbles]


def q4_k(raw: Array) -> list[Any]:
    d, least, packed, quants = half(raw[:2]), half(raw[2:4]), [int(q) for q in raw[4:16]], raw[16:]
    found: list[Any] = []
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4
            minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4
        for l in range(32):  # noqa: E741
            q = (int(quants[j // 2 * 32 + l]) >> (4 * (j % 2))) & 15
            found.append(d * f(scale) * f(q) - least * f(minimum))
    return found


def q6_k(raw: Array) -> list[Any]:
    low, high, scales, d = raw[:128], raw[128:192], raw[192:208].view(np.int8), half(raw[208:])
    found = np.zeros(256, np.float32)
    for n in range(2):
        for l in range(32):  # noqa: E741
            ql, qh, sc = low[64 * n :], int(high[32 * n + l]), scales[8 * n + l // 16 :]
            for k, nibble in enumerate(
                (int(ql[l]) & 15, int(ql[l + 32]) & 15, int(ql[l]) >> 4, int(ql[l + 32]) >> 4)
            ):
                q = (nibble | ((qh >> (2 * k)) & 3) << 4) - 32
                found[128 * n + l + 32 * k] = d * f(sc[2 * k]) * f(q)
    return list(found)


STORED: dict[str, Callable[[Array], list[Any]]] = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k, "q6_k": q6_k}


def interpreted(function: Callable[..., lm.Tensor], *arrays: Array) -> Array:
    """What a function of graph tensors gives in the reference interpreter."""
    cx = lm.Graph()
    inputs = [cx.tensor(array.shape, array.dtype) for array in arrays]
    result = function(*inputs).output()
    cx.build_search_space(lm.ReferenceRuntime)
    rt = cx.search(lm.ReferenceRuntime(), 1)
    for tensor, array in zip(inputs, arrays, strict=True):
        rt.set_data(tensor, array)
    rt.execute()
    return rt.get_numpy(result)


def dequantise(name: str, planes: dict[str, Array], dtype: Any = f32) -> Array:
    def decoded(*tensors: lm.Tensor) -> lm.Tensor:
        return FORMATS[name].dequantise(dict(zip(planes, tensors, strict=True)), OPS).cast(dtype)

    return interpreted(decoded, *planes.values())


@pytest.mark.parametrize("name", STORED)
def test_stored_formats(name: str) -> None:
    row, rng = FORMATS[name], np.random.default_rng(0)
    raw = rng.integers(0, 256, (3, 2, row.bytes_per_block), dtype=np.uint8)
    for at in {"q8_0": [0], "q4_0": [0], "q4_k": [0, 2], "q6_k": [208]}[name]:  # finite f16 scales
        raw[..., at : at + 2] = rng.standard_normal((3, 2, 1)).astype(np.float16).view(np.uint8)
    shape = (3, 2 * row.block)
    planes = row.unpack(raw.tobytes(), shape)
    types = row.plane_types(shape)
    assert {key: (plane.shape, plane.dtype) for key, plane in planes.items()} == {
        key: (tuple(map(int, type_.shape)), type_.dtype.numpy) for key, type_ in types.items()
    }
    expected = np.array([[x for block in line for x in STORED[name](block)] for line in raw], np.float32)
    ordered = {plane.name: planes[plane.name] for plane in row.planes}
    assert np.array_equal(dequantise(name, ordered), expected)
    assert patterns(dequantise(name, ordered, bf16)) == patterns(as_torch(expected).bfloat16())


@pytest.mark.parametrize("dtype", [f8e4m3fn, f8e5m2, f4e2m1], ids=str)
def test_every_small_float(dtype: DType) -> None:
    every = np.arange(1 << dtype.bits, dtype=np.uint8)
    found = interpreted(lambda tensor: small_float(tensor, OPS, dtype), every)
    assert patterns(found) == patterns(every.view(dtype.numpy).astype(np.float32))


def test_every_power_of_two() -> None:
    every = np.arange(256, dtype=np.uint8)
    expected = every.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert patterns(interpreted(lambda tensor: power_of_two(tensor, OPS), every)) == patterns(expected)


def pairs(packed: Array) -> Array:
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
    return nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "element"), [("mxfp8", ml_dtypes.float8_e4m3fn), ("mxfp8_e5m2", ml_dtypes.float8_e5m2)]
)
def test_mxfp8(name: str, element: Any) -> None:
    rng = np.random.default_rng(1)
    elements = rng.integers(0, 256, (2, 3, 32), dtype=np.uint8)
    scales = rng.integers(90, 160, (2, 3), dtype=np.uint8)
    expected = elements.view(element).astype(np.float32) * np.exp2(scales.astype(np.float32) - 127)[..., None]
    found = dequantise(name, {"elements": elements, "scales": scales})
    assert patterns(found) == patterns(expected.reshape(2, 96))


def test_fp4_formats() -> None:
    rng = np.random.default_rng(2)
    elements, scales = (
        rng.integers(0, 256, (2, 3, 16), dtype=np.uint8),
        rng.integers(90, 160, (2, 3), dtype=np.uint8),
    )
    expected = pairs(elements) * np.exp2(scales.astype(np.float32) - 127)[..., None]
    assert np.array_equal(
        dequantise("mxfp4", {"elements": elements, "scales": scales}), expected.reshape(2, 96)
    )
    elements, scales = elements[..., :8], rng.integers(0, 0x7F, (2, 3), dtype=np.uint8)
    whole = np.array(0.37, np.float32)
    expected = pairs(elements) * (scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * whole)[..., None]
    found = dequantise(
        "nvfp4", {"elements": np.ascontiguousarray(elements), "scales": scales, "scale": whole}
    )
    assert np.array_equal(found, expected.reshape(2, 48))


def test_symbolic_rows() -> None:
    s = dim("s", 1)
    types = FORMATS["q8_0"].plane_types((s, 64))
    assert list(map(str, types.values())) == ["i8[s, 2, 32]", "f16[s, 2]"]
    assert str(FORMATS["q4_k"].plane_types((s, 256 * s))["mins"]) == "u8[s, s, 8]"


def test_errors() -> None:
    with pytest.raises(OptionError, match="no block format 'Q5_0'"):
        format_of("Q5_0")
    with pytest.raises(ShapeError, match=r"blocks of 32 along the last axis; \[2, 33\] has not"):
        format_of("q8_0").plane_types((2, 33))
    with pytest.raises(ShapeError, match="has not"):
        format_of("q8_0").plane_types(())
    with pytest.raises(DataSizeError, match="has 68 bytes, not 67"):
        format_of("q8_0").unpack(bytes(67), (2, 32))
    with pytest.raises(OptionError, match="nothing to unpack"):
        format_of("mxfp4").unpack(bytes(68), (2, 32))
    quants = ((1, 32), dtype_of("i8"))
    with pytest.raises(OptionError, match="has the planes quants, scales; given were quants"):
        format_of("Q8_0").check({"quants": quants})
    with pytest.raises(ShapeError, match=r"plane scales of q8_0 must be f16\[1\], not f16\[2\]"):
        format_of("q8_0").check({"quants": quants, "scales": ((2,), dtype_of("f16"))})
    with pytest.raises(ShapeError, match="too few axes"):
        format_of("q8_0").check({"quants": ((32,), dtype_of("i8")), "scales": ((2,), dtype_of("f16"))})
