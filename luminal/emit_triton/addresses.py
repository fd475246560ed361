"""Loop variables, tile axes, offsets and guards as Triton expressions, in 64 bits where 32 may not hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from luminal.dialects.kernel.placed_loops import ForOp
from luminal.dialects.kernel.placed_types import Loop, TileAxis
from luminal.dim import Dim, as_dim
from luminal.emit_triton.sizes import LARGEST, fits_32, size_text
from luminal.emit_triton.text import Lines, Value, atom, call


@dataclass
class _Room:
    """What is left of 32 bits for a sum of products; None where more cannot come of it."""

    left: int | None

    def takes(self, count: int | None, stride: Dim) -> bool:
        """Whether a number up to `count` times a stride of 32 bits has room, which it then uses."""
        if self.left is None:
            return True
        low, high = stride.bounds()
        if count is None or low is None or high is None or count * max(-low, high) > self.left:
            return False
        self.left -= count * max(-low, high)
        return True


@dataclass
class Addresses:
    """Integer expressions of one kernel: `variables` are those of its loops, some `wide`, `order` its axes."""

    lines: Lines
    helpers: set[str]
    order: tuple[TileAxis, ...]
    variables: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    wide: set[SSAValue] = field(default_factory=set[SSAValue])
    reach: dict[SSAValue, int | None] = field(default_factory=dict[SSAValue, "int | None"])
    ranges: dict[TileAxis, str] = field(default_factory=dict[TileAxis, str])

    def axes(self, axes: Sequence[TileAxis]) -> tuple[TileAxis, ...]:
        """Axes in the kernel's order; those of extent one are none."""
        return tuple(axis for axis in self.order if axis in axes)

    def size(self, dim: Dim) -> str:
        return size_text(dim, self.helpers)

    def coordinate(self, axis: TileAxis) -> Value:
        """0, 1, 2, ... along an axis."""
        return Value(self.ranges[axis], (axis,))

    def declare(self, variable: SSAValue, loop: Loop) -> str:
        """A name for a loop's variable, which has 64 bits where the loop's size has."""
        name = self.variables[variable] = self.lines.fresh(loop.index)
        largest = loop.size.bounds()[1]
        reach = None if largest is None else max(0, largest - 1) // loop.weight
        self.reach[variable] = reach if loop.extent is None else min(loop.extent - 1, reach or loop.extent)
        if not fits_32(loop.size):
            self.wide.add(variable)
        return name

    def declare_ranges(self) -> None:
        """A line for each axis, at the start of the kernel."""
        for axis in self.order:
            self.ranges[axis] = self.lines.let(
                f"{axis.index}_range", call("tl.arange", "0", str(axis.extent))
            )

    def affine(
        self,
        variables: Sequence[SSAValue],
        strides: Sequence[Dim],
        axes: Sequence[TileAxis],
        steps: Sequence[Dim],
        offset: Dim,
        wide: bool,
        dynamic: Value | None = None,
    ) -> Value:
        """offset + sum(variable * stride) + sum(coordinate * step) + dynamic, over the axes that it varies with.

        `wide`: it may need 64 bits; the parts that together are proven not to are added in 32.
        """
        moving = [
            (axis, step) for axis, step in zip(axes, steps) if step.constant != 0 and axis in self.ranges
        ]
        found = self.axes([axis for axis, _ in moving] + list(dynamic.axes if dynamic else ()))
        terms: list[str] = []
        room = _Room(LARGEST if wide else None)
        for variable, stride in zip(variables, strides):
            if stride.constant != 0:
                narrow = variable not in self.wide and fits_32(stride)
                casts = narrow and not room.takes(self.reach[variable], stride)
                name = self.variables[variable]
                terms.append(self._times(call("tl.cast", name, "tl.int64") if casts else name, stride))
        if offset.constant != 0 or not (terms or moving or dynamic):
            casts = fits_32(offset) and not room.takes(1, offset)
            text = self.size(offset)
            terms.append(call("tl.cast", text, "tl.int64") if casts else atom(text))
        for axis, step in moving:
            casts = fits_32(step) and not room.takes(axis.extent - 1, step)
            coordinate = self.coordinate(axis).fit(found)
            terms.append(self._times(f"{coordinate}.to(tl.int64)" if casts else coordinate, step))
        if dynamic is not None:
            terms.append(atom(dynamic.fit(found)))
        return Value(" + ".join(terms), found)

    def _times(self, text: str, stride: Dim) -> str:
        return text if stride.constant == 1 else f"{atom(text)} * {atom(self.size(stride))}"

    def trips(self, loop: Loop, outer: Sequence[SSAValue]) -> str:
        """How many iterations a loop has."""
        if loop.extent is not None and not loop.ragged:
            return str(loop.extent)
        left = loop.whole
        if outer:
            weights = [as_dim(weight) for weight in loop.outer_weights]
            covered = self.affine(outer, weights, (), (), as_dim(0), wide=not fits_32(loop.size))
            count = call("tl.cdiv", f"{self.size(loop.size)} - ({covered.text})", str(loop.weight))
        elif left.constant is not None and loop.extent is not None:
            return str(min(left.constant, loop.extent))
        else:
            count = self.size(left)
        return count if loop.extent is None else call("tl.minimum", count, str(loop.extent))

    def needed(self, op: ForOp, count: str, guard: str | None) -> tuple[str, str]:
        """The first of so many iterations within the limits of a loop, and the first behind them."""
        bounds, size = op.bounds, op.loop.data.size
        first, last = "0", count
        for limit in bounds.limits:
            wide = not fits_32(size * 2)
            reach = self.affine(bounds.variables, limit.strides, (), (), limit.offset, wide).text
            lows = [dim.bounds()[0] for dim in (*limit.strides, limit.offset)]
            if any(low is None or low < 0 for low in lows):
                reach = call("tl.maximum", reach, "0")
            if limit.is_upper:
                last = call("tl.minimum", last, call("tl.cdiv", reach, str(limit.step)))
            else:
                begins = f"{atom(reach)} // {limit.step}"
                first = begins if first == "0" else call("tl.maximum", first, begins)
        if guard is not None:
            first = first if first == "0" else call("tl.where", guard, first, "0")
            last = call("tl.where", guard, last, count)
        name = op.loop.data.index
        first = first if first == "0" else self.lines.let(f"{name}_first", first)
        return first, last if last == count else self.lines.let(f"{name}_last", last)
