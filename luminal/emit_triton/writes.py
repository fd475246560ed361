"""Whether the writes of a kernel may meet, and what the memory that it reads and writes allows."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import LoadOp, StoreOp
from luminal.dialects.kernel.placed_base import reference_of, tile_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp
from luminal.dialects.kernel.placed_types import TileAxis
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
    variables, axes = _dependences(op.dynamic)
    moving = {v for v, s in zip(op.variables, op.address.data.strides, strict=True) if s.constant != 0}
    steps = zip(op.tile.axes, op.address.data.axis_strides, strict=True)
    still = {axis for axis, step in steps if step.constant == 0}
    open_variables = set(_open_variables(op))
    parallel = {v for v in open_variables if isinstance(v.block.parent_op(), ParallelOp)}
    clashing = (parallel & variables) | (parallel - moving)
    lanes = {axis for axis in axes | still if axis.extent > 1 and axis in op.tile.axes}
    combine, dtype = op.combine.data, op.tile.dtype
    if not clashing and not lanes:
        meets = (open_variables & variables) | (open_variables - moving)
        return Meeting.IN_ORDER if meets else Meeting.NEVER
    if dtype in ATOMIC.get(combine, ()) and (reassociates or not dtype.is_float or combine != "add"):
        return Meeting.ATOMIC
    raise ScheduleError(
        f"writes of several programs or lanes may meet at one place, and {combine!r} of {dtype} depends on "
        "their order: make plain loops of the indices that choose the place"
    )


def _open_variables(op: Operation) -> Iterable[BlockArgument]:
    """The variables of the loops around an operation."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FunctionOp):
        if isinstance(parent, ParallelOp):
            yield from parent.body.block.args
        if isinstance(parent, ForOp):
            yield parent.body.block.args[0]
        parent = parent.parent_op()


def _dependences(value: SSAValue | None) -> tuple[set[SSAValue], set[TileAxis]]:
    """The loop variables and tile axes that a value varies with."""
    variables: set[SSAValue] = set()
    axes: set[TileAxis] = set()
    seen: set[SSAValue] = set()
    stack = [value] if value is not None else []
    while stack:
        found = stack.pop()
        if found in seen:
            continue
        seen.add(found)
        owner = found.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            if isinstance(found, BlockArgument) and (found.index == 0 or isinstance(parent, ParallelOp)):
                variables.add(found)
            elif isinstance(parent, ForOp):
                stack += parent.operands
                stack += owner.last_op.operands if owner.last_op is not None else ()
            continue
        stack += owner.operands
        if isinstance(owner, ForOp) and owner.body.block.last_op is not None:
            stack += owner.body.block.last_op.operands
    if value is not None:
        axes |= set(tile_of(value).axes)
    return variables, axes
