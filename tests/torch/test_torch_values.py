"""Values, dtypes and promotion as in eager PyTorch, also where other compilers slip; calls from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch_harness import check, compiled

ODD = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 0.0])
WHOLE = torch.arange(-6, 6).view(3, 4)
BYTES = torch.tensor([0, 1, 127, 128, 255], dtype=torch.uint8)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nan and infinity": (
        lambda x: (x.max(), x.min(0).values, torch.relu(x), x.clamp(-1, 1), torch.sort(x).values, x.argmax()),
        (ODD,),
    ),
    "comparisons with nan": (
        lambda x: (x == x, x != x, x < 1, torch.sign(x), torch.maximum(x, x.flip(0))),
        (ODD,),
    ),
    "signed zeros": (lambda x: (1 / x, torch.copysign(torch.ones(6), x), x.signbit(), x + 0.0, -x), (ODD,)),
    "integer division": (
        lambda x: (
            x // 3,
            x % 3,
            x // -3,
            x % -3,
            torch.fmod(x, 3),
            torch.div(x, 3, rounding_mode="trunc"),
            x / 3,
        ),
        (WHOLE,),
    ),
    "integer wrap": (lambda x: (x + 250, x * 3, -x, x - 1, x.sum(), x.cumsum(0)), (BYTES,)),
    "narrow sums": (lambda x: (x.sum(), x.prod(), x.float().mean(), x.sum(dtype=torch.int8)), (BYTES,)),
    "shifts": (lambda x: (x >> 1, x << 3, x & 5, x | 8, ~x), (WHOLE,)),
    "casts": (
        lambda x: (x.int(), x.to(torch.uint8), x.bool(), x.to(torch.int8)),
        (torch.tensor([0.5, 1.9, -0.0]),),
    ),
    "integer powers": (lambda x: (x**2, x**3, 2 ** x.abs(), x.float() ** -1), (WHOLE,)),
    "booleans": (lambda x: (x & True, x.sum(), ~x, x.any(0), x + x, x * 2, x.long().cumsum(0)), (WHOLE > 0,)),
    "rank 0 promotes less": (
        lambda x, s: (x * s, x + s),
        (torch.randn(3), torch.tensor(2.0, dtype=torch.float64)),
    ),
    "half and single": (
        lambda x, y: (x + y, x * 3, x / 7, x.sum()),
        (torch.randn(4, 8).bfloat16(), torch.randn(8)),
    ),
    "numbers beside halves": (
        lambda x: (x * 0.1, x + 0.1, x - 1e-3, x / 3, x**2),
        (torch.randn(50).bfloat16(),),
    ),
    "empty": (
        lambda x: (x.sum(), x.prod(), x * 2, x.view(0, 2, 2), torch.cat([x, x + 1])),
        (torch.randn(0, 4),),
    ),
    "rank 0": (lambda x: (x * 2 + 1, x.sum(), x.max(), x.view(1), torch.softmax(x, 0)), (torch.tensor(3.0),)),
    "round halves to even": (
        lambda x: (x.round(), torch.round(x, decimals=1)),
        (torch.tensor([0.5, 1.5, -2.5, 0.25]),),
    ),
    "no arguments at all": (
        lambda x: (torch.arange(5), torch.ones(3), torch.full((2,), 7)),
        (torch.randn(3),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_eagers(name: str) -> None:
    function, args = CASES[name]
    check(function, *args)


def test_a_fully_masked_row_of_attention_is_zero() -> None:
    mask = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1]]).bool()
    q = torch.randn(1, 2, 4, 8)
    found = check(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), q, mask)
    assert torch.equal(found[0, :, 1], torch.zeros(2, 8))


def test_grouped_queries() -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    check(lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True), q, k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_width_layers(dtype: torch.dtype) -> None:
    x, w = torch.randn(4, 16).to(dtype), torch.randn(16, 8).to(dtype)
    found = compiled(lambda x, w: F.gelu(F.layer_norm(x @ w, (8,))))(x, w)
    torch.testing.assert_close(found, F.gelu(F.layer_norm(x @ w, (8,))), rtol=2e-2, atol=2e-2)


def test_calls_from_several_threads() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)).eval()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (5, 7):
            assert run(torch.randn(rows, 32)).shape == (rows, 32)
    agree: list[bool] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for call in range(20):
                x = torch.randn(2 + (call * 7 + seed) % 40, 32, generator=generator)
                agree.append(torch.allclose(run(x), model(x), atol=1e-5))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(agree) == 60 and all(agree)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_mean_beside_a_variance_is_nan_where_an_infinity_is(dtype: torch.dtype) -> None:
    x = torch.randn(4, 50, dtype=dtype)
    x[1, 3], x[2, 4], x[3, 5] = float("inf"), -float("inf"), float("nan")
    found = torch.compile(lambda x: torch.var_mean(x, -1), backend="luminal")(x)
    for got, wanted in zip(found, torch.var_mean(x, -1), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_long_sums_lose_no_digits(dynamic: bool) -> None:
    """One addition after the other would stop counting at 2^24, and drift before."""
    ones = torch.ones((1 << 24) + 5000, 2)
    options = {"verify": "ordinary"}  # all data that is made up is as long
    total = torch.compile(lambda x: x.sum(0), backend="luminal", dynamic=dynamic, options=options)(ones)
    torch.testing.assert_close(total, torch.full((2,), float((1 << 24) + 5000)), rtol=1e-6, atol=0.0)
    level = torch.full((1 << 22,), 10000.1)
    mean = torch.compile(lambda x: x.mean(), backend="luminal", dynamic=dynamic, options=options)(level)
    torch.testing.assert_close(mean, level.mean(), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_dtype_of_a_reduction_rounds_what_it_reads(dtype: torch.dtype) -> None:
    """But a mean is rounded at its end alone."""
    x = torch.tensor([[1.0, 2.0**-12], [2.0**-12, 1.0]]) + 2.0**-9 - 2.0**-12
    check(lambda x: (x.sum(1, dtype=dtype), x.cumsum(1, dtype=dtype), x.mean(1, dtype=dtype)), x)
    row = torch.tensor([[2048.0, 1.0, 1.0, -2050.0 + 2.0**-9]])
    check(lambda x: (x.sum(1, dtype=dtype), x.prod(1, dtype=dtype), x.mean(1, dtype=dtype)), row)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.logsumexp])
def test_huge_products_have_a_softmax(function: Callable[..., Any]) -> None:
    """A fused multiply-add would leave the rounding of the maximum over, whose exponential is infinite."""
    x = torch.randn(64, 33) * 1e12
    check(lambda x: function(x * 0.3, 1), x)
