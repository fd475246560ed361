"""Stable sorts as native code: rows of a row-major tensor along one axis, all of each or its first few.

Elements become *keys*, integers of which the larger comes first (NaN is the largest number, -0 is 0). Where few
elements are wanted, a row is gone over once with the best so far in order, and what is not better is passed sixteen at
a time; else a row is sorted by the bytes of its keys, the lowest first. Rows are spread over the pool.

References: the tensor [outer, size, inner], the values and their places (i64), both [outer, count, inner]. 1 <= size <
2**32 wherever there are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dim import Dim, as_dim, symbol_dim
from luminal.dim import Symbol as DimSymbol
from luminal.dtype import DType
from luminal.emit_cpu.text import Function, Index, Module
from luminal.emit_cpu.values import Value, constant_bits, element_of

SYMBOLS = ("outer", "size", "inner", "count")
"""Sizes of a kernel, in the order of its ABI."""
FEW = 16
"""Up to so many elements of a row are selected."""
LANES = 16
ALONE = 4096
"""Elements of a call that are not worth a second thread."""
ROW_BLOCK = 2048
"""Elements of short rows that a thread claims together."""
SORTED = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"}


@dataclass(frozen=True, slots=True)
class Keys:
    """How elements of a dtype become keys, and those the bytes by which they are sorted."""

    dtype: DType
    descending: bool

    @property
    def width(self) -> int:
        return self.dtype.size_bytes * 8

    @property
    def element(self) -> str:
        return f"i{self.width}"

    @property
    def type(self) -> str:
        return "i64" if self.width == 64 else "i32"

    def of(self, f: Function, element: Value) -> Value:
        """The key of an element, or those of a vector of elements, which come as their bits."""
        found = self._ordered(f, element) if self.dtype.is_float else element
        if element_of(found.type) != self.type:
            found = f.convert("sext" if self._is_signed else "zext", found, self.type)
        return found if self.descending else f.op("xor", found, -1)

    @property
    def _is_signed(self) -> bool:
        return self.dtype.is_float or self.dtype.is_signed

    def _ordered(self, f: Function, bits: Value) -> Value:
        """Integers in the order of the floats with these bits."""
        rest, infinity = {
            "f64": (63, 0x7FF << 52),
            "f32": (31, 0xFF << 23),
            "f16": (15, 0x1F << 10),
            "bf16": (15, 0xFF << 7),
        }[self.dtype.name]
        largest = (1 << rest) - 1
        magnitude = f.op("and", bits, largest)
        turned = f.op("xor", bits, f.op("and", f.op("ashr", bits, rest), largest))
        number = f.select(
            f.compare("icmp eq", magnitude, 0), constant_bits(bits.type, 0), f.operand(turned, bits.type)
        )
        return f.select(f.compare("icmp ugt", magnitude, infinity), constant_bits(bits.type, largest), number)

    def digit(self, f: Function, key: Value, byte: int) -> Value:
        """A byte of the number by which rows are sorted, the smallest first."""
        flip = (1 << self.width) - 1 if not self._is_signed else (1 << (self.width - 1)) - 1
        shifted = f.op("lshr", f.op("xor", key, constant_bits(self.type, flip)), 8 * byte)
        return (
            f.convert("zext", f.op("and", shifted, 255), "i64")
            if self.type == "i32"
            else f.op("and", shifted, 255)
        )

    @property
    def key_bytes(self) -> int:
        return 8 if self.type == "i64" else 4

    def workspace(self, f: Function, size: Index) -> Index:
        """Bytes of a thread: two rows of keys, and two of places."""
        return f.index(
            "shl", f.index("udiv", f.index("add", f.index("mul", size, self.row_bytes), 63), 64), 6
        )

    @property
    def row_bytes(self) -> int:
        return 2 * (self.key_bytes + 4)


def private_bytes(dtype: DType) -> Dim:
    """Bytes of workspace for each thread, over `SYMBOLS`."""
    size = symbol_dim(DimSymbol("size", 0, None))
    return (size * Keys(dtype, True).row_bytes + as_dim(63)) // 64 * 64


def sort_text(name: str, dtype: DType, descending: bool) -> str:
    """The module of a sort kernel of the ABI of `luminal/plan/kernels.py`."""
    module, keys = Module(), Keys(dtype, descending)
    _offer(module, keys)
    _scan(module, keys)
    _select(module, keys)
    _radix(module, keys)
    _rows(module, keys)
    _entry(module, name)
    return module.text()


def _rows(module: Module, keys: Keys) -> None:
    """A chunk: some rows, one after the other."""
    parameters = [("ptr", "context"), ("i64", "chunk"), ("i32", "worker")]
    with module.function("rows", parameters, linkage="internal") as f:
        context, chunk, worker = f.parameters.values()
        arguments, sizes, workspace = (f.load("ptr", f.offset(context, "i64", n), 8) for n in range(3))
        block = f.load("i64", f.offset(context, "i64", 3), 8)
        source, values, places = (f.load("ptr", f.offset(arguments, "ptr", n), 8) for n in range(3))
        outer, size, inner, count = (f.load("i64", f.offset(sizes, "i64", n), 8) for n in range(4))
        private = f.index("mul", f.convert("zext", worker, "i64"), keys.workspace(f, size))
        own = f.offset(workspace, "i8", private)
        first = f.op("mul", chunk, block)
        last = f.index("smin", f.op("add", first, block), f.op("mul", outer, inner))
        few = f.compare("icmp sle", count, FEW)
        with f.loop(first, last) as loop:
            lead = f.op("sdiv", loop.index, inner)
            rest = f.op("sub", loop.index, f.op("mul", lead, inner))
            start = f.op("add", f.op("mul", f.op("mul", lead, size), inner), rest)
            end = f.op("add", f.op("mul", f.op("mul", lead, count), inner), rest)
            row = [
                f.offset(source, keys.element, start),
                f.offset(values, keys.element, end),
                f.offset(places, "i64", end),
                own,
                size,
                inner,
                count,
            ]

            def select(row: list[Value] = row) -> list[Value]:
                f.call("void", "select", row)
                return []

            def radix(row: list[Value] = row) -> list[Value]:
                f.call("void", "radix", row)
                return []

            f.choose(few, select, radix)
        f.ret()


_ROW = [
    ("ptr", "source"), ("ptr", "values"), ("ptr", "places"), ("ptr", "own"),
    ("i64", "size"), ("i64", "inner"), ("i64", "count"),
]  # fmt: skip


def _offer(module: Module, keys: Keys) -> None:
    """Put a key where it belongs among those held, behind its equals; how many are held then."""
    parameters = [("ptr", "kept"), ("ptr", "found"), ("i64", "held"), ("i64", "count")]
    parameters += [(keys.type, "key"), ("i64", "place")]
    with module.function("offer", parameters, "i64", linkage="internal") as f:
        kept, found, held, count, key, place = f.parameters.values()
        start = f.index("smin", held, f.op("sub", count, 1))
        slot = f.alloca("i64")
        f.store(f.operand(start, "i64"), slot)
        f.branch("test")
        f.start("test")
        position = f.load("i64", slot)
        f.branch_if(f.compare("icmp sgt", position, 0), "look", "put")
        f.start("look")
        before = f.op("sub", position, 1)
        other = f.load(keys.type, f.offset(kept, keys.type, before))
        f.branch_if(f.compare("icmp slt", other, key), "shift", "put")
        f.start("shift")
        f.store(other, f.offset(kept, keys.type, position))
        f.store(f.load("i64", f.offset(found, "i64", before)), f.offset(found, "i64", position))
        f.store(before, slot)
        f.branch("test")
        f.start("put")
        f.store(key, f.offset(kept, keys.type, position))
        f.store(place, f.offset(found, "i64", position))
        f.ret(f.operand(f.index("smin", f.op("add", held, 1), count), "i64"))


def _scan(module: Module, keys: Keys) -> None:
    """Go over a part of a row, one element after the other; how many keys are held then."""
    parameters = [("ptr", "source"), ("i64", "inner"), ("i64", "first"), ("i64", "last"), ("ptr", "kept")]
    parameters += [("ptr", "found"), ("i64", "held"), ("i64", "count")]
    with module.function("scan", parameters, "i64", linkage="internal") as f:
        source, inner, first, last, kept, found, held, count = f.parameters.values()
        worst = f.offset(kept, keys.type, f.op("sub", count, 1))
        with f.loop(first, last, carried=[held]) as loop:
            (now,) = loop.carried
            bits = f.load(keys.element, f.offset(source, keys.element, f.op("mul", loop.index, inner)))
            key = keys.of(f, bits)
            better = f.compare("icmp sgt", key, f.load(keys.type, worst))
            wanted = f.op("or", f.compare("icmp slt", now, count), better)

            def put(now: Value = now, key: Value = key, place: Value = loop.index) -> list[Value]:
                return [f.call("i64", "offer", [kept, found, now, count, key, place])]

            def leave(now: Value = now) -> list[Value]:
                return [now]

            loop.next = f.choose(wanted, put, leave)
        f.ret(loop.carried[0])


def _select(module: Module, keys: Keys) -> None:
    """The first few of a row."""
    with module.function("select", _ROW, linkage="internal") as f:
        source, values, places, _, size, inner, count = f.parameters.values()
        kept, found = f.alloca(keys.type, FEW, 64), f.alloca("i64", FEW, 64)
        # what is compared before it is held must be something
        f.store(constant_bits(f"<{FEW} x {keys.type}>", 0), kept)

        def scan(first: Value, last: Value, held: Value) -> Value:
            return f.call("i64", "scan", [source, inner, first, last, kept, found, held, count])

        held = scan(Value("i64", "0"), count, Value("i64", "0"))
        worst = f.offset(kept, keys.type, f.op("sub", count, 1))
        blocks = f.op("and", f.op("sub", size, count), -LANES)
        is_dense = f.compare("icmp eq", inner, 1)
        rest = f.op("add", count, f.select(is_dense, blocks, 0))
        with f.loop(count, rest, LANES) as loop:
            block = f.offset(source, keys.element, loop.index)
            vector = f.load(f"<{LANES} x {keys.element}>", block)
            better = f.compare("icmp sgt", keys.of(f, vector), f.load(keys.type, worst))

            def each(first: Value = loop.index) -> list[Value]:
                scan(first, f.op("add", first, LANES), held)
                return []

            f.choose(f.reduce("or", better), each, list)
        scan(rest, size, held)
        with f.loop(0, count) as loop:
            place = f.load("i64", f.offset(found, "i64", loop.index))
            _give(f, keys, source, values, places, inner, loop.index, place)
        f.ret()


def _give(
    f: Function,
    keys: Keys,
    source: Value,
    values: Value,
    places: Value,
    inner: Value,
    rank: Value,
    place: Value,
) -> None:
    target = f.op("mul", rank, inner)
    f.store(place, f.offset(places, "i64", target))
    bits = f.load(keys.element, f.offset(source, keys.element, f.op("mul", place, inner)))
    f.store(bits, f.offset(values, keys.element, target))


def _radix(module: Module, keys: Keys) -> None:
    """A row sorted by all bytes of its keys, of which `count` are given."""
    passes = keys.width // 8
    with module.function("radix", _ROW, linkage="internal") as f:
        source, values, places, own, size, inner, count = f.parameters.values()
        ends = [
            f.index("mul", size, width) for width in (keys.key_bytes, 2 * keys.key_bytes, keys.row_bytes - 4)
        ]
        buffers = [own, *(f.offset(own, "i8", end) for end in ends)]
        counts = f.alloca("i32", 256 * passes, 64)
        with f.loop(0, 256 * passes, 16) as loop:
            f.store(constant_bits("<16 x i32>", 0), f.offset(counts, "i32", loop.index))
        with f.loop(0, size) as loop:
            bits = f.load(keys.element, f.offset(source, keys.element, f.op("mul", loop.index, inner)))
            key = keys.of(f, bits)
            f.store(key, f.offset(buffers[0], keys.type, loop.index))
            f.store(f.convert("trunc", loop.index, "i32"), f.offset(buffers[2], "i32", loop.index))
            for byte in range(passes):
                place = f.offset(counts, "i32", f.op("add", keys.digit(f, key, byte), 256 * byte))
                f.store(f.op("add", f.load("i32", place), 1), place)
        for byte in range(passes):
            own_counts = f.offset(counts, "i32", 256 * byte)
            one = f.load(
                "i32", f.offset(own_counts, "i32", keys.digit(f, f.load(keys.type, buffers[0]), byte))
            )
            is_same = f.compare("icmp eq", f.convert("zext", one, "i64"), size)

            def moved(
                byte: int = byte, counted: Value = own_counts, now: list[Value] = buffers
            ) -> list[Value]:
                _move(f, keys, byte, counted, now, size)
                return [now[1], now[0], now[3], now[2]]

            def left(now: list[Value] = buffers) -> list[Value]:
                return now

            buffers = f.choose(is_same, left, moved)
        with f.loop(0, count) as loop:
            place = f.convert("zext", f.load("i32", f.offset(buffers[2], "i32", loop.index)), "i64")
            _give(f, keys, source, values, places, inner, loop.index, place)
        f.ret()


def _move(f: Function, keys: Keys, byte: int, counted: Value, buffers: list[Value], size: Value) -> None:
    """Put keys and places in the order of one byte, into the other two buffers."""
    with f.loop(0, 256, carried=[Value("i32", "0")]) as loop:
        place = f.offset(counted, "i32", loop.index)
        number = f.load("i32", place)
        f.store(loop.carried[0], place)
        loop.next = [f.op("add", loop.carried[0], number)]
    with f.loop(0, size) as loop:
        key = f.load(keys.type, f.offset(buffers[0], keys.type, loop.index))
        place = f.offset(counted, "i32", keys.digit(f, key, byte))
        target = f.load("i32", place)
        f.store(f.op("add", target, 1), place)
        wide = f.convert("zext", target, "i64")
        f.store(key, f.offset(buffers[1], keys.type, wide))
        f.store(f.load("i32", f.offset(buffers[2], "i32", loop.index)), f.offset(buffers[3], "i32", wide))


def _entry(module: Module, name: str) -> None:
    parameters = [("ptr", "arguments"), ("ptr", "sizes"), ("ptr", "workspace"), ("ptr", "pool")]
    with module.function(name, [*parameters, ("i32", "threads")], "i32") as f:
        arguments, sizes, workspace, pool, threads = f.parameters.values()
        outer, size, inner, count = (f.load("i64", f.offset(sizes, "i64", n), 8) for n in range(4))
        rows = f.op(
            "mul", f.op("mul", outer, inner), f.convert("zext", f.compare("icmp sgt", count, 0), "i64")
        )
        some = f.operand(f.index("smax", size, 1), "i64")
        block = f.operand(f.index("smax", f.op("sdiv", Value("i64", str(ROW_BLOCK)), some), 1), "i64")
        chunks = f.op("sdiv", f.op("add", rows, f.op("sub", block, 1)), block)
        context = f.alloca("i64", 4, 8)
        for position, value in enumerate((arguments, sizes, workspace, block)):
            f.store(value, f.offset(context, "i64", position), 8)
        is_large = f.compare("icmp sge", f.op("mul", rows, size), ALONE)
        several = f.op("and", f.compare("icmp sgt", threads, 1), is_large)

        def together() -> list[Value]:
            run = f.load("ptr", pool)
            f.call("void", run.text, [pool, Value("ptr", "@rows"), context, chunks, threads])
            return []

        def alone() -> list[Value]:
            with f.loop(0, chunks) as loop:
                f.call("void", "rows", [context, loop.index, Value("i32", "0")])
            return []

        f.choose(several, together, alone)
        f.ret(Value("i32", "0"))
