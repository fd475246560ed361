"""Random regions under random block schedules: the text gives what the regions' interpreter gives, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.terms import Region, postorder
from luminal.errors import ScheduleError, UnsupportedTargetError
from luminal.passes import interpret_regions as interpreter
from luminal.passes.form_regions import form_regions
from tests.emit_triton.support import compare, emit, run
from tests.passes.random_primitives import RandomGraph, random_graphs

Array = np.ndarray[Any, Any]


def block_schedule(region: Region, chance: random.Random) -> str:
    """A stage for each output: programs, loops and blocks of its indices and of those of its reductions."""
    return "; ".join(
        f"out{number}: {_stage(region, number, chance)}" for number in range(len(region.outputs))
    )


def _stage(region: Region, number: int, chance: random.Random) -> str:
    output = region.outputs[number]
    terms = list(postorder(output.terms))
    reduced = {index for term in terms if term.op == "reduce" for index in term.reduce.indices}
    scanned = {term.scan.index for term in terms if term.op == "scan"}
    own = sorted(output.indices - reduced, key=natural_key)
    if region.is_ordered(output):
        return (
            " ".join(f"{index}:*" for index in [*own, *sorted(reduced - output.indices, key=natural_key)])
            or "."
        )
    chance.shuffle(own)
    parallel: list[str] = []
    loops: list[str] = []
    blocks: list[str] = []
    for index in own:
        if index in scanned:
            continue
        (parallel if chance.random() < 0.6 else loops).append(index)
        if chance.random() < 0.7:
            blocks.append(f"{index}:{chance.choice([1, 2, 4, 16])}:block")
    for index in sorted(reduced, key=natural_key):
        size = region.extents[index].constant
        whole = size is not None and size <= 32 and chance.random() < 0.4 and index not in scanned
        if whole:
            blocks.append(f"{index}:32:block")
            continue
        loops.append(index)
        if chance.random() < 0.6 and index not in scanned:
            blocks.append(f"{index}:{chance.choice([2, 4, 16])}:block")
    loops += [index for index in sorted(scanned, key=natural_key) if index not in loops]
    chance.shuffle(blocks)
    factors = [f"{index}:*:parallel" for index in parallel] + [f"{index}:*" for index in loops] + blocks
    return " ".join(factors) or "."


@dataclass
class Trial:
    """The regions' interpreter, which also runs each region as text and compares; it counts those whose schedule was
    legal, and those whose was refused."""

    chance: random.Random = field(default_factory=random.Random)
    ran: int = 0
    refused: int = 0

    def evaluate(self, region: Region, arguments: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        wanted = evaluate(region, arguments, dims)
        schedule = block_schedule(region, self.chance)
        try:
            kernels = emit(region, schedule)
        except (ScheduleError, UnsupportedTargetError):
            self.refused += 1
            return wanted
        self.ran += 1
        inputs = [
            array[: argument.elements.evaluate(dims)]
            for array, argument in zip(arguments, region.arguments, strict=True)
        ]
        try:
            compare(run(region, kernels, inputs, dims), wanted, 0)
        except Exception as error:
            sources = "\n".join(kernel.source for kernel in kernels)
            raise AssertionError(f"{schedule}\n{sources}") from error
        return wanted


def test_random_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial()
    monkeypatch.setattr(interpreter, "evaluate", trial.evaluate)

    @given(random_graphs(), st.integers(0, 2**16))
    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=(Phase.explicit, Phase.generate),
    )
    def run_one(case: RandomGraph, seed: int) -> None:
        trial.chance = random.Random(seed)
        interpreter.interpret_regions(form_regions(case.graph), case.inputs, case.dims)

    run_one()
    assert trial.ran > 3 * trial.refused
