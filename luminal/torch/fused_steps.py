"""Optimizers' fused steps write parameters without counting up versions: here they are made to say that they do."""

from __future__ import annotations

import functools
from typing import Any

import torch

from luminal.plan.constants import invalidate

FUSED_STEPS = ("_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_fused_adagrad_")
_below: Any = torch._C._after_ADInplaceOrView_keyset  # pyright: ignore
"""The dispatch keys behind the one under which torch counts writes."""
_library = torch.library.Library("aten", "IMPL")


def _count_writes(step: Any) -> None:
    """Put an `invalidate` before an overload of a fused step, where torch counts writes of other operators."""

    def counted(keys: Any, *arguments: Any, **named: Any) -> Any:
        invalidate()
        return step.redispatch(keys & _below, *arguments, **named)

    _library.impl(step, counted, "ADInplaceOrView", with_keyset=True)


@functools.cache
def count_fused_steps() -> None:
    """From now on, each fused step of an optimizer of this process has parameters bound again."""
    for name in FUSED_STEPS:
        step: Any = getattr(torch.ops.aten, name)
        for overload in step.overloads():
            _count_writes(getattr(step, overload))
