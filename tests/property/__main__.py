"""`python -m tests.property --count 1000 --seed 0 --kind float`: random programs, the failing ones made small.

Every program has a seed of its own, from `--seed` up; `--seed N --count 1` runs that one again. They run in a child
process, so that one that crashes is reported like the others.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import tempfile
import time

KINDS = ("dyadic", "float", "views", "symbolic", "torch", "mutation")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="float")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="do not make failing programs smaller")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return run(given.kind, given.seed, given.count, not given.whole)
    seed, end, failures = given.seed, given.seed + given.count, 0
    started = time.monotonic()
    while seed < end:
        command = [sys.executable, "-m", "tests.property", "--child", "--kind", given.kind]
        command += [
            "--seed",
            str(seed),
            "--count",
            str(min(250, end - seed)),
            *(["--whole"] if given.whole else []),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            last, after = seed, seed
            for line in child.stdout:
                if line.startswith("@"):
                    word, _, number = line[1:].strip().partition(" ")
                    last = int(number)
                    after = last + (word in ("passed", "failed"))
                    failures += word == "failed"
                else:
                    print(line, end="", flush=True)
        if child.returncode and after == last:
            failures += 1
            print(
                f"seed {last} of kind {given.kind} ended the process: status {child.returncode}", flush=True
            )
            after = last + 1
        seed = max(after, seed + 1)
        print(
            f"{given.kind}: {seed - given.seed} of {given.count}, {failures} failed",
            file=sys.stderr,
            flush=True,
        )
    seconds = time.monotonic() - started
    print(f"{given.kind}: {given.count} programs from seed {given.seed}, {failures} failed, {seconds:.0f} s")
    return 1 if failures else 0


def run(kind: str, seed: int, count: int, make_small: bool) -> int:
    """Programs in this process; progress as lines that begin with @."""
    faulthandler.enable()
    os.environ["LUMINAL_CACHE_DIR"] = tempfile.mkdtemp(prefix="luminal-property-")
    import warnings

    import torch

    from tests.property.check import Report
    from tests.property.runner import check_seed, describe

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    total = Report()
    for number in range(seed, seed + count):
        print(f"@running {number}", flush=True)
        problem = check_seed(kind, number, total)
        if problem is None:
            print(f"@passed {number}", flush=True)
            continue
        print(describe(problem, kind, number, make_small), flush=True)
        print(f"@failed {number}", flush=True)
    if total.elements:
        known, points = total.informative / total.elements, total.points / total.elements
        print(
            f"{kind} {seed}: {total.runs} runs, {total.elements} elements, {known:.1%} bounded, "
            f"{points:.1%} to the bit, "
            f"{total.errors} errors as in eager"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
