"""The meaning of the placed form: runs a kernel.function on flat NumPy arrays, tile by tile.

It is slow and strict: scratch memory begins as garbage, and an access outside of a reference is an error, so that a
wrong placement shows here before any code is generated.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.kernel.combine import combine, combine_pair
from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.placed import (
    AccumulateOp,
    ApplyOp,
    ConstantOp,
    ContractOp,
    DimensionOp,
    GuardOp,
    IndexOp,
    LoadOp,
    PrefetchOp,
    ReduceOp,
    StoreOp,
)
from luminal.dialects.kernel.placed_base import reference_of, tile_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp, YieldOp
from luminal.dialects.kernel.placed_types import Address, Loop, Tile, TileAxis
from luminal.dtype import DType, from_bits

Array = NDArray[Any]


def interpret_placed(function: FunctionOp, memory: Sequence[Array], dims: Mapping[str, int]) -> None:
    """Run a kernel in place on flat arrays, one for each reference, with the values of its symbols by name.

    Raises IndexError for an access outside of a reference.
    """
    machine = _Machine(dims)
    block = function.body.block
    for argument, array in zip(block.args, memory, strict=True):
        machine.memory[argument] = array
    machine.run(block)


def garbage(dtype: DType, elements: int) -> Array:
    """Memory that nobody has written: a pattern that is NaN in floats and absurd in integers."""
    raw = np.full(elements * dtype.size_bytes, 0xFF if dtype.is_float else 0x7B, np.uint8)
    return raw.view(dtype.numpy) if not dtype.is_bool else np.ones(elements, np.bool_)


class _Machine:
    def __init__(self, dims: Mapping[str, int]) -> None:
        self.dims = dims
        self.memory: dict[SSAValue, Array] = {}
        self.tiles: dict[SSAValue, Array] = {}
        self.variables: dict[SSAValue, int] = {}

    def run(self, block: Block) -> list[Array]:
        for op in block.ops:
            if isinstance(op, YieldOp):
                return [self.tiles[value] for value in op.values]
            self.step(op)
        return []

    def step(self, op: Operation) -> None:
        match op:
            case AllocateOp():
                reference = reference_of(op.reference)
                self.memory[op.reference] = garbage(reference.dtype, reference.elements.evaluate(self.dims))
            case ParallelOp():
                self.parallel(op)
            case ForOp():
                self.loop(op)
            case ConstantOp():
                shape = _shape(op.tile)
                self.tiles[op.result] = np.full(
                    shape, from_bits(op.bits.data, op.tile.dtype), op.tile.dtype.numpy
                )
            case DimensionOp():
                self.tiles[op.result] = np.array(op.size.data.evaluate(self.dims), np.int64)
            case IndexOp():
                self.tiles[op.result] = self.addresses(op.variables, op.address.data, op.tile.axes)
            case GuardOp():
                base = sum(
                    self.variables[v] * weight for v, weight in zip(op.variables, op.outer, strict=True)
                )
                offsets = _coordinates(op.tile.axes, op.steps)
                self.tiles[op.result] = (base + offsets) < op.size.data.evaluate(self.dims)
            case LoadOp():
                self.load(op)
            case StoreOp():
                self.store(op)
            case PrefetchOp():
                pass
            case ApplyOp():
                inputs = [self.spread(value, op.tile.axes) for value in op.inputs]
                variant = op.variant.data if op.variant is not None else None
                self.tiles[op.result] = evaluate_elementwise(op.op.data, variant, inputs, op.tile.dtype)
            case ContractOp():
                self.contract(op)
            case AccumulateOp():
                self.accumulate(op)
            case ReduceOp():
                self.reduce(op)
            case _:
                raise ValueError(f"{op.name} has no meaning in the placed form")

    # ---- loops

    def trips(self, loop: Loop, outer: Sequence[SSAValue]) -> int:
        return loop.trips(loop.size.evaluate(self.dims), tuple(self.variables[value] for value in outer))

    def parallel(self, op: ParallelOp) -> None:
        grid = [range(self.trips(loop.data, ())) for loop in op.loops]
        for point in itertools.product(*grid):
            self.variables.update(zip(op.body.block.args, point, strict=True))
            self.run(op.body.block)

    def loop(self, op: ForOp) -> None:
        block = op.body.block
        carried = [self.tiles[value] for value in op.inits]
        for iteration in self.needed(op):
            self.variables[block.args[0]] = iteration
            self.tiles.update(zip(block.args[1:], carried, strict=True))
            carried = self.run(block)
        self.tiles.update(zip(op.carried, carried, strict=True))

    def needed(self, op: ForOp) -> range:
        """The iterations of a loop within its limits, where those hold."""
        first, last = 0, self.trips(op.loop.data, op.outer)
        variables, limits, guard = op.bounds
        for limit in limits if guard is None or self.tiles[guard].item() else ():
            reach = limit.offset.evaluate(self.dims)
            for variable, stride in zip(variables, limit.strides, strict=True):
                reach += self.variables[variable] * stride.evaluate(self.dims)
            end = limit.iteration(reach)
            first, last = (first, min(last, end)) if limit.is_upper else (max(first, end), last)
        return range(first, last)

    # ---- memory

    def addresses(self, variables: Sequence[SSAValue], address: Address, axes: tuple[TileAxis, ...]) -> Array:
        base = address.offset.evaluate(self.dims)
        for value, stride in zip(variables, address.strides, strict=True):
            base += self.variables[value] * stride.evaluate(self.dims)
        return base + _coordinates(axes, [stride.evaluate(self.dims) for stride in address.axis_strides])

    def access(self, op: LoadOp | StoreOp, axes: tuple[TileAxis, ...]) -> tuple[Array, Array, Array]:
        """(memory, addresses, mask) of an access, checked against the memory's bounds."""
        memory = self.memory[op.reference]
        where = self.addresses(op.variables, op.address.data, axes)
        if op.dynamic is not None:
            where = where + self.spread(op.dynamic, axes)
        mask = np.ones(where.shape, np.bool_) if op.mask is None else self.spread(op.mask, axes)
        where, mask = np.broadcast_arrays(where, mask)
        wrong = mask & ((where < 0) | (where >= memory.size))
        if wrong.any():
            raise IndexError(
                f"{op.name}: address {int(where[wrong][0])} is outside of {memory.size} elements"
            )
        return memory, where, mask

    def load(self, op: LoadOp) -> None:
        memory, where, mask = self.access(op, op.tile.axes)
        result = np.zeros(where.shape, memory.dtype)
        result[mask] = memory[where[mask]]
        self.tiles[op.result] = result

    def store(self, op: StoreOp) -> None:
        memory, where, mask = self.access(op, op.tile.axes)
        value = self.spread(op.value, op.tile.axes)
        kind = op.combine.data
        for point in np.ndindex(where.shape):
            if not mask[point]:
                continue
            old = memory[where[point]]
            memory[where[point]] = value[point] if kind == "set" else combine(kind, old, value[point])

    # ---- folds

    def contract(self, op: ContractOp) -> None:
        axes = (*op.summed, *op.tile.axes)
        left, right = (
            self.spread(value, axes).astype(op.tile.dtype.numpy, copy=False) for value in (op.left, op.right)
        )
        mask = np.ones(left.shape, np.bool_) if op.mask is None else self.spread(op.mask, axes)
        total = self.spread(op.accumulator, op.tile.axes)
        for point in np.ndindex(*(axis.extent for axis in op.summed)):
            with np.errstate(all="ignore"):
                new = (total + left[point] * right[point]).astype(op.tile.dtype.numpy)
            total = np.where(mask[point], new, total)
        self.tiles[op.result] = total

    def accumulate(self, op: AccumulateOp) -> None:
        monoid = op.monoid.data
        axes = tile_of(op.accumulators[0]).axes
        old = [self.spread(value, axes) for value in op.accumulators]
        new = [self.spread(value, axes) for value in op.values]
        combined = (
            [combine(monoid, old[0], new[0])] if len(old) == 1 else list(combine_pair(monoid, old, new))
        )
        if op.mask is not None:
            mask = self.spread(op.mask, axes)
            combined = [np.where(mask, c, o) for c, o in zip(combined, old, strict=True)]
        for result, value, before in zip(op.combined, combined, old, strict=True):
            self.tiles[result] = np.asarray(value, before.dtype)

    def reduce(self, op: ReduceOp) -> None:
        axes = tile_of(op.inputs[0]).axes
        kept = tile_of(op.reduced[0]).axes
        dropped = [position for position, axis in enumerate(axes) if axis not in kept]
        # numpy moves the dropped axes to the front, where partial results are combined one by one.
        parts = [np.moveaxis(self.tiles[value], dropped, range(len(dropped))) for value in op.inputs]
        flat = [part.reshape(-1, *part.shape[len(dropped) :]) for part in parts]
        total = [part[0] for part in flat]
        for position in range(1, flat[0].shape[0]):
            new = [part[position] for part in flat]
            pair = len(total) > 1
            total = (
                list(combine_pair(op.monoid.data, total, new))
                if pair
                else [combine(op.monoid.data, total[0], new[0])]
            )
        for result, value in zip(op.reduced, total, strict=True):
            self.tiles[result] = np.asarray(value)

    def spread(self, value: SSAValue, axes: tuple[TileAxis, ...]) -> Array:
        """A tile over (at least) the given axes, as an array that has a dimension for each of them."""
        own = tile_of(value).axes
        array = self.tiles[value]
        order = [own.index(axis) for axis in axes if axis in own]
        shape = [axis.extent if axis in own else 1 for axis in axes]
        full = tuple(axis.extent for axis in axes)
        return np.broadcast_to(array.transpose(order).reshape(shape), full)


def _shape(tile: Tile) -> tuple[int, ...]:
    return tuple(axis.extent for axis in tile.axes)


def _coordinates(axes: Sequence[TileAxis], strides: Sequence[int]) -> Array:
    """sum of coordinate * stride for every point of a tile."""
    total = np.zeros(tuple(axis.extent for axis in axes), np.int64)
    for position, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        shape = [1] * len(axes)
        shape[position] = axis.extent
        total = total + np.arange(axis.extent).reshape(shape) * stride
    return total
