"""Sorts as ranks against the sort itself: stable, both ways, along any axis, with NaN and zeros of both signs."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.graph_op import build_graph, finish_graph
from luminal.dialects.primitive.build import PrimitiveBuilder
from luminal.dialects.primitive.interpreter import interpret
from luminal.dialects.tensor_type import tensor_type
from luminal.dtype import DType, bool_, f32, i64
from luminal.passes.rank_sorts import rank_sorts


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [f32, i64, bool_], ids=str)
@pytest.mark.parametrize("shape", [(5, 9), (1, 1), (3, 0)])
def test_a_sort_and_its_ranks(shape: tuple[int, int], dtype: DType, axis: int, descending: bool) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0 if dtype is bool_ else -3, 2 if dtype is bool_ else 4, shape).astype(dtype.numpy)
    if dtype is f32 and values.size > 9:
        values.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan]
    graph, block = build_graph("main", (), [tensor_type(shape, dtype)])
    finish_graph(block, list(PrimitiveBuilder(block).sort(block.args[0], axis, descending)))
    wanted = interpret(graph, [values])
    rank_sorts(graph)
    graph.verify()
    assert "primitive.sort" not in {op.name for op in graph.block.ops}
    for found, right in zip(interpret(graph, [values]), wanted, strict=True):
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(right)) if dtype is f32 else None
