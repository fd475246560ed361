"""How a tensor lies in memory: PyTorch's strides as a row-major tensor with its axes permuted, where that is so.

hlo knows shapes only. A tensor whose strides are those of a permuted row-major one is passed without a copy, as that
one, and permuted inside the graph, where a permutation costs nothing. Axes of stride 0 are passed with size 1 and
expanded. What is neither is copied on its way.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

import torch

from luminal.dialects.hlo.builder import HloBuilder
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, as_dim, known_equal, known_less_equal
from luminal.torch.extern import carried_type
from luminal.torch.symbols import SymbolTable


@dataclass(frozen=True)
class Layout:
    """`stored` is the row-major tensor in memory, whose axis i is axis `order[i]` of the logical one.

    `dense` says that the memory holds just that; else the memory has `strides`, and is copied to or from `stored`.
    """

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    order: tuple[int, ...]
    stored: TensorType
    dense: bool
    dtype: torch.dtype

    def to_logical(self, b: HloBuilder, value: Any) -> Any:
        """The logical tensor inside the graph, from the stored one."""
        if self.order != tuple(range(len(self.order))):
            value = b.permute(value, order=[self.order.index(axis) for axis in range(len(self.order))])
        shape = (*self.shape, *self.stored.shape[len(self.shape) :])
        return value if value.type.shape == shape else b.expand(value, shape=shape)

    def to_stored(self, b: HloBuilder, value: Any) -> Any:
        """The stored tensor that the graph returns, from the logical one."""
        shape = value.type.shape
        for axis in range(len(self.order)):
            narrow = self.stored.shape[self.order.index(axis)]
            if narrow.constant == 1 and shape[axis].constant != 1:
                starts = [as_dim(0)] * len(shape)
                stops = [as_dim(1) if i == axis else size for i, size in enumerate(shape)]
                value = b.slice(value, starts=starts, stops=stops, steps=[1] * len(shape))
                shape = value.type.shape
        if self.order == tuple(range(len(self.order))):
            return value
        return b.permute(value, order=self.order)


def layout_of(fake: torch.Tensor, symbols: SymbolTable) -> Layout:
    """The layout of a traced tensor."""
    shape, strides = symbols.shape(fake.shape), symbols.shape(fake.stride())
    logical = carried_type(fake, symbols)
    if fake.is_conj() or fake.is_neg():
        return Layout(shape, strides, tuple(range(logical.rank)), logical, False, fake.dtype)
    narrow = [
        i
        for i, (size, step) in enumerate(zip(shape, strides, strict=True))
        if step == 0 and size.constant != 1 and known_less_equal(1, size)  # none of no elements can be one
    ]
    sizes = [as_dim(1) if i in narrow else size for i, size in enumerate(shape)]
    order = _order(list(fake.shape), list(fake.stride()))
    dense = _is_dense([sizes[i] for i in order], [strides[i] for i in order])
    if not dense:
        return Layout(shape, strides, tuple(range(logical.rank)), logical, not _counts(shape), fake.dtype)
    added = logical.shape[len(shape) :]
    full_order = (*order, *range(len(shape), logical.rank))
    stored = tensor_type([*[sizes[i] for i in order], *added], logical.dtype)
    return Layout(shape, strides, full_order, stored, True, fake.dtype)


def in_memory_order(b: HloBuilder, fake: torch.Tensor, value: Any) -> tuple[Any, list[int]]:
    """A value with its axes from the outermost to the innermost in memory that is made like the traced tensor's, and
    the order of axes that permutes it back."""
    sizes, strides = ([_hint(entry) for entry in entries] for entries in (fake.shape, fake.stride()))
    made = torch.empty_like(torch.empty_strided(sizes, strides, device="meta")).stride()
    order = sorted(range(len(made)), key=lambda axis: -made[axis])
    back = [order.index(axis) for axis in range(len(order))]
    return (value if order == sorted(order) else b.permute(value, order=order)), back


def plain_layout(stored: TensorType) -> Layout:
    """The layout of a row-major tensor."""
    strides: list[Dim] = [as_dim(1)]
    for size in reversed(stored.shape[1:]):
        strides.insert(0, strides[0] * size)
    order = tuple(range(stored.rank))
    return Layout(stored.shape, tuple(strides[: stored.rank]), order, stored, True, stored.dtype.torch)


def _counts(shape: tuple[Dim, ...]) -> bool:
    """Whether the tensor has elements, as far as is known."""
    return not any(size.constant == 0 for size in shape)


def _order(sizes: list[Any], strides: list[Any]) -> list[int]:
    """Axes from the outermost in memory to the innermost; axes of size 1 and of equal strides keep their place."""

    def before(a: int, b: int) -> int:
        if _hint(sizes[a]) == 1 or _hint(sizes[b]) == 1 or _hint(strides[a]) == _hint(strides[b]):
            return a - b
        return _hint(strides[b]) - _hint(strides[a])

    found = sorted(range(len(sizes)), key=cmp_to_key(before))
    stable = list(range(len(sizes)))
    return stable if _is_sorted([_hint(strides[i]) for i in stable if _hint(sizes[i]) != 1]) else found


def _is_sorted(values: list[int]) -> bool:
    return all(a >= b for a, b in itertools.pairwise(values))


def _hint(value: Any) -> int:
    return value if isinstance(value, int) else int(value.node.hint if value.node.hint is not None else 2)


def _is_dense(sizes: list[Dim], strides: list[Dim]) -> bool:
    expected = as_dim(1)
    for size, step in zip(reversed(sizes), reversed(strides), strict=True):
        if size.constant == 1:
            continue
        if not known_equal(step, expected):
            return False
        expected = expected * size
    return True
