"""hlo ops of whole layers against PyTorch: products, convolutions, attention, norms, pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hlo_harness import check, run, to_array
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

CLOSE: dict[str, Any] = {"relative": 3e-6, "absolute": 2e-6}
both = pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbols"])


def noisy(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def dyadic(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers: no sum of their products rounds, whatever its order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- products --------------------------------------------------------------------------------------------------

PRODUCTS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((4,), (2, 4, 3)),
    ((2, 3, 4), (4,)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((1, 1), (1, 1)),
]


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int8])
@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype, symbolic: bool) -> None:
    a, c = dyadic(*left, dtype=dtype), dyadic(*right, seed=1, dtype=dtype)
    expected = (
        torch.matmul(a.double(), c.double()).to(dtype) if dtype.is_floating_point else torch.matmul(a, c)
    )
    check(lambda b, x, y: b.matmul(x, y), [a, c], expected, symbolic=symbolic, signs=False)


def test_narrow_matmul_rounds_once() -> None:
    a, c = noisy(20, 300, dtype=torch.bfloat16), noisy(300, 30, seed=1, dtype=torch.bfloat16)
    once = to_array((a.double() @ c.double()).float().bfloat16()).astype(np.float64)
    for level, (found,) in run(lambda b, x, y: b.matmul(x, y), [a, c]).items():
        assert (found.astype(np.float64) != once).mean() < 0.02, level


# ---- convolution -----------------------------------------------------------------------------------------------


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_convolution(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 1, 2]))
    inner, outer = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    extents, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 2)
    transposed = data.draw(st.booleans())
    sizes = [data.draw(st.integers(d * (k - 1) + 1, 6)) for k, d in zip(extents, dilation, strict=True)]
    extra = [
        data.draw(st.integers(0, max(s, d) - 1)) if transposed else 0
        for s, d in zip(stride, dilation, strict=True)
    ]
    ends = zip(sizes, extents, stride, padding, dilation, extra, strict=True)
    assume(not transposed or all((n - 1) * s - 2 * p + d * (k - 1) + e + 1 > 0 for n, k, s, p, d, e in ends))
    lead = (inner, outer // groups) if transposed else (outer, inner // groups)
    x, weight, bias = dyadic(2, inner, *sizes), dyadic(*lead, *extents, seed=1), dyadic(outer, seed=2)
    arguments = [x, weight, *([bias] if data.draw(st.booleans()) else [])]
    expected = torch.convolution(
        x, weight, bias if len(arguments) == 3 else None, stride, padding, dilation, transposed, extra, groups
    )
    check(
        lambda b, *xs: b.conv(
            *xs,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            transposed=transposed,
            output_padding=extra,
        ),
        arguments,
        expected,
        signs=False,
    )


def test_convolution_of_symbolic_sizes() -> None:
    x, weight = dyadic(2, 3, 7, 9), dyadic(4, 3, 3, 3, seed=1)

    def build(b: Any, x: Any) -> Any:
        data = weight.numpy().tobytes()
        w = b.constant(data=data, shape=weight.shape, dtype="f32")
        x = b.reshape(b.slice(x, starts=(0,) * 4, stops=x.type.shape, steps=(1,) * 4), shape=x.type.shape)
        return b.conv(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2))

    expected = functional.conv2d(x, weight, None, (2, 1), (1, 0), (1, 2))
    from hlo_harness import hlo_interpreter, lower_hlo, make_graph, primitive_interpreter, tensor_type

    from luminal.dim import dim

    n, h, w = dim("n"), dim("h", min=3), dim("w", min=5)
    module, graph = make_graph(build, [tensor_type((n, 3, h, w), "f32")])
    np.testing.assert_array_equal(hlo_interpreter.interpret(graph, [x.numpy()])[0], expected.numpy())
    lower_hlo(module)
    module.verify()
    np.testing.assert_array_equal(primitive_interpreter.interpret(graph, [x.numpy()])[0], expected.numpy())


# ---- attention -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 6), (6, 5), (1, 6), (5, 1), (5, 0), (0, 3)])
def test_attention(queries: int, keys: int, causal: bool, symbolic: bool) -> None:
    q, k, v = noisy(2, 4, queries, 8), noisy(2, 4, keys, 8, seed=1), noisy(2, 4, keys, 3, seed=2)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3)
    check(
        lambda b, *x: b.attention(*x, causal=causal, scale=0.3),
        [q, k, v],
        expected,
        symbolic=symbolic,
        **CLOSE,
    )


@both
def test_attention_with_a_mask_gives_zero_for_a_row_without_keys(symbolic: bool) -> None:
    q, k, v = noisy(2, 4, 5, 8), noisy(2, 4, 6, 8, seed=1), noisy(2, 4, 6, 3, seed=2)
    mask = torch.rand(5, 6, generator=torch.Generator().manual_seed(3)) > 0.5
    mask[1] = False
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert (expected[:, :, 1] == 0).all()
    check(lambda b, *x: b.attention(*x), [q, k, v, mask], expected, symbolic=symbolic, **CLOSE)
    added = torch.where(mask, noisy(2, 1, 5, 6, seed=4), -math.inf)
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
    check(lambda b, *x: b.attention(*x), [q, k, v, added], expected, symbolic=symbolic, **CLOSE)


def test_a_masked_score_that_is_nan_stays_nan() -> None:
    """Invariant: a bool mask is added as 0 or -inf, so that it hides no NaN, as in PyTorch."""
    q, k, v = noisy(2, 2, 3, 4), noisy(2, 2, 3, 4, seed=1), noisy(2, 2, 3, 4, seed=2)
    k[0, 0, 1, 0] = math.nan
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    check(lambda b, *x: b.attention(*x), [q, k, v, mask], expected, **CLOSE)


def test_attention_shares_key_heads() -> None:
    q, k, v = noisy(2, 6, 5, 8), noisy(2, 2, 4, 8, seed=1), noisy(2, 2, 4, 8, seed=2)
    expected = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    check(lambda b, *x: b.attention(*x), [q, k, v], expected, **CLOSE)


def test_attention_of_rank_two_and_narrow_floats() -> None:
    q, k, v = noisy(5, 8), noisy(6, 8, seed=1), noisy(6, 8, seed=2)
    check(lambda b, *x: b.attention(*x), [q, k, v], functional.scaled_dot_product_attention(q, k, v), **CLOSE)
    narrow = [x.bfloat16() for x in (q, k, v)]
    exact = functional.scaled_dot_product_attention(*[x.double() for x in narrow]).bfloat16()
    check(lambda b, *x: b.attention(*x), narrow, exact, relative=8e-3)


# ---- norms -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis: int, symbolic: bool) -> None:
    for shape in ((3, 4, 5), (1, 1, 1), (2, 0, 3)):
        x = noisy(*shape) * 10
        check(lambda b, x: b.softmax(x, axis=axis), [x], x.softmax(axis), symbolic=symbolic, **CLOSE)
        check(lambda b, x: b.log_softmax(x, axis=axis), [x], x.log_softmax(axis), symbolic=symbolic, **CLOSE)


def test_softmax_of_specials() -> None:
    x = torch.tensor(
        [[-math.inf] * 3, [math.inf, 1, 2], [math.nan, 1, 2], [-math.inf, 1, 2], [3e38, -3e38, 0]]
    )
    check(lambda b, x: b.softmax(x, axis=1), [x], x.softmax(1), **CLOSE)
    check(lambda b, x: b.log_softmax(x, axis=1), [x], x.log_softmax(1), **CLOSE)


@both
@pytest.mark.parametrize("parameters", ["", "w", "b", "wb"])
@pytest.mark.parametrize("rank", [1, 2])
def test_layer_norm(rank: int, parameters: str, symbolic: bool) -> None:
    x = noisy(3, 4, 5) * 3 + 100
    sizes = x.shape[3 - rank :]
    weight = noisy(*sizes, seed=1) if "w" in parameters else None
    bias = noisy(*sizes, seed=2) if "b" in parameters else None
    given_ = [p for p in (weight, bias) if p is not None]

    def build(b: Any, x: Any, *rest: Any) -> Any:
        pool = list(rest)
        w = pool.pop(0) if weight is not None else None
        return b.layer_norm(x, w, pool.pop(0) if bias is not None else None, axes=range(3 - rank, 3))

    expected = functional.layer_norm(
        x.double(), sizes, *[None if p is None else p.double() for p in (weight, bias)]
    )
    check(build, [x, *given_], expected.float(), symbolic=symbolic, relative=1e-4, absolute=1e-4)


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm(dtype: torch.dtype, symbolic: bool) -> None:
    x, weight = noisy(3, 4, 5, dtype=dtype), noisy(5, seed=1, dtype=dtype)
    exact = functional.rms_norm(x.double(), (5,), weight.double(), 1e-6).to(dtype)
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    check(
        lambda b, x, w: b.rms_norm(x, w, axes=(2,), epsilon=1e-6),
        [x, weight],
        exact,
        symbolic=symbolic,
        relative=tolerance,
    )


def test_group_norm_and_batch_norm() -> None:
    x, weight, bias = noisy(2, 6, 4, 3), noisy(6, seed=1), noisy(6, seed=2)
    expected = functional.group_norm(x, 3, weight, bias)
    check(lambda b, *xs: b.group_norm(*xs, groups=3), [x, weight, bias], expected, **CLOSE)
    mean, variance = noisy(6, seed=3), noisy(6, seed=4).abs()
    expected = functional.batch_norm(x, mean, variance, weight, bias)
    for symbolic in (False, True):
        check(
            lambda b, *xs: b.batch_norm(*xs),
            [x, mean, variance, weight, bias],
            expected,
            symbolic=symbolic,
            **CLOSE,
        )


# ---- pooling ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_pooling(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    size, stride, dilation, ceil = draw(1, 3), draw(1, 3), draw(1, 2), data.draw(st.booleans())
    padding = [data.draw(st.integers(0, k // 2)) for k in size]
    sizes = [data.draw(st.integers(d * (k - 1) + 1, 8)) for k, d in zip(size, dilation, strict=True)]
    x = noisy(2, 3, *sizes)
    pool = functional.max_pool1d if rank == 1 else functional.max_pool2d
    values, indices = pool(x, size, stride, padding, dilation, ceil, return_indices=True)
    common: dict[str, Any] = {"size": size, "stride": stride, "padding": padding, "ceil": ceil}
    symbolic = data.draw(st.booleans()) and all(
        n > d * (k - 1) for n, k, d in zip(sizes, size, dilation, strict=True)
    )
    check(lambda b, x: b.max_pool(x, dilation=dilation, **common), [x], values, symbolic=symbolic)
    check(lambda b, x: b.max_pool_index(x, dilation=dilation, **common), [x], indices, symbolic=symbolic)
    count_padding, divisor = data.draw(st.booleans()), data.draw(st.sampled_from([None, 3]))
    if rank == 1 or any(n + 2 * p < k for n, k, p in zip(sizes, size, padding, strict=True)):
        return
    expected = functional.avg_pool2d(x, size, stride, padding, ceil, count_padding, divisor)
    build = lambda b, x: b.avg_pool(x, count_padding=count_padding, divisor=divisor, **common)  # noqa: E731
    check(build, [x], expected, symbolic=symbolic, **CLOSE)


def test_max_pool_lets_nan_win_and_pads_with_the_least() -> None:
    x = torch.full((1, 1, 5), -math.inf)
    x[0, 0, 1] = math.nan
    expected = functional.max_pool1d(x, 2, 1, 1)
    check(lambda b, x: b.max_pool(x, size=(2,), stride=(1,), padding=(1,), dilation=(1,)), [x], expected)
    lowest = torch.full((1, 1, 4), -128, dtype=torch.int8)
    build = lambda b, x: b.max_pool(x, size=(2,), stride=(2,), padding=(1,), dilation=(1,))  # noqa: E731
    check(build, [lowest], torch.full((1, 1, 3), -128, dtype=torch.int8))
