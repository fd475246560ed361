"""Training: forward and backward graphs give eager's gradients and statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch_harness import assert_same, compiled

from luminal.torch import report


def _train(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], loss: Callable[..., Any], steps: int = 3
) -> None:
    other = copy.deepcopy(model)
    run = compiled(other)
    optimisers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, other)]
    for _ in range(steps):
        for forward, optimiser in ((model, optimisers[0]), (run, optimisers[1])):
            optimiser.zero_grad()
            loss(forward(*inputs)).backward()
            optimiser.step()
    for mine, theirs in zip(other.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not report.fallbacks()


def test_a_perceptron() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    )
    target = torch.randint(0, 3, (5,))
    _train(model, (torch.randn(5, 6),), lambda y: F.cross_entropy(y, target))


def test_a_convolutional_network() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 4, 3, stride=2, groups=2), torch.nn.SiLU(), torch.nn.AvgPool2d(2, ceil_mode=True),
        torch.nn.Flatten(), torch.nn.Linear(4, 3),
    )  # fmt: skip
    target = torch.randint(0, 3, (4,))
    _train(model, (torch.randn(4, 3, 10, 10),), lambda y: F.cross_entropy(y, target))


def test_weights_of_a_given_norm() -> None:
    """The norms are those of rows, and of positions of the last axis."""
    norm = torch.nn.utils.parametrizations.weight_norm
    model = torch.nn.Sequential(
        norm(torch.nn.Conv1d(3, 4, 3)), torch.nn.Tanh(), norm(torch.nn.Conv1d(4, 2, 3), dim=2)
    )
    _train(model, (torch.randn(2, 3, 9),), lambda y: y.square().sum())


class _Attention(torch.nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.project, self.causal = torch.nn.Linear(8, 24), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    _train(_Attention(causal), (torch.randn(2, 5, 8),), lambda y: y.square().mean())


def test_an_embedding_with_repeated_indices() -> None:
    _train(torch.nn.Embedding(6, 4), (torch.tensor([1, 1, 5, 0]),), lambda y: y.square().sum())


def _gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, dynamic: bool = False) -> None:
    mine = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    theirs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    expected = function(*theirs)
    found = compiled(function, dynamic=dynamic)(*mine)
    direction = torch.randn_like(expected)
    expected.backward(direction)
    found.backward(direction)
    torch.testing.assert_close(found, expected)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda x: x[:, 1:5:2] * 2,
    "select": lambda x: x[1] * 3,
    "index": lambda x: x[torch.tensor([0, 0, 2])],
    "cumsum": lambda x: x.cumsum(1),
    "max": lambda x: x.max(1).values,
    "softmax": lambda x: torch.softmax(x, 0),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "norm": lambda x: x.norm(dim=1),
    "prod": lambda x: x.prod(1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "roll": lambda x: x.roll(2, 1) * x,
    "where": lambda x: torch.where(x > 0, x, x * x),
    "silu": F.silu,
    "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "group_norm": lambda x: F.group_norm(x.view(1, 4, 6), 2),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_operators(name: str) -> None:
    _gradients(GRADIENTS[name], torch.randn(4, 6))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
def test_gradients_of_convolutions(dims: int, transposed: bool) -> None:
    kind: Any = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    weight = torch.randn(4, 3, *(3,) * dims)
    _gradients(
        lambda x, w, b: kind(x, w, b, stride=2, padding=1, groups=2),
        torch.randn(2, 4 if transposed else 6, *(6, 5, 5)[:dims]),
        weight,
        torch.randn(6 if transposed else 4),
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("scale", [1.1, 2.0, 1.7])
def test_gradients_of_resizing(mode: str, scale: float) -> None:
    _gradients(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), torch.randn(2, 3, 5, 17))


def test_dynamic_sizes() -> None:
    weight = torch.randn(6, 3)
    run = compiled(lambda x, w: torch.tanh(x @ w).sum(0), dynamic=True)
    for rows in (4, 7, 9):
        x = torch.randn(rows, 6, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        torch.tanh(x @ weight).sum().backward()
        run(y, weight).sum().backward()
        torch.testing.assert_close(y.grad, x.grad)


def test_results_have_eager_strides_and_gradients_flow_through_views() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    a, b = (x * 2).t(), compiled(lambda x: (x * 2).t())(y)
    assert_same(b.detach(), a.detach())
    a.sum().backward()
    b.sum().backward()
    assert_same(y.grad, x.grad)
