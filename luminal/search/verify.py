"""The reference value of a region at sampled points of its outputs, in double precision.

A candidate is compared with it before it is timed.  Sampling keeps the cost apart from the size: each point needs its
own reductions alone.

How far a right candidate may be off is found by evaluating the points again with every rounding drawn at random, which
is Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic", 1997): where such values scatter the data is
ill-conditioned, and where they are not even of one kind (NaN, infinite, true) nothing can be said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.combine import combine, combine_pair
from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.terms import ELEMENTWISE, Affine, Output, Region, Term, postorder
from luminal.dim import Dim
from luminal.dtype import DType, f32, f64, from_bits

Array = NDArray[Any]
SAMPLED_VALUES = 2_000_000
CERTAIN = 7 / 8
"""The part of the points whose kind of value has to be certain."""
UNITS = {f32: 2.0**-23, f64: 2.0**-52}
"""How far a rounding goes at most, relative to the value; terms compute in no narrower float."""
NOISY = ("add", "mul", "recip", "sqrt", "exp2", "log2", "sin", "mod")
"""Elementwise operations that round."""
_RUNNING: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True, slots=True)
class Sample:
    """Addresses in an output and what stands there: exact values, a bound for the error of a candidate, and whether
    every right candidate gives a value of this kind.  `scatters`: so few do that no kind of value is certain."""

    addresses: Array
    values: Array
    tolerance: Array
    certain: Array
    scatters: bool = False


def sample_output(
    region: Region, position: int, arguments: Sequence[Array], dims: Mapping[str, int], seed: int = 0
) -> Sample | None:
    """Reference values of an output at random points.

    None where the output is empty, written at computed addresses, or combined with what its memory holds.
    """
    output = region.outputs[position]
    if output.guard is not None or region.is_ordered(output):
        return None
    sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
    if any(sizes[index] == 0 for index in output.indices):
        return None
    volume = _reduced_volume(output, sizes)
    points = int(max(4, min(64, SAMPLED_VALUES // max(1, volume))))
    generator = np.random.default_rng(seed)
    chosen = {index: generator.integers(0, sizes[index], points) for index in sorted(output.indices)}
    values, *others = (
        np.broadcast_to(
            _Evaluator(region, arguments, dims, sizes, chosen, wide, noise).value(output.term).reshape(-1),
            (points,),
        )
        for wide, noise in ((True, None), (False, None), (True, generator), (True, generator))
    )
    magnitude = np.abs(values.astype(np.float64))
    addresses = np.full(points, output.address.offset.evaluate(dims), np.int64)
    for index, stride in output.address.strides:
        addresses = addresses + chosen[index] * stride.evaluate(dims)
    tolerance = _tolerance(output.dtype, magnitude, volume)
    certain = np.ones(points, np.bool_)
    for other in others:
        certain &= _same_kind(values, other)
        if output.dtype.is_float:
            with np.errstate(invalid="ignore"):
                spread = np.abs(other.astype(np.float64) - values.astype(np.float64))
            tolerance = tolerance + 16 * np.max(spread[np.isfinite(spread)], initial=0.0)
    return Sample(addresses, values, tolerance, certain, bool(np.mean(certain) < CERTAIN))


def _same_kind(values: Array, other: Array) -> Array:
    """NaN with NaN, an infinity with itself, finite with finite; what is no float only if it is equal."""
    if values.dtype.kind in "biu":
        return values == other
    wide, narrow = values.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(narrow)
    return finite | (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))


def agrees(sample: Sample, result: Array) -> bool:
    """Whether a candidate's output matches: NaN and infinities exactly, the rest within the bound."""
    found = result[sample.addresses].astype(np.float64)
    expected = sample.values.astype(np.float64)
    same_nan = np.isnan(found) == np.isnan(expected)
    finite = np.isfinite(expected) & np.isfinite(found)
    with np.errstate(invalid="ignore"):
        close = np.abs(found - expected) <= sample.tolerance
        exact = (found == expected) | np.isnan(expected)
    compared = sample.certain
    if sample.scatters:
        compared = finite & (sample.values.dtype.kind not in "biu")
    return bool((same_nan & np.where(finite, close, exact) | ~compared).all())


def addresses_are_valid(region: Region, arguments: Sequence[Array], dims: Mapping[str, int]) -> bool:
    """Whether all that is read and written at computed addresses lies inside its memory, for this data; False too
    where that is not to be told cheaply."""
    sizes = {index: extent.evaluate(dims) for index, extent in region.extents.items()}
    computed = [
        (
            t.load.address,
            t.operands[0],
            t.operands[-1] if t.load.guarded else None,
            arguments[t.load.argument].size,
        )
        for t in region.terms()
        if t.op == "load" and t.load.dynamic
    ]
    for output in region.outputs:
        if output.dynamic is not None:
            computed.append((output.address, output.dynamic, output.guard, output.elements.evaluate(dims)))
    for address, dynamic, guard, elements in computed:
        parts = [dynamic] if guard is None else [dynamic, guard]
        free = sorted(address.indices.union(*(part.free for part in parts)))
        if any(t.op in ("carry", "loop") for t in postorder(parts)):
            return False
        if math.prod(sizes[index] for index in free) > SAMPLED_VALUES:
            return False
        evaluator = _Evaluator(region, arguments, dims, sizes, {}, False)
        for index in free:
            evaluator.env[index] = evaluator.along(index)
        where = evaluator.address(address) + evaluator.value(dynamic)
        if guard is not None:
            inside, where = np.broadcast_arrays(evaluator.value(guard).astype(np.bool_), where)
            where = where[inside]
        if where.size and (where.min() < 0 or where.max() >= elements):
            return False
    return True


def _tolerance(dtype: DType, magnitude: Array, accumulated: int) -> Array:
    """Rounding of `accumulated` additions of values near one, and of the elementary functions on the way."""
    if not dtype.is_float:
        return np.zeros_like(magnitude)
    epsilon = {64: 2.0**-52, 32: 2.0**-23}.get(dtype.bits, 2.0**-7 if dtype.name == "bf16" else 2.0**-10)
    growth = 16.0 + 4.0 * np.sqrt(accumulated) + accumulated / 16.0
    return epsilon * growth * (1.0 + magnitude)


def _reduced_volume(output: Output, sizes: Mapping[str, int]) -> int:
    seen: set[Term] = set()
    volumes = [1]
    stack = [(term, frozenset[str]()) for term in output.terms]
    while stack:
        term, bound = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        inner = bound
        if term.op == "reduce":
            inner = bound | set(term.reduce.indices)
            volumes.append(int(np.prod([max(1, sizes[i]) for i in inner])))
        elif term.op == "scan":
            inner = bound | {term.scan.index}
            volumes.append(int(np.prod([max(1, sizes[i]) for i in inner])))
        stack += [(operand, inner) for operand in term.operands]
    return max(volumes)


class _Evaluator:
    """Values of terms over (points, one axis for each bound index in use)."""

    def __init__(
        self,
        region: Region,
        arguments: Sequence[Array],
        dims: Mapping[str, int],
        sizes: Mapping[str, int],
        chosen: Mapping[str, Array],
        wide: bool,
        noise: np.random.Generator | None = None,
    ) -> None:
        self.region = region
        self.wide, self.noise = wide, noise
        self.arguments = arguments
        self.dims = dims
        self.sizes = sizes
        self.axes = sorted(region.extents)
        self.env = {index: points.reshape(-1, *[1] * len(self.axes)) for index, points in chosen.items()}
        self.carries: dict[tuple[int, int], Array] = {}
        self.memo: dict[tuple[Term, frozenset[str]], Array] = {}

    def value(self, term: Term) -> Array:
        """A term's value; chains of elementwise terms have any length, so they are worked off by a stack."""
        stack = [term]
        while stack:
            found = stack[-1]
            missing = (
                [o for o in found.operands if self._key(o) not in self.memo]
                if found.op in ELEMENTWISE
                else []
            )
            if missing:
                stack += missing
                continue
            stack.pop()
            if self._key(found) not in self.memo:
                self.memo[self._key(found)] = self._compute(found)
        return self.memo[self._key(term)]

    def _key(self, term: Term) -> tuple[Term, frozenset[str]]:
        return term, frozenset(name for name in term.free if self.env[name].shape[0] == 1)

    def along(self, index: str) -> Array:
        """All positions of an index, along its own axis."""
        shape = [1] * (1 + len(self.axes))
        shape[1 + self.axes.index(index)] = self.sizes[index]
        return np.arange(self.sizes[index]).reshape(shape)

    def _noisy(self, values: Array, dtype: DType) -> Array:
        """As if every value of a term of this dtype had been rounded in one direction or the other by up to a unit."""
        if self.noise is None or dtype not in UNITS:
            return values
        unit = UNITS[dtype]
        return values * (1.0 + unit * self.noise.uniform(-1.0, 1.0, values.shape))

    def address(self, affine: Affine) -> Array:
        total: Array = np.array(affine.offset.evaluate(self.dims), np.int64)
        for index, stride in affine.strides:
            total = total + self.env[index] * stride.evaluate(self.dims)
        return total

    def _compute(self, term: Term) -> Array:
        if term.op in ELEMENTWISE:
            operands = np.broadcast_arrays(*(self.value(operand) for operand in term.operands))
            if term.attribute == "bits":  # patterns are those of the region's own dtypes
                exact = operands[0].astype(term.operands[0].dtype.numpy)
                return self._widen(evaluate_elementwise("cast", "bits", [exact], term.dtype))
            wide = f64 if self.wide and term.dtype == f32 else term.dtype
            found = evaluate_elementwise(term.op, cast("str | None", term.attribute), list(operands), wide)
            return self._noisy(found, term.dtype) if term.op in NOISY else found
        match term.op:
            case "constant":
                return self._widen(np.array(from_bits(cast(int, term.attribute), term.dtype)))
            case "index":
                return self.address(cast(Affine, term.attribute))
            case "dimension":
                return np.array(cast(Dim, term.attribute).evaluate(self.dims), np.int64)
            case "load":
                return self._load(term)
            case "reduce":
                return self._reduce(term)
            case "scan":
                return self._scan(term)
            case "carry":
                return self.carries[cast(tuple[int, int], term.attribute)]
            case "project":
                return self._loop(term.operands[0])[cast(int, term.attribute)]
            case _:
                raise ValueError(f"no reference for {term}")

    def _load(self, term: Term) -> Array:
        attribute = term.load
        memory = self.arguments[attribute.argument]
        where = self.address(attribute.address)
        if attribute.dynamic:
            where = where + self.value(term.operands[0])
        if not attribute.guarded:
            return self._widen(memory[where])
        guard, where = np.broadcast_arrays(self.value(term.operands[-1]).astype(np.bool_), where)
        safe = np.where(guard, where, 0)
        values = memory[safe] if memory.size else np.zeros(safe.shape, memory.dtype)
        return self._widen(np.where(guard, values, np.zeros((), memory.dtype)).astype(memory.dtype))

    def _widen(self, values: Array) -> Array:
        """f32 as f64 where the reference computes in higher precision; narrower floats are only loaded and cast."""
        return values.astype(np.float64) if self.wide and values.dtype == np.float32 else values

    def _reduce(self, term: Term) -> Array:
        bound = term.reduce.indices
        saved = {index: self.env.get(index) for index in bound}
        for index in bound:
            self.env[index] = self.along(index)
        parts = [self.value(operand) for operand in term.operands]
        if term.reduce.monoid in ("sum", "prod"):
            parts = [self._noisy(p, o.dtype) for p, o in zip(parts, term.operands, strict=True)]
        for index, old in saved.items():
            if old is None:
                del self.env[index]
            else:
                self.env[index] = old
        axes = tuple(1 + self.axes.index(index) for index in bound)
        full = [
            np.broadcast_to(p, _with_axes(p.shape, axes, [self.sizes[i] for i in bound], 1 + len(self.axes)))
            for p in parts
        ]
        return _fold(term.reduce.monoid, full, axes)

    def _loop(self, term: Term) -> list[Array]:
        attribute = term.loop
        count = len(attribute.carries)
        current = [self.value(operand) for operand in term.operands[:count]]
        for iteration in range(self.sizes[attribute.index]):
            step = _Evaluator(self.region, self.arguments, self.dims, self.sizes, {}, self.wide, self.noise)
            step.env = {**self.env, attribute.index: np.full([1] * (1 + len(self.axes)), iteration)}
            step.carries = {(attribute.identifier, n): value for n, value in enumerate(current)}
            current = [step.value(operand) for operand in term.operands[count:]]
        return current

    def _scan(self, term: Term) -> Array:
        index, axis = term.scan.index, 1 + self.axes.index(term.scan.index)
        upto = self.env[index]
        positions = self.env[index] = self.along(index)
        values = self._noisy(self.value(term.operands[0]), term.operands[0].dtype)
        self.env[index] = upto
        values = np.broadcast_to(values, np.broadcast_shapes(values.shape, positions.shape))
        running = _RUNNING[term.scan.monoid].accumulate(values, axis, values.dtype)
        # a reduction around the scan asks for all positions, which lie along the same axis
        return running if upto.shape[axis] == self.sizes[index] else np.take_along_axis(running, upto, axis)


def _with_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], sizes: Sequence[int], rank: int
) -> tuple[int, ...]:
    full = list(shape) if len(shape) == rank else [1] * (rank - len(shape)) + list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        full[axis] = size
    return tuple(full)


def _fold(monoid: str, parts: list[Array], axes: tuple[int, ...]) -> Array:
    """Reduce over axes, which stay with extent one."""
    with np.errstate(all="ignore"):
        match monoid:
            case "sum":
                dtype = parts[0].dtype
                if dtype == np.bool_:
                    return np.asarray(parts[0].any(axes, keepdims=True))
                return parts[0].sum(axes, dtype, keepdims=True)
            case "prod":
                return parts[0].prod(axes, parts[0].dtype, keepdims=True)
            case "max" | "min" if parts[0].size:
                return (parts[0].max if monoid == "max" else parts[0].min)(axes, keepdims=True)
            case "argmax" | "argmin":
                moved = [np.moveaxis(part, axes, range(len(axes))) for part in parts]
                flat = [part.reshape(-1, *part.shape[len(axes) :]) for part in moved]
                total = [part[0] for part in flat]
                for step in range(1, flat[0].shape[0]):
                    total = list(combine_pair(monoid, total, [part[step] for part in flat]))
                return np.expand_dims(total[1], axes)
            case _:
                return combine(monoid, parts[0], parts[0])
