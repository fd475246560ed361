"""Random primitive graphs over small dyadic numbers, for tests that compare levels bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import GraphOp, build_graph, finish_graph
from luminal.dialects.primitive.build import PrimitiveBuilder, type_of
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import Dim, as_dim, dim, known_equal, product
from luminal.dtype import DType, bf16, bool_, f32, f64, i8, i32, i64

S, T = dim("s", 0, 6), dim("t", 1, 5)
SIZES = [as_dim(n) for n in (0, 1, 1, 2, 3, 4, 4, 6)] + [S, T, S + 1, 2 * T]
DTYPES = (f32, f32, f32, f64, bf16, i64, i32, i8, bool_)


class RandomGraph:
    """A graph, its inputs and the values of its symbols."""

    def __init__(self, graph: GraphOp, inputs: list[np.ndarray], dims: dict[str, int]) -> None:
        self.graph, self.inputs, self.dims = graph, inputs, dims

    def __repr__(self) -> str:
        return f"\n{self.graph}\ndims {self.dims}\ninputs {[array.tolist() for array in self.inputs]}"


@dataclass
class _Maker:
    draw: st.DrawFn
    build: PrimitiveBuilder
    pool: list[SSAValue] = field(default_factory=list)

    def pick(self, *dtypes: DType, rank: int = 0) -> SSAValue | None:
        fits = [
            v for v in self.pool if type_of(v).rank >= rank and (not dtypes or type_of(v).dtype in dtypes)
        ]
        recent = fits if self.draw(st.integers(0, 3)) == 0 else fits[-2:]  # long chains rather than wide ones
        return self.draw(st.sampled_from(recent)) if fits else None

    def same_shape(self, value: SSAValue, *dtypes: DType) -> SSAValue:
        """Another value of the shape of one, cast to its dtype or one of some."""
        shape = type_of(value).shape
        fits = [v for v in self.pool if type_of(v).shape == shape]
        other = self.draw(st.sampled_from(fits))
        wanted = dtypes or (type_of(value).dtype,)
        return other if type_of(other).dtype in wanted else self.build.cast(other, wanted[0])

    def clamp(self, value: SSAValue) -> SSAValue:
        """Keeps numbers small, so that sums are exact in any order."""
        dtype = type_of(value).dtype
        if dtype is bool_:
            return value
        low, high = self.build.full_like(-3, value), self.build.full_like(3, value)
        return self.build.min(self.build.max(value, low), high)

    def axis(self, value: SSAValue) -> int:
        return self.draw(st.integers(0, type_of(value).rank - 1))

    def fitting_index(self, shape: tuple[Dim, ...], size: Dim) -> SSAValue:
        """An i64 tensor of valid indices for an axis of some size (at least one)."""
        build = self.build
        fits = [v for v in self.pool if type_of(v).shape == shape]
        kind = self.draw(st.integers(0, 2))
        if fits and kind:
            base = build.cast(self.draw(st.sampled_from(fits)), i64)
        elif shape:
            base = build.iota(shape, self.draw(st.integers(0, len(shape) - 1)))
        else:
            base = build.full(1, shape, i64)
        limit = build.broadcast_to(build.dim_value(size), shape)
        return build.mod(base, limit, "floor")


def _elementwise(m: _Maker) -> SSAValue | None:
    x = m.pick()
    assert x is not None
    dtype, op = (
        type_of(x).dtype,
        m.draw(st.sampled_from(("add", "mul", "max", "min", "less", "select", "bits", "neg"))),
    )
    y = m.same_shape(x)
    build = m.build
    if op == "less":
        return build.compare(x, y, m.draw(st.sampled_from(("lt", "le", "eq", "ne"))))
    if op == "select":
        return build.select(m.same_shape(x, bool_), x, y)
    if op == "bits" and (dtype.is_integer or dtype is bool_):
        return build.bits(x, y, m.draw(st.sampled_from(("and", "or", "xor"))))
    if op in ("max", "min") or dtype is bool_:
        return build.max(x, y) if op == "max" else build.min(x, y)
    if op == "neg":
        return build.neg(x)
    return m.clamp(build.add(x, y) if op == "add" else build.mul(x, y))


def _cast(m: _Maker) -> SSAValue | None:
    x = m.pick()
    assert x is not None
    return m.clamp(m.build.cast(x, m.draw(st.sampled_from(DTYPES))))


def _permute(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=2)
    return x and m.build.permute(x, m.draw(st.permutations(range(type_of(x).rank))))


def _expand(m: _Maker) -> SSAValue | None:
    x = m.pick()
    assert x is not None
    if type_of(x).rank > 3:
        return None
    position = m.draw(st.integers(0, type_of(x).rank))
    shape = list(type_of(x).shape)
    reshaped = m.build.reshape(x, [*shape[:position], 1, *shape[position:]])
    shape.insert(position, m.draw(st.sampled_from(SIZES)))
    return m.build.expand(reshaped, shape)


def _reshape(m: _Maker) -> SSAValue | None:
    """Any shape of as many elements: factors of the sizes in another order, merged and split at will."""
    x = m.pick()
    assert x is not None
    shape = type_of(x).shape
    parts: list[Dim] = []
    for size in shape:
        number = size.constant
        if number in (4, 6) and m.draw(st.booleans()):
            parts += (
                [as_dim(2), as_dim(number // 2)]
                if m.draw(st.booleans())
                else [as_dim(number // 2), as_dim(2)]
            )
        else:
            parts.append(size)
    parts = list(m.draw(st.permutations(parts)))
    if not parts:
        return m.build.reshape(x, [1] * m.draw(st.integers(1, 2)))
    made = [parts[0]]
    for part in parts[1:]:
        if len(made) >= 4 or m.draw(st.booleans()):
            made[-1] = made[-1] * part
        else:
            made.append(part)
    if known_equal(product(made), product(shape)):
        return m.build.reshape(x, made)
    return None


def _slice(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None:
        return None
    starts, sizes, steps = [], [], []
    for size in type_of(x).shape:
        step, start = m.draw(st.integers(1, 2)), m.draw(st.integers(0, 1))
        if size.bounds()[0] == 0 or not m.draw(st.booleans()):
            step, start = 1, 0
        starts.append(start)
        steps.append(step)
        sizes.append(size if step == 1 and start == 0 else (size - start + step - 1) // step)
    return m.build.slice(x, starts, sizes, steps)


def _pad(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None:
        return None
    amounts = st.sampled_from([0, 0, 1, 2, T])
    rank = type_of(x).rank
    low, high = [m.draw(amounts) for _ in range(rank)], [m.draw(amounts) for _ in range(rank)]
    return m.build.pad(x, low, high, m.draw(st.sampled_from((0, 1))))


def _flip(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    return x and m.build.flip(x, m.draw(st.sets(st.integers(0, type_of(x).rank - 1), min_size=1)))


def _window(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None or type_of(x).rank > 3:
        return None
    axis, size, step = m.axis(x), m.draw(st.integers(1, 3)), m.draw(st.integers(1, 2))
    least = type_of(x).shape[axis].bounds()[0]
    return m.build.window(x, axis, size, step) if least is not None and least >= size else None


def _reduce(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None:
        return None
    axes = sorted(m.draw(st.sets(st.integers(0, type_of(x).rank - 1), min_size=1)))
    monoid = m.draw(st.sampled_from(("sum", "sum", "prod", "max", "min", "argmax", "argmin")))
    if monoid in ("sum", "prod"):
        return None if type_of(x).dtype is bool_ else m.clamp(m.build.sum_reduce(x, axes, monoid))
    return m.clamp(m.build.max_reduce(x, axes[:1] if monoid.startswith("arg") else axes, monoid))


def _normalise(m: _Maker) -> SSAValue | None:
    """x - max(x) and the like: a reduction spread over its own axis again."""
    x = m.pick(f32, f64, i64, rank=1)
    if x is None:
        return None
    axis, shape = m.axis(x), type_of(x).shape
    kept = [as_dim(1) if a == axis else size for a, size in enumerate(shape)]
    total = m.clamp(m.build.sum_reduce(x, [axis]) if m.draw(st.booleans()) else m.build.max_reduce(x, [axis]))
    return m.clamp(m.build.sub(x, m.build.expand(m.build.reshape(total, kept), shape)))


def _matmul(m: _Maker) -> SSAValue | None:
    """x @ x.T or x.T @ x, and x - x.T of a square."""
    x = m.pick(f32, f64, i32, rank=2)
    if x is None or type_of(x).rank != 2:
        return None
    rows, columns = type_of(x).shape
    if m.draw(st.booleans()):
        x = m.build.permute(x, (1, 0))
        rows, columns = columns, rows
    left = m.build.expand(m.build.reshape(x, (rows, 1, columns)), (rows, rows, columns))
    right = m.build.expand(m.build.reshape(x, (1, rows, columns)), (rows, rows, columns))
    return m.clamp(m.build.sum_reduce(m.build.mul(left, right), [2]))


def _scan(m: _Maker) -> SSAValue | None:
    x = m.pick(f32, f64, i64, i32, rank=1)
    return x and m.clamp(m.build.scan(x, m.axis(x), m.draw(st.sampled_from(("sum", "max", "min")))))


def _gather(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None or any(size.bounds()[0] == 0 for size in type_of(x).shape):
        return None
    like = m.pick()
    assert like is not None
    shape = type_of(like).shape
    indices = [m.fitting_index(shape, size) for size in type_of(x).shape]
    return m.build.gather(x, indices, m.draw(st.sampled_from(("error", "assumed"))))


def _scatter(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    if x is None or any(size.bounds()[0] == 0 for size in type_of(x).shape):
        return None
    value = m.pick(type_of(x).dtype)
    assert value is not None
    shape = type_of(value).shape
    combines = ("set", "max", "min") if type_of(x).dtype is bool_ else ("set", "add", "max", "min")
    combine = m.draw(st.sampled_from(combines))
    indices = [m.fitting_index(shape, size) for size in type_of(x).shape]
    made = m.build.scatter(x, value, indices, combine)
    return m.clamp(made) if combine == "add" else made


def _sort(m: _Maker) -> SSAValue | None:
    x = m.pick(rank=1)
    return x and m.draw(st.sampled_from(m.build.sort(x, m.axis(x), m.draw(st.booleans()))))


def _source(m: _Maker) -> SSAValue | None:
    shape = m.draw(st.lists(st.sampled_from(SIZES), max_size=3))
    kind = m.draw(st.integers(0, 2))
    if kind == 0 and shape:
        return m.build.iota(shape, m.draw(st.integers(0, len(shape) - 1)))
    if kind == 1:
        return m.build.dense(np.arange(6, dtype=np.float32).reshape(2, 3))
    return m.build.full(m.draw(st.integers(-2, 2)), shape, m.draw(st.sampled_from((f32, i64, bf16))))


_OPERATIONS = (
    _elementwise, _elementwise, _elementwise, _cast, _permute, _permute, _expand, _reshape, _reshape, _slice, _pad,
    _flip, _window, _reduce, _reduce, _normalise, _normalise, _normalise, _matmul, _matmul, _scan, _gather, _gather,
    _scatter, _scatter, _sort, _source,
)  # fmt: skip
_LARGEST = 3000


@st.composite
def random_graphs(draw: st.DrawFn, operations: int = 10, licences: tuple[str, ...] = ()) -> RandomGraph:
    """A graph of up to `operations` steps; without licences every level must agree to the bit."""
    dims = {"s": draw(st.integers(0, 6)), "t": draw(st.integers(1, 5))}
    types = [
        tensor_type(draw(st.lists(st.sampled_from(SIZES), max_size=3)), draw(st.sampled_from(DTYPES)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    symbols = [symbol for size in (S, T) for symbol in size.symbols()]
    graph, block = build_graph("main", symbols, types, licences or ())
    maker = _Maker(draw, PrimitiveBuilder(block), list(block.args))
    for _ in range(draw(st.integers(min(4, operations), operations))):
        made = draw(st.sampled_from(_OPERATIONS))(maker)
        if (
            made is not None
            and product(type_of(made).shape).evaluate(dims) <= _LARGEST
            and type_of(made).rank <= 5
        ):
            maker.pool.append(made)
    outputs = draw(st.lists(st.sampled_from(maker.pool[-4:]), min_size=1, max_size=3))
    finish_graph(block, [*outputs, maker.pool[-1]])
    graph.verify()
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    return RandomGraph(graph, [_numbers(generator, t, dims) for t in types], dims)


def _numbers(generator: np.random.Generator, type_: object, dims: dict[str, int]) -> np.ndarray:
    shape = [size.evaluate(dims) for size in type_.shape]  # type: ignore[attr-defined]
    return generator.integers(-3, 4, shape).astype(type_.dtype.numpy)  # type: ignore[attr-defined]
