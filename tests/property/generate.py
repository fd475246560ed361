"""Random programs of each kind from a source of chance; the same chance gives the same program."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.dim import Dim
from tests.property.choices import SHAPE_SIZES
from tests.property.maker import Maker, Mismatch
from tests.property.namespaces import FLOATS, INTEGERS
from tests.property.program import Program
from tests.property.proposals import PROPOSALS

KINDS = ("dyadic", "float", "views", "symbolic", "torch")
SYMBOLS = (("s", 0, 9), ("t", 1, 40), ("n", 0, 20))
SYMBOLIC_SIZES = ("s", "t", "n", "s", "t", "s + 1", "2*t", "1", "2", "3", "4", "6", "16")
LARGEST_OTHER = 1_000_000
"""Elements of a value at sizes that are not the generator's own."""
LAYOUTS = ("contiguous", "contiguous", "transposed", "strided", "expanded", "channels")


def generate(chance: random.Random, kind: str, seed: int = 0, steps: int = 12) -> Program:
    """A program with outputs. Raises Mismatch where PyTorch and the Graph API part while it is built."""
    symbols = SYMBOLS if kind == "symbolic" or (kind != "torch" and chance.random() < 0.25) else ()
    if kind == "torch" and chance.random() < 0.5:
        symbols = tuple((name, 2, high) for name, _, high in SYMBOLS)
    sizes = {name: chance.randint(low, min(high, 12)) for name, low, high in symbols}
    licences = () if chance.random() < 0.25 else None
    maker = Maker(chance, kind, symbols, sizes, seed, licences)
    _add_inputs(maker)
    weights, proposals = zip(*PROPOSALS[kind])
    count = chance.randint(2, steps)
    tries = 0
    while len(maker.program.steps) < count and tries < 8 * steps and not maker.raises:
        chance.choices(proposals, weights)[0](maker)
        tries += 1
    return finish(maker)


def finish(maker: Maker) -> Program:
    """The program with one to four outputs, and the sizes that it is run with."""
    chance = maker.chance
    if maker.raises:
        return replace(maker.program, sizes=(maker.sizes,))
    made = [value.number for value in maker.values[len(maker.program.inputs) :]] or [0]
    used = {number for step in maker.program.steps for number in step.operands}
    ends = [number for number in made if number not in used]
    others = [number for number in range(len(maker.values)) if number not in ends]
    outputs = ends[-3:] + chance.sample(others, min(len(others), chance.choice((0, 0, 1, 2))))
    chance.shuffle(outputs)
    program = replace(maker.program, outputs=tuple(outputs), sizes=tuple(_sizes(maker)))
    return _with_updates(maker, program) if maker.kind == "torch" and chance.random() < 0.5 else program


def _with_updates(maker: Maker, program: Program) -> Program:
    """With values copied into inputs at the end."""
    chance = maker.chance
    updates: list[tuple[int, int]] = []
    for target, one in enumerate(program.inputs):
        value = maker.values[target]
        fits = [v.number for v in maker.values[len(program.inputs) :] if v.shape == value.shape]
        lost = one.dtype == "f64" and not one.shape  # Dynamo takes it for a Python float, and updates nothing
        if fits and one.layout != "expanded" and not lost and chance.random() < 0.7:
            updates.append((target, chance.choice(fits)))
    return replace(program, updates=tuple(updates))


def _sizes(maker: Maker) -> list[dict[str, int]]:
    """The generator's sizes, and for symbolic kinds others: 0 and 1, the ends of the ranges, random ones."""
    found = [maker.sizes]
    if not maker.program.symbols or maker.kind not in ("symbolic", "torch"):
        return found
    for extreme in ("least", "one", "random", "random", "large"):
        sizes: dict[str, int] = {}
        for name, low, high in maker.program.symbols:
            low = max(low, 2) if maker.kind == "torch" else low
            chosen = {"least": low, "one": max(1, low), "large": min(high, 33)}.get(extreme)
            sizes[name] = maker.chance.randint(low, min(high, 17)) if chosen is None else chosen
        if max(_elements(value.shape, sizes) for value in maker.values) <= LARGEST_OTHER:
            found.append(sizes)
    return found


def _elements(shape: Sequence[Dim], sizes: Mapping[str, int]) -> int:
    return math.prod(size.evaluate(sizes) for size in shape)


def _add_inputs(maker: Maker) -> None:
    chance = maker.chance
    names = FLOATS + INTEGERS + ("bool_",)
    weights = (3, 10, 2, 3, 3, 2, 1, 1, 1, 2)
    pool = SYMBOLIC_SIZES if maker.program.symbols else SHAPE_SIZES
    # few different sizes, so that shapes meet
    few = [chance.choice(pool) for _ in range(chance.randint(1, 4))]
    if maker.kind == "torch" and maker.program.symbols:
        for name in maker.symbols:
            maker.input(
                "f32",
                [name, *([chance.choice(few)] if chance.random() < 0.5 else [])],
                chance.choice(LAYOUTS),
            )
    for _ in range(chance.randint(1, 3)):
        dtype = chance.choices(names, weights)[0]
        while True:
            shape = [
                chance.choice(few if chance.random() < 0.8 else pool)
                for _ in range(chance.choice((0, 1, 2, 2, 3, 3, 4)))
            ]
            if _count(maker, shape) <= 3000:
                break
        layout = chance.choice(LAYOUTS) if maker.kind == "torch" else "contiguous"
        maker.input(dtype, shape, layout)


def _count(maker: Maker, shape: list[str]) -> int:
    total = 1
    for one in shape:
        total *= max(1, eval(one, {}, dict(maker.sizes)))
    return total


def generate_from_seed(kind: str, seed: int) -> Program:
    """The program of a seed. Mismatch as `generate`."""
    return generate(random.Random(f"{kind} {seed}"), kind, seed)


__all__ = ["KINDS", "Mismatch", "finish", "generate", "generate_from_seed"]
