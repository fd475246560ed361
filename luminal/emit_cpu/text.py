"""A small builder of LLVM IR text: one `Module` of functions, written front to back through a `Function`.

Values carry their LLVM type, so an instruction names operands only. Python numbers may stand for constants
wherever the type follows from the other operand, and i64 index arithmetic on numbers is folded here.
Fast-math flags are an argument of each instruction, never a mode of the builder. Nothing here knows what is
computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Union

from luminal.emit_cpu.rare import Rare
from luminal.emit_cpu.values import (
    Operand,
    Value,
    bits_of,
    constant,
    element_of,
    is_float,
    lane_constants,
    lanes_of,
    poison,
    suffix_of,
    vector_of,
    with_element,
    zero,
)

Index = Value | int
Lines = list[Union[str, Rare, "Lines"]]
"""Instructions in order; a nested list is a place that may still grow after what follows it was written."""


FOLD: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "sdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "udiv": int.__floordiv__,
    "urem": int.__mod__,
    "smin": min,
    "smax": max,
    "and": int.__and__,
    "shl": int.__lshift__,
}
RIGHT_IDENTITY = {"add": 0, "sub": 0, "mul": 1, "sdiv": 1, "udiv": 1, "shl": 0}


def flat(lines: Lines) -> Iterator[str]:
    """All text in order, of places and of paths too."""
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from line.code if isinstance(line, Rare) else flat(line)


UNITS = frozenset(
    constant(f"<2 x {element}>", sign).text for element in ("float", "double") for sign in (1.0, -1.0)
)
"""What a product by is no product."""


class Module:
    """Declarations, globals, functions and metadata of one LLVM module, printed by `text()`.

    `constants_in_memory`: addends and factors that are vector constants are operands in memory. LLVM keeps constants
    of a loop in registers, and where there are few, moves them from one to another in each iteration. (A `constant`
    global would be folded to what it was.) `masks_are_signs`: of vectors, as AVX2 has them."""

    def __init__(self, constants_in_memory: bool = False, masks_are_signs: bool = False) -> None:
        self.constants_in_memory, self.masks_are_signs = constants_in_memory, masks_are_signs
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.metadata: list[str] = []

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def node(self, text: str) -> str:
        """The reference of a metadata node; equal non-distinct nodes are one."""
        if text.startswith("distinct") or text not in self.metadata:
            self.metadata.append(text)
            return f"!{len(self.metadata) - 1}"
        return f"!{self.metadata.index(text)}"

    @contextlib.contextmanager
    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]] = (),
        result: str = "void",
        linkage: str = "",
        attributes: str = "nounwind",
    ) -> Generator[Function]:
        """A function to write; parameters are (type with attributes, name). The writer ends every block."""
        types = [t[: t.index(">") + 1] if t.startswith("<") else t.split(" ")[0] for t, _ in parameters]
        written = Function(self, {n: Value(t, f"%{n}") for t, (_, n) in zip(types, parameters, strict=True)})
        yield written
        signature = ", ".join(f"{type_} %{parameter}" for type_, parameter in parameters)
        head = f"define {linkage} {result} @{name}({signature}) {attributes} {{"
        self.functions[name] = "\n".join([head, "entry:", *written.allocas, *flat(written.body), "}"])

    def text(self) -> str:
        nodes = [f"!{number} = {text}" for number, text in enumerate(self.metadata)]
        declared = [text for name, text in self.declarations.items() if name not in self.functions]
        return "\n".join([*self.globals.values(), *declared, *self.functions.values(), *nodes, ""])


@dataclass
class Loop:
    """An open counted loop: its index, the carried values inside, and after closing its results."""

    index: Value
    carried: list[Value]
    next: list[Value] = field(default_factory=list[Value])


class Function:
    """Writes one function, instruction by instruction, into the current block."""

    def __init__(self, module: Module, parameters: dict[str, Value]) -> None:
        self.module, self.parameters = module, parameters
        self.allocas: list[str] = []
        self.body: Lines = []
        self.lines = self.body
        self.block = "entry"
        self.count = 0

    # Names, lines and blocks
    def fresh(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def define(self, type_: str, expression: str) -> Value:
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {expression}")
        return Value(type_, name)

    def place(self) -> Lines:
        """A point here into which straight-line code may be written later, through `at`."""
        place: Lines = []
        self.lines.append(place)
        return place

    @contextlib.contextmanager
    def at(self, place: Lines) -> Generator[None]:
        """Write into a place instead of at the end."""
        self.lines, saved = place, self.lines
        try:
            yield
        finally:
            self.lines = saved

    def start(self, label: str) -> None:
        """Open a block; the one before must have been ended by a branch or a return."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def ret(self, value: Value | None = None) -> None:
        self.line(f"ret {value.type} {value.text}" if value else "ret void")

    # Operands
    def operand(self, value: Operand, type_: str) -> Value:
        """A number as a constant of `type_`; a scalar of its element is spread over the lanes."""
        if not isinstance(value, Value):
            return constant(type_, value)
        if lanes_of(type_) and not lanes_of(value.type):
            return self.splat(value, lanes_of(type_))
        return value

    def pair(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        typed = [x for x in (a, b) if isinstance(x, Value)]
        type_ = max((x.type for x in typed), key=lanes_of) if typed else "i64"
        return self.operand(a, type_), self.operand(b, type_)

    # Arithmetic
    def op(self, opcode: str, a: Operand, b: Operand, flags: str = "") -> Value:
        """A binary instruction such as `fadd` or `mul`; `flags` are its own ("contract", "nsw")."""
        left, right = self.pair(a, b)
        if opcode in ("fadd", "fmul"):
            left, right = self._from_memory(left), self._from_memory(right)
        return self.define(left.type, f"{opcode} {flags} {left.type} {left.text}, {right.text}")

    def _from_memory(self, value: Value) -> Value:
        """A vector constant as a load, where the module asks for it."""
        if not (self.module.constants_in_memory and value.text.startswith("splat")) or value.text in UNITS:
            return value
        name = f"constant_{suffix_of(value.type)}_{value.text.split()[-1][:-1]}"
        align = lanes_of(value.type) * bits_of(value.type) // 8
        self.module.globals[name] = f"@{name} = internal global {value.type} {value.text}, align {align}"
        return self.load(value.type, Value("ptr", f"@{name}"), align)

    def index(self, opcode: str, a: Index, b: Index) -> Index:
        """i64 arithmetic that folds Python ints: add sub mul sdiv udiv urem smin smax and shl."""
        if isinstance(a, int) and isinstance(b, int):
            return FOLD[opcode](a, b)
        if isinstance(b, int) and RIGHT_IDENTITY.get(opcode) == b:
            return a
        if isinstance(a, int) and (opcode, a) in (("add", 0), ("mul", 1)):
            return b
        if opcode == "mul" and 0 in (a, b):
            return 0
        if opcode in ("smin", "smax"):
            return self.intrinsic(opcode, *self.pair(a, b))
        return self.op(opcode, a, b, "nsw" if opcode in ("add", "sub", "mul") else "")

    def compare(self, predicate: str, a: Operand, b: Operand) -> Value:
        """`predicate` in full: "icmp slt", "fcmp uno"."""
        left, right = self.pair(a, b)
        return self.define(
            with_element(left.type, "i1"), f"{predicate} {left.type} {left.text}, {right.text}"
        )

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        left, right = self.pair(a, b)
        return self.define(
            left.type,
            f"select {condition.type} {condition.text}, {left.type} {left.text}, {right.type} {right.text}",
        )

    def convert(self, opcode: str, value: Value, element: str, flags: str = "") -> Value:
        """zext, sitofp, fpext, trunc ... to as many lanes of another element."""
        to = with_element(value.type, element)
        return self.define(to, f"{opcode} {flags} {value.type} {value.text} to {to}")

    def bitcast(self, value: Value, type_: str) -> Value:
        return (
            value
            if value.type == type_
            else self.define(type_, f"bitcast {value.type} {value.text} to {type_}")
        )

    def negate(self, value: Value) -> Value:
        """-x: floats flip the sign bit (NaN and zero too), integers wrap."""
        return (
            self.define(value.type, f"fneg {value.type} {value.text}")
            if is_float(value.type)
            else self.op("sub", 0, value)
        )

    def freeze(self, value: Value) -> Value:
        return self.define(value.type, f"freeze {value.type} {value.text}")

    # Calls
    def call(self, result: str, name: str, arguments: Sequence[Value], flags: str = "") -> Value:
        """A call of a function of this module or of a declared one; a "void" result must not be used."""
        listed = ", ".join(f"{x.type} {x.text}" for x in arguments)
        text = f"call {flags} {result} {name if name.startswith('%') else '@' + name}({listed})"
        if result == "void":
            self.line(text)
            return Value("void", "")
        return self.define(result, text)

    def external(self, result: str, name: str, *arguments: Value) -> Value:
        """A call of a C function, declared on first use."""
        self.module.declare(name, result, [x.type for x in arguments])
        return self.call(result, name, arguments)

    def intrinsic(self, name: str, *arguments: Value, flags: str = "") -> Value:
        """`llvm.<name>.<suffix>` whose result and operands are of one type: fma, sqrt, roundeven, smin ..."""
        type_ = arguments[0].type
        full = f"llvm.{name}.{suffix_of(type_)}"
        self.module.declare(full, type_, [x.type for x in arguments])
        return self.call(type_, full, arguments, flags)

    def prefetch(self, pointer: Value) -> None:
        """Ask for the line of an address, which need not be valid, into the second cache."""
        self.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer.text}, i32 0, i32 2, i32 1)")

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """a*b + c rounded once, whatever the licences."""
        return self.intrinsic(
            "fma", a, self._from_memory(self.operand(b, a.type)), self._from_memory(self.operand(c, a.type))
        )

    def reduce(self, kind: str, value: Value, flags: str = "") -> Value:
        """One scalar of all lanes by `llvm.vector.reduce.<kind>`: add, or, umax ... of integers; fadd and
        fmul of floats go in lane order unless `flags` has reassoc."""
        element, name = element_of(value.type), f"llvm.vector.reduce.{kind}.{suffix_of(value.type)}"
        neutral = {"fadd": -0.0, "fmul": 1.0}.get(kind)
        arguments = [value] if neutral is None else [constant(element, neutral), value]
        self.module.declare(name, element, [x.type for x in arguments])
        return self.call(element, name, arguments, flags)

    # Lanes
    def splat(self, value: Value, lanes: int) -> Value:
        type_ = vector_of(value.type, lanes)
        first = self.insert(poison(type_), value, 0)
        return self.define(
            type_, f"shufflevector {type_} {first.text}, {type_} poison, <{lanes} x i32> zeroinitializer"
        )

    def insert(self, vector: Value, value: Value, lane: int) -> Value:
        return self.define(
            vector.type, f"insertelement {vector.type} {vector.text}, {value.type} {value.text}, i64 {lane}"
        )

    def extract(self, vector: Value, lane: int) -> Value:
        return self.define(element_of(vector.type), f"extractelement {vector.type} {vector.text}, i64 {lane}")

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Pick lanes of a (0..n-1) and b (n..2n-1); -1 is any."""
        picked = ", ".join(f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in lanes)
        type_ = vector_of(element_of(a.type), len(lanes))
        return self.define(
            type_, f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(lanes)} x i32> <{picked}>"
        )

    def each_lane(self, function: Callable[..., Value], *vectors: Value) -> Value:
        """`function` on scalars, lane by lane; on scalars just once."""
        lanes = lanes_of(vectors[0].type)
        if not lanes:
            return function(*vectors)
        results = [function(*(self.extract(v, lane) for v in vectors)) for lane in range(lanes)]
        gathered = poison(vector_of(results[0].type, lanes))
        for lane, result in enumerate(results):
            gathered = self.insert(gathered, result, lane)
        return gathered

    def lanes_below(self, limit: Index, places: Sequence[int]) -> Value:
        """The mask of lanes whose place, at least 0, is below the limit (any i64)."""
        if isinstance(limit, int):
            return lane_constants("i1", [int(place < limit) for place in places])
        capped = self.index("smin", self.index("smax", limit, 0), max(places) + 1)
        assert isinstance(capped, Value)
        wide = self.splat(self.convert("trunc", capped, "i32"), len(places))
        return self.compare("icmp ult", lane_constants("i32", places), wide)

    # Memory
    def alloca(self, type_: str, count: int = 1, align: int = 0) -> Value:
        """A stack slot in the entry block; promoted to registers where only loaded and stored."""
        name = "%" + self.fresh("slot")
        size = f", i64 {count}" if count != 1 else ""
        self.allocas.append(f"  {name} = alloca {type_}{size}" + (f", align {align}" if align else ""))
        return Value("ptr", name)

    def offset(self, pointer: Value, element: str, index: Index) -> Value:
        """pointer + index elements."""
        if index == 0:
            return pointer
        text = index.text if isinstance(index, Value) else str(index)
        return self.define("ptr", f"getelementptr inbounds {element}, ptr {pointer.text}, i64 {text}")

    def load(self, type_: str, pointer: Value, align: int = 0, extra: str = "") -> Value:
        """`align` in bytes, the element's by default; `extra` as ", !nontemporal !0"."""
        return self.define(
            type_, f"load {type_}, ptr {pointer.text}, align {align or max(bits_of(type_) // 8, 1)}{extra}"
        )

    def store(self, value: Value, pointer: Value, align: int = 0, extra: str = "") -> None:
        natural = max(bits_of(value.type) // 8, 1)
        self.line(f"store {value.type} {value.text}, ptr {pointer.text}, align {align or natural}{extra}")

    def _fenced(self, value: Value) -> Value:
        """The same, but what truncated it stays apart from its masked store: where LLVM 22 finds that one lane is
        written, it writes that in the width that it had before, over its neighbours."""
        bits = bits_of(value.type) * lanes_of(value.type)
        if element_of(value.type) == "float" or bits_of(value.type) > 32 or bits % 16:
            return value
        whole = "half" if bits == 16 else vector_of("float", bits // 32)
        fenced = self.intrinsic("arithmetic.fence", self.bitcast(value, whole))
        return self.bitcast(fenced, value.type)

    def _opaque(self, mask: Value, type_: str) -> Value:
        """A mask of which LLVM does not know how it is made, where masks are signs: where it widens one that it finds
        to be false in every lane, LLVM 22 makes it true in every lane, or aborts."""
        bits, lanes = bits_of(type_), lanes_of(type_)
        if not self.module.masks_are_signs or bits < 32 or not mask.text.startswith("%"):
            return mask
        integer, real = vector_of(f"i{bits}", lanes), vector_of("float" if bits == 32 else "double", lanes)
        wide = self.bitcast(self.convert("sext", mask, f"i{bits}"), real)
        signs = self.bitcast(self.intrinsic("arithmetic.fence", wide), integer)
        return self.compare("icmp slt", signs, zero(integer))

    def masked(
        self, kind: str, mask: Value, pointer: Value, value: Value, align: int = 0, extra: str = ""
    ) -> Value:
        """A masked memory access: "load" (value fills the lanes off), "store", "gather" and "scatter"
        (through a vector of pointers)."""
        mask = self._opaque(mask, value.type)
        if kind == "store":
            value = self._fenced(value)
        natural = align or max(bits_of(value.type) // 8, 1)
        name = f"llvm.masked.{kind}.{suffix_of(value.type)}.{suffix_of(pointer.type)}"
        writes = kind in ("store", "scatter")
        where = f"{pointer.type} align {natural} {pointer.text}"
        listed = (
            f"{value.type} {value.text}, {where}, {mask.type} {mask.text}"
            if writes
            else f"{where}, {mask.type} {mask.text}, {value.type} {value.text}"
        )
        types = [value.type, pointer.type, mask.type] if writes else [pointer.type, mask.type, value.type]
        self.module.declare(name, "void" if writes else value.type, types)
        if writes:
            self.line(f"call void @{name}({listed}){extra}")
            return Value("void", "")
        return self.define(value.type, f"call {value.type} @{name}({listed}){extra}")

    # Control flow
    @contextlib.contextmanager
    def loop(self, low: Index, high: Index, step: int = 1, carried: Sequence[Value] = ()) -> Generator[Loop]:
        """for index in range(low, high, step). Inside, add the next carried values to `loop.next`; after it,
        the last ones are in `loop.carried`."""
        head, body, latch, done = (self.fresh(name) for name in ("head", "body", "latch", "done"))
        start, end = self.operand(low, "i64"), self.operand(high, "i64")
        before = self.block
        self.branch(head)
        self.start(head)
        place = self.place()
        phis = [Value("i64", "%" + self.fresh("i"))] + [Value(x.type, "%" + self.fresh("c")) for x in carried]
        self.branch_if(self.compare("icmp slt", phis[0], end), body, done)
        self.start(body)
        loop = Loop(phis[0], phis[1:])
        yield loop
        assert len(loop.next) == len(carried), "a loop must give each carried value its next"
        self.branch(latch)
        self.start(latch)
        following = self.op("add", phis[0], step, "nsw")
        self.branch(head)
        place += [
            f"  {phi.text} = phi {phi.type} [ {first.text}, %{before} ], [ {after.text}, %{latch} ]"
            for phi, first, after in zip(phis, [start, *carried], [following, *loop.next], strict=True)
        ]
        self.start(done)

    def choose(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """Values computed on one of two paths."""
        labels = [self.fresh(name) for name in ("then", "else", "done")]
        self.branch_if(condition, labels[0], labels[1])
        arms: list[tuple[Sequence[Value], str]] = []
        for label, arm in zip(labels, (then, otherwise), strict=False):
            self.start(label)
            arms.append((arm(), self.block))
            self.branch(labels[2])
        self.start(labels[2])
        (left, left_block), (right, right_block) = arms
        return [
            self.define(a.type, f"phi {a.type} [ {a.text}, %{left_block} ], [ {b.text}, %{right_block} ]")
            for a, b in zip(left, right, strict=True)
        ]

    def rarely(self, condition: Value, write: Callable[[], Value], usual: Value) -> Value:
        """What straight-line code gives where the condition holds, which is seldom, and else `usual`. The code may also
        be run where it does not hold, since another path's does, and must give `usual` there."""
        lines: Lines = []
        with self.at(lines):
            value = write()
        result = Value(usual.type, "%" + self.fresh())
        straight = tuple(line for line in lines if isinstance(line, str))
        assert len(straight) == len(lines), "a path that is seldom taken must be straight-line code"
        rare = Rare(self.fresh("rare"), (condition,), straight, ((result, usual, value),))
        self.lines.append(rare)
        self.block = rare.last_block
        return result
