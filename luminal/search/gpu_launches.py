"""What the launches of a placed function do, counted from its loops and tiles: the input of a GPU's roofline.

An operation runs once for each iteration of the loops that it stands in, on all elements of its tile.  What
all programs read of an argument passes through the second cache; from memory it comes once, but again for each round of
a grid loop that it does not depend on, where another loop stands inside and the argument does not fit the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from luminal.dialects.kernel.placed import (
    AccumulateOp,
    ApplyOp,
    ConstantOp,
    ContractOp,
    LoadOp,
    ReduceOp,
    StoreOp,
)
from luminal.dialects.kernel.placed_base import reference_of, tile_of
from luminal.dialects.kernel.placed_loops import ForOp, FunctionOp, ParallelOp
from luminal.dialects.kernel.placed_types import Loop, TileAxis
from luminal.dtype import DType
from luminal.emit_triton.operands import narrowest
from luminal.emit_triton.scaled import scaled_factor
from luminal.search.gpu_machine import GpuMachine, resident_programs
from luminal.search.gpu_roofline import Launch
from luminal.search.needed_trips import needed_trips

OPERATIONS: Mapping[str, float] = {
    "exp2": 3, "log2": 6, "sin": 24, "sqrt": 8, "recip": 8, "mod": 12, "cast": 0.5,
}  # fmt: skip
"""Vector instructions of an elementwise primitive, where they are not one."""
LOADED = 0.25
"""And of an element that is read or written: several share one."""
SPECIAL = frozenset({"exp2", "log2", "sqrt", "recip"})
"""Primitives that take a result of the special unit."""
SECTOR = 32
"""Bytes of memory that are moved together."""
LEAST_DOT = 16
"""The least extent of each side of a product of blocks that the matrix units take."""
ASYNCHRONOUS_ROWS = 64
"""Rows from which on a product is of the kind that no warp waits for."""
HELD = 3
"""Tiles that are held at a time where one is computed from others."""
GROUP = 8
"""Steps of a grid's last loop but one that are taken for each of the last, where the grid goes in groups."""
MULTIPLIED = 3
"""Words beside each number of a product that vector units add up: what is read of several steps at a time."""
THREADS = 128
"""Of a program, where what a product's threads read from shared memory is counted."""
OWN_REGISTERS = 40
"""What a thread holds beside tiles: addresses, counters, masks."""


@dataclass(frozen=True, slots=True)
class Work:
    """A launch without the options of a compiler, and what decides how many of its programs are resident: 32-bit words
    of tiles that a program holds at a time, and bytes of one stage of a loop's operands in shared memory.
    `grouped_bytes`: what is moved from and to memory where the grid goes in groups of GROUP."""

    launch: Launch
    words: float
    stage_bytes: int
    grouped_bytes: float

    def fits(self, machine: GpuMachine, warps: int, stages: int) -> bool:
        """Whether its tiles fit the registers of its threads, and its stages the shared memory."""
        threads = warps * machine.warp
        return self.words / threads + OWN_REGISTERS <= machine.thread_registers and (
            self.stage_bytes * stages <= machine.program_shared
        )

    def with_options(self, machine: GpuMachine, warps: int, stages: int, group: int = 1) -> Launch:
        """The launch of a program of some warps whose loops have some stages in flight; `group`: 1 or GROUP."""
        registers = min(
            machine.thread_registers, math.ceil(self.words / (warps * machine.warp)) + OWN_REGISTERS
        )
        resident = resident_programs(machine, registers, self.stage_bytes * stages, warps)
        moved = self.launch.memory_bytes if group == 1 else self.grouped_bytes
        return replace(self.launch, stages=stages, resident=max(1, resident), memory_bytes=moved)


def works_of(function: FunctionOp, sizes: Mapping[str, int], machine: GpuMachine) -> list[Work]:
    """What each launch of a placed function does, for sizes of its symbols, in order."""
    found: list[Work] = []
    between: list[Operation] = []
    for op in function.body.block.ops:
        if not isinstance(op, ParallelOp):
            between.append(op)
            continue
        found += _between(between, sizes, machine)
        between = []
        found.append(_Counter(sizes, machine, op).work(op.body.block))
    return found + _between(between, sizes, machine)


def _between(ops: Sequence[Operation], sizes: Mapping[str, int], machine: GpuMachine) -> list[Work]:
    """What stands outside of parallel loops is one program, if it writes anything."""
    if not any(isinstance(inner, StoreOp) for op in ops for inner in op.walk()):
        return []
    counter = _Counter(sizes, machine, None)
    counter.ops(ops, 1.0)
    return [counter.total()]


@dataclass
class _Counter:
    """Counts what the operations of one launch do, each as often as it runs."""

    sizes: Mapping[str, int]
    machine: GpuMachine
    grid: ParallelOp | None
    operations: float = 0.0
    exponentials: float = 0.0
    flops: dict[str, float] = field(default_factory=dict[str, float])
    cache: dict[SSAValue, float] = field(default_factory=dict[SSAValue, float])
    memory: dict[SSAValue, float] = field(default_factory=dict[SSAValue, float])
    grouped: dict[SSAValue, float] = field(default_factory=dict[SSAValue, float])
    rows: int = 0
    steps: int = 0
    words: float = 0.0
    stage_bytes: int = 0

    def __post_init__(self) -> None:
        self.trips = {
            variable: self._trips(loop.data)
            for variable, loop in (zip(self.grid.body.block.args, self.grid.loops) if self.grid else ())
        }
        self.programs = max(1, math.prod(self.trips.values()))
        self.scaled: dict[Operation, str] = {}
        for op in self.grid.walk() if self.grid and self.machine.scaled else ():
            if isinstance(op, ContractOp):
                self._find_scaled(op)

    def work(self, block: Block) -> Work:
        self.ops(block.ops, float(self.programs))
        return self.total()

    def _find_scaled(self, op: ContractOp) -> None:
        """A product whose factors the matrix units decode: what decodes them does not run."""
        found = [scaled_factor(value, self.machine.scaled) for value in (op.left, op.right)]
        formats = [factor.format for factor in found if factor is not None]
        if len(formats) < 2 or formats[0].group != formats[1].group:
            return
        is_short = all(each.numbers == "e2m1" for each in formats)
        self.scaled[op] = "f4e2m1" if is_short else "f8e4m3fn"
        stack = [op.left, op.right]
        while stack:
            owner = stack.pop().owner
            if isinstance(owner, ApplyOp) and owner not in self.scaled:
                self.scaled[owner] = ""
                stack += owner.inputs

    def total(self) -> Work:
        """What was counted; the flops are of the dtype that has most of them."""
        dtype = max(self.flops, key=self.flops.__getitem__, default="bf16")
        units = self.machine.units
        # each unit has a part of the cache's bandwidth of its own: the busiest decides here too
        balance = -(-self.programs // units) * units / self.programs
        launch = Launch(
            programs=self.programs,
            memory_bytes=sum(self.memory.values()),
            cache_bytes=sum(self.cache.values()) * balance,
            matrix_flops=sum(self.flops.values()),
            dtype=dtype,
            is_asynchronous=self.rows >= ASYNCHRONOUS_ROWS,
            operations=self.operations,
            exponentials=self.exponentials,
            steps=max(1, self.steps),
        )
        return Work(launch, self.words, self.stage_bytes, sum(self.grouped.values()))

    def _trips(self, loop: Loop) -> int:
        whole = -(-max(0, loop.size.evaluate(self.sizes)) // loop.weight)
        return whole if loop.extent is None else min(loop.extent, max(1, whole))

    def ops(self, ops: Iterable[Operation], times: float, depth: int = 0) -> None:
        for op in ops:
            if isinstance(op, ForOp):
                trips = needed_trips(op, self._trips(op.loop.data), self.sizes)
                self.steps += math.ceil(trips) if depth == 0 else 0
                around, self.words = self.words, 0.0
                self.ops(op.body.block.ops, times * trips, depth + 1)
                self.words = max(around, sum(map(_words, op.inits)) + self.words)
            else:
                self._count(op, times, depth)

    def _count(self, op: Operation, times: float, depth: int) -> None:
        match op:
            case LoadOp():
                self._access(op, op.reference, op.tile.axes, op.tile.dtype, times)
            case StoreOp():
                self._access(op, op.reference, op.tile.axes, op.tile.dtype, times)
                self.words = max(self.words, _words(op.value))
            case ContractOp():
                self._contract(op, times, depth)
            case ApplyOp():
                elements = 0.0 if op in self.scaled or _is_free(op) else times * _elements(op.tile.axes)
                self.operations += OPERATIONS.get(op.op.data, 1.0) * elements * _width(op.tile.dtype)
                self.exponentials += elements * (op.op.data in SPECIAL)
                held = HELD * _words(op.result) if op.op.data != "cast" else 0
                self.words = max(self.words, held)
            case AccumulateOp():
                self.operations += times * sum(_elements(tile_of(value).axes) for value in op.values)
            case ReduceOp():
                self.operations += times * sum(_elements(tile_of(value).axes) for value in op.inputs)
            case _:  # constants, sizes, guards and addresses, which the compiler moves out of loops
                pass

    def _contract(self, op: ContractOp, times: float, depth: int) -> None:
        """Products of blocks in the matrix units, where their sides and dtype are large enough; else in full."""
        out, summed = set(op.tile.axes), set(op.summed)
        factors = narrowest(op.left, op.right, _elements(summed), self.machine.matrix)
        left, right, dtype = factors.left, factors.right, factors.dtype
        x, y = set(tile_of(left).axes), set(tile_of(right).axes)
        rows, columns = (_elements(side) for side in ((x - y) & out, (y - x) & out))
        inner = _elements(summed)
        products = _elements(x | y | summed | out) * times
        is_dot = min(rows, columns, inner) >= LEAST_DOT and summed <= x & y
        is_dot = is_dot and dtype.name not in self.machine.undotted
        is_carried = isinstance(op.accumulator, BlockArgument)
        held = 0.0 if is_carried else _words(op.accumulator)
        if not is_dot:
            self.operations += products * (2 if summed else 1)
            self.words = max(self.words, held + _elements(x | y | summed))
            return
        operands = sum(_elements(tile_of(v).axes) * dtype.size_bytes for v in (left, right))
        self.stage_bytes += operands if depth else 0
        name = self.scaled.get(op, dtype.name)
        has_units = name in self.machine.matrix
        if not has_units:
            held += MULTIPLIED * _words(op.accumulator)
        elif dtype.bits > 16:
            held += operands / 4
        self.words = max(self.words, held)
        if has_units:
            self.flops[name] = self.flops.get(name, 0.0) + 2 * products
            self.rows = max(self.rows, min(rows, ASYNCHRONOUS_ROWS) if dtype.bits <= 16 else 0)
        else:
            # a thread adds up a square of the product, and reads a row and a column for each step
            read = 2 * math.sqrt(THREADS / (rows * columns))
            self.operations += products * (1 + LOADED * read) * _width(dtype)

    def _access(
        self,
        op: LoadOp | StoreOp,
        reference: SSAValue,
        axes: Sequence[TileAxis],
        dtype: DType,
        times: float,
    ) -> None:
        """Bytes of the sectors that a tile touches, through the second cache and from memory."""
        size = dtype.size_bytes
        strides = [stride.evaluate(self.sizes) for stride in op.address.data.axis_strides]
        reach = sorted((abs(stride), axis.extent) for axis, stride in zip(axes, strides) if stride)
        touched, run = math.prod(extent for _, extent in reach), 1
        for stride, extent in reach:
            run *= extent if stride <= run else 1
        moved = times * touched * size * max(1.0, SECTOR / (run * size))
        self.cache[reference] = self.cache.get(reference, 0.0) + moved
        self.operations += LOADED * times * touched
        whole = reference_of(reference).elements.evaluate(self.sizes) * size
        once = min(whole, moved)
        for memory, loops in ((self.memory, self._loops()), (self.grouped, self._loops(GROUP))):
            again = self._rounds(op, loops, moved / self.programs) if whole > self.machine.l2 else 1
            memory[reference] = max(memory.get(reference, 0.0), min(once * again, moved))

    def _loops(self, group: int = 1) -> Sequence[tuple[SSAValue, int]]:
        """The loops of the grid and their trips, outermost first; the last but one in groups."""
        loops = list(self.trips.items())
        if group == 1 or len(loops) < 2:
            return loops
        *others, (first, count), last = loops
        return [*others, (first, -(-count // group)), last, (first, min(count, group))]

    def _rounds(self, op: LoadOp | StoreOp, loops: Sequence[tuple[SSAValue, int]], part: float) -> int:
        """How often the grid goes over what an operation touches, of which the cache does not hold the part that the
        loops inside touch; `part`: the bytes of one program."""
        rounds, inside = 1, False
        for variable, trips in reversed(loops):
            if variable in op.variables:
                part *= trips
                inside |= trips > 1
            elif inside and part > self.machine.l2:
                rounds *= trips
        return rounds


def _elements(axes: Iterable[TileAxis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _words(value: SSAValue) -> float:
    tile = tile_of(value)
    return _elements(tile.axes) * max(1.0, tile.dtype.size_bytes / 4)


def _is_free(op: ApplyOp) -> bool:
    """Whether an operation chooses between whole blocks, or gives a block more axes."""
    return op.op.data == "select" and (
        isinstance(op.inputs[0].owner, ConstantOp) or not tile_of(op.inputs[0]).axes
    )


def _width(dtype: DType) -> int:
    """Instructions that one of f32 is for a dtype."""
    return 2 if dtype.bits > 32 else 1
