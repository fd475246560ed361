"""Random numbers that a backward graph draws once more: dropout in a part of a model that is recomputed.

    y = dropout(x)    ->    state, y = run_and_save_rng_state(dropout, x)    in the forward graph
                            y = run_with_rng_state(state, dropout, x)        in the backward graph

AOTAutograd puts these two in after it has traced, without a word of what they give.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._prims.rng_prims import (
    graphsafe_run_with_rng_state,
    run_and_save_rng_state,
    run_with_rng_state,
)
from torch.fx.node import map_arg

from luminal.errors import UnsupportedOpError


def trace_repeated_draws(graph: torch.fx.Graph) -> None:
    """Note the traced results (`meta["val"]`) of both kinds of calls, and that the size of the state is no symbol.

    Raises UnsupportedOpError where the state is a generator of the GPU, which is no tensor.
    """
    if graph.find_nodes(op="call_function", target=graphsafe_run_with_rng_state):
        raise UnsupportedOpError("random numbers in what is recomputed in the backward pass, on a GPU")
    for node in graph.find_nodes(op="call_function", target=run_with_rng_state):
        _fix_size(cast(torch.fx.Node, node.args[0]))
        node.meta["val"] = _traced(node.args[1:], node.kwargs)
    for node in graph.find_nodes(op="call_function", target=run_and_save_rng_state):
        (state,) = [user for user in node.users if user.args[1] == 0]
        node.meta["val"] = (_fix_size(state), _traced(node.args, node.kwargs))


def _fix_size(state: torch.fx.Node) -> Any:
    """The traced state of the generator, which AOTAutograd gives the size of an input that may vary."""
    mode: Any = detect_fake_mode(state.meta["val"])
    state.meta["val"] = mode.from_tensor(torch.get_rng_state(), static_shapes=True)
    return state.meta["val"]


def _traced(call: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the op `call[0]` gives for the traced arguments, in their own fake mode."""
    op, *operands = cast("list[Any]", map_arg(call, lambda node: node.meta["val"]))
    named: Any = map_arg(kwargs, lambda node: node.meta["val"])
    with cast(Any, detect_fake_mode(operands)):
        return op(*operands, **named)
