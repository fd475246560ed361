"""What a schedule generator and a roofline must know of a processor."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dtype import DType, i16


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction that adds the products of `group` neighbours in each lane to it: the dtypes of its factors and of
    the sum, and its cycles beside those of a fused multiply-add."""

    left: DType
    right: DType
    total: DType
    group: int
    cycles: float = 1.0

    def takes(self, left: DType, right: DType, total: DType) -> bool:
        """Whether it multiplies factors of these dtypes, in either order; those of i16 may be narrower integers."""
        if total is not self.total:
            return False
        if self.left is i16:
            return all(each.is_integer and each.bits <= self.left.bits for each in (left, right))
        return (left, right) in ((self.left, self.right), (self.right, self.left))


@dataclass(frozen=True, slots=True)
class Machine:
    """`lanes`: 32-bit lanes of a vector register; `registers`: how many there are; `l1`, `l2`: bytes of a core's first
    and second cache; `l3`: bytes of the last one, which cores share; `flops`: f32 operations per second of one core;
    `multiply_adds`: of whole vectors that begin in a cycle; `bandwidth`: bytes per second that one core reads from
    memory; `waking`: seconds that other threads take to begin; `target`: the name of target and processor, under which
    results are kept; `dots`: its dot-product instructions."""

    lanes: int
    registers: int
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    flops: float = 100e9
    multiply_adds: int = 1
    bandwidth: float = 12e9
    threads: int = 1
    waking: float = 1.5e-6
    target: str = ""
    dots: tuple[Dot, ...] = ()

    @property
    def vectors_a_second(self) -> float:
        """Multiply-adds of whole vectors, and about as many other operations on them, of one core."""
        return self.flops / (2 * self.lanes)

    @property
    def cycles_a_second(self) -> float:
        """The clock of one core."""
        return self.vectors_a_second / self.multiply_adds
