"""Operations on tiles as statements of a Triton kernel: a tile is a block of the program, with its axes in one order.

An elementwise value that is used once, near by, is part of its user's expression; everything else is a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.kernel.monoids import identity_bits
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
from luminal.dialects.kernel.placed_loops import YieldOp
from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dim import as_dim
from luminal.dtype import DType, from_bits, i64
from luminal.emit_triton.addresses import Addresses
from luminal.emit_triton.arithmetic import Arithmetic
from luminal.emit_triton.contract import starts_from_zero, turned, write_contract
from luminal.emit_triton.descriptors import Box, boxes_of
from luminal.emit_triton.eights import held_as
from luminal.emit_triton.kernel import Options
from luminal.emit_triton.sizes import LARGEST, fits_32
from luminal.emit_triton.text import TRUE, Lines, Value, atom, call, shape_text
from luminal.emit_triton.writes import Meeting
from luminal.errors import ScheduleError

LONGEST, LONGEST_LAST = 60, 100
"""Letters of an expression that may be part of another one, or the last of a loop's body."""
WEAK = frozenset({"add", "mul", "max", "min", "less_than", "recip", "select"})
"""Operations in which a constant may be a plain number."""


class BlockWriter:
    """Writes the operations of one kernel; `references` are the names of its pointers."""

    def __init__(
        self,
        lines: Lines,
        order: tuple[TileAxis, ...],
        references: Mapping[SSAValue, str],
        meetings: Mapping[StoreOp, Meeting],
        reassociates: bool,
        options: Options,
    ) -> None:
        self.lines, self.references, self.meetings = lines, references, meetings
        self.reassociates, self.options = reassociates, options
        self.helpers: set[str] = set()
        self.addresses = Addresses(lines, self.helpers, order)
        self.arithmetic = Arithmetic(lines, self.helpers, options.eights)
        self.values: dict[SSAValue, Value] = {}
        self.near: dict[SSAValue, Value] = {}
        self.constants: set[str] = set()
        self.boxes: dict[LoadOp, tuple[str, Box]] = {}

    def describe(self, ops: Sequence[Operation]) -> None:
        """Lines that describe the tensors of which blocks are loaded as boxes, one for each shape of a box."""
        known: dict[tuple[object, ...], str] = {}
        for op, box in boxes_of(ops, self.options.eights).items():
            sides = [(side.stride, side.size, side.extent) for side in box.sides]
            key = (op.reference, box.offset, *sides)
            if key not in known:
                name = self.references[op.reference]
                start = f"{name} + {box.offset}" if box.offset else name
                columns = [[self.addresses.size(s.size) for s in box.sides]]
                columns += [[self.addresses.size(s.stride) for s in box.sides]]
                columns += [[str(s.extent) for s in box.sides]]
                lists = [f"[{', '.join(column)}]" for column in columns]
                text = call("tl.make_tensor_descriptor", start, *lists)
                known[key] = self.lines.let(f"{name}_tensor", text)
            self.boxes[op] = (known[key], box)

    def value(self, value: SSAValue) -> Value:
        if value not in self.values and isinstance(value.owner, ConstantOp | DimensionOp):
            self.step(value.owner)  # which another kernel has too
        if value not in self.values:
            raise ScheduleError(
                "a value is computed before a parallel loop and used behind it, in another kernel: keep it at kernel"
            )
        return self.values[value]

    def axes(self, value: SSAValue) -> tuple[TileAxis, ...]:
        """The axes of a value's tile, in the kernel's order."""
        return self.addresses.axes(tile_of(value).axes)

    def whole(self, value: SSAValue) -> str:
        """A value in the full shape of its tile."""
        return self.value(value).spread(self.axes(value))

    def step(self, op: Operation) -> None:
        """One operation without a block."""
        match op:
            case ConstantOp():
                found = self.values[op.result] = self.arithmetic.constant(op.bits.data, op.tile.dtype)
                self.constants.add(found.text)
            case DimensionOp():
                self.values[op.result] = Value(call("tl.cast", self.addresses.size(op.size.data), "tl.int64"))
            case IndexOp():
                self._index(op)
            case GuardOp():
                self._guard(op)
            case LoadOp():
                self._load(op)
            case StoreOp():
                self._store(op)
            case ApplyOp():
                self._bind(op.result, self._apply(op), op.op.data)
            case ContractOp():
                if self._addition(op) is None:
                    self._bind(op.result, write_contract(self, op), "total")
            case AccumulateOp():
                self._accumulate(op)
            case ReduceOp():
                self._reduce(op)
            case _:
                raise AssertionError(f"{op.name} has no value")

    def _bind(self, result: SSAValue, value: Value, hint: str) -> None:
        """Give a result its expression: part of its one user's where it is short and both are in one block."""
        uses = list(result.uses)
        near = len(uses) == 1 and _block(uses[0].operation) is _block(result.owner)
        longest = LONGEST_LAST if near and isinstance(uses[0].operation, YieldOp) else LONGEST
        if value.literal is None and not (near and len(value.text) <= longest):
            value = Value(self.lines.let(hint, value.text), value.axes)
        self.values[result] = value

    def _index(self, op: IndexOp) -> None:
        address = op.address.data
        found = self.addresses.affine(
            op.variables, address.strides, op.tile.axes, address.axis_strides, address.offset, wide=True
        )
        sizes = (*address.strides, *address.axis_strides, address.offset)
        if (
            "int64" not in found.text
            and all(map(fits_32, sizes))
            and not self.addresses.wide & {*op.variables}
        ):
            found = self.near[op.result] = Value(self.lines.let("index", found.text), found.axes)
            self.values[op.result] = Value(call("tl.cast", found.text, "tl.int64"), found.axes)
            return
        self._bind(op.result, Value(call("tl.cast", found.text, "tl.int64"), found.axes), "index")

    def _compares_near(self, operation: Operation) -> bool:
        """Whether an operation compares integers that 32 bits hold for certain."""
        if not isinstance(operation, ApplyOp) or operation.op.data != "less_than":
            return False
        return all(self._near(operand) is not None for operand in operation.inputs)

    def _near(self, value: SSAValue) -> Value | None:
        """An i64 value as an i32 expression; None where it may not fit."""
        if isinstance(value.owner, ConstantOp) and tile_of(value).dtype is i64:
            number = int(from_bits(value.owner.bits.data, i64))
            return Value(str(number), literal=str(number)) if abs(number) <= LARGEST else None
        return self.near.get(value)

    def _guard(self, op: GuardOp) -> None:
        """A guard without axes says no more than the loops' counts do."""
        axes = self.addresses.axes(op.tile.axes)
        if not axes:
            self.values[op.result] = TRUE
            return
        size = op.size.data
        found = self.addresses.affine(
            op.variables,
            [as_dim(weight) for weight in op.outer],
            op.tile.axes,
            [as_dim(step) for step in op.steps],
            as_dim(0),
            wide=not fits_32(size * 2),
        )
        text = f"{atom(found.text)} < {atom(self.addresses.size(size))}"
        self.values[op.result] = Value(self.lines.let(f"{op.index.data}_inside", text), found.axes)

    # Memory

    def _pointer(self, op: LoadOp | StoreOp, axes: Sequence[TileAxis]) -> Value:
        address, reference = op.address.data, reference_of(op.reference)
        wide = not fits_32(reference.elements)
        dynamic = self.value(op.dynamic) if op.dynamic is not None else None
        offset = self.addresses.affine(
            op.variables, address.strides, axes, address.axis_strides, address.offset, wide, dynamic
        )
        name = self.references[op.reference]
        if offset.text == "0":
            return Value(name)
        return Value(self.lines.let(f"{name}_at", f"{name} + {atom(offset.text)}"), offset.axes)

    def _mask(self, op: LoadOp | StoreOp) -> Value | None:
        mask = self.value(op.mask) if op.mask is not None else TRUE
        return None if mask is TRUE else mask

    def _nothing(self, dtype: DType) -> str:
        return "0.0" if held_as(dtype, self.options.eights).is_float else "0"

    def _load(self, op: LoadOp) -> None:
        dtype = op.tile.dtype
        if op in self.boxes:
            self.values[op.result] = self._load_box(op)
            return
        pointer, mask = self._pointer(op, op.tile.axes), self._mask(op)
        axes = self.addresses.axes([*pointer.axes, *(mask.axes if mask else ())])
        arguments = [pointer.spread(axes)]
        if mask is not None:
            arguments += [f"mask={mask.fit(axes)}", f"other={self._nothing(dtype)}"]
        text = call("tl.load", *arguments) + (".to(tl.int1)" if dtype.is_bool else "")
        name = self.lines.let(f"{self.references[op.reference]}_{'block' if axes else 'value'}", text)
        self.values[op.result] = Value(name, axes)

    def _load_box(self, op: LoadOp) -> Value:
        tensor, box = self.boxes[op]
        starts = [
            self.addresses.affine(
                [variable for variable, _ in side.moves],
                [as_dim(count) for _, count in side.moves],
                (),
                (),
                as_dim(0),
                wide=False,
            ).text
            for side in box.sides
        ]
        text = f"{tensor}.load([{', '.join(starts)}])"
        if len(box.axes) < len(box.sides):
            text = f"{text}.reshape({shape_text(box.axes)})"
        axes = self.addresses.axes(box.axes)
        if axes != box.axes:
            text = turned(text, box.axes, axes)
        return Value(self.lines.let(f"{self.references[op.reference]}_block", text), axes)

    def _store(self, op: StoreOp) -> None:
        axes = self.addresses.axes(op.tile.axes)
        meeting, mask = self.meetings[op], self._mask(op)
        pointer, value = self._pointer(op, op.tile.axes).spread(axes), self.value(op.value).fit(axes)
        extra = [f"mask={mask.fit(axes)}"] if mask is not None else []
        if meeting is Meeting.ATOMIC:
            function = f"tl.atomic_{op.combine.data}"
            self.lines.add(call(function, pointer, value, *extra, 'sem="relaxed"'))
            return
        if op.combine.data != "set":
            dtype = op.tile.dtype
            pointer = self.lines.let(f"{self.references[op.reference]}_at", pointer)
            other = [f"other={self._nothing(dtype)}"] if mask is not None else []
            loaded = call("tl.load", pointer, *extra, *other) + (".to(tl.int1)" if dtype.is_bool else "")
            before = self.lines.let("before", loaded)
            value = self.arithmetic.combine(op.combine.data, [before, value], dtype)
        self.lines.add(call("tl.store", pointer, value, *extra))
        if meeting is Meeting.IN_ORDER:
            self.lines.add("tl.debug_barrier()")

    # Elementwise

    def _apply(self, op: ApplyOp) -> Value:
        name = op.op.data
        if name == "add":
            for value, other in zip(op.inputs, reversed(op.inputs)):
                if isinstance(value.owner, ContractOp) and self._addition(value.owner) is op:
                    return write_contract(self, value.owner, self.value(other))
        if self._compares_near(op):
            inputs = [near for operand in op.inputs if (near := self._near(operand)) is not None]
        else:
            inputs = [self.value(operand) for operand in op.inputs]
        if name == "bits" and op.variant is not None and op.variant.data == "and" and TRUE in inputs:
            return inputs[1 - inputs.index(TRUE)]
        if name == "select" and inputs[0] is TRUE:
            return inputs[1]
        axes = self.addresses.axes([axis for value in inputs for axis in value.axes])
        weak = name in WEAK and any(value.literal is None for value in inputs[name == "select" :])
        texts = [
            v.literal if weak and v.literal is not None and v is not TRUE else v.fit(axes) for v in inputs
        ]
        dtypes = [tile_of(operand).dtype for operand in op.inputs]
        variant = op.variant.data if op.variant is not None else None
        if name == "bits" and _shifts_inside(op.inputs[1], dtypes[0].bits):
            variant = {"shl": "<<", "shr": ">>"}.get(variant or "", variant)
        return Value(self.arithmetic.apply(name, variant, texts, dtypes, op.tile.dtype), axes)

    def _addition(self, op: ContractOp) -> ApplyOp | None:
        """The addition that a sum of products is part of: it starts from the other operand."""
        uses = [use.operation for use in op.result.uses]
        if not (self.reassociates and starts_from_zero(op) and len(uses) == 1 and op.tile.dtype.bits == 32):
            return None
        (addition,) = uses
        if not isinstance(addition, ApplyOp) or addition.op.data != "add" or not op.summed:
            return None
        first = next(v for v in addition.inputs if isinstance(v.owner, ContractOp))
        near = _block(addition) is _block(op) and addition.tile.axes == op.tile.axes
        return (
            addition if near and first is op.result and addition.inputs[0] is not addition.inputs[1] else None
        )

    # Folds

    def _accumulate(self, op: AccumulateOp) -> None:
        monoid, tile = op.monoid.data, tile_of(op.accumulators[0])
        old, new = [self.value(x) for x in op.accumulators], [self.value(x) for x in op.values]
        mask = self.value(op.mask) if op.mask is not None else TRUE
        axes = self.addresses.axes([axis for value in (*old, *new) for axis in value.axes])
        texts = [value.literal or value.fit(axes) for value in old] + [value.fit(axes) for value in new]
        if self._is_nothing(op.accumulators, monoid, tile.dtype):
            combined = texts[len(old) :]
        elif len(old) == 1:
            combined = [self.arithmetic.combine(monoid, texts, tile.dtype)]
        else:
            names = [self.lines.fresh("value"), self.lines.fresh("place")]
            self.lines.add(f"{', '.join(names)} = {self.arithmetic.helper(f'_{monoid}', *texts)}")
            combined = names
        for result, before, after in zip(op.combined, old, combined, strict=True):
            value = Value(after, axes)
            if mask is not TRUE:
                masked = self.addresses.axes([*axes, *mask.axes])
                value = Value(
                    call("tl.where", mask.fit(masked), value.fit(masked), before.fit(masked)), masked
                )
            self._bind(result, value, monoid)

    def _is_nothing(self, accumulators: Sequence[SSAValue], monoid: str, dtype: DType) -> bool:
        """Whether accumulators hold the identity still, so that a fold gives what is folded into it."""
        owners = [value.owner for value in accumulators]
        if monoid == "sum" and dtype.is_float:  # 0.0 + -0.0 is 0.0
            return False
        return all(
            isinstance(owner, ConstantOp) and owner.bits.data == identity_bits(monoid, owner.tile.dtype, n)
            for n, owner in enumerate(owners)
        )

    def _reduce(self, op: ReduceOp) -> None:
        monoid, kept = op.monoid.data, self.axes(op.reduced[0])
        axes = self.axes(op.inputs[0])
        texts = [self.whole(value) for value in op.inputs]
        dtype = tile_of(op.inputs[0]).dtype
        for position in reversed(range(len(axes))):
            if axes[position] not in kept:
                texts = self.arithmetic.reduce(monoid, texts, dtype, position)
        dropped = [axis.index for axis in axes if axis not in kept]
        for result, text in zip(op.reduced, texts, strict=True):
            self._bind(result, Value(text, kept), "_".join([monoid, *dict.fromkeys(dropped)]))

    def initial(self, value: SSAValue) -> str:
        """What a loop carries at first, in the full shape and dtype of its tile."""
        axes, found = self.axes(value), self.value(value)
        if found.text in self.constants:
            return found.text.replace("[]", shape_text(axes), 1)
        return found.spread(axes)


def _shifts_inside(count: SSAValue, width: int) -> bool:
    """Whether a shift is by a constant that the width of the number allows."""
    return isinstance(count.owner, ConstantOp) and count.owner.bits.data < width


def _block(operation: Operation | Block) -> Block | None:
    return operation.parent_block() if isinstance(operation, Operation) else operation
