"""Cases that are formulas (benchmarks/operations.py): what they take, and the program that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import operations
from luminal.bench.case import Case, Program


@dataclass(frozen=True)
class Data:
    """An array: normal floats times `scale` plus `offset`, or integers below `below`. `order`: the axes of what is
    stored, from which the array is a view by permutation; `step`: every how many elements of the last axis it takes."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    below: int = 0
    scale: float = 1.0
    offset: float = 0.0
    order: tuple[int, ...] = ()
    step: int = 1

    def make(self, size: Callable[[int], int]) -> Tensor:
        shape = [size(each) for each in self.shape]
        if self.order:
            shape = [shape[self.order.index(axis)] for axis in range(len(shape))]
        stored = [*shape[:-1], shape[-1] * self.step]
        dtype = operations.DTYPES[self.dtype]
        if self.below:
            values = torch.randint(0, size(self.below), stored).to(dtype)
        else:
            values = (torch.randn(stored) * self.scale + self.offset).to(dtype)
        values = values[..., :: self.step]
        # the axes of `order` are those of the stored array, in the order in which the view has them
        return values.permute(self.order) if self.order else values


class Formula(nn.Module):
    """A formula in torch, with its weights as parameters."""

    def __init__(self, function: Callable[..., Any], weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(each, requires_grad=False) for each in weights])

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(operations, *inputs, *self.weights)


@dataclass(frozen=True)
class Row:
    """A row of a suite's table: a formula, what it takes, and which of that are weights (the last ones).

    `mbytes`: of a program whose inputs are not all read.
    """

    name: str
    function: Callable[..., Any]
    inputs: Sequence[Data]
    weights: Sequence[Data] = ()
    dtype: str = "f32"
    quick: bool = False
    gflop: float | None = None
    mbytes: float | None = None
    dynamic: bool = field(default=False)

    def case(self) -> Case:
        return Case(self.name, self.dtype, partial(_build, self), self.dynamic, self.quick)


def small(size: int) -> int:
    """A size for tests: sizes that are equal stay so, and multiples of 8 too; up to 16 nothing changes."""
    return size if size <= 16 else max(8, 8 * -(-size // 512))


def _build(row: Row, tiny: bool) -> Program:
    size = small if tiny else int
    inputs = tuple(each.make(size) for each in row.inputs)
    weights = tuple(each.make(size) for each in row.weights)
    return Program(
        Formula(row.function, weights).eval(),
        inputs,
        row.function,
        weights,
        gflop=row.gflop,
        mbytes=row.mbytes,
    )
