"""A graph of regions: what runs, in which order, on which values; the seam from cuts to plan and search.

`form_regions` makes it from a primitive graph and its cuts.  Every value is a tensor in flat memory; a step reads
values and defines others.  Regions that are equal are one object, so that each is searched and compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim
from luminal.dtype import DType


@dataclass(frozen=True, slots=True)
class RegionValue:
    """A tensor in flat memory.

    `kind`: "input" (given at each call), "constant" (an input that never changes, which may be packed once),
    "intermediate" (of the arena) or "output" (kept by the user).  `position` numbers inputs, constants among them, and
    outputs.  `strides` are in elements; `elements` is what the memory must hold, 0 for an empty tensor.
    `shares`: the value whose memory this one is, updated in place by the step that defines it; -1: memory of its own.
    Memory that an output shares is that output's, unless it is an input's.  `data`: the bytes of a constant of the
    graph's own, whose position is -1.
    """

    number: int
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    elements: Dim
    kind: str
    position: int = -1
    shares: int = -1
    source: str = ""
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class RegionStep:
    """One kernel: argument k of the region is value `arguments[k]`, output k defines value `outputs[k]`.

    `symbols` gives each symbol of the region its size in the graph.  An output with an alias writes into the memory of
    that argument: its value `shares` the argument's.
    """

    region: Region
    key: str
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    symbols: Mapping[str, Dim]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckStep:
    """A region whose one output is a bool: where it is true, the call fails with `message` and nothing has been
    overwritten that the user can see.  `error`: "index" (IndexOutOfRangeError) or "division" (DivisionByZeroError).
    """

    region: Region
    key: str
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    symbols: Mapping[str, Dim]
    error: str
    message: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpaqueStep:
    """An operation that is no region: `op` is "sort" or "extern"; `attributes` are the primitive's own."""

    op: str
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, object]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """What sizes must obey before anything runs: `least` >= 0, but where `unless` is 0; a ShapeError else."""

    least: Dim
    message: str
    unless: Dim | None = None
    source: str = ""


Step = RegionStep | CheckStep | OpaqueStep


@dataclass
class RegionGraph:
    """Steps in an order in which they may run; `inputs` and `outputs` number the values at the border.

    An output that is written into an input's memory has kind "output" and `shares` that input.
    `regions` holds each different region once, by key.
    """

    values: list[RegionValue]
    steps: list[Step]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    regions: dict[str, Region] = field(default_factory=dict[str, Region])
    requirements: list[Requirement] = field(default_factory=list[Requirement])

    def with_regions(self, regions: Mapping[str, Region]) -> RegionGraph:
        """The same graph with other regions, by key, that do the same with the same arguments and outputs."""
        steps: list[Step] = [
            step if isinstance(step, OpaqueStep) else replace(step, region=regions[step.key])
            for step in self.steps
        ]
        return replace(self, steps=steps, regions={key: regions[key] for key in self.regions})
