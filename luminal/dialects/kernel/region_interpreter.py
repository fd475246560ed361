"""The meaning of a region: evaluates its terms on flat NumPy arrays, each for all values of its indices at once.

An index has one axis, in the order of the region's extents, in every array; a term has length one along those that it
does not depend on.  This is what schedules are compared with, so it knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.combine import combine, first_best
from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.monoids import identity_bits
from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.terms import (
    ELEMENTWISE,
    PAIRED_MONOIDS,
    Affine,
    Output,
    Region,
    Term,
    postorder,
)
from luminal.dim import Dim
from luminal.dtype import from_bits

Array = NDArray[Any]
_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_LARGE = 1 << 20
"""Elements from which a sum of products is not spread out before it is summed."""


def evaluate(region: Region, arguments: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    """The flat outputs of a region for flat arguments and the values of its symbols by name.

    An output begins as its aliased argument or as garbage.  Raises IndexError for an access outside of an argument.
    """
    machine = _Machine(region, arguments, dims, {}, None)
    return [machine.output(output) for output in region.outputs]


class _Machine:
    """Values of terms while some indices are `fixed` by loops; what no loop changes is asked of `outer`."""

    def __init__(
        self,
        region: Region,
        arguments: Sequence[Array],
        dims: Mapping[str, int],
        fixed: Mapping[str, int],
        outer: _Machine | None,
        varying: frozenset[Term] = frozenset(),
    ) -> None:
        self.region, self.arguments, self.dims = region, arguments, dims
        self.fixed, self.outer, self.varying = fixed, outer, varying
        self.axes = {name: axis for axis, name in enumerate(region.extents)}
        self.values: dict[Term, Array] = {}
        self.carries: dict[tuple[int, int], Array] = {} if outer is None else dict(outer.carries)

    def size(self, value: Dim) -> int:
        return value.evaluate(self.dims)

    def value(self, term: Term) -> Array:
        """The value of a term; its operands first, so that chains may have any length."""
        if self._is_of_outer(term):
            assert self.outer is not None
            return self.outer.value(term)
        if term not in self.values:
            for part in self._needed(term):
                self.values[part] = self._compute(part)
        return self.values[term]

    def _is_of_outer(self, term: Term) -> bool:
        return self.outer is not None and term not in self.varying

    def _needed(self, term: Term) -> list[Term]:
        """Terms to compute for a term, in order; what a loop or a large sum holds is computed by it."""
        order: list[Term] = []
        stack = [(term, False)]
        seen: set[Term] = set()
        while stack:
            part, expanded = stack.pop()
            if expanded:
                order.append(part)
            elif part not in seen and part not in self.values and not self._is_of_outer(part):
                seen.add(part)
                stack.append((part, True))
                if part.op in ELEMENTWISE or part.op in ("load", "scan"):
                    stack += [(operand, False) for operand in part.operands]
        return order

    def _compute(self, term: Term) -> Array:
        if term.op in ELEMENTWISE:
            return self._elementwise(term)
        match term.op:
            case "constant":
                return self._scalar(from_bits(cast(int, term.attribute), term.dtype))
            case "dimension":
                return self._scalar(np.int64(self.size(cast(Dim, term.attribute))))
            case "index":
                return self._affine(cast(Affine, term.attribute))
            case "load":
                return self._load(term)
            case "reduce":
                return self._reduce(term)
            case "scan":
                return self._scan(term)
            case "carry":
                return self.carries[cast("tuple[int, int]", term.attribute)]
            case "project":
                return self._loop(term.operands[0])[cast(int, term.attribute)]
            case _:
                raise ValueError(f"{term} has no value of its own")

    def _scalar(self, number: Any) -> Array:
        return np.full([1] * len(self.axes), number)

    def _affine(self, affine: Affine) -> Array:
        total = self._scalar(np.int64(self.size(affine.offset)))
        for name, stride in affine.strides:
            total = total + self._places(name) * np.int64(self.size(stride))
        return total

    def _places(self, name: str) -> Array:
        """The values of an index along its axis."""
        shape = [1] * len(self.axes)
        if name in self.fixed:
            return np.full(shape, np.int64(self.fixed[name]))
        shape[self.axes[name]] = -1
        return np.arange(self.size(self.region.extents[name]), dtype=np.int64).reshape(shape)

    def _elementwise(self, term: Term) -> Array:
        operands = list(np.broadcast_arrays(*(self.value(operand) for operand in term.operands)))
        if term.op in ("recip", "mod") and term.dtype.is_integer:  # checks of their own find zeros
            operands[1] = np.where(operands[1] == 0, np.ones_like(operands[1]), operands[1])
        return evaluate_elementwise(term.op, cast("str | None", term.attribute), operands, term.dtype)

    def _load(self, term: Term) -> Array:
        load, operands = term.load, list(term.operands)
        memory, where = self.arguments[load.argument], self._affine(load.address)
        if load.dynamic:
            where = where + self.value(operands.pop(0))
        mask = self.value(operands[0]) if load.guarded else np.ones((), np.bool_)
        if self.region.parents:
            mask = mask & self._inside(term.free)
        where, mask = np.broadcast_arrays(where, mask)
        self._check(where, mask, memory)
        result = np.zeros(where.shape, memory.dtype)
        result[mask] = memory[where[mask]]
        return result

    def _check(self, where: Array, mask: Array, memory: Array) -> None:
        wrong = mask & ((where < 0) | (where >= memory.size))
        if wrong.any():
            raise IndexError(f"address {int(where[wrong][0])} is outside of {memory.size} elements")

    def _inside(self, indices: frozenset[str]) -> Array:
        """Where the parts of split indices among some make a place that the whole index has."""
        inside = np.ones([1] * len(self.axes), np.bool_)
        wholes = sorted({self.region.whole(name)[0] for name in indices if name in self.region.parents})
        for whole in wholes:
            parts = [
                (part, weight)
                for part, (of, weight) in self.region.parents.items()
                if of == whole and part in indices
            ]
            places = self._scalar(np.int64(0))
            for part, weight in parts:
                places = places + self._places(part) * np.int64(weight)
            inside = inside & (places < self.size(self.region.extents[whole]))
        return inside

    # ---- folds

    def _spread(self, term: Term, indices: Sequence[str]) -> Array:
        """A term's value with its full length along some indices, those apart that a loop has fixed."""
        array = self.value(term)
        shape = list(array.shape)
        for name in indices:
            if name not in self.fixed:
                shape[self.axes[name]] = self.size(self.region.extents[name])
        return np.broadcast_to(array, shape)

    def _unfixed(self, indices: Sequence[str], operands: Sequence[Term]) -> _Machine:
        """A machine in which some indices run freely, where a loop around has fixed one of them."""
        if not any(name in self.fixed for name in indices):
            return self
        fixed = {name: value for name, value in self.fixed.items() if name not in indices}
        return _Machine(self.region, self.arguments, self.dims, fixed, self, frozenset(postorder(operands)))

    def _reduce(self, term: Term) -> Array:
        monoid, indices = term.reduce
        machine = self._unfixed(indices, term.operands)
        axes = tuple(self.axes[name] for name in indices)
        if monoid in PAIRED_MONOIDS:
            value, position = (machine._spread(operand, indices) for operand in term.operands)
            return first_best(monoid, *np.broadcast_arrays(value, position), axes=axes)
        product, has_parts = term.operands[0], any(name in self.region.parents for name in indices)
        if monoid == "sum" and product.op == "mul" and product.dtype.is_float:
            count = self.size(self.region.elements(product)) if product.free else 1
            if count > _LARGE and not has_parts:
                return machine._contract(product, axes)
        identity = from_bits(identity_bits(monoid, term.dtype), term.dtype)
        spread = machine._spread(product, indices)
        if has_parts:
            spread = np.where(machine._inside(product.free | set(indices)), spread, identity)
        with np.errstate(all="ignore"):
            found = _UFUNCS[monoid].reduce(
                spread,
                axis=axes,
                keepdims=True,
                initial=identity,
                dtype=term.dtype.numpy,
            )
        return np.asarray(found)

    def _contract(self, product: Term, axes: tuple[int, ...]) -> Array:
        """A sum of products over some axes, as a matrix product."""
        arrays = [self.value(operand) for operand in product.operands]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        operands: list[Any] = []
        for array in arrays:
            kept = [axis for axis in range(array.ndim) if array.shape[axis] == shape[axis]]
            operands += [array.reshape([array.shape[axis] for axis in kept]), kept]
        free = [axis for axis in range(len(shape)) if axis not in axes]
        total = np.einsum(*operands, free, optimize=True)
        return total.reshape([1 if axis in axes else size for axis, size in enumerate(shape)])

    def _scan(self, term: Term) -> Array:
        monoid, index = term.scan.monoid, term.scan.index
        with np.errstate(all="ignore"):
            total = _UFUNCS[monoid].accumulate(self._spread(term.operands[0], [index]), axis=self.axes[index])
            return total + np.zeros_like(total) if monoid == "sum" else total  # a sum begins at +0.0

    def _loop(self, body: Term) -> list[Array]:
        """The carried values after the last iteration."""
        index, identifier, carries = body.loop.index, body.loop.identifier, body.loop.carries
        inits, nexts = body.inits, body.nexts
        values = [self._spread(init, sorted(free)) for init, free in zip(inits, carries, strict=True)]
        varying = frozenset(
            term for term in postorder(nexts) if index in term.free
        )  # a carry has its loop's index
        for place in range(self.size(self.region.extents[index])):
            fixed = {**self.fixed, index: place}
            inner = _Machine(self.region, self.arguments, self.dims, fixed, self, varying)
            inner.carries.update({(identifier, position): value for position, value in enumerate(values)})
            values = [inner._spread(term, sorted(free)) for term, free in zip(nexts, carries, strict=True)]
        return values

    # ---- outputs

    def output(self, output: Output) -> Array:
        """The memory of an output after its writes, which follow each other in the order of its indices."""
        if output.alias >= 0:
            memory = np.array(self.arguments[output.alias])
        else:
            memory = garbage(output.dtype, self.size(output.elements))
        names = sorted(output.indices, key=natural_key)
        where = self._affine(output.address)
        if output.dynamic is not None:
            where = where + self.value(output.dynamic)
        mask = self._scalar(True) if output.guard is None else self.value(output.guard)
        order = [self.axes[name] for name in names]
        order += [axis for axis in range(len(self.axes)) if axis not in order]
        shape = [self.size(self.region.extents[name]) if name in output.indices else 1 for name in self.axes]
        parts = [
            np.broadcast_to(part, shape).transpose(order).ravel()
            for part in (where, mask, self.value(output.term))
        ]
        self._check(parts[0], parts[1], memory)
        where, value = parts[0][parts[1]], parts[2][parts[1]]
        if output.combine == "set":
            memory[where] = value
            return memory
        for place, number in zip(where, value, strict=True):
            memory[place] = combine(output.combine, memory[place], number)
        return memory
