"""What the timed search chooses against what the model alone would: each region's two kernels take turns.

The search is the one of a default compilation, from an empty database.  A region counts as slower where the rank
test of the search says so twice.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.search.regions import Found, of_program, real_regions
from luminal.bench.case import BenchmarkError
from luminal.bench.report import LeftOutError, Report, Settings
from luminal.bench.rows import geometric_mean
from luminal.emit_cpu.jit import Target
from luminal.options import CompileOptions
from luminal.plan.choosers import start_workers, timed_chooser
from luminal.plan.measure import HostMeasurer, MeasuredKernel
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.chooser import ModelChooser
from luminal.search.forms import Forms
from luminal.search.shapes import Shapes
from luminal.search.timing import is_faster
from luminal.search.trial import Trials

PROGRAMS, QUICK_PROGRAMS = 60, 3
TIMING = 0.2
"""Seconds of timing two kernels in turn."""


@dataclass(frozen=True)
class Compared:
    """A region's two kernels: the model's seconds over those of the searched one, 1 where both are one; whether the
    searched one is slower for certain; the larger spread, as a part of the median; and the seconds of the search."""

    found: Found
    ratio: float
    is_slower: bool
    is_other: bool
    spread: float
    search_seconds: float


def measure(report: Report, settings: Settings) -> None:
    start_workers()
    regions, missing = real_regions(settings.quick)
    programs: list[Found] = []
    try:
        for number in range(QUICK_PROGRAMS if settings.quick else PROGRAMS):
            programs += of_program(settings.seed + number)
    except LeftOutError as error:
        missing["programs"] = str(error)
    done: list[Compared] = []
    for kind, chosen in (("real", regions), ("random", programs)):
        compared: list[Compared] = []
        for found in chosen:
            one = compare(found, settings.threads)
            compared += [] if one is None else [one]
            report.progress(len(done) + len(compared), len(regions) + len(programs))
        _tell(report, kind, compared)
        done += compared
    report.figure(
        "regions slower than by the model alone",
        sum(each.is_slower for each in done),
        "regions",
        at_most=0,
        regions=len(done),
        slower=[
            f"{each.found.source}, {each.found.key}: {each.ratio:.3f}" for each in done if each.is_slower
        ],
        missing=missing,
    )


def _tell(report: Report, kind: str, compared: Sequence[Compared]) -> None:
    if not compared:
        return
    others = [each for each in compared if each.is_other]
    worst = min(compared, key=lambda each: each.ratio)
    report.figure(
        f"{kind} regions, the model's time over the searched one's, geometric mean",
        geometric_mean([each.ratio for each in compared]),
        "x",
        at_least=1.0,
        regions=len(compared),
        another_chosen=len(others),
        of_those=geometric_mean([each.ratio for each in others]) if others else math.nan,
        best=max(each.ratio for each in compared),
        worst=worst.ratio,
        worst_region=str(worst.found),
        ratios={str(each.found): round(each.ratio, 3) for each in others},
        median_spread=statistics.median(each.spread for each in compared),
    )
    seconds = [each.search_seconds for each in compared]
    report.figure(f"{kind} regions, search", sum(seconds), "s", longest=max(seconds))


def compare(found: Found, threads: int) -> Compared | None:
    """One region; None where it cannot be run on made-up data."""
    region, forms = found.region, Forms(found.licences)
    dims = Shapes(region, found.samples.expected).values
    compiler = KernelCompiler(Target.host(), found.licences, use_cache=False)
    measurer = HostMeasurer(compiler)
    trials = Trials(region, dims, threads, measurer.place)
    if not trials.is_valid:
        return None
    chooser = timed_chooser(compiler, CompileOptions(cache=False), forms)
    begun = time.perf_counter()
    searched = chooser.choose(region, found.key, found.samples)
    seconds = time.perf_counter() - begun
    model = ModelChooser(chooser.machine, forms).choose(region, found.key, found.samples)
    if (model.form, model.schedule) == (searched.form, searched.schedule):
        return Compared(found, 1.0, False, False, 0.0, seconds)
    kernels: dict[int, MeasuredKernel] = {}
    for number, choice in enumerate((model, searched)):
        form = forms.find(region, found.key, choice.form)
        assert form is not None
        kernels[number] = measurer.compile(form, choice.schedule, choice.cost)
        # the first runs lay parameters out, and are no part of what is timed
        wrong = trials.check(number, form, choice.schedule, bool(choice.form), kernels[number])
        if wrong is not None:
            raise BenchmarkError(f"{found}: {wrong}")
    old, new = trials.time(kernels, TIMING)
    is_slower = is_faster(old, new)
    if is_slower:
        old, new = trials.time(kernels, TIMING)
        is_slower = is_faster(old, new)
    ratio = statistics.median(old) / statistics.median(new)
    return Compared(found, ratio, is_slower, True, max(_spread(old), _spread(new)), seconds)


def _spread(times: Sequence[float]) -> float:
    """The distance between the quartiles over the median."""
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle
