"""Programs through torch.compile, for the peers that are its backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
from torch import nn

# Each static size is a compilation of its own: more of them than Dynamo's default limit.
torch._dynamo.config.recompile_limit = 64
torch._dynamo.config.allow_rnn = True
_last: dict[str, Any] = {}


def compiled(module: nn.Module, dynamic: bool, **how: Any) -> Callable[..., Any]:
    """`module` by torch.compile; cases in a row that share a module, dynamic, share its compilation."""
    key: Mapping[str, Any] = {"module": module, "dynamic": dynamic}
    if _last.get("key") != key:
        torch._dynamo.reset()
        _last.update(key=key, function=torch.compile(module, dynamic=dynamic, **how))
    return _last["function"]
