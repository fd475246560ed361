"""A GGUF file of a Llama with random weights in a block format, for peers that read the same file."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from luminal.bench.case import LeftOutError, absent


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a Llama, whose key heads are as wide as its heads."""

    vocabulary: int
    layers: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    context: int = 512


LLAMA_1B = LlamaShape(32000, 22, 2048, 5632, 32, 4)
TINY = LlamaShape(256, 2, 256, 512, 4, 2, 64)


def llama_file(shape: LlamaShape, format: str) -> Path:
    """The file of a shape in a format, as `Q8_0`, in the folder for temporary files; it is written where it is not
    there yet.  LeftOutError where the package gguf is missing."""
    if reason := absent("gguf"):
        raise LeftOutError(reason)
    name = "-".join(map(str, vars(shape).values()))
    path = Path(tempfile.gettempdir()) / f"luminal-llama-{name}-{format}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        _write(unfinished, shape, format)
        unfinished.replace(path)
    return path


def _write(path: Path, shape: LlamaShape, format: str) -> None:
    gguf = import_module("gguf")
    rng = np.random.default_rng(0)
    kind = gguf.GGMLQuantizationType[format]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    keys = shape.key_heads * shape.width // shape.heads
    drawn: dict[tuple[int, int], np.ndarray] = {}

    def add(name: str, rows: int, columns: int) -> None:
        """Weights of a size are drawn once; each tensor has their rows in another order."""
        if (rows, columns) not in drawn:
            values = rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
            drawn[rows, columns] = gguf.quants.quantize(values, kind)
        order = rng.permutation(rows)
        writer.add_tensor(f"{name}.weight", drawn[rows, columns][order], raw_dtype=kind)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, shape.width).astype(np.float32))

    add("token_embd", shape.vocabulary, shape.width)
    for number in range(shape.layers):
        block = f"blk.{number}"
        norm(f"{block}.attn_norm")
        add(f"{block}.attn_q", shape.width, shape.width)
        add(f"{block}.attn_k", keys, shape.width)
        add(f"{block}.attn_v", keys, shape.width)
        add(f"{block}.attn_output", shape.width, shape.width)
        norm(f"{block}.ffn_norm")
        add(f"{block}.ffn_gate", shape.hidden, shape.width)
        add(f"{block}.ffn_up", shape.hidden, shape.width)
        add(f"{block}.ffn_down", shape.width, shape.hidden)
    norm("output_norm")
    add("output", shape.vocabulary, shape.width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
