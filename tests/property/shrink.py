"""Smaller programs that still fail: outputs dropped, steps dropped or replaced by inputs that hold eager's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tests.property.data import make_input
from tests.property.program import Input, Program, Step, dtype_name, torch_values

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, tries: int = 200) -> Program:
    """A program on which `fails` still holds and of which no single change that is tried does."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _candidates(program):
            tries -= 1
            if tries <= 0:
                break
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    for size in program.sizes:
        if len(program.sizes) > 1:
            yield replace(program, sizes=(size,))
    for update in program.updates:
        yield replace(program, updates=tuple(one for one in program.updates if one != update))
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield without_dead(replace(program, outputs=(output,)))
    for number in range(len(program.steps)):
        shorter = replace(program, steps=program.steps[: number + 1])
        first = shorter.first_results[number]
        outputs = tuple(first + n for n in range(program.steps[number].results))
        if number + 1 < len(program.steps):
            yield without_dead(replace(shorter, outputs=outputs, updates=()))
    if len(program.sizes) == 1 and not program.symbols:
        for number in range(len(program.steps)):
            cut = cut_step(program, number)
            if cut is not None:
                yield cut
    if program.symbols and len(program.sizes) == 1:
        yield fixed(program)


def fixed(program: Program) -> Program:
    """Every symbol as the number that it stands for."""
    values = dict(program.sizes[0])

    def known(text: str) -> str:
        return str(eval(text, {"min": min, "max": max}, dict(values)))

    inputs = tuple(
        replace(one, shape=tuple(map(known, one.shape)), data=make_input(program, n, values))
        for n, one in enumerate(program.inputs)
    )
    steps = tuple(
        replace(step, attributes=tuple((k, _known(v, values)) for k, v in step.attributes))
        for step in program.steps
    )
    return replace(program, symbols=(), inputs=inputs, steps=steps, sizes=({},))


def _known(value: object, values: dict[str, int]) -> object:
    from tests.property.program import Name, Size

    if isinstance(value, tuple):
        return tuple(_known(one, values) for one in value)
    if isinstance(value, Size):
        return Size(str(eval(value, {"min": min, "max": max}, dict(values))))
    if isinstance(value, Name):
        text = str(value)
        for name, number in values.items():
            text = "".join(str(number) if part == name else part for part in _words(text))
        return Name(text)
    return value


def _words(text: str) -> list[str]:
    import re

    return re.findall(r"\w+|\W", text)


def without_dead(program: Program) -> Program:
    """Without the steps that no output needs."""
    needed = {*program.outputs, *(number for pair in program.updates for number in pair)}
    kept: list[int] = []
    firsts = program.first_results
    for number in reversed(range(len(program.steps))):
        step, first = program.steps[number], firsts[number]
        if any(first + n in needed for n in range(step.results)):
            kept.append(number)
            needed.update(step.operands)
    kept.reverse()
    used = [n for n in range(len(program.inputs)) if n in needed or program.symbols]
    names = {old: new for new, old in enumerate(used)}
    inputs = tuple(
        replace(program.inputs[n], data=_data(program, n)) if not program.symbols else program.inputs[n]
        for n in used
    )
    steps: list[Step] = []
    number = len(used)
    for position in kept:
        step = program.steps[position]
        steps.append(replace(step, operands=tuple(names[n] for n in step.operands)))
        for n in range(step.results):
            names[firsts[position] + n] = number
            number += 1
    outputs = tuple(names[n] for n in program.outputs)
    updates = tuple((names[target], names[value]) for target, value in program.updates)
    return replace(program, inputs=inputs, steps=tuple(steps), outputs=outputs, updates=updates)


def _data(program: Program, number: int) -> torch.Tensor | None:
    if len(program.sizes) != 1:
        return program.inputs[number].data
    return make_input(program, number, program.sizes[0])


def cut_step(program: Program, number: int) -> Program | None:
    """A step of one result replaced by an input that holds what eager gives for it."""
    step = program.steps[number]
    first = program.first_results[number]
    if step.results != 1 or first in program.outputs:
        return None
    try:
        inputs = [make_input(program, n, program.sizes[0]) for n in range(len(program.inputs))]
        value = torch_values(program, inputs, program.sizes[0])[first]
    except Exception:
        return None
    count = len(program.inputs)
    made = Input(
        dtype_name(value.dtype), tuple(str(n) for n in value.shape), "contiguous", value.contiguous()
    )

    def renamed(old: int) -> int:
        if old < count:
            return old
        return count if old == first else old + 1 if old < first else old

    kept = [
        replace(one, operands=tuple(renamed(n) for n in one.operands))
        for position, one in enumerate(program.steps)
        if position != number
    ]
    outputs = tuple(renamed(n) for n in program.outputs)
    updates = tuple((target, renamed(n)) for target, n in program.updates)
    held = tuple(replace(one, data=inputs[n]) for n, one in enumerate(program.inputs))
    shorter = replace(program, inputs=(*held, made), steps=tuple(kept), outputs=outputs, updates=updates)
    return without_dead(shorter)
