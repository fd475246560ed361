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

from luminal.dialects.kernel.placed_base import reference_of
from luminal.dialects.kernel.placed_types import Address, Tile, TileAxis
from luminal.dim import Dim
from luminal.emit_cpu.arithmetic import memory_element
from luminal.emit_cpu.sizes import DimEmitter
from luminal.emit_cpu.text import Function, Index, Lines
from luminal.emit_cpu.values import Value
from luminal.emit_cpu.vectors import elements_in

Point = Mapping[TileAxis, int]


@dataclass
class Scope:
    """An open loop body (or the function): a place at its start, and what was written there."""

    place: Lines
    memo: dict[object, Index] = field(default_factory=dict[object, Index])


def lanes_in(tile: Tile) -> int:
    """Elements of the vectors that a tile is held in; 0 where it is held in scalars."""
    return elements_in(tile.vector)


def points(axes: Sequence[TileAxis]) -> list[Point]:
    """Coordinates of the plain axes, the last running fastest."""
    plain = [axis for axis in axes if not axis.in_vector]
    return [
        dict(zip(plain, steps, strict=True)) for steps in itertools.product(*(range(a.extent) for a in plain))
    ]


class AddressWriter:
    """Writes sizes and addresses; `variables` has each loop variable's value and its scope's depth."""

    def __init__(self, f: Function, sizes: Value, symbols: Sequence[str]) -> None:
        self.f = f
        self.scopes = [Scope(f.place())]
        with f.at(self.scopes[0].place):
            loaded = {name: f.load("i64", f.offset(sizes, "i64", slot)) for slot, name in enumerate(symbols)}
        self.dims = DimEmitter(f, loaded)
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
        with self.f.at(self.scopes[0].place):
            return self.dims.value(dim)

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
            if not axis.in_vector and point[axis]:
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
