"""Luminal through torch.compile, with parameters frozen for inference; it notes what runs through torch."""

from __future__ import annotations

import luminal as lm
from benchmarks.peers._compiled import compiled
from luminal.bench.case import Case, LeftOutError, Prepared, Program
from luminal.bench.torch_program import in_torch
from luminal.torch.report import reset_fallbacks


def missing() -> str:
    return ""


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    if program.quantised is not None and program.luminal is None:
        raise LeftOutError(f"Luminal has no linear layer of {program.quantised.format}")
    module = program.luminal or program.module
    options = {} if program.training else {"freeze": True}
    reset_fallbacks()
    function = compiled(module, case.dynamic, backend="luminal", options=options)
    return in_torch(program, module, function, _note)


def _note() -> str:
    found = ", ".join(lm.fallbacks())
    return f"runs {found} through torch" if found else ""
