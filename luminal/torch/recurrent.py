"""How recurrent networks are traced: short LSTMs step by step, longer ones as PyTorch's own layer, and its gradient.

PyTorch's functions for tracing them have two mistakes. The dropout between layers is left out; and the layer is called
without the notes that its gradient reads, which then reads past the end of an empty tensor. Here the gradient is an op
that runs the layer once more and takes its notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

UNROLLED_STEPS = 64
"""An LSTM over at most so many steps is traced step by step; a longer one stays PyTorch's."""

_LAYER = torch.ops.aten.mkldnn_rnn_layer.default
_GRADIENT = torch.ops.aten.mkldnn_rnn_layer_backward.default

_LIBRARY = torch.library.Library("luminal", "FRAGMENT")
_LIBRARY.define(
    str(_GRADIENT._schema)
    .replace("aten::mkldnn_rnn_layer_backward", "lstm_layer_backward")
    .replace(", Tensor workspace", "")
)


def _gradient(
    x: Any, w0: Any, w1: Any, w2: Any, w3: Any, hx: Any, cx: Any, output: Any, hy: Any, cy: Any, grad_output: Any,
    grad_hy: Any, grad_cy: Any, reverse: bool, mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    train: bool, bidirectional: bool, batch_sizes: list[int], batch_first: bool,
) -> Any:  # fmt: skip
    """The gradients of the input, of both weights and biases, and of both states of one layer in one direction."""
    with torch.enable_grad():  # without it the layer takes no notes, whatever `train` says
        notes = _LAYER(
            x, w0, w1, w2, w3, hx, cx, reverse, batch_sizes, mode, hidden_size, num_layers, has_biases,
            bidirectional, batch_first, True,
        )[3]  # fmt: skip
    return _GRADIENT(
        x, w0, w1, w2, w3, hx, cx, output, hy, cy, grad_output, grad_hy, grad_cy, reverse, mode, hidden_size,
        num_layers, has_biases, True, bidirectional, batch_sizes, batch_first, notes,
    )  # fmt: skip


_LIBRARY.impl("lstm_layer_backward", _gradient, "CPU")
_LIBRARY.impl("lstm_layer_backward", lambda *given: _GRADIENT(*given, given[0]), "Meta")

RECURRENT: dict[Any, Callable[..., Any]] = {
    _GRADIENT: lambda *given: torch.ops.luminal.lstm_layer_backward(*given[:-1])
}
"""Decompositions: the gradient without the notes."""


def select_lstm(original: Callable[..., Any], unrolled: Callable[..., Any]) -> Callable[..., Any]:
    """What chooses the function that traces one layer in one direction: `unrolled` for a short one, for others as
    `original` does where no gradient is wanted."""

    def select(x: Any, hidden: Any, weights: Any) -> Any:
        whole = original(x.detach(), hidden, weights)

        def layer(x: Any, *rest: Any, **named: Any) -> Any:
            steps = x.size(0)
            trace = unrolled if isinstance(steps, int) and steps <= UNROLLED_STEPS else whole
            return trace(x, *rest, **named)

        return layer

    return select


def drop_between_layers(original: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's own function for the layers of recurrent networks, which forgets the dropout between them, with it."""

    def run(
        x: Any, hidden: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool, layer: Any,
    ) -> Any:  # fmt: skip
        x, last = x.transpose(0, 1) if batch_first else x, list[Any]()
        directions = 2 if bidirectional else 1
        for start in range(0, directions * num_layers, directions):
            part = slice(start, start + directions)
            if start and train:
                x = torch.dropout(x, dropout, train=True)
            x, found = original(
                x, hidden[part], params[part], has_biases, 1, 0.0, train, bidirectional, False, layer
            )
            last += found
        return x.transpose(0, 1) if batch_first else x, last

    return run
