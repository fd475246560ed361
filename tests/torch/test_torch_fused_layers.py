"""Layers that torch.nn calls as one op in inference are compiled as the ops they consist of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_harness import check, compiled

LENGTH = 5


def _no_mask() -> dict[str, torch.Tensor]:
    return {}


def _queries_by_keys() -> dict[str, torch.Tensor]:
    return {"mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)}


def _keys_of_each_sequence() -> dict[str, torch.Tensor]:
    hidden = torch.zeros(2, LENGTH, dtype=torch.bool)
    hidden[0, 3:] = hidden[1, 0] = True
    return {"padding": hidden}


def _everything_of_one_sequence() -> dict[str, torch.Tensor]:
    return {"padding": torch.tensor([[False], [True]]).expand(2, LENGTH)}


def _both() -> dict[str, torch.Tensor]:
    return _queries_by_keys() | {"padding": torch.arange(LENGTH).expand(2, LENGTH) > 3}


@pytest.mark.parametrize(
    ("masks", "norm_first", "activation"),
    [
        (_no_mask, True, "gelu"),
        (_queries_by_keys, False, "relu"),
        (_keys_of_each_sequence, True, "relu"),
        (_everything_of_one_sequence, False, "gelu"),
        (_both, False, "relu"),
    ],
)
def test_an_encoder_layer(
    masks: Callable[[], dict[str, torch.Tensor]], norm_first: bool, activation: str
) -> None:
    given = masks()
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 12, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    check(
        lambda m, x: m(x, src_mask=given.get("mask"), src_key_padding_mask=given.get("padding")),
        layer, torch.randn(2, LENGTH, 8),
    )  # fmt: skip


@pytest.mark.parametrize("averaged", [True, False])
def test_weights_of_attention(averaged: bool) -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    padding = _keys_of_each_sequence()["padding"]
    check(
        lambda m, x: m(x, x, x, key_padding_mask=padding, average_attn_weights=averaged),
        attention, torch.randn(2, LENGTH, 8),
    )  # fmt: skip


def test_lengths_of_an_encoder_layer_share_one_program() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    run = compiled(layer, dynamic=True, buckets="declared")
    for length in (5, 9):
        x, padding = torch.randn(2, length, 8), torch.arange(length).expand(2, length) > 3
        with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=length == 9):
            torch.testing.assert_close(
                run(x, src_key_padding_mask=padding), layer(x, src_key_padding_mask=padding)
            )


def test_a_call_without_elements() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    with torch.no_grad():
        found = compiled(lambda m, x: m(x, x, x, need_weights=False)[0])(attention, torch.randn(0, LENGTH, 8))
    assert found.shape == (0, LENGTH, 8)


def test_a_mask_of_no_known_type_stays_torchs_to_refuse() -> None:
    x, weight, bias = torch.randn(2, LENGTH, 8), torch.randn(24, 8), torch.randn(24)
    mask = torch.zeros(2, LENGTH, dtype=torch.bool)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch._native_multi_head_attention(x, x, x, 8, 2, weight, bias, weight[:8], bias[:8], mask)[0]

    with torch.no_grad(), pytest.raises(RuntimeError, match="Mask Type should be defined"):
        compiled(function, strict=False)(x)
