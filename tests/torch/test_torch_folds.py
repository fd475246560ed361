"""Attention as users spell it, through torch.compile: one kernel that reads keys and values once, equal to eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import luminal as lm

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
HEADS, LENGTH, WIDTH = 2, 200, 16


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * WIDTH**-0.5, -1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.arange(k.shape[-2]) < k.shape[-2] // 3
    scores = (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf"))
    return torch.softmax(scores, -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return torch.softmax((q @ k.transpose(-1, -2)).masked_fill(~allowed, float("-inf")), -1) @ v


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(20.0 * torch.tanh(q @ k.transpose(-1, -2) / 20.0), -1) @ v


def sloped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    distance = torch.arange(k.shape[-2])[None, :] - torch.arange(q.shape[-2])[:, None]
    return torch.softmax(q @ k.transpose(-1, -2) + 0.05 * distance, -1) @ v


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


SPELLINGS: dict[str, Attention] = {f.__name__: f for f in (naive, masked, causal, capped, sloped, whole)}


def tensors(length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(1, HEADS, length, WIDTH, generator=generator) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_attention_equals_eager(name: str, dynamic: bool) -> None:
    attention = SPELLINGS[name]
    compiled = torch.compile(attention, backend="luminal", dynamic=dynamic or None)
    for length in (LENGTH, 77) if dynamic else (LENGTH,):
        given = tensors(length)
        torch.testing.assert_close(compiled(*given), attention(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_long_naive_attention_is_one_kernel_without_scores_in_memory(dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in tensors(1024))
    found = torch.compile(naive, backend="luminal")(q, k, v)
    exact = naive(q.double(), k.double(), v.double())
    assert (found - exact).abs().max() <= 1.5 * (naive(q, k, v) - exact).abs().max()
    last = lm.stats()["last"]
    assert last["launches"] == 1
    assert last["arena_bytes"] < HEADS * 1024 * 1024 * 4 / 4


def test_rows_without_any_key_are_what_eager_makes_of_them() -> None:
    """NaN from a softmax that the user wrote, 0 from torch's attention."""
    q, k, v = tensors()
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    mask[5:] = True

    def written(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax((q @ k.transpose(-1, -2)).masked_fill(~mask, float("-inf")), -1) @ v

    def called(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for attention, lost in ((written, True), (called, False)):
        found = torch.compile(attention, backend="luminal")(q, k, v, mask)
        torch.testing.assert_close(found, attention(q, k, v, mask), rtol=1e-4, atol=1e-5, equal_nan=True)
        assert bool(found[:, :, :5].isnan().all()) == lost
        assert lost or not found[:, :, :5].any()


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The last queries of the keys, each of which sees forty keys up to its own."""
    row = torch.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    apart = row - torch.arange(k.shape[-2])
    scores = (q @ k.transpose(-1, -2)).masked_fill((apart < 0) | (apart >= 40), float("-inf"))
    return torch.softmax(scores, -1) @ v


def triangle(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("attention", [causal, window, triangle], ids=lambda each: each.__name__)
def test_hidden_blocks_are_left_out_as_long_as_values_are_finite(
    attention: Attention, dtype: torch.dtype
) -> None:
    """Fewer queries than keys too; and an infinite value that some rows see and others do not."""
    compiled = torch.compile(attention, backend="luminal", dynamic=True)
    for queries, keys in ((300, 300), (77, 200), (200, 77)):
        q, _, _ = tensors(queries)
        _, k, v = tensors(keys)
        k, v = (x[:, : 1 if attention is triangle else HEADS] for x in (k, v))
        given = [x.to(dtype) for x in (q, k, v)]
        tolerance = 6e-2 if dtype is torch.bfloat16 else 1e-5  # eager rounds the scores
        torch.testing.assert_close(
            compiled(*given), attention(*given), rtol=tolerance, atol=tolerance, equal_nan=True
        )
        given[2][0, 0, keys // 2, 3] = float("inf")
        found, wanted = compiled(*given), attention(*(x.double() for x in given)).to(dtype)
        if attention is triangle:  # eager leaves some of them out
            wanted = torch.where(found.isnan() & (torch.arange(WIDTH) == 3), found, wanted)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
