"""What a kernel step of a plan launches on a GPU, without Triton: machine code, grids, workspaces; and its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from luminal.dim import Dim, Symbol, parse_dim
from luminal.runtimes.gpu_device import Code

SCRATCH_ALIGNMENT = 128
"""Bytes that the address of scratch memory is made a multiple of."""


@dataclass(frozen=True, slots=True)
class GpuLaunch:
    """One kernel: `programs` of it run, a dim over the function's symbols.  `scratch`: where its programs have memory
    for what they describe to the device, in bytes from the start of the step's block; None where they need none."""

    code: Code
    programs: Dim
    scratch: Dim | None = None

    def scratch_arguments(self, block: int, sizes: Mapping[str, int]) -> list[int]:
        """The address of that memory, behind all other arguments, for the address of the step's block."""
        if self.scratch is None:
            return []
        return [-(-(block + self.scratch.evaluate(sizes)) // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT]


@dataclass(frozen=True, slots=True)
class GpuCode:
    """Launches in order, all with the same parameters: the step's references, workspaces, the sizes of `symbols`.

    `workspaces`: where each begins in the step's block, in bytes, dims over the symbols.
    """

    symbols: tuple[Symbol, ...]
    workspaces: tuple[Dim, ...]
    launches: tuple[GpuLaunch, ...]


def code_to_json(code: GpuCode, keep: Callable[[bytes], str]) -> dict[str, Any]:
    """A function as data; `keep` stores machine code and names it."""
    return {
        "symbols": [[s.name, s.minimum, s.maximum] for s in code.symbols],
        "workspaces": [str(offset) for offset in code.workspaces],
        "launches": [
            {
                "file": keep(launch.code.image),
                "symbol": launch.code.symbol,
                "threads": launch.code.threads,
                "shared_bytes": launch.code.shared,
                "signature": launch.code.signature,
                "grid": str(launch.programs),
                "scratch": None if launch.scratch is None else str(launch.scratch),
            }
            for launch in code.launches
        ],
    }


def code_from_json(data: Mapping[str, Any], find: Callable[[str], bytes]) -> GpuCode:
    """What `code_to_json` wrote; `find` gives the machine code of a name.  KeyError or TypeError for anything else."""
    symbols = tuple(Symbol(*entry) for entry in data["symbols"])
    known = {symbol.name: symbol for symbol in symbols}
    return GpuCode(
        symbols,
        tuple(parse_dim(text, known) for text in data["workspaces"]),
        tuple(
            GpuLaunch(
                Code(
                    find(launch["file"]),
                    launch["symbol"],
                    launch["threads"],
                    launch["shared_bytes"],
                    tuple(launch["signature"]),
                ),
                parse_dim(launch["grid"], known),
                None if launch["scratch"] is None else parse_dim(launch["scratch"], known),
            )
            for launch in data["launches"]
        ),
    )
