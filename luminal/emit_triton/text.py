"""Pieces of Triton's text: expressions that compose, names that differ, lines that are indented."""

from __future__ import annotations

import contextlib
import keyword
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dtype import DType, bf16, bool_, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i16, i32, i64, u8
from luminal.errors import ScheduleError, UnsupportedTargetError

TYPES = {
    f64: "tl.float64", f32: "tl.float32", f16: "tl.float16", bf16: "tl.bfloat16", f8e4m3fn: "tl.float8e4nv",
    f8e5m2: "tl.float8e5", i64: "tl.int64", i32: "tl.int32", i16: "tl.int16", i8: "tl.int8", u8: "tl.uint8",
    bool_: "tl.int1",
}  # fmt: skip
LARGEST_BLOCK = 1 << 20
"""Elements that Triton's blocks may have."""
RESERVED = {"tl", "triton", "range", "True", "False", *keyword.kwlist}


def type_text(dtype: DType) -> str:
    """The Triton type of a dtype; UnsupportedTargetError where it has none."""
    if dtype not in TYPES:
        raise UnsupportedTargetError(f"Triton has no dtype {dtype}; it has {', '.join(map(str, TYPES))}")
    return TYPES[dtype]


def atom(text: str) -> str:
    """An expression as an operand: in parentheses where an operator stands outside of all brackets."""
    depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in " -~":
            return f"({text})"
    return text


def call(function: str, *arguments: str) -> str:
    return f"{function}({', '.join(arguments)})"


def check_block(axes: Iterable[TileAxis]) -> None:
    """ScheduleError where no block of Triton has these axes."""
    elements = 1
    for axis in axes:
        if axis.extent & (axis.extent - 1):
            raise ScheduleError(f"tile axis {axis}: the extent of a block of Triton is a power of two")
        elements *= axis.extent
    if elements > LARGEST_BLOCK:
        raise ScheduleError(f"a block of {elements} elements: those of Triton have {LARGEST_BLOCK} at most")


def shape_text(axes: Iterable[TileAxis]) -> str:
    return f"[{', '.join(str(axis.extent) for axis in axes)}]"


@dataclass(frozen=True, slots=True)
class Value:
    """An expression whose shape is that of some tile axes; a tile may have more, along which it does not change.

    `literal`: a plain number, where the value is one: its type follows the other operand's.
    """

    text: str
    axes: tuple[TileAxis, ...] = ()
    literal: str | None = None

    def fit(self, axes: Sequence[TileAxis]) -> str:
        """The expression with a dimension for each of some axes, of size one where the value has none."""
        if not self.axes or self.axes == tuple(axes):
            return self.text
        marks = ", ".join(":" if axis in self.axes else "None" for axis in axes)
        return f"{atom(self.text)}[{marks}]"

    def spread(self, axes: Sequence[TileAxis]) -> str:
        """The expression in the full shape of some axes."""
        if self.axes == tuple(axes):
            return self.text
        return call("tl.broadcast_to", self.fit(axes), shape_text(axes))


TRUE = Value("tl.full([], True, tl.int1)", literal="True")


class Lines:
    """Indented lines of one function, and the names that it uses."""

    def __init__(self, names: Iterable[str]) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: set[str] = {*RESERVED, *names}

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextlib.contextmanager
    def indented(self) -> Generator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        name, count = hint, 1
        while name in self.names:
            name, count = f"{hint}_{count}", count + 1
        self.names.add(name)
        return name

    def let(self, hint: str, text: str) -> str:
        """A name for an expression; a name stays what it is."""
        if text.isidentifier():
            return text
        name = self.fresh(hint)
        self.add(f"{name} = {text}")
        return name
