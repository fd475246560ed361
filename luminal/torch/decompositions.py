"""Which ATen ops AOTAutograd takes apart before Luminal sees the graph, and which stay whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._decomp import decompositions as torch_decompositions
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from luminal.torch.fused_layers import FUSED_LAYERS
from luminal.torch.gpu_attention import ATTENTION
from luminal.torch.recurrent import RECURRENT, drop_between_layers, select_lstm

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
    "upsample_nearest",  # the decomposition rounds positions otherwise
    "aten.upsample_linear1d.",  # and forgets that equal sizes are the identity
    "aten.upsample_bilinear2d.",
    "aten.upsample_trilinear3d.",
    "aten.upsample_bicubic2d.",  # bytes are rounded in another way
    "aten.xlogy",  # the decomposition reads a NaN as a number where the other operand is 0
    "aten.special_entr",
    "aten.logsumexp",  # the decomposition asks whether the maximum is infinite inside of the sum, which is then no fold
)
"""Parts of names of core decompositions that are left out: the op has a lowering of its own."""

ADDED = (
    "aten.grid_sampler_2d.default",
    "aten.nll_loss2d_forward.default",
    "aten.nansum.default",
    "aten.multilabel_margin_loss_forward.default",
)
"""Decompositions that torch has beyond the core table, and that Luminal wants."""


COUNTING_FROM_ZERO = ("aten.index_add.default", "aten.index_copy.default")
"""Ops that refuse a negative position; the decomposition's index_put would count it from the end."""
COUNTING_FROM_END = ("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
"""Ops that do count it from the end, and whose decomposition goes through those that refuse it."""
UNPOOLING = ("aten.max_unpool2d.default", "aten.max_unpool3d.default")
"""Ops that refuse positions outside of one channel; the decomposition goes on to the next channel."""


def _of_index(rule: Callable[..., Any], change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A rule for (x, dim, index, ...) with negative positions changed; `change` is given them and the axis's size."""

    def call(x: Any, dim: int, index: Any, *rest: Any, **options: Any) -> Any:
        size = x.shape[dim] if x.dim() else 1
        return rule(x, dim, torch.where(index < 0, change(index, size), index), *rest, **options)

    return call


def _of_one_channel(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for (x, indices, output_size, ...) with positions outside of a channel moved outside of them all."""

    def call(x: Any, indices: Any, output_size: Any, *rest: Any) -> Any:
        outside = (indices < 0) | (indices >= math.prod(output_size))
        far = torch.iinfo(indices.dtype).max // 2
        return rule(x, torch.where(outside, far, indices), output_size, *rest)

    return call


def _dropout(x: Any, p: float, train: bool | None) -> Any:
    """Where all is dropped, eager draws no random numbers."""
    return (x * 0.0, torch.zeros_like(x, dtype=torch.bool)) if train and p == 1 else NotImplemented


def _weight_norm_gradient(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """The gradients of v and g in v * g / |v|, where |v| is `norms`: one for each position along `dim`."""
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    along = (grad * v).sum(axes, keepdim=True) / norms
    return ((grad - v * along / norms) * g / norms).to(v.dtype), along.to(g.dtype)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd and `ExportedProgram.run_decompositions` are given."""
    core = core_aten_decompositions().items()
    table = {op: rule for op, rule in core if not any(part in str(op) for part in KEPT)}
    for op, rule in decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and str(op) in ADDED:
            table[op] = rule
    for op, rule in table.items():
        if str(op) in COUNTING_FROM_ZERO:  # where no tensor has an element
            table[op] = _of_index(rule, lambda index, size: torch.iinfo(index.dtype).max)
        elif str(op) in COUNTING_FROM_END:
            table[op] = _of_index(rule, lambda index, size: index + size)
        elif str(op) in UNPOOLING:
            table[op] = _of_one_channel(rule)
    table[torch.ops.aten.native_dropout.default] = _dropout
    table[torch.ops.aten._weight_norm_interface_backward.default] = _weight_norm_gradient
    return table | ATTENTION | FUSED_LAYERS | RECURRENT


WHOLE = (
    *(f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
)
"""Ops that PyTorch takes apart in Python however they are reached, with other positions than its own kernels'."""
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def _resize(op: Any) -> Callable[..., Any]:
    """The overload that computes the size from factors, in terms of the one that is given the size."""

    def call(x: Any, sizes: Any, *rest: Any) -> Any:
        *flags, factors = rest  # align_corners stands between, where there is such a flag
        target = upsample_compute_output_size(x.size(), sizes, factors)
        return op.default(x, target, *flags, *(factors or [None] * (x.dim() - 2)))

    return call


def _like_inputs(grad: Any, sizes: Any, inputs: Any, *_: Any, **__: Any) -> Any:
    """What the gradient of resizing looks like; PyTorch's own function for it takes no symbolic sizes."""
    return grad.new_empty(inputs).to(memory_format=suggest_memory_format(grad))


@contextmanager
def kept_whole() -> Generator[None]:
    """While open, the ops of `WHOLE` are traced as they are, short LSTMs in steps, and dropout between layers."""
    select = torch_decompositions.select_one_layer_lstm_function
    layers = torch_decompositions._rnn_helper
    replaced: list[tuple[Any, dict[Any, Any]]] = []
    for name in WHOLE:
        packet = getattr(torch.ops.aten, name)
        backward = getattr(torch.ops.aten, f"{name}_backward").default
        for op in (packet.default, packet.vec, backward):
            replaced.append((op, dict(op.py_kernels)))
            for key in _KEYS:
                op.py_kernels.pop(key, None)
                if op is packet.vec:
                    op.py_kernels[key] = _resize(packet)
            op._dispatch_cache.clear()
        backward.py_kernels[DispatchKey.Meta] = _like_inputs
    torch_decompositions.select_one_layer_lstm_function = select_lstm(
        select, torch_decompositions.one_layer_lstm
    )
    torch_decompositions._rnn_helper = drop_between_layers(layers)
    try:
        yield
    finally:
        torch_decompositions.select_one_layer_lstm_function = select
        torch_decompositions._rnn_helper = layers
        for op, kernels in replaced:
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
