"""What the scripts of reports call: one candidate of a region again, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.emit_cpu.jit import Target
from luminal.errors import SoundnessError
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.trial import Trials


def reproduce(
    region: str,
    form: str,
    schedule: str,
    cost: int,
    licences: Sequence[str],
    dims: Mapping[str, int],
    threads: int,
) -> None:
    """Compile a candidate from text, run it on the data of the search and compare it with the reference.

    `form`: the text of the form that the schedule is for, "" for the region's own.  Raises SoundnessError where it
    differs; prints so where it does not.
    """
    whole = parse_region(region)
    chosen = parse_region(form) if form else whole
    measurer = HostMeasurer(KernelCompiler(Target.host(), tuple(licences), use_cache=False))
    parsed = parse_schedule(schedule)
    kernel = measurer.compile(chosen, parsed, cost)
    trials = Trials(whole, dims, threads, measurer.place)
    wrong = trials.check(0, chosen, parsed, bool(form), kernel)
    if wrong is not None:
        raise SoundnessError(f"the kernel differs from the reference: {wrong}")
    seconds = sorted(trials.time({0: kernel}, 0.1)[0])
    print(f"the kernel agrees with the reference; median {seconds[len(seconds) // 2] * 1e6:.1f} us")
