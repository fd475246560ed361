"""Bytes that the plan of one token's layer moves, by its own account, beside the least that must be moved."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.gpu_models import LLAMA, WEIGHTS, DecoderLayer, token
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.plan.plan import KernelStep
from luminal.search.gpu_launches import works_of
from luminal.torch.export import import_exported
from luminal.torch.options import TorchOptions

MOST_TRAFFIC = 1.05


def moved(program: GpuProgram) -> float:
    """Bytes between memory and the device, of all launches of a program whose sizes are known."""
    steps = [step for step in program.plan.steps if isinstance(step, KernelStep)]
    placed = [program.functions[step.kernel].candidate.function for step in steps]
    works = [work for function in placed for work in works_of(function, {}, program.target.machine)]
    return sum(work.launch.memory_bytes for work in works)


def token_traffic(weights: str, target: str) -> float:
    """What a plan moves for a token in a layer of Llama 3 8B, over the bytes of its weights and of what is kept."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        layer = DecoderLayer(WEIGHTS[weights], *LLAMA).eval()
        exported = torch.export.export(layer, token(*LLAMA), strict=False)
        found = import_exported(exported, TorchOptions(strict=True))
    return moved(build_for_gpu(found.imported.module, target, found.imported.updates)) / layer.bytes
