"""Values of tiles, addresses and memory accesses of a placed kernel, inside one LLVM function.

Pure operations are written on demand, one coordinate at a time, so that each FMA follows the loads that it
needs and few registers are live; of what is stored, a few coordinates at a time, line by line in turn. A value
that a nested block uses is written whole where it stands. Addresses are built outermost loop first, each step
at the start of its loop's body, so that nothing is computed deeper than it must be.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from xdsl.ir import Block, Operation, SSAValue

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
from luminal.dialects.kernel.placed_loops import ForOp, YieldOp
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dialects.kernel.ranges import largest_product, range_of_value
from luminal.dim import as_dim
from luminal.dtype import DType
from luminal.emit_cpu.accesses import AccessWriter, vector_strides
from luminal.emit_cpu.addresses import Point, lanes_in, points
from luminal.emit_cpu.arithmetic import (
    apply_elementwise,
    combine,
    combine_pair,
    register_type,
)
from luminal.emit_cpu.dots import Chains, dot_product
from luminal.emit_cpu.interior import Part, always_holds, part_of
from luminal.emit_cpu.interleave import interleaved, last_block
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.layouts import Layout, Product, block_of
from luminal.emit_cpu.text import Function, Index, Lines
from luminal.emit_cpu.transposed import quad_axis
from luminal.emit_cpu.values import Value, constant_bits, lane_constants, lanes_of, vector_of, zero
from luminal.emit_cpu.vectors import coordinates, elements_in, neighbours, spread

TRUE = Value("i1", "true")

CHAIN_REGISTERS = 4
"""of a chain of elementwise operations, of which several are written side by side"""
DEEPEST = 64
"""operations that may wait for one another: a longer chain is written piece by piece"""


def is_true(value: Value) -> bool:
    return value.text in ("true", "splat (i1 true)")


def is_false(value: Value) -> bool:
    return value.text in ("false", "splat (i1 false)")


class TileWriter(AccessWriter):
    """Writes tiles into one LLVM function."""

    def __init__(
        self, f: Function, target: Target, licences: frozenset[str], sizes: Value, symbols: Sequence[str]
    ) -> None:
        super().__init__(f, sizes, symbols)
        self.target, self.licences, self.licensed = target, licences, "contract" in licences
        self.full: set[SSAValue] = set()
        self.held: set[ApplyOp] = set()
        """comparisons that are known to hold in the code that is being written"""
        self.failed: set[ApplyOp] = set()
        """those that are known to hold nowhere in it"""
        self.frames: dict[Block, dict[object, Value]] = {}
        self.pending: dict[Block, list[LoadOp]] = {}
        self.open: list[Block] = []
        self.depths: dict[SSAValue, int] = {}
        self.chains: Chains = {}
        self._layouts: dict[SSAValue, Layout] = {}
        self._products: dict[ContractOp, Product] = {}

    @contextmanager
    def knowing(self, held: set[ApplyOp], failed: set[ApplyOp]) -> Generator[None]:
        """Write code in which some comparisons hold, and others nowhere."""
        before = self.held, self.failed
        self.held, self.failed = self.held | held, self.failed | failed
        try:
            yield
        finally:
            self.held, self.failed = before

    # Blocks

    def open_block(self, block: Block, carried: Sequence[Value]) -> None:
        """Begin a copy of a block; `carried` are its arguments after the loop variables, whole, in order."""
        self.frames[block], self.pending[block] = {}, []
        for argument in block.args:
            if argument in self.variables or argument in self.references:
                continue
            carried = carried[self.bind_whole(argument, carried) :]

    def bind_whole(self, value: SSAValue, results: Sequence[Value]) -> int:
        """Give a value its coordinates from the front of `results`; how many they were."""
        coordinates = points(tile_of(value).axes)
        frame = self.frames[block_of(value)]
        for point, result in zip(coordinates, results, strict=False):
            frame[value, tuple(point.values())] = result
        return len(coordinates)

    def whole(self, value: SSAValue) -> list[Value]:
        """All coordinates of a value, in order."""
        return [self.value(value, point) for point in points(tile_of(value).axes)]

    def step(self, op: Operation) -> None:
        """An operation without a block: a store now, anything else where it is needed."""
        block = op.parent_block()
        assert block is not None
        if isinstance(op, StoreOp):
            self.settle(block, op.reference, op)
            self.store(op)
            return
        if isinstance(op, PrefetchOp):
            self.fetch(op)
            return
        if isinstance(op, ConstantOp | DimensionOp | YieldOp):
            return
        depth = 1 + max((self.depths.get(operand, 0) for operand in op.operands), default=0)
        for result in op.results:
            self.depths[result] = depth % DEEPEST
            if depth == DEEPEST:
                self.whole(result)
            inner = [use.operation for use in result.uses if use.operation.parent_block() is not block]
            for point in points(tile_of(result).axes) if inner else ():
                self.value(result, point)
                for axes in dict.fromkeys(_vector_of_user(user) for user in inner):
                    self.wide(result, point, axes)
        if isinstance(op, LoadOp):
            self.pending[block].append(op)

    def settle_before(self, op: Operation) -> None:
        """Finish the loads of memory that the blocks of `op` write."""
        block = op.parent_block()
        assert block is not None
        for inner in op.walk():
            if isinstance(inner, StoreOp):
                self.settle(block, inner.reference, None)

    def settle(self, block: Block, reference: SSAValue, store: StoreOp | None) -> None:
        """Finish pending loads that a store may overwrite. Those of its own address wait for each
        coordinate."""
        waiting: list[LoadOp] = []
        for load in self.pending[block]:
            if not _may_overlap(load.reference, reference) or (
                store is not None and _same_address(load, store)
            ):
                waiting.append(load)
            else:
                self.whole(load.result)
        self.pending[block] = waiting

    # Values

    def value(self, value: SSAValue, point: Point) -> Value:
        """One coordinate of a value; `point` may have axes that it lacks."""
        layout = self._layout(value)
        place = tuple([point[axis] for axis in layout.outside])
        frame = self.frames[layout.block]
        found = frame.get((value, place))
        if found is not None:
            return found
        op = value.owner
        assert isinstance(op, Operation), "a block's arguments are bound when it opens"
        own = dict(zip(layout.outside, place, strict=True))
        for result, computed in zip(op.results, self._compute(op, own), strict=True):
            frame[result, place] = computed
        return frame[value, place]

    def _layout(self, value: SSAValue) -> Layout:
        found = self._layouts.get(value)
        if found is None:
            found = self._layouts[value] = Layout.of(value)
        return found

    def wide(self, value: SSAValue, point: Point, axes: tuple[TileAxis, ...]) -> Value:
        """A coordinate as a vector of these axes, or a scalar where there are none; it is spread once."""
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return constant_bits(register_type(tile_of(value).dtype, elements_in(axes)), owner.bits.data)
        found = self.value(value, point)
        if is_true(found):
            return constant_bits(vector_of("i1", elements_in(axes)), 1)
        layout = self._layout(value)
        own = layout.vector if lanes_of(found.type) else ()
        if own == axes or not {*own} < {*axes}:
            return found
        # A vector of an outer block's value is known there if that block spread it; else in this block alone.
        key = (found.text, axes)
        outer = self.frames[layout.block]
        frame = outer if key in outer else self.frames[self.open[-1]]
        if key not in frame:
            frame[key] = spread(self.f, found, own, axes)
        return frame[key]

    def _compute(self, op: Operation, point: Point) -> list[Value]:
        match op:
            case ConstantOp():
                return [constant_bits(register_type(op.tile.dtype, lanes_in(op.tile)), op.bits.data)]
            case DimensionOp():
                return [self.f.operand(self.size(op.size.data), "i64")]
            case IndexOp():
                return [self._index(op, point)]
            case GuardOp():
                return [self._guard(op, point)]
            case LoadOp():
                return [self._load(op, point)]
            case ApplyOp():
                return [self._apply(op, point)]
            case ContractOp():
                return [self._contract(op, point)]
            case AccumulateOp():
                return self._accumulate(op, point)
            case ReduceOp():
                return self._reduce(op, point)
            case _:
                raise AssertionError(f"{op.name} has no value")

    def _load(self, op: LoadOp, point: Point) -> Value:
        """One coordinate; where neighbours come in one piece, they are kept too.  Zero where a mask is off."""
        access = self.access_of(op)
        mask = self._mask(access.mask, point)
        if mask is not None and is_false(mask):
            return constant_bits(register_type(access.tile.dtype, access.lanes), 0)
        axis = access.turned
        group = None if axis is None else self.load_turned(op, point, axis)
        if axis is None or group is None:
            return self.load(op, point)
        frame = self.frames[block_of(op.result)]
        frame |= {
            (op.result, tuple({**point, axis: place}.values())): value for place, value in group.items()
        }
        return group[point[axis]]

    def _index(self, op: IndexOp, point: Point) -> Value:
        address, tile = op.address.data, op.tile
        base = self.affine(op.variables, address.strides, self.offset(address, tile.axes, point))
        whole = self.f.operand(base, vector_of("i64", lanes_in(tile)))
        for axis, stride in zip(tile.vector, vector_strides(address, tile), strict=True):
            steps = [place[axis] for place in coordinates(tile.vector)]
            whole = self.f.op("add", whole, self._times(steps, self.size(stride)))
        return whole

    def _times(self, steps: Sequence[int], stride: Index) -> Value:
        """A vector of i64: each step times the stride."""
        if isinstance(stride, int):
            return lane_constants("i64", [step * stride for step in steps])
        return self.f.op("mul", lane_constants("i64", steps), self.f.splat(stride, len(steps)))

    def _guard(self, op: GuardOp, point: Point) -> Value:
        if any(variable in self.full for variable in op.variables) or guard_is_trivial(op):
            return TRUE
        tile, f = op.tile, self.f
        weights = [as_dim(-weight) for weight in op.outer]
        limit = self.affine(op.variables, weights, op.size.data)
        steps = dict(zip(tile.axes, op.steps, strict=True))
        limit = f.index("sub", limit, sum(step * steps[axis] for axis, step in point.items()))
        ahead = [
            sum(step * steps[axis] for axis, step in place.items()) for place in coordinates(tile.vector)
        ]
        if isinstance(limit, int) and limit > max(ahead):
            return TRUE
        if tile.vector:
            return f.lanes_below(limit, ahead)
        return f.compare("icmp sgt", f.operand(limit, "i64"), 0)

    def _apply(self, op: ApplyOp, point: Point) -> Value:
        if op in self.held:
            return TRUE
        if op in self.failed:
            return constant_bits(vector_of("i1", lanes_in(op.tile)), 0)
        part = part_of(op)
        if part is not None and always_holds(part, self, point):
            return TRUE
        if part is not None and (mask := self._lanes_within(part, point)) is not None:
            return mask
        name, variant = op.op.data, op.variant.data if op.variant else ""
        if name == "bits" and variant == "and" and op.tile.dtype.is_bool:
            values = [self.value(operand, point) for operand in op.inputs]
            known = [is_true(value) for value in values]
            if any(known):
                other = known.index(True) ^ 1
                is_vector = lanes_of(values[other].type)
                return self.wide(op.inputs[other], point, op.tile.vector) if is_vector else values[other]
        operands = [self.wide(operand, point, op.tile.vector) for operand in op.inputs]
        dtypes = [tile_of(operand).dtype for operand in op.inputs]
        return apply_elementwise(
            self.f, name, variant, operands, dtypes, op.tile.dtype, self.target, self.licensed
        )

    def _lanes_within(self, part: Part, point: Point) -> Value | None:
        """The mask of lanes in which a comparison holds, without indices of 64 bits; None where they may descend."""
        f, address, tile = self.f, part.index.address.data, part.index.tile
        steps = [stride.constant for stride in vector_strides(address, tile)]
        if not steps or any(step is None or not 0 <= step < 1 << 16 for step in steps):
            return None
        ahead = [
            sum(place[axis] * (step or 0) for axis, step in zip(tile.vector, steps, strict=True))
            for place in coordinates(tile.vector)
        ]
        first = self.affine(part.index.variables, address.strides, self.offset(address, tile.axes, point))
        below = f.lanes_below(f.index("sub", part.limit, first), ahead)
        return f.op("xor", below, constant_bits(below.type, 1)) if part.is_lower else below

    def _mask(self, mask: SSAValue | None, point: Point) -> Value | None:
        """A mask's value, scalar or vector; None where it is known to hold."""
        if mask is None:
            return None
        value = self.value(mask, point)
        return None if is_true(value) else value

    def _masked(self, mask: Value | None, new: Value, old: Value) -> Value:
        return new if mask is None else self.f.select(mask, new, old)

    def _contract(self, op: ContractOp, point: Point) -> Value:
        product = self._products.get(op)
        if product is None:
            product = self._products[op] = Product.of(op)
        f, axes, dtype = self.f, product.tile.vector, product.tile.dtype
        total = self.wide(product.total, point, axes)
        for rest in product.rest:
            place = {**point, **rest}
            if product.group:
                total = self._dot(product, place, (*axes, *product.group), total)
                continue
            left, right = (self.wide(x, place, axes) for x in product.factors)
            if dtype.is_float and self.licensed:
                new = f.fma(left, right, total)
            else:
                new = combine(f, "sum", total, combine(f, "prod", left, right, dtype), dtype)
            total = self._masked(self._mask(product.mask, place), new, total)
        return total

    def _dot(self, product: Product, point: Point, axes: tuple[TileAxis, ...], total: Value) -> Value:
        """The products of a group added to each lane; where the mask does not hold both factors are zero, so that no
        NaN comes of them."""
        mask = self._mask(product.mask, point)
        factors: list[Value] = []
        for operand in product.factors:
            value = self.wide(operand, point, axes)
            if mask is not None and product.mask is not None:
                value = self.f.select(self.wide(product.mask, point, axes), value, zero(value.type))
            factors.append(value)
        left, right = product.factors
        return dot_product(
            self.f,
            self.target,
            total,
            (factors[0], factors[1]),
            (tile_of(left).dtype, tile_of(right).dtype),
            product.tile.dtype,
            self.licences,
            largest_product(range_of_value(left), range_of_value(right)),
            self.chains,
        )

    def _accumulate(self, op: AccumulateOp, point: Point) -> list[Value]:
        axes, dtype = tile_of(op.accumulators[0]).vector, tile_of(op.accumulators[0]).dtype
        old = [self.wide(x, point, axes) for x in op.accumulators]
        new = [self.wide(x, point, axes) for x in op.values]
        combined = self._combine(op.monoid.data, old, new, dtype)
        mask = self._mask(op.mask, point)
        return [self._masked(mask, value, before) for value, before in zip(combined, old, strict=True)]

    def _combine(self, monoid: str, old: Sequence[Value], new: Sequence[Value], dtype: DType) -> list[Value]:
        if len(old) == 2:
            return list(combine_pair(self.f, monoid, (old[0], old[1]), (new[0], new[1]), dtype))
        return [combine(self.f, monoid, old[0], new[0], dtype, "contract" if self.licensed else "")]

    def _reduce(self, op: ReduceOp, point: Point) -> list[Value]:
        """Halves are combined until one is left: over plain axes, over the neighbours of a group, over lanes."""
        axes, kept = tile_of(op.inputs[0]).axes, tile_of(op.reduced[0])
        dtype, monoid = tile_of(op.inputs[0]).dtype, op.monoid.data
        dropped = [axis for axis in axes if axis not in kept.axes]
        parts = [[self.value(x, {**point, **rest}) for x in op.inputs] for rest in points(dropped)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._combine(monoid, a, b, dtype) for a, b in pairs] + parts[len(parts) & ~1 :]
        result, f = parts[0], self.f
        for axis in dropped:
            if axis.group:
                first, *rest = zip(*(neighbours(f, x, axis.extent) for x in result), strict=True)
                result = list(first)
                for each in rest:
                    result = self._combine(monoid, result, each, dtype)
        if not any(axis.lane for axis in dropped):
            return result
        unit = max(1, elements_in(kept.vector))
        if monoid == "sum" and dtype.is_integer and unit == 1 and lanes_of(result[0].type) > 1:
            # halves added one by one would be exact too, but LLVM 22 loses some of them where bytes were multiplied
            return [f.reduce("add", result[0])]
        last: list[list[Value]] = []
        while (lanes := lanes_of(result[0].type) // unit) > 1:
            half = lanes // 2 * unit
            low, high = ([f.shuffle(x, x, range(start, start + half)) for x in result] for start in (0, half))
            if lanes % 2:
                last.append([f.shuffle(x, x, range(2 * half, lanes * unit)) for x in result])
            result = self._combine(monoid, low, high, dtype)
        for rest in last:
            result = self._combine(monoid, result, rest, dtype)
        return result if kept.vector else [f.extract(x, 0) for x in result]

    def _side_by_side(self, value: SSAValue, places: Sequence[Point]) -> None:
        """Write coordinates of a value whose chains of operations do not wait for one another, a few at a time."""
        few = max(1, self.target.vector_registers // CHAIN_REGISTERS)
        for first in range(0, len(places), few):
            chains: list[Lines] = []
            for point in places[first : first + few]:
                chains.append([])
                with self.f.at(chains[-1]):
                    self.value(value, point)
            merged = interleaved(chains)
            self.f.lines += merged
            self.f.block = last_block(merged) or self.f.block

    # Stores

    def store(self, op: StoreOp) -> None:
        """All coordinates; the loads that wait at the same address come first, coordinate by coordinate."""
        block = op.parent_block()
        assert block is not None
        same = [load for load in self.pending[block] if _same_address(load, op)]
        quads = None if same else quad_axis(op)
        if quads is None and op.dynamic is None and op.combine.data == "set":
            self._side_by_side(op.value, points(op.tile.axes))
        for point in points(op.tile.axes) if quads is None else self._store_quads(op, quads):
            for load in same:
                self.value(load.result, point)
            self._store(op, point)
        self.pending[block] = [load for load in self.pending[block] if load not in same]


def guard_is_trivial(op: GuardOp) -> bool:
    """Whether the trip count of the innermost loop already says what the guard says."""
    return not op.tile.axes and op.outer[-1:] == [1]


def _vector_of_user(op: Operation) -> tuple[TileAxis, ...]:
    """The axes of the vectors in which an operation uses its operands."""
    if isinstance(op, StoreOp):
        return op.tile.vector
    if isinstance(op, ContractOp):
        return (*op.tile.vector, *(axis for axis in op.summed if axis.group))
    return tile_of(op.results[0]).vector if op.results and not isinstance(op, LoadOp | ForOp) else ()


def _may_overlap(a: SSAValue, b: SSAValue) -> bool:
    alias = reference_of(a).alias
    return a is b or (alias >= 0 and alias == reference_of(b).alias)


def _same_address(load: LoadOp, store: StoreOp) -> bool:
    """Whether a load reads exactly what a store writes, coordinate by coordinate."""
    return (
        load.reference is store.reference
        and load.tile.axes == store.tile.axes
        and load.address == store.address
        and list(load.variables) == list(store.variables)
        and load.dynamic is store.dynamic
    )
