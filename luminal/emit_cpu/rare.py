"""Paths that are seldom taken, off straight-line code: several are one branch, so that what is around them stays one.

LLVM would move code that stands before a branch behind it, where only that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luminal.emit_cpu.values import Value


@dataclass(frozen=True)
class Rare:
    """Where any of `conditions` holds, `lines` are run, and each of `results`, a name, the usual value and that of the
    lines, is the latter. `name` is of no other block."""

    name: str
    conditions: tuple[Value, ...]
    lines: tuple[str, ...]
    results: tuple[tuple[Value, Value, Value], ...]

    @property
    def last_block(self) -> str:
        """The block that is open behind it."""
        return f"{self.name}_done"

    @property
    def code(self) -> list[str]:
        any_, code = self.conditions[0].text, [f"  br label %{self.name}", f"{self.name}:"]
        for number, condition in enumerate(self.conditions[1:]):
            code.append(f"  %{self.name}_or{number} = or i1 {any_}, {condition.text}")
            any_ = f"%{self.name}_or{number}"
        taken, done = f"{self.name}_taken", self.last_block
        phis = [
            f"  {result.text} = phi {result.type} [ {usual.text}, %{self.name} ], [ {rare.text}, %{taken} ]"
            for result, usual, rare in self.results
        ]
        code += [f"  br i1 {any_}, label %{taken}, label %{done}", f"{taken}:", *self.lines]
        return [*code, f"  br label %{done}", f"{done}:", *phis]


def together(rare: Sequence[Rare]) -> Rare:
    """One branch for paths none of which needs what another gives."""
    return Rare(
        rare[0].name,
        tuple(condition for each in rare for condition in each.conditions),
        tuple(line for each in rare for line in each.lines),
        tuple(result for each in rare for result in each.results),
    )
