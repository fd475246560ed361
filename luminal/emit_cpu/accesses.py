"""Memory accesses of tiles, inside one LLVM function: vectors in the pieces that are contiguous, and masks.

What a mask switches off is read as zero from elsewhere, and written elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import LoadOp, PrefetchOp, StoreOp
from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_types import Address, Tile, TileAxis
from luminal.dim import Dim, as_dim
from luminal.emit_cpu.addresses import AddressWriter, Point, lanes_in, points
from luminal.emit_cpu.arithmetic import combine, memory_element
from luminal.emit_cpu.text import Function, Index
from luminal.emit_cpu.transposed import QUAD, store_quads, transposed, turned_axis
from luminal.emit_cpu.values import Value, bits_of, constant_bits, lanes_of, vector_of, with_element, zero
from luminal.emit_cpu.vectors import coordinates, joined

ZEROS = "luminal_zeros"
SPARE_BYTES = 1024
"""the largest vector that the emitter makes: what a masked-off access reads or writes instead"""
ALIGNMENT = 64
"""bytes on which outputs and scratch begin"""
LINE_BYTES = 64
"""of a cache"""
STRIDES = (2, 3, 4)
"""Of vectors whose memory is read whole, to pick every second element or so; others are read one by one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a contiguous part of a vector lies, and which of its elements are there; a scalar is its only element."""

    pointer: Value
    picks: list[int]


@dataclass(frozen=True, slots=True)
class Access:
    """What all coordinates of a load or a store have in common.

    `pieces`: how far each contiguous part of a vector is from where the vector begins, and which of its elements are
    there; `apart`: the same where no two elements are known to be neighbours; `picked`: the stride of a vector whose
    memory is read whole, 0 for others; `turned`: the axis along which loads are transposed, if there is one.
    """

    reference: SSAValue
    variables: Sequence[SSAValue]
    address: Address
    mask: SSAValue | None
    dynamic: SSAValue | None
    tile: Tile
    element: str
    lanes: int
    pieces: list[tuple[Dim, list[int]]]
    apart: list[tuple[Dim, list[int]]]
    picked: int
    turned: TileAxis | None

    @staticmethod
    def of(op: LoadOp | StoreOp) -> Access:
        tile, address, dynamic = op.tile, op.address.data, op.dynamic
        lanes, vector = lanes_in(tile), tile.vector
        assert lanes * tile.dtype.size_bytes <= SPARE_BYTES, "a vector wider than the spare memory"
        strides = vector_strides(address, tile)
        along = dict(zip(vector, strides, strict=True))
        pieces, apart = (
            [
                (sum((along[axis] * steps for axis, steps in place.items()), as_dim(0)), picks)
                for place, picks in _pieces(vector, along, is_apart)
            ]
            for is_apart in (False, True)
        )
        stride = strides[0].constant if len(strides) == 1 else None
        is_picked = isinstance(op, LoadOp) and dynamic is None and not tile.dtype.is_bool
        picked = stride if is_picked and stride in STRIDES else 0
        return Access(
            op.reference,
            op.variables,
            address,
            op.mask,
            dynamic,
            tile,
            memory_element(tile.dtype),
            lanes,
            pieces,
            apart,
            picked or 0,
            turned_axis(op) if isinstance(op, LoadOp) else None,
        )


class AccessWriter(AddressWriter, ABC):
    """Writes loads and stores; what writes tiles gives it values and masks."""

    def __init__(self, f: Function, sizes: Value, symbols: Sequence[str]) -> None:
        super().__init__(f, sizes, symbols)
        self.spare: Value | None = None
        self.aliases: dict[SSAValue, str] = {}
        self._accesses: dict[LoadOp | StoreOp, Access] = {}

    @abstractmethod
    def value(self, value: SSAValue, point: Point) -> Value: ...

    @abstractmethod
    def wide(self, value: SSAValue, point: Point, axes: tuple[TileAxis, ...]) -> Value: ...

    @abstractmethod
    def _mask(self, mask: SSAValue | None, point: Point) -> Value | None: ...

    def access_of(self, op: LoadOp | StoreOp) -> Access:
        """What its coordinates have in common, found once."""
        found = self._accesses.get(op)
        if found is None:
            found = self._accesses[op] = Access.of(op)
        return found

    def _start(self, access: Access, point: Point) -> tuple[Value, Value | None]:
        """Where a scalar or a vector begins, what is dynamic aside, and the mask, a scalar or as wide as the vector."""
        address, tile = access.address, access.tile
        offset = self.offset(address, tile.axes, point)
        pointer = self.pointer(access.reference, access.variables, address, offset)
        mask = self._mask(access.mask, point)
        if access.mask is not None and mask is not None and lanes_of(mask.type):
            mask = self.wide(access.mask, point, tile.vector)
        return pointer, mask

    def _access(self, access: Access, point: Point) -> tuple[list[Piece], Value | None]:
        """The pieces of memory that a scalar or a vector lies in, and the mask."""
        f, element = self.f, access.element
        pointer, mask = self._start(access, point)
        dynamic = self.value(access.dynamic, point) if access.dynamic is not None else None
        if dynamic is not None and not lanes_of(dynamic.type):
            pointer, dynamic = f.offset(pointer, element, dynamic), None
        if access.dynamic is not None and dynamic is not None:
            dynamic = self.wide(access.dynamic, point, access.tile.vector)
        pieces: list[Piece] = []
        for ahead, picks in access.pieces if dynamic is None else access.apart:
            step: Index = self.size(ahead)
            if dynamic is not None:
                step = f.index("add", f.extract(dynamic, picks[0]), step)
            pieces.append(Piece(f.offset(pointer, element, step), picks))
        return pieces, mask

    def _spare(self) -> Value:
        """Memory that a masked-off write may go to."""
        if self.spare is None:
            self.spare = self.f.alloca("i8", SPARE_BYTES, 64)
        return self.spare

    def _zeros(self) -> Value:
        text = f"@{ZEROS} = internal constant [{SPARE_BYTES} x i8] zeroinitializer, align 64"
        self.f.module.globals[ZEROS] = text
        return Value("ptr", f"@{ZEROS}")

    def fetch(self, op: PrefetchOp) -> None:
        """Ask for every line, into the second cache: what is used meanwhile needs the first."""
        f, address = self.f, op.address.data
        dtype = reference_of(op.reference).dtype
        pointer = self.pointer(op.reference, op.variables, address, address.offset)
        if op.turn is not None and op.parts is not None and op.part is not None:
            pointer = f.offset(
                pointer, memory_element(dtype), self._part_of(op.turn, op.parts.data, op.part.data)
            )
        for line in range(0, op.elements.data * dtype.size_bytes, LINE_BYTES):
            f.prefetch(f.offset(pointer, "i8", line))

    def _part_of(self, turn: SSAValue, parts: int, part: int) -> Index:
        """Where the part of a turn begins, computed where the turn is."""
        value, depth = self.variables[turn]
        memo, key = self.scopes[depth].memo, ("part", turn, parts, part)
        if key not in memo:
            with self.f.at(self.scopes[depth].place):
                memo[key] = self.f.index("mul", self.f.index("urem", value, parts), part)
        return memo[key]

    def _part(self, value: Value | None, piece: Piece, whole: int) -> Value | None:
        """What a piece has of a vector of `whole` elements, or of the mask of all; a scalar is everyone's."""
        if value is None or not lanes_of(value.type) or len(piece.picks) == whole:
            return value
        if len(piece.picks) == 1:
            return self.f.extract(value, piece.picks[0])
        return self.f.shuffle(value, value, piece.picks)

    def load(self, op: LoadOp, point: Point) -> Value:
        f, access = self.f, self.access_of(op)
        if access.picked:
            return self._load_strided(access, point)
        pieces, mask = self._access(access, point)
        element, lanes, extra = access.element, access.lanes, self._alias(access)
        parts: list[Value] = []
        for piece in pieces:
            some = self._part(mask, piece, lanes)
            type_ = vector_of(element, len(piece.picks) if len(piece.picks) > 1 or lanes == 1 else 0)
            if some is not None and lanes_of(some.type):
                parts.append(f.masked("load", some, piece.pointer, zero(type_), extra=extra))
            else:
                parts.append(self._load_one(type_, piece.pointer, some, extra))
        value = parts[0] if len(parts) == 1 else joined(f, parts, [piece.picks for piece in pieces])
        return f.compare("icmp ne", value, 0) if access.tile.dtype.is_bool else value

    def load_turned(self, op: LoadOp, point: Point, axis: TileAxis) -> dict[int, Value] | None:
        """Coordinates of a load by their place on an axis along which it is contiguous, as many as there are lanes,
        that of `point` among them; None where they are masked."""
        f, access = self.f, self.access_of(op)
        lanes, extra = access.lanes, self._alias(access)
        first = point[axis] // lanes * lanes
        group = [{**point, axis: first + place} for place in range(lanes)]
        if any(self._mask(access.mask, each) is not None for each in group):
            return None
        pieces, _ = self._access(access, group[0])
        type_ = vector_of(access.element, lanes)
        values = transposed(f, [f.load(type_, piece.pointer, extra=extra) for piece in pieces])
        if access.tile.dtype.is_bool:
            values = [f.compare("icmp ne", value, 0) for value in values]
        return dict(enumerate(values, first))

    def _load_strided(self, access: Access, point: Point) -> Value:
        """Every so manieth element, picked from whole vectors that reach from the first to the last of them:

        stride 2 of 4 lanes    x0 . x2 .    and    . x4 . x6
        """
        f, lanes, element, stride = self.f, access.lanes, access.element, access.picked
        pointer, mask = self._start(access, point)
        last = (lanes - 1) * stride + 1 - lanes
        starts = [*range(0, last, lanes), last]
        whole: Value | None = None
        done = 0
        for start in starts:
            own = [lane for lane in range(done, lanes) if lane * stride < start + lanes]
            at, type_ = f.offset(pointer, element, start), vector_of(element, lanes)
            if mask is not None and lanes_of(mask.type):
                picks = [lanes] * lanes
                for lane in own:
                    picks[lane * stride - start] = lane
                some = f.shuffle(mask, constant_bits(mask.type, 0), picks)
                part = f.masked("load", some, at, zero(type_), extra=self._alias(access))
            else:
                part = self._load_one(type_, at, mask, self._alias(access))
            found = [lanes + lane * stride - start if lane in own else -1 for lane in range(lanes)]
            found[:done] = range(done)
            whole = f.shuffle(part if whole is None else whole, part, found)
            done += len(own)
        assert whole is not None
        return whole

    def _alias(self, access: Access) -> str:
        return self.aliases.get(access.reference, "")

    def _load_one(self, type_: str, pointer: Value, mask: Value | None, extra: str) -> Value:
        """A load that reads zeros from elsewhere where a scalar mask is off."""
        if mask is not None:
            pointer = self.f.select(mask, pointer, self._zeros())
        return self.f.load(type_, pointer, extra=extra)

    def _store(self, op: StoreOp, point: Point) -> None:
        f, access = self.f, self.access_of(op)
        extra = self._alias(access)
        value = self.wide(op.value, point, access.tile.vector)
        pieces, mask = self._access(access, point)
        for piece in pieces:
            some, part = (self._part(x, piece, access.lanes) for x in (mask, value))
            assert part is not None
            if some is None or not lanes_of(some.type):
                self._store_one(op, part, piece.pointer, some)
                continue
            old = zero(with_element(part.type, access.element))
            if op.combine.data != "set":
                old = f.masked("load", some, piece.pointer, old, extra=extra)
            f.masked("store", some, piece.pointer, self._joined(op, part, old), extra=extra)

    def _store_quads(self, op: StoreOp, axis: TileAxis) -> list[Point]:
        """Store four coordinates along an axis at a time, transposed; the answer is those left, or masked."""
        every, rest = points(op.tile.axes), list[Point]()
        for first in every:
            if first[axis] % QUAD:
                continue
            quad = [point for point in every if {**point, axis: 0} == {**first, axis: 0}]
            quad = quad[first[axis] : first[axis] + QUAD]
            if len(quad) < QUAD or any(self._mask(op.mask, point) is not None for point in quad):
                rest += quad
                continue
            access = self.access_of(op)
            pieces, _ = self._access(access, first)
            vectors = [self.wide(op.value, point, op.tile.vector) for point in quad]
            store_quads(self.f, vectors, [piece.pointer for piece in pieces], self._alias(access))
        return rest

    def _store_one(self, op: StoreOp, value: Value, pointer: Value, mask: Value | None) -> None:
        """A scalar or contiguous vector; where a scalar mask is off, it goes to spare memory."""
        f, access = self.f, self.access_of(op)
        extra = self._alias(access)
        if mask is not None:
            pointer = f.select(mask, pointer, self._spare())
        memory = with_element(value.type, access.element)
        old = f.load(memory, pointer, extra=extra) if op.combine.data != "set" else zero(memory)
        stored, align = self._joined(op, value, old), 0
        if op.nontemporal and mask is None and self._is_aligned(op, lanes_of(memory)):
            # other threads see it in time: the pool's counters are locked instructions, which wait for such stores
            align = min(bits_of(memory) * lanes_of(memory) // 8, ALIGNMENT)
            extra += f", !nontemporal {f.module.node('!{i32 1}')}"
        f.store(stored, pointer, align, extra)

    def _joined(self, op: StoreOp, value: Value, old: Value) -> Value:
        """What a store writes, as it lies in memory, where `old` is there."""
        f, dtype = self.f, op.tile.dtype
        if op.combine.data != "set":
            before = f.compare("icmp ne", old, 0) if dtype.is_bool else old
            value = combine(f, op.combine.data, before, value, dtype)
        return f.convert("zext", value, "i8") if dtype.is_bool else value

    def _is_aligned(self, op: StoreOp, lanes: int) -> bool:
        """Whether every vector that a store writes lies on its own size, or on what outputs and scratch begin on."""
        reference, address = reference_of(op.reference), op.address.data
        size = min(max(lanes, 1) * reference.dtype.size_bytes, ALIGNMENT)
        plain = len(address.axis_strides) - len(op.tile.vector)
        steps = [*address.strides, address.offset, *address.axis_strides[:plain]]
        whole = all((step * reference.dtype.size_bytes % size).constant == 0 for step in steps)
        return op.dynamic is None and lanes > 0 and whole and reference.kind != "argument"


def vector_strides(address: Address, tile: Tile) -> tuple[Dim, ...]:
    return address.axis_strides[len(address.axis_strides) - len(tile.vector) :]


def _pieces(
    axes: tuple[TileAxis, ...], strides: Mapping[TileAxis, Dim], apart: bool
) -> list[tuple[Mapping[TileAxis, int], list[int]]]:
    """The pieces of a vector that are contiguous in memory: where each begins, and which elements it has. `apart`: no
    two elements are known to be neighbours."""
    places = coordinates(axes)
    run: tuple[TileAxis, ...] = ()
    covered = 1
    for axis in reversed(axes):
        if strides[axis].constant == covered and not apart:
            run, covered = (axis, *run), covered * axis.extent
    counts = [axis.extent for axis in axes if axis not in run]
    if len(run) < len(axes) and any(count & (count - 1) for count in counts):
        run = ()
    heads = [place for place in places if not any(place[axis] for axis in run)]
    return [
        (
            head,
            [
                n
                for n, place in enumerate(places)
                if all(place[a] == at for a, at in head.items() if a not in run)
            ],
        )
        for head in heads
    ]
