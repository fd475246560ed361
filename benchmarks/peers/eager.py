"""torch as it is: the contender whose results the others are compared with."""

from __future__ import annotations

from luminal.bench.case import Case, Prepared, Program, absent
from luminal.bench.torch_program import in_torch


def missing() -> str:
    return absent("torch")


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    return in_torch(program, program.module, program.module)
