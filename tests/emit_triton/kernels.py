"""Kernels written by hand, as the emitter might write them."""

from __future__ import annotations

from luminal.dim import as_dim
from luminal.dtype import DType, bf16, f32, i32
from luminal.emit_triton.kernel import Options, Parameter, TritonKernel

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"


def pointer(name: str, dtype: DType, divisor: int = 16, is_near: bool = True) -> Parameter:
    return Parameter(name, dtype, True, divisor, as_dim(1 << 20 if is_near else 1 << 32))


def size(name: str, divisor: int = 16, dtype: DType = i32) -> Parameter:
    return Parameter(name, dtype, False, divisor)


def kernel(name: str, body: str, parameters: tuple[Parameter, ...], options: Options) -> TritonKernel:
    names = ", ".join(parameter.name for parameter in parameters)
    lines = "\n".join(f"    {line}" if line else "" for line in body.strip("\n").splitlines())
    return TritonKernel(name, f"{HEAD}def {name}({names}):\n{lines}\n", parameters, as_dim(1), options)


def elementwise(dtype: DType = f32) -> TritonKernel:
    """y = x * 2 + 1, masked at the end."""
    body = """
i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
inside = i < n
x_value = tl.load(x + i, mask=inside).to(tl.float32)
tl.store(y + i, (x_value * 2.0 + 1.0).to(y.dtype.element_ty), mask=inside)
"""
    return kernel("elementwise", body, (pointer("x", dtype), pointer("y", dtype), size("n")), Options(4))


def softmax() -> TritonKernel:
    """Rows of up to 2048 numbers, one a program."""
    body = """
row = tl.program_id(0)
j = tl.arange(0, 2048)
inside = j < n
value = tl.load(x + row * n + j, mask=inside, other=float("-inf")).to(tl.float32)
power = tl.exp(value - tl.max(value, 0))
tl.store(y + row * n + j, (power / tl.sum(power, 0)).to(tl.bfloat16), mask=inside)
"""
    return kernel("softmax", body, (pointer("x", bf16), pointer("y", bf16), size("n")), Options(8))


def product(
    dtype: DType,
    precision: str = "ieee",
    tile: tuple[int, int, int] = (128, 128, 64),
    options: Options = Options(8, 3),
    divisor: int = 16,
    is_near: bool = True,
) -> TritonKernel:
    """c = a b, in tiles, summed in f32."""
    rows, columns, depth = tile
    body = f"""
i = tl.program_id(1) * {rows} + tl.arange(0, {rows})
j = tl.program_id(0) * {columns} + tl.arange(0, {columns})
total = tl.zeros(({rows}, {columns}), tl.float32)
for first in range(0, k, {depth}):
    r = first + tl.arange(0, {depth})
    left = tl.load(a + i[:, None] * k + r[None, :])
    right = tl.load(b + r[:, None] * n + j[None, :])
    total = tl.dot(left, right, total, input_precision="{precision}")
tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty))
"""
    near = tuple(pointer(name, dtype, 16, is_near) for name in "abc")
    return kernel("product", body, (*near, size("n", divisor), size("k", divisor)), options)


def attention(options: Options = Options(4, 2)) -> TritonKernel:
    """Flash attention, heads of width 64, bf16; q, k, v and o lie as heads, length, width."""
    body = """
head = tl.program_id(1) * n
i = tl.program_id(0) * 64 + tl.arange(0, 64)
w = tl.arange(0, 64)
query = tl.load(q + (head + i)[:, None] * 64 + w[None, :])
largest = tl.full((64,), float("-inf"), tl.float32)
norm = tl.zeros((64,), tl.float32)
total = tl.zeros((64, 64), tl.float32)
for first in range(0, n, 64):
    j = first + tl.arange(0, 64)
    key = tl.load(k + (head + j)[None, :] * 64 + w[:, None])
    score = tl.dot(query, key) * 0.125
    higher = tl.maximum(largest, tl.max(score, 1))
    power = tl.exp(score - higher[:, None])
    scale = tl.exp(largest - higher)
    norm = norm * scale + tl.sum(power, 1)
    value = tl.load(v + (head + j)[:, None] * 64 + w[None, :])
    total = tl.dot(power.to(tl.bfloat16), value, total * scale[:, None])
    largest = higher
tl.store(o + (head + i)[:, None] * 64 + w[None, :], (total / norm[:, None]).to(tl.bfloat16))
"""
    parameters = (*(pointer(name, bf16) for name in "qkvo"), size("n", 64))
    return kernel("attention", body, parameters, options)


def described_product(has_roles: bool) -> TritonKernel:
    """c = a b^T through tensor descriptors; `has_roles`: some warps load and others multiply."""
    body = f"""
left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [128, 64])
right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [128, 64])
out = tl.make_tensor_descriptor(c, [m, n], [n, 1], [128, 128])
i = tl.program_id(1) * 128
j = tl.program_id(0) * 128
total = tl.zeros((128, 128), tl.float32)
for first in tl.range(0, k, 64, warp_specialize={has_roles}):
    total = tl.dot(left.load([i, first]), right.load([j, first]).T, total)
out.store([i, j], total.to(tl.bfloat16))
"""
    parameters = (*(pointer(name, bf16) for name in "abc"), size("m"), size("n"), size("k", 64))
    return kernel("described_product", body, parameters, Options(4, 3))
