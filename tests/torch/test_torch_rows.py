"""Losses and extrema of long rows, through torch.compile: the rows are read from memory once, equal to eager's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_harness import assert_same, compiled

import luminal as lm

Loss = Callable[[Tensor, Tensor], object]


def log_sum_exp(x: Tensor, _: Tensor) -> object:
    return torch.logsumexp(x, -1), torch.logsumexp(x, -1, keepdim=True)


def per_row(x: Tensor, target: Tensor) -> object:
    return functional.cross_entropy(x, target, reduction="none")


def mean(x: Tensor, target: Tensor) -> object:
    return functional.cross_entropy(x, target)


def total(x: Tensor, target: Tensor) -> object:
    return functional.cross_entropy(x, target, ignore_index=0, reduction="sum")


def gathered(x: Tensor, target: Tensor) -> object:
    return -functional.log_softmax(x, -1).gather(1, target[:, None])


def extremum(x: Tensor, _: Tensor) -> object:
    return tuple(x.max(dim=-1))


def position(x: Tensor, _: Tensor) -> object:
    return x.argmax(-1), x.amax(-1)


LOSSES: dict[str, Loss] = {
    f.__name__: f for f in (log_sum_exp, per_row, mean, total, gathered, extremum, position)
}
SPECIAL = {
    "nothing": [float("-inf")],
    "NaN": [1.0, float("nan"), float("inf")],
    "infinite": [float("inf"), 0.0, float("inf")],
    "masked": [float("-inf"), 2.0],
    "ties": [7.0, 7.0],
    "large": [1e30, -1e30],
}


def inputs(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + columns)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    return x, torch.randint(0, columns, (rows,), generator=generator)


def special(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Rows that begin with special values, what is left of them as in others, and rows of nothing but -inf."""
    x, target = inputs(rows, columns, dtype)
    for row, values in zip(x, SPECIAL.values(), strict=False):
        row[: len(values)] = torch.tensor(values[:columns], dtype=dtype)
    x[0] = x[len(SPECIAL) :] = float("-inf")
    return x, target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_rows_give_what_eager_gives(name: str, dtype: torch.dtype) -> None:
    """Many columns and one, and no rows at all; in another shape than the first, sizes are symbols."""
    loss = LOSSES[name]
    torch._dynamo.reset()
    run = compiled(loss, dynamic=None)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for x, target in (inputs(9, 300, dtype), special(9, 70, dtype), inputs(5, 1, dtype), inputs(0, 4, dtype)):
        assert_same(run(x, target), loss(x, target), **close)


def passes_over_logits(text: str, elements: int) -> float:
    """How often the kernels of an explained program read an argument of so many elements from memory."""
    found = re.findall(rf"arg\d+ \w+ \[{elements}\]: passes \S+, from memory (\S+),", text)
    return sum(map(float, found))


@pytest.mark.parametrize("name", LOSSES)
def test_rows_that_no_cache_holds_are_read_once(name: str) -> None:
    """With the elements of the targets, which are a few."""
    x, target = inputs(16, 300_000)
    torch._dynamo.reset()
    text = lm.explain(LOSSES[name], x, target)
    assert passes_over_logits(text, x.numel()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("columns", [2, 300, 10_000])
def test_both_extrema_are_one_kernel(columns: int) -> None:
    torch._dynamo.reset()
    compiled(extremum)(*inputs(9, columns))
    assert lm.stats()["last"]["launches"] == 1
