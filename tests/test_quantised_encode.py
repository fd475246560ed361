"""Quantisers: bit for bit the reference's where there is one, else within the error that the format allows."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_quantised import dequantise

from luminal.errors import OptionError, ScalarError, ShapeError
from luminal.quantised import FORMATS
from luminal.quantised_encode import quantise

Array = np.ndarray[Any, Any]
REFERENCE = {name: gguf.GGMLQuantizationType[name.upper()] for name in ("q8_0", "q4_0", "q4_k", "q6_k")}
ERRORS = {
    "q8_0": 0.007, "q4_0": 0.1, "q4_k": 0.1, "q6_k": 0.025, "mxfp8": 0.04, "mxfp8_e5m2": 0.08, "mxfp4": 0.15,
    "nvfp4": 0.12,
}  # fmt: skip
"""Root mean square error of each format on normal numbers, relative to theirs: at most so much."""


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def decoded(data: Array, name: str) -> Array:
    planes = quantise(data, name)
    return dequantise(name, {plane.name: planes[plane.name] for plane in FORMATS[name].planes})


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
@given(
    data=arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.sampled_from([32, 64])),
        elements=st.floats(-1e4, 1e4, width=32),
    )
)
@settings(max_examples=40, deadline=None)
def test_bits_of_the_reference(name: str, data: Array) -> None:
    with np.errstate(all="ignore"):
        stored = gguf.quants.quantize(data, REFERENCE[name])
        expected = FORMATS[name].unpack(stored, data.shape)
    found = quantise(data, name)
    assert {key: plane.tobytes() for key, plane in found.items()} == {
        key: plane.tobytes() for key, plane in expected.items()
    }


@pytest.mark.parametrize("name", REFERENCE)
def test_stored_bytes_decode_as_the_reference_does(name: str) -> None:
    row = FORMATS[name]
    raw = np.random.default_rng(1).integers(
        0, 128, (3, 2 * row.bytes_per_block), dtype=np.uint8
    )  # finite scales
    planes = row.unpack(raw, (3, 2 * row.block))
    found = dequantise(name, {plane.name: planes[plane.name] for plane in row.planes})
    np.testing.assert_array_equal(found, gguf.quants.dequantize(raw, REFERENCE[name]))


@pytest.mark.parametrize("name", FORMATS)
def test_errors_are_those_of_the_format(name: str) -> None:
    data = normal(32, 512)
    error = np.sqrt(np.mean((decoded(data, name) - data) ** 2) / np.mean(data**2))
    assert 0 < error < ERRORS[name]


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_and_what_the_format_holds_are_exact(name: str) -> None:
    assert not decoded(np.zeros((1, 256), np.float32), name).any()
    held = decoded(normal(2, 256, seed=2), name)
    again = decoded(held, name)
    np.testing.assert_allclose(again, held, rtol=0, atol=0.08 * np.abs(held).max())


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_tiny_or_huge_stays_finite(name: str) -> None:
    data = np.concatenate([normal(1, 256) * np.float32(1e-38), normal(1, 256) * np.float32(1e4)])
    assert np.isfinite(decoded(data, name)).all()


def test_what_cannot_be_quantised() -> None:
    with pytest.raises(ScalarError, match="q8_0 holds finite numbers alone"):
        quantise(np.full((1, 32), np.nan, np.float32), "q8_0")
    with pytest.raises(ShapeError, match="blocks of 256"):
        quantise(normal(2, 32), "q4_k")
    with pytest.raises(OptionError, match="no block format 'q3_k'"):
        quantise(normal(2, 256), "q3_k")
