"""The first elements of a sort: what a selection finds is what a stable sort says, ties and NaN included."""

from __future__ import annotations

import pytest
import torch

from luminal.plan.library import run_library

KINDS = {
    "random": lambda x: x,
    "ties": lambda x: (x * 3).round() / 3,
    "equal": torch.zeros_like,
    "nan": lambda x: torch.where(torch.rand_like(x) < 0.1, float("nan"), x),
    "signed zeros": lambda x: torch.where(x > 1.5, x, x.sign() * 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("axis, count", [(1, 1), (1, 7), (1, 100), (0, 2), (1, 0)])
def test_the_first_are_those_of_a_stable_sort(kind: str, descending: bool, axis: int, count: int) -> None:
    torch.manual_seed(count)
    x = KINDS[kind](torch.randn(16, 100))
    shape = [count if a == axis else size for a, size in enumerate(x.shape)]
    found = torch.empty(shape), torch.empty(shape, dtype=torch.int64)
    run_library("sort", {"axis": axis, "descending": descending, "count": count}, [x], found, {})
    wanted = torch.sort(x, dim=axis, descending=descending, stable=True)
    for mine, whole in zip(found, wanted, strict=True):
        expected = whole.narrow(axis, 0, count)
        torch.testing.assert_close(mine, expected, rtol=0, atol=0, equal_nan=True)
