"""A Triton kernel as data: its text, its parameters, what is known of them, and the options of Triton's compiler."""

from __future__ import annotations

from dataclasses import dataclass, field

from luminal.dim import Dim, known_less
from luminal.dtype import DType

PREFIX = {"argument": "arg", "output": "out", "scratch": "work"}
"""How names of pointers begin, by what they point to."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in the order of the call.

    A pointer has the dtype of its elements; a size is an i64, or an i32 where all its values fit.  `divisor`: what the
    address in bytes, or the size, is a multiple of for certain.  `elements`: how many elements of a pointer may be
    addressed, which is what the caller of a workspace has to provide; None for a size.
    """

    name: str
    dtype: DType
    is_pointer: bool
    divisor: int = 1
    elements: Dim | None = None

    @property
    def is_workspace(self) -> bool:
        """Whether it is memory between the launches of one function, which belongs to nobody else."""
        return self.is_pointer and self.name.startswith(PREFIX["scratch"])

    @property
    def is_near(self) -> bool:
        """Whether all that is accessed lies less than 2 GiB behind the pointer, for certain: AMD's buffer instructions
        then hold offsets in 32 bits."""
        return self.elements is not None and known_less(self.elements * self.dtype.size_bytes, 1 << 31)


@dataclass(frozen=True, slots=True)
class Options:
    """What Triton's compiler is asked for: `warps` of a program, `stages` of pipelined loops, `fuses`: whether products
    and sums may be contracted.

    And what the text may use: `eights`, the names of floats of 8 bits that the target converts and multiplies; others
    are bit patterns, which are decoded.  `scaled`: the formats of numbers that it multiplies with scales beside them.
    `undotted`: the dtypes that `tl.dot` does not take.  `group`: how many steps of the grid's last loop but one are
    taken for each of the last, so that programs that run together share more of what they read.  `describes`: whether
    blocks of products are loaded by descriptors.  `programs`: how many there are at most, each of which then goes over
    several places of the grid in turn; 0: one for each place.
    """

    warps: int = 4
    stages: int = 3
    fuses: bool = True
    eights: frozenset[str] = frozenset()
    scaled: frozenset[str] = frozenset()
    undotted: frozenset[str] = frozenset()
    group: int = 1
    describes: bool = False
    programs: int = 0


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """One launch: `source` is a Python module that defines the jitted function `name`.

    `grid`: how many programs run, a polynomial of the sizes.  Parameters are the references of the placed function in
    their order (arguments, outputs, workspaces), then the symbols of the sizes.
    """

    name: str
    source: str
    parameters: tuple[Parameter, ...]
    grid: Dim
    options: Options = field(default_factory=Options)
