"""What the placement pass keeps while it works: open scopes, stages with weighted factors, buffers with strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, SSAValue

from luminal.dialects.kernel.placed_types import TileAxis
from luminal.dialects.kernel.schedule import LOOP_ROLES, Buffer, CarriedLoop, Stage, Target
from luminal.dialects.kernel.terms import Region, Term
from luminal.dim import Dim, as_dim, product
from luminal.dtype import DType
from luminal.errors import ScheduleError


@dataclass(eq=False)
class PlacedFactor:
    """A factor of one stage with its weight: the elements of the index that one step covers."""

    index: str
    extent: int | None
    role: str
    name: str | None
    masked: bool
    weight: int

    @property
    def size(self) -> int:
        """The extent of a tile, block, lane or group factor."""
        assert self.extent is not None
        return self.extent

    @property
    def axis(self) -> TileAxis:
        return TileAxis(self.index, self.size, self.weight, self.role == "lane", self.role == "group")

    def __str__(self) -> str:
        return f"{self.index}:{'*' if self.extent is None else self.extent}:{self.role}"


@dataclass(eq=False)
class Scope:
    """An open loop (or the function): the block that code depending on it is put into, and what is known there."""

    factor: PlacedFactor | None
    variable: SSAValue | None
    block: Block
    function: bool = False
    memo: dict[object, object] = field(default_factory=dict[object, object])
    scans: dict[Term, SSAValue] = field(default_factory=dict[Term, SSAValue])


@dataclass(eq=False)
class OpenStage:
    """A stage with its factors weighted and split into loops and registers.

    `placed`: its position in a loop's body says when it runs, not the first use of what it fills.  `destinations`: the
    buffers of the targets that are no outputs, in the order of the targets.  `pending`: it has not run yet.  `writing`:
    the targets that are written where all loops around them are open now.  `spans`: the indices that it writes over,
    where its terms vary with fewer (the initial values of carries).
    """

    stage: Stage
    loops: list[PlacedFactor]
    registers: list[PlacedFactor]
    targets: frozenset[Term]
    placed: bool = False
    pending: bool = True
    destinations: list[PlacedBuffer] = field(default_factory=list["PlacedBuffer"])
    reductions: list[Term] | None = None
    writing: frozenset[Target] = frozenset()
    spans: frozenset[str] | None = None

    @property
    def at(self) -> str | None:
        return self.stage.at

    @staticmethod
    def of(stage: Stage, region: Region, terms: Sequence[Term], placed: bool = False) -> OpenStage:
        """Weights from the innermost factor outwards; raises ScheduleError for a factor that cannot be."""
        weights: dict[str, int | None] = {}
        factors: list[PlacedFactor] = []
        for factor in reversed(stage.factors):
            if factor.index not in region.extents:
                raise ScheduleError(f"factor {factor}: the region has no index {factor.index!r}")
            weight = weights.get(factor.index, 1)
            if weight is None:
                raise ScheduleError(f"factor {factor}: a factor '*' of {factor.index} stands inside it")
            if factor.extent is None and factor.role not in LOOP_ROLES:
                raise ScheduleError(f"factor {factor}: a {factor.role} has a constant extent")
            if factor.extent is None and factor.role == "unroll":
                raise ScheduleError(f"factor {factor}: an unrolled loop has a constant extent")
            weights[factor.index] = None if factor.extent is None else weight * factor.extent
            factors.append(
                PlacedFactor(factor.index, factor.extent, factor.role, factor.name, factor.masked, weight)
            )
        factors.reverse()
        vectors = [[factor for factor in factors if factor.role == role] for role in ("lane", "group")]
        for found in vectors:
            if len(found) > 1:
                raise ScheduleError(f"stage {stage}: two factors have the role {found[0].role}")
        if any(factor.weight != 1 for factor in vectors[1]):
            raise ScheduleError(f"stage {stage}: a factor stands inside the group {vectors[1][0]}")
        _check_registers_inside(stage, factors)
        targets = frozenset(terms[target.term] for target in stage.targets if target.output < 0)
        loops = [factor for factor in factors if factor.role in LOOP_ROLES]
        registers = [factor for factor in factors if factor.role in ("tile", "block")]
        registers += [factor for found in vectors for factor in found]
        return OpenStage(stage, loops, registers, targets, placed)


def _check_registers_inside(stage: Stage, factors: list[PlacedFactor]) -> None:
    """What is in registers of an index lies inside all loops over it."""
    seen_register: set[str] = set()
    for factor in factors:
        if factor.role in LOOP_ROLES and factor.index in seen_register:
            raise ScheduleError(
                f"stage {stage}: loop {factor} stands inside a tile, block, lane or group of the same index"
            )
        if factor.role not in LOOP_ROLES:
            seen_register.add(factor.index)


@dataclass(eq=False)
class PlacedBuffer:
    """A buffer with its filling stage and dtype; strides are those of its mixed-radix digits.

    `blocks`: how much of an index one iteration of the loops around the buffer covers, where they split it.
    `overwritten`: it holds a carry's next value already, not the current one.  `spans`: the indices that a carry varies
    with, where what is written to it varies with its loop's too; None for all that its term has.
    """

    buffer: Buffer
    stage: OpenStage | None
    dtype: DType
    blocks: dict[str, int] = field(default_factory=dict[str, int])
    overwritten: bool = False
    spans: frozenset[str] | None = None

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(index for index, _ in self.buffer.digits)

    def output_number(self) -> int:
        return int(self.buffer.home.removeprefix("out"))

    def layout(self, region: Region) -> list[tuple[str, int, Dim, Dim]]:
        """(index, weight, extent, stride) of each digit, innermost first."""
        low: dict[str, int] = {}
        stride = as_dim(1)
        digits: list[tuple[str, int, Dim, Dim]] = []
        for index, extent in reversed(self.buffer.digits):
            weight = low.get(index, 1)
            if weight < 0:
                raise ScheduleError(f"buffer {self.buffer}: a digit '*' of {index} is not its outermost")
            size = as_dim(extent) if extent is not None else self._open_extent(region, index, weight)
            digits.append((index, weight, size, stride))
            low[index] = -1 if extent is None else weight * extent
            stride = stride * size
        return digits

    def _open_extent(self, region: Region, index: str, weight: int) -> Dim:
        """What a digit '*' of this weight holds: the rest of the index, or of the block of it around the buffer."""
        block = self.blocks.get(index)
        if block is None:
            return (region.extents[index] + (weight - 1)) // weight
        if block % weight:
            raise ScheduleError(
                f"buffer {self.buffer}: a block of {block} of {index} is no multiple of {weight}"
            )
        return as_dim(block // weight)

    def elements(self, region: Region) -> Dim:
        return product(size for _, _, size, _ in self.layout(region))

    def stride(self, region: Region, index: str, weight: int, extent: int | None) -> Dim:
        """The stride of a factor of `weight` and `extent` steps; it must fall inside one digit."""
        digits = [digit for digit in self.layout(region) if digit[0] == index]
        for position in reversed(range(len(digits))):
            _, digit_weight, size, stride = digits[position]
            if weight < digit_weight:
                continue
            outermost = position == len(digits) - 1
            fits = (
                outermost
                or (extent is not None and as_dim(weight * extent) == size * digit_weight)
                or (
                    extent is not None
                    and size.constant is not None
                    and weight * extent <= digit_weight * size.constant
                )
            )
            if weight % digit_weight or not fits:
                raise ScheduleError(
                    f"buffer {self.buffer}: a factor of {index} of weight {weight} straddles its digits"
                )
            return stride * (weight // digit_weight)
        return as_dim(0)

    def grain(self, index: str) -> int | None:
        """The weight of an outermost digit '*', of which the buffer holds multiples; None without such a digit."""
        low = 1
        for name, extent in reversed(self.buffer.digits):
            if name != index:
                continue
            if extent is None:
                return low
            low *= extent
        return None

    def coverage(self, index: str) -> int:
        """The product of an index's constant digits."""
        total = 1
        for name, extent in self.buffer.digits:
            total *= extent if name == index and extent is not None else 1
        return total


@dataclass(eq=False)
class MemoryLoop:
    """A carried loop whose carries live in buffers, with its stages opened."""

    loop: CarriedLoop
    factors: OpenStage
    inits: list[OpenStage]
    body: list[OpenStage]
