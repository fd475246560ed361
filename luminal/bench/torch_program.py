"""Programs of benchmarks in torch: one call or one step of training, results as arrays, and what a program must do."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from luminal.bench.case import Prepared, Program

Array = np.ndarray[Any, Any]
RATE = 1e-6
"""Of learning: small, so that a thousand timed steps leave the numbers what they are."""


def in_torch(
    program: Program, module: nn.Module, function: Callable[..., Any], note: Callable[[], str] = str
) -> Prepared:
    """`function`, which is `module` or a compilation of it, on the inputs; a step of descent where that is the case."""
    inputs = program.inputs
    if not program.training:
        return Prepared(lambda: function(*inputs), arrays, note)
    parameters = [each for each in module.parameters() if each.requires_grad]
    descent = torch.optim.SGD(parameters, RATE)

    def step() -> list[Tensor]:
        descent.zero_grad()
        loss = function(*inputs)
        loss.backward()
        descent.step()
        return [loss.detach(), *(each.grad for each in parameters if each.grad is not None)]

    return Prepared(step, arrays, note)


def arrays(result: Any) -> list[Array]:
    """All tensors of a result: integers as they are, floats no narrower than f32."""
    leaves = tree_leaves(result)
    return [array(leaf) for leaf in leaves if isinstance(leaf, Tensor)]


def array(value: Tensor) -> Array:
    narrow = value.dtype in (torch.bfloat16, torch.float16)
    return (value.float() if narrow else value).detach().clone().numpy()


def exact(program: Program) -> tuple[list[Array], float]:
    """The results in f64, and the GFLOP of the multiply-adds that torch counts on the way."""
    module = deepcopy(program.module).double()
    inputs = tuple(each.double() if each.is_floating_point() else each for each in program.inputs)
    again = Program(module, inputs, training=program.training)
    with FlopCounterMode(display=False) as counter:
        result = in_torch(again, module, module).call()
    return arrays(result), counter.get_total_flops() / 1e9


def least_mbytes(program: Program, results: list[Array]) -> float:
    """Inputs, parameters and results, each once."""
    held = (*program.inputs, *program.module.parameters(), *program.module.buffers())
    return (sum(each.nbytes for each in held) + sum(each.nbytes for each in results)) / 1e6
