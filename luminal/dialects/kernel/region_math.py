"""A region as mathematics for people: one line for each output, for what is used twice, and for each step of a loop.

out0[i0, i1] = max(sum_r0 x[i0, r0] * w[r0, i1] + b[i1], 0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import cast

from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.subscripts import subscripts
from luminal.dialects.kernel.term_spelling import ATOM, CHOICE, Spelling, number_of, spell
from luminal.dialects.kernel.terms import Output, Region, Term

LONG = 88
"""Letters from which a part has a line of its own."""
_COMBINES = {"set": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}


def region_math(region: Region, names: Mapping[int, str] | None = None) -> str:
    """The lines of a region; `names` gives arguments, by number, other names than arg0, arg1, ..."""
    return _Writer(region, names or {}).text()


class _Writer:
    """Spells the terms that the outputs need, operands first; lines of a loop's step wait until the loop is written."""

    def __init__(self, region: Region, names: Mapping[int, str]) -> None:
        self.region, self.names = region, names
        self.roots = [term for output in region.outputs for term in output.terms]
        self.loops = [term for term in region.terms() if term.op == "loop"]
        self.carries = self._carry_names()
        self.spellings: dict[Term, Spelling] = {}
        self.order = self._in_order()
        self.uses = Counter(operand for term in self.order for operand in self.spellings[term].operands)
        self.uses.update(self.roots)
        self.texts: dict[Term, tuple[str, int]] = {}
        self.lines: dict[Term | None, list[str]] = {loop: [] for loop in (None, *self.loops)}
        self.home = self._homes()

    def text(self) -> str:
        named = 0
        for term in self.order:
            if term.op == "loop":
                self._write_loop(term)
                continue
            text, binds = self._spelled(self.spellings[term])
            if self._is_named(term, text):
                name, named = f"t{named}{_over(term.free)}", named + 1
                self.lines[self.home[term]].append(f"{name} = {text}")
                text, binds = name, ATOM
            self.texts[term] = text, binds
        outputs = [self._output(number, output) for number, output in enumerate(self.region.outputs)]
        return "\n".join([self._sizes(), *self.lines[None], *outputs]) + "\n"

    # ---- what is written, and where

    def _in_order(self) -> list[Term]:
        """The terms that are spelled, operands first."""
        order: list[Term] = []
        stack = [(root, False) for root in reversed(self.roots)]
        while stack:
            term, expanded = stack.pop()
            if expanded:
                order.append(term)
            elif term not in self.spellings:
                self.spellings[term] = found = self._spell(term)
                stack.append((term, True))
                stack += [(operand, False) for operand in reversed(found.operands)]
        return order

    def _spell(self, term: Term) -> Spelling:
        if term.op == "loop":
            return Spelling("", term.operands)
        if term.op == "carry":
            return Spelling(self.carries[cast("tuple[int, int]", term.attribute)])
        if term.op == "project":
            place = term.operands[0].loop.identifier, cast(int, term.attribute)
            return Spelling(self.carries[place], term.operands)
        return spell(term, self.region, self.names)

    def _carry_names(self) -> dict[tuple[int, int], str]:
        """(loop, position) -> the name of a carry; what a loop ends with has the name that it had in the loop."""
        carries = [
            ((loop.loop.identifier, position), free)
            for loop in self.loops
            for position, free in enumerate(loop.loop.carries)
        ]
        return {place: f"c{number}{_over(free)}" for number, (place, free) in enumerate(carries)}

    def _homes(self) -> dict[Term, Term | None]:
        """The innermost loop in whose step each term is computed."""
        by_identifier = {loop.loop.identifier: loop for loop in self.loops}
        by_index = {loop.loop.index: loop for loop in reversed(self.loops)}
        around: dict[Term, frozenset[Term]] = {}
        for term in self.region.terms():
            inside = frozenset[Term]().union(*(around[operand] for operand in term.operands))
            if term.op == "carry":
                inside |= {by_identifier[cast("tuple[int, int]", term.attribute)[0]]}
            if not any(loop.loop.index in term.free for loop in inside):
                inside |= {by_index[index] for index in term.free if index in by_index}
            around[term] = inside - {term}
        return {
            term: next((loop for loop in self.loops if loop in inside), None)
            for term, inside in around.items()
        }

    def _is_named(self, term: Term, text: str) -> bool:
        if not self.spellings[term].operands or term.op == "project":
            return False
        if term.op == "cast" and not self.spellings[term.operands[0]].operands:
            return False
        return self.uses[term] > 1 or (len(text) > LONG and term not in self.roots)

    # ---- lines

    def _spelled(self, spelling: Spelling) -> tuple[str, int]:
        parts: list[str] = []
        for operand, least in zip(spelling.operands, spelling.least):
            text, binds = self.texts[operand]
            parts.append(f"({text})" if binds < least else text)
        return spelling.pattern.format(*parts), spelling.binds

    def _write_loop(self, term: Term) -> None:
        loop = term.loop
        starts, nexts = term.inits, term.nexts
        names = [self.carries[loop.identifier, position] for position in range(len(starts))]
        whole, weight = self.region.whole(loop.index)
        blocks = f" ({whole} in blocks of {weight})" if weight > 1 else ""
        begins = ", ".join(f"{name} = {self.texts[start][0]}" for name, start in zip(names, starts))
        needed = "" if term.guard is None else f" (as far as it is needed, if {self.texts[term.guard][0]})"
        lines = [f"for {loop.index} < {self.region.extents[loop.index]}{blocks}{needed}, carrying {begins}:"]
        lines += [f"    {line}" for line in self.lines[term]]
        lines += [f"    next {name} = {self.texts[value][0]}" for name, value in zip(names, nexts)]
        self.lines[self.home[term]] += lines
        self.texts[term] = "", CHOICE

    def _output(self, number: int, output: Output) -> str:
        moved = None if output.dynamic is None else (self.texts[output.dynamic][0], 1)
        only = not output.address.strides and moved is None and output.elements.constant == 1
        where = "" if only else f"[{subscripts(self.region, output.address, moved)}]"
        line = f"out{number}{where} {_COMBINES[output.combine]} {self.texts[output.term][0]}"
        if output.guard is not None and number_of(output.guard) is None:
            line += f" where {self.texts[output.guard][0]}"
        return line + (f"  (in the memory of {self._argument(output.alias)})" if output.alias >= 0 else "")

    def _argument(self, number: int) -> str:
        return self.names.get(number, f"arg{number}")

    def _sizes(self) -> str:
        """The sizes of the indices, and what those that are split are made of."""
        used = {index for term in self.region.terms() for index in (*term.free, *term.reduced)}
        used |= {index for output in self.region.outputs for index in output.indices}
        sizes = [f"{name} < {size}" for name, size in self.region.extents.items() if name in used]
        for whole in dict.fromkeys(whole for whole, _ in self.region.parents.values()):
            parts = [
                part if weight == 1 else f"{weight}*{part}"
                for part, (of, weight) in self.region.parents.items()
                if of == whole
            ]
            sizes.append(f"{whole} = {' + '.join(parts)} < {self.region.extents[whole]}")
        return "for " + (", ".join(sizes) or "one element") + ":"


def _over(indices: frozenset[str]) -> str:
    return f"[{', '.join(sorted(indices, key=natural_key))}]" if indices else ""
