"""What a schedule generator and a roofline must know of a processor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """`lanes`: 32-bit lanes of a vector register; `registers`: how many there are; `l1`, `l2`: bytes of a core's first
    and second cache; `l3`: bytes of the last one, which cores share; `flops`: f32 operations per second of one core;
    `bandwidth`: bytes per second that one core reads from memory; `waking`: seconds that other threads take to begin;
    `target`: the name of target and processor, under which results are kept."""

    lanes: int
    registers: int
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    flops: float = 100e9
    bandwidth: float = 12e9
    threads: int = 1
    waking: float = 1.5e-6
    target: str = ""
