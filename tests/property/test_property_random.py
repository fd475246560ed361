"""A few dozen random programs of each kind, at every level; `python -m tests.property` runs thousands.

A failing example prints the program; the seeds of the command are those of `generate_from_seed`.
"""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.generate import KINDS, generate, generate_from_seed
from tests.property.maker import Mismatch
from tests.property.mutation import check_mutation
from tests.property.runner import check_program, describe

COUNTS = {"dyadic": 20, "float": 20, "views": 20, "symbolic": 8, "torch": 8}
"""Programs by seed."""


@pytest.mark.parametrize("kind", KINDS)
def test_programs_by_seed(kind: str) -> None:
    for seed in range(COUNTS[kind]):
        torch.set_num_threads(1 + seed % 2)
        try:
            check_program(generate_from_seed(kind, seed))
        except Mismatch as mismatch:
            pytest.fail(describe(mismatch, kind, seed))


@pytest.mark.parametrize("seed", [50009, 51038, *range(6)])
def test_programs_that_write_in_place(seed: int) -> None:
    torch.set_num_threads(1 + seed % 2)
    check_mutation(seed)


@pytest.mark.parametrize("kind", ["dyadic", "float", "views"])
def test_programs_of_hypothesis(kind: str) -> None:
    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def run(chance: random.Random) -> None:
        check_program(generate(chance, kind, steps=6))

    run()


def test_the_same_seed_gives_the_same_program() -> None:
    for kind in KINDS:
        assert str(generate_from_seed(kind, 7)) == str(generate_from_seed(kind, 7))
