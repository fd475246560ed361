"""Which ATen ops AOTAutograd takes apart before Luminal sees the graph, and which stay whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

KEPT = (
    "scaled_dot_product",  # attention is one hlo op; the decomposition also drops fully masked rows' zeros
    "aten.silu.default",
    "aten.select_scatter.default",  # with slice_scatter: how a write into a part of a buffer arrives
    "aten.select_backward",
    "aten.slice_backward",
    "aten.roll.default",  # the decomposition gathers; two slices do
    "aten._fused_rms_norm.default",
    "aten.rms_norm.default",
    "aten._prelu_kernel.default",
    "aten.xlogy",  # the decomposition reads a NaN as a number where the other operand is 0
    "aten.special_entr",
)
"""Parts of names of core decompositions that are left out: the op has a lowering of its own."""

ADDED = (
    "aten.grid_sampler_2d.default",
    "aten.nll_loss2d_forward.default",
    "aten.nansum.default",
    "aten.multilabel_margin_loss_forward.default",
)
"""Decompositions that torch has beyond the core table, and that Luminal wants."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd and `ExportedProgram.run_decompositions` are given."""
    core = core_aten_decompositions().items()
    table = {op: rule for op, rule in core if not any(part in str(op) for part in KEPT)}
    for op, rule in decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and str(op) in ADDED:
            table[op] = rule
    return table
