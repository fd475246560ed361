"""Whole models for GPUs that are not here: built, and run by Triton's interpreter; nothing runs on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_torch_models import MODELS

from luminal.emit_triton.resources import refusal
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.plan.library import as_numpy
from luminal.torch.export import ImportedProgram, import_exported
from luminal.torch.options import TorchOptions
from tests.emit_triton.programs import run_program

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly


class Positional(torch.nn.Module):
    """A model whose tensors are given in order."""

    def __init__(self, model: torch.nn.Module, inputs: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.names = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
        self.rest = {name: value for name, value in inputs.items() if name not in self.names}

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, tensors)), **self.rest, return_dict=False)[0]


def exported(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shapes: Any = None
) -> tuple[ImportedProgram, list[np.ndarray]]:
    """A model's program, and its inputs with the parameters, as they lie in memory."""
    with torch.no_grad():
        program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    found = import_exported(program, TorchOptions(strict=True))
    given = iter(inputs)
    arguments = [next(given) if value is None else value for value in found.arguments]
    tensors = [
        arguments[slot.argument] if slot.constant is None else slot.constant for slot in found.imported.inputs
    ]
    stored = [
        tensor.detach().permute(slot.layout.order).contiguous()
        for tensor, slot in zip(tensors, found.imported.inputs, strict=True)
    ]
    return found, [as_numpy(tensor) for tensor in stored]


def build(found: ImportedProgram, target: str = "sm_90") -> GpuProgram:
    imported = found.imported
    return build_for_gpu(imported.module, target, imported.updates, imported.hints)


@pytest.mark.parametrize(
    "name", ["vit", *(pytest.param(name, marks=NIGHTLY) for name in ("llama", "bert", "gpt2"))]
)
def test_a_model_runs_in_the_interpreter(name: str) -> None:
    model, inputs = MODELS[name]()
    wrapped = Positional(model.eval(), inputs)
    tensors = tuple(inputs[name] for name in wrapped.names)
    found, memory = exported(wrapped, tensors)
    program = build(found)
    for function in program.functions.values():
        assert not [r for each in function.compiled if (r := refusal(each.resources, program.target))]
    (result,) = run_program(program, memory, found.imported.hints)
    with torch.no_grad():
        wanted = wrapped(*tensors).numpy()
    np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "target", ["gfx942", *(pytest.param(each, marks=NIGHTLY) for each in ("sm_80", "sm_100"))]
)
def test_a_model_is_compiled_for_other_devices(target: str) -> None:
    model, inputs = MODELS["vit"]()
    found, _ = exported(Positional(model.eval(), inputs), (inputs["pixel_values"],))
    program = build(found, target)
    assert program.target.architecture == target
    assert all(each.binary for function in program.functions.values() for each in function.compiled)


class Attention(torch.nn.Module):
    """As one writes it, with a causal mask."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * 0.125
        mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


def test_no_model_is_left_out() -> None:
    assert MODELS.keys() == {"llama", "vit", "bert", "gpt2"}


def test_attention_is_one_kernel_and_its_memory_is_linear() -> None:
    shape = torch.randn(2, 2, 48, 16)
    s = torch.export.Dim("s", min=32, max=1 << 16)
    found, memory = exported(Attention(), (shape, shape.flip(0), shape * 2), ({2: s},) * 3)
    imported = found.imported
    program = build_for_gpu(imported.module, "sm_90", imported.updates, dict.fromkeys(imported.hints, 4096))
    (function,) = program.functions.values()
    (kernel,) = function.kernels
    assert function.candidate.form.startswith("folds of") and kernel.source.count("tl.dot") == 2
    assert not program.plan.arena.blocks
    (result,) = run_program(program, memory, imported.hints)
    wanted = Attention()(shape, shape.flip(0), shape * 2).numpy()
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
