"""Builds whole models for GPUs that are not here, and says of each kernel what its machine code takes.

    python -m tests.emit_triton.models [MODEL ...] [--target sm_90 ...] [--full]

Without names: the small models; with --full all of `zoo.MODELS`.  Of one structure that occurs several times there is
one kernel.  The exit status is 1 where a model has not been built, or a kernel has spilled or does not fit its device.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from luminal.emit_triton.resources import Resources, occupancy, refusal
from luminal.errors import LuminalError
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from tests.emit_triton.zoo import MODELS, SMALL_MODELS, imported

HEAD = "| model | target | kernel | form | regs | spills | shared | programs | instructions |"


def build(name: str, target: str) -> GpuProgram:
    found = imported(name).imported
    return build_for_gpu(found.module, target, found.updates, found.hints)


def rows(name: str, program: GpuProgram) -> Iterator[tuple[str, bool]]:
    """A row of the table for each launch, and whether its code is as it should be."""
    target = program.target
    for function in program.functions.values():
        for kernel, compiled in zip(function.kernels, function.compiled, strict=True):
            reason = refusal(compiled.resources, target)
            form = function.candidate.form or "-"
            cells = [name, target.architecture, kernel.name, form, *_taken(compiled.resources)]
            cells[-1:-1] = [str(occupancy(compiled.resources, target))]
            yield f"| {' | '.join(cells)} |" + (f" {reason}" if reason else ""), reason is None


def _taken(found: Resources) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.instructions.items() if kind != "barrier")
    return [str(found.registers), str(found.spills), str(found.shared), kinds or "-"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--target", nargs="+", default=["sm_90", "gfx942"])
    parser.add_argument("--full", action="store_true", help="all models")
    options = parser.parse_args(arguments)
    unknown = set(options.models) - set(MODELS)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    wrong = 0
    print(HEAD, "|---" * 9 + "|", sep="\n")
    for name in options.models or (MODELS if options.full else SMALL_MODELS):
        for target in options.target:
            begin = time.perf_counter()
            try:
                program = build(name, target)
            except LuminalError as error:
                print(f"| {name} | {target} | {type(error).__name__}: {error}", flush=True)
                wrong += 1
                continue
            for row, is_good in rows(name, program):
                print(row)
                wrong += not is_good
            seconds = time.perf_counter() - begin
            print(
                f"{name} for {target}: {len(program.functions)} functions, {seconds:.0f} s", file=sys.stderr
            )
            sys.stdout.flush()
    print(f"{wrong} wrong" if wrong else "all as they should be", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
