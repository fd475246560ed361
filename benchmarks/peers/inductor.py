"""torch.compile as it comes, with parameters frozen for inference."""

from __future__ import annotations

from shutil import which

from benchmarks.peers._compiled import compiled
from luminal.bench.case import Case, Prepared, Program, absent
from luminal.bench.torch_program import in_torch

COMPILERS = ("g++", "clang++", "c++")


def missing() -> str:
    return absent("torch") or ("" if any(map(which, COMPILERS)) else "there is no C++ compiler")


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    from torch._inductor import config

    config.freezing = not program.training
    return in_torch(program, program.module, compiled(program.module, case.dynamic, backend="inductor"))
