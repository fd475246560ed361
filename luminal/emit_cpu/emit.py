"""A placed kernel to LLVM IR: `i32 name(ptr arguments, ptr sizes, ptr workspace, ptr pool, i32 threads)`.

`arguments` is an array of pointers in the order of the function's references, `sizes` an array of i64 in the
order of its symbols, `workspace` has `shared_bytes + threads * private_bytes` bytes, 64-byte aligned, and
`pool` begins with the address of the function that runs chunks on threads (see pool.py; it is not touched
where `threads` is 1). The result is 0, or a status.

A tile is unrolled: each coordinate of its plain axes is one LLVM value, a vector where it has a lane axis.
Loops are those of the placed form. A loop over a ragged index is written twice where guards hang on it: for
whole iterations, in which the guards are known to hold, and for the one that is cut. The body of a loop in which
masks of loads may hold throughout is written twice too (interior.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import Block, SSAValue

from luminal.dialects.kernel.placed import ApplyOp, GuardOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_loops import AllocateOp, ForOp, FunctionOp, ParallelOp
from luminal.dialects.kernel.placed_types import Loop
from luminal.dim import Dim, as_dim, dim_max
from luminal.emit_cpu.interior import Part, holds, interiors, turning
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import Function, Index, Module
from luminal.emit_cpu.tiles import TileWriter, guard_is_trivial
from luminal.emit_cpu.values import Value

ALIGNMENT = 64
AVX2_BITS = 256
"""of a vector register"""
FEW_REGISTERS = 16
"""of vectors, in which there is no room for constants too"""
TINY_NANOSECONDS = 3000
"""below it, waking threads costs more than they save"""
CHUNKS_PER_THREAD, UNEVEN_CHUNKS_PER_THREAD = 4, 16
"""and more where loops inside have limits, so that iterations differ in length"""
MOST_CUTS = 10
"""Bounds of the pieces that a loop is cut into, at most"""


@dataclass(frozen=True)
class Emitted:
    """A module's text, its entry, and the bytes of workspace that a call needs: shared + threads *
    private."""

    text: str
    name: str
    shared_bytes: Dim
    private_bytes: Dim


def emit_function(op: FunctionOp, target: Target) -> Emitted:
    """The LLVM text of a placed kernel."""
    return _Emitter(op, target).run()


def _splits(function: FunctionOp) -> set[Block]:
    """Bodies of loops that are written twice: those that a guard, or an unrolled loop that may be cut, hangs
    on."""
    found: set[Block] = set()

    def mark(variables: Sequence[SSAValue]) -> None:
        for variable in reversed(variables):
            block = variable.owner
            assert isinstance(block, Block)
            parent = block.parent_op()
            if not (isinstance(parent, ForOp) and parent.loop.data.role == "unroll"):
                found.add(block)
                return

    for op in function.walk():
        if isinstance(op, GuardOp) and not guard_is_trivial(op):
            mark(op.variables)
        if isinstance(op, ForOp) and op.loop.data.role == "unroll" and op.loop.data.ragged:
            mark(op.outer)
    return found


def _aligned_bytes(op: AllocateOp) -> Dim:
    """Bytes of a buffer, rounded up, and one more line so that neighbours share none."""
    reference = reference_of(op.reference)
    raw = reference.elements * reference.dtype.size_bytes
    return (raw + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT + ALIGNMENT


class _Emitter:
    def __init__(self, function: FunctionOp, target: Target) -> None:
        self.function, self.target = function, target
        self.name = function.sym_name.data
        self.module = Module(
            constants_in_memory=target.vector_registers <= FEW_REGISTERS,
            masks_are_signs=target.vector_bits == AVX2_BITS,
        )
        self.splits, self.interiors = _splits(function), interiors(function)
        self.offsets: dict[SSAValue, Dim] = {}
        self.shared, self.private = as_dim(0), as_dim(0)
        self._lay_out(function)
        self.aliases = self._alias_metadata(function)

    def _alias_metadata(self, function: FunctionOp) -> dict[SSAValue, str]:
        """For each reference, what an access to it says: its own alias class, and that it is none of the
        others."""
        allocated = [op.reference for op in function.walk() if isinstance(op, AllocateOp)]
        classes: dict[object, str] = {}
        owner: dict[SSAValue, str] = {}
        domain = self.module.node('!{!"references"}')
        for number, reference in enumerate([*function.body.block.args, *allocated]):
            alias = reference_of(reference).alias
            key: object = alias if alias >= 0 else ("own", number)
            if key not in classes:
                classes[key] = self.module.node(f'!{{!"class {len(classes)}", {domain}}}')
            owner[reference] = classes[key]
        texts: dict[SSAValue, str] = {}
        for reference, own in owner.items():
            others = ", ".join(other for other in classes.values() if other != own)
            if others:
                lists = self.module.node(f"!{{{own}}}"), self.module.node(f"!{{{others}}}")
                texts[reference] = f", !alias.scope {lists[0]}, !noalias {lists[1]}"
        return texts

    def _lay_out(self, function: FunctionOp) -> None:
        """Every buffer its own place; those of different parallel loops may share."""
        for op in function.body.block.ops:
            sizes = [inner for inner in op.walk() if isinstance(inner, AllocateOp)]
            used = as_dim(0) if isinstance(op, ParallelOp) else self.shared
            for inner in sizes:
                self.offsets[inner.reference] = used
                used = used + _aligned_bytes(inner)
            if isinstance(op, ParallelOp):
                self.private = used if self.private.constant == 0 else dim_max(self.private, used)
            else:
                self.shared = used

    def run(self) -> Emitted:
        parameters = [
            *(("ptr", name) for name in ("arguments", "sizes", "workspace", "pool")),
            ("i32", "threads"),
        ]
        with self.module.function(self.name, parameters, "i32") as f:
            writer = self._writer(f, f.parameters["arguments"], f.parameters["sizes"])
            writer.workspace = f.parameters["workspace"]
            LoopWriter(self, writer).block(self.function.body.block)
            f.ret(Value("i32", "0"))
        return Emitted(self.module.text(), self.name, self.shared, self.private)

    def _writer(self, f: Function, arguments: Value, sizes: Value) -> TileWriter:
        licences = {attribute.data for attribute in self.function.licences}
        writer = TileWriter(f, self.target, frozenset(licences), sizes, self.function.symbol_names)
        writer.aliases = self.aliases
        writer.bind_arguments(self.function.body.block.args, arguments)
        return writer

    def parallel_body(self, op: ParallelOp) -> str:
        """`void (ptr context, i64 chunk, i32 worker)`; context: arguments, sizes, workspace, chunks."""
        name = f"{self.name}_parallel{sum(key.startswith(self.name) for key in self.module.functions)}"
        parameters = [("ptr", "context"), ("i64", "chunk"), ("i32", "worker")]
        with self.module.function(name, parameters, "void", "internal") as f:
            context, chunk, worker = f.parameters.values()
            arguments, sizes, workspace = (
                f.load("ptr", f.offset(context, "i64", position)) for position in range(3)
            )
            writer = self._writer(f, arguments, sizes)
            for reference, offset in self.offsets.items():
                if isinstance(reference.owner, AllocateOp) and reference.owner.parent_op() is self.function:
                    writer.bind_scratch(reference, workspace, offset)
            with f.at(writer.scopes[0].place):
                mine = f.index("mul", f.convert("zext", worker, "i64"), writer.size(self.private))
                writer.workspace = f.offset(workspace, "i8", f.index("add", writer.size(self.shared), mine))
            LoopWriter(self, writer).grid(op, chunk, f.load("i64", f.offset(context, "i64", 3)))
            f.ret()
        return name


class LoopWriter:
    """Writes the control flow of one LLVM function around the tiles of a TileWriter."""

    def __init__(self, emitter: _Emitter, tiles: TileWriter) -> None:
        self.emitter, self.tiles, self.f = emitter, tiles, tiles.f

    def block(self, block: Block, carried: Sequence[Value] = ()) -> list[Value]:
        """Write a block once; the values that it yields, one for each coordinate, in order."""
        tiles = self.tiles
        tiles.open_block(block, carried)
        tiles.open.append(block)
        for op in block.ops:
            if isinstance(op, AllocateOp):
                tiles.bind_scratch(op.reference, tiles.workspace, self.emitter.offsets[op.reference])
            elif isinstance(op, ForOp):
                tiles.settle_before(op)
                self.loop(op)
            elif isinstance(op, ParallelOp):
                tiles.settle_before(op)
                self.parallel(op)
            else:
                tiles.step(op)
        last = block.last_op
        assert last is not None
        yielded = [value for operand in last.operands for value in tiles.whole(operand)]
        tiles.open.pop()
        return yielded

    # Sequential loops

    def loop(self, op: ForOp) -> None:
        inits = [value for operand in op.inits for value in self.tiles.whole(operand)]
        results = self.segments(op, inits)
        for carried in op.carried:
            count = self.tiles.bind_whole(carried, results)
            results = results[count:]

    def left(self, loop: Loop, outer: Sequence[SSAValue]) -> Index:
        """How much of the index the loop has still to cover; at least 0."""
        covered = self.tiles.affine(outer, [as_dim(weight) for weight in loop.outer_weights], as_dim(0))
        size = self.tiles.size(loop.size)
        return size if covered == 0 else self.f.index("smax", self.f.index("sub", size, covered), 0)

    def count(self, loop: Loop, left: Index, rounding: int) -> Index:
        """left / weight, up or down, and no more than the extent."""
        trips = self.f.index("udiv", self.f.index("add", left, rounding * (loop.weight - 1)), loop.weight)
        return trips if loop.extent is None else self.f.index("smin", trips, loop.extent)

    def needed(self, op: ForOp, count: Index) -> tuple[Index, Index]:
        """The first of so many iterations within the limits of a loop, and the first behind them."""
        variables, limits, guard = op.bounds
        f = self.f
        first: Index = 0
        last = count
        for limit in limits:
            reach = self.tiles.affine(variables, limit.strides, limit.offset)
            reach = f.index("smax", f.index("add", reach, limit.is_upper * (limit.step - 1)), 0)
            end = f.index("udiv", reach, limit.step)
            if limit.is_upper:
                last = f.index("smin", last, end)
            else:
                first = f.index("smax", first, end)
        if guard is None:
            return first, last
        (holds,) = self.tiles.whole(guard)
        within = [
            f.select(holds, *(f.operand(end, "i64") for end in ends)) for ends in ((first, 0), (last, count))
        ]
        return within[0], within[1]

    def segments(self, op: ForOp, values: list[Value]) -> list[Value]:
        loop, f = op.loop.data, self.f
        whole_outside = any(variable in self.tiles.full for variable in op.outer)
        if loop.extent is not None and (whole_outside or not loop.ragged):
            return self.iterate(op, *self.needed(op, loop.extent), values, whole_outside)
        left = self.left(loop, op.outer)
        if loop.masked or not loop.ragged or op.body.block not in self.emitter.splits:
            return self.iterate(op, *self.needed(op, self.count(loop, left, 1)), values, False)
        full = self.count(loop, left, 0)
        first, last = self.needed(op, full)
        values = self.iterate(op, first, last, values, True)
        rest = f.index("sub", left, f.index("mul", full, loop.weight))
        asked: list[tuple[Index, Index]] = [(0, rest)]
        if loop.extent is not None:
            asked.append((full, loop.extent))
        if op.limits is not None:
            behind = f.index("add", full, 1)
            first, last = self.needed(op, behind)
            asked += [(first, behind), (full, last)]
        some: Value | None = None
        for low, high in asked:
            if isinstance(low, int) and isinstance(high, int):
                if low >= high:
                    return values
                continue
            less = f.compare("icmp slt", *f.pair(low, high))
            some = less if some is None else f.op("and", some, less)
        if some is None:
            return self.iterate(op, full, f.index("add", full, 1), values, False)
        return f.choose(some, lambda: self.once(op, full, values, False), lambda: values)

    def iterate(self, op: ForOp, low: Index, high: Index, values: list[Value], full: bool) -> list[Value]:
        """The loop from low to high, cut where parts of masks begin or cease to hold, if that is known."""
        if not (isinstance(low, int) and isinstance(high, int)):
            return self.repeat(op, low, high, values, full)
        found = [
            (part, turning(part, op.body.block.args[0]))
            for part in self.emitter.interiors.get(op.body.block, ())
        ]
        turns = {part: turn for part, turn in found if turn is not None}
        cuts = sorted({low, high, *(at for turn in turns.values() for at in turn if low < at < high)})
        if len(cuts) > MOST_CUTS:
            return self.repeat(op, low, high, values, full)
        for start, end in pairwise(cuts):
            before = {part for part, turn in turns.items() if end <= turn[0]}
            after = {part for part, turn in turns.items() if start >= turn[1]}
            held = {part.compare for part in before | after if (part in after) == part.is_lower}
            failed = {part.compare for part in before | after} - held
            with self.tiles.knowing(held, failed):
                values = self.repeat(op, start, end, values, full)
        return values

    def repeat(self, op: ForOp, low: Index, high: Index, values: list[Value], full: bool) -> list[Value]:
        """The loop from low to high; unrolled where it says so and the count is known."""
        if isinstance(low, int) and isinstance(high, int):
            if high - low <= 1 or op.loop.data.role == "unroll":
                for iteration in range(low, high):
                    values = self.body(op, iteration, values, full)
                return values
        with self.f.loop(low, high, 1, values) as loop, self.tiles.scope():
            loop.next += self.body(op, loop.index, loop.carried, full)
        return loop.carried

    def once(self, op: ForOp, iteration: Index, values: list[Value], full: bool) -> list[Value]:
        with self.tiles.scope():
            return self.body(op, iteration, values, full)

    def body(self, op: ForOp, iteration: Index, values: Sequence[Value], full: bool) -> list[Value]:
        block = op.body.block
        return self.with_variables(
            [(block.args[0], iteration, full)], lambda: self.inside(block, full, values)
        )

    def with_variables(
        self, variables: Sequence[tuple[SSAValue, Index, bool]], write: Callable[[], list[Value]]
    ) -> list[Value]:
        """Write code with loop variables set; a full one says that its iteration is whole."""
        tiles = self.tiles
        for variable, value, full in variables:
            tiles.variables[variable] = (value, len(tiles.scopes) - 1)
            if full:
                tiles.full.add(variable)
        try:
            return write()
        finally:
            tiles.full.difference_update(variable for variable, _, _ in variables)

    def inside(self, block: Block, full: bool, carried: Sequence[Value] = ()) -> list[Value]:
        """Write a block: without the masks that hold in all of it where they do, else with them. Those that are the
        same for a whole tile are asked first: at the rim of the others, they need not be asked again."""
        known = self.tiles.held | self.tiles.failed
        parts = [part for part in self.emitter.interiors.get(block, ()) if part.compare not in known]
        if block in self.emitter.splits and not full:
            return self.block(block, carried)
        alike = [part for part in parts if not part.index.tile.axes]
        others = [part for part in parts if part.index.tile.axes]

        def plain() -> list[Value]:
            return self.block(block, carried)

        return self.where_held(block, alike, lambda: self.where_held(block, others, plain, plain), plain)

    def where_held(
        self,
        block: Block,
        parts: Sequence[Part],
        held: Callable[[], list[Value]],
        plain: Callable[[], list[Value]],
    ) -> list[Value]:
        """A block written in one way where all parts of masks hold throughout, and are known to, else in another."""
        whole: Value | None = None
        known: list[ApplyOp] = []
        for part in parts:
            found = holds(part, block, self.tiles)
            if found is None or found is False:
                continue
            known.append(part.compare)
            if isinstance(found, Value):
                whole = found if whole is None else self.f.op("and", whole, found)

        def without() -> list[Value]:
            with self.tiles.knowing({*known}, set()):
                return held()

        return without() if whole is None else self.f.choose(whole, without, plain)

    # Parallel loops

    def trips(self, op: ParallelOp) -> list[Index]:
        loops = [loop.data for loop in op.loops]
        return [self.count(loop, self.left(loop, ()), 1) for loop in loops]

    def parallel(self, op: ParallelOp) -> None:
        """Run the grid: alone where it is tiny or there is one thread, else in chunks on the pool."""
        f, root = self.f, self.f.parameters
        grid: Index = 1
        for trips in self.trips(op):
            grid = f.index("mul", grid, trips)
        body = self.emitter.parallel_body(op)
        context = f.alloca("i64", 4, 8)
        for position, name in enumerate(("arguments", "sizes", "workspace")):
            f.store(root[name], f.offset(context, "i64", position))
        chunks_place = f.offset(context, "i64", 3)
        threads = f.convert("sext", root["threads"], "i64")
        uneven = any(isinstance(inner, ForOp) and inner.limits is not None for inner in op.walk())
        each = UNEVEN_CHUNKS_PER_THREAD if uneven else CHUNKS_PER_THREAD
        chunks = f.index("smin", grid, f.index("mul", threads, each))
        cost = self.emitter.function.cost
        enough = 2 if cost is None else max(2, -(-TINY_NANOSECONDS // max(cost.data, 1)))
        several, large = (
            f.compare("icmp sgt", root["threads"], 1),
            f.compare("icmp sge", *f.pair(grid, enough)),
        )
        worth = f.op("and", several, large)

        def alone() -> list[Value]:
            f.store(Value("i64", "1"), chunks_place)
            f.call("void", body, [context, Value("i64", "0"), Value("i32", "0")])
            return []

        def together() -> list[Value]:
            f.store(f.operand(chunks, "i64"), chunks_place)
            run = f.load("ptr", root["pool"])
            function, count = Value("ptr", f"@{body}"), f.operand(chunks, "i64")
            f.call("void", run.text, [root["pool"], function, context, count, root["threads"]])
            return []

        f.choose(worth, together, alone)

    def grid(self, op: ParallelOp, chunk: Value, chunks: Value) -> None:
        """The iterations of one chunk: an even share of the grid, the last loop running fastest."""
        f, tiles, block = self.f, self.tiles, op.body.block
        trips = self.trips(op)
        total: Index = 1
        for count in trips:
            total = f.index("mul", total, count)
        low = f.index("udiv", f.index("mul", chunk, total), chunks)
        high = f.index("udiv", f.index("mul", f.index("add", chunk, 1), total), chunks)
        with f.loop(low, high) as loop, tiles.scope():
            point: list[Index] = []
            rest: Index = loop.index
            for count in reversed(trips[1:]):
                point.insert(0, f.index("urem", rest, count))
                rest = f.index("udiv", rest, count)
            self.point(op, block, [rest, *point])

    def point(self, op: ParallelOp, block: Block, point: Sequence[Index]) -> None:
        """One iteration: in a copy without guards where no ragged index is cut, else in one with them."""
        f, tiles = self.f, self.tiles
        ragged: list[tuple[Index, Index]] = []
        if block in self.emitter.splits:
            for position, attribute in zip(point, op.loops, strict=True):
                loop = attribute.data
                if loop.ragged and not loop.masked:
                    ragged.append((position, f.index("udiv", tiles.size(loop.size), loop.weight)))

        def copy(full: bool) -> list[Value]:
            with tiles.scope():
                variables = [
                    (variable, value, full and loop.data.ragged and not loop.data.masked)
                    for variable, value, loop in zip(block.args, point, op.loops, strict=True)
                ]
                return self.with_variables(variables, lambda: self.inside(block, full))

        if not ragged or any(bound == 0 for _, bound in ragged):
            copy(False)
            return
        whole = None
        for position, bound in ragged:
            inside = f.compare("icmp slt", *f.pair(position, bound))
            whole = inside if whole is None else f.op("and", whole, inside)
        assert whole is not None
        f.choose(whole, lambda: copy(True), lambda: copy(False))
