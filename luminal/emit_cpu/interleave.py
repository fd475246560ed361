"""Straight-line code of independent chains, merged line by line, so that a processor finds what need not wait.

LLVM orders code by the registers that it needs, which for chains one after the other is one chain after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from luminal.emit_cpu.text import Lines

NAME = re.compile(r"%\w+")
ENDS_BLOCK = re.compile(r"\s*(br|switch) |.*:$")


def interleaved(chains: Sequence[Lines]) -> Lines:
    """The lines of all chains, in turn, each behind those of other chains that it reads from: chains may share what
    an earlier one of them has defined. One after the other where a chain is not straight-line code."""
    written: list[list[str]] = []
    for chain in chains:
        lines = [line for line in chain if isinstance(line, str) and not ENDS_BLOCK.match(line)]
        if len(lines) < len(chain):
            return [line for each in chains for line in each]
        written.append(lines)
    missing = {line.split(None, 1)[0] for lines in written for line in lines}
    merged: Lines = []
    places = [0] * len(written)
    while len(merged) < sum(map(len, written)):
        for number, lines in enumerate(written):
            if places[number] == len(lines):
                continue
            line = lines[places[number]]
            own = line.split(None, 1)[0]
            if missing.isdisjoint({*NAME.findall(line)} - {own}):
                merged.append(line)
                missing.discard(own)
                places[number] += 1
    return merged
