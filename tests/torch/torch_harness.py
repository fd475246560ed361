"""What the tests of the torch backend share: a backend for the target under test, and comparison with eager."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from luminal.torch import import_fx
from luminal.torch.backend import Backend

TARGET = os.environ.get("LUMINAL_TEST_TARGET", "cpu")
"""What the tests compile for; "reference" interprets the hlo graph instead."""
BACKEND = Backend("luminal_under_test", TARGET)


def compiled(
    function: Callable[..., Any], *, dynamic: bool | None = False, strict: bool = True, **options: Any
) -> Any:
    """The function through the backend, without graph breaks; an op without a lowering is an error unless told.

    One schedule of each kernel is enough here: the choice among them is tested elsewhere.
    """
    chosen = {"strict": strict, "candidates": 1, **options}
    return torch.compile(function, backend=BACKEND, dynamic=dynamic, fullgraph=True, options=chosen)


def copies(values: Any) -> Any:
    """Deep copies that keep strides (deepcopy of a tensor does)."""
    return copy.deepcopy(values)


def check(
    function: Callable[..., Any], *args: Any, dynamic: bool | None = False, calls: int = 1, **options: Any
) -> Any:
    """Eager and compiled agree in results, dtypes, strides and what they do to their arguments. Returns the results."""
    torch._dynamo.reset()
    mine, theirs = copies(args), copies(args)
    run = compiled(function, dynamic=dynamic, **options)
    found = expected = None
    for _ in range(calls):
        with torch.no_grad():
            expected, found = function(*theirs), run(*mine)
    assert_same(found, expected)
    assert_same(_tensors(mine), _tensors(theirs))
    return found


def assert_same(found: Any, expected: Any, **tolerances: Any) -> None:
    """Equal structure; tensors of equal dtype, shape and strides, and of equal values within rounding."""
    ours, structure = pytree.tree_flatten(found)
    theirs, wanted = pytree.tree_flatten(expected)
    assert structure == wanted
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            assert_close(mine, other, equal_nan=True, **tolerances)
            assert mine.stride() == other.stride(), f"strides {mine.stride()}, expected {other.stride()}"
        else:
            assert mine == other


def _tensors(values: Any) -> list[torch.Tensor]:
    """Tensors of arguments, those of modules included."""
    found: list[torch.Tensor] = []
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.nn.Module):
            found += list(value.state_dict().values())
        elif isinstance(value, torch.Tensor):
            found.append(value)
    return found


class Imports:
    """Records the graphs that are imported while it is entered."""

    def __init__(self) -> None:
        self.graphs: list[import_fx.ImportedGraph] = []

    def __enter__(self) -> Imports:
        self._run = import_fx.FxImporter.run
        recorded, run = self.graphs, self._run

        def record(importer: import_fx.FxImporter) -> import_fx.ImportedGraph:
            recorded.append(run(importer))
            return recorded[-1]

        import_fx.FxImporter.run = record
        return self

    def __exit__(self, *_: object) -> None:
        import_fx.FxImporter.run = self._run

    @property
    def text(self) -> str:
        """The hlo modules as text."""
        return "\n".join(str(graph.module) for graph in self.graphs)
