"""Whether the writes of a kernel may meet, and what the memory that it reads and writes allows."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

from xdsl.ir import BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import ApplyOp, ConstantOp, DimensionOp, GuardOp, LoadOp, StoreOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp
from luminal.dialects.kernel.placed_types import Loop
from luminal.dim import Dim, as_dim, dim_max, known_less, typical
from luminal.dtype import DType, f32, f64, i32, i64
from luminal.errors import ScheduleError

ATOMIC: dict[str, tuple[DType, ...]] = {"add": (f32, f64, i32, i64), "max": (i32, i64), "min": (i32, i64)}
"""The combines that are the same in any order as atomic operations, and of which dtypes."""


class Meeting(enum.Enum):
    """How the writes of a store meet: never; one after the other, in the order of one program's loops; in any order."""

    NEVER = "never"
    IN_ORDER = "in order"
    ATOMIC = "atomic"


def check_memory(ops: Iterable[Operation]) -> None:
    """ScheduleError where a kernel reads memory that it writes, other than an element that it is about to replace."""
    inner = [found for op in ops for found in op.walk()]
    stores = [op for op in inner if isinstance(op, StoreOp)]
    for op in inner:
        if isinstance(op, AllocateOp):
            raise ScheduleError(
                "a term is kept inside a parallel loop: Triton has no memory of one program's own; keep it at kernel"
            )
        if not isinstance(op, LoadOp):
            continue
        for store in stores:
            if not _is_same_memory(op.reference, store.reference):
                continue
            if reference_of(op.reference).kind != "argument" or not _is_same_place(op, store):
                raise ScheduleError(
                    f"{reference_of(op.reference)} is read and written in one kernel: "
                    "programs do not wait for one another; keep the term in a stage of its own"
                )


def _is_same_memory(left: SSAValue, right: SSAValue) -> bool:
    """Whether two references are one memory; the numbers of scratch are its own."""
    a, b = reference_of(left), reference_of(right)
    shared = a.alias >= 0 and a.alias == b.alias and "scratch" not in (a.kind, b.kind)
    return left is right or shared


def _is_same_place(load: LoadOp, store: StoreOp) -> bool:
    """Whether a load reads exactly what a store writes, coordinate by coordinate."""
    return (
        load.tile.axes == store.tile.axes
        and load.address == store.address
        and list(load.variables) == list(store.variables)
        and load.dynamic is store.dynamic
    )


def meetings(function: FunctionOp, ops: Iterable[Operation]) -> dict[StoreOp, Meeting]:
    """How the writes of each store meet; ScheduleError where they may and have no order."""
    licences = {licence.data for licence in function.licences}
    return {
        op: _meeting(op, "reassociate" in licences)
        for outer in ops
        for op in outer.walk()
        if isinstance(op, StoreOp)
    }


def _meeting(op: StoreOp, reassociates: bool) -> Meeting:
    if reference_of(op.reference).kind == "scratch":  # whose layout has a digit for each index
        return Meeting.NEVER
    apart, around = _apart(op), list(_loops_around(op))
    meets = any(loop.index not in apart for loop in around)
    clashes = any(loop.index not in apart for loop in around if loop.role == "parallel")
    clashes |= any(axis.index not in apart for axis in op.tile.axes if axis.extent > 1)
    if not clashes:
        return Meeting.IN_ORDER if meets else Meeting.NEVER
    combine, dtype = op.combine.data, op.tile.dtype
    if dtype in ATOMIC.get(combine, ()) and (reassociates or not dtype.is_float or combine != "add"):
        return Meeting.ATOMIC
    raise ScheduleError(
        f"writes of several programs or lanes may meet at one place, and {combine!r} of {dtype} depends on "
        "their order: make plain loops of the indices that choose the place"
    )


def _loops_around(op: Operation) -> Iterable[Loop]:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FunctionOp):
        if isinstance(parent, ParallelOp):
            yield from (attribute.data for attribute in parent.loops)
        if isinstance(parent, ForOp):
            yield parent.loop.data
        parent = parent.parent_op()


def _apart(op: StoreOp) -> frozenset[str]:
    """Indices of which different values never write one place: the address has a digit of its own for each.

    A dynamic part is a digit too, of the size that it is known to be a multiple of; how far it reaches is not known, so
    that digits above it are not apart.
    """
    digits = _digits(op)
    reach, apart = as_dim(0), set[str]()
    step = _multiple(op.dynamic) if op.dynamic is not None else None
    for index, unit, size in sorted(digits, key=lambda digit: typical(digit[1])):
        if step is not None and not known_less(unit, step):
            if (unit % step).constant != 0:
                return frozenset()
            continue
        if not known_less(reach, unit):
            return frozenset()
        apart.add(index)
        reach = reach + unit * (size - 1)
    return frozenset(apart) if step is None or known_less(reach, step) else frozenset()


def _digits(op: StoreOp) -> list[tuple[str, Dim, Dim]]:
    """(index, stride of one step, size) of each index in a store's address."""
    units: dict[str, Dim] = {}
    sizes: dict[str, Dim] = {}
    for axis, stride in zip(op.tile.axes, op.address.data.axis_strides, strict=True):
        if stride.constant != 0:
            units[axis.index] = stride // axis.weight
            covered = as_dim(axis.extent * axis.weight)
            sizes[axis.index] = dim_max(sizes.get(axis.index, covered), covered)
    for variable, stride in zip(op.variables, op.address.data.strides, strict=True):
        loop = _loop_of(variable)
        if stride.constant != 0:
            units[loop.index], sizes[loop.index] = stride // loop.weight, loop.size
    for guard in guards_of(op.mask) if op.mask is not None else ():
        if isinstance(guard.owner, GuardOp) and guard.owner.index.data in units:
            sizes[guard.owner.index.data] = guard.owner.size.data
    return [(index, -unit if known_less(unit, 0) else unit, sizes[index]) for index, unit in units.items()]


def _loop_of(variable: SSAValue) -> Loop:
    assert isinstance(variable, BlockArgument)
    parent = variable.block.parent_op()
    if isinstance(parent, ParallelOp):
        return parent.loops.data[variable.index].data
    assert isinstance(parent, ForOp)
    return parent.loop.data


def guards_of(mask: SSAValue) -> set[SSAValue]:
    """The predicates that all hold where a mask does."""
    owner = mask.owner
    if not isinstance(owner, ApplyOp) or owner.variant is None:
        return {mask}
    if (owner.op.data, owner.variant.data) != ("bits", "and"):
        return {mask}
    return guards_of(owner.inputs[0]) | guards_of(owner.inputs[1])


def _multiple(value: SSAValue) -> Dim:
    """What an i64 value is a multiple of."""
    owner = value.owner
    if isinstance(owner, ConstantOp):
        return as_dim(owner.bits.data)
    if isinstance(owner, DimensionOp):
        return owner.size.data
    if not isinstance(owner, ApplyOp) or owner.op.data not in ("add", "mul"):
        return as_dim(1)
    left, right = (_multiple(operand) for operand in owner.inputs)
    if owner.op.data == "mul":
        return left * right
    if left.constant and right.constant:
        return as_dim(math.gcd(left.constant, right.constant))
    return left if left == right else as_dim(1)
