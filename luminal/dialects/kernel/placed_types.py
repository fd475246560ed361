"""Attributes of the placed kernel form: tiles of values, references to memory, loops and addresses.

A *tile* is a value for every coordinate of its axes: unrolled vector registers on a CPU, a block in Triton, lanes times
registers in Metal.  Each attribute wraps a frozen dataclass and prints as one quoted line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from xdsl.ir import Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from luminal.dialects.tensor_type import current_symbols
from luminal.dim import Dim, dim_min, parse_dim
from luminal.dtype import DType, dtype_of

Parsed = TypeVar("Parsed")


class QuotedData(Data[Parsed]):
    """An attribute that prints as its data's text in quotes, which `read` reads back."""

    read: ClassVar[Callable[[str], Any]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Parsed:
        with parser.in_angle_brackets():
            return cls.read(parser.parse_str_literal())

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f'<"{self.data}">')


def _dim(text: str) -> Dim:
    return parse_dim(text, current_symbols())


@dataclass(frozen=True, slots=True)
class TileAxis:
    """One axis of a tile: `extent` steps of `weight` along an index; `lane` marks the lanes of a vector, `group` the
    neighbours within each lane."""

    index: str
    extent: int
    weight: int = 1
    lane: bool = False
    group: bool = False

    @property
    def in_vector(self) -> bool:
        """Whether its coordinates are elements of one vector."""
        return self.lane or self.group

    def __str__(self) -> str:
        role = ":lane" if self.lane else ":group" if self.group else ""
        return f"{self.index}:{self.extent}*{self.weight}{role}"

    @staticmethod
    def parse(text: str) -> TileAxis:
        index, size, *role = text.split(":")
        extent, weight = size.split("*")
        return TileAxis(index, int(extent), int(weight), role == ["lane"], role == ["group"])


@dataclass(frozen=True, slots=True)
class Tile:
    """dtype and axes, in the order of their stage's factors; at the end at most one lane axis, and one group axis."""

    dtype: DType
    axes: tuple[TileAxis, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.dtype.name, *map(str, self.axes)])

    @staticmethod
    def parse(text: str) -> Tile:
        dtype, *axes = text.split()
        return Tile(dtype_of(dtype), tuple(map(TileAxis.parse, axes)))

    @property
    def lane(self) -> TileAxis | None:
        return next((axis for axis in self.axes[-2:] if axis.lane), None)

    @property
    def vector(self) -> tuple[TileAxis, ...]:
        """The axes that make up a vector, the last of them running fastest in it."""
        return tuple(axis for axis in self.axes[-2:] if axis.in_vector)


@irdl_attr_definition
class TileType(QuotedData[Tile], TypeAttribute):
    """!kernel.tile<"f32 i:8*1 j:16*1:lane">"""

    name = "kernel.tile"
    read = Tile.parse


@dataclass(frozen=True, slots=True)
class Reference:
    """Flat memory: dtype, how many elements may be addressed, kind (argument, output, scratch) and alias class.

    References of different alias classes never overlap; equal non-negative classes are the same memory.
    """

    dtype: DType
    elements: Dim
    kind: str
    alias: int = -1

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.kind} {self.alias} [{self.elements}]"

    @staticmethod
    def parse(text: str) -> Reference:
        dtype, kind, alias, elements = text.split(" ", 3)
        return Reference(dtype_of(dtype), _dim(elements[1:-1]), kind, int(alias))


@irdl_attr_definition
class ReferenceType(QuotedData[Reference], TypeAttribute):
    """!kernel.ref<"f32 argument 0 [4096]">"""

    name = "kernel.ref"
    read = Reference.parse


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: `weight` elements of `index` per iteration, `extent` iterations (None: what is left of `size`).

    `outer_weights` belong to the loops over the same index that stand around it, outermost first.  Where the index is
    `ragged`, `size` is no multiple of what the loops cover, and the last iterations are cut short or masked.  `role` is
    loop, unroll or parallel; `masked` asks for one body with masks instead of a full and a tail body.
    """

    index: str
    weight: int
    extent: int | None
    size: Dim
    ragged: bool
    outer_weights: tuple[int, ...] = ()
    role: str = "loop"
    masked: bool = False

    @property
    def whole(self) -> Dim:
        """How many iterations cover the index."""
        return (self.size + (self.weight - 1)) // self.weight

    @property
    def most(self) -> Dim:
        """The most iterations, whatever stands around."""
        return self.whole if self.extent is None else dim_min(self.whole, self.extent)

    def trips(self, size: int, outer: tuple[int, ...]) -> int:
        """The number of iterations for a size and the values of the outer loop variables."""
        covered = sum(value * weight for value, weight in zip(outer, self.outer_weights, strict=True))
        left = max(0, -(-(size - covered) // self.weight))
        return left if self.extent is None else min(self.extent, left)

    def __str__(self) -> str:
        words = [self.index, f"weight={self.weight}", f"extent={'*' if self.extent is None else self.extent}"]
        words += [f"outer={','.join(map(str, self.outer_weights)) or '.'}", f"role={self.role}"]
        words += ["ragged"] * self.ragged + ["masked"] * self.masked
        return " ".join(words) + f" size={self.size}"

    @staticmethod
    def parse(text: str) -> Loop:
        head, _, size = text.partition(" size=")
        index, *words = head.split()
        facts = dict(word.split("=") for word in words if "=" in word)
        outer = tuple(int(w) for w in facts["outer"].split(",")) if facts["outer"] != "." else ()
        extent = None if facts["extent"] == "*" else int(facts["extent"])
        flags = {word for word in words if "=" not in word}
        return Loop(
            index,
            int(facts["weight"]),
            extent,
            _dim(size),
            "ragged" in flags,
            outer,
            facts["role"],
            "masked" in flags,
        )


@irdl_attr_definition
class LoopAttribute(QuotedData[Loop]):
    """#kernel.loop<"i weight=8 extent=* outer=. role=loop ragged size=s">"""

    name = "kernel.loop"
    read = Loop.parse


@dataclass(frozen=True, slots=True)
class Address:
    """An affine address in elements: a stride per loop variable, a stride per tile axis, and an offset."""

    strides: tuple[Dim, ...]
    axis_strides: tuple[Dim, ...]
    offset: Dim

    def __str__(self) -> str:
        return " | ".join(
            [", ".join(map(str, self.strides)), ", ".join(map(str, self.axis_strides)), str(self.offset)]
        )

    @staticmethod
    def parse(text: str) -> Address:
        strides, axis_strides, offset = (
            text.split(" | ") if not text.startswith(" | ") else ["", *text[3:].split(" | ")]
        )
        return Address(_dims(strides), _dims(axis_strides), _dim(offset))


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a loop need not run, as `sum(variable * stride) + offset` in units of which one iteration covers `step`.

    Upper: iterations v with v * step < limit are needed; lower: those with (v + 1) * step > limit.
    """

    is_upper: bool
    step: int
    strides: tuple[Dim, ...]
    offset: Dim

    def iteration(self, limit: int) -> int:
        """The first iteration that is needed, or the first that is not."""
        return max(0, -(-limit // self.step) if self.is_upper else limit // self.step)

    def __str__(self) -> str:
        strides = ", ".join(map(str, self.strides))
        return f"{'to' if self.is_upper else 'from'} {strides} | {self.offset} by {self.step}"

    @staticmethod
    def parse(text: str) -> Limit:
        kind, _, rest = text.partition(" ")
        reach, _, step = rest.rpartition(" by ")
        strides, _, offset = reach.rpartition("| ")
        return Limit(kind == "to", int(step), _dims(strides.rstrip()), _dim(offset))


@irdl_attr_definition
class LimitAttribute(QuotedData[Limit]):
    """#kernel.limit<"to 8 | 8 by 64">"""

    name = "kernel.limit"
    read = Limit.parse


def _dims(text: str) -> tuple[Dim, ...]:
    """Comma-separated dims; commas inside parentheses belong to min and max."""
    parts: list[str] = [""]
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(_dim(part.strip()) for part in parts if part.strip())


@irdl_attr_definition
class AddressAttribute(QuotedData[Address]):
    """#kernel.address<"s, 8 | 16, 1 | 0">"""

    name = "kernel.address"
    read = Address.parse


@irdl_attr_definition
class SizeAttribute(QuotedData[Dim]):
    """#kernel.size<"2*s + 1">: a dim."""

    name = "kernel.size"
    read = _dim
