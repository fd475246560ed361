"""Sizes, affine expressions and addresses inside one LLVM function, each written as far out as it can be.

Every open loop has a place at the start of its body. A size is computed once, at the start of the function;
an address is built outermost loop first, each step at the place of its loop, and the known rest is part of
the instruction.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed import reference_of
from luminal.dialects.kernel.placed_types import Address, Tile, TileAxis
from luminal.dim import Call, Dim
from luminal.emit_cpu.arithmetic import memory_element
from luminal.emit_cpu.text import Function, Index, Lines, Value

Point = Mapping[TileAxis, int]


@dataclass
class Scope:
    """An open loop body (or the function): a place at its start, and what was written there."""

    place: Lines
    memo: dict[object, Index] = field(default_factory=dict[object, Index])


def lanes_in(tile: Tile) -> int:
    return tile.lane.extent if tile.lane else 0


def points(axes: Sequence[TileAxis]) -> list[Point]:
    """Coordinates of the plain axes, the last running fastest."""
    plain = [axis for axis in axes if not axis.lane]
    return [
        dict(zip(plain, steps, strict=True)) for steps in itertools.product(*(range(a.extent) for a in plain))
    ]


class AddressWriter:
    """Writes sizes and addresses; `variables` has each loop variable's value and its scope's depth."""

    def __init__(self, f: Function, sizes: Value, symbols: Sequence[str]) -> None:
        self.f, self.sizes, self.symbols = f, sizes, list(symbols)
        self.scopes = [Scope(f.place())]
        self.variables: dict[SSAValue, tuple[Index, int]] = {}
        self.references: dict[SSAValue, Value] = {}
        self.workspace = Value("ptr", "null")

    def bind_arguments(self, references: Sequence[SSAValue], arguments: Value) -> None:
        with self.f.at(self.scopes[0].place):
            for position, reference in enumerate(references):
                self.references[reference] = self.f.load("ptr", self.f.offset(arguments, "ptr", position))

    def bind_scratch(self, reference: SSAValue, workspace: Value, offset: Dim) -> None:
        """A buffer lies so many bytes into a workspace that is known when the function starts."""
        with self.f.at(self.scopes[0].place):
            self.references[reference] = self.f.offset(workspace, "i8", self.size(offset))

    @contextlib.contextmanager
    def scope(self) -> Generator[None]:
        """A loop body, or a path that runs only sometimes, which begins here."""
        self.scopes.append(Scope(self.f.place()))
        yield
        self.scopes.pop()

    # Sizes and affine expressions

    def size(self, dim: Dim) -> Index:
        """The value of a size; computed once, at the start of the function."""
        if dim.constant is not None:
            return dim.constant
        memo = self.scopes[0].memo
        if dim not in memo:
            with self.f.at(self.scopes[0].place):
                memo[dim] = self._evaluate(dim)
        return memo[dim]

    def _evaluate(self, dim: Dim) -> Index:
        f, total = self.f, 0
        for monomial, coefficient in dim.terms:
            value: Index = coefficient
            for atom in monomial:
                value = f.index(
                    "mul", value, self._call(atom) if isinstance(atom, Call) else self._symbol(atom.name)
                )
            total = f.index("add", total, value)
        return total

    def _symbol(self, name: str) -> Index:
        memo = self.scopes[0].memo
        if name not in memo:
            memo[name] = self.f.load("i64", self.f.offset(self.sizes, "i64", self.symbols.index(name)))
        return memo[name]

    def _call(self, call: Call) -> Index:
        f = self.f
        values = [self.size(argument) for argument in call.arguments]
        if call.kind in ("min", "max"):
            result = values[0]
            for value in values[1:]:
                result = f.index("s" + call.kind, result, value)
            return result
        a, b = values
        low, divisor = call.arguments[0].bounds()[0], call.arguments[1].bounds()[0]
        if low is not None and low >= 0 and divisor is not None and divisor > 0:
            return f.index("udiv" if call.kind == "//" else "urem", a, b)
        # Python's floor: one less than the truncated quotient where a rest has the other sign than the
        # divisor.
        left, right = f.pair(a, b)
        quotient, rest = f.op("sdiv", left, right), f.op("srem", left, right)
        down = f.op("and", f.compare("icmp ne", rest, 0), f.compare("icmp slt", f.op("xor", rest, right), 0))
        if call.kind == "//":
            return f.op("sub", quotient, f.convert("zext", down, "i64"))
        return f.op("add", rest, f.select(down, right, Value("i64", "0")))

    def affine(self, variables: Sequence[SSAValue], strides: Sequence[Dim], offset: Dim) -> Index:
        """offset + sum of variable * stride, written where the innermost variable is set."""
        fixed, groups = self._split(variables, strides, offset)
        total, depth, key = self.size(fixed), 0, ("affine", fixed)
        for level, terms in groups:
            depth, key = level, (key, *terms)
            memo = self.scopes[depth].memo
            if key not in memo:
                with self.f.at(self.scopes[depth].place):
                    for value, stride in terms:
                        total = self.f.index("add", total, self.f.index("mul", value, self.size(stride)))
                memo[key] = total
            total = memo[key]
        return total

    def _split(
        self, variables: Sequence[SSAValue], strides: Sequence[Dim], offset: Dim
    ) -> tuple[Dim, list[tuple[int, tuple[tuple[Value, Dim], ...]]]]:
        """Variables with known values join the offset; the others are grouped by the depth of their loop."""
        groups: dict[int, list[tuple[Value, Dim]]] = {}
        for variable, stride in zip(variables, strides, strict=True):
            value, depth = self.variables[variable]
            if isinstance(value, int):
                offset = offset + stride * value
            else:
                groups.setdefault(depth, []).append((value, stride))
        return offset, [(depth, tuple(groups[depth])) for depth in sorted(groups)]

    def offset(self, address: Address, axes: Sequence[TileAxis], point: Point) -> Dim:
        offset = address.offset
        for axis, stride in zip(axes, address.axis_strides, strict=True):
            if not axis.lane and point[axis]:
                offset = offset + stride * point[axis]
        return offset

    def pointer(
        self, reference: SSAValue, variables: Sequence[SSAValue], address: Address, offset: Dim
    ) -> Value:
        """The address of one coordinate. Loops' strides join outermost first, symbolic offsets before the
        innermost, the known offset last, where it is part of the instruction's addressing."""
        f, element = self.f, memory_element(reference_of(reference).dtype)
        offset, groups = self._split(variables, address.strides, offset)
        known = offset.constant
        if known is None:
            known = next((coefficient for monomial, coefficient in offset.terms if not monomial), 0)
        symbolic = self.size(offset - known)
        pointer, key = self.references[reference], ("pointer", reference)
        depth = 0
        for number, (level, terms) in enumerate(groups):
            if number == len(groups) - 1 and symbolic != 0:
                key = (key, symbolic)
                pointer = self._step(depth, key, pointer, element, [symbolic])
            depth, key = level, (key, *terms)
            memo = self.scopes[depth].memo
            if key not in memo:
                with f.at(self.scopes[depth].place):
                    steps = [f.index("mul", value, self.size(stride)) for value, stride in terms]
                pointer = self._step(depth, key, pointer, element, steps)
            pointer = _as_value(memo[key])
        if not groups and symbolic != 0:
            pointer = self._step(0, (key, symbolic), pointer, element, [symbolic])
        return f.offset(pointer, element, known)

    def _step(self, depth: int, key: object, pointer: Value, element: str, steps: Sequence[Index]) -> Value:
        memo = self.scopes[depth].memo
        if key not in memo:
            with self.f.at(self.scopes[depth].place):
                for step in steps:
                    pointer = self.f.offset(pointer, element, step)
            memo[key] = pointer
        return _as_value(memo[key])


def _as_value(index: Index) -> Value:
    assert isinstance(index, Value)
    return index
