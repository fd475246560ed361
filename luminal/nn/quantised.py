"""Linear and Embedding with block-quantised weights, in ordinary torch operations.

model = lm.quantise(model, "q4_0", skip=["lm_head"])

The planes of a weight are buffers. Eager decodes the whole weight in every call; compiled, a kernel decodes in
registers what it has just loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from luminal.dtype import dtype_of
from luminal.errors import OptionError, ShapeError
from luminal.quantised import BlockFormat, format_of, integer_product
from luminal.quantised_encode import quantise as encode

Module = TypeVar("Module", bound=nn.Module)
ACTIVATIONS = (None, "q8")


class TorchOps:
    """What decoding needs of torch (see `luminal.quantised.Ops`)."""

    f32, f16, i32, i16, i8 = torch.float32, torch.float16, torch.int32, torch.int16, torch.int8

    def arange(self, count: int, like: torch.Tensor) -> torch.Tensor:
        return torch.arange(count, dtype=torch.uint8, device=like.device)

    def where(self, condition: torch.Tensor, chosen: Any, other: Any) -> torch.Tensor:
        return torch.where(condition, chosen, other)


OPS = TorchOps()


class QuantisedWeight(nn.Module):
    """A weight [rows, columns] whose planes are buffers, named as in its format; zeros until planes are loaded.

    Raises OptionError for an unknown format, ShapeError where `columns` is no multiple of its block.
    """

    def __init__(self, rows: int, columns: int, format: str) -> None:
        super().__init__()
        self.row: BlockFormat = format_of(format)
        self.shape = (rows, columns)
        for name, type_ in self.row.plane_types(self.shape).items():
            sizes = [size.evaluate({}) for size in type_.shape]
            self.register_buffer(name, torch.from_numpy(np.zeros(sizes, type_.dtype.numpy)))

    def planes(self) -> dict[str, torch.Tensor]:
        """The planes by name."""
        return {plane.name: getattr(self, plane.name) for plane in self.row.planes}

    def take(self, planes: Mapping[str, torch.Tensor]) -> None:
        """Make these planes the weight's own, without a copy. OptionError, ShapeError where they do not fit."""
        found = self.row.check({name: (plane.shape, dtype_of(plane.dtype)) for name, plane in planes.items()})
        shape = tuple(map(int, found))
        if shape != self.shape:
            raise ShapeError(f"the planes are those of a weight of {shape}, not {self.shape}")
        for name, plane in planes.items():
            setattr(self, name, plane)

    def quantise(self, weight: torch.Tensor) -> None:
        """Become the quantised form of a float tensor [rows, columns]."""
        array = weight.detach().float().cpu().numpy()
        planes = encode(array, self.row.name)
        self.take({name: torch.from_numpy(plane).to(weight.device) for name, plane in planes.items()})

    @property
    def weight(self) -> torch.Tensor:
        """The decoded weight, f32 [rows, columns]."""
        return self.row.dequantise(self.planes(), OPS)


class QuantisedLinear(QuantisedWeight):
    """y = x W^T + b, [..., in_features] to [..., out_features]. `activations="q8"` quantises x by blocks of 32
    too, which changes results: sums of products are then integer within a block.

    Raises OptionError for other activations, and where the format's elements are no integers.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        format: str,
        bias: bool = True,
        activations: str | None = None,
    ) -> None:
        super().__init__(out_features, in_features, format)
        if activations not in ACTIVATIONS:
            raise OptionError(f"activations is {activations!r}, expected 'q8' or None")
        if activations and not self.row.has_integers:
            raise OptionError(f"activations='q8' needs a format of integers; {self.row.name} has floats")
        self.activations = activations
        self.bias = nn.Parameter(torch.zeros(out_features), requires_grad=False) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.activations is None:
            return nn.functional.linear(x, self.weight.to(x.dtype), self.bias)
        rows = x.reshape(-1, self.shape[1]).float()
        product = integer_product(rows, self.row.read(self.planes(), OPS), OPS)
        result = product.to(x.dtype).reshape(*x.shape[:-1], self.shape[0])
        return result if self.bias is None else result + self.bias

    def extra_repr(self) -> str:
        return f"{self.shape[1]}, {self.shape[0]}, {self.row.name}, activations={self.activations}"


class QuantisedEmbedding(QuantisedWeight):
    """Rows of a table [num_embeddings, embedding_dim] as `dtype`: only those that are asked for are decoded."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, format: str, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, format)
        self.dtype = dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        spread = {plane.name for plane in self.row.planes if plane.tail is not None}
        rows = {name: plane[ids] if name in spread else plane for name, plane in self.planes().items()}
        return self.row.dequantise(rows, OPS).to(self.dtype)

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, {self.shape[1]}, {self.row.name}"


def quantise(
    model: Module, format: str, *, skip: Iterable[str] = (), activations: str | None = None
) -> Module:
    """Replace each Linear and Embedding of a model by its quantised form, in place; returns the model.

    `skip`: names of modules that stay, with * and ?. Weights that are shared stay shared. Raises OptionError for an
    unknown format or activations and where there is nothing to replace, ShapeError where a module's last axis has no
    whole blocks, ScalarError for weights that are not finite.
    """
    patterns = tuple(skip)
    shared: dict[int, dict[str, torch.Tensor]] = {}
    found = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if name
        and type(module) in (nn.Linear, nn.Embedding)
        and not any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not found:
        raise OptionError(
            f"quantise: {type(model).__name__} has no Linear and no Embedding that is not skipped"
        )
    for name, module in found.items():
        parent, _, leaf = name.rpartition(".")
        try:
            replacement = _quantised(module, format, activations, shared)
        except ShapeError as error:
            raise ShapeError(f"quantise: {name}: {error}; skip=[{name!r}] leaves it as it is") from None
        setattr(model.get_submodule(parent), leaf, replacement)
    return model


def _quantised(
    module: nn.Module, format: str, activations: str | None, shared: dict[int, dict[str, torch.Tensor]]
) -> nn.Module:
    """The quantised form of a Linear or Embedding; `shared`: the planes of weights that were met, by identity."""
    if isinstance(module, nn.Linear):
        bias = cast("nn.Parameter | None", module.bias) is not None
        made = QuantisedLinear(module.in_features, module.out_features, format, bias, activations)
        made.bias = module.bias
    else:
        assert isinstance(module, nn.Embedding)
        if module.max_norm is not None:
            raise OptionError("quantise: an Embedding with max_norm changes its weights as it is read")
        made = QuantisedEmbedding(module.num_embeddings, module.embedding_dim, format, module.weight.dtype)
    if id(module.weight) in shared:
        made.take(shared[id(module.weight)])
    else:
        made.quantise(module.weight)
        shared[id(module.weight)] = made.planes()
    return made
