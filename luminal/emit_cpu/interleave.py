"""Straight-line code of independent chains, merged line by line, so that a processor finds what need not wait.

LLVM orders code by the registers that it needs, which for chains one after the other is one chain after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from luminal.emit_cpu.rare import Rare, together
from luminal.emit_cpu.text import Lines, flat

NAME = re.compile(r"%\w+")
ENDS_BLOCK = re.compile(r"\s*(br|switch) |.*:$")


def interleaved(chains: Sequence[Lines]) -> Lines:
    """The lines of all chains, in turn, each behind those of other chains that it reads from: chains may share what
    an earlier one of them has defined. A path that is seldom taken waits for those of the other chains: they are one
    branch. One chain after the other where one is not straight-line code."""
    written = [[_piece(line) for line in reversed(chain)] for chain in chains]
    if any(None in pieces for pieces in written):
        return [line for each in chains for line in each]
    waiting = [[piece for piece in pieces if piece] for pieces in written]
    missing = {name for pieces in waiting for piece in pieces for name in piece.defined}
    merged: Lines = []
    while any(waiting):
        at_branches: list[list[_Piece]] = []
        before = len(merged)
        for pieces in filter(None, waiting):
            if not missing.isdisjoint(pieces[-1].read):
                continue
            if isinstance(pieces[-1].line, Rare):
                at_branches.append(pieces)
                continue
            piece = pieces.pop()
            merged.append(piece.line)
            missing -= piece.defined
        if len(merged) > before:
            continue
        branches = [pieces.pop() for pieces in at_branches]
        merged.append(together([each.line for each in branches if isinstance(each.line, Rare)]))
        missing = missing.difference(*(each.defined for each in branches))
    return merged


def last_block(lines: Lines) -> str | None:
    """The block that is open behind these lines, None where they begin none."""
    return next((text[:-1] for text in reversed([*flat(lines)]) if text.endswith(":")), None)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line or a path, the names that it defines, and the others in it."""

    line: str | Rare
    defined: frozenset[str]
    read: frozenset[str]


def _piece(line: str | Rare | Lines) -> _Piece | None:
    """None for what is not straight-line code."""
    if isinstance(line, list) or (isinstance(line, str) and ENDS_BLOCK.match(line)):
        return None
    if isinstance(line, str):
        defined, read = {line.split(None, 1)[0]}, {*NAME.findall(line)}
    else:
        defined = {each.split(None, 1)[0] for each in line.lines}
        defined |= {result.text for result, _, _ in line.results}
        read = {name for each in line.code for name in NAME.findall(each)}
    return _Piece(line, frozenset(defined), frozenset(read - defined))
