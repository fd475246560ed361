"""torch.compile in its mode max-autotune, which times templates of matrix products, with parameters frozen."""

from __future__ import annotations

from benchmarks.peers import inductor
from benchmarks.peers._compiled import compiled
from luminal.bench.case import Case, Prepared, Program
from luminal.bench.torch_program import in_torch

missing = inductor.missing


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    from torch._inductor import config

    config.freezing = not program.training
    function = compiled(program.module, case.dynamic, backend="inductor", mode="max-autotune")
    return in_torch(program, program.module, function)
