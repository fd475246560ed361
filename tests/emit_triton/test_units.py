"""What targets say that `tl.dot` and `tl.dot_scaled` multiply natively is what the compiler makes of them."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("triton", reason="GPU code needs the package triton")

from luminal.dtype import DType, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i32, u8
from luminal.emit_triton.aot import compile_kernel, machine_for
from luminal.emit_triton.kernel import Options, TritonKernel
from luminal.emit_triton.targets import USUAL, target_named
from luminal.errors import CompilationError
from tests.emit_triton import kernels

# How an instruction says what it multiplies, on NVIDIA's and AMD's.
WORDS = {
    "f16": r"\.f16\.f16|kind::f16|_f16\b",
    "f8e4m3fn": r"e4m3|f8f6f4",
    "f8e5m2": r"e5m2|f8f6f4",
    "i8": r"\.s8\.s8|kind::i8|_i8\b",
    "f64": r"f64",
}
FORMATS = {"e4m3": ("e4m3", 32), "e5m2": ("e5m2", 32), "e2m1": ("e2m1", 32), "nvfp4": ("e2m1", 16)}
REFUSALS = "not supported in this architecture", "same element type", "processing an MLIR pass pipeline"
ELEMENTS = {"e4m3": f8e4m3fn, "e5m2": f8e5m2, "e2m1": u8}


def product(dtype: DType) -> TritonKernel:
    """On smaller tiles sm_90 multiplies fp8 as f16."""
    total = {"i8": i32, "f64": f64}.get(dtype.name, f32)
    word = {"i32": "int32", "f64": "float64", "f32": "float32"}[total.name]
    body = f"""
i = tl.arange(0, 64)
total = tl.zeros((64, 64), tl.{word})
for first in range(0, k, 64):
    left = tl.load(a + i[:, None] * k + (first + i)[None, :])
    right = tl.load(b + i[None, :] * k + (first + i)[:, None])
    total = tl.dot(left, right, total, out_dtype=tl.{word})
tl.store(c + i[:, None] * 64 + i[None, :], total)
"""
    pointers = (*(kernels.pointer(name, dtype) for name in "ab"), kernels.pointer("c", total))
    return kernels.kernel("product", body, (*pointers, kernels.size("k", 64)), Options(4, 2))


def scaled_product(form: str) -> TritonKernel:
    """Operands with a scale for each group of elements along k; two numbers of e2m1 to a byte."""
    element, group = FORMATS[form]
    packed = 2 if element == "e2m1" else 1
    body = f"""
i = tl.arange(0, 128)
r = tl.arange(0, {128 // packed})
g = tl.arange(0, {128 // group})
total = tl.zeros((128, 128), tl.float32)
for first in range(0, k, 128):
    left = tl.load(a + i[:, None] * (k // {packed}) + (first // {packed} + r)[None, :])
    right = tl.load(b + i[None, :] * (k // {packed}) + (first // {packed} + r)[:, None])
    left_scale = tl.load(s + i[:, None] * (k // {group}) + (first // {group} + g)[None, :])
    right_scale = tl.load(t + i[:, None] * (k // {group}) + (first // {group} + g)[None, :])
    total = tl.dot_scaled(left, left_scale, "{element}", right, right_scale, "{element}", total)
tl.store(c + i[:, None] * 128 + i[None, :], total)
"""
    scale = f8e4m3fn if group == 16 else u8
    dtypes = {"a": ELEMENTS[element], "b": ELEMENTS[element], "s": scale, "t": scale, "c": f32}
    pointers = tuple(kernels.pointer(name, dtype) for name, dtype in dtypes.items())
    return kernels.kernel("scaled_product", body, (*pointers, kernels.size("k", 128)), Options(4, 2))


def matrix_instructions(kernel: TritonKernel, architecture: str) -> set[str]:
    """Those in the code; none where the compiler does not take the kernel."""
    try:
        assembly = compile_kernel(kernel, architecture).assembly
    except CompilationError as error:
        assert any(words in error.reason for words in REFUSALS)
        return set()
    return set(re.findall(r"(?:wgmma\.mma_async|tcgen05\.mma|mma\.sync|v_mfma_)\S*", assembly))


@pytest.mark.parametrize("architecture", USUAL)
@pytest.mark.parametrize("dtype", [f16, f8e4m3fn, f8e5m2, i8, f64], ids=str)
def test_products(architecture: str, dtype: DType) -> None:
    found = matrix_instructions(product(dtype), architecture)
    is_native = any(re.search(WORDS[dtype.name], instruction) for instruction in found)
    target = target_named(architecture)
    assert is_native == (dtype.name in target.dot - machine_for(target).undotted)


@pytest.mark.parametrize("architecture", USUAL)
@pytest.mark.parametrize(
    "form", [pytest.param(name, marks=pytest.mark.nightly if name == "e5m2" else ()) for name in FORMATS]
)
def test_scaled_products(architecture: str, form: str) -> None:
    found = matrix_instructions(scaled_product(form), architecture)
    is_native = any("block_scale" in instruction or "mfma_scale" in instruction for instruction in found)
    assert is_native == (form in target_named(architecture).dot_scaled)
