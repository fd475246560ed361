"""One seed: generate, run at every level, and describe what failed."""

from __future__ import annotations

import traceback
from dataclasses import fields

import torch

from tests.property.check import Report, check
from tests.property.generate import generate_from_seed
from tests.property.maker import Mismatch
from tests.property.mutation import check_mutation
from tests.property.program import Program
from tests.property.shrink import shrink
from tests.property.torch_path import check_torch


def check_program(program: Program) -> Report:
    """Mismatch where a level differs."""
    return check_torch(program) if program.kind == "torch" else check(program)


def check_seed(kind: str, seed: int, total: Report) -> Mismatch | None:
    """The mismatch of a seed, if it has one; what was compared is added to `total`."""
    torch.set_num_threads(1 + seed % 2)
    program = Program((), (), (), (), ({},), kind, None, seed)
    try:
        if kind == "mutation":
            check_mutation(seed)
            return None
        program = generate_from_seed(kind, seed)
        report = check_program(program)
    except Mismatch as mismatch:
        return mismatch
    except Exception:
        return Mismatch("harness", traceback.format_exc(), program)
    for entry in fields(Report):
        setattr(total, entry.name, getattr(total, entry.name) + getattr(report, entry.name))
    return None


def describe(mismatch: Mismatch, kind: str, seed: int, make_small: bool = True) -> str:
    """The report of a mismatch: the seed, how to run it again, and the (smaller) program."""
    again = f"python -m tests.property --kind {kind} --seed {seed} --count 1"
    found = mismatch
    built = ("harness", "refused", "builder", "dtype", "shape", "rule", "eager", "mutation")
    if make_small and mismatch.stage not in built:

        def fails(program: Program) -> bool:
            nonlocal found
            try:
                check_program(program)
            except Mismatch as other:
                if other.stage == mismatch.stage:
                    found = other
                    return True
            except Exception:
                return False
            return False

        shrink(mismatch.program, fails)
    data = "".join(
        f"# v{n} = {one.data.tolist()}\n"
        for n, one in enumerate(found.program.inputs)
        if one.data is not None and one.data.numel() <= 64
    )
    return f"--- seed {seed}: {found}\n{found.program}{data}# again: {again}"
