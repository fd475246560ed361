"""Parameters are laid out once, and again when they change: found out by identity, version and address."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch_harness import assert_same, compiled

import luminal as lm
from luminal.dump import collect
from luminal.plan.constants import invalidate
from luminal.torch.calling import CompiledGraph


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever parameters are bound."""
    seen: list[int] = []
    bind = CompiledGraph._bind

    def counted(graph: CompiledGraph, given: Any) -> None:
        before = getattr(graph._of_thread, "bound", None)
        bind(graph, given)
        if getattr(graph._of_thread, "bound", None) is not before:
            seen.append(1)

    monkeypatch.setattr(CompiledGraph, "_bind", counted)
    return seen


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)).eval()


def _agree(model: torch.nn.Module, run: Any) -> bool:
    x = torch.randn(3, 4)
    with torch.no_grad():
        return torch.allclose(run(x), model(x), atol=1e-6)


def _in_place(model: Any) -> None:
    with torch.no_grad():
        model[0].weight.add_(1)


def _new_data(model: Any) -> None:
    model[0].weight.data = torch.randn(5, 4)


def _new_parameter(model: Any) -> None:
    model[2].weight = torch.nn.Parameter(torch.randn(2, 5))


def _load(model: Any) -> None:
    model.load_state_dict({name: torch.randn_like(value) for name, value in model.state_dict().items()})


@pytest.mark.parametrize(
    "change", [_in_place, _new_data, _new_parameter, _load], ids=lambda f: f.__name__.strip("_")
)
def test_a_change_is_seen(change: Any, binds: list[int]) -> None:
    model = _model()
    run = compiled(model)
    assert _agree(model, run)
    assert _agree(model, run)
    assert len(binds) == 1
    change(model)
    assert _agree(model, run)
    assert len(binds) == 2


def test_a_change_that_nobody_can_see_needs_invalidate() -> None:
    model: Any = _model()
    run = compiled(model)
    assert _agree(model, run)
    model[0].weight.detach().numpy()[:] = 2.0
    invalidate()
    assert _agree(model, run)


def test_frozen_parameters_are_not_looked_at(binds: list[int]) -> None:
    model: Any = _model()
    run = compiled(model, freeze=True)
    assert _agree(model, run)
    _in_place(model)
    assert _agree(model, run) is False or len(binds) == 1
    invalidate()
    assert _agree(model, run)
    assert len(binds) == 2


def test_parameters_of_inference_mode() -> None:
    with torch.inference_mode():
        model = _model()
        run = compiled(model)
        x = torch.randn(3, 4)
        assert_same(run(x), model(x))
        assert_same(run(x + 1), model(x + 1))
        for parameter in model.parameters():
            parameter.mul_(2)
        assert_same(run(x), model(x))


def test_frozen_parameters_of_inference_mode_are_bound_once(binds: list[int]) -> None:
    with torch.inference_mode():
        model = _model()
        run = compiled(model, freeze=True)
        assert _agree(model, run) and _agree(model, run)
    assert len(binds) == 1


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_steps_of_optimizers_are_seen(name: str) -> None:
    model = _model()
    run = compiled(model)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.5, fused=True)
    for _ in range(2):
        assert _agree(model, run)
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
    assert _agree(model, run)


def test_a_buffer_that_the_model_updates_is_no_constant() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.weight = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x * self.weight + self.count

    model = Counter()
    run = compiled(model)
    x = torch.randn(4)
    with torch.no_grad():
        for step in range(1, 4):
            assert_same(run(x), x * model.weight + step)
    assert float(model.count) == 3


def test_large_constant_tensors_of_the_graph() -> None:
    table = torch.arange(1000.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor(list(range(1000)), dtype=torch.float32)

    x = torch.randn(1000)
    assert_same(compiled(function)(x), x + table)


def test_what_depends_on_parameters_alone_is_computed_once() -> None:
    model = torch.nn.Linear(6, 5).eval()

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    run = compiled(function)
    x = torch.randn(3, 6)
    with torch.no_grad(), collect() as levels:
        assert_same(run(x), function(x))
        model.weight.add_(1)
        assert_same(run(x), function(x))
    (graph,) = levels
    assert "hlo.cast" in graph["hlo"]
    casts = [line for line in graph["primitive"].splitlines() if ".cast" in line and "[5, 6]" in line]
    assert not casts


def test_a_result_that_depends_on_parameters_alone_is_the_users_own() -> None:
    weight = torch.nn.Parameter(torch.randn(4))
    run = compiled(lambda x: (weight * 2, weight.exp().view(2, 2), x + weight.exp()))
    with torch.no_grad():
        for _ in range(2):
            found = run(torch.zeros(4))
            assert_same(found, (weight * 2, weight.exp().view(2, 2), weight.exp()))
            found[0].zero_()
            found[1].zero_()


def test_weight_norm_is_folded() -> None:
    model = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 5)).eval()
    run = compiled(model)
    x = torch.randn(3, 6)
    with torch.no_grad(), collect() as levels:
        torch.testing.assert_close(run(x), model(x))
    (graph,) = levels
    assert "hlo.sqrt" in graph["hlo"] and "primitive.sqrt" not in graph["primitive"]


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("freeze", [False, True])
def test_instances_of_one_module_have_their_own_parameters(freeze: bool, dynamic: bool) -> None:
    """Dynamo gives them one compiled graph, called with other parameters; threads do not meet in it."""
    models = [Scaled().eval() for _ in range(3)]
    options = {"freeze": freeze}
    compiled = [torch.compile(m, backend="luminal", options=options, dynamic=dynamic) for m in models]
    inputs = [torch.randn(size, 8) for size in (3, 5)]
    wanted = [[model(x).detach() for x in inputs] for model in models]
    wrong: list[int] = []

    def call(number: int, rounds: int) -> None:
        with torch.no_grad():
            for _ in range(rounds):
                for x, expected in zip(inputs, wanted[number], strict=True):
                    if not torch.allclose(compiled[number](x), expected, atol=1e-5):
                        wrong.append(number)

    for number in (0, 1, 2, 0):
        call(number, 1)
    threads = [threading.Thread(target=call, args=(number, 20)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_batch_norm_reads_a_scale_and_a_shift_that_are_computed_once() -> None:
    norm = torch.nn.BatchNorm2d(8).eval()
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert value is not None
            value.copy_(torch.rand(8) + 0.5)
    x = torch.randn(2, 8, 5, 5)
    run = torch.compile(norm, backend="luminal", options={"freeze": True})
    with torch.no_grad():
        torch.testing.assert_close(run(x), norm(x), rtol=1e-6, atol=1e-6)
        regions = lm.explain(norm, x).partition("==== regions")[2].partition("==== schedules")[0]
    assert "sqrt" not in regions
    assert regions.count("argument") == 3
