"""GGUF files: tensors as gguf decodes them, and decoders that generate compiled what they generate in eager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch_harness import assert_same, compiled

import luminal as lm
from luminal.errors import ModelFileError, OptionError
from luminal.nn import QuantisedLinear

Array = np.ndarray[Any, Any]
KINDS = gguf.GGMLQuantizationType
WIDTH, HIDDEN, HEADS, KEY_HEADS, LAYERS, WORDS = 64, 96, 4, 2, 2, 50


def weights(is_tied: bool) -> dict[str, Array]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Array:
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    head = WIDTH // HEADS
    found = {"token_embd.weight": matrix(WORDS, WIDTH), "output_norm.weight": np.ones(WIDTH, np.float32)}
    for number in range(LAYERS):
        sizes = {
            "attn_q": (WIDTH, WIDTH), "attn_k": (KEY_HEADS * head, WIDTH), "attn_v": (KEY_HEADS * head, WIDTH),
            "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
            "ffn_down": (WIDTH, HIDDEN),
        }  # fmt: skip
        found |= {f"blk.{number}.{name}.weight": matrix(*size) for name, size in sizes.items()}
        for norm in ("attn_norm", "ffn_norm"):
            found[f"blk.{number}.{norm}.weight"] = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    return found if is_tied else {**found, "output.weight": matrix(WORDS, WIDTH)}


LETTERS = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
LETTERS += [f"▁{letter}" for letter in "abcdefghijklmnopqrst"]
"""A vocabulary of WORDS pieces of words."""


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(LETTERS)
    writer.add_token_scores([-float(number) for number in range(WORDS)])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (WORDS - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def write(
    path: Path,
    kind: KINDS = KINDS.Q8_0,
    is_tied: bool = False,
    architecture: str = "llama",
    has_tokenizer: bool = False,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(32)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    if has_tokenizer:
        add_tokenizer(writer)
    else:
        writer.add_tokenizer_model("no_vocab")
    for name, array in weights(is_tied).items():
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def generate(run: Any, prompt: list[int], count: int) -> list[torch.Tensor]:
    """The logits of the prompt, then of each token that follows greedily."""
    found, ids, start = list[torch.Tensor](), torch.tensor([prompt]), 0
    for _ in range(count + 1):
        positions = torch.arange(start, start + ids.shape[1])
        with torch.no_grad():
            found.append(run(ids, positions))
        start += ids.shape[1]
        ids = found[-1][:, -1:].argmax(-1)
    return found


@pytest.mark.parametrize(
    ("kind", "is_tied", "activations"),
    [
        (KINDS.Q8_0, False, "q8"),
        (KINDS.Q4_0, True, None),
        (KINDS.F16, True, "q8"),
        pytest.param(KINDS.Q8_0, False, None, marks=pytest.mark.nightly),
        pytest.param(KINDS.Q4_0, True, "q8", marks=pytest.mark.nightly),
        pytest.param(KINDS.F16, True, None, marks=pytest.mark.nightly),
    ],
)
def test_compiled_generates_what_eager_does(
    tmp_path: Path, kind: KINDS, is_tied: bool, activations: str | None
) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf", kind, is_tied), activations)
    expected = generate(file.model(), [3, 1, 4, 1, 5], 4)
    found = generate(compiled(file.model()), [3, 1, 4, 1, 5], 4)
    assert_same(found, expected, rtol=2e-2 if activations else 1e-4, atol=5e-2 if activations else 1e-4)


@pytest.mark.parametrize("cache", ["f16", "bf16"])
def test_narrow_caches_round_keys_and_values_alone(tmp_path: Path, cache: str) -> None:
    path = write(tmp_path / "tiny.gguf", KINDS.F32)
    file = lm.load_gguf(path, cache=cache)
    model = file.model()
    exact = generate(lm.load_gguf(path).model(), [3, 1, 4, 1, 5], 1)
    expected = generate(model, [3, 1, 4, 1, 5], 1)
    narrow = {name: buffer.dtype for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    kept = {name for name, dtype in narrow.items() if dtype.itemsize == 2}
    assert kept == {f"blk.{n}.{each}" for n in range(LAYERS) for each in ("keys", "values")}
    assert_same(expected, exact, rtol=5e-2, atol=5e-2)
    assert not torch.equal(expected[0], exact[0])
    assert_same(generate(compiled(file.model()), [3, 1, 4, 1, 5], 1), expected, rtol=2e-3, atol=2e-3)


def test_caches_are_read_as_far_as_they_are_filled(tmp_path: Path) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf"), None)
    whole, model = file.model(), file.model()
    for name, buffer in model.named_buffers():
        if name.endswith(("keys", "values")):
            buffer.fill_(torch.nan)
    run = compiled(model, dynamic=True)
    for start, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
        ids, positions = torch.arange(start, end)[None], torch.arange(start, end)
        with torch.no_grad():
            assert_same(run(ids, positions, 1, end), whole(ids, positions, 1), rtol=1e-4, atol=1e-4)


def test_one_program_takes_prompts_of_any_length(tmp_path: Path) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf"), None)
    run, model = compiled(file.model(), dynamic=True), file.model()
    for length in (4, 7):
        ids, positions = torch.arange(length)[None] % WORDS, torch.arange(length)
        with torch.no_grad():
            assert_same(run(ids, positions), model(ids, positions), rtol=1e-4, atol=1e-4)


def test_a_step_is_what_the_whole_sequence_gives(tmp_path: Path) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf", is_tied=True), activations=None)
    ids = torch.tensor([[7, 8, 9, 10]])
    with torch.no_grad():
        whole = file.model()(ids, torch.arange(4))
        model = file.model(context=8, batch=1)
        steps = [model(ids[:, n : n + 1], torch.tensor([n])) for n in range(4)]
    assert_same(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)
    assert model.shape.context == 8 and file.metadata["llama.context_length"] == 32


def test_the_example_writes_what_the_model_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from examples.generate import main

    path = write(tmp_path / "tiny.gguf", has_tokenizer=True)
    main([str(path), "a cat", "--tokens", "6", "--context", "16"])
    shown = capsys.readouterr()
    prompt = [1, *(LETTERS.index(piece) for piece in ("▁a", "▁c", "a", "t"))]
    logits = generate(lm.load_gguf(path).model(16), prompt, 5)
    words = "".join(LETTERS[int(each[0, -1].argmax())] for each in logits).replace("▁", " ")
    assert shown.out.strip() == "a cat" + words.replace("<s>", "").replace("<unk>", "")
    assert "5 tokens of the prompt" in shown.err and "tokens per second" in shown.err


def test_the_example_refuses_a_prompt_that_is_too_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.generate import main

    with pytest.raises(SystemExit):
        main([str(write(tmp_path / "tiny.gguf", has_tokenizer=True)), "a cat", "--context", "5"])
    assert "the prompt has 5 tokens; between 1 and 4 are possible" in capsys.readouterr().err


def test_tensors_are_what_gguf_decodes(tmp_path: Path) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf", KINDS.Q4_0))
    model, name = file.model(), "blk.1.ffn_down"
    layer = model.get_submodule(name)
    assert isinstance(layer, QuantisedLinear) and layer.activations == "q8"
    stored = gguf.quants.quantize(weights(False)[f"{name}.weight"], KINDS.Q4_0)
    assert np.array_equal(layer.weight.numpy(), gguf.quants.dequantize(stored, KINDS.Q4_0))
    assert set(file.tensors[f"{name}.weight"].planes()) == {"quants", "scales"}
    assert file.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("kind", [KINDS.F16, KINDS.BF16, KINDS.F32])
def test_floats_are_read_as_f32(tmp_path: Path, kind: KINDS) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf", kind))
    (array,) = file.tensors["output.weight"].planes().values()
    np.testing.assert_allclose(array, weights(False)["output.weight"], rtol=1e-2)
    assert array.dtype == np.float32


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelFileError, match=r"needs the package gguf: pip install 'luminal\[gguf\]'"):
        lm.load_gguf(tmp_path / "any.gguf")


def test_mistakes(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf")
    with pytest.raises(FileNotFoundError):
        lm.load_gguf(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_bytes(b"no model at all, but long enough to be read")
    with pytest.raises(ModelFileError, match="is no GGUF file, or damaged or cut off"):
        lm.load_gguf(tmp_path / "text.gguf")
    content = path.read_bytes()
    for size in (len(content) // 2, 100, 10):
        (tmp_path / "cut.gguf").write_bytes(content[:size])
        with pytest.raises(ModelFileError, match="cut off"):
            lm.load_gguf(tmp_path / "cut.gguf")
    with pytest.raises(ModelFileError, match=r"stored as Q5_0; what can be read is F32, F16, BF16, Q8_0"):
        lm.load_gguf(write(tmp_path / "other.gguf", KINDS.Q5_0)).model()
    with pytest.raises(ModelFileError, match="the architecture is 'mamba'; there is a decoder for 'llama'"):
        lm.load_gguf(write(tmp_path / "mamba.gguf", architecture="mamba")).model()
    with pytest.raises(OptionError, match="cache is 'f8', expected f32, f16, bf16"):
        lm.load_gguf(path, cache="f8").model()
    file = lm.load_gguf(path)
    del file.tensors["blk.0.attn_q.weight"]
    with pytest.raises(ModelFileError, match="not those of the metadata"):
        file.model()


def test_the_logits_of_the_last_tokens_alone(tmp_path: Path) -> None:
    file = lm.load_gguf(write(tmp_path / "tiny.gguf"), activations=None)
    ids, positions = torch.tensor([[7, 8, 9, 10]]), torch.arange(4)
    with torch.no_grad():
        whole, last = file.model()(ids, positions), file.model()(ids, positions, 2)
    torch.testing.assert_close(last, whole[:, -2:], rtol=1e-5, atol=1e-6)
