"""Values of tiles, addresses and memory accesses of a placed kernel, inside one LLVM function.

Pure operations are written on demand, one coordinate at a time, so that each FMA follows the loads that it
needs and few registers are live. A value that a nested block uses is written whole where it stands. Addresses
are built outermost loop first, each step at the start of its loop's body, so that nothing is computed deeper
than it must be.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import (
    AccumulateOp,
    ApplyOp,
    ConstantOp,
    ContractOp,
    DimensionOp,
    ForOp,
    GuardOp,
    IndexOp,
    LoadOp,
    ReduceOp,
    StoreOp,
    YieldOp,
    reference_of,
    tile_of,
)
from luminal.dialects.kernel.placed_types import Address, Tile, TileAxis
from luminal.dim import Call, Dim, as_dim
from luminal.dtype import DType
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
    Lines,
    Value,
    bits_of,
    constant_bits,
    lane_constants,
    lanes_of,
    vector_of,
    with_element,
    zero,
)

Point = Mapping[TileAxis, int]
TRUE = Value("i1", "true")
ZEROS = "luminal_zeros"
SPARE_BYTES = 1024
"""the largest vector that the emitter makes: what a masked-off access reads or writes instead"""


@dataclass
class Scope:
    """An open loop body (or the function): a place at its start, and what was written there."""

    place: Lines
    memo: dict[object, Index] = field(default_factory=dict[object, Index])


def lanes_in(tile: Tile) -> int:
    return tile.lane.extent if tile.lane else 0


def points(axes: Sequence[TileAxis]) -> list[Point]:
    """Coordinates of the plain axes, the last running fastest."""
    plain = [axis for axis in axes if not axis.lane]
    return [
        dict(zip(plain, steps, strict=True)) for steps in itertools.product(*(range(a.extent) for a in plain))
    ]


def is_true(value: Value) -> bool:
    return value.text in ("true", "splat (i1 true)")


class TileWriter:
    """Writes tiles into one LLVM function."""

    def __init__(
        self, f: Function, target: Target, contract: bool, sizes: Value, symbols: Sequence[str]
    ) -> None:
        self.f, self.target, self.licensed = f, target, contract
        self.sizes, self.symbols = sizes, list(symbols)
        self.scopes = [Scope(f.place())]
        self.variables: dict[SSAValue, tuple[Index, int]] = {}
        self.full: set[SSAValue] = set()
        self.references: dict[SSAValue, Value] = {}
        self.workspace = Value("ptr", "null")
        self.frames: dict[Block, dict[object, Value]] = {}
        self.pending: dict[Block, list[LoadOp]] = {}
        self.open: list[Block] = []
        self.spare: Value | None = None
        self.aliases: dict[SSAValue, str] = {}

    def bind_arguments(self, references: Sequence[SSAValue], arguments: Value) -> None:
        with self.f.at(self.scopes[0].place):
            for position, reference in enumerate(references):
                self.references[reference] = self.f.load("ptr", self.f.offset(arguments, "ptr", position))

    @contextlib.contextmanager
    def scope(self) -> Generator[None]:
        """A loop body, or a path that runs only sometimes, which begins here."""
        self.scopes.append(Scope(self.f.place()))
        yield
        self.scopes.pop()

    # Sizes and affine expressions

    def size(self, dim: Dim) -> Index:
        """The value of a size; computed once, at the start of the function."""
        if dim.constant is not None:
            return dim.constant
        memo = self.scopes[0].memo
        if dim not in memo:
            with self.f.at(self.scopes[0].place):
                memo[dim] = self._evaluate(dim)
        return memo[dim]

    def _evaluate(self, dim: Dim) -> Index:
        f, total = self.f, 0
        for monomial, coefficient in dim.terms:
            value: Index = coefficient
            for atom in monomial:
                value = f.index(
                    "mul", value, self._call(atom) if isinstance(atom, Call) else self._symbol(atom.name)
                )
            total = f.index("add", total, value)
        return total

    def _symbol(self, name: str) -> Index:
        memo = self.scopes[0].memo
        if name not in memo:
            memo[name] = self.f.load("i64", self.f.offset(self.sizes, "i64", self.symbols.index(name)))
        return memo[name]

    def _call(self, call: Call) -> Index:
        f = self.f
        values = [self.size(argument) for argument in call.arguments]
        if call.kind in ("min", "max"):
            result = values[0]
            for value in values[1:]:
                result = f.index("s" + call.kind, result, value)
            return result
        a, b = values
        low, divisor = call.arguments[0].bounds()[0], call.arguments[1].bounds()[0]
        if low is not None and low >= 0 and divisor is not None and divisor > 0:
            return f.index("udiv" if call.kind == "//" else "urem", a, b)
        # Python's floor: one less than the truncated quotient where a rest has the other sign than the
        # divisor.
        left, right = f.pair(a, b)
        quotient, rest = f.op("sdiv", left, right), f.op("srem", left, right)
        down = f.op("and", f.compare("icmp ne", rest, 0), f.compare("icmp slt", f.op("xor", rest, right), 0))
        if call.kind == "//":
            return f.op("sub", quotient, f.convert("zext", down, "i64"))
        return f.op("add", rest, f.select(down, right, Value("i64", "0")))

    def affine(self, variables: Sequence[SSAValue], strides: Sequence[Dim], offset: Dim) -> Index:
        """offset + sum of variable * stride, written where the innermost variable is set."""
        fixed, groups = self._split(variables, strides, offset)
        total, depth, key = self.size(fixed), 0, ("affine", fixed)
        for level, terms in groups:
            depth, key = level, (key, *terms)
            memo = self.scopes[depth].memo
            if key not in memo:
                with self.f.at(self.scopes[depth].place):
                    for value, stride in terms:
                        total = self.f.index("add", total, self.f.index("mul", value, self.size(stride)))
                memo[key] = total
            total = memo[key]
        return total

    def _split(
        self, variables: Sequence[SSAValue], strides: Sequence[Dim], offset: Dim
    ) -> tuple[Dim, list[tuple[int, tuple[tuple[Value, Dim], ...]]]]:
        """Variables with known values join the offset; the others are grouped by the depth of their loop."""
        groups: dict[int, list[tuple[Value, Dim]]] = {}
        for variable, stride in zip(variables, strides, strict=True):
            value, depth = self.variables[variable]
            if isinstance(value, int):
                offset = offset + stride * value
            else:
                groups.setdefault(depth, []).append((value, stride))
        return offset, [(depth, tuple(groups[depth])) for depth in sorted(groups)]

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
        for result in op.results:
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
        base = self.affine(op.variables, address.strides, self._offset(address, tile.axes, point))
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
                "mul", lane_constants("i64", range(lanes)), f.operand(self.size(stride), steps_type(lanes))
            )
        return f.op("add", f.operand(base, steps.type), steps)

    def _offset(self, address: Address, axes: Sequence[TileAxis], point: Point) -> Dim:
        offset = address.offset
        for axis, stride in zip(axes, address.axis_strides, strict=True):
            if not axis.lane and point[axis]:
                offset = offset + stride * point[axis]
        return offset

    def _guard(self, op: GuardOp, point: Point) -> Value:
        if any(variable in self.full for variable in op.variables) or guard_is_trivial(op):
            return TRUE
        tile, f = op.tile, self.f
        weights = [as_dim(-weight.data) for weight in op.weights]
        limit = self.affine(op.variables, weights, op.size.data)
        limit = f.index("sub", limit, sum(step * axis.weight for axis, step in point.items()))
        step = tile.lane.weight if tile.lane else 1
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
        old, left, right = (self.wide(x, point, lanes) for x in (op.accumulator, op.left, op.right))
        if dtype.is_float and self.licensed:
            new = f.fma(left, right, old)
        else:
            new = combine(f, "sum", old, combine(f, "prod", left, right, dtype), dtype)
        return self._masked(self._mask(op.mask, point), new, old)

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

    def _pointer(
        self, reference: SSAValue, variables: Sequence[SSAValue], address: Address, offset: Dim
    ) -> Value:
        """The address of one coordinate. Loops' strides join outermost first, symbolic offsets before the
        innermost, the known offset last, where it is part of the instruction's addressing."""
        f, element = self.f, memory_element(reference_of(reference).dtype)
        offset, groups = self._split(variables, address.strides, offset)
        known = offset.constant
        if known is None:
            known = next((coefficient for monomial, coefficient in offset.terms if not monomial), 0)
        symbolic = self.size(offset - known)
        pointer, key = self.references[reference], ("pointer", reference)
        depth = 0
        for number, (level, terms) in enumerate(groups):
            if number == len(groups) - 1 and symbolic != 0:
                key = (key, symbolic)
                pointer = self._step(depth, key, pointer, element, [symbolic])
            depth, key = level, (key, *terms)
            memo = self.scopes[depth].memo
            if key not in memo:
                with f.at(self.scopes[depth].place):
                    steps = [f.index("mul", value, self.size(stride)) for value, stride in terms]
                pointer = self._step(depth, key, pointer, element, steps)
            pointer = _as_value(memo[key])
        if not groups and symbolic != 0:
            pointer = self._step(0, (key, symbolic), pointer, element, [symbolic])
        return f.offset(pointer, element, known)

    def _step(self, depth: int, key: object, pointer: Value, element: str, steps: Sequence[Index]) -> Value:
        memo = self.scopes[depth].memo
        if key not in memo:
            with self.f.at(self.scopes[depth].place):
                for step in steps:
                    pointer = self.f.offset(pointer, element, step)
            memo[key] = pointer
        return _as_value(memo[key])

    def _access(
        self, op: LoadOp | StoreOp, tile: Tile, point: Point
    ) -> tuple[Value | list[Value], Value | None]:
        """The pointer of a scalar or contiguous vector, or the pointers of its lanes; and the mask."""
        f, address, element = self.f, op.address.data, memory_element(tile.dtype)
        pointer = self._pointer(op.reference, op.variables, address, self._offset(address, tile.axes, point))
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
        element, lanes = memory_element(tile.dtype), lanes_in(tile)
        if isinstance(where, list):
            value = zero(vector_of(element, lanes))
            for lane, pointer in enumerate(where):
                value = f.insert(value, self._load_one(element, pointer, self._lane_mask(mask, lane)), lane)
        elif mask is not None and lanes_of(mask.type):
            value = f.masked("load", mask, where, zero(vector_of(element, lanes)))
        else:
            value = self._load_one(vector_of(element, lanes), where, mask)
        return f.compare("icmp ne", value, 0) if tile.dtype.is_bool else value

    def _load_one(self, type_: str, pointer: Value, mask: Value | None) -> Value:
        """A load that reads zeros from elsewhere where a scalar mask is off."""
        if mask is not None:
            pointer = self.f.select(mask, pointer, self._zeros())
        return self.f.load(type_, pointer)

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
        tile, f = op.tile, self.f
        dtype, lanes = tile.dtype, lanes_in(tile)
        value = self.wide(op.value, point, lanes)
        where, mask = self._access(op, tile, point)
        kind = op.combine.data
        if isinstance(where, list):
            for lane, pointer in enumerate(where):
                self._store_one(kind, f.extract(value, lane), pointer, self._lane_mask(mask, lane), dtype)
            return
        if mask is None or not lanes_of(mask.type):
            nontemporal = self._is_aligned(op, lanes) if op.nontemporal else False
            self._store_one(kind, value, where, mask, dtype, nontemporal)
            return
        memory = zero(vector_of(memory_element(dtype), lanes))
        if kind != "set":
            old = f.masked("load", mask, where, memory)
            value = combine(f, kind, self._from_memory(old, dtype), value, dtype)
        f.masked("store", mask, where, self._to_memory(value, dtype))

    def _store_one(
        self,
        kind: str,
        value: Value,
        pointer: Value,
        mask: Value | None,
        dtype: DType,
        nontemporal: bool = False,
    ) -> None:
        f = self.f
        if mask is not None:
            pointer = f.select(mask, pointer, self._spare())
        if kind != "set":
            old = f.load(with_element(value.type, memory_element(dtype)), pointer)
            value = combine(f, kind, self._from_memory(old, dtype), value, dtype)
        stored = self._to_memory(value, dtype)
        if nontemporal:
            hint = f", !nontemporal {f.module.node('!{i32 1}')}"
            f.store(stored, pointer, bits_of(stored.type) * max(lanes_of(stored.type), 1) // 8, hint)
        else:
            f.store(stored, pointer)

    def _is_aligned(self, op: StoreOp, lanes: int) -> bool:
        """Whether every vector that a store writes lies on its own size: outputs and scratch begin on 64
        bytes."""
        reference, address = reference_of(op.reference), op.address.data
        size = max(lanes, 1) * reference.dtype.size_bytes
        steps = [*address.strides, address.offset, *address.axis_strides[: -1 if op.tile.lane else None]]
        whole = all((step * reference.dtype.size_bytes % size).constant == 0 for step in steps)
        return op.dynamic is None and lanes > 0 and size <= 64 and whole and reference.kind != "argument"

    def _from_memory(self, value: Value, dtype: DType) -> Value:
        return self.f.compare("icmp ne", value, 0) if dtype.is_bool else value

    def _to_memory(self, value: Value, dtype: DType) -> Value:
        return self.f.convert("zext", value, "i8") if dtype.is_bool else value


def steps_type(lanes: int) -> str:
    return vector_of("i64", lanes)


def guard_is_trivial(op: GuardOp) -> bool:
    """Whether the trip count of the innermost loop already says what the guard says."""
    return not op.tile.axes and len(op.weights) > 0 and op.weights.data[-1].data == 1


def _as_value(index: Index) -> Value:
    assert isinstance(index, Value)
    return index


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
