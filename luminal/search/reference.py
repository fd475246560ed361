"""Evaluates terms at sampled points: exactly, or as a rounding, a shorter range or a narrower type would have it.

What sums and products of no values are, and every elementwise operation, is as the region interpreter has it; this one
computes no more than the points need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.combine import combine, first_best
from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.monoids import identity_bits
from luminal.dialects.kernel.terms import ELEMENTWISE, Affine, Region, Term
from luminal.dim import Dim
from luminal.dtype import DType, f32, f64, from_bits

Array = NDArray[Any]
UNITS = {f32: 2.0**-23, f64: 2.0**-52}
"""How far a rounding goes at most, relative to the value; terms compute in no narrower float."""
SHORT = {"f16": 2.0**12, "f64": 2.0**900}
"""The range of exponents of the shorter arithmetic: 1 / largest to largest, by dtype; SHORT_OTHERS for the others."""
SHORT_OTHERS = 2.0**100
NOISY = ("add", "mul", "recip", "sqrt", "exp2", "log2", "sin", "mod")
"""Elementwise operations that round."""
UNSIGNED = ("add", "mul", "max", "min", "mod")
"""Elementwise operations whose zeros may have either sign under some licence, as those of reductions may."""
_RUNNING: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the reference computes: f32 as f64 where it is `wide`; every rounding drawn from `noise`; exponents in a
    shorter range, and zeros of no certain sign with that of `zero`, where that is not None."""

    wide: bool = True
    noise: np.random.Generator | None = None
    zero: float | None = None


def axes_of(region: Region) -> dict[str, int]:
    """An axis from 1 on for each index; indices that no term and no output has together share one."""
    together: dict[str, set[str]] = {index: set() for index in region.extents}
    for output in region.outputs:
        for index in output.indices:
            together[index] |= output.indices
    for term in region.terms():
        scope = {*term.free, *term.reduced, *([term.loop.index] if term.op == "loop" else [])}
        for index in scope:
            together[index] |= scope
    axes: dict[str, int] = {}
    for index in sorted(together):
        taken = {axes[other] for other in together[index] if other in axes}
        axes[index] = next(axis for axis in range(1, len(together) + 1) if axis not in taken)
    return axes


Key = tuple[Term, tuple[tuple[int, ...], ...]]
"""A term, and the shape of what each of its free indices is bound to, in the order of the term's own set."""


class Evaluator:
    """Values of terms over (points, axes of the bound indices in use); `axes`: those of `axes_of`, where known."""

    def __init__(
        self,
        region: Region,
        arguments: Sequence[Array],
        dims: Mapping[str, int],
        sizes: Mapping[str, int],
        chosen: Mapping[str, Array],
        arithmetic: Arithmetic,
        axes: Mapping[str, int] | None = None,
    ) -> None:
        self.region, self.arithmetic = region, arithmetic
        self.wide, self.noise = arithmetic.wide, arithmetic.noise
        self.arguments = arguments
        self.dims = dims
        self.sizes = sizes
        self.axes = axes_of(region) if axes is None else axes
        self.rank = 1 + max(self.axes.values(), default=0)
        self.env = {index: points.reshape(-1, *[1] * (self.rank - 1)) for index, points in chosen.items()}
        self.carries: dict[tuple[int, int], Array] = {}
        self.memo: dict[Key, Array] = {}

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
            key = self._key(found)
            if key not in self.memo:
                self.memo[key] = self._compute(found)
        return self.memo[self._key(term)]

    def _key(self, term: Term) -> Key:
        """A term, and how its indices are bound: to points, to all their values, or to one of a loop."""
        return term, tuple([self.env[name].shape for name in term.free])

    def along(self, index: str) -> Array:
        """All positions of an index, along its own axis."""
        shape = [1] * self.rank
        shape[self.axes[index]] = self.sizes[index]
        return np.arange(self.sizes[index]).reshape(shape)

    def _noisy(self, values: Array, dtype: DType) -> Array:
        """As if every value of a term of this dtype had been rounded in one direction or the other by up to a unit."""
        if self.noise is None or dtype not in UNITS:
            return values
        unit = UNITS[dtype]
        return values * (1.0 + unit * self.noise.uniform(-1.0, 1.0, values.shape))

    def _short(self, values: Array, dtype: DType, is_unsigned: bool) -> Array:
        """As an arithmetic with fewer exponents has it."""
        zero = self.arithmetic.zero
        if zero is None or not dtype.is_float:
            return values
        largest = SHORT.get(dtype.name, SHORT_OTHERS)
        wide = values.astype(np.float64)
        wide = np.where(np.abs(wide) > largest, np.copysign(np.inf, wide), wide)
        wide = np.where(np.abs(wide) < 1 / largest, np.copysign(0.0, wide), wide)
        if is_unsigned:
            wide = np.where(wide == 0, zero, wide)
        return wide.astype(values.dtype)

    def _short_product(self, found: Array, factors: Array, axes: tuple[int, ...], running: bool) -> Array:
        """NaN where a product in another order might leave the range on its way."""
        if self.arithmetic.zero is None or found.dtype.kind in "biu":
            return found
        exponents = np.abs(np.log2(np.abs(factors.astype(np.float64))))
        exponents = np.where(np.isfinite(exponents), exponents, 0.0)
        reached = np.cumsum(exponents, axes[0]) if running else np.sum(exponents, axis=axes, keepdims=True)
        return np.where(reached > math.log2(SHORT_OTHERS), np.nan, found).astype(found.dtype)

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
            found = self._noisy(found, term.dtype) if term.op in NOISY else found
            return self._short(found, term.dtype, term.op in UNSIGNED)
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
        axes = tuple(self.axes[index] for index in bound)
        full = [
            np.broadcast_to(p, _with_axes(p.shape, axes, [self.sizes[i] for i in bound], self.rank))
            for p in parts
        ]
        found = _fold(term.reduce.monoid, full, axes, term.dtype)
        if term.reduce.monoid == "prod":
            found = self._short_product(found, full[0], axes, running=False)
        return self._short(found, term.dtype, True)

    def _loop(self, term: Term) -> list[Array]:
        attribute = term.loop
        current = [self.value(operand) for operand in term.inits]
        for iteration in range(self.sizes[attribute.index]):
            step = Evaluator(
                self.region, self.arguments, self.dims, self.sizes, {}, self.arithmetic, self.axes
            )
            step.env = {**self.env, attribute.index: np.full([1] * self.rank, iteration)}
            step.carries = {(attribute.identifier, n): value for n, value in enumerate(current)}
            current = [step.value(operand) for operand in term.nexts]
        return current

    def _scan(self, term: Term) -> Array:
        index, axis = term.scan.index, self.axes[term.scan.index]
        upto = self.env[index]
        positions = self.env[index] = self.along(index)
        values = self._noisy(self.value(term.operands[0]), term.operands[0].dtype)
        self.env[index] = upto
        values = np.broadcast_to(values, np.broadcast_shapes(values.shape, positions.shape))
        running = _RUNNING[term.scan.monoid].accumulate(values, axis, values.dtype)
        if term.scan.monoid == "prod":
            running = self._short_product(running, values, (axis,), running=True)
        running = self._short(running, term.dtype, True)
        # a reduction around the scan asks for all positions, which lie along the same axis
        return running if upto.shape[axis] == self.sizes[index] else np.take_along_axis(running, upto, axis)


def _with_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], sizes: Sequence[int], rank: int
) -> tuple[int, ...]:
    full = list(shape) if len(shape) == rank else [1] * (rank - len(shape)) + list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        full[axis] = size
    return tuple(full)


def _fold(monoid: str, parts: list[Array], axes: tuple[int, ...], dtype: DType) -> Array:
    """Reduce over axes, which stay with extent one."""
    if not parts[0].size and monoid not in ("sum", "prod"):
        operand = len(parts) - 1  # the position, where there is one
        shape = [1 if axis in axes else size for axis, size in enumerate(parts[0].shape)]
        return np.full(shape, from_bits(identity_bits(monoid, dtype, operand), dtype)).astype(
            parts[operand].dtype
        )
    with np.errstate(all="ignore"):
        match monoid:
            case "sum":
                if parts[0].dtype == np.bool_:
                    return np.asarray(parts[0].any(axes, keepdims=True))
                return parts[0].sum(axes, parts[0].dtype, keepdims=True) + parts[0].dtype.type(0)
            case "prod":
                return parts[0].prod(axes, parts[0].dtype, keepdims=True)
            case "max" | "min":
                return (parts[0].max if monoid == "max" else parts[0].min)(axes, keepdims=True)
            case "argmax" | "argmin":
                return first_best(monoid, *np.broadcast_arrays(*parts), axes=axes)
            case _:
                return combine(monoid, parts[0], parts[0])
