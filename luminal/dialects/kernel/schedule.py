"""A schedule as data: where each term of a region is computed, where it is kept, and in which order loops run.

It prints as one line of text, which is its key in the results database and parses back:

    out0: i:*:parallel@ic j:*@jp i:8 i:8:tile j:2:tile j:16:lane k:* k:4:unroll; keep %3 at ic as i:8 k:* i:8:
    k:* i:8:tile

Each stage factors the indices that are not yet bound where it stands.  A factor is
`index:extent[:role][:masked][@name]`, outermost first; `*` stands for what is left of the index.  Roles: loop (the
default), parallel, unroll, partial (a loop of a reduction that folds from the identity and is then folded into what
the loops around it carry), tile (unrolled in registers, one value each), block (as tile, but what a reduction finds in
one is combined at once, so that what it carries has no such axis), lane (the lanes of a vector), group (neighbours
along an index that lie side by side within each lane, as the operands of a dot-product instruction do; a block where
a reduction finds it).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from luminal.errors import ScheduleError

ROLES = ("loop", "parallel", "unroll", "partial", "tile", "block", "lane", "group")
LOOP_ROLES = ("loop", "parallel", "unroll", "partial")


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of an index.  `masked`: a ragged edge is met by masks in one body, not by a second body."""

    index: str
    extent: int | None
    role: str = "loop"
    name: str | None = None
    masked: bool = False

    def __str__(self) -> str:
        text = f"{self.index}:{'*' if self.extent is None else self.extent}"
        text += f":{self.role}" if self.role != "loop" else ""
        text += ":masked" if self.masked else ""
        return text + (f"@{self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage for a kept term: mixed-radix digits, outermost first, one copy per iteration of the loop `at`.

    `home`: "scratch"; "packed" (a constant argument that the host has laid out so; nothing is filled); or an output's
    name such as "out0" (the output's own memory holds the term until the output replaces it; no digits then).
    `ahead`: of a packed one, while a panel is used the next is fetched (luminal/passes/ahead.py).
    """

    digits: tuple[tuple[str, int | None], ...] = ()
    at: str | None = None
    home: str = "scratch"
    ahead: bool = False

    def __str__(self) -> str:
        if self.home not in ("scratch", "packed"):
            return f"in {self.home}"
        digits = " ".join(f"{index}:{'*' if extent is None else extent}" for index, extent in self.digits)
        kind = "ahead" if self.ahead else "packed" if self.home == "packed" else "as"
        return f"{kind} {digits or '.'}" + (f" from {self.at}" if self.at else "")


@dataclass(frozen=True, slots=True)
class Target:
    """What a stage computes: output number `output`, or term number `term` into its buffer."""

    output: int = -1
    term: int = -1
    buffer: Buffer | None = None
    nontemporal: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A nest of loops that computes its targets, standing in the body of the loop named `at` (None: the kernel)."""

    targets: tuple[Target, ...]
    factors: tuple[Factor, ...]
    at: str | None = None

    def __str__(self) -> str:
        factors = " ".join(map(str, self.factors)) or "."
        if self.targets[0].output >= 0:
            names = " ".join(f"out{t.output}" + ("!" if t.nontemporal else "") for t in self.targets)
            return f"{names}: {factors}"
        kept = ", ".join(f"%{t.term} {t.buffer}" for t in self.targets)
        return f"keep {kept} at {self.at or 'kernel'}: {factors}"

    def with_buffers(self, change: Callable[[Buffer], Buffer]) -> Stage:
        """The stage with other buffers."""
        targets = (t if t.buffer is None else replace(t, buffer=change(t.buffer)) for t in self.targets)
        return replace(self, targets=tuple(targets))


@dataclass(frozen=True, slots=True)
class CarriedLoop:
    """A loop term whose carries live in buffers: `factors` is its loop, `body` the stages of one iteration in order."""

    term: int
    buffers: tuple[Buffer, ...]
    inits: tuple[Stage, ...]
    factors: tuple[Factor, ...]
    body: tuple[Stage, ...]
    at: str | None = None

    def __str__(self) -> str:
        inner = [f"carry {'; carry '.join(map(str, self.buffers))}"]
        inner += [f"init {stage}" for stage in self.inits] + [f"step {stage}" for stage in self.body]
        return f"loop %{self.term} at {self.at or 'kernel'}: {' '.join(map(str, self.factors))} {{{'; '.join(inner)}}}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Root stages in order, kept terms, and loops whose carries live in memory."""

    roots: tuple[Stage, ...]
    kept: tuple[Stage, ...] = ()
    loops: tuple[CarriedLoop, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.roots, *self.kept, *self.loops)))


def parse_factors(text: str) -> tuple[Factor, ...]:
    """'i:*@ic j:16:lane' -> factors; raises ScheduleError on anything else."""
    return tuple(_factor(word) for word in text.split() if word != ".")


def _factor(word: str) -> Factor:
    body, _, name = word.partition("@")
    index, *rest = body.split(":")
    if not index or not rest or not re.fullmatch(r"\*|[1-9]\d*", rest[0]):
        raise ScheduleError(f"factor {word!r}: expected index:extent[:role][:masked][@name]")
    masked = rest[-1] == "masked"
    role = (rest[1:-1] if masked else rest[1:]) or ["loop"]
    if len(role) != 1 or role[0] not in ROLES:
        raise ScheduleError(f"factor {word!r}: the role is one of {', '.join(ROLES)}")
    return Factor(index, None if rest[0] == "*" else int(rest[0]), role[0], name or None, masked)


def _buffer(text: str) -> Buffer:
    kind, _, rest = text.strip().partition(" ")
    if kind == "in":
        return Buffer(home=rest.strip())
    if kind not in ("as", "packed", "ahead"):
        raise ScheduleError(
            f"buffer {text!r}: expected 'as DIGITS', 'packed DIGITS', 'ahead DIGITS' or 'in outN'"
        )
    digits, _, at = rest.partition(" from ")
    parsed = tuple((factor.index, factor.extent) for factor in parse_factors(digits))
    home = "scratch" if kind == "as" else "packed"
    return Buffer(parsed, at.strip() or None, home, ahead=kind == "ahead")


def _stage(text: str) -> Stage:
    head, colon, factors = text.strip().partition(": ")
    if not head or not colon:
        raise ScheduleError(f"stage {text!r}: expected 'TARGETS: FACTORS'")
    if not head.startswith("keep "):
        words = head.split()
        targets = tuple(
            Target(output=_number(w.rstrip("!"), "out"), nontemporal=w.endswith("!")) for w in words
        )
        return Stage(targets, parse_factors(factors))
    kept, _, at = head.removeprefix("keep ").rpartition(" at ")
    targets = []
    for piece in kept.split(", "):
        name, _, buffer = piece.partition(" ")
        targets.append(Target(term=_number(name, "%"), buffer=_buffer(buffer)))
    return Stage(tuple(targets), parse_factors(factors), None if at == "kernel" else at)


def _number(word: str, prefix: str) -> int:
    digits = word.removeprefix(prefix)
    if not word.startswith(prefix) or not digits.isdecimal():
        raise ScheduleError(f"{word!r}: expected {prefix}NUMBER")
    return int(digits)


def _carried_loop(text: str) -> CarriedLoop:
    head, _, body = text.partition("{")
    name_at, _, factors = head.strip().partition(": ")
    name, _, at = name_at.removeprefix("loop ").partition(" at ")
    pieces = [piece.strip() for piece in body.rstrip("} ").split("; ")]
    pick = {
        kind: [p.removeprefix(kind + " ") for p in pieces if p.startswith(kind + " ")]
        for kind in ("carry", "init", "step")
    }
    return CarriedLoop(
        _number(name.strip(), "%"),
        tuple(map(_buffer, pick["carry"])),
        tuple(map(_stage, pick["init"])),
        parse_factors(factors),
        tuple(map(_stage, pick["step"])),
        None if at.strip() == "kernel" else at.strip(),
    )


def parse_schedule(text: str) -> Schedule:
    """The schedule that prints as `text`."""
    roots: list[Stage] = []
    kept: list[Stage] = []
    loops: list[CarriedLoop] = []
    for piece in re.split(r"; (?![^{]*\})", text.strip()):
        if piece.startswith("loop "):
            loops.append(_carried_loop(piece))
        elif piece.startswith("keep "):
            kept.append(_stage(piece))
        else:
            roots.append(_stage(piece))
    return Schedule(tuple(roots), tuple(kept), tuple(loops))
