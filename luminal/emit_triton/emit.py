"""A placed kernel as Triton text: one kernel for each parallel loop of the function, and for what stands between them.

The grid is flat, and its last loop runs fastest.  A tile is a block of the program; memory at the function's scope, by
which one kernel hands its results to the next, is a workspace: a pointer behind the arguments and outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from xdsl.ir import Operation, SSAValue

from luminal.dialects.kernel.placed import ApplyOp, StoreOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp, YieldOp
from luminal.dialects.kernel.placed_types import Reference, TileAxis, TileType
from luminal.dim import Dim, as_dim, dim_min, product, symbol_dim
from luminal.dtype import i32, i64
from luminal.emit_triton.blocks import BlockWriter
from luminal.emit_triton.eights import held_as
from luminal.emit_triton.helpers import helper_text
from luminal.emit_triton.kernel import PREFIX, Options, Parameter, TritonKernel
from luminal.emit_triton.sizes import fits_32
from luminal.emit_triton.text import Lines, Value, atom, call, check_block, type_text
from luminal.emit_triton.writes import check_memory, meetings

ALIGNMENT = 16
"""Bytes that the addresses of outputs and workspaces are multiples of."""


def emit_function(op: FunctionOp, options: Options, alignment: int = ALIGNMENT) -> tuple[TritonKernel, ...]:
    """The kernels of a placed function, to be launched in order.

    `alignment`: bytes that the address of every argument is a multiple of.  Raises ScheduleError where the schedule
    asks for what Triton has not: extents that are no powers of two, memory of one program's own, writes that depend on
    the order of programs; UnsupportedTargetError for dtypes and operations.
    """
    segments = _segments(op)
    emitter = _Emitter(op, options, alignment)
    name = op.sym_name.data
    names = [name] if len(segments) == 1 else [f"{name}_{number}" for number in range(len(segments))]
    return tuple(emitter.kernel(name, segment) for name, segment in zip(names, segments, strict=True))


def _segments(function: FunctionOp) -> list[list[Operation]]:
    """The function's operations by kernel: each parallel loop alone, and what stands between two of them."""
    segments: list[list[Operation]] = []
    between: list[Operation] = []
    for op in function.body.block.ops:
        if isinstance(op, AllocateOp | YieldOp):
            continue
        if not isinstance(op, ParallelOp):
            between.append(op)
            continue
        segments.append(between)
        segments.append([op])
        between = []
    return [found for found in (*segments, between) if _writes(found)]


def _writes(ops: Sequence[Operation]) -> bool:
    return any(isinstance(inner, StoreOp) for op in ops for inner in op.walk())


def _axis_order(ops: Sequence[Operation]) -> tuple[TileAxis, ...]:
    """All tile axes of some operations, in the order of their tiles; ScheduleError for what is no block of Triton's."""
    before: dict[TileAxis, dict[TileAxis, None]] = {}
    for op in (inner for outer in ops for inner in outer.walk()):
        types = [op.axes, *op.result_types] if isinstance(op, StoreOp) else op.result_types
        for kind in types:
            axes = kind.data.axes if isinstance(kind, TileType) else ()
            check_block(axes)
            for axis in axes:
                before.setdefault(axis, {})
            if not isinstance(op, ApplyOp):  # whose axes are in the order of its operands
                for first, second in itertools.pairwise(axes):
                    before[second][first] = None
    try:
        order = tuple(TopologicalSorter(before).static_order())
    except CycleError:
        order = tuple(before)
    return tuple(axis for axis in order if axis.extent > 1)


class _Emitter:
    """What all kernels of a function share: its references and symbols."""

    def __init__(self, function: FunctionOp, options: Options, alignment: int) -> None:
        self.function, self.options, self.alignment = function, options, alignment
        allocated = [op.reference for op in function.body.block.ops if isinstance(op, AllocateOp)]
        self.references: dict[SSAValue, str] = {}
        for reference in (*function.body.block.args, *allocated):
            prefix = PREFIX[reference_of(reference).kind]
            count = sum(name.startswith(prefix) for name in self.references.values())
            self.references[reference] = f"{prefix}{count}"

    def parameters(self) -> tuple[Parameter, ...]:
        pointers = [self._pointer(name, reference_of(value)) for value, name in self.references.items()]
        sizes = [
            Parameter(symbol.name, i32 if fits_32(symbol_dim(symbol)) else i64, False)
            for symbol in self.function.symbols.data
        ]
        return (*pointers, *sizes)

    def _pointer(self, name: str, reference: Reference) -> Parameter:
        dtype = held_as(reference.dtype, self.options.eights)
        type_text(dtype)
        sure = self.alignment if reference.kind == "argument" else ALIGNMENT
        return Parameter(name, dtype, True, sure, reference.elements)

    def kernel(self, name: str, ops: Sequence[Operation]) -> TritonKernel:
        check_memory(ops)
        parameters = self.parameters()
        names = [parameter.name for parameter in parameters]
        lines = Lines([*names, name])
        reassociates = any(licence.data == "reassociate" for licence in self.function.licences)
        met = meetings(self.function, ops)
        writer = BlockWriter(lines, _axis_order(ops), self.references, met, reassociates, self.options)
        if self.options.describes:
            writer.describe(ops)
        grid = self._body(ops, writer)
        source = "import triton\nimport triton.language as tl\n" + helper_text(writer.helpers)
        source += f"\n\n@triton.jit\ndef {call(name, *names)}:\n" + "\n".join(lines.lines) + "\n"
        return TritonKernel(name, source, parameters, grid, self.options)

    def _body(self, ops: Sequence[Operation], writer: BlockWriter) -> Dim:
        """The lines of a kernel; how many programs there are."""
        ranges = writer.addresses.declare_ranges
        if not isinstance(ops[0], ParallelOp):
            ranges()
            _write_ops(writer, ops)
            return as_dim(1)
        inner, most = list(ops[0].body.block.ops), self.options.programs
        if not most:
            places = self._grid(ops[0], writer, "tl.program_id(0)")
            ranges()
            _write_ops(writer, inner)
            return places
        lines, places = writer.lines, product(_counts(ops[0]))
        place = lines.fresh("place")
        size = writer.addresses.size(places)
        lines.add(f"for {place} in tl.range(tl.program_id(0), {size}, {most}, flatten=True):")
        with lines.indented():
            self._grid(ops[0], writer, place)
            ranges()
            _write_ops(writer, inner)
        return dim_min(places, most)

    def _grid(self, op: ParallelOp, writer: BlockWriter, number: str) -> Dim:
        """The number of places; lines that say which iteration is the place of a number."""
        addresses, lines = writer.addresses, writer.lines
        counts = _counts(op)
        variables = list(op.body.block.args)
        for variable, attribute in zip(variables, op.loops, strict=True):
            addresses.declare(variable, attribute.data)
        if len(variables) > 1:
            rest = lines.fresh("program")
            lines.add(f"{rest} = {number}")
        else:
            rest = number
        names = [addresses.variables[variable] for variable in variables]
        sizes = [atom(addresses.size(count)) for count in counts]
        if len(names) > 1 and self.options.group > 1:
            rest = _write_group(lines, rest, names, sizes, self.options.group)
            del names[-2:], sizes[-2:]
        for name, size in reversed(list(zip(names, sizes, strict=True))[1:]):
            lines.add(f"{name} = {rest} % {size}")
            lines.add(f"{rest} = {rest} // {size}")
        if names:
            lines.add(
                f"{names[0]} = {call('tl.cast', rest, 'tl.int64') if variables[0] in addresses.wide else rest}"
            )
        return product(counts)


def _counts(op: ParallelOp) -> list[Dim]:
    """The iterations of each loop of a grid."""
    return [loop.data.most for loop in op.loops]


def _write_group(lines: Lines, program: str, names: Sequence[str], sizes: Sequence[str], group: int) -> str:
    """The last two loops of a grid, in groups of steps of the first of them; what is left of the program's number."""
    place, rest = program, program
    if len(names) > 2:
        both = f"({sizes[-2]} * {sizes[-1]})"
        place = lines.let("place", f"{program} % {both}")
        rest = lines.let("rest", f"{program} // {both}")
    first = lines.let("first", f"{place} // ({sizes[-1]} * {group}) * {group}")
    count = lines.let("count", call("tl.minimum", f"{sizes[-2]} - {first}", str(group)))
    inside = lines.let("inside", f"{place} % ({sizes[-1]} * {group})")
    lines.add(f"{names[-2]} = {first} + {inside} % {count}")
    lines.add(f"{names[-1]} = {inside} // {count}")
    return rest


def _write_ops(writer: BlockWriter, ops: Sequence[Operation]) -> None:
    for op in ops:
        if isinstance(op, ForOp):
            _write_loop(writer, op)
        elif not isinstance(op, YieldOp):
            writer.step(op)


def _write_loop(writer: BlockWriter, op: ForOp) -> None:
    """A loop whose carried tiles are variables of the text."""
    lines, loop, block = writer.lines, op.loop.data, op.body.block
    names: list[str] = []
    for init, argument, result in zip(op.inits, block.args[1:], op.carried, strict=True):
        name = lines.fresh(f"{loop.index}_carry")
        lines.add(f"{name} = {writer.initial(init)}")
        writer.values[argument] = writer.values[result] = Value(name, writer.axes(result))
        names.append(name)
    index = writer.addresses.declare(block.args[0], loop)
    count = writer.addresses.trips(loop, op.outer)
    known = loop.role == "unroll" and count.isdecimal()
    first, last = writer.addresses.needed(op, count, writer.value(op.guard).text if op.guard else None)
    lines.add(f"for {index} in {'tl.static_range' if known else 'range'}({first}, {last}):")
    with lines.indented():
        _write_ops(writer, list(block.ops))
        last = block.last_op
        following = [writer.whole(value) for value in last.operands] if last is not None else []
        if names:
            lines.add(f"{', '.join(names)} = {', '.join(following)}")
