"""Operations that are alike are lowered once; what they become is what each would become alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.expression import Emitter, Expression
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.tensor_type import tensor_type
from luminal.dtype import f32
from luminal.passes import lower_hlo


def _layers(count: int) -> ModuleOp:
    """Layers with lines of their own; before them, operations of a constant that decompositions use too."""
    graph, block = build_graph("main", (), [tensor_type((4, 4), f32)] * 2)
    b = HloBuilder(block)
    x, w = block.args
    zeros = b.full(value=0.0, shape=(4, 4), dtype=f32)
    results = [b.relu(zeros), b.mul(zeros, zeros), b.mul(w, zeros)]
    for number in range(count):
        b.source = f"model.py:{number}" if number % 2 else None
        y = b.softmax(b.relu(b.matmul(x, w)), axis=1)
        x = b.add(b.mul(y, y), b.mul(y, x))
    finish_graph(block, [*results, x])
    return ModuleOp([graph])


def _lowered(module: ModuleOp) -> str:
    lower_hlo.lower_hlo(module)
    module.verify()
    return str(module)


def test_what_is_copied_is_what_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = _lowered(_layers(4))
    unlike = itertools.count()
    monkeypatch.setattr(lower_hlo, "_likeness", lambda op, operands: next(unlike))  # pyright: ignore[reportUnknownLambdaType]
    assert copied == _lowered(_layers(4))


def test_layers_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = lower_hlo.decompose

    def counted(op: HloOp, operands: Sequence[Expression], emitter: Emitter) -> list[Expression]:
        calls.append(op.name)
        return real(op, operands, emitter)

    monkeypatch.setattr(lower_hlo, "decompose", counted)
    found: list[int] = []
    for count in (2, 9):
        calls.clear()
        _lowered(_layers(count))
        found.append(len(calls))
    assert found[0] == found[1]
