"""The seam to the compiler: an hlo module becomes a `Program` that runs on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.torch.calling import Program
from luminal.torch.import_fx import ImportedGraph
from luminal.torch.options import TorchOptions


def build_program(imported: ImportedGraph, target: str, options: TorchOptions, constants: Sequence[int]) -> Program:
    raise NotImplementedError
