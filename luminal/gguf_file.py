"""GGUF files, through the package gguf: metadata, tensors as planes, and a decoder with its weights.

file = lm.load_gguf("model.gguf")
file.metadata["llama.context_length"]
file.tensors["blk.0.attn_q.weight"].planes()      {"quants": ..., "scales": ...}
model = file.model()                              activations quantised to 8 bits, unless activations=None

A file is mapped into memory; a tensor is read when its planes are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.errors import ModelFileError
from luminal.quantised import FORMATS, Array

if TYPE_CHECKING:
    import torch

    from luminal.nn.decoder import Decoder

FLOATS = ("F32", "F16", "BF16")
"""Tensor types that are read as f32."""


class Metadata(Mapping[str, Any]):
    """The fields of a file by name, as Python values; converted when they are asked for."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        return self._fields[name].contents()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file: its shape, outermost axis first, its type in GGUF's words and its bytes, mapped."""

    name: str
    shape: tuple[int, ...]
    kind: str
    data: Array

    @property
    def format(self) -> str | None:
        """The name of its block format; None for floats. ModelFileError for a type that is not known."""
        if self.kind in FLOATS:
            return None
        if FORMATS.get(self.kind.lower()) is None or not FORMATS[self.kind.lower()].bytes_per_block:
            known = ", ".join((*FLOATS, *(n.upper() for n, row in FORMATS.items() if row.bytes_per_block)))
            raise ModelFileError(f"{self.name} is stored as {self.kind}; what can be read is {known}")
        return self.kind.lower()

    def planes(self) -> dict[str, Array]:
        """Its planes, or {"": the tensor as f32}."""
        if self.format is not None:
            return FORMATS[self.format].unpack(np.ascontiguousarray(self.data), self.shape)
        raw = np.ascontiguousarray(self.data).reshape(-1)
        if self.kind == "BF16":
            return {"": (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(self.shape)}
        return {
            "": raw.view(np.float16 if self.kind == "F16" else np.float32)
            .astype(np.float32)
            .reshape(self.shape)
        }


@dataclass(frozen=True)
class GGUFFile:
    """A file that `load_gguf` has opened."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    activations: str | None
    cache: str

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All tensors as modules name them: `blk.0.attn_q.quants`, `blk.0.attn_norm.weight`."""
        import torch

        found: dict[str, torch.Tensor] = {}
        for name, tensor in self.tensors.items():
            for plane, array in tensor.planes().items():
                key = f"{name.removesuffix('.weight')}.{plane}" if plane else name
                found[key] = torch.from_numpy(array)
        return found

    def model(self, context: int | None = None, batch: int = 1) -> Decoder:
        """The decoder of the file, with its weights, for inference. `context`: positions that its caches hold, as many
        as the file states otherwise.

        Raises ModelFileError for an architecture that is not known and where tensors are missing, left over or of
        another shape than the metadata say, OptionError for activations or a cache that there are not.
        """

        from luminal.nn.decoder import Decoder, DecoderShape

        if "token_embd.weight" not in self.tensors:
            raise ModelFileError("the file has no tensor token_embd.weight")
        is_tied = "output.weight" not in self.tensors
        vocabulary = self.tensors["token_embd.weight"].shape[0]
        shape = DecoderShape.of(self.metadata, vocabulary, is_tied, context)
        formats = {name.removesuffix(".weight"): tensor.format for name, tensor in self.tensors.items()}
        model = Decoder(shape, formats, self.activations, batch, self.cache)
        state = self.state_dict()
        if is_tied:
            shared = {key: value for key, value in state.items() if key.startswith("token_embd.")}
            state |= {key.replace("token_embd", "output"): value for key, value in shared.items()}
        try:
            model.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise ModelFileError(f"the tensors are not those of the metadata: {error}") from None
        return model.requires_grad_(False).eval()


def load_gguf(path: str | os.PathLike[str], activations: str | None = "q8", cache: str = "f32") -> GGUFFile:
    """Open a GGUF file. `activations` are those of the model's linear layers with quantised weights: "q8" quantises
    what they multiply by blocks of 32, as llama.cpp does; None computes in f32. `cache` is what the model keeps keys
    and values as: "f32", "f16", which is what llama.cpp does, or "bf16".

    Raises ModelFileError where the package gguf is missing, and for a file that is none, damaged or cut off;
    FileNotFoundError where there is none.
    """
    try:
        from gguf import GGUFReader
    except ImportError:
        raise ModelFileError("load_gguf needs the package gguf: pip install 'luminal[gguf]'") from None
    try:
        reader = GGUFReader(os.fspath(path))
    except FileNotFoundError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ModelFileError(f"{os.fspath(path)} is no GGUF file, or damaged or cut off: {error}") from None
    tensors = {
        tensor.name: StoredTensor(
            tensor.name,
            tuple(int(size) for size in reversed(tensor.shape)),
            tensor.tensor_type.name,
            tensor.data,
        )
        for tensor in reader.tensors
    }
    return GGUFFile(Metadata(reader.fields), tensors, activations, cache)
