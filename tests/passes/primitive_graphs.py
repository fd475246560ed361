"""Primitive graphs that tests of regions share: matrix products, softmax, norms, an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import DEFAULT_LICENCES, GraphOp, build_graph, finish_graph
from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.primitive.build import PrimitiveBuilder, type_of
from luminal.dialects.primitive.interpreter import interpret
from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, DimLike
from luminal.dtype import DTypeLike, f32, i64
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.region_graph import CheckStep, RegionGraph, RegionStep

Body = Callable[..., SSAValue | Sequence[SSAValue]]


def tensor(*shape: DimLike, dtype: DTypeLike = f32) -> TensorType:
    return tensor_type(shape, dtype)


def graph_of(
    types: Sequence[TensorType],
    body: Body,
    symbols: Sequence[Dim] = (),
    licences: Sequence[str] = DEFAULT_LICENCES,
) -> GraphOp:
    """The graph of a body, a function of a builder and the inputs."""
    declared = [symbol for size in symbols for symbol in size.symbols()]
    graph, block = build_graph("main", declared, types, licences)
    results = body(PrimitiveBuilder(block, source="model.py:1 in forward"), *block.args)
    finish_graph(block, [results] if isinstance(results, SSAValue) else results)
    graph.verify()
    return graph


def text(regions: RegionGraph, step: int = -1) -> str:
    found = regions.steps[step]
    assert isinstance(found, RegionStep | CheckStep)
    return region_text(found.region)


def one(types: Sequence[TensorType], body: Body, **options: Sequence[Any]) -> str:
    """The text of the only region of a graph."""
    regions = form_regions(graph_of(types, body, **options))
    assert len(regions.steps) == 1
    return text(regions)


def same(graph: GraphOp, inputs: Sequence[np.ndarray], dims: Mapping[str, int] | None = None) -> RegionGraph:
    """The regions of a graph, which compute what the primitives do."""
    regions = form_regions(graph)
    expected = interpret(graph, inputs, dims or {})
    for want, have in zip(expected, interpret_regions(regions, inputs, dims or {}), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    return regions


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


def matmul(b: PrimitiveBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """x @ y with equal batch dims, or none in y."""
    *batch, m, k = type_of(x).shape
    n = type_of(y).shape[-1]
    rank = type_of(y).rank
    left = b.expand(b.reshape(x, (*batch, m, 1, k)), (*batch, m, n, k))
    turned = b.permute(y, (*range(rank - 2), rank - 1, rank - 2))
    right = b.broadcast_to(b.reshape(turned, (*type_of(turned).shape[:-2], 1, n, k)), (*batch, m, n, k))
    return b.sum_reduce(b.mul(left, right), [len(batch) + 2])


def kept(b: PrimitiveBuilder, reduced: SSAValue, like: SSAValue, axis: int) -> SSAValue:
    """A value reduced over one axis, spread over it again."""
    shape = type_of(like).shape
    return b.expand(b.reshape(reduced, (*shape[:axis], 1, *shape[axis + 1 :])), shape)


def softmax(b: PrimitiveBuilder, x: SSAValue, axis: int) -> SSAValue:
    numerator = b.exp2(b.sub(x, kept(b, b.max_reduce(x, [axis]), x, axis)), "e")
    return b.recip(numerator, kept(b, b.sum_reduce(numerator, [axis]), x, axis))


def layer_norm(b: PrimitiveBuilder, x: SSAValue, weight: SSAValue, bias: SSAValue) -> SSAValue:
    axis = type_of(x).rank - 1
    scale = 1.0 / int(type_of(x).shape[axis])

    def mean(value: SSAValue) -> SSAValue:
        total = b.sum_reduce(value, [axis])
        return b.mul(total, b.full_like(scale, total))

    centred = b.sub(x, kept(b, mean(x), x, axis))
    variance = mean(b.mul(centred, centred))
    root = b.sqrt(b.add(variance, b.full_like(1e-5, variance)))
    normal = b.recip(centred, kept(b, root, x, axis))
    shape = type_of(x).shape
    return b.add(b.mul(normal, b.broadcast_to(weight, shape)), b.broadcast_to(bias, shape))


def silu(b: PrimitiveBuilder, x: SSAValue) -> SSAValue:
    one = b.full_like(1.0, x)
    return b.recip(x, b.add(one, b.exp2(b.neg(x), "e")))


def encoder(batch: DimLike, length: DimLike, layers: int, width: int = 32, heads: int = 4) -> GraphOp:
    """Embedding and layers of a BERT-like encoder with an additive mask; inputs: ids, mask, table, parameters."""
    size, inner = width // heads, 4 * width
    shapes = [(width, width), (width,)] * 4 + [(width,), (width,), (width, inner), (inner,), (inner, width)]
    shapes += [(width,), (width,), (width,)]
    types = [tensor(batch, length, dtype=i64)] * 2 + [tensor(100, width)]
    types += [tensor(*shape) for _ in range(layers) for shape in shapes]

    def body(
        b: PrimitiveBuilder, ids: SSAValue, mask: SSAValue, table: SSAValue, *given: SSAValue
    ) -> SSAValue:
        shape = (batch, length, width)
        spread = b.expand(b.reshape(ids, (batch, length, 1)), shape)
        x = b.gather(table, [spread, b.iota(shape, 2)])
        numbers = b.cast(mask, f32)
        bias = b.mul(b.sub(b.full_like(1.0, numbers), numbers), b.full_like(-1e30, numbers))
        bias = b.expand(b.reshape(bias, (batch, 1, 1, length)), (batch, heads, length, length))

        def linear(x: SSAValue, weight: SSAValue, offset: SSAValue) -> SSAValue:
            product = matmul(b, x, weight)
            return b.add(product, b.broadcast_to(offset, type_of(product).shape))

        def split(x: SSAValue) -> SSAValue:
            return b.permute(b.reshape(x, (batch, length, heads, size)), (0, 2, 1, 3))

        for layer in range(layers):
            p = given[len(shapes) * layer :]
            q, k, v = (split(linear(x, p[2 * n], p[2 * n + 1])) for n in range(3))
            scores = b.add(matmul(b, q, b.permute(k, (0, 1, 3, 2))), bias)
            mixed = b.reshape(b.permute(matmul(b, softmax(b, scores, 3), v), (0, 2, 1, 3)), shape)
            x = layer_norm(b, b.add(linear(mixed, p[6], p[7]), x), p[8], p[9])
            inside = linear(silu(b, linear(x, p[10], p[11])), p[12], p[13])
            x = layer_norm(b, b.add(inside, x), p[14], p[15])
        return x

    return graph_of(types, body)
