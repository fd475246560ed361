"""Ops without a lowering run through torch in the same plan, are counted, and keep their effects and their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._prims.rng_prims import graphsafe_run_with_rng_state
from torch_harness import assert_same, compiled

from luminal.errors import UnsupportedOpError
from luminal.torch import report
from luminal.torch.repeated_draws import trace_repeated_draws


def _check(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> dict[str, int]:
    """Eager and compiled agree from the same seed; the fallbacks."""
    run = compiled(function, strict=False, dynamic=dynamic)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = function(*args)
        torch.manual_seed(1)
        found = run(*args)
    assert_same(found, expected)
    return dict(report.fallbacks())


def test_a_fallback_is_counted_by_name() -> None:
    assert _check(lambda x: torch.linalg.svdvals(x + 1) * 2, torch.randn(4, 4)) == {
        "aten._linalg_svd.default": 1
    }


def test_random_numbers_are_eagers_and_in_order() -> None:
    found = _check(lambda x: torch.rand(3) + torch.rand(3) * 2 + x, torch.randn(3))
    assert found == {"aten.rand.default": 2}


def test_dropout() -> None:
    _check(lambda x: torch.nn.functional.dropout(x, 0.5) * 2, torch.randn(40))


def test_symbolic_sizes_reach_the_op() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(x.shape[0], x.shape[1] * 2)[:, : x.shape[1]] + x

    run = compiled(function, strict=False, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.manual_seed(1)
        expected = function(x)
        torch.manual_seed(1)
        assert_same(run(x), expected)


def test_complex_numbers_pass_through() -> None:
    _check(lambda x: (torch.fft.fft(x), torch.fft.fft(x).real * 2), torch.randn(8))
    _check(lambda x: (x * x).imag + 1, torch.randn(8, dtype=torch.complex64))


def test_rotary_embedding_with_complex_numbers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(x.reshape(4, 4, 2)) * torch.polar(torch.ones(4), torch.arange(4.0))
        return torch.view_as_real(turned).flatten(1)

    found = _check(function, torch.randn(4, 8))
    assert set(found) == {"aten.polar.default", "aten.mul.Tensor"}


def test_unsigned_integers_pass_through() -> None:
    _check(lambda x: x.to(torch.int32) + 1, torch.arange(4, dtype=torch.int32).to(torch.uint16))


def test_a_higher_order_op() -> None:
    function = lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))  # noqa: E731
    assert _check(function, torch.ones(3)) == {"cond": 1}


@torch.library.custom_op("luminal_tests::twice", mutates_args=())
def twice(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * 2 + n


@twice.register_fake
def _(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("luminal_tests::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


def test_a_custom_op() -> None:
    assert _check(lambda x: twice(x + 1, 3).sin(), torch.randn(3)) == {"luminal_tests.twice.default": 1}


def test_a_custom_op_that_writes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        increment(y)
        return y

    _check(function, torch.randn(3))


def test_a_custom_op_that_writes_into_an_argument() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        increment(x)
        return x * 2

    x, y = torch.zeros(3), torch.zeros(3)
    assert_same(compiled(function, strict=False)(x), function(y))
    assert_same(x, y)


def test_checks_of_linear_algebra_have_their_effect() -> None:
    run = compiled(lambda x: torch.linalg.inv(x) * 2, strict=False)
    x = torch.randn(4, 4) + 4 * torch.eye(4)
    torch.testing.assert_close(run(x), torch.linalg.inv(x) * 2)
    with pytest.raises(torch.linalg.LinAlgError):
        run(torch.zeros(4, 4))


def test_several_results() -> None:
    _check(lambda x: [part * 2 for part in torch.linalg.qr(x)], torch.randn(4, 4))


def test_bfloat16_reaches_the_op() -> None:
    _check(
        lambda x: torch.histc(x.float(), 4, 0.0, 1.0).bfloat16() + torch.logcumsumexp(x, 0).sum(),
        torch.rand(6).bfloat16(),
    )


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)


def _repeated(x: torch.Tensor) -> torch.Tensor:
    return x[:, :, :1].expand(x.shape)


def _of_channels_last(x: torch.Tensor) -> torch.Tensor:
    return x[None].to(memory_format=torch.channels_last)


@pytest.mark.parametrize("laid_out", [_transposed, _repeated, _of_channels_last])
def test_random_numbers_are_drawn_in_the_order_of_memory(
    laid_out: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = laid_out(x) + 0
        return torch.nn.functional.dropout(y, 0.5), torch.randn_like(y), torch.rand_like(laid_out(x))

    _check(function, torch.randn(5, 7, 9))


def test_dropout_of_everything_draws_nothing() -> None:
    _check(lambda x: (torch.nn.functional.dropout(x, 1.0), torch.rand(3)), torch.randn(4))
    _check(lambda x: (torch.nn.functional.dropout(x, 0.0), torch.rand(3)), torch.randn(4))


def test_a_long_recurrent_network_is_torchs() -> None:
    network = torch.nn.LSTM(4, 5).eval()
    with torch._dynamo.config.patch(allow_rnn=True):
        assert _check(network, torch.randn(65, 2, 4)) == {"aten.mkldnn_rnn_layer.default": 1}


def test_the_gradient_of_a_long_recurrent_network() -> None:
    """PyTorch's trace of it reads notes that nobody took."""
    network = torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True)
    x, gradients = torch.randn(3, 65, 4), list[list[torch.Tensor]]()
    with torch._dynamo.config.patch(allow_rnn=True):
        for run in (network, compiled(network, strict=False)):
            leaf = x.clone().requires_grad_()
            y, (h, c) = run(leaf)
            loss = y.square().sum() + h.sin().sum() + c.sum()
            gradients.append(list(torch.autograd.grad(loss, [leaf, *network.parameters()])))
    assert_same(gradients[1], gradients[0])
    assert set(report.fallbacks()) == {"aten.mkldnn_rnn_layer.default", "luminal.lstm_layer_backward.default"}


def test_a_short_recurrent_network_is_traced_in_steps() -> None:
    """What counts are steps, not sequences."""
    network = torch.nn.LSTM(2, 3, batch_first=True).eval()
    with torch._dynamo.config.patch(allow_rnn=True):
        assert _check(network, torch.randn(65, 2, 2)) == {}


def test_dropout_between_layers_of_a_recurrent_network() -> None:
    network = torch.nn.GRU(2, 3, 2, dropout=0.5, batch_first=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        assert _check(network, torch.randn(2, 2, 2)) == {"aten.native_dropout.default": 1}


def _transposed_dropout(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x.sin().transpose(0, 1), 0.5).cos()


def _noise(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.rand(x.shape)).sin() * torch.bernoulli(x.detach().sigmoid())


@pytest.mark.parametrize("function", [_transposed_dropout, _noise])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_draw_that_is_repeated_in_the_backward_pass(
    function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool
) -> None:
    """The gradients are those of the same masks, and the generator is left in eager's state."""

    def recomputed(x: torch.Tensor) -> torch.Tensor:
        once = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        return once.sum() * torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False).square().sum()

    gradients: list[torch.Tensor] = []
    x = torch.randn(4, 5)
    for run in (recomputed, compiled(recomputed, strict=False, dynamic=dynamic)):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(1)
        run(leaf).backward()
        assert leaf.grad is not None
        gradients += [leaf.grad, torch.rand(1)]
    assert_same(gradients[2:], gradients[:2])


def test_a_draw_repeated_with_a_generator_of_the_gpu_is_refused() -> None:
    graph = torch.fx.Graph()
    graph.call_function(graphsafe_run_with_rng_state, (torch.ops.aten.rand.default, [3]))
    with pytest.raises(UnsupportedOpError, match="on a GPU"):
        trace_repeated_draws(graph)
