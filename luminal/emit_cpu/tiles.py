"""Values of tiles, addresses and memory accesses of a placed kernel, inside one LLVM function.

Pure operations are written on demand, one coordinate at a time, so that each FMA follows the loads that it
needs and few registers are live. A value that a nested block uses is written whole where it stands. Addresses
are built outermost loop first, each step at the start of its loop's body, so that nothing is computed deeper
than it must be.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import (
    AccumulateOp,
    ApplyOp,
    ConstantOp,
    ContractOp,
    DimensionOp,
    GuardOp,
    IndexOp,
    LoadOp,
    ReduceOp,
    StoreOp,
)
from luminal.dialects.kernel.placed_base import reference_of, tile_of
from luminal.dialects.kernel.placed_loops import ForOp, YieldOp
from luminal.dialects.kernel.placed_types import Tile
from luminal.dim import Dim, as_dim
from luminal.dtype import DType
from luminal.emit_cpu.addresses import AddressWriter, Point, lanes_in, points
from luminal.emit_cpu.arithmetic import (
    apply_elementwise,
    combine,
    combine_pair,
    memory_element,
    register_type,
)
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import (
    Function,
    Index,
    Value,
    bits_of,
    constant_bits,
    lane_constants,
    lanes_of,
    vector_of,
    with_element,
    zero,
)

TRUE = Value("i1", "true")
ZEROS = "luminal_zeros"
SPARE_BYTES = 1024
"""the largest vector that the emitter makes: what a masked-off access reads or writes instead"""

DEEPEST = 64
"""operations that may wait for one another: a longer chain is written piece by piece"""


def is_true(value: Value) -> bool:
    return value.text in ("true", "splat (i1 true)")


class TileWriter(AddressWriter):
    """Writes tiles into one LLVM function."""

    def __init__(
        self, f: Function, target: Target, contract: bool, sizes: Value, symbols: Sequence[str]
    ) -> None:
        super().__init__(f, sizes, symbols)
        self.target, self.licensed = target, contract
        self.full: set[SSAValue] = set()
        self.frames: dict[Block, dict[object, Value]] = {}
        self.pending: dict[Block, list[LoadOp]] = {}
        self.open: list[Block] = []
        self.depths: dict[SSAValue, int] = {}
        self.spare: Value | None = None
        self.aliases: dict[SSAValue, str] = {}

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
        frame = self.frames[_block(value)]
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
                for lanes in sorted({_lanes_of_user(user) for user in inner}):
                    self.wide(result, point, lanes)
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
        block = _block(value)
        key = (value, tuple(point[axis] for axis in tile_of(value).axes if not axis.lane))
        frame = self.frames[block]
        if key not in frame:
            op = value.owner
            assert isinstance(op, Operation), "a block's arguments are bound when it opens"
            own = {axis: point[axis] for axis in tile_of(value).axes if not axis.lane}
            for result, computed in zip(op.results, self._compute(op, own), strict=True):
                frame[result, key[1]] = computed
        return frame[key]

    def wide(self, value: SSAValue, point: Point, lanes: int) -> Value:
        """A coordinate as a vector of `lanes`, or a scalar where that is 0; a scalar is spread once."""
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return constant_bits(register_type(tile_of(value).dtype, lanes), owner.bits.data)
        scalar = self.value(value, point)
        if not lanes or lanes_of(scalar.type):
            return scalar
        if is_true(scalar):
            return constant_bits(vector_of("i1", lanes), 1)
        # A vector of an outer block's scalar is known there if that block spread it; else in this block
        # alone.
        key = (scalar.text, lanes)
        outer = self.frames[_block(value)]
        frame = outer if key in outer else self.frames[self.open[-1]]
        if key not in frame:
            frame[key] = self.f.splat(scalar, lanes)
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
                return [self.load(op, point)]
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

    def _index(self, op: IndexOp, point: Point) -> Value:
        address, tile = op.address.data, op.tile
        base = self.affine(op.variables, address.strides, self.offset(address, tile.axes, point))
        if not tile.lane:
            return self.f.operand(base, "i64")
        return self._spread_lanes(base, address.axis_strides[-1], tile.lane.extent)

    def _spread_lanes(self, base: Index, stride: Dim, lanes: int) -> Value:
        """base + lane * stride as a vector of i64."""
        f = self.f
        if stride.constant is not None:
            steps = lane_constants("i64", [lane * stride.constant for lane in range(lanes)])
        else:
            steps = f.op(
                "mul",
                lane_constants("i64", range(lanes)),
                f.operand(self.size(stride), vector_of("i64", lanes)),
            )
        return f.op("add", f.operand(base, steps.type), steps)

    def _guard(self, op: GuardOp, point: Point) -> Value:
        if any(variable in self.full for variable in op.variables) or guard_is_trivial(op):
            return TRUE
        tile, f = op.tile, self.f
        weights = [as_dim(-weight) for weight in op.outer]
        limit = self.affine(op.variables, weights, op.size.data)
        steps = dict(zip(tile.axes, op.steps, strict=True))
        limit = f.index("sub", limit, sum(step * steps[axis] for axis, step in point.items()))
        step = steps[tile.lane] if tile.lane else 1
        if isinstance(limit, int) and limit > max(lanes_in(tile) - 1, 0) * step:
            return TRUE
        if tile.lane:
            return f.lanes_below(limit, tile.lane.extent, step)
        return f.compare("icmp sgt", f.operand(limit, "i64"), 0)

    def _apply(self, op: ApplyOp, point: Point) -> Value:
        lanes, name, variant = lanes_in(op.tile), op.op.data, op.variant.data if op.variant else ""
        if name == "bits" and variant == "and" and op.tile.dtype.is_bool:
            values = [self.value(operand, point) for operand in op.inputs]
            known = [is_true(value) for value in values]
            if any(known):
                return values[known.index(True) ^ 1]
        operands = [self.wide(operand, point, lanes) for operand in op.inputs]
        dtypes = [tile_of(operand).dtype for operand in op.inputs]
        return apply_elementwise(
            self.f, name, variant, operands, dtypes, op.tile.dtype, self.target, self.licensed
        )

    def _mask(self, mask: SSAValue | None, point: Point) -> Value | None:
        """A mask's value, scalar or vector; None where it is known to hold."""
        if mask is None:
            return None
        value = self.value(mask, point)
        return None if is_true(value) else value

    def _masked(self, mask: Value | None, new: Value, old: Value) -> Value:
        return new if mask is None else self.f.select(mask, new, old)

    def _contract(self, op: ContractOp, point: Point) -> Value:
        f, lanes, dtype = self.f, lanes_in(op.tile), op.tile.dtype
        total = self.wide(op.accumulator, point, lanes)
        for rest in points(op.summed):
            place = {**point, **rest}
            left, right = (self.wide(x, place, lanes) for x in (op.left, op.right))
            if dtype.is_float and self.licensed:
                new = f.fma(left, right, total)
            else:
                new = combine(f, "sum", total, combine(f, "prod", left, right, dtype), dtype)
            total = self._masked(self._mask(op.mask, place), new, total)
        return total

    def _accumulate(self, op: AccumulateOp, point: Point) -> list[Value]:
        lanes = lanes_in(tile_of(op.accumulators[0]))
        dtype = tile_of(op.accumulators[0]).dtype
        old = [self.wide(x, point, lanes) for x in op.accumulators]
        new = [self.wide(x, point, lanes) for x in op.values]
        combined = self._combine(op.monoid.data, old, new, dtype)
        mask = self._mask(op.mask, point)
        return [self._masked(mask, value, before) for value, before in zip(combined, old, strict=True)]

    def _combine(self, monoid: str, old: Sequence[Value], new: Sequence[Value], dtype: DType) -> list[Value]:
        if len(old) == 2:
            return list(combine_pair(self.f, monoid, (old[0], old[1]), (new[0], new[1]), dtype))
        return [combine(self.f, monoid, old[0], new[0], dtype, "contract" if self.licensed else "")]

    def _reduce(self, op: ReduceOp, point: Point) -> list[Value]:
        """Halves are combined until one is left: first over plain axes, then over lanes."""
        axes, kept = tile_of(op.inputs[0]).axes, tile_of(op.reduced[0])
        dtype, monoid = tile_of(op.inputs[0]).dtype, op.monoid.data
        dropped = [axis for axis in axes if axis not in kept.axes]
        parts = [[self.value(x, {**point, **rest}) for x in op.inputs] for rest in points(dropped)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._combine(monoid, a, b, dtype) for a, b in pairs] + parts[len(parts) & ~1 :]
        result, f = parts[0], self.f
        if kept.lane or not any(axis.lane for axis in dropped):
            return result
        if monoid == "sum" and dtype.is_integer and lanes_of(result[0].type) > 1:
            # halves added one by one would be exact too, but LLVM 22 loses some of them where bytes were multiplied
            return [f.reduce("add", result[0])]
        while (lanes := lanes_of(result[0].type)) > 1:
            half = lanes // 2
            low = [f.shuffle(x, x, range(half)) for x in result]
            high = [f.shuffle(x, x, range(half, 2 * half)) for x in result]
            joined = self._combine(monoid, low, high, dtype)
            if lanes % 2:
                last = [f.shuffle(x, x, [lanes - 1] + [-1] * (half - 1)) for x in result]
                first = [f.extract(x, 0) for x in self._combine(monoid, joined, last, dtype)]
                joined = [f.insert(x, y, 0) for x, y in zip(joined, first, strict=True)]
            result = joined
        return [f.extract(x, 0) for x in result]

    # Memory

    def _access(
        self, op: LoadOp | StoreOp, tile: Tile, point: Point
    ) -> tuple[Value | list[Value], Value | None]:
        """The pointer of a scalar or contiguous vector, or the pointers of its lanes; and the mask."""
        f, address, element = self.f, op.address.data, memory_element(tile.dtype)
        pointer = self.pointer(op.reference, op.variables, address, self.offset(address, tile.axes, point))
        assert lanes_in(tile) * tile.dtype.size_bytes <= SPARE_BYTES, "a vector wider than the spare memory"
        dynamic = self.value(op.dynamic, point) if op.dynamic is not None else None
        mask = self._mask(op.mask, point)
        if dynamic is not None and not lanes_of(dynamic.type):
            pointer, dynamic = f.offset(pointer, element, dynamic), None
        if not tile.lane or (dynamic is None and address.axis_strides[-1].constant == 1):
            return pointer, mask
        pointers: list[Value] = []
        for lane in range(tile.lane.extent):
            step = self.size(address.axis_strides[-1] * lane)
            if dynamic is not None:
                step = f.index("add", f.extract(dynamic, lane), step)
            pointers.append(f.offset(pointer, element, step))
        return pointers, mask

    def _spare(self) -> Value:
        """Memory that a masked-off write may go to."""
        if self.spare is None:
            self.spare = self.f.alloca("i8", SPARE_BYTES, 64)
        return self.spare

    def _zeros(self) -> Value:
        text = f"@{ZEROS} = internal constant [{SPARE_BYTES} x i8] zeroinitializer, align 64"
        self.f.module.globals[ZEROS] = text
        return Value("ptr", f"@{ZEROS}")

    def _lane_mask(self, mask: Value | None, lane: int) -> Value | None:
        return self.f.extract(mask, lane) if mask is not None and lanes_of(mask.type) else mask

    def load(self, op: LoadOp, point: Point) -> Value:
        tile, f = op.tile, self.f
        where, mask = self._access(op, tile, point)
        element, lanes, extra = memory_element(tile.dtype), lanes_in(tile), self._alias(op)
        if isinstance(where, list):
            value = zero(vector_of(element, lanes))
            for lane, pointer in enumerate(where):
                item = self._load_one(element, pointer, self._lane_mask(mask, lane), extra)
                value = f.insert(value, item, lane)
        elif mask is not None and lanes_of(mask.type):
            value = f.masked("load", mask, where, zero(vector_of(element, lanes)), extra=extra)
        else:
            value = self._load_one(vector_of(element, lanes), where, mask, extra)
        return f.compare("icmp ne", value, 0) if tile.dtype.is_bool else value

    def _alias(self, op: LoadOp | StoreOp) -> str:
        return self.aliases.get(op.reference, "")

    def _load_one(self, type_: str, pointer: Value, mask: Value | None, extra: str) -> Value:
        """A load that reads zeros from elsewhere where a scalar mask is off."""
        if mask is not None:
            pointer = self.f.select(mask, pointer, self._zeros())
        return self.f.load(type_, pointer, extra=extra)

    def store(self, op: StoreOp) -> None:
        """All coordinates in order; the loads that wait at the same address come first, coordinate by
        coordinate."""
        block = op.parent_block()
        assert block is not None
        same = [load for load in self.pending[block] if _same_address(load, op)]
        for point in points(op.tile.axes):
            for load in same:
                self.value(load.result, point)
            self._store(op, point)
        self.pending[block] = [load for load in self.pending[block] if load not in same]

    def _store(self, op: StoreOp, point: Point) -> None:
        tile, f, extra = op.tile, self.f, self._alias(op)
        lanes = lanes_in(tile)
        value = self.wide(op.value, point, lanes)
        where, mask = self._access(op, tile, point)
        if isinstance(where, list):
            for lane, pointer in enumerate(where):
                self._store_one(op, f.extract(value, lane), pointer, self._lane_mask(mask, lane))
        elif mask is None or not lanes_of(mask.type):
            self._store_one(op, value, where, mask)
        else:
            old = zero(vector_of(memory_element(tile.dtype), lanes))
            if op.combine.data != "set":
                old = f.masked("load", mask, where, old, extra=extra)
            f.masked("store", mask, where, self._joined(op, value, old), extra=extra)

    def _store_one(self, op: StoreOp, value: Value, pointer: Value, mask: Value | None) -> None:
        """A scalar or contiguous vector; where a scalar mask is off, it goes to spare memory."""
        f, extra = self.f, self._alias(op)
        if mask is not None:
            pointer = f.select(mask, pointer, self._spare())
        memory = with_element(value.type, memory_element(op.tile.dtype))
        old = f.load(memory, pointer, extra=extra) if op.combine.data != "set" else zero(memory)
        stored, align = self._joined(op, value, old), 0
        if op.nontemporal and mask is None and self._is_aligned(op, lanes_of(memory)):
            # other threads see it in time: the pool's counters are locked instructions, which wait for such stores
            align = bits_of(memory) * lanes_of(memory) // 8
            extra += f", !nontemporal {f.module.node('!{i32 1}')}"
        f.store(stored, pointer, align, extra)

    def _joined(self, op: StoreOp, value: Value, old: Value) -> Value:
        """What a store writes, as it lies in memory, where `old` is there."""
        f, dtype = self.f, op.tile.dtype
        if op.combine.data != "set":
            before = f.compare("icmp ne", old, 0) if dtype.is_bool else old
            value = combine(f, op.combine.data, before, value, dtype)
        return f.convert("zext", value, "i8") if dtype.is_bool else value

    def _is_aligned(self, op: StoreOp, lanes: int) -> bool:
        """Whether every vector that a store writes lies on its own size: outputs and scratch begin on 64
        bytes."""
        reference, address = reference_of(op.reference), op.address.data
        size = max(lanes, 1) * reference.dtype.size_bytes
        steps = [*address.strides, address.offset, *address.axis_strides[: -1 if op.tile.lane else None]]
        whole = all((step * reference.dtype.size_bytes % size).constant == 0 for step in steps)
        return op.dynamic is None and lanes > 0 and size <= 64 and whole and reference.kind != "argument"


def guard_is_trivial(op: GuardOp) -> bool:
    """Whether the trip count of the innermost loop already says what the guard says."""
    return not op.tile.axes and op.outer[-1:] == [1]


def _block(value: SSAValue) -> Block:
    if isinstance(value, BlockArgument):
        return value.block
    block = value.owner.parent_block() if isinstance(value.owner, Operation) else None
    assert block is not None
    return block


def _lanes_of_user(op: Operation) -> int:
    """The lanes in which an operation uses its operands."""
    if isinstance(op, StoreOp):
        return lanes_in(op.tile)
    return lanes_in(tile_of(op.results[0])) if op.results and not isinstance(op, LoadOp | ForOp) else 0


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
