"""LLVM text that runs a plan: it places every value for the sizes of a call and calls the kernels of each segment.

A call owns a *frame*, an array of 64-bit slots (`FrameLayout`). The caller fills in pointers, sizes, the arena, the
pool and the number of threads; the code fills in the argument tables of the kernels. Exported functions:

    i64 arena_bytes(ptr frame)              bytes of the arena for the sizes and threads in the frame
    i64 start(ptr frame, ptr kernels)       fills in the tables, then runs segment 0 if that is native
    i64 segment_N(ptr frame, ptr kernels)   runs a later segment

They give 0, or `step << 32 | status` of the first kernel that failed; CHECK_FAILED is the status of a check.
`kernels` is an array of the addresses of `plan.kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luminal.dim import Dim
from luminal.emit_cpu.sizes import DimEmitter
from luminal.emit_cpu.text import Function, Index, Module
from luminal.emit_cpu.values import Value
from luminal.plan.plan import THREADS, KernelStep, LibraryStep, Plan

CHECK_FAILED = 2**31 - 1
"""The parameters of a kernel: arguments, sizes, workspace, pool, threads."""
_NULL = Value("ptr", "null")


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Slots of a frame. First what changes from call to call: inputs that are no constants, outputs, sizes, arena, pool
    and threads, in this order; then constants, data and packings; then what the code fills in.

    `exposed` are values whose addresses library steps need; `sizes` the different tuples of kernel sizes.
    """

    inputs: tuple[int, ...]
    outputs: int
    dims: int
    arena: int
    data: int
    packed: int
    exposed: dict[int, int]
    arguments: dict[int, int]
    sizes: dict[tuple[Dim, ...], int]
    slots: int

    @property
    def pool(self) -> int:
        return self.arena + 1

    @property
    def threads(self) -> int:
        return self.arena + 2

    @staticmethod
    def of(plan: Plan) -> FrameLayout:
        constants = set(plan.constants)
        varying = [position for position in range(len(plan.inputs)) if position not in constants]
        outputs = len(varying)
        dims = outputs + len(plan.outputs)
        arena = dims + len(plan.symbols)
        inputs = {position: slot for slot, position in enumerate(varying)}
        inputs.update({position: arena + 3 + rank for rank, position in enumerate(plan.constants)})
        data = arena + 3 + len(plan.constants)
        packed = data + len(plan.data)
        slot = packed + len(plan.packings)
        exposed: dict[int, int] = {}
        arguments: dict[int, int] = {}
        sizes: dict[tuple[Dim, ...], int] = {}
        for number, step in enumerate(plan.steps):
            if isinstance(step, LibraryStep):
                for value in (*step.arguments, *step.outputs):
                    if value not in exposed:
                        exposed[value] = slot
                        slot += 1
                continue
            arguments[number] = slot
            slot += len(step.arguments) + 1  # the workspace comes last
            if step.dims not in sizes:
                sizes[step.dims] = slot
                slot += len(step.dims)
        ordered = tuple(inputs[position] for position in range(len(plan.inputs)))
        return FrameLayout(ordered, outputs, dims, arena, data, packed, exposed, arguments, sizes, slot)


def segment_names(plan: Plan) -> list[str]:
    """The function of each segment, "" for a library step; the first one is called through `start`."""
    names = [f"segment_{first}" if plan.is_native(first) else "" for first, _ in plan.segments]
    return ["start", *names[1:]] if names and names[0] else names


def entry_text(plan: Plan, layout: FrameLayout) -> str:
    """The module with the functions that the docstring lists."""
    module = Module()
    with module.function("arena_bytes", [("ptr", "frame")], "i64") as function:
        _, ends = _place_blocks(plan, layout, function)
        total: Index = 0
        for block, below in enumerate(plan.arena.below):
            del below
            total = function.index("smax", total, ends[block])
        function.ret(function.operand(total, "i64"))
    parameters = [("ptr", "frame"), ("ptr", "kernels")]
    with module.function("start", parameters, "i64") as function:
        _fill_tables(plan, layout, function)
        if plan.steps and plan.is_native(0):
            _run(plan, layout, function, *plan.segments[0])
        function.ret(Value("i64", "0"))
    for first, last in plan.segments[1:]:
        if plan.is_native(first):
            with module.function(f"segment_{first}", parameters, "i64") as function:
                _run(plan, layout, function, first, last)
                function.ret(Value("i64", "0"))
    return module.text()


def _load(function: Function, slot: int, type_: str = "i64") -> Value:
    return function.load(type_, function.offset(function.parameters["frame"], "i64", slot), 8)


def _store(function: Function, slot: int, value: Index) -> None:
    typed = function.operand(value, "i64") if not isinstance(value, Value) else value
    function.store(typed, function.offset(function.parameters["frame"], "i64", slot), 8)


def _dims(plan: Plan, layout: FrameLayout, function: Function) -> DimEmitter:
    symbols: dict[str, Index] = {
        symbol.name: _load(function, layout.dims + rank) for rank, symbol in enumerate(plan.symbols)
    }
    return DimEmitter(function, {**symbols, THREADS.name: _load(function, layout.threads)})


def _place_blocks(
    plan: Plan, layout: FrameLayout, function: Function
) -> tuple[tuple[DimEmitter, dict[int, Index]], dict[int, Index]]:
    """The evaluated dims with the offset of each block, and the end of each block."""
    dims = _dims(plan, layout, function)
    offsets: dict[int, Index] = {}
    ends: dict[int, Index] = {}
    sizes = plan.arena.sizes
    for block in plan.arena.order:
        offset: Index = 0
        for other in plan.arena.below[block]:
            offset = function.index("smax", offset, ends[other])
        offsets[block] = offset
        ends[block] = function.index("add", offset, function.index("smax", dims.value(sizes[block]), 0))
    return (dims, offsets), ends


def _fill_tables(plan: Plan, layout: FrameLayout, function: Function) -> None:
    (dims, offsets), _ = _place_blocks(plan, layout, function)
    arena = _load(function, layout.arena, "ptr")
    blocks = {block: function.offset(arena, "i8", offset) for block, offset in offsets.items()}

    def address(value: int) -> Value:
        storage = plan.values[value].storage
        if storage.kind == "arena":
            return blocks[storage.number]
        if storage.kind == "input":
            return _load(function, layout.inputs[storage.number], "ptr")
        first = layout.data if storage.kind == "data" else layout.outputs
        return _load(function, first + storage.number, "ptr")

    for value, slot in layout.exposed.items():
        _store(function, slot, address(value))
    for number, step in enumerate(plan.steps):
        if not isinstance(step, KernelStep):
            continue
        slot = layout.arguments[number]
        for rank, (value, packed) in enumerate(zip(step.arguments, step.packed, strict=True)):
            found = address(value) if packed < 0 else _load(function, layout.packed + packed, "ptr")
            _store(function, slot + rank, found)
        _store(function, slot + len(step.arguments), blocks[step.workspace] if step.workspace >= 0 else _NULL)
    for values, slot in layout.sizes.items():
        for rank, value in enumerate(values):
            _store(function, slot + rank, dims.value(value))


def _run(plan: Plan, layout: FrameLayout, function: Function, first: int, last: int) -> None:
    pool = _load(function, layout.pool, "ptr")
    threads = function.convert("trunc", _load(function, layout.threads), "i32")
    frame, kernels = function.parameters["frame"], function.parameters["kernels"]
    numbers = {name: number for number, name in enumerate(plan.kernels)}
    for number in range(first, last):
        step = plan.steps[number]
        assert isinstance(step, KernelStep)
        slot = layout.arguments[number]
        workspace = _load(function, slot + len(step.arguments), "ptr") if step.workspace >= 0 else _NULL
        arguments = [
            function.offset(frame, "i64", slot),
            function.offset(frame, "i64", layout.sizes[step.dims]),
            workspace,
            pool,
            threads,
        ]
        kernel = function.load("ptr", function.offset(kernels, "ptr", numbers[step.kernel]), 8)
        status = function.convert("zext", function.call("i32", kernel.text, arguments), "i64")
        _fail_if(function, status, number, status)
        if step.check:
            flag = function.load("i8", _load(function, slot + len(step.arguments) - 1, "ptr"))
            _fail_if(function, flag, number, Value("i64", str(CHECK_FAILED)))


def _fail_if(function: Function, flag: Value, step: int, status: Value) -> None:
    """Return the step and the status if the flag is not zero."""
    failed, passed = function.fresh("failed"), function.fresh("passed")
    function.branch_if(function.compare("icmp ne", flag, 0), failed, passed)
    function.start(failed)
    function.ret(function.op("or", status, step << 32))
    function.start(passed)


def unpack_status(status: int) -> tuple[int, int]:
    """The step that failed and its status, from what a segment returned."""
    return status >> 32, status & 0xFFFFFFFF


__all__: Sequence[str] = (
    "CHECK_FAILED", "DimEmitter", "FrameLayout", "entry_text", "segment_names", "unpack_status",
)  # fmt: skip
